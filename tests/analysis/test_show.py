"""`proofmill show`: what finished tables say and where they lie."""

import sys

import pytest

from proofmill import __main__ as command
from proofmill.analysis.show import list_outputs
from proofmill.artifacts.tables import Table


def test_pages_come_first_and_then_where_everything_lies(small, tmp_path):
    """Pages unchanged, the number of tables of each kind, models by their folders, and what is not built yet."""
    Table("scores/x", tmp_path).write([], {"fingerprint": "f", "entry": {}}, page="# scores/x\n\n| a |\n")
    for name in ("sft/cold", "problems/train"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / f"{name}.parquet").symlink_to(small.table(name).path)
    lines = list(list_outputs(["problems/train", "sft/cold", "scores/x", "scores/y"], tmp_path))
    assert lines[:3] == ["# scores/x", "", "| a |"]
    where = f"3 of 4 tables are in {tmp_path}/, each with its log: 1 in problems/, 1 in sft/, 1 in scores/"
    assert where in lines
    assert any(line.startswith("Models (") and line.endswith(f"{tmp_path}/sft/cold/") for line in lines)
    assert lines[-1] == "Not built yet: scores/y; see `proofmill plan scores/y`"


def test_recipe_is_read_from_the_configuration(monkeypatch, tmp_path, capsys):
    """Without a target the first recipe is shown; its folder of tables is the configuration's."""
    (tmp_path / "config.yaml").write_text("results: there\nr: {problems/x: {source: arithmetic, rows: 2}}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["proofmill", "show"])
    command.main()
    assert "0 of 1 tables are in there/" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["proofmill", "show", "s"])
    with pytest.raises(SystemExit, match="s: neither a recipe nor an artifact; expected one of r"):
        command.main()
