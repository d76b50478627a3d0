"""Stopping: a signal is noted where something may finish, and by whom."""

import os
import signal
import subprocess
import sys

import pytest

from proofmill.runtime import signals
from proofmill.runtime.cluster import slurm
from proofmill.runtime.signals import gracefully


def test_signal_inside_is_the_outer_ones_to_heed():
    """The calls of a training's judge continue after a SIGTERM; the training receives it."""
    with gracefully("grpo/x") as outer, gracefully("grpo/x") as inner:
        os.kill(os.getpid(), signal.SIGTERM)
        assert (outer.why, inner.why) == ("stopped by SIGTERM", None)


def test_signal_after_another_was_left_is_heeded():
    """A signal inside an earlier `gracefully` is not remembered."""
    with gracefully("grpo/x"), gracefully("grpo/x"):
        pass
    with gracefully("grpo/x") as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.why == "stopped by SIGINT"


@pytest.mark.parametrize(("world", "ends"), [("1", True), ("8", False)])
def test_second_signal_ends_a_process_that_is_alone(monkeypatch, world, ends):
    """A launcher passes a signal on that its processes may have had already: of those no second one ends any."""
    monkeypatch.setenv("WORLD_SIZE", world)
    monkeypatch.setenv("LOCAL_RANK", "0")
    said = []
    try:
        with gracefully("sft/x", "what was learned is kept") as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            said.append(stop.why)
    except SystemExit as end:
        said.append(str(end))
    assert said == [
        "sft/x: stopped at once; what was learned is kept. Run the same command to resume."
        if ends
        else "stopped by SIGTERM"
    ]


def test_word_before_the_walltime_leaves_the_rest_of_it(monkeypatch):
    """After SIGUSR1 a step has what is left of the walltime but for half a minute, if that is more than the grace time."""
    monkeypatch.setattr(slurm, "seconds_left", lambda: 600.0)
    monkeypatch.setattr(signals, "_received", set())
    with gracefully("sft/x") as stop:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stop.why == "stopped by SIGUSR1, before the walltime is over"
        assert 560 < signal.getitimer(signal.ITIMER_REAL)[0] <= 570


@pytest.mark.parametrize(("ignoring", "code"), [("signals.ignore()", 0), ("pass", -signal.SIGTERM)])
def test_signal_at_the_very_end_ends_nothing_that_is_done(ignoring, code):
    """Python dies of a signal during its exit, after its own handlers are gone, unless it ignores signals."""
    program = (
        "import os, signal\n"
        "from proofmill.runtime import signals\n"
        "class Late:\n"
        "    def __del__(self, kill=os.kill, pid=os.getpid(), number=int(signal.SIGTERM)): kill(pid, number)\n"
        "signals.at_once('sft/x')\n"
        f"{ignoring}\n"
        "import builtins; builtins.late = Late()\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == code


def test_word_before_the_walltime_is_for_the_job_and_not_for_what_it_has_started():
    """SLURM sends it to both: the job says why it ends, and its server answers to the last."""
    program = (
        "import os, signal, subprocess, time\n"
        "from proofmill.runtime import signals\n"
        "signals.at_once('sft/x')\n"
        "server = subprocess.Popen(['sleep', '60'])\n"
        "try:\n"
        "    server.send_signal(signal.SIGUSR1)\n"
        "    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "    time.sleep(60)\n"
        "finally:\n"
        "    print(server.poll(), flush=True)\n"
        "    server.kill()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (1, "None")
    assert (
        done.stderr.strip() == "sft/x: stopped by SIGUSR1, before the walltime is over; run the same command to resume."
    )
