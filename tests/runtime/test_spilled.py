"""Rows in a temporary file: a sequence like a list of the same rows."""

import pytest

from proofmill.runtime.spilled import Chosen, Spilled


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
    chosen = Chosen(Spilled({"n": n} for n in range(2_000)), [1_999, 0, 600])
    assert [row["n"] for row in chosen] == [1_999, 0, 600]
    assert [row["n"] for row in chosen[1:]] == [0, 600] and chosen[-1] == {"n": 600}
