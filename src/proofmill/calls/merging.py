"""Answers of one journal for another: moved, as when an artifact was renamed; or merged, from another results folder.

An answer belongs to what was asked and not to a table: it is right here wherever the same question is asked, also if the
table there is unfinished or another. A journal of another folder is only read.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from proofmill.calls import budget, records
from proofmill.calls.journal import AT_ONCE, Journal
from proofmill.runtime import locks
from proofmill.schema.errors import JournalError
from proofmill.schema.reasons import Reason


def has_answers(journal: Path) -> bool:
    return (journal / "answers.jsonl").exists() or bool(records.segments(journal))


def move(old: Path, new: Path) -> int:
    """Move all answers of a journal to another; returns how many the other now has.

    Both are locked meanwhile. The old answers are deleted once the new journal has them on disk.
    """
    if not has_answers(old):
        raise JournalError(f"{old}: no journal here; expected one to adopt. See results/calls for those there are.")
    with Journal(old) as source, Journal(new) as target:
        moved = set()
        for row in records.all_rows(old):
            if row not in target or (row.key in moved and row.answer.reason == Reason.SET_ASIDE):
                target.add(row, row.answer)
                moved.add(row.key)
        target.compact()
        target.sync()
        budget.write_claim(target)
        source.empty()
        return len(target)


def merge(there: Path, here: Path) -> int:
    """Copy the answers that are missing here; returns how many those were. Kill it when you like, and run it again.

    Failures are no answers; what was set aside, there or here, is not brought back. What an answer cost there, the sum
    here that a budget limits has too. Raises JournalError, before anything is copied, where both have other answers to
    the same question, or where somebody writes there.
    """
    if locks.held(there / "lock"):
        raise JournalError(f"{there}: is being written; expected a journal that nobody writes. Wait for that job.")
    last = {row.key: number for number, row in enumerate(records.all_rows(there))}
    with Journal(here) as journal:
        if others := _others(_answers(there, last), journal):
            raise JournalError(
                f"{here}: has other answers than {there} to {others:,} of the same questions; expected the same, or none. Nothing "
                "was copied. Leave --calls out, or move the journal here away."
            )
        copied = 0
        for row in _answers(there, last):
            if row not in journal and journal.parked(row) != Reason.SET_ASIDE:
                journal.add(row, row.answer)
                copied += 1
        journal.compact()
        journal.sync()
        budget.write_claim(journal)
    return copied


def _answers(journal: Path, last: dict[str, int]) -> Iterator[records.Row]:
    """The answer of each question, where what came last is one."""
    for number, row in enumerate(records.all_rows(journal)):
        if last.get(row.key) == number and not row.answer.failed:
            yield row


def _others(rows: Iterator[records.Row], journal: Journal) -> int:
    """How many of these answers are others in a journal."""
    others = 0
    while some := list(islice(rows, AT_ONCE)):
        both = [row for row in some if row in journal]
        for row, answer in zip(both, journal.answers(both), strict=True):
            others += (row.answer.text, row.answer.reasoning) != (answer.text, answer.reasoning)
    return others
