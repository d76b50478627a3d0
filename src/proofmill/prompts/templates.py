"""Prompts: Markdown files of prompts/ with a header (fields to show, how to read the answer) and a text with fields.

    ---
    about: Strict marking by a scheme, ...
    needs: [statement, scheme, proof]     # fields that must have a value, or nothing is asked
    takes: [reference]                    # fields that may be absent
    reads: points                         # the form of the judge's verdict: one of READS
    scale: [0, 1, 6, 7]                   # the marks that the judge may give
    ---

The text is a Jinja template: `{{ proof }}`, `{% if reference %}`. A prompt is named, with its folder if it is in one
(`tasks/pair`), or given as a path that ends in `.md`: a file of the user's own. Text that is shown as it stands (a system
prompt) may stand in such a file, too, with or without a header.

How we differ from formatting a string:
1. Fields are inserted once: braces in a field, from LaTeX or from text that looks like a placeholder, stay as they are.
2. A field cannot close its block or pose as another speaker: our own tags, the verdict's among them, and the control
   tokens of chat templates reach the model as text (escapes.py).
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined, Template, TemplateError, TemplateSyntaxError, meta

from proofmill.prompts.escapes import enclosed
from proofmill.runtime.paths import local_path
from proofmill.schema.errors import ProofmillError, RecipeError, short, shown
from proofmill.text.own_files import read_text, read_yaml
from proofmill.text.suggestions import among

PROMPTS = Path(__file__).parent
further: list[Path] = []  # folders with a user's own prompts
_NAME = re.compile(r"[\w-][\w. -]{0,99}(?:/[\w-][\w. -]{0,99})*")
_HEADER = re.compile(r"\A---\n(.*?)\n---\n+", re.DOTALL)


class Form(NamedTuple):
    """A form of verdicts: the marks that can be said in it, in words and as a test of one, and what a judge writes."""

    marks: str
    says: Callable[[float], bool]
    doc: str


def _form(marks: Sequence[float], doc: str) -> Form:
    return Form(f"some of {', '.join(map(str, marks))}", marks.__contains__, doc)


def _is_whole(mark: float) -> bool:
    return type(mark) is int and mark >= 0


# How each is read is in graders/verdicts.py.
READS = {
    "points": Form(
        "whole numbers from 0 on",
        _is_whole,
        "`<points>6</points>` or `<points>6 out of 7</points>` (IMO-ProofBench, QED-Nano's grader)",
    ),
    "score": Form("whole numbers from 0 on", _is_whole, "`<score>6</score>` (QED-Nano's trainer)"),
    "judgement": _form((0, 1), "`Judgement: Yes` or `Judgement: No` at the end, on a line of its own (NeMo-Skills)"),
    "words": _form(
        (0, 1, 6, 7),
        "`incorrect`, `partial`, `almost` or `correct` at the end, alone on a line or behind `Grade:` (IMO-GradingBench)",
    ),
    "boxed": Form("numbers from 0 on", lambda mark: 0 <= mark < 10**9, "`\\boxed{0.5}` at the end (DeepSeek-Math-V2)"),
    "correct": _form((0, 1), "`\\boxed{Correct}` or `\\boxed{Incorrect}` at the end (IMO-AnswerBench)"),
}


@dataclass(frozen=True)
class Prompt:
    """A prompt by name: the fields it shows, how the answer is read, and a digest of its text and of these."""

    name: str
    needs: tuple[str, ...]
    takes: tuple[str, ...]
    reads: str | None
    scale: tuple[float, ...]
    template: Template
    digest: str

    def render(self, fields: Mapping[str, Any]) -> str:
        """The prompt with its fields; an empty one reads `(none)`. Raises RecipeError when `fields` lacks one."""
        if unknown := {*self.needs, *self.takes} - set(fields):
            file = self.name if is_path(self.name) else f"prompts/{self.name}.md"
            raise RecipeError(f"{file}: names {', '.join(sorted(unknown))}; expected only {', '.join(sorted(fields))}.")
        try:
            return self.template.render({name: fields[name] for name in (*self.needs, *self.takes)}).strip()
        except (TemplateError, *_FAULTS) as error:
            raise RecipeError(
                f"{self.name}: cannot be written out ({short(str(error))}); expected a template of its fields. Fix the file."
            ) from error

    @property
    def compares_answers(self) -> bool:
        """Whether it asks if a final answer is the right one, so that a judge is shown the answer and not a proof."""
        return self.reads in ("correct", "judgement") and "answer" in self.needs

    def absent(self, fields: Mapping[str, Any]) -> str | None:
        """The first field that the prompt needs and that has no value; None when all have one."""
        return next((name for name in self.needs if not (fields.get(name) or "").strip()), None)


# What an expression of a template raises; what a parser raises for brackets in hundreds of brackets.
_FAULTS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError)
_JINJA = Environment(undefined=StrictUndefined, finalize=enclosed, keep_trailing_newline=True)


def names() -> list[str]:
    """The names of all prompts, a user's own among them, sorted."""
    folders = (PROMPTS, *further)
    return sorted(
        path.relative_to(folder).with_suffix("").as_posix() for folder in folders for path in folder.rglob("*.md")
    )


def is_path(name: str) -> bool:
    """Whether a prompt is given by the path of its file, or a text by that of the file it stands in."""
    return name.endswith(".md") and "\n" not in name


def prompt(name: str) -> Prompt:
    """The prompt at a path, or of prompts/<name>.md, or of a user's folder. Raises RecipeError where it is none."""
    if is_path(name):
        return _parsed(name, *_text_of(local_path(name)))
    return _parsed(name, *_text_of(_file(name) or PROMPTS / f"{name}.md"))


def _file(name: str) -> Path | None:
    """The file of a named prompt, if there is one. A way through other folders is no name."""
    if not _NAME.fullmatch(name):
        return None
    return next((file for folder in (PROMPTS, *further) if (file := folder / f"{name}.md").is_file()), None)


def fault(name: str) -> str | None:
    """What is wrong with the name or path of a prompt, as the end of a sentence about it; None where nothing is."""
    if not is_path(name):
        own = "the path of a file of your own (`prompts/mine.md`), or one of"
        return (
            None
            if _file(name)
            else f"is `{short(name)}`, which is no file in prompts/; expected {own} {among(name, names())}"
        )
    try:
        prompt(name)
    except ProofmillError as error:
        return f"is {error}"
    return None


def is_known(name: str | None) -> bool:
    """Whether a prompt can be read; none at all is the default, which can."""
    return name is None or fault(name) is None


def fill(name: str, fields: Mapping[str, Any]) -> str:
    """The prompt `name` with its fields."""
    return prompt(name).render(fields)


def plain(text: str) -> str:
    """A text that is sent as it stands: itself, or what is in the file at its path, without a header."""
    return _text_of(local_path(text))[1].strip() if is_path(text) else text


def plain_fault(text: str) -> str | None:
    """What is wrong with a text that is given by a path, as the end of a sentence about it; None where nothing is."""
    try:
        return None if plain(text) else "is empty; expected a text, or none at all."
    except ProofmillError as error:
        return f"is {error}"


def plain_digest(text: str) -> str:
    """A digest of what `plain` gives."""
    return hashlib.sha256(plain(text).encode()).hexdigest()[:16]


# ------------------------------------------------------------------------------------------------------------ the files


def _text_of(path: Path) -> tuple[str | None, str]:
    """The header and the body of a file; its header is None where it has none."""
    text = read_text(path, "a prompt in Markdown. Check the path in the configuration, or write the file.")
    header = _HEADER.match(text)
    return (header[1], text[header.end() :]) if header else (None, text)


_EXAMPLE = "expected one between two lines of `---`, with `needs: [statement]`"


@lru_cache
def _parsed(name: str, header: str | None, body: str) -> Prompt:
    """A prompt from its header and its text; RecipeError with all that is wrong with them."""
    where = name if is_path(name) else f"{name}.md"
    if header is None:
        raise RecipeError(f"{where}: has no header; {_EXAMPLE}.")
    settings = read_yaml(header, f"{where}: its header", "fields such as `needs: [statement]`. Fix the header.")
    faults = [*_header_faults(settings), *(_body_faults(body, settings) if isinstance(settings, dict) else ())]
    if faults:
        raise RecipeError(f"{where}: {'; '.join(faults)}. Fix the file.")
    needs, takes, reads, scale = (settings.get(key) for key in ("needs", "takes", "reads", "scale"))
    decides = repr((needs, takes, reads, scale, body))
    return Prompt(
        name,
        tuple(needs or ()),
        tuple(takes or ()),
        reads,
        tuple(scale or ()),
        _JINJA.from_string(body),
        hashlib.sha256(decides.encode()).hexdigest()[:16],
    )


def _header_faults(settings: Any) -> list[str]:
    if not isinstance(settings, dict):
        return ["its header is no mapping; expected fields such as `needs: [statement]`"]
    faults = [
        f"`{key}` is {shown(settings[key])}; expected a list of fields, such as `[statement]`"
        for key in ("needs", "takes")
        if settings.get(key) is not None and not _all(settings[key], str)
    ]
    if "needs" not in settings:
        faults.append(
            "its header has no `needs`; expected the fields that it shows, such as `needs: [statement]`, or `[]`"
        )
    reads, scale = settings.get("reads"), settings.get("scale")
    form = READS.get(reads) if isinstance(reads, str) else None
    if reads is not None and form is None:
        faults.append(f"`reads` is {shown(reads)}; expected {', '.join(READS)}")
    if (reads is None) != (scale is None) or (scale is not None and not (scale and _all(scale, int, float))):
        faults.append("`reads` and `scale` go together; expected both, as in `reads: points` and `scale: [0, 1, 2]`")
    elif scale and form and not _is_scale(scale, form):
        faults.append(f"`scale` is {shown(scale)}; expected {form.marks}, of which the highest is whole and no 0")
    return faults


def _is_scale(scale: list[float], form: Form) -> bool:
    """Whether a judge's answer in this form can say each of these marks, and the highest is a whole number."""
    return all(map(form.says, scale)) and max(scale) >= 1 and max(scale) == int(max(scale))


def _all(value: Any, *kinds: type) -> bool:
    return isinstance(value, list) and all(type(item) in kinds for item in value)


def _body_faults(body: str, settings: Mapping[str, Any]) -> list[str]:
    """Faults of the text: what is no Jinja, and fields that the header does not name."""
    try:
        names = meta.find_undeclared_variables(_JINJA.parse(body))
        _JINJA.from_string(body)
    except TemplateSyntaxError as error:
        return [f"line {error.lineno} of its text is no template ({short(error.message or '')}); expected Jinja"]
    except (SyntaxError, *_FAULTS) as error:
        return [f"its text is no template ({type(error).__name__}: {short(str(error))}); expected Jinja"]
    lists: list[Any] = [settings.get(key) for key in ("needs", "takes")]
    named = {name for some in lists if _all(some, str) for name in some}
    return [
        f"it shows `{name}`, which is in neither `needs` nor `takes`; expected fields of its header"
        for name in sorted(names - named)
    ]
