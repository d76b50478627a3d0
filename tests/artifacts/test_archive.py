"""A complete copy is restored from the archive; a damaged one is moved away, and the table is rebuilt."""

import os
import shutil
from collections import Counter

import pytest

from damage import truncate, zero
from mill import MAINS, SMALL, Mill
from proofmill.artifacts import archive as kept_module
from proofmill.artifacts.weights import MANIFEST

NAMES = ("problems/train", "base/tiny")


@pytest.fixture
def made(mill, monkeypatch):
    """Return a mill with problems and a small model, and a count of the kinds that it computes from now on."""
    own, computed = mill({name: SMALL[name] for name in NAMES}), Counter()
    own.make(*NAMES)
    for kind in ("problems", "base"):

        def main(entry, job, kind=kind, make=MAINS[kind]):
            computed[kind] += 1
            make(entry, job)

        monkeypatch.setitem(MAINS, kind, main)
    return own, computed


def kept(own: Mill, name: str):
    return own.table(name).archive_of(own.table(name).stamp["fingerprint"])


HARM = {
    "zeros": lambda folder: zero(folder / "table.parquet", 400),
    "truncated": lambda folder: truncate(folder / "table.parquet", 700),
    "not-parquet": lambda folder: truncate(folder / "table.parquet", 0),
    "stamp": lambda folder: zero(folder / "table.parquet", (folder / "table.parquet").stat().st_size - 2000, 1500),
}
HARM_TO_WEIGHTS = {
    "zeroed weights": lambda folder: zero(folder / "weights/model.safetensors", 20_000, 400),
    "forgotten bytes": lambda folder: zero(folder / "weights/model.safetensors", 20_000, 400, keep_time=True),
    "no file": lambda folder: (folder / "weights/model.safetensors").unlink(),
    "no weights": lambda folder: shutil.rmtree(folder / "weights"),
    "no manifest": lambda folder: (folder / "weights" / MANIFEST).unlink(),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("name", "harm"),
    [("problems/train", harm) for harm in HARM.values()]
    + [("base/tiny", harm) for harm in (*HARM.values(), *HARM_TO_WEIGHTS.values())],
    ids=[*HARM, *(f"base {harm}" for harm in (*HARM, *HARM_TO_WEIGHTS))],
)
def test_damaged_copy_is_put_aside_and_the_table_made_again(made, capsys, name, harm):
    """A damaged copy is never restored: the same rows and weights are rebuilt and archived; the damaged copy stays."""
    own, computed = made
    table, copy = own.table(name), kept(own, name)
    content, _ = table.content, capsys.readouterr()
    harm(copy.folder)
    table.path.unlink()
    table = own.make(name)
    assert (computed[table.kind], table.content) == (1, content)
    table.check(deep=True)
    aside = copy.folder.with_name(f"{copy.folder.name}.damaged")
    said = capsys.readouterr().err
    assert aside.is_dir() and f"Not restored: moved to {aside}; the table is rebuilt." in said
    table.path.unlink()
    own.make(name)
    assert computed[table.kind] == 1


@pytest.mark.parametrize(("name", "file"), [("problems/train", None), ("base/tiny", "model.safetensors")])
def test_damage_in_place_reaches_the_copy_and_is_noticed(made, name, file):
    """A copy is the same file as the table, so zeroed bytes are in both; they are rebuilt."""
    own, computed = made
    table, content = own.table(name), own.table(name).content
    path = table.folder / file if file else table.path
    zero(path, path.stat().st_size // 3, 400)
    table.path.unlink()
    assert (own.make(name).content, computed[table.kind]) == (content, 1)
    own.table(name).check(deep=True)


def test_whole_copy_brings_lost_weights_back(made):
    """Weights that were deleted, or replaced by another's file, come back from the copy, and nothing is computed."""
    own, computed = made
    table = own.table("base/tiny")
    for harm in (lambda: shutil.rmtree(table.folder), (table.folder / "model.safetensors").unlink):
        harm()
        table.path.unlink()
        own.make("base/tiny").check(deep=True)
    assert not computed


def test_copy_under_the_fingerprint_of_another_is_not_restored(made, mill):
    """A copy at the path of another is moved away, although it is complete."""
    own, computed = made
    copy = kept(own, "problems/train")
    fewer = mill({"problems/train": {**SMALL["problems/train"], "rows": 5}})
    fewer.make("problems/train")
    other = kept(fewer, "problems/train")
    shutil.rmtree(other.folder)
    copy.folder.rename(other.folder)
    own.table("problems/train").path.unlink()
    assert len(fewer.make("problems/train").rows()) == 5
    assert computed["problems"] == 2


def test_unreadable_copy_is_no_stamp_for_a_plan(made):
    """A plan counts on no copy whose stamp cannot be read."""
    own, _ = made
    copy = kept(own, "base/tiny")
    assert copy.stamp["name"] == "base/tiny"
    truncate(copy.folder / "table.parquet", 100)
    assert copy.stamp is None


@pytest.mark.parametrize("again", [False, True], ids=["first", "over an older copy"])
def test_copy_that_a_kill_left_without_its_table_is_none(made, monkeypatch, again):
    """Weights without their table are not brought back, also where an older copy was replaced; kept again, they are."""
    own, _ = made
    table, copy = own.table("base/tiny"), kept(own, "base/tiny")
    if not again:
        shutil.rmtree(copy.folder)
    link = kept_module.link

    def killed(source, target):
        if str(source) == str(table.path):
            raise InterruptedError
        link(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(kept_module, "link", killed)
        with pytest.raises(InterruptedError):
            copy.keep(table.path, table.folder, table.page)
    assert (copy.weights / MANIFEST).exists() and not copy.exists()
    assert not table.restore(table.stamp["fingerprint"])
    copy.keep(table.path, table.folder, table.page)
    assert table.restore(table.stamp["fingerprint"])


def test_copy_has_all_its_files_on_the_disk_before_its_table(made, monkeypatch):
    """Every file of the weights and their folder are synced before the table's name is there, and that name after."""
    own, _ = made
    table, copy, events = own.table("base/tiny"), kept(own, "base/tiny"), []
    fsync, link = os.fsync, kept_module.link
    monkeypatch.setattr(os, "fsync", lambda file: (events.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file)))
    monkeypatch.setattr(kept_module, "link", lambda old, new: (events.append(("name", str(new))), link(old, new)))
    copy.keep(table.path, table.folder, table.page)
    place = events.index(("name", str(copy.table)))
    wanted = [path for path in (*copy.weights.rglob("*"), copy.weights, copy.folder)]
    assert {*map(str, wanted)} <= {*events[:place]} and str(copy.folder) in events[place:]


def test_table_goes_before_its_weights_are_replaced(made, monkeypatch):
    """A crash while the weights of a table are replaced leaves no table, which the next run makes or brings back."""
    own, _ = made
    table = own.table("base/tiny")
    fingerprint = table.stamp["fingerprint"]

    def killed(new, old):
        assert not table.path.exists()
        shutil.rmtree(old)
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(kept_module, "replace_folder", killed)
        with pytest.raises(InterruptedError):
            table.restore(fingerprint)
    assert table.restore(fingerprint)
    table.check(deep=True)
