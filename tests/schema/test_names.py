"""Test the names of artifacts and the parsing of derived ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmill.schema import names

PART = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,8}", fullmatch=True)


@given(model=PART, problems=PART, sampling=PART, seed=st.integers(0, 10**6))
def test_cell_with_a_seed_is_read_back(model, problems, sampling, seed):
    """A derived name contains its kind, sampling setting and seed."""
    cell = names.cell("grades", f"sft/{model}", f"problems/{problems}", sampling)
    again = names.reseed(cell, seed)
    assert (names.kind_of(again), names.sampling_of(again), names.parse_seed(again)) == ("grades", sampling, seed)
    assert names.without_seed(again) == cell and names.parse_seed(cell) == 0


@pytest.mark.parametrize("name", ["grades/a", "sft/cold@seed-3"])
def test_name_without_a_cell_has_no_way_of_sampling(name):
    """Only names of cells have a sampling setting."""
    assert names.sampling_of(name) is None


@pytest.mark.parametrize(
    "name", ["sft/cold@seed-1", "sft/Cold", "sft", "sft/", "sft/-a", "s_t/a", "sft/a/b", "sft/a\n"]
)
def test_declared_name_cannot_look_derived(name):
    """A declared name cannot contain `@`."""
    assert not names.NAME.match(name)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("base/x.parquet", "ends in `.parquet`"),
        ("base/x.log", "ends in `.log`"),
        ("scores/x.md", "ends in `.md`"),
        ("base/x.lock", "ends in `.lock`"),
        ("sft/" + "abc" * 70, "has 210 characters; expected at most 200"),
        ("sft/x" + "ab" * 20, "ends in `ab` twenty times"),
        ("sft/x" + "ab" * 19, None),
        ("grades/" + "-".join(map(str, range(50))), None),
        ("base/x.logs", None),
    ],
)
def test_name_that_no_file_can_have_is_refused(name, fault):
    """A name that conflicts with file names is refused."""
    assert fault is None if names.file_fault(name) is None else fault in names.file_fault(name)
