"""Merging: the answers of a journal in another results folder are copied to the journal of the same artifact here.

An answer belongs to what was asked and not to a table: it is right here wherever the same question is asked, also if the
table there is unfinished or another. The journal there is only read.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from proofmill.calls import records
from proofmill.calls.journal import AT_ONCE, Journal
from proofmill.runtime import locks
from proofmill.schema.errors import JournalError
from proofmill.schema.reasons import Reason


def has_answers(journal: Path) -> bool:
    return (journal / "answers.jsonl").exists() or bool(records.segments(journal))


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
        claim = here / "claim.new"
        claim.write_text(f"{journal.spent:.9f} 0\n")
        os.replace(claim, here / "claim")
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
