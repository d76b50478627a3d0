"""Dollars: what a call costs by the declared price, and one budget that all jobs of a results folder share.

The budget (`budget:` in config.yaml) is over all journals under results/calls, from the first call ever made there. Every
job writes what its journal has cost, and what its calls in flight may cost at most, into a file `claim` beside the
journal, before it starts them; then it reads the claims of all others. So jobs that run side by side never spend more
together than the budget, and none has to wait for a lock. A claim is raised by a thousandth of the budget in advance, so
that few files are written. A job that finds no room waits for what others have set aside, unless so much is spent that
waiting cannot help. What a job that was killed had set aside is free: its lock is.
"""

import os
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from proofmill.calls import journal as journals
from proofmill.runtime import locks

REFRESH_SECONDS = 1.0
STEPS = 1000  # a budget is claimed in parts of this


def price(declared: Mapping[str, float] | str, prompt: int, cached: int, output: int, reasoning: int) -> float | None:
    """Dollars of one call; None when the price is unknown. Output includes reasoning, prompt includes cached tokens."""
    if isinstance(declared, str):
        return None
    plain, per = output - reasoning, declared
    return (
        (prompt - cached) * per["input"]
        + cached * per.get("cached_input", per["input"])
        + plain * per["output"]
        + reasoning * per.get("reasoning", per["output"])
    ) / 1e6


def most(declared: Mapping[str, float] | str, size: int, output: int) -> float:
    """The most one call can cost in dollars, with a prompt of `size` bytes: a token has at least one."""
    if isinstance(declared, str):
        return 0.0
    return (size * declared["input"] + output * max(declared["output"], declared.get("reasoning", 0.0))) / 1e6


class Budget:
    """The part of one job in the budget of all. `dollars` None is no budget."""

    def __init__(self, dollars: float | None, calls: Path, journal: Any):
        self.dollars, self.calls, self.journal = dollars, calls, journal
        self.reserved = 0.0
        self._claimed = journal.spent
        self._others, self._read = (0.0, 0.0), -float("inf")
        if journal.spent:
            self._claim(journal.spent)

    def reserve(self, dollars: float) -> bool:
        """Set aside the most that a call may cost; False when the budget has no room for it now."""
        if self.dollars is None or not dollars:
            return True
        needed = self.journal.spent + self.reserved + dollars
        if needed > self._claimed:
            self._claim(needed + self.dollars / STEPS)
            if sum(self.others(fresh=True)) + self._claimed > self.dollars:
                self._claim(needed)  # without the step in advance
        if sum(self.others()) + needed > self.dollars:
            self._claim(self.journal.spent + self.reserved)
            return False
        self.reserved += dollars
        return True

    def spent_up(self, dollars: float) -> bool:
        """Whether so much has been spent that the budget has no room for a call, even when others cost nothing more."""
        return self.dollars is not None and self.others()[0] + self.journal.spent + dollars > self.dollars

    def settle(self, dollars: float) -> None:
        """The call is answered: its cost is in the journal, and what was set aside for it is free."""
        self.reserved = max(0.0, self.reserved - dollars)

    def close(self) -> None:
        """What is claimed at the end is what was spent."""
        if self.journal.spent:
            self._claim(self.journal.spent)

    def others(self, fresh: bool = False) -> tuple[float, float]:
        """What all other journals have cost, and what their jobs have set aside."""
        if fresh or time.monotonic() - self._read > REFRESH_SECONDS:
            claims = [_claim(path.parent) for path in self.calls.glob("*/*/lock") if path.parent != self.journal.folder]
            self._others = sum(spent for spent, _ in claims), sum(aside for _, aside in claims)
            self._read = time.monotonic()
        return self._others

    def _claim(self, dollars: float) -> None:
        path = self.journal.folder / "claim"
        new = path.with_name("claim.new")
        new.write_text(f"{self.journal.spent:.9f} {max(0.0, dollars - self.journal.spent):.9f}\n")
        os.replace(new, path)
        self._claimed = dollars


def spent(calls: Path) -> float:
    """What all journals have cost."""
    return sum(_claim(path.parent)[0] for path in calls.glob("*/*/lock"))


def _claim(folder: Path) -> tuple[float, float]:
    """What a journal has cost, and what its job has set aside: nothing, when the job is dead, and then the journal itself
    says what it cost."""
    try:
        cost, aside = map(float, (folder / "claim").read_text().split())
        claimed = (folder / "claim").stat().st_mtime_ns
    except (FileNotFoundError, ValueError):
        cost, aside, claimed = 0.0, 0.0, 0
    if locks.held(folder / "lock"):
        return cost, aside
    tail = folder / "answers.jsonl"
    if tail.exists() and (changed := tail.stat().st_mtime_ns) > claimed:
        return _cost(folder, changed), 0.0
    return cost, 0.0


@lru_cache(maxsize=1024)
def _cost(folder: Path, changed: int) -> float:
    """What the journal of a job that was killed has cost, read once for each time it was changed."""
    return journals.cost(folder)
