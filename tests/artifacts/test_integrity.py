"""`proofmill check` finds what is damaged in a results folder, and nothing else."""

import json
import re
import shutil
import sys

import pytest

from damage import copied, truncate, zero
from mill import SMALL, Mill
from proofmill import __main__ as command
from proofmill.artifacts.maintenance.integrity import find_damage
from proofmill.calls import records
from proofmill.calls.shards import Shard, ShardJournal
from proofmill.runtime import locks
from proofmill.schema.errors import SettingError


@pytest.fixture
def own(small, tmp_path) -> Mill:
    """Return the small chain in results of its own."""
    return Mill(copied(small.results, tmp_path), **SMALL)


@pytest.fixture
def check(own, monkeypatch, capsys):
    """Return `check(*words)`, which runs the command and returns its exit code, the lines it prints, and the log."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["proofmill", "check", *words, "--results", str(own.results)])
        code = 0
        try:
            command.main()
        except SystemExit as stop:
            code = stop.code
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err

    return run


def kept(own: Mill, name: str):
    return own.table(name).archive_of(own.table(name).stamp["fingerprint"]).folder


def separately(path):
    """Replace a file by a copy without hard links."""
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("deep", [[], ["--deep"]])
def test_healthy_results_are_whole(own, check, deep):
    """Nothing is damaged in results as they were made, nor with a copy put aside, nor with tables and copies deleted."""
    assert check(*deep)[:2] == (0, [])
    own.table("problems/train").archive_of(own.table("problems/train").stamp["fingerprint"]).set_invalid()
    shutil.rmtree(kept(own, "base/tiny"))
    own.table("grades/cold").path.unlink()
    code, lines, log = check(*deep)
    assert (code, lines) == (0, []) and "nothing is damaged" in log


SHALLOW = {
    "rows": (
        "problems/train",
        lambda own: zero(separately(own.table("problems/train").path), 600, 400),
        "train.parquet: is damaged",
    ),
    "truncated": (
        "grades/cold",
        lambda own: truncate(separately(own.table("grades/cold").path), 900),
        "cold.parquet: is damaged",
    ),
    "swapped": (
        "schemes/bench",
        lambda own: shutil.copy(own.table("schemes/train").path, separately(own.table("schemes/bench").path)),
        "is the table of schemes/train",
    ),
    "weights": (
        "sft/cold",
        lambda own: zero(separately(own.table("sft/cold").folder / "model.safetensors"), 20_000, 400),
        "model.safetensors: is damaged",
    ),
    "no weights": ("sft/cold", lambda own: shutil.rmtree(own.table("sft/cold").folder), "no weights here"),
    "kept stamp": (
        "base/tiny",
        lambda own: truncate(separately(kept(own, "base/tiny") / "table.parquet"), 900),
        "table.parquet: is damaged",
    ),
    "journal": (
        "grades/cold",
        lambda own: zero(records.segments(own.table("grades/cold").calls)[0], 300),
        "cannot be read as Parquet",
    ),
    "answers": (
        "schemes/bench",
        lambda own: (own.table("schemes/bench").calls / "calls.jsonl").write_text('{"key": "a"}\n{"key": "cut o'),
        "1 lines are damaged",
    ),
}
DEEP = {
    "forgotten bytes": (
        "base/tiny",
        lambda own: zero(separately(kept(own, "base/tiny") / "weights/model.safetensors"), 20_000, 400),
        "model.safetensors: is damaged",
    ),
    "kept rows": (
        "problems/bench",
        lambda own: zero(separately(kept(own, "problems/bench") / "table.parquet"), 400),
        "table.parquet: is damaged",
    ),
}


@pytest.mark.parametrize(("name", "harm", "said"), SHALLOW.values(), ids=SHALLOW)
def test_damaged_part_is_one_line_that_says_what_to_do(own, check, name, harm, said):
    """One damaged part is one line and exit code 1, with all named, with it named, and read in full; not with others."""
    harm(own)
    for words in ([], [name], ["--deep", name]):
        code, lines, _ = check(*words)
        assert (code, len(lines)) == (1, 1), lines
        assert said in lines[0] and re.search("; expected .*(snakemake|rm -r|move it away|rerun the stage)", lines[0])
    assert check(*(other for other in SMALL if other != name))[:2] == (0, [])


@pytest.mark.parametrize(("name", "harm", "said"), DEEP.values(), ids=DEEP)
def test_damage_that_only_every_byte_shows(own, check, name, harm, said):
    """Damage that the stamps of archived tables do not show is found with --deep."""
    harm(own)
    assert check()[:2] == (0, [])
    code, lines, _ = check("--deep")
    assert (code, len(lines)) == (1, 1)
    assert said in lines[0] and f"Delete the copy: rm -r {kept(own, name)}" in lines[0]


def test_damage_in_place_is_named_in_the_table_and_in_its_copy(own, check):
    """Hard links share their damage: both are named."""
    zero(own.table("sft/cold").folder / "model.safetensors", 20_000, 400)
    code, lines, _ = check("--deep", "sft/cold")
    assert code == 1
    assert [line.split(": ")[0] for line in lines] == [
        str(own.table("sft/cold").folder / "model.safetensors"),
        str(kept(own, "sft/cold") / "weights/model.safetensors"),
    ]


def test_artifact_that_is_being_made_is_left_out(own, check):
    """A table whose job is running may be half of one and half of another."""
    truncate(own.table("sft/cold").path, 900)
    with locks.alone(own.table("sft/cold").lock):
        code, lines, log = check()
    assert (code, lines) == (0, []) and "sft/cold  is being built: its table is not checked" in log


def test_journal_that_shards_write_is_left_out(own, check):
    """They do not hold the table's lock; a line that is half written is no damage."""
    with ShardJournal(own.table("labels/train").calls, Shard(1, 2)):
        code, _, log = check("labels/train")
    assert code == 0 and "labels/train  is being built: its journal is not checked" in log
    assert "is being made" not in check("labels/train")[2]


def test_table_from_before_checksums_is_said_to_be_one(own, check):
    """A table without digests of its stamp and pages can be read; check says that it cannot be verified."""
    table = own.table("problems/train")
    stamp = {key: value for key, value in table.stamp.items() if key not in ("pages", "page")}
    table.scan().collect().write_parquet(separately(table.path), metadata={"proofmill": json.dumps(stamp)})
    code, lines, log = check("--deep")
    assert (code, lines) == (
        0,
        [],
    ) and "problems/train  written before page checksums existed; readable but not verifiable" in log


def test_name_of_which_there_is_nothing_is_refused(own, check, tmp_path):
    """A name that was never made, and a folder without results, are mistakes of the command line."""
    code, _, _ = check("problems/trian")
    assert str(code).startswith("SettingError: problems/trian: ") and "Did you mean `problems/train`" in code
    with pytest.raises(SettingError, match="has no tables"):
        list(find_damage([], tmp_path / "absent"))


def test_recipe_with_a_mistake_is_not_said_to_be_well(check, monkeypatch, tmp_path):
    """An entry left out for its mistake is reported, though the rest of the recipe is sound."""
    (tmp_path / "config.yaml").write_text("r:\n  problems/x: {source: arithmetic, rovs: 3}\n")
    monkeypatch.chdir(tmp_path)
    code, _, _ = check("r")
    assert "unknown key `rovs`" in code
