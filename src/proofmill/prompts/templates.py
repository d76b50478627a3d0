"""Prompts: Markdown files of prompts/ with a header (fields to show, how to read the answer) and a text with fields.

    ---
    about: Strict marking by a scheme, ...
    needs: [statement, scheme, proof]     # fields that must have a value, or nothing is asked
    takes: [reference]                    # fields that may be absent
    reads: points                         # how to read a judge's answer: the last `points` tag or box `correct`
    scale: [0, 1, 6, 7]                   # the marks that the judge may give
    ---

The text is a Jinja template: `{{ proof }}`, `{% if reference %}`.

How we differ from formatting a string:
1. Fields are inserted once: braces in a field, from LaTeX or from text that looks like a placeholder, stay as they are.
2. A field cannot close its block or pose as another speaker: our own tags, the verdict's among them, and the control
   tokens of chat templates reach the model as text (escapes.py).
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined, Template

from proofmill.prompts.escapes import enclosed
from proofmill.schema.errors import RecipeError

PROMPTS = Path(__file__).parent
further: list[Path] = []  # folders with a user's own prompts
_HEADER = re.compile(r"\A---\n(.*?)\n---\n+", re.DOTALL)


@dataclass(frozen=True)
class Prompt:
    """A prompt by name: the fields it shows, how the answer is read, and a digest of its text and of these."""

    name: str
    needs: tuple[str, ...]
    takes: tuple[str, ...]
    reads: str | None
    scale: tuple[int, ...]
    template: Template
    digest: str

    def render(self, fields: Mapping[str, Any]) -> str:
        """The prompt with its fields; an empty one reads `(none)`. Raises RecipeError when `fields` lacks one."""
        if unknown := {*self.needs, *self.takes} - set(fields):
            raise RecipeError(
                f"prompts/{self.name}.md: names {', '.join(sorted(unknown))}; expected only {', '.join(sorted(fields))}."
            )
        return self.template.render({name: fields[name] for name in (*self.needs, *self.takes)}).strip()

    def absent(self, fields: Mapping[str, Any]) -> str | None:
        """The first field that the prompt needs and that has no value; None when all have one."""
        return next((name for name in self.needs if not (fields.get(name) or "").strip()), None)


_JINJA = Environment(undefined=StrictUndefined, finalize=enclosed, keep_trailing_newline=True)


def names() -> list[str]:
    """The names of all prompts, a user's own among them, sorted."""
    return sorted(path.stem for folder in (PROMPTS, *further) for path in folder.glob("*.md"))


def prompt(name: str) -> Prompt:
    """The prompt of prompts/<name>.md, or else of a user's folder."""
    files = [folder / f"{name}.md" for folder in (PROMPTS, *further)]
    return _read(next((file for file in files if file.exists()), files[0]))


@lru_cache
def _read(path: Path) -> Prompt:
    text = path.read_text(encoding="utf-8")
    header = _HEADER.match(text)
    if header is None:
        raise RecipeError(f"{path}: has no header; expected one between two lines of `---`, with `needs: [statement]`.")
    try:
        settings, body = yaml.safe_load(header[1]), text[header.end() :]
    except yaml.YAMLError as error:
        raise RecipeError(
            f"{path}: its header is no YAML ({error}); expected fields such as `needs: [statement]`."
        ) from error
    needs, takes, reads, scale = (settings.get(key) for key in ("needs", "takes", "reads", "scale"))
    decides = repr((needs, takes, reads, scale, body))
    return Prompt(
        path.stem,
        tuple(needs or ()),
        tuple(takes or ()),
        reads,
        tuple(scale or ()),
        _JINJA.from_string(body),
        hashlib.sha256(decides.encode()).hexdigest()[:16],
    )


def fill(name: str, fields: Mapping[str, Any]) -> str:
    """The prompt `name` with its fields."""
    return prompt(name).render(fields)
