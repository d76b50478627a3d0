"""Progress of a long step: a line now and then, readable in a terminal and in a log file.

responses/sampled  1,280 of 3,200 (40 %), 512 cached, 0 failed, 9,812 tokens/s, $0.00, 0:14 left

Where a screen follows the jobs of a run (inspect/screen.py), PROOFMILL_NOW is a folder in which the same line stands a
second old at most; `how_far` reads it.
"""

import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SOON, AT_LAST = 10.0, 300.0  # seconds between two lines of a step: at first, and after a quarter of an hour
NOW = "PROOFMILL_NOW"


def say(name: str, text: str) -> None:
    """Write one line of a job's log, to standard error."""
    print(f"{name}  {text}", file=sys.stderr, flush=True)


class Pace:
    """When a step says how far it is: the longer it takes, the more rarely, so that a short one stays short to read."""

    def __init__(self) -> None:
        self.start = self.last = self.shown = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the step began."""
        return time.monotonic() - self.start

    def due(self) -> bool:
        """Whether it is time for a line; the next one is counted from here."""
        now = time.monotonic()
        due = now - self.last >= min(max(SOON, (now - self.start) / 3), AT_LAST)
        self.last = now if due else self.last
        return due

    def tell(self, name: str, line: Callable[[], str]) -> None:
        """Say how far a step is if it is time, and show it each second where a screen follows."""
        if self.due():
            say(name, line())
        if NOW in os.environ and time.monotonic() - self.shown >= 1:
            self.shown = time.monotonic()
            with suppress(OSError):  # no work is stopped for want of a picture of it
                now(name, Path(os.environ[NOW])).write_text(f"{line()}\n", encoding="utf-8")


def now(name: str, folder: Path) -> Path:
    """The file in which a screen finds how far an artifact is."""
    return folder / name.replace("/", " ")


class Progress:
    """Counts finished work and logs it now and then.

    `total` is None where it is not known before the end.
    """

    def __init__(self, name: str, total: int | None, unit: str = "rows"):
        self.name, self.total, self.unit, self.pace = name, total, unit, Pace()
        self.done = self.cached = self.failed = self.tokens = 0
        self.cost = 0.0

    def add(self, done: int = 1, *, cached: int = 0, failed: int = 0, tokens: int = 0, cost: float = 0.0) -> None:
        self.done += done
        self.cached += cached
        self.failed += failed
        self.tokens += tokens
        self.cost += cost
        self.tell()

    def tell(self) -> None:
        """Say how far it is, if it is time."""
        self.pace.tell(self.name, self.line)

    def line(self) -> str:
        seconds = self.pace.seconds
        parts = [*self._how_far()]
        parts += [f"{self.cached:,} cached"] * bool(self.cached)
        parts += [f"{self.failed:,} failed"] * bool(self.failed)
        parts += [f"{self.tokens / max(seconds, 1e-9):,.0f} tokens/s"] * bool(self.tokens)
        parts += [f"${self.cost:.2f}"] * bool(self.cost)
        if (left := self._left()) is not None:
            parts.append(f"{clock(left)} left")
        return ", ".join(parts)

    def _how_far(self) -> list[str]:
        return [counted(self.done, self.total, self.unit)]

    def _left(self) -> float | None:
        """Seconds that the rest will take at the present speed, if that can be said."""
        return _rest(self.pace.seconds, self.done - self.cached, self.done, self.total)

    def close(self) -> None:
        """The last line; none for a short step of which there is little more to say than that it is done."""
        if 2 * self.cached > self.done or self.failed or self.cost or self.pace.seconds >= SOON:
            say(self.name, f"{self.line()}, took {clock(self.pace.seconds)}")


class NestedProgress(Progress):
    """Counts things of many calls each, such as plays: `ended` counts them, `add` their calls, of which no number is known.

    responses/rsa  37 of 200 plays (18 %), 2,311 calls, 120 cached, 9,812 tokens/s, $0.31, 4:10 left
    """

    def __init__(self, name: str, total: int, unit: str):
        super().__init__(name, None, "calls")
        self.total_ended, self.unit_ended = total, unit
        self.all_ended = self._ended_before = 0  # before: without a call in this run

    def ended(self) -> None:
        self.all_ended += 1
        if self.done == self.cached:
            self._ended_before += 1

    def close(self) -> None:
        """The last line; also where the journal had all."""
        if self.done:
            super().close()
        else:
            say(self.name, self.line())

    def _how_far(self) -> list[str]:
        return [counted(self.all_ended, self.total_ended, self.unit_ended), *super()._how_far()]

    def _left(self) -> float | None:
        return _rest(self.pace.seconds, self.all_ended - self._ended_before, self.all_ended, self.total_ended)


def counted(done: int, total: int | None, unit: str) -> str:
    """`1,280 of 3,200 rows (40 %)`; `1,280 rows` where nobody knows of how many."""
    return f"{done:,} {unit}" if total is None else f"{done:,} of {total:,} {unit} ({100 * done // max(total, 1)} %)"


def _rest(seconds: float, fresh: int, done: int, total: int | None) -> float | None:
    return seconds / fresh * (total - done) if total is not None and fresh and done < total else None


def clock(seconds: float) -> str:
    """Seconds as `0:07`, `12:30` or `3:05:00`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


# --------------------------------------------------------------------------------------------------- reading such a line


@dataclass(frozen=True)
class HowFar:
    """What a line of progress says."""

    done: int
    total: int | None
    unit: str
    failed: int = 0
    cost: str = ""
    speed: str = ""  # with the latest loss or reward
    left: float | None = None  # seconds

    @property
    def counted(self) -> str:
        """`1,280 of 3,200 rows`."""
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
    """What a line of progress says, without its name; None for one that says anything else besides."""
    head, *rest = text.split(", ")
    first, parts = _FIRST.fullmatch(head), [_PART.fullmatch(part) for part in rest]
    if first is None or not all(parts):
        return None
    said = [part for part in parts if part]
    found = {key: part[key] for part in said for key in ("failed", "cost", "left") if part[key]}
    return HowFar(
        _number(first["done"]),
        _number(first["total"]) if first["total"] else None,
        "step" if first["step"] else first["unit"],
        _number(found.get("failed", "0")),
        found.get("cost", ""),
        ", ".join(part["speed"] for part in said if part["speed"]),
        seconds_of(found["left"]) if "left" in found else None,
    )


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def seconds_of(text: str) -> float:
    """What `clock` was given."""
    seconds = 0
    for part in text.split(":"):
        seconds = 60 * seconds + int(part)
    return float(seconds)
