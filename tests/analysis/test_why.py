"""`proofmill why ARTIFACT`: whether it would be rebuilt, and the cause."""

from mill import REFEREE, SMALL
from proofmill.analysis import why
from proofmill.config.config import expand


def said(small, entries, target):
    config = expand({"r": {"api/referee": REFEREE, **entries}})
    return list(why.lines(why.explain(config, target, small.results)))


def test_finished_artifact_says_what_it_was_made_from(small):
    """Nothing would be made; its parents are named, and nothing else is said of them."""
    first, second = said(small, SMALL, "grades/cold")
    assert first == "grades/cold is up to date"
    assert second.startswith("  built from responses/cold, ")


def test_edit_is_found_where_it_was_made(small):
    """Descendants of an edited entry point to it, with the edit; stages in between have no line."""
    edited = {**SMALL, "sft/cold": {**SMALL["sft/cold"], "steps": 9}}
    first, *begins = said(small, edited, "grades/cold")
    assert first.startswith("grades/cold would be built: responses/cold will be made")
    assert begins == ["  sft/cold would be built: `steps` 8 -> 9"]


def test_edited_artifact_names_its_own_edit(small):
    """Its own field; no ancestor is due."""
    edited = {**SMALL, "sft/cold": {**SMALL["sft/cold"], "steps": 9}}
    assert said(small, edited, "sft/cold") == ["sft/cold would be built: `steps` 8 -> 9"]
