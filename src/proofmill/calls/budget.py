"""Costs in dollars: a call's cost by the declared price, and the budget that all jobs of a results folder share.

The budget (`budget:` in config.yaml) covers all journals under results/calls, from the first call ever made there.
Before a job starts calls, it writes a file `claim` next to its journal: the cost of the journal, and the most that the
calls in flight may cost. Then it reads the claims of all other jobs. Concurrent jobs thus never spend more together
than the budget, and no job waits for a lock. A job raises its claim by a thousandth of the budget in advance, to write
few files. A job that finds no room waits until others release reserved dollars, unless so much is spent that waiting
cannot help. A killed job releases its reserved dollars, because its lock is released. A batch continues without its job,
so its dollars stay reserved until a job merges it.
"""

import os
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from proofmill.calls import records
from proofmill.calls.batches.batch_log import Batch, BatchLog
from proofmill.runtime import locks
from proofmill.schema.errors import JournalError

REFRESH_SECONDS = 1.0
STEPS = 1000  # parts of the budget; a claim is raised by one of them in advance


def price(declared: Mapping[str, float] | str, prompt: int, cached: int, output: int, reasoning: int) -> float | None:
    """Return the dollars of a call; None for an unknown price. Output includes reasoning, prompt includes cached."""
    if isinstance(declared, str):
        return None
    visible, per_million = output - reasoning, declared
    return (
        (prompt - cached) * per_million["input"]
        + cached * per_million.get("cached_input", per_million["input"])
        + visible * per_million["output"]
        + reasoning * per_million.get("reasoning", per_million["output"])
    ) / 1e6


def most(declared: Mapping[str, float] | str, size: int, output: int) -> float:
    """Return an upper bound of a call's dollars: a prompt of `size` bytes (at least one a token), `output` tokens."""
    if isinstance(declared, str):
        return 0.0
    return (size * declared["input"] + output * max(declared["output"], declared.get("reasoning", 0.0))) / 1e6


class Budget:
    """One job's part of the shared budget; with `dollars` None there is no limit."""

    def __init__(self, dollars: float | None, calls: Path, journal: Any):
        self.dollars, self.calls, self.journal = dollars, calls, journal
        self.reserved = 0.0
        self.dearest: dict[str, float] = {}  # by model, once one of its calls was answered
        self.batches = BatchLog(
            journal.folder
        ).read_reserved()  # of earlier runs, by digest, until this one merges them
        self._claimed = self._fixed
        self._others, self._read = (0.0, 0.0), -float("inf")
        if self._fixed:
            self._claim(self._fixed)

    @property
    def _fixed(self) -> float:
        """The dollars of this job that waiting for its own calls does not release."""
        return self.journal.spent + sum(self.batches.values())

    def reserve(self, dollars: float) -> bool:
        """Reserve the most that a call may cost. Return False if the budget has no room for it now."""
        if self.dollars is None or not dollars:
            return True
        needed = self._fixed + self.reserved + dollars
        if needed > self._claimed:
            self._claim(needed + self.dollars / STEPS)
            if sum(self.others(fresh=True)) + self._claimed > self.dollars:
                self._claim(needed)  # without the step in advance
        if sum(self.others()) + needed > self.dollars:
            self._claim(self._fixed + self.reserved)
            return False
        self.reserved += dollars
        return True

    def is_spent(self, dollars: float) -> bool:
        """Return whether the budget has no room for a call even if other jobs spend nothing more."""
        return self.dollars is not None and self.others()[0] + self._fixed + dollars > self.dollars

    def settle(self, dollars: float) -> None:
        """Release the dollars that were reserved for a call that has ended."""
        self.reserved = max(0.0, self.reserved - dollars)

    def settle_batch(self, batch: Batch) -> None:
        """Release the dollars that this run or an earlier one reserved for a batch that is merged now."""
        if self.batches.pop(batch.digest, None) is None:
            self.settle(batch.reserved)

    def close(self) -> None:
        """Lower the claim to the cost of the journal, and of the batches that the servers still have."""
        self.batches = BatchLog(self.journal.folder).read_reserved()
        if self._fixed:
            self._claim(self._fixed)

    def others(self, fresh: bool = False) -> tuple[float, float]:
        """Return what all other journals have cost, with the batches of stopped jobs, and what running jobs have reserved."""
        if fresh or time.monotonic() - self._read > REFRESH_SECONDS:
            claims = [_claim(folder) for folder in records.journals(self.calls) if folder != self.journal.folder]
            self._others = sum(spent + batches for spent, _, batches in claims), sum(aside for _, aside, _ in claims)
            self._read = time.monotonic()
        return self._others

    def _claim(self, dollars: float) -> None:
        write_claim(self.journal, max(0.0, dollars - self.journal.spent))
        self._claimed = dollars


def write_claim(journal: Any, aside: float = 0.0) -> None:
    """Write the cost of a journal and the sum reserved for its calls in flight, both in dollars."""
    path = journal.folder / "claim"
    new = path.with_name("claim.new")
    try:
        new.write_text(f"{journal.spent:.9f} {aside:.9f}\n")
        os.replace(new, path)
    except OSError as error:
        raise _broken(path, error, "written") from error


def _broken(path: Path, error: OSError, how: str) -> JournalError:
    return JournalError(f"{path}: {error.strerror}; expected a file that can be {how}. Fix the disk and rerun.")


def sum_costs(calls: Path) -> float:
    """Return the dollars that all journals under the folder `calls` have cost."""
    return sum(_claim(folder)[0] for folder in records.journals(calls))


def format_spent(calls: Path, dollars: float | None) -> str:
    """Format the cost of all calls and the budget: `$0.31 of $5.00`."""
    return f"${sum_costs(calls):,.2f}" + (f" of ${dollars:,.2f}" if dollars is not None else "")


def _claim(folder: Path) -> tuple[float, float, float]:
    """Return the dollars that a journal has cost, that its running job has reserved, and of a dead job's batches.

    If a journal changed after its claim was written, its rows are summed.
    """
    try:
        cost, aside = map(float, (folder / "claim").read_text().split())
        claim_time = (folder / "claim").stat().st_mtime_ns
    except (FileNotFoundError, ValueError):
        cost, aside, claim_time = 0.0, 0.0, 0
    except OSError as error:
        raise _broken(folder / "claim", error, "read") from error
    if locks.is_held(folder / "lock"):
        return cost, aside, 0.0
    tail, batches = folder / "calls.jsonl", folder / "batches.jsonl"
    if tail.exists() and (tail_time := tail.stat().st_mtime_ns) >= claim_time:
        cost = _cost(folder, tail_time)
    return cost, 0.0, _batches(folder, batches.stat().st_mtime_ns) if batches.exists() else 0.0


@lru_cache(maxsize=1024)
def _batches(folder: Path, log_time: int) -> float:
    """Return the dollars of a dead job's batches, read once for each modification time of their log."""
    return sum(BatchLog(folder).read_reserved().values())


@lru_cache(maxsize=1024)
def _cost(folder: Path, tail_time: int) -> float:
    """Return the dollars in the journal of a killed job, read once for each modification time of its tail."""
    return records.cost(folder)
