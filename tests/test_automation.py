"""Test what programs read of the commands: JSON with the keys of docs/automation.md, and the exit codes of its table."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from mill import MAINS, ROOT
from proofmill import __main__ as command
from proofmill.artifacts import jobs
from proofmill.config import yaml_files
from proofmill.config.config import expand
from proofmill.config.identity import identity_of
from proofmill.schema.names import kind_of

PAGE = (ROOT / "docs/automation.md").read_text(encoding="utf-8")
CONFIG = """
r:
  problems/a: {source: arithmetic-graded, rows: 4}
  problems/b: {like: problems/a, keep: [{first: 3}]}
  problems/c: {source: problems/b}
  responses/a: {problems: problems/a, model: given}
  grades/a: {responses: responses/a, grader: human}
  scores/a: {grades: [grades/a], metrics: [avg-at-k], max-unscored: 1}
  scores/b: {like: scores/a, confidence: 0.9}
"""
COMMANDS = {
    "plan": "plan",
    "plan --machine": "plan r --machine cpu",
    "check": "check problems/a",
    "why": "why r",
    "why --row": "why scores/a --row 0",
    "diff": "diff scores/a scores/b",
    "show": "show r",
    "gc": "gc",
}
BUILT = ("problems/a", "problems/b", "responses/a", "grades/a", "scores/a", "scores/b")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Build a folder with tables, a table that no recipe has, and an entry that was not built."""
    folder = tmp_path_factory.mktemp("automation")
    (folder / "config.yaml").write_text(CONFIG)
    config = expand(yaml_files.read(folder / "config.yaml"))
    for name in BUILT:
        identity = identity_of(config.entries[name], config.declared)
        jobs.make(MAINS[kind_of(name)], name, identity, folder / "results", config.terms, engine="transformers")
    (folder / "results/problems/old.parquet").write_bytes((folder / "results/problems/a.parquet").read_bytes())
    return folder


@pytest.fixture
def run(built, monkeypatch, capsys):
    """Return a function that runs a command in the folder, and returns its exit code and output."""
    monkeypatch.chdir(built)

    def of(line: str) -> tuple[object, str]:
        monkeypatch.setattr("sys.argv", ["proofmill", *line.split()])
        code: object = 0
        try:
            command.main()
        except SystemExit as ended:
            code = ended.code
        return code, capsys.readouterr().out

    return of


def documented() -> dict[str, set[str]]:
    """Return the keys of the page's table by command."""
    keys = defaultdict(set)
    for name, key in re.findall(r"^\| `([^`]+)` \| `(\w+)` \|", PAGE, re.MULTILINE):
        keys[name].add(key)
    return keys


@pytest.mark.parametrize("name", COMMANDS)
def test_object_has_the_keys_of_the_page_and_is_deterministic(run, name):
    """The output is one object with the version, the command and the documented keys, and the same the second time."""
    first, second = run(f"{COMMANDS[name]} --json"), run(f"{COMMANDS[name]} --json")
    assert first == second and first[0] == 0
    found = json.loads(first[1])
    assert (found.pop("schema"), found.pop("command")) == (1, name.split()[0])
    assert set(found) == documented()[name]


def test_nested_keys_are_those_of_the_page(run):
    """Objects in lists have the keys that the page lists next to them."""
    cells = dict(re.findall(r"^\| `([^`]+` \| `\w+)` \| list[^:|]*: (.*) \|$", PAGE, re.MULTILINE))
    for cell, text in cells.items():
        name, key = cell.split("` | `")
        if name not in COMMANDS:  # `reproduce` needs a publication: tests/publishing/test_reproduction.py
            continue
        found = json.loads(run(f"{COMMANDS[name]} --json")[1])[key]
        listed = set(re.findall(r"`([a-z_]+)`", re.sub(r"\([^)]*\)", "", text)))
        assert all(listed <= set(each) | {"rows_n", "stamp", "rows"} for each in found), (cell, found)
    assert {cell.split("`")[0] for cell in cells} >= {"plan", "why", "why --row", "diff", "show", "gc"}


def test_contents_are_those_of_the_tables(run):
    """Scores have rows, differences have tests, and files that no recipe needs are listed with their size."""
    shown = {each["name"]: each for each in json.loads(run("show r --json")[1])["artifacts"]}
    score = next(row for row in shown["scores/a"]["rows"] if row["metric"].startswith("avg"))
    assert score["low"] <= score["value"] <= score["high"] and not shown["problems/c"]["built"]
    found = json.loads(run("diff scores/a scores/b --json")[1])
    assert found["entry"] == {"confidence": [0.95, 0.9]} and found["scores"][0]["value"] == 0
    (old,) = json.loads(run("gc --json")[1])["files"]
    assert old["artifact"] == "problems/old" and old["bytes"] > 0
    due = {each["name"]: each["state"] for each in json.loads(run("why r --json")[1])["artifacts"]}
    assert due["problems/a"] == "done" and due["problems/c"] == "make"


@pytest.mark.parametrize("line", ["plan nowhere", "why problems/x", "show problems/x", "diff problems/a scores/a"])
def test_failure_is_an_object_with_its_messages(run, line):
    """Standard output has the messages as JSON, and the exit code is not 0."""
    code, out = run(f"{line} --json")
    error = json.loads(out)["error"]
    assert f"{error['type']}: " + "\n".join(error["messages"]) == code


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", "plan", "config.yaml: has no recipe"),
        ("", "show", "config.yaml: has no recipe"),
        ("results: 3", "show problems/a", "results: found 3; expected the path of a folder"),
        ("results: [a]", "gc", "results: found ['a']; expected the path of a folder"),
        ("results: null", "check", "results: found None; expected the path of a folder"),
    ],
)
def test_configuration_without_a_recipe_or_folder_is_such_a_failure(run, tmp_path, monkeypatch, text, line, said):
    """Whatever the command needs of it first."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(text)
    code, out = run(f"{line} --json")
    assert said in code and said in json.loads(out)["error"]["messages"][0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("report --out missing/a.html", "missing/a.html: No such file or directory; expected"),
        ("report --out results", "results: Is a directory; expected"),
        ("report --out /dev/full", "proofmill report: No space left on device; expected"),
    ],
)
def test_file_that_cannot_be_written_is_named(run, line, said):
    """A fault of the file system is a message, too."""
    assert f"SettingError: {said}" in run(line)[0]


@pytest.mark.parametrize("words", [[], ["--json"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_without_room_is_a_message(built, words, unbuffered):
    """Also if the last write is at exit."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "proofmill", "show", *words], cwd=built, env=environment, stdout=full, stderr=-1
        )
    assert done.returncode == 1 and done.stderr.startswith(b"SettingError: proofmill show: No space left")
    assert b"Traceback" not in done.stderr and b"ignored" not in done.stderr


def test_damage_is_a_fault_and_an_exit_code(run, built):
    """A flipped byte of a table makes `check` say so, and exit with 1."""
    table = built / "results/problems/old.parquet"
    bytes_of = table.read_bytes()
    try:
        table.write_bytes(bytes_of[:100] + bytes([bytes_of[100] ^ 1]) + bytes_of[101:])
        code, out = run("check problems/old --json")
    finally:
        table.write_bytes(bytes_of)
    found = json.loads(out)
    assert code == 1 and not found["sound"] and "problems/old" in found["faults"][0]


def test_exit_codes_are_those_of_the_page(run, built):
    """0 for what works, 1 for a mistake, 2 for a wrong option, 130 after Ctrl-C, 141 without a reader."""
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    program = [sys.executable, "-m", "proofmill"]
    stopped = subprocess.Popen([*program, "view"], cwd=built, env=environment, stdout=subprocess.PIPE, stderr=-1)
    assert stopped.stdout is not None and stopped.stdout.readline()  # it serves
    stopped.send_signal(signal.SIGINT)
    _, said = stopped.communicate()
    reading, writing = os.pipe()
    os.close(reading)
    unread = subprocess.run([*program, "show"], cwd=built, env=environment, stdout=writing, check=False).returncode
    os.close(writing)
    wrong = run("plan --nonsense")[0]
    mistake = 1 if isinstance(run("plan nowhere")[0], str) else None
    assert {run("why problems/c")[0], mistake, wrong, stopped.returncode, unread} == codes, said
