"""Append-only files: whatever a crash left, complete lines are read and new lines stay apart."""

import threading

import pytest

from proofmill.runtime import append_log, durable


@pytest.mark.parametrize("left", [b"", b"1\n", b"1\n2", b'1\n{"a": '])
def test_new_line_stays_separate_from_an_incomplete_one(tmp_path, left):
    """Complete lines are read before and after; the incomplete one gets its line end and is a line of its own."""
    path = tmp_path / "log"
    path.write_bytes(left)
    complete = list(append_log.complete_lines(path))
    assert complete == [line for line in left.splitlines(keepends=True) if line.endswith(b"\n")]
    append_log.append(path, [b"3\n", "\u2028\n".encode()])
    read = list(append_log.complete_lines(path))
    assert read[: len(complete)] == complete and read[-2:] == [b"3\n", "\u2028\n".encode()]
    assert len(read) == len(left.splitlines()) + 2


def test_file_that_is_not_there_has_no_lines(tmp_path):
    """A log that was never written is empty."""
    assert list(append_log.complete_lines(tmp_path / "none")) == []


def test_lines_of_several_writers_are_complete(tmp_path):
    """Threads that append at once mix no line with another."""
    path = tmp_path / "log"
    lines = [f"{writer} {'x' * 5000}\n".encode() for writer in range(8)]
    writers = [
        threading.Thread(target=lambda line=line: [append_log.append(path, [line], sync=False) for _ in range(20)])
        for line in lines
    ]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert sorted(append_log.complete_lines(path)) == sorted(20 * lines)


@pytest.mark.parametrize("sync", [True, False])
def test_synced_lines_and_the_name_of_their_file_are_on_disk(tmp_path, monkeypatch, sync):
    """Data and name are synced on each call, since the first may have been killed between the two."""
    synced, named = [], []
    path = tmp_path / "log"
    monkeypatch.setattr(append_log.os, "fsync", lambda number: synced.append(path.read_bytes()))
    monkeypatch.setattr(durable, "sync_name", named.append)
    for line in (b"1\n", b"2\n"):
        append_log.append(path, [line], sync=sync)
    assert (synced, named) == (([b"1\n", b"1\n2\n"], [path, path]) if sync else ([], []))
