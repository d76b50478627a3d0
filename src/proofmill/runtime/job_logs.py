"""Job logs: read the last line, or new lines as they are written.

A log contains every run of its job. The first line of a run has the date and host; each other line begins with its time.
"""

import re
from pathlib import Path

LAST = 4096  # bytes at the end of a log in which its last line is searched
LAST_RUN = 65536  # bytes at the end of a log in which the lines of its last run are searched
TIME = re.compile(r"\d\d:\d\d:\d\d  ")
RUN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d .* on .*|")


def last_line(log: Path) -> str:
    """Return the last line of a log without its time and name; empty for a missing log."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - LAST))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    line = next((line for line in reversed(lines) if line.strip()), "")
    return line.split("  ", 2)[-1] if line[:2].isdigit() else line


def last_run(log: Path) -> list[str]:
    """Return the lines of the last run in a log without their times, of a long one only the last."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - LAST_RUN))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    starts = [place for place, line in enumerate(lines) if line and RUN.fullmatch(line)]
    return [TIME.sub("", line, count=1) for line in lines[starts[-1] + 1 if starts else 0 :]]


class Tail:
    """The lines that a log receives from now on."""

    def __init__(self, log: Path):
        self.log = log
        self.read = log.stat().st_size if log.exists() else 0

    def lines(self) -> list[str]:
        """Return the complete lines since the last call, without their times."""
        try:
            with open(self.log, "rb") as file:
                file.seek(self.read)
                complete, end, _ = file.read().rpartition(b"\n")
        except OSError:  # not written yet
            return []
        self.read += len(complete) + len(end)
        lines = complete.decode("utf-8", "replace").split("\n")
        return [TIME.sub("", line, count=1) if TIME.match(line) else line for line in lines if not RUN.fullmatch(line)]
