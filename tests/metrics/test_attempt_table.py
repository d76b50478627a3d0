"""Attempts in columns: the original rows and subsets of them."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofmill.metrics.attempt_table import AttemptTable, count, has, is_scored, parts, where

UNTIMED = settings(deadline=None)
VALUES = st.one_of(st.none(), st.integers(-300, 300), st.text(max_size=3), st.lists(st.integers(), max_size=2))
ROWS = st.lists(
    st.fixed_dictionaries({"problem": st.sampled_from("abc"), "grade": VALUES, "note": VALUES}), max_size=40
)


@UNTIMED
@given(ROWS)
def test_rows_are_those_that_were_given(rows):
    """Rows come back in order, by place and by slice, with hashable and unhashable values."""
    attempts = AttemptTable(iter(rows))
    assert [dict(row) for row in attempts] == rows and len(attempts) == len(rows)
    assert [dict(row) for row in attempts[1:-1]] == rows[1:-1]
    assert [dict(attempts[place]) for place in range(-len(rows), len(rows))] == rows * 2


@pytest.mark.parametrize("different", [256, 257, 5_000])
def test_field_may_have_any_number_of_values(different):
    """A field may have more values than fit a byte, and more than one chunk."""
    rows = [{"id": str(n % different), "n": n} for n in range(5_000)]
    assert [dict(row) for row in AttemptTable(rows)] == rows


def test_place_beyond_the_rows_and_unknown_field_are_errors():
    """The errors are those of a list of dictionaries."""
    attempts = AttemptTable([{"grade": 1}])
    with pytest.raises(IndexError):
        attempts[1]
    with pytest.raises(KeyError):
        attempts[0]["given_grade"]


@UNTIMED
@given(ROWS)
def test_parts_are_the_rows_by_key(rows):
    """Each row is in one part; parts are in order of first occurrence, and rows keep their order."""
    found = list(parts(AttemptTable(rows), lambda row: row["problem"]))
    keys = list(dict.fromkeys(row["problem"] for row in rows))
    assert [[dict(row) for row in part] for part in found] == [[r for r in rows if r["problem"] == key] for key in keys]


@UNTIMED
@given(ROWS)
def test_rows_are_chosen_by_what_holds(rows):
    """Selections can be selected from again, and counted."""
    chosen = where(AttemptTable(rows), has("problem", "a"))
    assert [dict(row) for row in where(chosen, is_scored)] == [
        r for r in rows if r["problem"] == "a" and r["grade"] is not None
    ]
    assert count(rows, has("problem", "a")) == len(chosen)


def test_attempts_take_a_seventh_of_the_memory_of_dictionaries():
    """Twenty fields, one of them with a new value in each row."""
    fields = [f"field-{n}" for n in range(20)]

    def rows():
        return ({"id": f"{n:016x}", **dict.fromkeys(fields, n % 8)} for n in range(20_000))

    sizes = []
    for made in (list, AttemptTable):
        tracemalloc.start()
        kept = made(rows())
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        assert len(kept) == 20_000
    assert sizes[1] < sizes[0] / 7
