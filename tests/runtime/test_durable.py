"""Durable writes: the disk has data before a name, and the name before anything that relies on it."""

import errno
import os
from pathlib import Path

import pytest

from proofmill.artifacts.weights import MANIFEST, Weights
from proofmill.runtime import durable


@pytest.fixture
def events(monkeypatch):
    """Record syncs and renames, in order."""
    found, fsync, replace = [], os.fsync, os.replace

    def synced(file):
        found.append(("sync", os.readlink(f"/proc/self/fd/{file}")))
        fsync(file)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda old, new: (found.append(("name", str(new))), replace(old, new)))
    return found


def test_file_is_synced_before_its_name_and_its_folders_after(tmp_path, events):
    """The data, the rename, then each folder that leads there."""
    path = tmp_path / "a/b/file"
    path.parent.mkdir(parents=True)
    durable.write(path, "text")
    assert path.read_text() == "text" and [p.name for p in path.parent.iterdir()] == ["file"]
    assert events[0][0] == "sync" and events[0][1].startswith(f"{path.parent}/.file.")
    assert events[1] == ("name", str(path))
    assert events[2:5] == [("sync", str(folder)) for folder in (path.parent, path.parent.parent, tmp_path)]


def test_folders_that_lead_to_a_file_are_synced_once_but_for_its_own(tmp_path, events):
    """The second file costs two syncs; a new folder is synced in its parent again."""
    folder = tmp_path / "a/b"
    folder.mkdir(parents=True)
    durable.write(folder / "one", "")
    del events[:]
    durable.write(folder / "two", "")
    assert [Path(path).name for what, path in events if what == "sync"][1:] == ["b"]
    durable.replace(folder, tmp_path / "a/c")
    folder.mkdir()
    del events[:]
    durable.write(folder / "three", "")
    assert ("sync", str(tmp_path / "a")) in events


def test_folder_is_synced_with_all_that_is_in_it_before_its_name(tmp_path, events):
    """Every file, then its folder, and the rename after all of them."""
    (tmp_path / "new/inner").mkdir(parents=True)
    for name in ("one", "inner/two"):
        (tmp_path / "new" / name).write_text(name)
    durable.replace(tmp_path / "new", tmp_path / "old")
    before = [path for what, path in events[: events.index(("name", str(tmp_path / "old")))] if what == "sync"]
    assert set(before) == {str(tmp_path / "new" / name) for name in ("", "one", "inner", "inner/two")}
    assert before.index(str(tmp_path / "new/inner/two")) < before.index(str(tmp_path / "new/inner"))
    assert before[-1] == str(tmp_path / "new")


@pytest.mark.parametrize(("fault", "passes"), [(errno.EINVAL, True), (errno.EIO, False)])
def test_folder_on_a_file_system_that_syncs_files_alone_passes(tmp_path, monkeypatch, fault, passes):
    """Only a refusal to sync folders at all is ignored; a failing disk, or a refusal for a file, is an error."""
    (tmp_path / "file").touch()

    def refuse(_):
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "fsync", refuse)
    if passes:
        durable.sync(tmp_path)
    for path in (tmp_path / "file", *([] if passes else [tmp_path])):
        with pytest.raises(OSError, match=str(path)):
            durable.sync(path)


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    """A full disk takes nothing away."""
    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(Path, "write_bytes", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no room")))
    with pytest.raises(OSError, match="no room"):
        durable.write(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_readers_of_one_process_number_write_a_manifest_at_once(tmp_path, monkeypatch):
    """Two nodes may have a process of the same number: what each writes meanwhile has a name of its own."""
    folder, names, replace = tmp_path / "weights", [], os.replace
    folder.mkdir()
    monkeypatch.setattr(os, "getpid", lambda: 7)
    monkeypatch.setattr(os, "replace", lambda old, new: (names.append(str(old)), replace(old, new)))
    for _ in range(2):
        Weights(folder, tmp_path / "x.parquet", "").write_manifest("sft/x", "0", {})
    assert len({*names}) == 2 and (folder / MANIFEST).exists() and list(tmp_path.iterdir()) == [folder]
