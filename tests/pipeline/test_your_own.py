"""docs/how-to.md, followed word by word: own data, endpoint, judge, model, chat file, reward and benchmark."""

import re
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from mill import ROOT
from project import Project
from served import good, server

pytestmark = pytest.mark.pipeline
PAGE = (ROOT / "docs/how-to.md").read_text(encoding="utf-8")
NAMED = ("problems.jsonl", "prompts/strict.md", "chat.jsonl", "parts.py")
RIGHT = {"31 + 4": 35, "36 - 2": 34, "12 + 9": 21, "20 - 6": 15}  # the last one is wrong


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def write_page(folder: Path) -> None:
    """Return the files that the page shows, under its names."""
    (folder / "prompts").mkdir()
    for name in NAMED:
        (text,) = re.findall(rf"`{name}`:\n\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
        (folder / name).write_text(text, encoding="utf-8")


def solve(request: dict, _: int) -> tuple:
    asked = request["messages"][-1]["content"]
    found = [value for sum_, value in RIGHT.items() if sum_ in asked]
    return 200, good(f"It is {found[0]}." if found else "ok"), {}


def judge(request: dict, _: int) -> tuple:
    asked = request["messages"][-1]["content"]
    right, said = re.search(r"is (\d+)\. A student", asked), re.search(r"It is (\d+)\.", asked)
    equal = right and said and right[1] == said[1]
    return 200, good(rf"\boxed{{{'Correct' if equal else 'Incorrect'}}}"), {}


@pytest.fixture(scope="module")
def own(chain, tmp_path_factory) -> Project:
    """Return the folder of the page, completely built with servers of 3 lines for the solver and the judge."""
    project = Project(tmp_path_factory.mktemp("own") / "project", "".join(blocks("yaml")))
    write_page(project.folder)
    model = project.folder / "my-model"
    tokenizer = AutoTokenizer.from_pretrained(chain.table("base/tiny").weights())
    tokenizer.chat_template = None
    tokenizer.save_pretrained(model)
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (model / name).write_bytes((chain.table("base/tiny").folder / name).read_bytes())
    (model / "chat_template.jinja").unlink(missing_ok=True)
    with server(solve) as (solver, _), server(judge) as (submission_grader, asked):
        (line,) = blocks("ini")
        line = line.replace("http://127.0.0.1:8000/v1", solver).replace("http://127.0.0.1:8001/v1", submission_grader)
        (project.folder / ".env").write_text(line)
        project.checked = project.run("proofmill", "check", "own")
        project.done = project.run("snakemake", "own")
        project.asked = asked
    return project


def test_page_works_at_the_first_try(own):
    """Every command ends well, and each table of the recipe is there."""
    assert own.checked.returncode == 0, own.checked.stdout
    assert own.done.returncode == 0, own.done.stdout
    assert {name for name in own.config.recipes["own"] if not own.table(name).path.exists()} == set()


def test_grades_are_those_that_the_servers_earned(own):
    """Three of four problems are right, by the judge and by the program; the key reached the judge."""
    page = own.table("scores/own").page.read_text(encoding="utf-8")
    assert re.search(r"\| api/solver \| problems/own \| 0\.75 ", page), page
    assert own.frame("grades/own")["grade"].to_list().count(1.0) == 6
    assert own.frame("grades/own").height == 8
    assert {request["key"] for request in own.asked.requests} == {"Bearer sk-0123"}


def test_chat_and_reward_are_the_folders_own(own):
    """Both conversations are learned, the system's turn among them, and the reward of `parts.py` left its numbers."""
    kept = own.frame("examples/chat")
    assert kept.height == 2 and "Add." in str(kept["messages"].to_list())
    assert "rewards/brief/mean" in set(own.frame("grpo/own")["metric"])


@pytest.mark.long
def test_workflow_is_a_module_of_another(own, tmp_path):
    """As the page shows it: the rules of the pipeline in a Snakefile of one's own."""
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "config.yaml").write_text("mine:\n  problems/x: {source: arithmetic, rows: 4}\n")
    text = next(block for block in blocks("python") if "module proofmill" in block)
    (folder / "Snakefile").write_text(text.replace("/path/to/proofmill", str(own.folder)))
    own.folder, before = folder, own.folder
    done = own.run("snakemake", "--cores", "1", "results/problems/x.parquet")
    own.folder = before
    assert done.returncode == 0, done.stdout
    assert (folder / "results/problems/x.parquet").exists()
