"""`proofmill why ARTIFACT`: whether it would be made again, and where the reason begins."""

from mill import REFEREE, SMALL
from proofmill.inspect import reasons
from proofmill.recipes.book import expand


def said(small, entries, target):
    return list(reasons.lines(expand({"r": {"api/referee": REFEREE, **entries}}), target, small.results))


def test_finished_artifact_says_what_it_was_made_from(small):
    """Nothing would be made; its parents are named, and nothing else is said of them."""
    first, second = said(small, SMALL, "grades/cold")
    assert first == "grades/cold is as its entry says: nothing would be made"
    assert second.startswith("  made from responses/cold, ")


def test_edit_is_found_where_it_was_made(small):
    """What is made behind an edited entry points to it, with the edit; stages in between say nothing."""
    edited = {**SMALL, "sft/cold": {**SMALL["sft/cold"], "steps": 9}}
    first, *begins = said(small, edited, "grades/cold")
    assert first.startswith("grades/cold would be made: responses/cold will be made")
    assert begins == ["  sft/cold would be made: `steps` 8 -> 9"]


def test_edited_artifact_names_its_own_edit(small):
    """Its own field; nothing stands before it."""
    edited = {**SMALL, "sft/cold": {**SMALL["sft/cold"], "steps": 9}}
    assert said(small, edited, "sft/cold") == ["sft/cold would be made: `steps` 8 -> 9"]
