"""Outputs of shards and of renamed artifacts move to another journal; a journal in use is left alone."""

import pytest

from proofmill.calls import records
from proofmill.calls.batches.batch_log import Batch, BatchLog
from proofmill.calls.journal import Journal
from proofmill.calls.merging import has_answers, is_written, move, whole
from proofmill.calls.model_requests import ModelOutput
from proofmill.calls.records import CallRecord
from proofmill.calls.shards import Shard, ShardJournal
from proofmill.schema.errors import JournalError
from proofmill.schema.reasons import Reason


def write(folder, *names, **answer):
    with Journal(folder) as journal:
        add(journal, *names, **answer)


def add(journal, *names, **answer):
    for name in names:
        journal.add(
            CallRecord(name, ModelOutput("", "end")),
            ModelOutput(**{"text": name, "stop_reason": "end", "cost": 0.5, **answer}),
        )


def test_answers_of_shards_are_found_and_moved(tmp_path):
    """All shards of the old name move, and of two outputs of one request the first counts."""
    there, renamed = tmp_path / "there", tmp_path / "renamed"
    for number, name in enumerate("ab", 1):
        with ShardJournal(there, Shard(number, 2)) as journal:
            add(journal, name)
            add(journal, "both", text=f"both {number}")
    assert has_answers(there) and not has_answers(tmp_path)
    assert move(there, renamed) == 3
    texts = dict(
        records.frame(renamed, "text", "stop_reason").filter(stop_reason="end").select("key", "text").iter_rows()
    )
    assert texts == {"a": "a", "b": "b", "both": "both 1"}


def test_batches_at_a_server_move_with_the_answers(tmp_path):
    """The renamed artifact, or the one without shards, merges them; the old folder reserves nothing."""
    there, here, shard = tmp_path / "there", tmp_path / "here", Shard(1, 2)
    with ShardJournal(there, shard) as journal:
        add(journal, "a")
        BatchLog(journal.folder, "m").add("intended", Batch("d", frozenset("k"), None, 0.5))
    move(there, here)
    assert BatchLog(here).read_reserved() == {"d": 0.5} and not BatchLog(there).read_reserved()
    assert not records.shards(there)


def test_journal_without_answers_is_no_journal_to_move(tmp_path):
    """A wrong old name is an error, and nothing is created."""
    with pytest.raises(JournalError, match="no outputs here"):
        move(tmp_path / "nothing", tmp_path / "new")
    write(tmp_path / "old", "a")
    move(tmp_path / "old", tmp_path / "other")
    with pytest.raises(JournalError, match="no outputs here"):
        move(tmp_path / "old", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_journal_whose_shards_are_at_work_is_written(tmp_path):
    """Shards hold the lock together, and each the lock of its own journal, which another user can see."""
    there = tmp_path / "there"
    with ShardJournal(there, Shard(1, 2)):
        assert is_written(there)
        (there / "lock").chmod(0o400)
        assert is_written(there)
    assert not is_written(there)


def killed_before_the_old_answers_go(monkeypatch, there, here):
    """Move answers, with a kill once the new journal has them and the old one still does."""

    def killed(_):
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "empty", killed)
        with pytest.raises(InterruptedError):
            move(there, here)


def test_answers_that_were_moved_before_a_kill_are_moved_once(tmp_path, monkeypatch):
    """Moved again, the new journal has each row and its dollars once, and the old one has none."""
    there, here = tmp_path / "there", tmp_path / "here"
    write(there, "a", "b")
    killed_before_the_old_answers_go(monkeypatch, there, here)
    assert move(there, here) == 2
    rows = [row.key for row in records.all_rows(here)]
    assert len(rows) == len({*rows}) == 2 and not records.frame(there).height
    with Journal(here) as journal:
        assert journal.spent == pytest.approx(1.0)


def test_answer_that_was_set_aside_after_it_was_moved_is_set_aside_there_too(tmp_path, monkeypatch):
    """The last row of the old journal counts, also if a kill came in between."""
    there, here = tmp_path / "there", tmp_path / "here"
    write(there, "a", "b")
    killed_before_the_old_answers_go(monkeypatch, there, here)
    with Journal(there) as journal:
        journal.add(CallRecord("a", ModelOutput("", "end")), ModelOutput("", "error", reason=Reason.INVALIDATED))
    move(there, here)
    with Journal(here) as journal:
        assert journal.failure_of(
            CallRecord("a", ModelOutput("", "end"))
        ) == Reason.INVALIDATED and journal.spent == pytest.approx(1.0)


def test_answer_that_a_shard_invalidated_after_it_was_moved_is_followed(tmp_path, monkeypatch):
    """A kill came before the shard's journal was emptied; its last line counts in the artifact's journal."""
    there, shard = tmp_path / "there", Shard(1, 2)
    with ShardJournal(there, shard) as journal:
        add(journal, "a", "b")
    with monkeypatch.context() as patched, pytest.raises(InterruptedError):
        patched.setattr(Journal, "empty", lambda _: (_ for _ in ()).throw(InterruptedError()))
        with whole(there):
            pass
    with Journal(records.shards(there)[0]) as journal:
        add(journal, "a", text="", stop_reason="error", reason=Reason.INVALIDATED, cost=0.0)
    with whole(there) as journal:
        assert journal.failure_of(CallRecord("a", ModelOutput("", "end"))) == Reason.INVALIDATED
        assert CallRecord("b", ModelOutput("", "end")) in journal and journal.spent == pytest.approx(1.0)
    assert not records.shards(there)
