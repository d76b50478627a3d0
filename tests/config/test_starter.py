"""Test the folder that `proofmill init` writes."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mill import ROOT
from proofmill import __main__ as program
from proofmill.config import plugins, starter, yaml_files
from proofmill.config.config import expand
from proofmill.schema.errors import RecipeError, SettingError


@pytest.fixture
def unload():
    """Unload all plugins after a test."""
    yield
    plugins.use([])


@pytest.mark.usefixtures("unload")
def test_folder_has_a_recipe_that_is_right(tmp_path, monkeypatch):
    """The configuration is valid and uses the folder's data and reward; the second recipe needs the variables in .env."""
    starter.write(tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    config = expand(yaml_files.read("config.yaml"))
    assert list(config.recipes) == ["mine", "seeds", "served"]
    rows = [json.loads(line) for line in (tmp_path / "mine/problems.jsonl").read_text().splitlines()]
    assert Counter(row["part"] for row in rows) == {"worked": 200, "practice": 300, "held-out": 100}
    assert len({row["question"] for row in rows}) == 600
    for row in rows:
        numbers = [int(number) for number in re.findall(r"\d", row["question"])]
        assert row["final"] == (max if row["topic"] == "largest" else min)(numbers)
    assert "brief" in config.entries["grpo/mine"].rewards and config.plugins == ("parts.py",)
    assert {name.partition("/")[2].upper() for name in config.declared if name.startswith("api/")} == {
        "SOLVER",
        "JUDGE",
    }
    lines = (tmp_path / "mine/.env").read_text().splitlines()
    assert {line.split("_")[1] for line in lines if line.startswith("# PROOFMILL_")} == {"SOLVER", "JUDGE"}
    assert ".env" in (tmp_path / "mine/.gitignore").read_text().split()


@pytest.mark.parametrize("found", ["file", "folder"])
def test_nothing_is_written_over(tmp_path, found):
    """A folder that is not empty, and a file, are not overwritten."""
    (tmp_path / "mine").mkdir() if found == "folder" else (tmp_path / "mine").write_text("x")
    if found == "folder":
        (tmp_path / "mine/config.yaml").write_text("x")
    with pytest.raises(SettingError, match="expected a"):
        starter.write(tmp_path / "mine")
    if found == "file":
        with pytest.raises(SettingError, match="expected a writable folder"):
            starter.write(tmp_path / "mine", here=True)
    assert (tmp_path / "mine" / ("config.yaml" if found == "folder" else "")).read_text() == "x"


def test_folder_with_files_gets_what_it_lacks(tmp_path, monkeypatch, capsys):
    """`init --here` keeps every byte that is there, and names the files; a second call writes nothing."""
    own = {"problems.jsonl": '{"q": "1+1?"}\n', "notes/a.txt": "mine", "profiles/default/config.yaml": "cores: 1\n"}
    for name, text in own.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["proofmill", "init", "--here"])
    program.main()
    said = capsys.readouterr().out
    assert "kept, because they exist: problems.jsonl\n" in said and "If config.yaml does not fit" in said
    assert all((tmp_path / name).read_text() == text for name, text in own.items())
    assert {"config.yaml", "parts.py", ".env", ".gitignore", "Snakefile"} <= {path.name for path in tmp_path.iterdir()}
    with pytest.raises(RecipeError, match=r"problems.jsonl:1: no column `part`"):
        expand(yaml_files.read("config.yaml"))
    assert starter.write(tmp_path, here=True)[0] == []


@pytest.mark.usefixtures("unload")
def test_folder_with_a_configuration_gets_no_other_data(tmp_path):
    """Of a folder with its own recipe, only the workflow is completed: data and reward belong to the starter's recipe."""
    (tmp_path / "config.yaml").write_text("r: {problems/x: {source: arithmetic, rows: 4}}\n")
    written, kept = starter.write(tmp_path, here=True)
    assert {name for name in written if "/" not in name} == {".env", ".gitignore", "Snakefile"}
    assert kept == ["config.yaml"]


def test_files_have_no_path_of_a_machine(tmp_path):
    """The folder can be moved and shared: no file names a place of this machine."""
    starter.write(tmp_path / "mine")
    texts = [path.read_text() for path in (tmp_path / "mine").rglob("*") if path.is_file()]
    assert len(texts) > 6 and not [text for text in texts if str(ROOT) in text or str(Path.home()) in text]


@pytest.mark.pipeline
def test_folder_runs_as_it_is_written(tmp_path):
    """After `proofmill init mine`, `snakemake` trains a model, rewards it with the folder's reward, and grades it."""
    for command in (["proofmill", "init", "mine"], ["snakemake"]):
        folder = tmp_path / "mine" if command == ["snakemake"] else tmp_path
        done = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert "| grpo/mine | problems/held-out | " in done.stdout
    assert (tmp_path / "mine/results/grpo/mine/model.safetensors").exists()
    (line,) = [
        line for line in done.stdout.splitlines() if line.startswith("- grpo/mine - sft/mine on problems/held-out")
    ]
    assert re.search(r"avg@4 \+0\.[1-9]", line) and "no difference shown" not in line
