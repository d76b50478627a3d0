"""Move the answers of one journal to another: those of a renamed artifact, or of the shards of an artifact.

An answer belongs to its question, not to a table: it is right wherever the same question is asked.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from proofmill.calls import budget, records
from proofmill.calls.journal import Journal
from proofmill.runtime import locks
from proofmill.schema.errors import JournalError
from proofmill.schema.ids import digest
from proofmill.schema.reasons import Reason, Stop


def has_answers(journal: Path) -> bool:
    """Whether a journal, or one of its shards, has answers."""
    return any(map(records.any_rows, _all(journal)))


def is_written(journal: Path) -> bool:
    """Whether somebody writes a journal, or its shards are at work.

    They hold its lock together, which is seen where one may write it; another user's is seen by the shards' own.
    """
    return locks.held(journal / "lock", shared=True) or any(locks.held(each / "lock") for each in _all(journal))


def _all(journal: Path) -> list[Path]:
    """A journal and those of its shards."""
    return [journal, *records.shards(journal)]


def move(old: Path, new: Path) -> int:
    """Move all answers of a journal to another; returns how many the other now has.

    Both are locked meanwhile. The old answers are deleted once the new journal has them on disk.
    """
    if not has_answers(old):
        raise JournalError(
            f"{old}: no journal here; expected the answers of a renamed artifact. See results/calls for those there are."
        )
    with whole(old) as source, whole(new) as target:
        _move(source, target)
        return len(target)


@contextmanager
def whole(folder: Path, lock: int = -1) -> Iterator[Journal]:
    """An artifact's journal, open, with all that its shards were answered; their own journals are then gone.

    `lock` is as for a Journal. Raises JournalError where a shard is at work.
    """
    with Journal(folder, lock) as journal:
        for path in records.shards(folder):
            with Journal(path) as shard:
                _move(shard, journal)
                journal.keep_damaged(shard)
            _remove(path)
        yield journal


def _remove(shard: Path) -> None:
    """Remove the folder of a shard whose answers another journal has, with what a kill left there while it wrote."""
    for path in shard.iterdir():  # who else would lock it waits for the artifact's lock
        if path.suffix == ".new" or path.name in ("answers.jsonl", "lock", "claim", "reserve"):
            path.unlink()
    with suppress(OSError):  # something of somebody else's, which is no journal
        shard.rmdir()
        shard.parent.rmdir()


def _move(source: Journal, target: Journal) -> None:
    """Move all answers of an open journal to another; they are deleted once the other has them on disk.

    Of a question that the other has, its own answer counts, and what this one cost stays in the sum that a budget limits.
    """
    both = source.keys & target.keys
    there = Counter(map(_identity, records.all_rows(target.folder, both))) if both else Counter()
    moved = set()
    for row in records.all_rows(source.folder):
        if row.key in both and there[identity := _identity(row)]:  # moved before, by a process that was killed
            there[identity] -= 1
            moved.add(row.key)
        elif row not in target or (row.key in moved and row.answer.reason == Reason.SET_ASIDE):
            target.add(row, row.answer)
            moved.add(row.key)
        elif row.answer.cost and (besides := _besides(row)).key not in target.keys:
            target.add(besides, besides.answer)
    target.compact()
    target.sync()
    budget.write_claim(target)
    source.empty()


def _identity(row: records.Row) -> str:
    """A digest by which a row is known again: two answers differ in one of these."""
    answer = row.answer
    return digest(row.key, answer.text, answer.stop, answer.reason, answer.cost, answer.seconds, answer.tokens)


def _besides(row: records.Row) -> records.Row:
    """An answer that does not count, as another came first, for its cost: set aside, under a key that nobody asks for."""
    detail = f"besides the answer to {row.key}, which came first"
    return records.Row(_identity(row), replace(row.answer, stop=Stop.ERROR, reason=Reason.SET_ASIDE, detail=detail))
