"""Shards: several jobs ask the questions of one artifact, each its share of the rows, into a journal of its own.

    results/calls/<kind>/<name>/                 the artifact's journal
    results/calls/<kind>/<name>/shards/2-of-4/   that of a shard, until its answers are in the artifact's

A shard writes no table. The artifact's own job takes in what all shards have been answered (merging.whole), asks what is
missing, and writes the table that it would have written alone. So a shard may be killed, requeued or left out, and the
number of shards may change from run to run: what is in a journal counts.

While a shard works it holds a shared lock on the artifact's journal. Nobody writes there meanwhile, so that its answers,
those of earlier runs, are the shard's as well; and the artifact's own job waits.
"""

import contextlib
import os
import re
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from proofmill.calls import merging, records
from proofmill.calls.exchange import Answer
from proofmill.calls.journal import AT_ONCE, Journal
from proofmill.runtime import locks
from proofmill.runtime.progress import Pace, clock, say
from proofmill.schema.errors import JournalError, SettingError
from proofmill.schema.reasons import Stop

TURNS = 8  # times that each shard gets some rows: where the hard ones lie together, no shard gets them all
WAIT_SECONDS = 0.2  # between two looks whether another process has taken in what shards were answered


@dataclass(frozen=True)
class Shard:
    """The `number`-th of `of` shards, from 1 on."""

    number: int
    of: int

    @classmethod
    def read(cls, text: str) -> "Shard":
        """`2/4` of a command line. Raises SettingError for anything else."""
        found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        shard = cls(int(found[1]), int(found[2])) if found else None
        if shard is None or not 1 <= shard.number <= shard.of:
            raise SettingError(f"--shard {text}: found no shard; expected one such as 2/4, from 1/4 to 4/4.")
        return shard

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def folder(self) -> str:
        return f"{self.number}-of-{self.of}"

    def has(self, place: int, rows: int) -> bool:
        """Whether the row at a place (from 0 on) of so many is one of its share.

        A share is made of blocks of rows that stand together, so that a server may keep what their prompts begin with.
        """
        block = max(1, -(-rows // (self.of * TURNS)))
        return place // block % self.of == self.number - 1


class Earlier:
    """The answers of a journal that nobody writes meanwhile, by key."""

    def __init__(self, folder: Path):
        self._paths, self._starts = records.segments(folder), [0]
        self._places: dict[str, int] = {}  # the number of the row, counted over all segments
        self._tail: dict[str, Answer] = {}
        for path in self._paths:
            frame, before = records.read(path, "key", "stop"), self._starts[-1]
            for row, (key, stop) in enumerate(frame.rows(), before):
                self._note(key, stop, self._places, row)
            self._starts.append(before + frame.height)
        tail = folder / "answers.jsonl"
        for line in records.whole_rows(tail) if tail.exists() else ():
            self._note(line.key, line.answer.stop, self._tail, line.answer)

    def _note(self, key: str, stop: str, where: dict[str, Any], what: Any) -> None:
        """What came last counts; a failure, or a mark that an answer is set aside, is no answer."""
        self._places.pop(key, None)
        self._tail.pop(key, None)
        if stop != Stop.ERROR:
            where[key] = what

    def __contains__(self, key: str) -> bool:
        return key in self._places or key in self._tail

    def answers(self, keys: Iterable[str]) -> dict[str, Answer]:
        """The answers of some keys; KeyError for one that has none."""
        wanted = set(keys)
        found = {key: self._tail[key] for key in wanted & self._tail.keys()}
        rows = sorted((self._places[key], key) for key in wanted - found.keys())
        for segment, group in groupby(rows, lambda row: bisect_right(self._starts, row[0]) - 1):
            some = list(group)
            places = [row - self._starts[segment] for row, _ in some]
            answers = records.answers_at(self._paths[segment], places)
            found |= {key: answer for (_, key), answer in zip(some, answers, strict=True)}
        return found


class ShardJournal(Journal):
    """The journal of a shard. It answers with what the artifact's journal has, too."""

    def __init__(self, whole: Path, shard: Shard):
        super().__init__(whole / records.SHARDS / shard.folder)
        self._whole, self._shard, self._shared = whole, shard, -1

    def __enter__(self) -> "ShardJournal":
        with contextlib.ExitStack() as opened:
            opened.callback(self._let_go)
            self._share()
            self._earlier = Earlier(self._whole)
            super().__enter__()
            opened.callback(super().__exit__, None, None, None)
            self._require_one_number(self._others())  # another may have begun in the same moment
            opened.pop_all()
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        try:
            super().__exit__(kind, *error)
        finally:
            self._let_go()

    def __contains__(self, question: Any) -> bool:
        return super().__contains__(question) or question.key in self._earlier

    def answers(self, questions: Iterable[Any]) -> Iterator[Answer]:
        questions = iter(questions)
        while some := list(islice(questions, AT_ONCE)):
            found = self._earlier.answers(question.key for question in some if question.key in self._earlier)
            own = [question for question in some if question.key not in found]
            found |= zip((question.key for question in own), super().answers(own), strict=True)
            yield from (found[question.key] for question in some)

    def _share(self) -> None:
        """Take the shared lock, after the shards of another number, if they are no longer at work, were taken in.

        Who comes first, alone, takes them in; the others wait for that, however long it takes. Raises JournalError where
        such a shard still works, or another process keeps the lock.
        """
        self._whole.mkdir(parents=True, exist_ok=True)
        self._shared = os.open(self._whole / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        pace = Pace()
        while not self._shares():
            if pace.due():
                holder = locks.holder(self._shared)
                say(str(self._whole), f"{clock(pace.seconds)} for {holder}: it takes in what shards were answered")
            time.sleep(WAIT_SECONDS)
        locks.sign(self._shared)

    def _shares(self) -> bool:
        """Whether the shared lock is taken and no shard of another number is left; False while somebody takes them in."""
        others, where = self._others(), str(self._whole)
        if others and locks.take(self._shared, where, 0.0):
            with merging.whole(self._whole, os.dup(self._shared)):  # still locked here when that is closed
                pass
        elif others and not _at_work(others):
            return False
        # Who holds it alone while journals of shards are left, of this number too, has not taken in all of them yet.
        left = any(map(records.any_rows, records.shards(self._whole)))
        if not locks.take(self._shared, where, 0.0 if left else locks.wait_seconds(), shared=True):
            if left:
                return False
            raise JournalError(
                f"{self._whole}: another process ({locks.holder(self._shared)}) writes here; expected nobody while shards are at "
                "work. Wait for that job or cancel it, then run again."
            )
        others = self._others()
        self._require_one_number(others)
        if others:
            locks.let_go(self._shared)
        return not others

    def _require_one_number(self, others: Iterable[Path]) -> None:
        """Raise JournalError where shards of another number are at work; while this one is, nobody takes them in."""
        if working := _at_work(others):
            raise JournalError(
                f"{self._whole}: {', '.join(path.name for path in working)} are at work; expected shards of one number, here "
                f"{self._shard.of}. Wait for those jobs or cancel them, then run again."
            )

    def _others(self) -> Sequence[Path]:
        """The journals of shards of another number: of those at work, and of those that were not taken in."""
        others = [path for path in records.shards(self._whole) if not path.name.endswith(f"-of-{self._shard.of}")]
        return [path for path in others if records.any_rows(path) or locks.held(path / "lock")]

    def _let_go(self) -> None:
        if self._shared >= 0:
            os.close(self._shared)
            self._shared = -1


def _at_work(shards: Iterable[Path]) -> list[Path]:
    """The shards whose journals some process writes: they themselves, or who takes them in."""
    return [path for path in shards if locks.held(path / "lock")]
