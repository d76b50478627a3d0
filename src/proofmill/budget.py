"""Dollars: what a call costs by the declared price, and one budget that all jobs of a results folder share.

The budget (`budget:` in config.yaml) is over all journals under results/calls, from the first call ever made there. Every
job writes what its journal has cost, and what its calls in flight may cost at most, into a file `claim` beside the
journal, before it starts them; then it reads the claims of all others. So jobs that run side by side never spend more
together than the budget, and none has to wait for a lock. A claim is raised by steps of a hundredth of the budget or
more, so that few files are written.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REFRESH_SECONDS = 1.0
STEPS = 100  # a budget is claimed in so many parts


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
        self._claimed = -1.0
        self._others, self._read = 0.0, -float("inf")

    def reserve(self, dollars: float) -> bool:
        """Set aside the most that a call may cost; False when the budget has no room for it now."""
        if self.dollars is None or not dollars:
            return True
        needed = self.journal.spent + self.reserved + dollars
        if needed > self._claimed:
            self._claim(needed + self.dollars / STEPS)
            if self.others(fresh=True) + self._claimed > self.dollars:
                self._claim(needed)  # without the step in advance
        if self.others() + needed > self.dollars:
            self._claim(self.journal.spent + self.reserved)
            return False
        self.reserved += dollars
        return True

    def settle(self, dollars: float) -> None:
        """The call is answered: its cost is in the journal, and what was set aside for it is free."""
        self.reserved = max(0.0, self.reserved - dollars)

    def close(self) -> None:
        """What is claimed at the end is what was spent."""
        if self._claimed >= 0 or self.journal.spent:
            self._claim(self.journal.spent)

    def others(self, fresh: bool = False) -> float:
        """What the claims of all other journals add up to."""
        if fresh or time.monotonic() - self._read > REFRESH_SECONDS:
            own = self.journal.folder / "claim"
            self._others = sum(_claim(path) for path in self.calls.glob("*/*/claim") if path != own)
            self._read = time.monotonic()
        return self._others

    def _claim(self, dollars: float) -> None:
        path = self.journal.folder / "claim"
        new = path.with_name("claim.new")
        new.write_text(f"{dollars:.9f}\n")
        os.replace(new, path)
        self._claimed = dollars


def spent(calls: Path) -> float:
    """What all journals claim together: spent, and set aside by jobs that are running."""
    return sum(_claim(path) for path in calls.glob("*/*/claim"))


def _claim(path: Path) -> float:
    try:
        return float(path.read_text())
    except (FileNotFoundError, ValueError):  # removed meanwhile
        return 0.0
