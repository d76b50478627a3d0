"""Stopping: a signal is noted where something may finish, and by whom."""

import os
import signal

import pytest

from proofmill.runtime.signals import gracefully


def test_signal_inside_is_the_outer_ones_to_heed():
    """The calls of a training's judge go on after a SIGTERM; the training is told."""
    with gracefully("grpo/x") as outer, gracefully("grpo/x") as inner:
        os.kill(os.getpid(), signal.SIGTERM)
        assert (outer.why, inner.why) == ("stopped by SIGTERM", None)


def test_signal_after_another_was_left_is_heeded():
    """What was inside another one before is not for ever."""
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
        "sft/x: stopped at once; what was learned is kept. Run the same command to go on."
        if ends
        else "stopped by SIGTERM"
    ]
