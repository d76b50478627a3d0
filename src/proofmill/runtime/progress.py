"""Progress of a long step: a line from time to time, for terminals and log files.

responses/sampled  1,280 of 3,200 (40 %), 512 cached, 0 failed, 9,812 tokens/s, $0.00, 0:14 left

Under a live display (runtime/display.py), PROOFMILL_STATUS_DIR is a folder that has the same line, at most a second old.
`how_far` parses it.
"""

import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SOON, AT_LAST = 10.0, 300.0  # seconds between two lines: at first, and after 15 minutes
ENOUGH, SHARE = 3, 0.05  # units of work from which the time left is estimated
NOW = "PROOFMILL_STATUS_DIR"


def log(name: str, text: str) -> None:
    """Write one line of a job's log, to standard error."""
    print(f"{name}  {text}", file=sys.stderr, flush=True)


class ProgressRate:
    """The times at which a step logs progress: the longer it takes, the less often, so that its log stays short."""

    def __init__(self) -> None:
        self.start = self.last = self.shown = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self.start

    def is_due(self) -> bool:
        """Return whether it is time for a line, and start the next interval if so."""
        now = time.monotonic()
        due = now - self.last >= min(max(SOON, (now - self.start) / 3), AT_LAST)
        self.last = now if due else self.last
        return due

    def tell(self, name: str, line: Callable[[], str]) -> None:
        """Log the progress of a step if it is time, and report it every second under a live display."""
        if self.is_due():
            log(name, line())
        if NOW in os.environ and time.monotonic() - self.shown >= 1:
            self.shown = time.monotonic()
            with suppress(OSError):  # a failing display never stops a job
                now(name, Path(os.environ[NOW])).write_text(f"{line()}\n", encoding="utf-8")


def now(name: str, folder: Path) -> Path:
    """Return the file with an artifact's progress for the live display."""
    return folder / name.replace("/", " ")


class Progress:
    """A counter of finished work that logs from time to time. `total` is None if it is unknown before the end."""

    def __init__(self, name: str, total: int | None, unit: str = "rows"):
        self.name, self.total, self.unit, self.pace = name, total, unit, ProgressRate()
        self.done = self.cached = self.failed = self.tokens = 0
        self.cost = 0.0

    def add(self, done: int = 1, *, cached: int = 0, failed: int = 0, tokens: int = 0, cost: float = 0.0) -> None:
        """Count finished work, and log if it is time."""
        self.done += done
        self.cached += cached
        self.failed += failed
        self.tokens += tokens
        self.cost += cost
        self.tell()

    def tell(self) -> None:
        """Log the progress if it is time."""
        self.pace.tell(self.name, self.line)

    def line(self) -> str:
        """Return the line of progress without the name."""
        seconds = self.pace.seconds
        parts = [*self._how_far()]
        parts += [f"{self.cached:,} cached"] * bool(self.cached)
        parts += [f"{self.failed:,} failed"] * bool(self.failed)
        parts += [f"{self.tokens / max(seconds, 1e-9):,.0f} tokens/s"] * bool(self.tokens)
        parts += [f"${self.cost:.2f}"] * bool(self.cost)
        if (left := self._seconds_left()) is not None:
            parts.append(f"{clock(left)} left")
        return ", ".join(parts)

    def _how_far(self) -> list[str]:
        return [format_count(self.done, self.total, self.unit)]

    def _seconds_left(self) -> float | None:
        """Return the seconds left at the present speed; None if unknown."""
        return estimate_seconds_left(self.pace.seconds, self.done - self.cached, self.done, self.total)

    def close(self) -> None:
        """Log the last line, unless the step was short and has nothing to report."""
        if 2 * self.cached > self.done or self.failed or self.cost or self.pace.seconds >= SOON:
            log(self.name, f"{self.line()}, took {clock(self.pace.seconds)}")


class NestedProgress(Progress):
    """A counter of units of many calls each, such as plays: `ended` counts units, `add` counts calls of unknown total.

    responses/rsa  37 of 200 plays (18 %), 2,311 calls, 120 cached, 9,812 tokens/s, $0.31, 4:10 left
    """

    def __init__(self, name: str, total: int, unit: str):
        super().__init__(name, None, "calls")
        self.total_ended, self.unit_ended = total, unit
        self.all_ended = self._ended_before = 0  # before: units without a call in this run

    def end_unit(self) -> None:
        """Count a finished unit."""
        self.all_ended += 1
        if self.done == self.cached:
            self._ended_before += 1

    def close(self) -> None:
        """Log the last line, also if the journal had all calls."""
        if self.done:
            super().close()
        else:
            log(self.name, self.line())

    def _how_far(self) -> list[str]:
        return [format_count(self.all_ended, self.total_ended, self.unit_ended), *super()._how_far()]

    def _seconds_left(self) -> float | None:
        fresh = self.all_ended - self._ended_before
        return estimate_seconds_left(self.pace.seconds, fresh, self.all_ended, self.total_ended)


def format_count(done: int, total: int | None, unit: str) -> str:
    """Return `1,280 of 3,200 rows (40 %)`, or `1,280 rows` without a total."""
    return f"{done:,} {unit}" if total is None else f"{done:,} of {total:,} {unit} ({100 * done // max(total, 1)} %)"


def estimate_seconds_left(seconds: float, fresh: int, done: int, total: int | None) -> float | None:
    """Estimate the seconds left from those that `fresh` units took; None without enough of them, or at the end.

    Enough are three units, and a twentieth of the work or a minute: the first units take longer than the average one.
    """
    if total is None or done >= total or fresh < ENOUGH or (seconds < 60 and fresh < SHARE * (fresh + total - done)):
        return None
    return seconds / fresh * (total - done)


def clock(seconds: float) -> str:
    """Format seconds as `0:07`, `12:30` or `3:05:00`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


# ----------------------------------------------------------------------------------------------- parsing such a line


@dataclass(frozen=True)
class HowFar:
    """The contents of a line of progress."""

    done: int
    total: int | None
    unit: str
    failed: int = 0
    cost: str = ""
    speed: str = ""  # with the latest loss or reward
    left: float | None = None  # seconds

    @property
    def counted(self) -> str:
        """The count as text: `1,280 of 3,200 rows`."""
        of = "" if self.total is None else f" of {self.total:,}"
        return f"step {self.done:,}{of}" if self.unit == "step" else f"{self.done:,}{of} {self.unit}"


_CLOCK = r"\d+:\d\d(?::\d\d)?"
_FIRST = re.compile(
    r"(?P<step>step )?(?P<done>[\d,]+)(?: of (?P<total>[\d,]+))?(?(step)| (?P<unit>[a-z]+)(?: \(\d+ %\))?)"
)
_PART = re.compile(
    rf"(?P<failed>[\d,]+) failed|(?P<cost>\$[\d.]+)|(?P<left>{_CLOCK}) left|[\d,]+ (?:cached|calls)|took {_CLOCK}"
    r"|(?P<speed>[\d,]+ tokens/s|\S+ steps/min|(?:loss|reward) \S+)"
)


def how_far(text: str) -> HowFar | None:
    """Parse a line of progress without its name; None for any other line."""
    head, *rest = text.split(", ")
    first, parts = _FIRST.fullmatch(head), [_PART.fullmatch(part) for part in rest]
    if first is None or not all(parts):
        return None
    matches = [part for part in parts if part]
    values = {key: part[key] for part in matches for key in ("failed", "cost", "left") if part[key]}
    return HowFar(
        _number(first["done"]),
        _number(first["total"]) if first["total"] else None,
        "step" if first["step"] else first["unit"],
        _number(values.get("failed", "0")),
        values.get("cost", ""),
        ", ".join(part["speed"] for part in matches if part["speed"]),
        seconds_of(values["left"]) if "left" in values else None,
    )


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def seconds_of(text: str) -> float:
    """Parse the text of `clock` into seconds."""
    seconds = 0
    for part in text.split(":"):
        seconds = 60 * seconds + int(part)
    return float(seconds)
