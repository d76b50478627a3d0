"""Shards: several jobs make the calls of one artifact, each for its share of the rows, into a journal of its own.

    results/calls/<kind>/<name>/                 the artifact's journal
    results/calls/<kind>/<name>/shards/2-of-4/   a shard's journal, until its outputs are in the artifact's

A shard writes no table. The artifact's own job merges the journals of all shards (merging.whole), makes the missing
calls, and writes the same table as without shards. So a shard may be killed, requeued or left out, and the number of
shards may change from run to run.

While a shard works it holds a shared lock on the artifact's journal. No process writes there meanwhile, so the shard
can use its outputs, those of earlier runs. The artifact's own job waits.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofmill.calls import merging, records
from proofmill.calls.journal import Journal
from proofmill.calls.records import Earlier
from proofmill.runtime import locks
from proofmill.runtime.progress import ProgressRate, clock, log
from proofmill.schema.errors import JournalError, SettingError

TURNS = 8  # blocks of rows for each shard: consecutive hard rows are distributed over several shards
WAIT_SECONDS = 0.2  # between two checks whether another process has merged the shards


@dataclass(frozen=True)
class Shard:
    """The `number`-th of `of` shards, counted from 1."""

    number: int
    of: int

    @classmethod
    def read(cls, text: str) -> "Shard":
        """Parse `2/4` of a command line. Raises SettingError for anything else."""
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        shard = cls(int(match[1]), int(match[2])) if match else None
        if shard is None or not 1 <= shard.number <= shard.of:
            raise SettingError(f"--shard {text}: not a shard; expected one such as 2/4, from 1/4 to 4/4.")
        return shard

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def folder(self) -> str:
        """The name of the shard's folder."""
        return f"{self.number}-of-{self.of}"

    def has(self, place: int, rows: int) -> bool:
        """Return whether the row at a place (from 0) of `rows` is in the shard's share.

        A share consists of blocks of consecutive rows, so that a server can cache the common part of their prompts.
        """
        block = max(1, -(-rows // (self.of * TURNS)))
        return place // block % self.of == self.number - 1


class ShardJournal(Journal):
    """The journal of a shard. It also has the outputs of the artifact's journal."""

    def __init__(self, whole: Path, shard: Shard, lenders: Iterable[Path] = ()):
        super().__init__(whole / records.SHARDS / shard.folder, lenders=lenders)
        self._whole, self._shard, self._shared = whole, shard, -1

    def __enter__(self) -> "ShardJournal":
        with contextlib.ExitStack() as opened:
            opened.callback(self._let_go)
            self._share()
            self._earlier.insert(0, Earlier(self._whole))
            super().__enter__()
            opened.callback(super().__exit__, None, None, None)
            self._require_one_number(self._others())  # another may have begun at the same moment
            opened.pop_all()
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        try:
            super().__exit__(kind, *error)
        finally:
            self._let_go()

    def _share(self) -> None:
        """Take the shared lock, after idle shards of another split have been merged.

        The first process merges them alone; the others wait for it without a limit. Raises JournalError if such a shard
        is still running, or another process keeps the lock.
        """
        self._whole.mkdir(parents=True, exist_ok=True)
        self._shared = os.open(self._whole / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        pace = ProgressRate()
        while not self._shares():
            if pace.is_due():
                holder = locks.holder(self._shared)
                log(str(self._whole), f"waits {clock(pace.seconds)} for {holder}, which merges the journals of shards")
            time.sleep(WAIT_SECONDS)
        locks.sign(self._shared)

    def _shares(self) -> bool:
        """Return whether the shared lock is taken and no shard of another split is left; False while one is merged."""
        others, where = self._others(), str(self._whole)
        if others and locks.take(self._shared, where, 0.0):
            with merging.whole(self._whole, os.dup(self._shared)):  # this process keeps the lock when that is closed
                pass
        elif others and not _at_work(others):
            return False
        # A process that holds it alone while journals of shards are left, also of this number, is still merging them.
        left = any(map(records.any_rows, records.shards(self._whole)))
        if not locks.take(self._shared, where, 0.0 if left else locks.wait_seconds(), shared=True):
            if left:
                return False
            raise JournalError(
                f"{self._whole}: another process ({locks.holder(self._shared)}) writes here; expected no writer while shards "
                "run. Wait for that job or cancel it, then rerun."
            )
        others = self._others()
        self._require_one_number(others)
        if others:
            locks.let_go(self._shared)
        return not others

    def _require_one_number(self, others: Iterable[Path]) -> None:
        """Raise JournalError if shards of another split are running; they are not merged while this one runs."""
        if working := _at_work(others):
            raise JournalError(
                f"{self._whole}: {', '.join(path.name for path in working)} are running; expected shards of one number, here "
                f"{self._shard.of}. Wait for those jobs or cancel them, then rerun."
            )

    def _others(self) -> Sequence[Path]:
        """Return the journals of shards of another split that are running or not yet merged."""
        others = [path for path in records.shards(self._whole) if not path.name.endswith(f"-of-{self._shard.of}")]
        return [path for path in others if records.any_rows(path) or locks.is_held(path / "lock")]

    def _let_go(self) -> None:
        if self._shared >= 0:
            os.close(self._shared)
            self._shared = -1


def _at_work(shards: Iterable[Path]) -> list[Path]:
    """Return the shards whose journals a process writes: the shard itself, or one that merges it."""
    return [path for path in shards if locks.is_held(path / "lock")]
