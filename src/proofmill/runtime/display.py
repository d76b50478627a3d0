"""A live display of a Snakemake run on a terminal, instead of its jobs' log lines.

At the top, permanent lines: messages of jobs, except progress, and of Snakemake. Below, a live line for each running
stage and one for the run. Jobs write messages to their logs only (`job` of workflow/common.smk), and their progress every
second to a folder of the display (runtime/progress.py).

The display is a handler of Snakemake's logger, attached when the first job is about to start. A logger plugin of
Snakemake would not do: it is chosen before the command line is parsed, it receives events through a queue (so a target's
page would be printed into the display), and it gets no job ends if Snakemake is `quiet` about progress.
"""

import logging
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from proofmill.runtime.job_logs import Tail
from proofmill.runtime.progress import NOW, HowFar, clock, how_far, now
from proofmill.schema.errors import ProofmillError, SettingError

TICK = 0.25  # seconds between two reads of logs and progress
MONEY_SECONDS = 2.0  # seconds between two updates of the cost
PATIENCE = 5.0  # seconds that Snakemake waits for the display to clear, in case the terminal is stuck
WIDE, MIDDLE = 110, 84  # terminal widths that show a stage's speed; its counts and cost
SETTINGS = {None: True, "yes": True, "plain": False}


def is_wanted() -> bool:
    """Return whether to show the display: both streams are a capable terminal in the foreground, and it is not declined.

    Raises SettingError if PROOFMILL_DISPLAY is neither `plain` nor `yes`.
    """
    setting = os.environ.get("PROOFMILL_DISPLAY")
    if setting not in SETTINGS:
        raise SettingError(f"PROOFMILL_DISPLAY={setting}: expected `plain` for plain lines, or `yes`. Set or unset it.")
    if not SETTINGS[setting] or os.environ.get("TERM", "dumb") == "dumb":
        return False
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return False
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:  # not the controlling terminal of this process
        return False


@dataclass
class RunningJob:
    """An artifact that is being built."""

    name: str
    tail: Tail
    started: float = field(default_factory=time.monotonic)
    far: HowFar | None = None
    updated: float = 0.0  # when `far` was read
    written: bool = False  # the table is; the process has not ended yet

    @property
    def left(self) -> str:
        """The remaining time, counted down since the last update; the elapsed time before the first."""
        passed = time.monotonic() - (self.updated if self.far and self.far.left is not None else self.started)
        if self.far is None or self.far.left is None:
            return clock(passed)
        return f"{clock(max(0.0, self.far.left - passed))} left"


def _stage(rule: str, name: str, kind: str = "", shard: str = "", shards: str = "") -> str:
    """Return the name that a job logs under: its artifact, or the shard."""
    return f"{kind}/{name}.{shard}-of-{shards}" if kind else f"{rule}/{name}"


class LockedConsole(Console):
    """A console that only one thread uses at a time.

    Printing above the live display first moves the cursor up by its height. If another thread drew a lower display in
    between, a line above it would be lost.
    """

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self._writing = threading.RLock()

    def __enter__(self) -> "LockedConsole":
        self._writing.acquire()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            self._writing.release()


class Display(logging.Handler):
    """Displays the jobs that build the artifacts `names`. A thread of its own reads and draws.

    `spent` returns the cost so far as text. `handlers` are those by which Snakemake writes to standard error; while the
    display is open, they write above it.
    """

    def __init__(
        self,
        names: Collection[str],
        results: Path,
        spent: Callable[[], str],
        handlers: Collection[logging.StreamHandler] = (),
        colour: bool = True,
    ):
        super().__init__()
        self.results, self.spent, self.handlers = results, spent, handlers
        self.waiting = {name: Tail(results / f"{name}.log") for name in names}
        self.running: dict[str, RunningJob] = {}
        self.jobs: dict[int, str] = {}  # jobid: artifact
        self.made: set[str] = set()
        self.failed: set[str] = set()
        self.pages: set[int] = set()  # jobs of targets, which print to the terminal directly
        self.started, self.money, self.counted = time.monotonic(), "", float("-inf")
        self.folder = tempfile.TemporaryDirectory(prefix="proofmill-")
        os.environ[NOW] = self.folder.name
        self.shell = Tail(Path(self.folder.name, "shell"))  # messages of the jobs' shells, e.g. that a job was killed
        self.stderr = sys.stderr
        no_colour = None if colour else True
        self.console = LockedConsole(file=sys.stderr, force_terminal=True, no_color=no_colour, highlight=False)
        self.live: Live | None = None
        self.over, self.summed_up = False, False
        self.tasks: queue.SimpleQueue[tuple[Callable[[], None], threading.Event]] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="display", daemon=True)
        self._ask(self._open)
        self.thread.start()

    # ------------------------------------------------------------------------------------------- Snakemake's events

    def emit(self, record: logging.LogRecord) -> None:
        """Handle the start and end of a job. Close the display while a target prints its page."""
        event = getattr(record, "event", None)
        if event == "job_info":
            fields = vars(record)
            job, made = fields["jobid"], fields["wildcards"].get("name")
            if made is None:
                self._ask(lambda: self._show(job), wait=True)
            else:
                self._ask(lambda: self._begin(job, _stage(fields["rule_name"], **fields["wildcards"])))
        elif event == "job_finished":
            ended = vars(record)["job_id"]
            self._ask(lambda: self._end(ended, failed=False))
        elif event == "job_error":
            stopped = vars(record)["jobid"]
            self._ask(lambda: self._end(stopped, failed=True))

    def close(self) -> None:
        """Print the last messages and the summary of the run, and restore the terminal."""
        if not self.over:
            self._ask(self._finish, wait=True)
            os.environ.pop(NOW, None)
            self.folder.cleanup()
        super().close()

    def _ask(self, task: Callable[[], None], wait: bool = False) -> None:
        done = threading.Event()
        self.tasks.put((task, done))
        if wait and self.thread.is_alive():
            done.wait(PATIENCE)

    # --------------------------------------------------------------------------------------------- the display's thread

    def _work(self) -> None:
        try:
            while not self.over:
                self._work_once()
        except OSError:  # the terminal is gone; the logs are complete
            self.over = True
        finally:
            with suppress(OSError):
                self._shut()

    def _work_once(self) -> None:
        task, done = None, None
        with suppress(queue.Empty):
            task, done = self.tasks.get(timeout=TICK)
        try:
            if task:
                task()
            self._look()
        finally:
            if done:
                done.set()

    def _begin(self, job: int, name: str) -> None:
        self.jobs[job] = name
        self.failed.discard(name)  # in an earlier try
        self.running[name] = RunningJob(name, self.waiting.get(name) or Tail(self.results / f"{name}.log"))

    def _show(self, job: int) -> None:
        """Close the display, so that a target can print its page."""
        self.pages.add(job)
        if not self._outstanding:
            self._sum_up()
        self._shut()

    def _end(self, job: int, failed: bool) -> None:
        name = self.jobs.pop(job, None)
        self.pages.discard(job)
        if name in self.running:
            self._read(self.running[name])
            del self.running[name]
            if name in self.waiting:  # not a shard
                (self.failed if failed else self.made).add(name)
            if failed:
                self._print(Text(f"{name}  failed; log: {self.results / name}.log", "bold red"))
        if self._outstanding and not self.pages and not self.live:
            self._open()

    @property
    def _outstanding(self) -> int:
        return len(self.waiting) - len(self.made | self.failed)

    def _look(self) -> None:
        """Read new messages and progress, and draw."""
        self._read_shells()
        for stage in list(self.running.values()):
            self._read(stage)
            with suppress(OSError):
                self._update(stage, now(stage.name, Path(self.folder.name)).read_text(encoding="utf-8").strip())
        if time.monotonic() - self.counted > MONEY_SECONDS:
            self._count()
        if self.live:
            with self.console:
                self.live.refresh()

    def _count(self) -> None:
        self.counted = time.monotonic()
        with suppress(OSError, ProofmillError):  # the job of a damaged journal reports it
            self.money = self.spent()

    def _read_shells(self) -> None:
        for line in self.shell.lines():
            self._print(Text.from_ansi(line, style="red"))

    def _read(self, stage: RunningJob) -> None:
        """Print the new lines of a log, except progress."""
        for line in stage.tail.lines():
            if not self._update(stage, line.removeprefix(f"{stage.name}  ")):
                stage.written |= "; took " in line
                self._print(Text.from_ansi(line, style="red" if "Error: " in line else ""))

    def _update(self, stage: RunningJob, text: str) -> bool:
        far = how_far(text)
        if far and far != stage.far:
            stage.far, stage.updated = far, time.monotonic()
        return far is not None

    def _finish(self) -> None:
        self._read_shells()
        for stage in self.running.values():
            self._read(stage)
        self._sum_up()
        self._shut()
        self.over = True

    def _sum_up(self) -> None:
        """Print the summary of the run as a permanent line."""
        if not self.summed_up:
            self.summed_up = True
            self._count()
            self._print(self._run())

    def _print(self, line: Text) -> None:
        self.console.print(line, soft_wrap=True)

    def _open(self) -> None:
        live = Live(console=self.console, get_renderable=self._draw, auto_refresh=False, transient=True)
        with self.console:
            live.start()
        self.console.show_cursor(True)  # a killed run must not leave the cursor hidden
        self.live = live
        for handler in self.handlers:
            handler.setStream(sys.stderr)

    def _shut(self) -> None:
        live, self.live = self.live, None
        try:
            if live:
                with self.console:
                    live.stop()
        finally:
            for handler in self.handlers:
                handler.setStream(self.stderr)

    # ----------------------------------------------------------------------------------------------------- drawing

    def _draw(self) -> RenderableType:
        width, height = self.console.size
        stages = sorted(self.running.values(), key=lambda stage: stage.started)
        room = max(1, height - 4)
        cells_of = [self._row(stage, width) for stage in stages[:room]]
        columns = [cells for cells in zip(*cells_of, strict=True) if any(map(str, cells))]
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, overflow="ellipsis", max_width=width * 2 // 5)
        for _ in columns[1:]:
            grid.add_column(no_wrap=True, overflow="ellipsis", justify="right")
        for cells in zip(*columns, strict=True):
            grid.add_row(*cells)
        more = [Text(f"and {len(stages) - room} more running", "dim")] if len(stages) > room else []
        return Group(*([grid] if stages else []), *more, self._run(width))

    def _row(self, stage: RunningJob, width: int) -> list[RenderableType]:
        """Return name, bar, share, counts, speed, cost, failures, time; no counts, speed and cost on a narrow terminal."""
        name, far = Text(stage.name, "bold"), stage.far
        bar: RenderableType = ""
        if far is None or stage.written:
            share = "written" if stage.written else ""
            return [name, "", share, *[""] * 4, clock(time.monotonic() - stage.started)]
        share = "" if width >= MIDDLE else far.counted
        if far.total is not None:
            bar = ProgressBar(max(far.total, 1), far.done, width=24 if width >= WIDE else 10)
            share = f"{100 * far.done // max(far.total, 1)} %"
        counted, cost = (far.counted, far.cost) if width >= MIDDLE else ("", "")
        failed = Text(f"{far.failed:,} failed" if far.failed else "", "red")
        return [name, bar, share, counted, far.speed if width >= WIDE else "", cost, failed, stage.left]

    def _run(self, width: int = 200) -> Text:
        """Return the summary: artifacts done, running and failed; dollars spent of the budget; elapsed time."""
        line = Text()
        unit = "artifacts done" if width >= MIDDLE else "done"
        line.append(f"{len(self.made)} of {len(self.waiting)} {unit}", "bold")
        line.append(f", {len(self.running)} running" if self.running else "")
        line.append(f", {len(self.failed)} failed" if self.failed else "", "bold red")
        line.append(f", {self.money}" if self.money not in ("", "$0.00") else "")
        line.append(f", {clock(time.monotonic() - self.started)}")
        line.truncate(width, overflow="ellipsis")
        return line
