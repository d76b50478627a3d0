"""Filters of grading schemes, for `keep` of a `schemes` entry, and the faults that the linter reports."""

from collections.abc import Mapping
from typing import Any

from proofmill.schema.registry_items import Named, split

MAX_POINTS = 7


# ----------------------------------------------------------------------------------------------------------- the linter

FAULTS = {
    "no-sections": "the three sections do not occur once each and in order",
    "wrong-total": "the best chain is not worth 7 points",
    "wrong-chain-total": "some chain is not worth 7 points",
    "invalid-points": "a checkpoint has a fraction of points, or no points, or fewer than 0 or more than 7",
    "checkpoint-without-points": "an item of the checkpoints has no points",
    "main-idea-too-small": "main ideas are worth less than 4 points in total, or routine work more than 3",
    "too-fine": "three or more routine checkpoints of one point",
    "no-total-line": "no closing line `Total (max 7)`",
    "chains-not-introduced": "several chains, not introduced as alternatives",
    "deduction-without-points": "a deduction without a fixed value: minus 1, minus 2 or a cap",
    "invalid-deduction": "a deduction that is not 1 or 2 points, or a cap that is not between 0 and 6",
    "duplicate-item": "an item is listed both as worth nothing and as a deduction",
    "not-self-contained": "it refers to the solution, which a grader may not see",
}


# Faults allowed in a scheme that came with its problem, which was written in another form.
OF_OUR_FORM = {"no-sections", "no-total-line", "deduction-without-points"}


# ------------------------------------------------------------------------------------------------- filters for `keep`

Row = Mapping[str, Any]


def _usable(row: Row) -> bool:
    """Return whether a scheme adds up; one that came with its problem needs only text."""
    if row["given"]:
        return bool((row["scheme"] or "").strip())
    return row["scheme"] is not None and not {"no-sections", "wrong-total"} & set(row["faults"])


def _reference_passes(row: Row, least: float) -> bool:
    return row["reference_grade"] is not None and row["reference_grade"] >= least


def _nothing_for_nothing(row: Row) -> bool:
    return all(row[f"{probe}_grade"] == 0 for probe in ("empty", "restated", "unrelated"))


def _notices_gaps(row: Row) -> bool:
    both = row["gapped_grade"], row["reference_grade"]
    return None not in both and both[0] < both[1]


SCHEME_FILTERS: dict[str, Named] = {
    "adds-up": Named(
        _usable, "generated schemes: three sections, the best chain worth exactly 7; given schemes: there is text"
    ),
    "clean": Named(lambda row: not row["faults"], "the linter reports no fault"),
    "reference-passes": Named(
        _reference_passes, "self-test: the reference solution gets at least this grade", "number", needs="tester"
    ),
    "zero-for-empty": Named(
        _nothing_for_nothing,
        "self-test: no solution, the restated problem and another problem's proof get 0 points",
        needs="tester",
    ),
    "detects-gaps": Named(
        _notices_gaps,
        "self-test: the reference without a key step gets fewer points than the reference",
        needs="tester",
    ),
}


def find_refusal(row: Row, keep: list) -> str | None:
    """Return the first filter that rejects a scheme; None if all keep it."""
    for item in keep:
        name, argument = split(item)
        if not SCHEME_FILTERS[name].apply(row, *([] if argument is None else [argument])):
            return name
    return None
