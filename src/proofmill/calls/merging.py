"""Move the outputs of one journal to another: of a renamed artifact, or of the shards of an artifact.

An output belongs to its request, not to a table: it is valid wherever the same request is made.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from proofmill.calls import budget, records
from proofmill.calls.journal import Journal
from proofmill.runtime import append_log, locks
from proofmill.schema.errors import JournalError
from proofmill.schema.ids import digest
from proofmill.schema.reasons import Reason, StopReason


def has_answers(journal: Path) -> bool:
    """Return whether a journal, or one of its shards, has outputs."""
    return any(map(records.any_rows, _all(journal)))


def is_written(journal: Path) -> bool:
    """Return whether a process writes a journal, or one of its shards.

    Shards share the journal's lock, which can be tested only if this user may write it. Another user's job is detected
    by the locks of the shards themselves.
    """
    return locks.is_held(journal / "lock", shared=True) or any(locks.is_held(each / "lock") for each in _all(journal))


def _all(journal: Path) -> list[Path]:
    """Return a journal and those of its shards."""
    return [journal, *records.shards(journal)]


def move(old: Path, new: Path) -> int:
    """Move all outputs of a journal to another. Return the number of outputs that the other now has.

    Both are locked meanwhile. The old outputs are deleted once the new journal has them on disk.
    """
    nothing = JournalError(
        f"{old}: no outputs here; expected the calls of a renamed artifact. Use a name in results/calls."
    )
    if not has_answers(old):
        raise nothing
    with whole(old) as source:
        if not source.keys:  # it was moved before
            raise nothing
        with whole(new) as target:
            _move(source, target)
            return len(target)


@contextmanager
def whole(folder: Path, lock: int = -1, lenders: Iterable[Path] = ()) -> Iterator[Journal]:
    """Open an artifact's journal with the outputs of all its shards, whose own journals are removed.

    `lock` and `lenders` are as for a Journal. Raises JournalError if a shard is running.
    """
    with Journal(folder, lock, lenders) as journal:
        for path in records.shards(folder):
            with Journal(path) as shard:
                _move(shard, journal)
                journal.keep_damaged(shard)
            _remove(path)
        yield journal


def _remove(shard: Path) -> None:
    """Remove the folder of a shard whose outputs another journal has, with the temporary files of a killed write."""
    for path in shard.iterdir():  # any other process would wait for the artifact's lock first
        if path.suffix == ".new" or path.name in ("calls.jsonl", "lock", "claim", "reserve"):
            path.unlink()
    with suppress(OSError):  # the folder has foreign files
        shard.rmdir()
        shard.parent.rmdir()


def _move(source: Journal, target: Journal) -> None:
    """Move all outputs of an open journal to another. They are deleted once the other has them on disk.

    If the other has an output of the same request, that one counts; the cost of this one still counts in the budget.
    """
    both = source.keys & target.keys
    moved_before = Counter(map(_identity, records.all_rows(target.folder, both))) if both else Counter()
    moved = set()
    for row in records.all_rows(source.folder):
        if row.key in both and moved_before[identity := _identity(row)]:  # by a process that was killed
            moved_before[identity] -= 1
            moved.add(row.key)
        elif row not in target or (row.key in moved and row.answer.reason == Reason.INVALIDATED):
            target.add(row, row.answer)
            moved.add(row.key)
        elif row.answer.cost and (duplicate := _duplicate(row)).key not in target.keys:
            target.add(duplicate, duplicate.answer)
    if (batches := source.folder / "batches.jsonl").exists():  # twice after a kill, which changes nothing
        append_log.append(target.folder / batches.name, append_log.complete_lines(batches))
        batches.unlink()
    target.compact()
    target.sync()
    budget.write_claim(target)
    source.empty()


def _identity(row: records.CallRecord) -> str:
    """Return a digest that identifies a row."""
    answer = row.answer
    return digest(row.key, answer.text, answer.stop_reason, answer.reason, answer.cost, answer.seconds, answer.tokens)


def _duplicate(row: records.CallRecord) -> records.CallRecord:
    """Return an invalidated row with the cost of a second output of a request, under a key that is never requested."""
    detail = f"duplicate of the output of {row.key}, which came first"
    return records.CallRecord(
        _identity(row), replace(row.answer, stop_reason=StopReason.ERROR, reason=Reason.INVALIDATED, detail=detail)
    )
