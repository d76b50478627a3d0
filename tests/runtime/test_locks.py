"""Locks: one process at a time, also if the holder removes the file while others wait for it."""

import threading
import time

from proofmill.runtime import locks


def test_lock_on_a_removed_file_is_taken_on_the_new_one(tmp_path, monkeypatch):
    """A waiter for the removed file holds the new one, so that later processes find it locked."""
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


def test_two_waiters_hold_the_lock_one_at_a_time(tmp_path):
    """The holder leaves and removes the file that both wait for; they do not end with one file each."""
    path, inside, most, took = tmp_path / "lock", [], [], []

    def wait():
        with locks.alone(path) as mine:
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.5)  # longer than a waiter sleeps between two tries
            inside.pop()
            took.append(mine)

    waiters = [threading.Thread(target=wait) for _ in range(2)]
    with locks.alone(path):
        for waiter in waiters:
            waiter.start()
        time.sleep(0.5)
        assert not most
    for waiter in waiters:
        waiter.join(20)
    assert (took, max(most)) == ([True, True], 1) and not path.exists()


def test_shared_lock_is_seen_by_those_who_ask_for_it(tmp_path):
    """A lock that several hold counts as held only with `shared`; without any holder it is free either way."""
    path = tmp_path / "needed"
    with locks.together(path):
        assert locks.is_held(path, shared=True) and not locks.is_held(path)
    assert not locks.is_held(path, shared=True)
    path.chmod(0o400)
    with locks.alone(tmp_path / "lock"):
        assert locks.is_held(tmp_path / "lock")
    assert not locks.is_held(tmp_path / "missing", shared=True)
