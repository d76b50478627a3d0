"""How a judge is asked: a prompt from prompts/, filled with fields, through the journal; what `labels`, `schemes` and
`grades` have in common.

How we differ from formatting a string:
1. Fields are put in once, by name: braces of LaTeX, and of a field that looks like a placeholder, stay as they are.
2. A field cannot close the block it stands in: `</proof>` inside a proof reaches the judge as text.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from proofmill import recipes
from proofmill.calls import Answers, Question, Questions
from proofmill.engines import asking
from proofmill.jobs import Job

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
    """A judge is asked one text, once, at its own temperature."""
    options = json.dumps(api.options, sort_keys=True) if api.options else ""
    return Question(api.id, (("user", text),), temperature=api.temperature, max_tokens=api.max_tokens, options=options)


def questions(job: Job, model: str, prompt: str, rows: Sequence[Mapping[str, Any]]) -> Questions:
    """One prompt for many rows of fields, each with its `problem`."""
    api = job.apis[model]
    return Questions(len(rows), lambda: ((row["problem"], question(api, fill(prompt, row))) for row in rows))


def consult(job: Job, model: str, asked: Questions) -> Answers:
    """A judge's answers in the order of what it is asked; asked once ever."""
    with asking(job, model) as ask:
        return ask(asked)
