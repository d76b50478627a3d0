"""Locks: one process at a time, also where the holder removes the file while others wait for it."""

import threading

from proofmill.runtime import locks


def test_lock_on_a_file_that_its_holder_removed_is_taken_anew(tmp_path, monkeypatch):
    """Who waited for the removed file holds the new one: who comes later finds it held."""
    path, inside, leave = tmp_path / "lock", threading.Event(), threading.Event()

    def wait():
        with locks.alone(path) as mine:
            assert mine
            inside.set()
            leave.wait(20)

    waiter = threading.Thread(target=wait)
    with locks.alone(path) as mine:
        assert mine
        waiter.start()
        assert not inside.wait(0.5)
    assert inside.wait(20)
    monkeypatch.setenv("PROOFMILL_LOCK_SECONDS", "0.1")
    with locks.alone(path) as mine:
        assert not mine
    leave.set()
    waiter.join()
    with locks.alone(path) as mine:
        assert mine
