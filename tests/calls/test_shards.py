"""Shards of a stage: each has its share of the rows and its own journal, and no call is made twice."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from proofmill.calls import budget, merging, records, shards
from proofmill.calls.budget import Budget
from proofmill.calls.journal import Journal
from proofmill.calls.model_requests import ModelOutput, ModelRequest
from proofmill.calls.shards import TURNS, Shard, ShardJournal
from proofmill.schema.errors import JournalError, SettingError


def asked(name: str) -> ModelRequest:
    return ModelRequest("m", (("user", name),))


def note(journal: Journal, *names: str, stop: str = "end", reason: str = "ok", cost: float = 0.01) -> None:
    for name in names:
        journal.add(asked(name), ModelOutput(f"{name}!", stop, reason, cost=cost))


def texts(journal: Journal, *names: str) -> list[str]:
    return [answer.text for answer in journal.answers([asked(name) for name in names])]


def known(journal: Journal, names: str) -> str:
    return "".join(name for name in names if asked(name) in journal)


@pytest.mark.parametrize(("rows", "of"), [(1, 2), (24, 4), (25, 3), (1000, 7), (5, 16)])
def test_every_row_is_in_one_shard_and_shares_are_even(rows, of):
    """Each row belongs to one shard, and no shard has more than a block of rows more than another."""
    shares = [[place for place in range(rows) if Shard(number, of).has(place, rows)] for number in range(1, of + 1)]
    assert sorted(place for share in shares for place in share) == list(range(rows))
    block = -(-rows // (of * TURNS))
    assert max(map(len, shares)) - min(map(len, shares)) <= block


@pytest.mark.parametrize("text", ["", "2", "0/4", "5/4", "a/b", "1/0", "-1/4", "1/4/8"])
def test_word_that_is_no_shard_is_refused(text):
    """The message has the value and the format of a shard."""
    with pytest.raises(SettingError, match=r"^--shard .*: not a shard; expected one such as 2/4"):
        Shard.read(text)


def test_answers_of_shards_are_taken_in_and_their_journals_are_gone(tmp_path):
    """The artifact's journal then has every output and its cost, including failures, and counts nothing twice."""
    calls = tmp_path / "calls"
    whole = calls / "responses/x"
    with ShardJournal(whole, Shard(1, 2)) as journal:
        note(journal, "a", "b")
    with ShardJournal(whole, Shard(2, 2)) as journal:
        note(journal, "c", stop="error", reason="provider")
        note(journal, "c")
        note(journal, "d", stop="error", reason="provider")
    assert budget.sum_costs(calls) == pytest.approx(0.05)
    assert set(records.frame(whole).filter(stop_reason="end")["text"]) == {"a!", "b!", "c!"}
    with merging.whole(whole) as journal:
        assert texts(journal, "a", "b", "c") == ["a!", "b!", "c!"]
        assert known(journal, "abcd") == "abc" and journal.failure_of(asked("d")) == "provider"
        assert journal[asked("c")].cost == pytest.approx(0.02)
    assert budget.sum_costs(calls) == pytest.approx(0.05)
    assert not (whole / "shards").exists()


def paid(folder, number: int, *rows: tuple[str, str, float]) -> None:
    with ShardJournal(folder, Shard(number, 2)) as journal:
        for name, stop, cost in rows:
            journal.add(
                asked(name), ModelOutput(f"{name} of {number}", stop, "ok" if stop == "end" else "provider", cost=cost)
            )


def test_what_two_shards_paid_for_one_question_stays_paid(tmp_path):
    """The first output counts, before merging and afterwards; the budget also counts the cost of the other."""
    calls = tmp_path / "calls"
    whole = calls / "responses/x"
    paid(whole, 1, ("a", "end", 1.0))
    paid(whole, 2, ("a", "error", 0.25), ("a", "end", 2.0), ("b", "end", 4.0))
    assert budget.sum_costs(calls) == 7.25
    assert set(records.frame(whole)["text"]) == {"a of 1", "b of 2"}
    for _ in range(2):
        with merging.whole(whole) as journal:
            assert texts(journal, "a", "b") == ["a of 1", "b of 2"] and len(journal) == 2
            assert journal.spent == budget.sum_costs(calls) == 7.25
    assert set(records.frame(whole).filter(stop_reason="end")["text"]) == {"a of 1", "b of 2"}
    assert merging.move(whole, calls / "responses/renamed") == 2 and budget.sum_costs(calls) == 7.25


@pytest.mark.parametrize("rows", range(6))
def test_what_a_killed_move_had_moved_is_not_counted_twice(tmp_path, rows):
    """After each row at which it may be killed, also failures and outputs that do not count."""
    whole = tmp_path / "calls/responses/x"
    with Journal(whole) as journal:
        note(journal, "a", cost=1.0)
    paid(whole, 1, ("a", "end", 2.0), ("b", "error", 4.0), ("b", "end", 8.0), ("c", "error", 16.0), ("d", "end", 32.0))

    class Killed(BaseException):
        """Stop as a killed process does: without any cleanup."""

    source, target = Journal(whole / "shards/1-of-2"), Journal(whole)
    with source, target:
        left, add = rows, target.add

        def adding(request, answer):
            nonlocal left
            if not left:
                raise Killed
            left -= 1
            add(request, answer)

        target.add = adding
        with contextlib.suppress(Killed):
            merging._move(source, target)
    with merging.whole(whole) as journal:
        assert journal.spent == 63.0 and texts(journal, "a", "b", "d") == ["a!", "b of 1", "d of 1"]
    assert budget.sum_costs(tmp_path / "calls") == 63.0


def test_shard_knows_what_was_answered_before_it(tmp_path):
    """A shard has the outputs of an earlier job, in segments and in a torn tail, but not invalidated ones."""
    whole = tmp_path / "calls/responses/x"
    with Journal(whole) as journal:
        note(journal, *"abc")
    journal = Journal(whole).__enter__()
    note(journal, *"de")
    note(journal, "b", "d", stop="error", reason="invalidated")
    journal._close()
    with open(whole / "calls.jsonl", "ab") as file:
        file.write(b'{"key": "')
    with ShardJournal(whole, Shard(1, 2)) as shard:
        note(shard, "f")
        assert known(shard, "abcdefg") == "acef"
        assert texts(shard, "f", "e", "a", "f", "c") == ["f!", "e!", "a!", "f!", "c!"]
        with pytest.raises(KeyError):
            texts(shard, "a", "g")


def test_number_of_shards_may_change_between_runs(tmp_path):
    """3 shards repeat no call of 2 earlier shards, in whatever order they start."""
    whole = tmp_path / "calls/responses/x"
    for number, name in enumerate("ab", 1):
        with ShardJournal(whole, Shard(number, 2)) as journal:
            note(journal, name)
    with ShardJournal(whole, Shard(2, 3)) as second, ShardJournal(whole, Shard(1, 3)) as first:
        assert known(first, "abc") == known(second, "abc") == "ab"
    assert [path.name for path in records.shards(whole)] == ["1-of-3", "2-of-3"]


def known_at_once(whole, of: int, names: str) -> list[str]:
    """Return the outputs that each of four shards has, which begin at the same moment and run until all have begun."""
    begin, end = threading.Barrier(4), threading.Barrier(4)

    def worked(number: int) -> str:
        begin.wait()
        try:
            with ShardJournal(whole, Shard(number, of)) as journal:
                end.wait(20)
                return known(journal, names)
        except JournalError:
            end.abort()
            raise

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(worked, range(1, 5)))


def test_shards_wait_as_long_as_one_of_them_takes_others_in(tmp_path, monkeypatch):
    """They wait longer than for any other process, also if shards of their own number are merged; then all run."""
    monkeypatch.setenv("PROOFMILL_LOCK_SECONDS", "0.2")
    whole, move = tmp_path / "calls/responses/x", merging._move

    def slowly(*journals):
        time.sleep(0.6)
        move(*journals)

    monkeypatch.setattr(merging, "_move", slowly)
    for folder, name in (("1-of-2", "a"), ("2-of-2", "b"), ("1-of-4", "c"), ("2-of-4", "d")):
        with Journal(whole / "shards" / folder) as journal:
            note(journal, name)
    assert known_at_once(whole, 4, "abcd") == ["abcd"] * 4


def test_shards_take_in_what_one_left_that_was_killed_while_it_did(tmp_path, monkeypatch):
    """They wait for the lock as long as it is held, and then merge themselves."""
    monkeypatch.setenv("PROOFMILL_LOCK_SECONDS", "0.2")
    whole = tmp_path / "calls/responses/x"
    with ShardJournal(whole, Shard(1, 2)) as journal:
        note(journal, "a")
    holding = Journal(whole).__enter__()
    letting_go = threading.Timer(1.0, holding._close)
    letting_go.start()
    assert known_at_once(whole, 8, "a") == ["a"] * 4
    letting_go.join()


@pytest.mark.parametrize("left", ["claim.new", "00001.new", "reserve", "damaged.jsonl", "notes.txt"])
def test_what_a_kill_left_in_a_shards_folder_hinders_no_run(tmp_path, left):
    """Another number of shards begins, twice: damaged lines are kept next to the artifact's, once; other files are removed."""
    whole = tmp_path / "calls/responses/x"
    folder = whole / "shards/1-of-2"
    for name in "ab":
        with ShardJournal(whole, Shard(1, 2)) as journal:
            note(journal, name)
        (folder / left).write_bytes(b"some of it\n")
        for number in (1, 2):
            with ShardJournal(whole, Shard(number, 3)) as journal:
                assert asked(name) in journal
    with merging.whole(whole):
        assert folder.exists() == (left == "notes.txt")
    assert not (whole / "damaged.jsonl").exists() or (whole / "damaged.jsonl").read_bytes() == b"some of it\n"
    assert (whole / "damaged.jsonl").exists() == (left == "damaged.jsonl")


def test_shards_of_two_numbers_are_never_at_work_together(tmp_path, monkeypatch):
    """They would make the same calls: the later one names the others, and stops."""
    monkeypatch.setenv("PROOFMILL_LOCK_SECONDS", "0.3")
    whole = tmp_path / "calls/responses/x"
    with ShardJournal(whole, Shard(1, 2)) as journal:
        note(journal, "a")
        with pytest.raises(JournalError, match=r": 1-of-2 are running; expected shards of one number, here 3"):
            ShardJournal(whole, Shard(1, 3)).__enter__()
    with ShardJournal(whole, Shard(1, 3)) as journal:
        assert known(journal, "ab") == "a"


def test_of_two_numbers_that_begin_in_one_moment_one_goes_on(tmp_path, monkeypatch):
    """Neither sees the other before it holds its journal's lock: the second to hold it stops, and releases it."""
    monkeypatch.setenv("PROOFMILL_LOCK_SECONDS", "0.3")
    whole = tmp_path / "calls/responses/x"
    first, earlier = ShardJournal(whole, Shard(1, 3)), shards.Earlier

    def meanwhile(folder):
        monkeypatch.setattr(shards, "Earlier", earlier)
        first.__enter__()
        return earlier(folder)

    monkeypatch.setattr(shards, "Earlier", meanwhile)
    with pytest.raises(JournalError, match=r": 1-of-3 are running; expected shards of one number, here 2"):
        ShardJournal(whole, Shard(1, 2)).__enter__()
    note(first, "a")
    first.__exit__(None, None, None)
    assert not merging.is_written(whole)
    with ShardJournal(whole, Shard(1, 2)) as journal:
        assert known(journal, "ab") == "a"


def test_artifact_waits_for_its_shards_and_they_for_it(tmp_path, monkeypatch):
    """No process merges shards while they run, and no shard begins during merging; each message names the other."""
    monkeypatch.setenv("PROOFMILL_LOCK_SECONDS", "0.3")
    whole = tmp_path / "calls/responses/x"
    refused = pytest.raises(JournalError, match=f"process {os.getpid()} .*expected one writer")
    with ShardJournal(whole, Shard(1, 2)), ShardJournal(whole, Shard(2, 2)), refused:
        merging.whole(whole).__enter__()
    with merging.whole(whole), pytest.raises(JournalError, match="expected no writer while shards run"):
        ShardJournal(whole, Shard(1, 2)).__enter__()


KILLED = """
import sys, time
from pathlib import Path
from proofmill.calls.model_requests import ModelOutput, ModelRequest
from proofmill.calls.shards import Shard, ShardJournal

with ShardJournal(Path(sys.argv[1]), Shard(1, 2)) as journal:
    for name in "abc":
        journal.add(ModelRequest("m", (("user", name),)), ModelOutput(f"{name}!", "end", cost=0.01))
    print("ready", flush=True)
    time.sleep(60)
"""


def test_killed_shard_loses_nothing_and_comes_again(tmp_path):
    """Outputs from before kill -9 belong to the shard again when it is requeued, and otherwise to the artifact."""
    whole = tmp_path / "calls/responses/x"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(whole)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    with ShardJournal(whole, Shard(1, 2)) as journal:
        assert known(journal, "abcd") == "abc"
        note(journal, "d")
    with merging.whole(whole) as journal:
        assert texts(journal, *"abcd") == ["a!", "b!", "c!", "d!"]


def test_kill_while_answers_are_taken_in_loses_none(tmp_path):
    """Wherever the artifact's job is killed, the next one has every output, once."""
    whole = tmp_path / "calls/responses/x"
    names = [str(number) for number in range(3000)]
    for number in (1, 2):
        with ShardJournal(whole, Shard(number, 2)) as journal:
            note(journal, *names[number - 1 :: 2])
    code = f"from proofmill.calls import merging; from pathlib import Path\nwith merging.whole(Path({str(whole)!r})): print(1)"
    for milliseconds in (300, 500, 700, 900):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
        time.sleep(milliseconds / 1000)
        process.kill()
        process.wait()
        assert set(records.frame(whole)["text"]) == {f"{name}!" for name in names}
    with merging.whole(whole) as journal:
        assert len(journal) == len(names) and journal.spent == pytest.approx(0.01 * len(names))


def test_budget_is_one_for_all_shards(tmp_path):
    """Dollars that a shard has reserved are not available to another."""
    calls = tmp_path / "calls"
    whole = calls / "responses/x"
    with ShardJournal(whole, Shard(1, 2)) as first, ShardJournal(whole, Shard(2, 2)) as second:
        one, other = Budget(1.0, calls, first), Budget(1.0, calls, second)
        assert one.reserve(0.6) and not other.reserve(0.6) and other.reserve(0.3)
