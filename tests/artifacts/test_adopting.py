"""Tables of another results folder are taken where they are what would be made here; what does not fit is refused."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from damage import copied, truncate, zero
from mill import SMALL, Mill
from project import snapshot
from proofmill.artifacts import adopting
from proofmill.artifacts.adopting import What
from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.artifacts.weights import MARK
from proofmill.runtime import locks

MARKS = "grades/cold"


@pytest.fixture
def here(tmp_path):
    """`here(**changed)` is a Mill of the small chain that has made nothing; some of its entries may be others."""

    def made(**changed):
        return Mill(
            tmp_path / "here", **{**SMALL, **{name.replace("__", "/"): entry for name, entry in changed.items()}}
        )

    return made


@pytest.fixture
def there(small, tmp_path):
    """A copy of the finished small chain, to be spoilt."""
    (tmp_path / "there").mkdir()
    return copied(small.results, tmp_path / "there")


def adopt(own: Mill, there: Path, *names: str) -> dict:
    return {found.name: found for found in adopting.adopt(own.book, names or tuple(SMALL), own.results, there)}


def whats(found: dict) -> dict[str, str]:
    return {name: outcome.what for name, outcome in found.items()}


def refused(own: Mill, there: Path, name: str) -> str:
    """Why a table is refused, whose refusal leaves nothing behind."""
    before = snapshot(own.results)
    (outcome,) = adopt(own, there, name).values()
    assert outcome.what == What.REFUSED, outcome
    assert snapshot(own.results) == before
    return outcome.why


def test_recipe_is_taken_whole_and_nothing_is_due(small, here):
    """All tables and weights come, parents first, byte for byte; every one is finished, whole and kept. There nothing changes."""
    own, before = here(), snapshot(small.results)
    assert set(whats(adopt(own, small.results)).values()) == {What.TAKEN}
    states = States(own.book, own.results)
    for name in SMALL:
        table, other = own.table(name), small.table(name)
        table.check(deep=True)
        assert states[name].name == "done" and table.path.read_bytes() == other.path.read_bytes()
        assert table.kept(table.stamp["fingerprint"]).exists()
    model = {path.name: path.read_bytes() for path in small.table("sft/cold").folder.iterdir() if path.name != MARK}
    assert model.items() <= {path.name: path.read_bytes() for path in own.table("sft/cold").weights().iterdir()}.items()
    assert snapshot(small.results) == before
    assert set(whats(adopt(own, small.results)).values()) == {What.HERE}


def test_no_file_is_shared_with_the_folder_there(small, here):
    """No file here is a link to one there, so that neither side can change the other's."""
    own = here()
    adopt(own, small.results, "problems/train", "base/tiny")
    inodes = {path.stat().st_ino for path in small.results.rglob("*") if path.is_file()}
    assert not inodes & {path.stat().st_ino for path in own.results.rglob("*") if path.is_file()}


def test_adopted_tables_are_read_on(small, here):
    """What is made from adopted tables is what was made there."""
    own = here()
    adopt(own, small.results, *(name for name in SMALL if name != MARKS))
    assert own.make(MARKS).content == small.table(MARKS).content


def test_one_table_whose_parents_are_not_here_waits_for_them(small, here):
    """It is not taken, and those are named that have to come first, parents first."""
    own = here()
    (found,) = adopt(own, small.results, "sft/cold").values()
    assert (found.what, own.results.exists()) == (What.WAITS, False)
    assert set(found.first) == {"problems/train", "base/tiny", "examples/cold"} and found.first[0] == "problems/train"
    own.make("problems/train", "examples/cold")
    assert adopt(own, small.results, "sft/cold")["sft/cold"].first == ("base/tiny",)
    assert whats(adopt(own, small.results, "sft/cold", "base/tiny")) == dict.fromkeys(
        ("base/tiny", "sft/cold"), What.TAKEN
    )


def test_other_entry_is_refused_with_its_field(small, here):
    """The field that differs is named with both values, and what is made from it waits; the rest of the recipe comes."""
    own = here(sft__cold={**SMALL["sft/cold"], "steps": 9})
    found = adopt(own, small.results)
    assert "(there -> here): `steps` 8 -> 9" in found["sft/cold"].why
    assert {name for name, what in whats(found).items() if what == What.WAITS} == {"responses/cold", MARKS}
    assert [what for what in whats(found).values() if what != What.TAKEN] == [What.REFUSED, What.WAITS, What.WAITS]


def test_other_revision_of_the_code_is_refused(small, here, monkeypatch):
    """The revision of the kind is part of what is compared."""
    own = here()
    monkeypatch.setattr(type(own.book.entries["base/tiny"]), "revision", 77)
    adopt(own, small.results, "problems/train")
    before = small.table("base/tiny").stamp["revision"]
    assert f"revision {before} -> 77" in refused(own, small.results, "base/tiny")


def test_parent_with_other_rows_is_refused_by_name(small, here):
    """The entry is the same, but its parent here has fewer rows."""
    own = here(problems__bench={**SMALL["problems/bench"], "rows": 5})
    own.make("problems/bench")
    assert "problems/bench has other rows" in refused(own, small.results, "schemes/bench")


DAMAGE = {
    "page": ("problems/train", lambda table: zero(table.path, 400), "damaged"),
    "half-written": ("problems/train", lambda table: truncate(table.path, 700), "damaged"),
    "stamp of another": ("problems/train", lambda table: shutil.copy(table.other("problems/bench").path, table.path), "bench"),
    "weights": ("base/tiny", lambda table: zero(table.folder / "model.safetensors", 20_000, 400, True), "is damaged"),
    "weights cut off": ("base/tiny", lambda table: truncate(table.folder / "model.safetensors", 9), "has 9 bytes"),
    "file of weights": ("base/tiny", lambda table: (table.folder / "config.json").unlink(), "no such file"),
    "no weights": ("base/tiny", lambda table: shutil.rmtree(table.folder), "no weights here"),
    "code beside weights": ("base/tiny", lambda table: (table.folder / "evil.py").touch(), "was not written with"),
    "weights of another": (
        "base/tiny",
        lambda table: shutil.copytree(table.other("sft/cold").folder, table.folder, dirs_exist_ok=True),
        "weights of",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(DAMAGE))
def test_damage_there_is_refused_before_anything_is_placed(there, here, name):
    """The file there is named, with what is wrong; here nothing has changed, and no part of it is left."""
    artifact, harm, said = DAMAGE[name]
    own = here()
    if artifact == "base/tiny":
        adopt(own, there, "problems/train")
    shutil.rmtree(there / "kept")
    harm(Table(artifact, there))
    why = refused(own, there, artifact)
    assert said in why and f"{there}/{artifact}" in why and "adopting" not in why
    assert not own.table(artifact).path.exists() and not own.table(artifact).scratch.exists()


def test_stopped_stage_is_not_there(there, here):
    """A table that is unfinished there is no mistake; what is made from it is not there either."""
    shutil.rmtree(there / "kept")
    for name in ("responses/cold", MARKS):
        Table(name, there).path.unlink()
    found = whats(adopt(here(), there))
    assert [name for name, what in found.items() if what == What.ABSENT] == ["responses/cold", MARKS]


def test_table_that_is_being_made_there_is_refused(there, here, monkeypatch):
    """The lock of a job there is looked at, also where its file can only be read."""
    monkeypatch.setenv("PROOFMILL_LOCK_SECONDS", "0.1")
    own, lock = here(), Table("problems/train", there).lock
    with locks.alone(lock):
        lock.chmod(0o444)
        assert "is being made there" in refused(own, there, "problems/train")
    with locks.alone(own.table("problems/train").lock):
        (outcome,) = adopt(own, there, "problems/train").values()
        assert "is making it here" in outcome.why
    assert adopt(own, there, "problems/train")["problems/train"].what == What.TAKEN


def test_kept_copy_there_is_taken_where_its_table_is_of_an_edit(there, here, tmp_path):
    """What was made there before an edit counts as finished there, weights too."""
    edited = Mill(there, **{**SMALL, "base/tiny": {**SMALL["base/tiny"], "hidden": 16}})
    edited.make("base/tiny")
    own = here()
    found = adopt(own, there, "problems/train", "base/tiny")["base/tiny"]
    assert found.what == What.TAKEN and "/kept/base/tiny/" in found.why
    own.table("base/tiny").check(deep=True)


def test_table_of_an_older_entry_here_is_kept(small, here):
    """It gives way as to a new making, and an undone edit brings it back."""
    before = here(problems__bench={**SMALL["problems/bench"], "rows": 5})
    content = before.make("problems/bench").content
    shutil.rmtree(before.results / "kept")
    own = here()
    assert adopt(own, small.results, "problems/bench")["problems/bench"].what == What.TAKEN
    assert own.table("problems/bench").height == 12
    assert States(before.book, before.results)["problems/bench"].name == "restore"
    assert before.make("problems/bench").content == content


def rewritten(table: Table, rows: list[dict], **facts) -> Table:
    """The table with other rows, or other facts in its stamp, as another making of the same entry may write."""
    stamp = {key: value for key, value in table.stamp.items() if key not in ("content", "pages")}
    shutil.rmtree(table.results / "kept" / table.name)
    table.write(rows, {**stamp, **facts})
    return table


def test_finished_table_with_other_rows_stays(small, here):
    """Where both made the same entry and got other rows, the one that is here stays, and both are named."""
    own = here()
    table = own.make("problems/bench")
    rewritten(table, table.rows(kept=False)[1:])
    why = refused(own, small.results, "problems/bench")
    assert "is finished here too" in why and str(table.path) in why and str(small.table("problems/bench").path) in why


def test_damage_there_is_nothing_to_who_has_the_table(there, here):
    """What is finished here is left alone, and is no mistake."""
    own = here()
    own.make("problems/bench")
    truncate(Table("problems/bench", there).path, 100)
    assert whats(adopt(own, there, "problems/bench")) == {"problems/bench": What.HERE}


def test_table_that_a_job_made_meanwhile_stays(there, here, monkeypatch):
    """A job ended here while its lock was waited for: its table is not replaced."""
    own, alone = here(), locks.alone

    def late(*arguments):
        monkeypatch.setattr(locks, "alone", alone)
        own.make("problems/bench")
        shutil.rmtree(own.results / "kept")
        return alone(*arguments)

    monkeypatch.setattr(locks, "alone", late)
    assert whats(adopt(own, there, "problems/bench")) == {"problems/bench": What.HERE}
    assert not (own.results / "kept").exists()


def test_kept_copy_here_is_brought_back_instead_of_copied(small, here):
    """What was made here before needs nobody else's; the parents of a table come back with it."""
    own = here()
    own.make("problems/bench")
    own.table("problems/bench").path.unlink()
    found = adopt(own, small.results, "schemes/bench")
    assert found["problems/bench"].why == "from its kept copy here" and found["schemes/bench"].what == What.TAKEN
    assert {States(own.book, own.results)[name].name for name in found} == {"done"}


def test_table_with_failed_calls_is_taken_and_not_kept(there, here):
    """As where it was made: the next run of its stage asks again what failed, and no copy hides it."""
    own = here()
    other = Table("schemes/bench", there)
    rewritten(other, other.rows(kept=False), counts={"ok": 11, "provider": 1})
    adopt(own, there, "problems/bench", "schemes/bench")
    table = own.table("schemes/bench")
    assert States(own.book, own.results)["schemes/bench"].name == "done"
    assert not table.kept(table.stamp["fingerprint"]).exists()


def test_table_with_failed_calls_gives_way_and_is_put_aside(there, here):
    """An older table here that was never kept is not lost, and nobody brings it back."""
    stale = here(problems__bench={**SMALL["problems/bench"], "rows": 5})
    table = stale.make("problems/bench")
    rewritten(table, table.rows(kept=False), failures={"provider": 1})
    fingerprint = table.stamp["fingerprint"]
    adopt(here(), there, "problems/bench")
    (aside,) = (path for path in (stale.results / "kept/problems/bench").iterdir() if path.suffix)
    assert aside.name == f"{fingerprint}.replaced" and not table.kept(fingerprint).exists()


def test_log_there_comes_once_with_the_folder_that_it_came_from(there, here):
    """A log here keeps its lines; those of the other making follow, and a line that says where the table came from."""
    own, other = here(), Table("problems/bench", there)
    other.log.write_text("\n2026-01-01 10:00:00 UTC on elsewhere\n10:00:00  made there\n")
    own.table("problems/bench").log.parent.mkdir(parents=True)
    own.table("problems/bench").log.write_text("12:00:00  stopped here\n")
    adopt(own, there, "problems/bench")
    own.table("problems/bench").path.unlink()
    shutil.rmtree(own.results / "kept")
    adopt(own, there, "problems/bench")
    log = own.table("problems/bench").log.read_text()
    assert log.startswith("12:00:00  stopped here\n") and log.count("made there") == 1
    assert log.count(f"adopted from {other.path}") == 2


def test_answers_that_are_to_be_asked_again_are_not_hidden(there, here):
    """A table that `ask-again` put aside here is not replaced by the same one of others."""
    own = here()
    adopt(own, there, "problems/bench", "schemes/bench")
    table = own.table("schemes/bench")
    table.kept(table.stamp["fingerprint"]).put_aside("asked-again")
    table.path.unlink()
    assert "set aside here" in refused(own, there, "schemes/bench")


def test_disk_without_room_is_said(small, here, monkeypatch):
    """Where the copy has no room, the reason is named, and nothing is left of it."""

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "somewhere")

    own = here()
    monkeypatch.setattr(adopting, "_copy", full)
    assert "somewhere: No space left on device" in refused(own, small.results, "problems/bench")


def test_copy_by_reading_is_the_same(small, here, monkeypatch):
    """Between file systems, or where the kernel cannot copy, the bytes are read and written."""

    def cannot(*_):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    own = here()
    monkeypatch.setattr(os, "copy_file_range", cannot)
    assert set(whats(adopt(own, small.results, "problems/train", "base/tiny")).values()) == {What.TAKEN}
    own.table("base/tiny").check(deep=True)


def test_old_stamp_without_its_fields_is_refused_with_what_is_known(there, here):
    """A stamp that says little of its making is compared by what it says."""
    from pyarrow import parquet

    path = Table("problems/bench", there).path
    rows = parquet.read_table(path)
    stamp = {"kind": "problems", "entry": {}, "fingerprint": "f", "content": "c"}
    shutil.rmtree(there / "kept")
    os.unlink(path)
    parquet.write_table(rows.replace_schema_metadata({"proofmill": json.dumps(stamp)}), path)
    assert "`rows` null -> 12" in refused(here(), there, "problems/bench")
