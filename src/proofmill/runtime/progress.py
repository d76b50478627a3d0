"""Progress of a long step: a line now and then, readable in a terminal and in a log file.

responses/sampled  1,280 of 3,200 (40 %), 512 cached, 0 failed, 9,812 tokens/s, $0.00, 0:14 left
"""

import sys
import time

SOON, AT_LAST = 15.0, 300.0  # seconds between two lines of a step: at first, and after a quarter of an hour


def say(name: str, text: str) -> None:
    """Write one line of a job's log, to standard error."""
    print(f"{name}  {text}", file=sys.stderr, flush=True)


class Pace:
    """When a step says how far it is: the longer it takes, the more rarely, so that a short one stays short to read."""

    def __init__(self) -> None:
        self.start = self.last = time.monotonic()

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
        if self.pace.due():
            say(self.name, self.line())

    def line(self) -> str:
        seconds = self.pace.seconds
        fresh = self.done - self.cached
        if self.total is None:
            parts = [f"{self.done:,} {self.unit}"]
        else:
            parts = [f"{self.done:,} of {self.total:,} {self.unit} ({100 * self.done // max(self.total, 1)} %)"]
        parts += [f"{self.cached:,} cached"] * bool(self.cached)
        parts += [f"{self.failed:,} failed"] * bool(self.failed)
        parts += [f"{self.tokens / max(seconds, 1e-9):,.0f} tokens/s"] * bool(self.tokens)
        parts += [f"${self.cost:.2f}"] * bool(self.cost)
        if self.total is not None and fresh and self.done < self.total:
            parts.append(f"{clock(seconds / fresh * (self.total - self.done))} left")
        return ", ".join(parts)

    def close(self) -> None:
        """The last line; none for a short step of which there is little more to say than that it is done."""
        if 2 * self.cached > self.done or self.failed or self.cost or self.pace.seconds >= SOON:
            say(self.name, f"{self.line()}, took {clock(self.pace.seconds)}")


def clock(seconds: float) -> str:
    """Seconds as `0:07`, `12:30` or `3:05:00`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
