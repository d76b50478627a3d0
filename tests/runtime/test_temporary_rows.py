"""Rows in a temporary file: a sequence like a list of the same rows."""

import subprocess
import sys

import pytest

from proofmill.runtime.temporary_rows import RowSelection, Spilled


@pytest.mark.parametrize("count", [0, 1, 700])
def test_spilled_rows_are_those_of_a_list(count):
    """Length, order, places from either end and slices are those of the list that the rows came from."""
    rows = [{"text": f"row {n}", "inner": [{"role": "user", "content": str(n)}], "tokens": n} for n in range(count)]
    spilled = Spilled(iter(rows))
    assert len(spilled) == count and list(spilled) == rows
    assert spilled[1::2] == rows[1::2]
    assert [spilled[place] for place in reversed(range(count))] == rows[::-1]
    assert not count or spilled[-1] == rows[-1]


def test_spilled_place_that_does_not_exist_is_an_error():
    """As in a list, so that a loop over places ends."""
    with pytest.raises(IndexError):
        Spilled([{"a": 1}])[1]


def test_chosen_rows_stand_at_their_places():
    """The rows with the named places come in their order, and part of them is again such a choice."""
    chosen = RowSelection(Spilled({"n": n} for n in range(2_000)), [1_999, 0, 600])
    assert [row["n"] for row in chosen] == [1_999, 0, 600]
    assert [row["n"] for row in chosen[1:]] == [0, 600] and chosen[-1] == {"n": 600}


LIMITED = """
import resource, tempfile
from proofmill.runtime.temporary_rows import Records
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))
records = Records()
try:
    for number in range(1_000):
        records.append(b"%d" % number * 40)
        assert records[number] == b"%d" % number * 40
except OSError as error:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert error.filename == tempfile.gettempdir() and error.strerror
    print(number)
"""


def test_record_that_has_no_room_is_an_error_that_names_the_folder(tmp_path):
    """Never a part of it, behind which all others would be read amiss; the folder is not that of the results."""
    known = {"PATH": "", "PYTHONPATH": ":".join(sys.path), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", LIMITED], env=known, capture_output=True, text=True, check=True)
    assert 200 < int(done.stdout) < 400
