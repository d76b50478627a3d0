"""Job logs: their last line, and new lines as they are written."""

from proofmill.runtime.job_logs import Tail, last_line

OLD = "\n2026-11-20 10:00:00 UTC on host\n10:00:03  sft/x  40 steps; took 0:03\n"


def test_last_line_is_without_time_and_name(tmp_path):
    """Of a line what its job said; of lines that are blank, or of no log, nothing."""
    log = tmp_path / "x.log"
    assert last_line(log) == ""
    log.write_text(f"{OLD}\n\n")
    assert last_line(log) == "40 steps; took 0:03"


def test_tail_has_what_is_said_from_now_on(tmp_path):
    """Neither what runs before said, nor the day and host of this one; each line once, blanks at its start kept."""
    log = tmp_path / "x.log"
    log.write_text(OLD)
    tail = Tail(log)
    assert tail.lines() == []
    with open(log, "a") as file:
        file.write(
            "\n2026-11-21 10:00:00 UTC on host\n10:00:01  Traceback (most recent call last):\n10:00:01    File 1\n"
        )
    assert tail.lines() == ["Traceback (most recent call last):", "  File 1"]
    assert tail.lines() == []


def test_tail_waits_for_the_end_of_a_line(tmp_path):
    """A line counts once it is complete, in a log that did not exist at first; invalid bytes do no harm."""
    tail = Tail(tmp_path / "x.log")
    assert tail.lines() == []
    (tmp_path / "x.log").write_bytes(b"10:00:01  caf\xc3")
    assert tail.lines() == []
    (tmp_path / "x.log").write_bytes(b"10:00:01  caf\xc3\xa9 \xff\n")
    assert tail.lines() == ["café \ufffd"]
