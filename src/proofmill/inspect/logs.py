"""The log of a job: its last line, and the lines that it gets.

A log has every run of its job; the first line of a run is its day and host, each of the others begins with its time.
"""

import re
from pathlib import Path

LAST = 4096  # bytes of a log that are looked at for its last line
TIME = re.compile(r"\d\d:\d\d:\d\d  ")
RUN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d .* on .*|")


def last_line(log: Path) -> str:
    """The last line of a log without its time and name; empty where there is none."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - LAST))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    line = next((line for line in reversed(lines) if line.strip()), "")
    return line.split("  ", 2)[-1] if line[:2].isdigit() else line


class Tail:
    """What a job says from now on, as its log gets it."""

    def __init__(self, log: Path):
        self.log = log
        self.read = log.stat().st_size if log.exists() else 0

    def lines(self) -> list[str]:
        """The whole lines since the last call, without their times."""
        try:
            with open(self.log, "rb") as file:
                file.seek(self.read)
                whole, end, _ = file.read().rpartition(b"\n")
        except OSError:  # not begun
            return []
        self.read += len(whole) + len(end)
        lines = whole.decode("utf-8", "replace").split("\n")
        return [TIME.sub("", line, count=1) if TIME.match(line) else line for line in lines if not RUN.fullmatch(line)]
