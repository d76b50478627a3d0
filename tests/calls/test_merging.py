"""Answers of a journal elsewhere are copied: those that are missing here, once, and nothing there changes."""

import pytest

from project import snapshot
from proofmill.calls import budget, records
from proofmill.calls.exchange import Answer
from proofmill.calls.journal import Journal
from proofmill.calls.merging import has_answers, is_written, merge, move
from proofmill.calls.records import Row
from proofmill.calls.shards import Shard, ShardJournal
from proofmill.schema.errors import JournalError


def write(folder, *names, **answer):
    with Journal(folder) as journal:
        for name in names:
            journal.add(Row(name, Answer("", "end")), Answer(**{"text": name, "stop": "end", "cost": 0.5, **answer}))


def texts(folder):
    return dict(records.frame(folder, "text").select("key", "text").iter_rows())


def test_missing_answers_are_copied_once(tmp_path):
    """Those here stay, those there come with what they cost, however often; the journal there is as it was."""
    there, here = tmp_path / "there", tmp_path / "calls/grades/here"
    write(there, "a", "b")
    write(there, "c")
    write(here, "b", "d", cost=2.0)
    before = snapshot(there)
    assert (merge(there, here), merge(there, here)) == (2, 0)
    assert texts(here) == {name: name for name in "abcd"}
    assert budget.spent(tmp_path / "calls") == pytest.approx(5.0)
    assert snapshot(there) == before and has_answers(there)


def test_journal_that_was_killed_is_read_and_not_mended(tmp_path):
    """Answers in the tail come too; a line that a kill cut off does not, and stays as it is there."""
    there, here = tmp_path / "there", tmp_path / "here"
    journal = Journal(there).__enter__()
    for name in "ab":
        journal.add(Row(name, Answer("", "end")), Answer(name, "end"))
    journal._close()
    with open(there / "answers.jsonl", "ab") as file:
        file.write(b'{"key": "c", "text": "ha')
    before = snapshot(there)
    assert merge(there, here) == 2
    assert texts(here) == {"a": "a", "b": "b"} and snapshot(there) == before


def test_failures_and_what_was_set_aside_are_no_answers(tmp_path):
    """A failure is not copied, an answer of others takes the place of one here; what was set aside stays so, there and here."""
    there, here = tmp_path / "there", tmp_path / "here"
    write(there, "failed", "aside there", stop="error", reason="provider")
    write(there, "aside there", "aside here", "failed here")
    write(there, "aside there", stop="error", reason="set-aside")
    write(here, "failed here", stop="error", reason="provider")
    write(here, "aside here", stop="error", reason="set-aside")
    assert (merge(there, here), merge(there, here)) == (1, 0)
    with Journal(here) as journal:
        known = {name: Row(name, Answer("", "end")) in journal for name in ("failed", "aside there", "aside here")}
        assert not any(known.values()) and Row("failed here", Answer("", "end")) in journal


def test_other_answers_to_the_same_question_are_refused(tmp_path):
    """Both keep theirs, and not even an answer that is missing here is copied."""
    there, here = tmp_path / "there", tmp_path / "here"
    write(there, "a", "b", "c")
    write(here, "a")
    write(here, "b", text="another")
    before = snapshot(here)
    with pytest.raises(JournalError, match=r"other answers than .* to 1 of the same questions"):
        merge(there, here)
    assert texts(here) == {"a": "a", "b": "another"} and set(before) == set(snapshot(here))


def test_journal_that_somebody_writes_is_refused(tmp_path):
    """One waits for its job."""
    there, here = tmp_path / "there", tmp_path / "here"
    write(there, "a")
    with Journal(there), pytest.raises(JournalError, match="is being written"):
        merge(there, here)
    assert not here.exists()


def add(journal, *names, **answer):
    for name in names:
        journal.add(Row(name, Answer("", "end")), Answer(**{"text": name, "stop": "end", "cost": 0.5, **answer}))


def test_answers_of_shards_are_found_moved_and_copied(tmp_path):
    """Also where nobody has taken them in; a journal there is only read, and of two answers the first counts."""
    there, here, renamed = (tmp_path / name for name in ("there", "here", "renamed"))
    for number, name in enumerate("ab", 1):
        with ShardJournal(there, Shard(number, 2)) as journal:
            add(journal, name)
            add(journal, "both", text=f"both {number}")
    with ShardJournal(here, Shard(1, 3)) as journal:
        add(journal, "a", "c")
    before = snapshot(there)
    assert has_answers(there) and not has_answers(tmp_path)
    assert (merge(there, here), merge(there, here)) == (2, 0)
    assert snapshot(there) == before
    assert texts(here) == texts(there) | {"c": "c"} == {"a": "a", "b": "b", "c": "c", "both": "both 1"}
    assert move(there, renamed) == 3
    assert set(records.frame(renamed).filter(stop="end")["text"]) == {"a", "b", "both 1"}


def test_other_answers_of_shards_here_are_refused(tmp_path):
    """What a shard was answered here is the artifact's: nothing is copied beside it."""
    there, here = tmp_path / "there", tmp_path / "here"
    write(there, "a", "b")
    with ShardJournal(here, Shard(1, 2)) as journal:
        add(journal, "a", text="another")
    with pytest.raises(JournalError, match=r"other answers than .* to 1 of the same questions"):
        merge(there, here)
    assert texts(here) == {"a": "another"}


def test_journal_whose_shards_are_at_work_is_refused(tmp_path):
    """They hold the lock together, and each that of its own journal, which another user can see."""
    there = tmp_path / "there"
    with ShardJournal(there, Shard(1, 2)):
        assert is_written(there)
        (there / "lock").chmod(0o400)
        with pytest.raises(JournalError, match="is being written"):
            merge(there, tmp_path / "here")
    assert not is_written(there)
