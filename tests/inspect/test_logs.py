"""Logs of jobs: their last line, and the lines they get while somebody follows."""

from proofmill.inspect.logs import Tail, last_line

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
    """A line that is half written comes when it is whole, in a log that was not there at first; no byte is in the way."""
    tail = Tail(tmp_path / "x.log")
    assert tail.lines() == []
    (tmp_path / "x.log").write_bytes(b"10:00:01  caf\xc3")
    assert tail.lines() == []
    (tmp_path / "x.log").write_bytes(b"10:00:01  caf\xc3\xa9 \xff\n")
    assert tail.lines() == ["café \ufffd"]
