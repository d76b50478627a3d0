"""Tasks of inspect_ai as problems and graders: its own prompts and scores, in an environment of its own."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from mill import ROOT, Mill
from proofmill.foreign import inspect_tasks
from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Verdict
from proofmill.schema.entries.problem_entries import Problems
from proofmill.schema.errors import SettingError, TableError
from proofmill.schema.reasons import Reason
from served import good, server

TASKS = ROOT / "tests/fixtures/inspect_tasks/tasks.py"


@pytest.fixture
def installed(inspect_python, monkeypatch) -> None:
    """Set the interpreter."""
    monkeypatch.setenv(inspect_tasks.PYTHON, inspect_python)


def read(name: str, **more) -> list[dict]:
    return [*inspect_tasks.problems(Problems(source="inspect-task", path=str(TASKS), id=name, **more))]


def grade(name: str, *texts: str, **more) -> list:
    """Return the verdicts on texts for the first problem of a task."""
    gold = read(name, **more)[0]["answer"]
    return [
        Verdict(grade, 1, reason, text)
        for grade, reason, text in inspect_tasks.grade([Submission("x", gold, None, text) for text in texts])
    ]


def test_interpreter_must_be_named(monkeypatch):
    """The message says how to install it."""
    monkeypatch.delenv(inspect_tasks.PYTHON, raising=False)
    with pytest.raises(SettingError, match=r"PROOFMILL_INSPECT_PYTHON: not set; .*bin/pip install inspect_ai"):
        read("sums")
    monkeypatch.setenv(inspect_tasks.PYTHON, "/nowhere/python")
    with pytest.raises(SettingError, match="cannot be started"):
        read("sums")


def test_interpreter_without_inspect_is_reported(monkeypatch):
    """A child that fails says why."""
    monkeypatch.setenv(inspect_tasks.PYTHON, sys.executable)
    with pytest.raises(TableError, match=r"the task `sums` cannot be listed \(ModuleNotFoundError: .*inspect_ai"):
        read("sums")


def test_other_problems_are_unscored():
    """A problem with an answer of its own is not of a task."""
    graded = inspect_tasks.grade([Submission("x", answer, None, "7") for answer in ("7", None, '{"a": 1}')])
    assert [(grade, reason) for grade, reason, _ in graded] == [(None, Reason.NO_GOLD)] * 3


@pytest.mark.long
@pytest.mark.usefixtures("installed")
def test_statements_are_what_the_solver_asks():
    """Templates and choices are in the prompt; the target is not. A system message is logged; several turns are refused."""
    rows = read("sums")
    assert len(rows) == 30 and rows[1]["statement"] == "Answer with a number alone.\n\nWhat is 1 + 3?"
    assert rows[1]["problem"] == "sums-s1" and rows[1]["solution"] == "4" and "inspect_ai" in rows[1]["answer"]
    assert re.search(r"ANSWER: \$LETTER.*Which is 0\?\n\nA\) 0\nB\) 1", read("letters")[0]["statement"], re.DOTALL)
    assert [row["statement"] for row in read("spoken")] == ["x", "z"]
    with pytest.raises(TableError, match=r"sample 0: .*calls the model more than once"):
        read("turns")


@pytest.mark.long
@pytest.mark.usefixtures("installed")
def test_scorer_that_fails_costs_its_own_row_alone(monkeypatch):
    """A crash, no verdict, a value off the scale, several values, an endless scorer: unscored; the others keep their grades."""
    monkeypatch.setenv("PROOFMILL_FOREIGN_SECONDS", "20")
    verdicts = grade("odd", "abc", "crash", "cannot tell", "big", "two", "hang", "abcd")
    assert [verdict.grade for verdict in verdicts] == [0.3, None, None, None, None, None, 0.4]
    assert [str(v.reason) for v in verdicts[1:6]] == [
        "no-verdict",
        "no-verdict",
        "off-scale",
        "no-verdict",
        "no-verdict",
    ]
    assert "boom" in verdicts[1].text and "more than 20 s" in verdicts[5].text


@pytest.mark.long
@pytest.mark.usefixtures("installed")
def test_path_may_be_relative(monkeypatch):
    """A path below the current folder is read from there, and kept as it is written."""
    monkeypatch.chdir(TASKS.parents[1])
    entry = Problems(source="inspect-task", path=f"{TASKS.parent.name}/{TASKS.name}", id="sums")
    gold = next(inspect_tasks.problems(entry))["answer"]
    assert json.loads(gold)["path"] == entry.path
    ((grade, *_),) = inspect_tasks.grade([Submission("x", gold, None, "0")])
    assert grade == 1


@pytest.mark.long
@pytest.mark.usefixtures("installed")
def test_one_of_several_values_is_the_grade():
    """`given_grade` names it; without it, and for a key that the scorer does not have, attempts are unscored."""
    assert [verdict.grade for verdict in grade("two_values", "y", "y!", "z")] == [None] * 3
    for key, expected in (("strict", [1, 0, 0]), ("loose", [1, 1, 0]), ("other", [None] * 3)):
        verdicts = grade("two_values", "y", "y!", "z", columns={"given_grade": key})
        assert [verdict.grade for verdict in verdicts] == expected
    assert "not one value: {'strict': " in verdicts[0].text
    with pytest.raises(SettingError, match="`columns` has `statement`; expected `given_grade` alone"):
        read("sums", columns={"statement": "x"})


@pytest.mark.long
@pytest.mark.usefixtures("installed")
def test_judge_of_a_scorer_is_named_and_recorded(monkeypatch):
    """Without a model for the role, attempts are unscored, and say what to set; another judge does not grade them."""
    (verdict,) = grade("judged", "y")
    assert verdict.grade is None and "INSPECT_EVAL_MODEL_ROLE=grader=<provider>/<model>" in verdict.text

    def reply(request, _):
        is_right = "[Submission]: y\n" in str(request["messages"][-1]["content"])
        return 200, good("GRADE: C" if is_right else "GRADE: I"), {}

    with server(reply) as (url, _):
        monkeypatch.setenv("LOCAL_BASE_URL", url)
        monkeypatch.setenv("LOCAL_API_KEY", "none")
        monkeypatch.setenv("INSPECT_EVAL_MODEL_ROLE", "grader=openai-api/local/judge")
        assert [verdict.grade for verdict in grade("judged", "y", "n")] == [1, 0]
        (row,) = read("judged")
        assert "grader=openai-api/local/judge" in json.loads(row["answer"])["versions"]
        monkeypatch.setenv("INSPECT_EVAL_MODEL_ROLE", "grader=openai-api/local/other")
        with pytest.raises(SettingError, match=r"local/other, and the problems of judged were read with .*local/judge"):
            inspect_tasks.grade([Submission("x", row["answer"], None, "y")])


@pytest.mark.long
@pytest.mark.usefixtures("installed")
def test_other_version_or_file_does_not_grade(tmp_path):
    """Grades are by the version and the file that the problems were read with."""
    gold = json.loads(read("sums")[0]["answer"])
    copy = tmp_path / "tasks.py"
    shutil.copy(TASKS, copy)
    with pytest.raises(SettingError, match="the problems of sums were read with inspect_ai 0"):
        inspect_tasks.grade([Submission("x", json.dumps({**gold, "versions": "inspect_ai 0.0.1"}), None, "0")])
    copy.write_text(copy.read_text() + "\n# changed\n")
    with pytest.raises(SettingError, match="has changed since its problems were read"):
        inspect_tasks.grade([Submission("x", json.dumps({**gold, "path": str(copy)}), None, "0")])


@pytest.mark.long
@pytest.mark.parametrize("name", ["sums", "letters"])
@pytest.mark.usefixtures("installed")
def test_score_is_that_of_inspect_eval(tmp_path, inspect_python, name):
    """The same server evaluated by both: the same accuracy to the last digit, here with an interval."""

    def reply(request, _):
        asked = request["messages"][-1]["content"]
        asked = asked if isinstance(asked, str) else asked[0]["text"]
        size = sum(map(ord, asked))
        numbers = re.findall(r"\d+", asked)
        text = f"ANSWER: {'ABCD'[size % 4]}" if "LETTER" in asked else str(int(numbers[0]) + int(numbers[1]) + size % 2)
        return 200, good(text), {}

    entries = {
        "problems/task": {"source": "inspect-task", "path": str(TASKS), "id": name},
        "api/solver": {"id": "m", "price": "unknown"},
        "responses/task": {"problems": "problems/task", "model": "api/solver", "prompt": "verbatim"},
        "grades/task": {"responses": "responses/task", "grader": "inspect-task"},
        "scores/task": {"grades": ["grades/task"], "metrics": ["avg-at-k"]},
    }
    with server(reply) as (url, _), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROOFMILL_SOLVER_URL", url)
        mill = Mill(tmp_path / "results", **entries)
        (row,) = mill.make(*[entry for entry in entries if not entry.startswith("api/")]).rows()
        environment = {**os.environ, "LOCAL_BASE_URL": url, "LOCAL_API_KEY": "none"}
        options = [
            "--model",
            "openai-api/local/m",
            "--log-dir",
            tmp_path / "logs",
            "--log-format",
            "json",
            "--display",
            "none",
        ]
        command = [inspect_python, "-m", "inspect_ai", "eval", f"{TASKS.name}@{name}", *options]
        subprocess.run(command, check=True, env=environment, cwd=TASKS.parent, capture_output=True)
    (log,) = (tmp_path / "logs").glob("*.json")
    theirs = json.loads(log.read_text())["results"]["scores"][0]["metrics"]["accuracy"]["value"]
    assert row["value"] == theirs and 0 < theirs < 1 and row["low"] < theirs < row["high"] and row["unscored"] == 0
