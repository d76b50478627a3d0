"""Test the messages about mistakes that people make, in a table: where, what was found, what was expected, what to do.

`mistakes.csv` has the YAML of an overlay with the mistake (or none), the command with variables before it, and the parts
of the message. The commands are real and run in this process.
"""

import csv
import re
from pathlib import Path

import pytest

from mill import ROOT
from proofmill import __main__ as command
from proofmill.config import plugins

ROWS = list(csv.DictReader((ROOT / "tests/config/mistakes.csv").read_text(encoding="utf-8").splitlines()))
CONFIG = """
r:
  problems/p: {source: table, path: p.jsonl, columns: {statement: question, answer: final}, question-type: answer}
  api/a: {id: m, price: unknown}
  base/b: {source: scratch, problems: problems/p}
  examples/e: {problems: problems/p}
  sft/s: {model: base/b, examples: examples/e, steps: 10}
  responses/x: {problems: problems/p, model: api/a}
  grades/g: {responses: responses/x, grader: final-answer}
  grpo/t: {model: sft/s, problems: problems/p, grader: final-answer, rewards: {grade: 1}, unscored: drop, steps: 4}
  scores/c:
    {models: [sft/s], problems: [problems/p], sampling: {greedy: {temperature: 0}}, grader: final-answer,
     metrics: [avg-at-k]}
"""
PLUGIN = """from proofmill.schema.registry_items import Named
FILTERS = {"mine": Named(len, "x", argument="words")}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Change to a folder with a correct recipe, its data, and a plugin with a mistake."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROOFMILL_A_URL", raising=False)
    for name, text in {
        "config.yaml": CONFIG,
        "p.jsonl": '{"question": "1+1?", "final": 2}\n',
        "odd.py": PLUGIN,
    }.items():
        Path(name).write_text(text)
    yield tmp_path
    plugins.use([])


def run(monkeypatch, capsys, overlay: str, line: str) -> str:
    """Run a command, and return what it prints about its mistake."""
    words = line.split()
    while "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    if overlay:
        Path("o.yaml").write_text(overlay)
        words += ["--configfile", "o.yaml"]
    monkeypatch.setattr("sys.argv", ["proofmill", *words])
    with pytest.raises(SystemExit) as ended:
        command.main()
    said = ended.value.code
    return said if isinstance(said, str) else capsys.readouterr().out * (said == 1)


def test_recipe_without_a_mistake_is_planned(folder, monkeypatch, capsys):
    """The recipe of the table is correct, so each message is about its mistake. Its file is counted."""
    monkeypatch.setattr("sys.argv", ["proofmill", "plan", "r"])
    command.main()
    planned = capsys.readouterr().out
    assert "10 to make" in planned and re.search(r"responses/x +make +~1 +1 ", planned)


def test_table_has_many_mistakes_and_every_part():
    """There are at least 60, each once, and none lacks a part of its message."""
    assert len({(row["overlay"], row["command"]) for row in ROWS}) == len(ROWS) >= 60
    assert all(row[part] for row in ROWS for part in ("where", "found", "expected", "do"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['overlay'] or row['command']}")
def test_message_says_where_what_and_what_to_do(folder, monkeypatch, capsys, row):
    """One line has the place, what was found, what was expected and what to do, in this order, without an empty list."""
    said = run(monkeypatch, capsys, row["overlay"], row["command"])
    parts = [row["where"], ": ", row["found"], "; expected ", row["expected"], row["do"]]
    form = ".*".join(map(re.escape, parts)).replace(re.escape(row["where"]) + ".*", re.escape(row["where"]), 1)
    assert re.search(form, said), said
    assert not re.search(r"expected (one of |some of )?\.", said)
