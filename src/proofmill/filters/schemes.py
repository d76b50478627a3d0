"""Demands that `keep` of a `schemes` entry can make of a marking scheme, and the faults that a linter finds."""

from collections.abc import Mapping
from typing import Any

from proofmill.schema.named import Named, split

FULL_MARKS = 7


# ----------------------------------------------------------------------------------------------------------- the linter

FAULTS = {
    "no-sections": "the three sections are not there, once each and in order",
    "off-total": "the best chain is not worth 7 points",
    "chain-off-total": "some chain is not worth 7 points",
    "broken-points": "a checkpoint has a fraction of points, or none, or fewer than 0 or more than 7",
    "unpriced-checkpoint": "an item of the checkpoints has no points",
    "small-main-idea": "main ideas are worth less than 4 together, or routine work more than 3",
    "cut-too-fine": "three or more routine checkpoints of one point",
    "no-total-line": "no closing line `Total (max 7)`",
    "chains-not-introduced": "chains that are not said to be alternatives",
    "unpriced-deduction": "a deduction without a flat price: minus 1, minus 2 or a cap",
    "broken-deduction": "a deduction of other than 1 or 2 points, or a cap that is not between 0 and 6",
    "said-twice": "an item stands both among those worth nothing and among the deductions",
    "not-self-contained": "it points to the solution, which a grader may not see",
}


# Faults that a scheme which came with its problem may have: it was written for another form.
OF_OUR_FORM = {"no-sections", "no-total-line", "unpriced-deduction"}


# ----------------------------------------------------------------------------------------------- what `keep` may demand

Row = Mapping[str, Any]


def _usable(row: Row) -> bool:
    """Whether a scheme adds up; one that came with its problem needs only text."""
    if row["given"]:
        return bool((row["scheme"] or "").strip())
    return row["scheme"] is not None and not {"no-sections", "off-total"} & set(row["faults"])


def _reference_passes(row: Row, least: float) -> bool:
    return row["reference_marks"] is not None and row["reference_marks"] >= least


def _nothing_for_nothing(row: Row) -> bool:
    return all(row[f"{probe}_marks"] == 0 for probe in ("blank", "restated", "unrelated"))


def _notices_gaps(row: Row) -> bool:
    both = row["cut_marks"], row["reference_marks"]
    return None not in both and both[0] < both[1]


DEMANDS: dict[str, Named] = {
    "adds-up": Named(
        _usable, "written ones: three sections, and the best chain worth exactly 7; given ones: there is text"
    ),
    "clean": Named(lambda row: not row["faults"], "the linter finds nothing"),
    "reference-passes": Named(
        _reference_passes, "self-test: the reference solution gets at least this many marks", "number", needs="tester"
    ),
    "nothing-for-nothing": Named(
        _nothing_for_nothing,
        "self-test: no solution, the problem said again and another problem's proof have 0 marks",
        needs="tester",
    ),
    "notices-gaps": Named(
        _notices_gaps, "self-test: the reference without a key step has fewer marks than the reference", needs="tester"
    ),
}


def refused(row: Row, keep: list) -> str | None:
    """The first demand that a scheme does not meet; None when it meets all."""
    for item in keep:
        name, argument = split(item)
        if not DEMANDS[name].apply(row, *([] if argument is None else [argument])):
            return name
    return None
