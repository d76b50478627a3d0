"""Lines of progress: what a person reads in a terminal or a log file."""

import pytest

from proofmill.runtime import progress as module
from proofmill.runtime.progress import (
    AT_LAST,
    NOW,
    SOON,
    HowFar,
    NestedProgress,
    Progress,
    ProgressRate,
    clock,
    estimate_seconds_left,
    how_far,
    now,
    seconds_of,
)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0, "0:00"), (7.4, "0:07"), (59.6, "1:00"), (750, "12:30"), (11_100, "3:05:00")]
)
def test_clock_reads_like_a_clock(seconds, expected):
    """Seconds become minutes and hours."""
    assert expected == clock(seconds)
    assert seconds_of(expected) == round(seconds)


def test_line_has_done_cached_failed_cost_and_time_left():
    """One line has all that is known of a long step."""
    progress = Progress("x/y", 2000, "calls")
    progress.add(500, cached=500)
    progress.add(100, failed=2, tokens=50, cost=0.25)
    line = progress.line()
    assert line.startswith("600 of 2,000 calls (30 %), 500 cached, 2 failed, ")
    assert "tokens/s, $0.25, " in line and line.endswith(" left")


def test_line_of_an_unknown_total_claims_no_share():
    """Rows of a file of unknown length are counted, without a percentage."""
    progress = Progress("x/y", None)
    progress.add(1234)
    assert progress.line() == "1,234 rows"


def test_finished_line_has_no_time_left():
    """At the end nothing is left, and an empty step divides by nothing."""
    progress = Progress("x/y", 3)
    progress.add(3)
    assert "left" not in progress.line()
    assert Progress("x/y", 0).line() == "0 of 0 rows (0 %)"


@pytest.fixture
def at(monkeypatch):
    """Set the clock of a step to a number of seconds."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, float(seconds))


def test_lines_of_a_long_step_come_ever_more_rarely(at):
    """Every 10 seconds at first and every five minutes at last: six lines in two minutes, twenty in an hour."""
    pace, said = ProgressRate(), []
    for second in range(3600):
        at(second)
        said += [second] * pace.is_due()
    gaps = [after - before for before, after in zip([0, *said], said, strict=False)]
    assert gaps == sorted(gaps) and {gaps[0], gaps[-1]} == {SOON, AT_LAST}
    assert len([second for second in said if second <= 120]) == 6 and len(said) == 20


@pytest.mark.parametrize(
    ("seconds", "added", "said"),
    [
        (1, {}, ""),
        (1, {"cached": 3}, "x/y  3 of 3 calls (100 %), 3 cached, took 0:01\n"),
        (1, {"cost": 0.5}, "x/y  3 of 3 calls (100 %), $0.50, took 0:01\n"),
        (61, {}, "x/y  3 of 3 calls (100 %), took 1:01\n"),
    ],
    ids=["short", "cached", "paid", "long"],
)
def test_last_line_is_one_that_says_something(at, capsys, seconds, added, said):
    """A short step ends in silence, since its job says what came of it, unless calls were paid, failed or known before."""
    progress = Progress("x/y", 3, "calls")
    progress.add(3, **added)
    at(seconds)
    progress.close()
    assert said == capsys.readouterr().err


def test_line_of_calls_is_read_as_it_was_said(at):
    """The parsed line has the same values as the job's progress."""
    progress = Progress("x/y", 2000, "calls")
    assert how_far(progress.line()) == HowFar(0, 2000, "calls")
    progress.add(500, cached=500)
    at(10)
    progress.add(100, failed=2, tokens=50_000, cost=0.25)
    assert how_far(progress.line()) == HowFar(600, 2000, "calls", 2, "$0.25", "5,000 tokens/s", 140.0)


def test_line_of_plays_is_read_as_it_was_said(at):
    """Plays are what is counted, of which each has many calls."""
    progress = NestedProgress("x/y", 200, "plays")
    at(10)
    progress.add(2311, cached=120, tokens=100)
    for _ in range(10):
        progress.end_unit()
    assert how_far(progress.line()) == HowFar(10, 200, "plays", 0, "", "10 tokens/s", 190.0)


@pytest.mark.parametrize(
    ("seconds", "fresh", "total", "left"),
    [
        (9, 2, 20, None),
        (9, 3, 20, 51.0),
        (9, 3, 1000, None),
        (9, 50, 1000, 171.0),
        (90, 3, 1000, 29910.0),
        (9, 9, 9, None),
    ],
)
def test_time_left_is_estimated_from_enough(seconds, fresh, total, left):
    """Three units, and a twentieth of the work or a minute; the first of many concurrent calls says nothing."""
    assert estimate_seconds_left(seconds, fresh, fresh, total) == left


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1,234 rows", HowFar(1234, None, "rows")),
        (
            "step 40 of 1,600, loss 0.31, 20 steps/min, 1:18:00 left",
            HowFar(40, 1600, "step", 0, "", "loss 0.31, 20 steps/min", 4680.0),
        ),
        ("3 of 3 calls (100 %), $0.50, took 0:01", HowFar(3, 3, "calls", 0, "$0.50")),
    ],
)
def test_how_far_reads_lines_of_every_shape(line, expected):
    """Of an unknown number, of a training, and of an end."""
    assert how_far(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        "24 kept; took 0:00",
        "40 steps; took 0:08; loss 3.545, 5,905 steps/min",
        "300 length, 48 end; took 0:05",
        "3 of 9 calls (33 %), 2 failed; HTTP 401: no such key",
        "18,528 parameters; a step takes 0.3 GB",
        "300 of 348 attempts (86.2%) were truncated at 32 tokens: raise `max-tokens`",
        "skipped 1 of 58 problems: the grader needs an answer or a scheme",
    ],
)
def test_how_far_takes_nothing_else_for_progress(line):
    """A line with other words is not parsed as progress."""
    assert how_far(line) is None


def test_progress_is_shown_each_second_where_a_screen_follows(at, capsys, monkeypatch, tmp_path):
    """The log has no more lines than without a screen, and a folder that is gone stops no work."""
    monkeypatch.setenv(NOW, str(tmp_path))
    progress = Progress("x/y", 100)
    progress.add()
    assert not list(tmp_path.iterdir())
    at(1)
    progress.add(9)
    assert how_far(now("x/y", tmp_path).read_text().strip()) == HowFar(10, 100, "rows", left=9.0)
    at(1.5)
    progress.add()
    assert now("x/y", tmp_path).read_text().startswith("10 of")
    monkeypatch.setenv(NOW, str(tmp_path / "gone"))
    at(3)
    progress.add()
    assert capsys.readouterr().err == ""
