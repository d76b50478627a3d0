"""Progress of a long step: one line every few seconds, readable in a terminal and in a log file.

responses/sampled  1,280 of 3,200 (40 %), 512 cached, 0 failed, 9,812 tokens/s, $0.00, 0:14 left
"""

import sys
import time


def say(name: str, text: str) -> None:
    """Write one line of a job's log, to standard error."""
    print(f"{name}  {text}", file=sys.stderr, flush=True)


class Progress:
    """Counts finished work and logs it at most every `every` seconds, and once more at the end.

    `total` is None where it is not known before the end.
    """

    def __init__(self, name: str, total: int | None, unit: str = "rows", every: float = 5.0):
        self.name, self.total, self.unit, self.every = name, total, unit, every
        self.done = self.cached = self.failed = self.tokens = 0
        self.cost = 0.0
        self.start = self.last = time.monotonic()

    def add(self, done: int = 1, *, cached: int = 0, failed: int = 0, tokens: int = 0, cost: float = 0.0) -> None:
        self.done += done
        self.cached += cached
        self.failed += failed
        self.tokens += tokens
        self.cost += cost
        if time.monotonic() - self.last >= self.every:
            self.last = time.monotonic()
            say(self.name, self.line())

    def line(self) -> str:
        seconds = time.monotonic() - self.start
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
        say(self.name, f"{self.line()}, took {clock(time.monotonic() - self.start)}")


def clock(seconds: float) -> str:
    """Seconds as `0:07`, `12:30` or `3:05:00`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
