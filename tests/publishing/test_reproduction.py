"""Published tables, derived again from their answers: equal to the last digit, or the first row that differs is named."""

import shutil
import sys

import polars as pl
import pytest

from mill import SMALL, Mill
from proofmill import __main__ as command
from proofmill.artifacts.tables import Table
from proofmill.calls import records
from proofmill.publishing import hub, reproduction
from proofmill.publishing.reproduction import reproduce
from proofmill.schema.errors import SettingError

SCORED = {"scores/small": {"grades": ["grades/cold"], "metrics": ["avg-at-k", "solve-rate"]}}


@pytest.fixture(scope="module")
def published(small, tmp_path_factory):
    """Return the folder of the tables of a small recipe with scores, published with answers."""
    folder = tmp_path_factory.mktemp("published")
    shutil.copytree(small.results, folder / "results")
    mill = Mill(folder / "results", **SMALL, **SCORED)
    mill.make("scores/small")
    hub.publish(mill.config, ["test"], "me/small", mill.results, folder=folder / "out", answers=True)
    return folder / "out/small-tables"


@pytest.fixture
def copy(published, tmp_path):
    """Return a copy of the publication, to change it."""
    return shutil.copytree(published, tmp_path / "copy")


def states(outcomes) -> dict[str, str]:
    return {outcome.name: outcome.state for outcome in outcomes}


def test_every_table_is_derived_from_answers(published, monkeypatch):
    """Nothing is called and nothing is changed in the publication; answers are counted."""
    monkeypatch.setattr("proofmill.engines.open_engine.open_engine", None)
    before = {path: path.read_bytes() for path in published.rglob("*") if path.is_file()}
    outcomes = reproduce(str(published))
    assert {path: path.read_bytes() for path in published.rglob("*") if path.is_file()} == before
    assert states(outcomes) == {**dict.fromkeys([*SMALL, *SCORED], "equal"), "base/tiny": "taken", "sft/cold": "taken"}
    answers = {outcome.name: outcome.answers for outcome in outcomes}
    assert answers["responses/cold"] == 24 and answers["schemes/train"] == 48 and answers["problems/train"] == 0


def test_tampered_answer_is_found(copy):
    """A changed verdict of the judge: the table of grades differs at a named row; others are equal."""
    path = copy / "results/calls/grades/cold/00001.parquet"
    frame = records.read(path)
    forged = frame.with_columns(
        text=pl.lit("<assessment>Complete.</assessment>\n<errors></errors>\n<points>7</points>")
    )
    records.write(pl.concat([forged.head(1), frame.tail(-1)]), path)
    outcomes = {outcome.name: outcome for outcome in reproduce(str(copy))}
    differing = {name for name, outcome in outcomes.items() if outcome.state == "differs"}
    assert differing == {"grades/cold"} and "is published" in outcomes["grades/cold"].why
    assert "`grade`" in outcomes["grades/cold"].why or "`verdict`" in outcomes["grades/cold"].why


def test_missing_answer_is_found(copy):
    """An output that was left out cannot be derived."""
    path = copy / "results/calls/grades/cold/00001.parquet"
    records.write(records.read(path).tail(-1), path)
    (outcome,) = reproduce(str(copy), ["grades/cold"])
    assert outcome.state == "differs" and "no published output for a request to referee-1" in outcome.why


def test_table_without_published_answers_is_taken(copy):
    """A publication without answers does not differ; what needs no answers is compared."""
    shutil.rmtree(copy / "results/calls")
    outcomes = {outcome.name: outcome for outcome in reproduce(str(copy))}
    assert {outcome.state for outcome in outcomes.values()} == {"equal", "taken"}
    assert outcomes["grades/cold"].why == "its model outputs are not published"
    assert outcomes["scores/small"].state == outcomes["problems/bench"].state == "equal"


def test_tampered_table_is_found(copy):
    """A better grade in the published table, with a valid seal: the answers say otherwise, and so do the scores."""
    table = Table("grades/cold", copy / "results")
    rows, stamp = table.rows(kept=False), dict(table.stamp)
    worst = min(range(len(rows)), key=lambda number: rows[number]["grade"] if rows[number]["grade"] is not None else 9)
    rows[worst]["grade"] = 6.0
    table.write(rows, stamp)
    outcomes = {outcome.name: outcome for outcome in reproduce(str(copy))}
    assert (
        outcomes["grades/cold"].why.startswith(f"row {worst} ")
        and "`grade`: 6.0 is published" in outcomes["grades/cold"].why
    )
    assert outcomes["scores/small"].state == "differs"


def test_damaged_table_is_found(copy):
    """A flipped byte is no reason to take a table as published."""
    path = copy / "results/grades/cold.parquet"
    content = bytearray(path.read_bytes())
    content[200] ^= 255
    path.write_bytes(content)
    (outcome,) = reproduce(str(copy), ["grades/cold"])
    assert outcome.state == "differs"


def test_table_without_its_source_is_taken(copy):
    """A parent that is not published, and a prompt of another version: said, with what differs."""
    (copy / "results/schemes/bench.parquet").unlink()
    (outcome,) = reproduce(str(copy), ["grades/cold"])
    assert (outcome.state, outcome.why) == ("taken", "its parent schemes/bench is not published")


def test_error_of_the_publication_is_a_difference(copy):
    """A table whose derivation fails, without a file or plugin that is missing here, is not taken as published."""
    table = Table("grades/cold", copy / "results")
    rows, stamp = table.rows(kept=False), dict(table.stamp)
    table.write(rows, {**stamp, "entry": {**stamp["entry"], "grader": "api/none"}})
    (outcome,) = reproduce(str(copy), ["grades/cold"])
    assert outcome.state == "differs"


def test_other_versions_are_named(copy, monkeypatch):
    """If a table differs, so do the things that may be the cause."""
    path = copy / "results/calls/grades/cold/00001.parquet"
    records.write(records.read(path).tail(-1), path)
    monkeypatch.setattr(reproduction, "DECIDING", ("polars", "numpy"))
    monkeypatch.setattr("proofmill.artifacts.stamps._versions", lambda: {"polars": "9.9"})
    (outcome,) = reproduce(str(copy), ["grades/cold"])
    assert f"polars {pl.__version__} made it, here is 9.9" in outcome.why


def test_command_ends_with_one_if_a_table_differs(copy, monkeypatch, capsys):
    """Exit codes are those of a comparison."""
    monkeypatch.setattr(sys, "argv", ["proofmill", "reproduce", str(copy)])
    command.main()
    assert "8 tables are equal to the last digit, from " in capsys.readouterr().out
    path = copy / "results/calls/grades/cold/00001.parquet"
    records.write(records.read(path).tail(-1), path)
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 1 and "1 differ" in capsys.readouterr().out


def test_folder_of_a_dry_run_is_that_of_its_tables(published):
    """The folder that --dry-run wrote may be named, too: its tables are in one folder, next to those of models."""
    (outcome,) = reproduce(str(published.parent), ["scores/small"])
    assert outcome.state == "equal"


def test_wrong_source_is_refused(tmp_path, published):
    """A folder without tables, and an unknown table."""
    with pytest.raises(SettingError, match="has no tables; expected a publication"):
        reproduce(str(tmp_path))
    with pytest.raises(SettingError, match="is not among the 10 published tables"):
        reproduce(str(published), ["grades/none"])


def test_answers_need_licenses(tmp_path):
    """A source without a known license stops a publication with answers, unless its user may."""
    (tmp_path / "p.jsonl").write_text('{"statement": "What is 1 + 1?", "answer": "2"}\n')
    mill = Mill(tmp_path / "results", **{"problems/p": {"source": "table", "path": str(tmp_path / "p.jsonl")}})
    mill.make("problems/p")
    publish = {"results": mill.results, "folder": tmp_path / "out"}
    with pytest.raises(SettingError, match=r"--with-answers: .*unknown license; expected a license"):
        hub.publish(mill.config, ["test"], "me/p", **publish, answers=True)
    assert hub.publish(mill.config, ["test"], "me/p", **publish, answers=True, any_license=True) == {
        "me/p-tables": "written"
    }
