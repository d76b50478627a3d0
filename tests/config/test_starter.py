"""Test the folder that `proofmill init` writes."""

import subprocess
import sys

import pytest

from proofmill.config import plugins, starter, yaml_files
from proofmill.config.config import expand
from proofmill.schema.errors import SettingError


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
    assert list(config.recipes) == ["mine", "served"]
    assert len((tmp_path / "mine/problems.jsonl").read_text().splitlines()) == 30
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
    assert (tmp_path / "mine" / ("config.yaml" if found == "folder" else "")).read_text() == "x"


@pytest.mark.pipeline
def test_folder_runs_as_it_is_written(tmp_path):
    """After `proofmill init mine`, `snakemake` trains a model, rewards it with the folder's reward, and grades it."""
    for command in (["proofmill", "init", "mine"], ["snakemake"]):
        folder = tmp_path / "mine" if command == ["snakemake"] else tmp_path
        done = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert "| grpo/mine | problems/mine | " in done.stdout
    assert (tmp_path / "mine/results/grpo/mine/model.safetensors").exists()
