"""The screen of a run on a terminal, the plain lines everywhere else, and what neither may lose."""

import re
import sys

import psutil
import pytest

from project import Project, copy_of
from proofmill.runtime.display import is_wanted
from proofmill.schema.errors import SettingError
from terminal import Terminal, seen

pytestmark = pytest.mark.pipeline
SNAKEMAKE = [sys.executable, "-m", "snakemake"]
PRICE = "price: {input: 1, output: 1}, price-source: 'ours, 2026-11-20'"
CONFIG = f"""
small:
  api/referee: {{id: referee-1, program: referee, {PRICE}, temperature: 0, max-tokens: 1024}}
  problems/bench: {{source: arithmetic, split: test, rows: 24}}
  problems/threads: {{source: arithmetic-threads, rows: 100, keep: [has-statement, has-solution]}}
  labels/threads: {{problems: problems/threads, model: api/referee}}
budget: 5
"""
SLOW = {"PROOFMILL_REFEREE_FAULTS": '{"delay": 0.5}', "PROOFMILL_CONCURRENCY": "8"}  # some seconds of calls
CLEAR = "\r\x1b[2K"  # begins a new picture


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return Project(tmp_path_factory.mktemp("screen"), CONFIG)


@pytest.fixture
def project(small, tmp_path):
    """Return a project without results."""
    return copy_of(small, tmp_path / "project")


@pytest.fixture
def terminal(project):
    """Return a function that starts Snakemake in a terminal."""
    opened = []

    def start(*arguments, columns=120, command=None, **environment):
        command = command or [*SNAKEMAKE, *arguments]
        opened.append(Terminal(command, project.folder, columns, environment=environment))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def pictures(text):
    """Return the contents of the terminal before each redraw."""
    ends = [match.start() for match in re.finditer(re.escape(CLEAR), text)]
    return [seen(text[:end]) for end in ends]


def timeless(lines):
    """Remove parts of lines that differ between two equal runs, and the order of concurrent jobs."""
    return sorted(
        re.sub(r"\d+:\d\d(:\d\d)?(\.\d+)?|/\S+|[\d,]+(?= bytes| tokens)|\x1b\[[\d;]*m", "", line)
        for line in lines
        if line
    )


def test_screen_shows_stages_and_leaves_lines_and_the_table(project, terminal):
    """On 60 columns without colours: a bar, its share and the time left; at the end what plain lines would have said."""
    run = terminal("small", columns=60, NO_COLOR="1", **SLOW)
    run.until("left")
    assert run.end() == 0
    running = [lines[-2:] for lines in pictures(run.text) if len(lines) > 1 and "running" in lines[-1]]
    assert any(re.fullmatch(r"labels/threads +━+╸? +\d+ %  0:\d\d left", above) for above, _ in running)
    assert {lines[-1][:11] for lines in running} >= {"0 of 3 done", "2 of 3 done"}
    assert any(re.fullmatch(r"2 of 3 done, 1 running, \$0\.\d\d of \$5\.00, 0:\d\d", line) for _, line in running)
    assert all(len(line) <= 60 for lines in running for line in lines if " left" in line or "running" in line)
    drawn = run.text[run.text.index(CLEAR) : run.text.rindex(CLEAR)]
    assert not re.search(r"\x1b\[[\d;]*3\d", drawn) and not drawn.endswith("\x1b[?25l")

    lines = seen(run.text)
    end = next(number for number, line in enumerate(lines) if line.startswith("3 of 3 artifacts done, $"))
    assert sum("running" in line or " left" in line for line in lines) == 0
    log = (project.results / "labels/threads.log").read_text().splitlines()[-1]
    assert log.split("  ", 1)[1] in lines[:end]
    assert sum("; took " in line for line in lines[:end]) == 3
    assert any(line.startswith("3 of 3 tables are in results/") for line in lines[end:])


@pytest.mark.long
def test_page_of_a_target_stands_alone_while_others_go_on(terminal):
    """A finished target shows its full page, above the display that returns for the other jobs."""
    run = terminal("problems/bench", "labels/threads", **SLOW)
    assert run.end() == 0
    lines = seen(run.text)
    first = next(number for number, line in enumerate(lines) if line.startswith("problems/bench: 24 rows"))
    columns = next(number for number, line in enumerate(lines) if line.startswith("  columns: problem, statement"))
    assert all(line.startswith("  ") for line in lines[first + 1 : columns])
    assert columns < next(number for number, line in enumerate(lines) if line.startswith("3 of 3 artifacts done"))
    assert sum(" running" in line for line in lines) == 0


def test_lines_are_plain_without_a_terminal_and_when_asked_for(project, terminal, tmp_path):
    """Through a pipe, from either stream, and with PROOFMILL_DISPLAY=plain: the lines of the jobs, and no sign that moves."""
    twins = [copy_of(project, tmp_path / f"twin-{number}") for number in range(2)]
    piped = twins[0].snakemake("small", profile=())
    assert piped.returncode == 0 and "\x1b" not in piped.stdout
    assert "; took " in piped.stdout and " made, " not in piped.stdout

    asked = terminal("small", PROOFMILL_DISPLAY="plain")
    assert asked.end() == 0 and CLEAR not in asked.text
    assert timeless(seen(asked.text)) == timeless(piped.stdout.splitlines())

    half = Terminal(["bash", "-c", f"{' '.join(SNAKEMAKE)} small | cat"], twins[1].folder)
    assert half.end() == 0 and CLEAR not in half.text
    assert timeless(seen(half.text)) == timeless(piped.stdout.splitlines())
    half.close()


@pytest.mark.sampled(0, "'-n'")
@pytest.mark.parametrize("arguments", [["small", "-n"], ["--list"], ["small", "--dag"], ["nothing/here"]], ids=str)
def test_what_makes_nothing_has_no_screen(terminal, arguments):
    """A dry run, a list, a graph and an error before the first job are what they are without a screen."""
    with_screen, without = terminal(*arguments), terminal(*arguments, PROOFMILL_DISPLAY="plain")
    assert with_screen.end() == without.end()
    assert CLEAR not in with_screen.text
    assert timeless(seen(with_screen.text)) == timeless(seen(without.text))


def test_reason_of_a_stop_is_shown_at_once_and_at_the_end(project, terminal):
    """A job that stops says why above the screen; the run says it once more below, and ends as a failed one."""
    project.edit("budget: 5", "budget: 0.005")
    run = terminal("small")
    assert run.end() == 1
    lines = seen(run.text)
    end = next(number for number, line in enumerate(lines) if line.startswith("2 of 3 artifacts done, 1 failed, $"))
    why = "labels/threads: stopped because the budget of $0.01 is spent"
    assert any(line.startswith(why) for line in lines[:end]) and any(why in line for line in lines[end:])
    assert "labels/threads  failed; log: results/labels/threads.log" in lines[:end]


@pytest.mark.long
def test_traceback_of_a_job_is_shown_whole(project, terminal):
    """An error that is not ours is printed line by line, indented as Python wrote it."""
    broken = project.folder / "broken/matplotlib"
    broken.mkdir(parents=True)
    (project.folder / "broken/sitecustomize.py").write_text(
        "import sys\nif any('proofmill.problems' in arg for arg in sys.orig_argv):\n    def deep():\n"
        "        raise ArithmeticError('as it happens')\n    import builtins\n    old = builtins.__import__\n"
        "    def load(name, *rest, **more):\n        if name == 'proofmill.sources':\n            deep()\n"
        "        return old(name, *rest, **more)\n    builtins.__import__ = load\n"
    )
    paths = [str(project.folder / "broken"), *sys.path]
    run = terminal("problems/bench", PYTHONPATH=":".join(path for path in paths if path))
    assert run.end() == 1
    lines = seen(run.text)
    assert "ArithmeticError: as it happens" in lines and "Traceback (most recent call last):" in lines
    assert any(line.startswith("  File ") for line in lines)


@pytest.mark.long
def test_killed_job_is_told_of_above_the_screen(project, terminal):
    """The shell's word that a job was killed neither gets lost nor into the picture; the log ends with the job's own."""
    run = terminal("small", **SLOW)
    run.until("of 9[0-9] problems")
    jobs = psutil.Process(run.process.pid).children(recursive=True)
    next(job for job in jobs if "proofmill.labels" in job.cmdline()).kill()
    assert run.end() == 1
    lines = seen(run.text)
    end = next(number for number, line in enumerate(lines) if line.startswith("2 of 3 artifacts done, 1 failed"))
    assert any(" Killed " in line for line in lines[:end])
    assert sum("running" in line for line in lines) == 0
    assert " Killed " not in (project.results / "labels/threads.log").read_text()


def test_ctrl_c_lets_jobs_say_their_last_words(project, terminal):
    """They are above the sum, the exit status is that of a failed run, and the next run resumes from the journal."""
    run = terminal("small", **SLOW)
    run.until("of 9[0-9] problems")
    run.type("\x03")
    assert run.end() == 1
    lines = seen(run.text)
    end = next(number for number, line in enumerate(lines) if line.startswith("2 of 3 artifacts done, 1 failed"))
    assert any(
        re.match(r"labels/threads: stopped by SIGINT; \d+ of \d+ problems have ended", line) for line in lines[:end]
    )
    assert not run.text.endswith("\x1b[?25l") and run.text.rindex("\x1b[?25h") > run.text.rindex("\x1b[?25l")
    assert len(project.journal("labels/threads")) >= 8
    again = terminal("small")
    assert again.end() == 0 and re.search(r"labels/threads  \d+ ok", again.text)


@pytest.mark.long
def test_picture_has_the_width_that_the_terminal_has_now(terminal):
    """After a change of the window the next picture fits it."""
    run = terminal("small", **SLOW)
    run.until("tokens/s")
    run.resize(60)
    run.until(r"1 running")
    before = len(run.text)
    run.until(r"\d+ %  0:\d\d left")
    assert run.end() == 0
    stage = re.search(r"labels/threads[^\n]*left", run.text[before:])
    assert stage and len(seen(stage[0])[0]) <= 60 and "tokens/s" not in stage[0]


def test_wanted_refuses_what_is_neither_plain_nor_yes(monkeypatch):
    """An invalid setting stops a run instead of being guessed."""
    monkeypatch.setenv("PROOFMILL_DISPLAY", "perhaps")
    with pytest.raises(SettingError, match="expected `plain`"):
        is_wanted()
