"""One screen for a run of Snakemake on a terminal, in the place of all that its jobs say.

Above: what jobs say besides how far they are, and what Snakemake says, as lines that stay. Below: a line for each stage
under way, and one for the run. Jobs write into their logs alone (`job` of workflow/common.smk), and how far they are
into a folder of the screen's, each second (runtime/progress.py).

It is a handler of Snakemake's log, attached once the first job is about to start, and no plugin of Snakemake's: that is
chosen before the command is understood, hears of jobs through a queue (a target's page would be printed into the
screen), and hears nothing of jobs that end where Snakemake is `quiet` about progress.
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

from proofmill.calls import budget
from proofmill.inspect.logs import Tail
from proofmill.runtime.progress import NOW, HowFar, clock, how_far, now
from proofmill.schema.errors import ProofmillError, SettingError

TICK = 0.25  # seconds between two looks at logs and progress
MONEY_SECONDS = 2.0  # between two looks at what was spent
PATIENCE = 5.0  # seconds that Snakemake waits for the screen to make room, should the terminal be stuck
WIDE, MIDDLE = 110, 84  # columns from which a stage's speed is shown, and its counts and cost
ASKED = {None: True, "1": True, "yes": True, "0": False, "no": False}


def wanted() -> bool:
    """Whether somebody watches: both streams are a terminal that can be drawn on, in the foreground, and not declined.

    SettingError for a PROOFMILL_SCREEN that is neither yes nor no.
    """
    asked = os.environ.get("PROOFMILL_SCREEN")
    if asked not in ASKED:
        raise SettingError(f"PROOFMILL_SCREEN={asked}: expected `no` for plain lines, or `yes`. Set or unset it.")
    if not ASKED[asked] or os.environ.get("TERM", "dumb") == "dumb":
        return False
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return False
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:  # a terminal, but not the one that this process was started from
        return False


@dataclass
class Stage:
    """An artifact under way."""

    name: str
    tail: Tail
    started: float = field(default_factory=time.monotonic)
    far: HowFar | None = None
    heard: float = 0.0  # when `far` was said
    written: bool = False  # its table; the process takes a moment to end

    @property
    def left(self) -> str:
        """The time left, counted down since it was said; before, the time it has taken."""
        passed = time.monotonic() - (self.heard if self.far and self.far.left is not None else self.started)
        if self.far is None or self.far.left is None:
            return clock(passed)
        return f"{clock(max(0.0, self.far.left - passed))} left"


def _stage(rule: str, name: str, kind: str = "", shard: str = "", shards: str = "") -> str:
    """What a job calls itself: the name of an artifact, or of one of its shards."""
    return f"{kind}/{name}.{shard}-of-{shards}" if kind else f"{rule}/{name}"


class OneAtATime(Console):
    """A console that one thread has at a time.

    What is printed above a picture begins by going back over it, as high as it was: were another thread to draw a
    lower one in between, a line above it would be lost.
    """

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self._writing = threading.RLock()

    def __enter__(self) -> "OneAtATime":
        self._writing.acquire()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            self._writing.release()


class Screen(logging.Handler):
    """Follows the jobs that make the artifacts `names`; what is drawn and read is so by one thread of its own.

    `lines` is the handler by which Snakemake writes to standard error; it writes above the screen while there is one.
    """

    def __init__(
        self,
        names: Collection[str],
        results: Path,
        dollars: float | None,
        lines: Collection[logging.StreamHandler] = (),
        colour: bool = True,
    ):
        super().__init__()
        self.results, self.dollars, self.lines = results, dollars, lines
        self.waiting = {name: Tail(results / f"{name}.log") for name in names}
        self.running: dict[str, Stage] = {}
        self.jobs: dict[int, str] = {}  # jobid: artifact
        self.made: set[str] = set()
        self.failed: set[str] = set()
        self.pages: set[int] = set()  # jobs of targets, which print to the terminal themselves
        self.started, self.money, self.counted = time.monotonic(), "", float("-inf")
        self.folder = tempfile.TemporaryDirectory(prefix="proofmill-")
        os.environ[NOW] = self.folder.name
        self.shell = Tail(Path(self.folder.name, "shell"))  # what the shells of jobs say: that one was killed
        self.stderr = sys.stderr
        no_colour = None if colour else True
        self.console = OneAtATime(file=sys.stderr, force_terminal=True, no_color=no_colour, highlight=False)
        self.live: Live | None = None
        self.over, self.summed_up = False, False
        self.tasks: queue.SimpleQueue[tuple[Callable[[], None], threading.Event]] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="screen", daemon=True)
        self._ask(self._open)
        self.thread.start()

    # ------------------------------------------------------------------------------------------- what Snakemake says

    def emit(self, record: logging.LogRecord) -> None:
        """Follow a job's start and end; a target's page has the terminal for itself."""
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
        """Print what jobs said last and how many artifacts were made, and leave the terminal as it was."""
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

    # --------------------------------------------------------------------------------------------- the screen's thread

    def _work(self) -> None:
        try:
            while not self.over:
                self._work_once()
        except OSError:  # the terminal is gone; the logs have everything
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
        self.failed.discard(name)  # of an attempt before
        self.running[name] = Stage(name, self.waiting.get(name) or Tail(self.results / f"{name}.log"))

    def _show(self, job: int) -> None:
        """Make room for a target's page."""
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
            if name in self.waiting:  # a shard is no artifact
                (self.failed if failed else self.made).add(name)
            if failed:
                self._say(Text(f"{name}  was not made; all of it: {self.results / name}.log", "bold red"))
        if self._outstanding and not self.pages and not self.live:
            self._open()

    @property
    def _outstanding(self) -> int:
        return len(self.waiting) - len(self.made | self.failed)

    def _look(self) -> None:
        """Read what jobs have said, and draw."""
        self._hear_shells()
        for stage in list(self.running.values()):
            self._read(stage)
            with suppress(OSError):
                self._hear(stage, now(stage.name, Path(self.folder.name)).read_text(encoding="utf-8").strip())
        if time.monotonic() - self.counted > MONEY_SECONDS:
            self._count()
        if self.live:
            with self.console:
                self.live.refresh()

    def _count(self) -> None:
        self.counted = time.monotonic()
        with suppress(OSError, ProofmillError):  # of a damaged journal its own job says what to do
            self.money = budget.spent_of(self.results / "calls", self.dollars)

    def _hear_shells(self) -> None:
        for line in self.shell.lines():
            self._say(Text.from_ansi(line, style="red"))

    def _read(self, stage: Stage) -> None:
        """Print the new lines of a log that are more than how far it is."""
        for line in stage.tail.lines():
            if not self._hear(stage, line.removeprefix(f"{stage.name}  ")):
                stage.written |= "; took " in line
                self._say(Text.from_ansi(line, style="red" if "Error: " in line else ""))

    def _hear(self, stage: Stage, text: str) -> bool:
        far = how_far(text)
        if far and far != stage.far:
            stage.far, stage.heard = far, time.monotonic()
        return far is not None

    def _finish(self) -> None:
        self._hear_shells()
        for stage in self.running.values():
            self._read(stage)
        self._sum_up()
        self._shut()
        self.over = True

    def _sum_up(self) -> None:
        """The last line of the screen, as one that stays."""
        if not self.summed_up:
            self.summed_up = True
            self._count()
            self._say(self._run())

    def _say(self, line: Text) -> None:
        self.console.print(line, soft_wrap=True)

    def _open(self) -> None:
        live = Live(console=self.console, get_renderable=self._drawn, auto_refresh=False, transient=True)
        with self.console:
            live.start()
        self.console.show_cursor(True)  # a killed run leaves nothing to mend
        self.live = live
        for handler in self.lines:
            handler.setStream(sys.stderr)

    def _shut(self) -> None:
        live, self.live = self.live, None
        try:
            if live:
                with self.console:
                    live.stop()
        finally:
            for handler in self.lines:
                handler.setStream(self.stderr)

    # ----------------------------------------------------------------------------------------------------- the picture

    def _drawn(self) -> RenderableType:
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
        more = [Text(f"and {len(stages) - room} more under way", "dim")] if len(stages) > room else []
        return Group(*([grid] if stages else []), *more, self._run(width))

    def _row(self, stage: Stage, width: int) -> list[RenderableType]:
        """Name, bar, share, counts, speed, cost, failures, time; on a narrow terminal without counts, speed and cost."""
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
        """How many artifacts are made, under way, failed; dollars spent of the budget; the time taken."""
        line = Text()
        what = "artifacts made" if width >= MIDDLE else "made"
        line.append(f"{len(self.made)} of {len(self.waiting)} {what}", "bold")
        line.append(f", {len(self.running)} under way" if self.running else "")
        line.append(f", {len(self.failed)} failed" if self.failed else "", "bold red")
        line.append(f", {self.money}" if self.money not in ("", "$0.00") else "")
        line.append(f", {clock(time.monotonic() - self.started)}")
        line.truncate(width, overflow="ellipsis")
        return line
