"""Exported packages: the same verdicts as in the pipeline, unscored in each framework's word, and nothing private."""

import importlib
import json
import subprocess
import sys
import zipfile

import pytest

from mill import SMALL, Mill
from proofmill.exports import graded_tasks, packages
from proofmill.exports.for_trl import build_dataset, build_reward
from proofmill.schema.errors import SettingError, TableError
from served import good, server

OWN = """
from proofmill.graders.program_graders import ProgramGrader, grades
from steps import count

GRADERS = {"steps": ProgramGrader(7, "a point for each line", grades(lambda submission: min(7, count(submission.final))))}
"""
RUBRIC = """---
about: mine
needs: [statement, proof]
verdict: points
scale: [0, 1, 2]
---
Grade it. <points>...</points>

<problem>
{{ statement }}
</problem>
<proof>
{{ proof }}
</proof>
"""


def exported(mill: Mill, name: str, folder, to: str = "trl"):
    """Export an entry; return the folder of the package's data."""
    return folder / packages.export(mill.config, name, to, folder, mill.results)


def attempts(mill: Mill, name: str) -> list[tuple[str, str]]:
    """Return problem and text of each row of a table of responses."""
    return [(row["problem"], row["text"]) for row in mill.table(name).rows("problem", "text")]


def test_every_stored_attempt_gets_the_same_verdict(small, tmp_path):
    """Grade, reason and text of the verdict are those of the table of grades."""
    tasks = graded_tasks.GradedTasks(exported(small, "grades/cold", tmp_path / "out"))
    rows = small.table("grades/cold").rows()
    verdicts = tasks.grade_all(attempts(small, "responses/cold"))
    assert [(v.grade, v.reason, v.text) for v in verdicts] == [(r["grade"], r["reason"], r["verdict"]) for r in rows]
    assert tasks.max_points == 7 and len({v.grade for v in verdicts}) >= 1
    solutions = [(row["problem"], row["solution"]) for row in small.table("problems/bench").rows("problem", "solution")]
    assert {verdict.grade for verdict in tasks.grade_all(solutions)} == {7.0}


def test_tasks_are_those_that_the_grader_can_grade(small, tmp_path):
    """A task has the prompt as a conversation; no message has what it is graded by."""
    folder = exported(small, "grades/cold", tmp_path / "out")
    tasks = [json.loads(line) for line in (folder / "tasks.jsonl").read_text().splitlines()]
    schemes = small.table("schemes/bench").rows("problem", "scheme", "dropped")
    assert {task["problem"] for task in tasks} == {row["problem"] for row in schemes if row["dropped"] is None}
    for task in tasks:
        assert [message["role"] for message in task["messages"]] == ["user"]
        assert task["statement"] in task["messages"][0]["content"]
        assert task["scheme"] not in task["messages"][0]["content"]
    assert build_dataset(folder).column_names == ["prompt", "problem"] and len(build_dataset(folder)) == len(tasks)


def test_unscored_is_none_in_trl(tmp_path):
    """A judge without a verdict gives None, not 0; a text without an answer gives 0."""
    entries = {**SMALL, "api/judge": {"id": "j", "price": "unknown"}}
    entries["grades/judged"] = {"responses": "responses/cold", "schemes": "schemes/bench", "grader": "api/judge"}
    mill = Mill(tmp_path / "results", **entries)
    mill.make("problems/train", "problems/bench", "schemes/bench")
    reward = build_reward(exported(mill, "grades/judged", tmp_path / "out"))
    problem = mill.table("problems/bench").rows("problem")[0]["problem"]

    def reply(request, number):
        said = request["messages"][0]["content"]
        return 200, good("<points>7</points>" if "right" in said else "I like it."), {}

    with server(reply) as (url, asked), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROOFMILL_JUDGE_URL", url)
        patch.setenv("PROOFMILL_JUDGE_KEY", "sk-1")
        texts = ["right", "something", ""]
        given = reward([[{"role": "assistant", "content": text}] for text in texts], problem=[problem] * 3)
        assert reward(texts[:1], problem=[problem]) == [1.0]
    assert given == [1.0, None, 0.0]
    assert {request["key"] for request in asked.requests} == {"Bearer sk-1"}
    assert (
        len(asked.requests) == 1 + 3 + 1
    )  # an unparsable verdict is retried twice; nothing is asked about an empty text


def test_own_rubric_and_own_grader_travel(tmp_path, monkeypatch):
    """Files of the user are in the package, without their paths; a cascade of both grades as it does here."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "steps.py").write_text('def count(text):\n    return len(text.split("\\n"))\n')
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "mine.md").write_text(RUBRIC)
    entries = {**SMALL, "api/judge": {"id": "j", "price": "unknown"}}
    entries["grader/mine"] = {"judges": ["api/judge"], "prompt": "mine.md"}
    entries["grades/mine"] = {"responses": "responses/cold", "grader": "grader/mine"}
    entries["grades/steps"] = {"responses": "responses/cold", "grader": "steps"}
    mill = Mill(tmp_path / "results", plugins=("own.py",), **entries)
    mill.make("problems/train", "problems/bench")
    folder = exported(mill, "grades/mine", tmp_path / "mine")
    (rubric,) = (folder / "prompts").iterdir()
    assert rubric.read_text() == RUBRIC and str(tmp_path) not in (folder / "grader.json").read_text()
    problem = mill.table("problems/bench").rows("problem")[0]["problem"]
    with server(lambda request, _: (200, good("<points>1</points>"), {})) as (url, asked):
        monkeypatch.setenv("PROOFMILL_JUDGE_URL", url)
        verdict = graded_tasks.GradedTasks(folder).grade(problem, "proof")
    assert (verdict.grade, verdict.max_points) == (1.0, 2) and "Grade it." in asked.requests[0]["messages"][0][
        "content"
    ]
    folder = exported(mill, "grades/steps", tmp_path / "steps")
    assert sorted(path.name for path in (folder / "plugins").iterdir()) == ["own.py", "steps.py"]
    graded = "from pathlib import Path; from proofmill.exports.graded_tasks import GradedTasks as G; "
    code = f"{graded}print(G(Path({str(folder)!r})).grade({problem!r}, 'a\\nb\\nc').grade)"
    assert subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True).stdout == "3.0\n"


@pytest.mark.parametrize("to", packages.FRAMEWORKS)
def test_package_of_each_framework_is_complete(small, tmp_path, to):
    """Metadata, card, wheel and the framework's module; the same entry gives the same bytes."""
    folder = exported(small, "grades/cold", tmp_path / "out", to)
    again = exported(small, "grades/cold", tmp_path / "again", to)
    files = {
        path.relative_to(tmp_path / "out"): path.read_bytes() for path in folder.parent.rglob("*") if path.is_file()
    }
    assert files == {p.relative_to(tmp_path / "again"): p.read_bytes() for p in again.parent.rglob("*") if p.is_file()}
    (wheel,) = (tmp_path / "out/wheels").iterdir()
    names = zipfile.ZipFile(wheel).namelist()
    assert "proofmill/exports/graded_tasks.py" in names and "proofmill/prompts/grade-strict.md" in names
    card = (tmp_path / "out/README.md").read_text()
    assert "the generator `arithmetic` of this project" in card and "pip install --find-links wheels ." in card
    compile((folder / "__init__.py").read_text(), "module", "exec")
    assert packages.FRAMEWORKS[to].requires in (tmp_path / "out/pyproject.toml").read_text()
    assert (folder / "data.jsonl").exists() == (to == "nemo-gym")


def test_paths_are_replaced_and_the_name_can_be_installed(tmp_path, monkeypatch):
    """Tasks and rows have no path of the machine, and pip accepts the name of an entry that ends in a dash."""
    row = {"statement": f"{tmp_path}/notes has what?", "solution": "It is clear."}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    monkeypatch.chdir(tmp_path)
    entries = {**SMALL, "problems/own": {"source": "table", "path": "rows.jsonl"}}
    entries["responses/own"] = {**SMALL["responses/cold"], "problems": "problems/own"}
    entries["api/judge"] = {"id": "j", "price": "unknown"}
    entries["grades/own-"] = {"responses": "responses/own", "grader": "api/judge", "grader-prompt": "grade-imo"}
    mill = Mill(tmp_path / "results", **entries)
    mill.make("problems/own")
    folder = exported(mill, "grades/own-", tmp_path / "out", "nemo-gym")
    assert 'name = "proofmill-grades-own"' in (tmp_path / "out/pyproject.toml").read_text()
    for path in folder.iterdir():
        assert str(tmp_path) not in path.read_text(), path
    assert "./notes has what?" in (folder / "data.jsonl").read_text()


@pytest.mark.parametrize("module", ["for_inspect", "for_verifiers", "for_nemo_gym"])
def test_adapters_name_their_framework_only(module):
    """An adapter fails for the missing framework, not for something of this project."""
    with pytest.raises(ModuleNotFoundError) as failed:
        importlib.import_module(f"proofmill.exports.{module}")
    assert failed.value.name.partition(".")[0] in ("inspect_ai", "verifiers", "fastapi", "nemo_gym")


def test_grading_needs_no_package_of_the_stages(small, tmp_path):
    """Without polars, torch, openai and others, an exported package grades."""
    folder = exported(small, "grades/cold", tmp_path / "out")
    problem, text = attempts(small, "responses/cold")[0]
    absent = (
        "polars",
        "pyarrow",
        "torch",
        "openai",
        "aiohttp",
        "httpx",
        "transformers",
        "datasets",
        "snakemake",
        "rich",
    )
    code = f"""
import sys
from pathlib import Path
sys.modules.update(dict.fromkeys({absent!r}))
from proofmill.exports.graded_tasks import GradedTasks
print(GradedTasks(Path({str(folder)!r})).grade({problem!r}, {text!r}).grade)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout == f"{small.table('grades/cold').rows()[0]['grade']}\n", done.stderr


def test_what_cannot_be_exported_is_refused(small, tmp_path, monkeypatch):
    """Other kinds, an existing folder, judges with weights, final answers for NeMo-Gym, old tables, a key in a task."""
    with pytest.raises(SettingError, match="expected an entry of grpo, grades or scores"):
        exported(small, "problems/bench", tmp_path / "out")
    with pytest.raises(SettingError, match="already exists; expected a new folder"):
        exported(small, "grades/cold", tmp_path)
    more = {"api/own": {"weights": "sft/cold", "price": {"input": 0, "output": 0}, "temperature": 0}}
    more["grades/own"] = {"responses": "responses/cold", "schemes": "schemes/bench", "grader": "api/own"}
    more["grades/final"] = {"responses": "responses/cold", "grader": "final-answer"}
    mill = Mill(small.results, **SMALL, **more)
    with pytest.raises(SettingError, match="has the weights of sft/cold, which a package cannot contain"):
        exported(mill, "grades/own", tmp_path / "out")
    with pytest.raises(SettingError, match="compares final answers with antlr4-python3-runtime"):
        exported(mill, "grades/final", tmp_path / "out", "nemo-gym")
    edited = Mill(small.results, **{**SMALL, "problems/bench": {**SMALL["problems/bench"], "rows": 11}})
    with pytest.raises(
        TableError, match=r"problems/bench \(`rows` 12 -> 11\), schemes/bench .*Run: snakemake problems/bench"
    ):
        exported(edited, "grades/cold", tmp_path / "out")
    monkeypatch.setenv("MY_API_KEY", small.table("problems/bench").rows("problem")[0]["problem"])
    with pytest.raises(TableError, match="has the value of MY_API_KEY; expected no keys"):
        exported(small, "grades/cold", tmp_path / "out")
    assert not (tmp_path / "out").exists()
