"""Lines of progress: what a person reads in a terminal or a log file."""

import pytest

from proofmill.runtime.progress import Progress, clock


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0, "0:00"), (7.4, "0:07"), (59.6, "1:00"), (750, "12:30"), (11_100, "3:05:00")]
)
def test_clock_reads_like_a_clock(seconds, expected):
    """Seconds become minutes and hours."""
    assert expected == clock(seconds)


def test_line_has_done_cached_failed_cost_and_time_left():
    """All that is known of a long step stands in one line."""
    progress = Progress("x/y", 2000, "calls", every=1e9)
    progress.add(500, cached=500)
    progress.add(100, failed=2, tokens=50, cost=0.25)
    line = progress.line()
    assert line.startswith("600 of 2,000 calls (30 %), 500 cached, 2 failed, ")
    assert "tokens/s, $0.25, " in line and line.endswith(" left")


def test_line_of_an_unknown_total_claims_no_share():
    """What is read from a file of unknown length is counted, without a percentage."""
    progress = Progress("x/y", None, every=1e9)
    progress.add(1234)
    assert progress.line() == "1,234 rows"


def test_finished_line_has_no_time_left():
    """At the end nothing is left, and an empty step divides by nothing."""
    progress = Progress("x/y", 3)
    progress.add(3)
    assert "left" not in progress.line()
    assert Progress("x/y", 0).line() == "0 of 0 rows (0 %)"
