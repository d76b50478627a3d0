"""Resolve a grader's name: its record, the graders it escalates to, the responses it grades, and its max points."""

from collections.abc import Mapping
from typing import Any

from proofmill.graders.program_graders import PROGRAMS
from proofmill.prompts import templates
from proofmill.schema.entries.declared import Grader
from proofmill.schema.fields import GRADER_PROMPT
from proofmill.schema.names import kind_of


def grader_of(name: str, prompt: str | None, declared: Mapping[str, Any]) -> Grader:
    """Return the declared grader of that name; for a judge or a program, a grader with this one judge."""
    return declared[name] if kind_of(name) == "grader" else Grader(judges=[name], prompt=prompt)


def graders_of(name: str, prompt: str | None, declared: Mapping[str, Any]) -> list[Grader]:
    """Return the grader, the one it escalates to, and so on.

    A judge without a grader of its own takes the settings of the grader before it, except for its normalizer.
    """
    chain = [grader_of(name, prompt, declared)]
    while chain[-1].escalate_to is not None:
        chain.append(then_of(chain[-1], declared))
    return chain


def then_of(grader: Grader, declared: Mapping[str, Any]) -> Grader:
    """Return the next grader that this one escalates to."""
    further = grader.escalate_to
    assert further is not None, "a chain ends with the grader that escalates to none"
    if kind_of(further) == "grader":
        return declared[further]
    return Grader(
        [further],
        grader.prompt,
        grader.show_reference,
        self_evaluation=grader.self_evaluation,
        parse_retries=grader.parse_retries,
    )


# The prompt for a model that follows instructions, by the kind of response that is graded.
PROMPT_FOR = {"answers": "answer", "code": "solve-code", "proofs": "prove", "": "solve-any"}


def wants(name: str, prompt: str | None, declared: Mapping[str, Any]) -> str:
    """Return what a grader grades: `answers`, `code` or `proofs`; empty if it depends on the problem or is unknown."""
    first = grader_of(name, prompt, declared)
    if first.judges[0] in PROGRAMS:
        return PROGRAMS[first.judges[0]].wants
    return "answers" if templates.prompt(first.prompt or GRADER_PROMPT).compares_answers else "proofs"


def answers_read(name: str, prompt: str | None, declared: Mapping[str, Any]) -> str | None:
    """Return how a grader extracts final answers, `strict` or `flexible`; None if it extracts none."""
    first = grader_of(name, prompt, declared)
    if first.judges[0] in PROGRAMS:
        return PROGRAMS[first.judges[0]].reads
    return "strict" if wants(name, prompt, declared) == "answers" else None


def max_points(grader: Grader) -> int:
    """Return the highest grade that a grader can give."""
    return (
        PROGRAMS[grader.judges[0]].max_points
        if grader.judges[0] in PROGRAMS
        else int(max(templates.prompt(grader.prompt or GRADER_PROMPT).scale))
    )
