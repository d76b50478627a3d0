"""A grader by its name: the declared one, whom it escalates to, and what its marks are out of."""

from collections.abc import Mapping
from typing import Any

from proofmill.graders.programs import PROGRAMS
from proofmill.prompts import templates
from proofmill.schema.declared import Grader
from proofmill.schema.fields import MARKING_PROMPT
from proofmill.schema.names import kind_of


def grader_of(name: str, prompt: str | None, declared: Mapping[str, Any]) -> Grader:
    """The declared grader of that name; a judge or a program alone is one too."""
    return declared[name] if kind_of(name) == "grader" else Grader(judges=[name], prompt=prompt)


def graders_of(name: str, prompt: str | None, declared: Mapping[str, Any]) -> list[Grader]:
    """The grader, whom it escalates to, and so on; a judge without a grader of its own marks as the one before it does."""
    chain = [grader_of(name, prompt, declared)]
    while chain[-1].escalate_to is not None:
        chain.append(then_of(chain[-1], declared))
    return chain


def then_of(grader: Grader, declared: Mapping[str, Any]) -> Grader:
    """Whom a grader escalates to."""
    if kind_of(grader.escalate_to) == "grader":
        return declared[grader.escalate_to]
    return Grader([grader.escalate_to], grader.prompt, grader.reference, requeries=grader.requeries)


def full_marks(grader: Grader) -> int:
    """What the marks of a grader are out of."""
    return (
        PROGRAMS[grader.judges[0]].full_marks
        if grader.judges[0] in PROGRAMS
        else max(templates.prompt(grader.prompt or MARKING_PROMPT).scale)
    )
