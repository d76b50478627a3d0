"""How a judge is asked: a prompt from prompts/, filled with fields, through the journal; what `labels`, `schemes` and
`grades` have in common.

How we differ from formatting a string:
1. Fields are put in once, by name: braces of LaTeX, and of a field that looks like a placeholder, stay as they are.
2. A field cannot close the block it stands in: `</proof>` inside a proof reaches the judge as text.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from proofmill import recipes
from proofmill.calls import Answer, Journal, Question, ask
from proofmill.engines import open_engine
from proofmill.jobs import Job
from proofmill.tables import TableError

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
BLOCKS = ("problem", "solution", "source", "comments", "scheme", "proof", "points")

_text = lru_cache(recipes.prompt_text)


def fields_of(prompt: str) -> set[str]:
    """The fields that a prompt names."""
    return set(PLACEHOLDER.findall(_text(prompt)))


def fill(prompt: str, fields: Mapping[str, str | None]) -> str:
    """The prompt with its fields; a field without a value reads `(none)`. RecipeError for a field nobody can give."""
    if unknown := fields_of(prompt) - set(fields):
        raise recipes.RecipeError(
            f"prompts/{prompt}.md: names {', '.join(sorted(unknown))}; expected only {', '.join(sorted(fields))}."
        )
    return PLACEHOLDER.sub(lambda match: _enclosed(fields[match[1]]), _text(prompt)).strip()


def _enclosed(value: str | None) -> str:
    """A field's text, with the closing tags of our own blocks made harmless."""
    if value is None or not value.strip():
        return "(none)"
    return re.sub(rf"<(/?)({'|'.join(BLOCKS)})\b", r"&lt;\1\2", value)


def comments(candidates: Iterable[str]) -> str:
    return "Comment:\n" + "\n\nComment:\n".join(candidates)


def question(api: Any, text: str) -> Question:
    return Question(api.id, (("user", text),), temperature=api.temperature, max_tokens=api.max_tokens)


def consult(job: Job, model: str, prompt: str, rows: Iterable[Mapping[str, Any]]) -> list[Answer]:
    """A judge's answers to one prompt for many rows of fields, in their order; asked once ever."""
    questions = [question(job.apis[model], fill(prompt, row)) for row in rows]
    with (
        open_engine(model, job.apis, job.table, job.engine, job.threads) as engine,
        Journal(job.table.calls) as journal,
    ):
        answers = ask(journal, engine, questions, job.name)
    check_failures(job.name, answers)
    return answers


def check_failures(name: str, answers: list[Answer], share: float = 0.5) -> None:
    """Stop when so much failed that the table would say little; what was answered is in the journal."""
    failed = [a for a in answers if a.stop == "error"]
    if failed and len(failed) > share * len(answers):
        raise TableError(
            f"{name}: {len(failed):,} of {len(answers):,} calls failed, the last with {failed[-1].reason}: {failed[-1].detail}; "
            f"expected fewer than {share:.0%}. See to the server and run again: answered calls are not repeated."
        )


def cost_of(answers: Iterable[Answer]) -> float | None:
    """Dollars of all answers together; None when a price is unknown."""
    costs = [a.cost for a in answers if a.stop != "error"]
    return None if None in costs else round(sum(costs), 6)


def tokens_of(answers: Iterable[Answer]) -> int:
    return sum(a.tokens for a in answers)
