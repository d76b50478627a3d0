"""Load and fill prompts: Markdown files with a header (fields, form of the verdict) and a text with fields.

    ---
    about: Strict grading by a scheme, ...
    needs: [statement, scheme, proof]     # fields that must have a value, or no call is made
    optional: [reference]                    # fields that may be absent
    verdict: points                         # the form of the judge's verdict: one of VERDICT_FORMS
    scale: [0, 1, 6, 7]                   # the grades that the judge may give
    ---

The text is a Jinja template: `{{ proof }}`, `{% if reference %}`. A prompt is given by its name, with a folder if it is
in one (`tasks/pair`), or as a path that ends in `.md`: a file of the user's own. Verbatim texts (a system prompt) may
be in such a file, too, with or without a header.

A text that others published stays where it is: the header names its address and maps its placeholders (published.py).

    text: github:OWNER/NAME@COMMIT/agents.yaml#judge.prompt
    fields: {problem: statement, solution: proof, of: 7}  # or a number; instead of `needs`; `optional` names some of ours
    style: replace                                    # of its placeholders; `format` by default

An entry may name the address itself if the text has one placeholder, for the statement, or is a system prompt.

Differences from formatting a string:
1. Fields are inserted once: braces in a field, from LaTeX or from text that looks like a placeholder, stay as they are.
2. A field cannot close its block or start another turn: our own tags, those of verdicts included, and the control
   tokens of chat templates reach the model as text (escapes.py). With `keeps-tags: true` in its header, a prompt that
   is no more than one field keeps our tags in it.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined, Template, TemplateError, TemplateSyntaxError, meta

from proofmill.prompts import published
from proofmill.prompts.escapes import Enclosed, enclose, without_control_tokens
from proofmill.prompts.published import PublishedText
from proofmill.public_data import registry
from proofmill.public_data.locations import local_path
from proofmill.public_data.registry import is_public
from proofmill.schema.errors import MissingData, ProofmillError, RecipeError, short, shorten
from proofmill.text.own_files import read_text, read_yaml
from proofmill.text.suggestions import among

PROMPTS = Path(__file__).parent
further: list[Path] = []  # folders with a user's own prompts
_NAME = re.compile(r"[\w-][\w. -]{0,99}(?:/[\w-][\w. -]{0,99})*")
_FIELD = re.compile(r"\{\{ *\w+ *\}\}")
_HEADER = re.compile(r"\A---\n(.*?)\n---\n+", re.DOTALL)


class Form(NamedTuple):
    """A form of verdicts: the grades that it can express, as text and as a predicate, and an example of the output."""

    grades: str
    says: Callable[[float], bool]
    doc: str


def _form(grades: Sequence[float], doc: str) -> Form:
    return Form(f"some of {', '.join(map(str, grades))}", grades.__contains__, doc)


def _is_whole(grade: float) -> bool:
    return type(grade) is int and grade >= 0


# graders/verdicts.py has the parser of each.
VERDICT_FORMS = {
    "points": Form(
        "whole numbers from 0 on",
        _is_whole,
        "`<points>6</points>` or `<points>6 out of 7</points>` (IMO-ProofBench, QED-Nano's grader)",
    ),
    "score": Form("whole numbers from 0 on", _is_whole, "`<score>6</score>` (QED-Nano's trainer)"),
    "judgement": _form((0, 1), "`Judgement: Yes` or `Judgement: No` at the end, on a line of its own (NeMo-Skills)"),
    "words": _form(
        (0, 1, 6, 7),
        "`incorrect`, `partial`, `almost` or `correct` at the end, alone on a line or after `Grade:` (IMO-GradingBench)",
    ),
    "boxed": Form(
        "numbers from 0 on", lambda grade: 0 <= grade < 10**9, "`\\boxed{0.5}` at the end (DeepSeek-Math-V2)"
    ),
    "correct": _form((0, 1), "`\\boxed{Correct}` or `\\boxed{Incorrect}` at the end (IMO-AnswerBench)"),
}


@dataclass(frozen=True)
class Prompt:
    """A prompt: its name, fields, form of verdicts, template, and what else decides (its text, if it has one)."""

    name: str
    needs: tuple[str, ...]
    optional: tuple[str, ...]
    verdict: str | None
    scale: tuple[float, ...]
    template: Template | PublishedText
    decides: str

    @property
    def digest(self) -> str:
        """Return a digest of its text and its settings."""
        return _digest(self.decides, *([] if self.address is None else [published.digest(self.address)]))

    @property
    def address(self) -> str | None:
        """Return the address of its text, if others published it."""
        return self.template.address if isinstance(self.template, PublishedText) else None

    def render(self, fields: Mapping[str, Any]) -> str:
        """Fill the prompt with its fields; an empty field becomes `(none)`. Raises RecipeError if one is missing."""
        if unknown := {*self.needs, *self.optional} - set(fields):
            file = self.name if is_path(self.name) else f"prompts/{self.name}.md"
            raise RecipeError(f"{file}: names {', '.join(sorted(unknown))}; expected only {', '.join(sorted(fields))}.")
        try:
            return self.template.render({name: fields[name] for name in (*self.needs, *self.optional)}).strip()
        except (TemplateError, *_FAULTS) as error:
            raise RecipeError(
                f"{self.name}: cannot be written out ({short(str(error))}); expected a template of its fields. Fix the file."
            ) from error

    @property
    def compares_answers(self) -> bool:
        """True if it asks whether a final answer is correct, so the judge sees the answer instead of a proof."""
        return self.verdict in ("correct", "judgement") and "answer" in self.needs

    def absent(self, fields: Mapping[str, Any]) -> str | None:
        """Return the first field that the prompt needs and that has no value; None if all have one."""
        return next((name for name in self.needs if not (fields.get(name) or "").strip()), None)


# Exceptions of a template's expressions, and of a parser for hundreds of nested brackets.
_FAULTS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError)
_JINJA = Environment(undefined=StrictUndefined, finalize=enclose, keep_trailing_newline=True)
# With `keeps-tags`, for a prompt that has no block to close: its field may be a judge's prompt, whose tags count.
_TURN = Environment(
    undefined=StrictUndefined, finalize=lambda text: enclose(text and Enclosed(without_control_tokens(text)))
)


def names() -> list[str]:
    """Return the names of all prompts, sorted, a user's own included."""
    folders = (PROMPTS, *further)
    return sorted(
        path.relative_to(folder).with_suffix("").as_posix() for folder in folders for path in folder.rglob("*.md")
    )


def is_path(name: str) -> bool:
    """Return whether a prompt, or a verbatim text, is given as the path of its file."""
    return name.endswith(".md") and "\n" not in name and not is_public(name)


def prompt(name: str) -> Prompt:
    """Load a prompt from a path, an address, prompts/<name>.md, or a user's folder. Raises RecipeError if invalid.

    A text that others published is read when the prompt is filled.
    """
    if is_public(name):
        return Prompt(name, ("statement",), (), None, (), PublishedText(name), "")
    if (file := local_path(name) if is_path(name) else _file(name)) is None:
        raise RecipeError(
            f"prompt `{short(name)}`: is no file in prompts/; expected one of {among(name, names())}. Fix the name."
        )
    return _parse(name, file.parent, *_text_of(file))


def _file(name: str) -> Path | None:
    """Return the file of a named prompt, if there is one. A path through other folders is not a name."""
    if not _NAME.fullmatch(name):
        return None
    return next((file for folder in (PROMPTS, *further) if (file := folder / f"{name}.md").is_file()), None)


def fault(name: str) -> str | None:
    """Return the fault of a prompt's name or path, as the end of a sentence about it; None without one."""
    if not is_path(name) and not is_public(name):
        own = "the path of a file of your own (`prompts/mine.md`), or one of"
        return (
            None
            if _file(name)
            else f"is `{short(name)}`, which is no file in prompts/; expected {own} {among(name, names())}"
        )
    try:
        if isinstance(text := prompt(name).template, PublishedText):
            text.check()
    except MissingData:
        return None  # `plan` names what is to be downloaded
    except ProofmillError as error:
        return f"is {error}"
    return None


def is_known(name: str | None) -> bool:
    """Return whether a prompt can be loaded; None is the default prompt."""
    return name is None or fault(name) is None


def fill(name: str, fields: Mapping[str, Any]) -> str:
    """Fill the prompt `name` with its fields."""
    return prompt(name).render(fields)


def is_file(text: str) -> bool:
    """Return whether a verbatim text is in a file: at a path, or at an address."""
    return is_path(text) or is_public(text)


def plain(text: str) -> str:
    """Return a verbatim text, or the content of the file at its path or address, without a header."""
    if is_public(text):
        return published.read(text).strip()
    return _text_of(local_path(text))[1].strip() if is_path(text) else text


def plain_fault(text: str) -> str | None:
    """Return the fault of a text that is given by a path, as the end of a sentence about it; None without one."""
    try:
        return None if plain(text) else "is empty; expected a text, or none at all."
    except MissingData:
        return None
    except ProofmillError as error:
        return f"is {error}"


def plain_digest(text: str) -> str:
    """Return a digest of the text that `plain` returns; of one by address, of its file and key."""
    return _digest(published.digest(text) if is_public(text) else plain(text))


def _digest(*parts: str) -> str:
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


# ------------------------------------------------------------------------------------------------------------ the files


def _text_of(path: Path) -> tuple[str | None, str]:
    """Return the header and the body of a file, or None and the full text without one."""
    text = read_text(path, "a prompt in Markdown. Check the path in the configuration, or write the file.")
    header = _HEADER.match(text)
    return (header[1], text[header.end() :]) if header else (None, text)


_EXAMPLE = "expected one between two lines of `---`, with `needs: [statement]`"


@lru_cache
def _parse(name: str, folder: Path, header: str | None, body: str) -> Prompt:
    """Parse a prompt from its header and its text. Raises RecipeError with all faults of both."""
    where = name if is_path(name) else f"{name}.md"
    if header is None:
        raise RecipeError(f"{where}: has no header; {_EXAMPLE}.")
    settings = read_yaml(header, f"{where}: its header", "fields such as `needs: [statement]`. Fix the header.")
    theirs: PublishedText | None = None
    if isinstance(settings, dict) and "text" in settings:
        faults, theirs = _parse_published(folder, settings, body)
    else:
        faults = _body_faults(body, settings) if isinstance(settings, dict) else []
    if faults := [*_header_faults(settings), *faults]:
        raise RecipeError(f"{where}: {'; '.join(faults)}. Fix the file.")
    needs, optional, verdict, scale = (settings.get(key) for key in ("needs", "optional", "verdict", "scale"))
    keeps_tags = settings.get("keeps-tags") is True
    text = body if theirs is None else (theirs.fields, theirs.style)
    decides = repr((needs, optional, verdict, scale, text, *(["keeps tags"] if keeps_tags else [])))
    return Prompt(
        name,
        tuple(needs or ()),
        tuple(optional or ()),
        verdict,
        tuple(scale or ()),
        theirs or (_TURN if keeps_tags else _JINJA).from_string(body),
        decides,
    )


def _parse_published(folder: Path, settings: dict[str, Any], body: str) -> tuple[list[str], PublishedText | None]:
    """Return the faults of a header with `text`, and the text; sets `needs` to the fields that are not optional."""
    address, fields, style = (settings.get(key) for key in ("text", "fields", "style"))
    has_own = "needs" in settings or body.strip()
    settings["needs"] = []
    if not isinstance(address, str) or (is_public(address) and registry.fault_of(published.file_of(address))):
        return [
            f"`text` is {shorten(address)}; expected an address such as github:<owner>/<name>@<commit>/<file>#<key>"
        ], None
    if not isinstance(fields, dict) or not _all([*fields], str) or not _all([*fields.values()], str, int):
        return [
            f"`fields` is {shorten(fields)}; expected placeholders and fields, such as `{{problem: statement}}`"
        ], None
    faults = []
    if has_own:
        faults.append("it has `text`, and `needs` or a text of its own; expected only one of them")
    if style not in (None, *published.STYLES):
        faults.append(f"`style` is {shorten(style)}; expected {', '.join(published.STYLES)}")
    optional = settings.get("optional") or []
    settings["needs"] = [
        ours for ours in dict.fromkeys(fields.values()) if isinstance(ours, str) and ours not in optional
    ]
    if not is_public(address):
        address = str(folder / address)
    return faults, PublishedText(address, tuple(fields.items()), style or "format")


def _header_faults(settings: Any) -> list[str]:
    if not isinstance(settings, dict):
        return ["its header is no mapping; expected fields such as `needs: [statement]`"]
    faults = [
        f"`{key}` is {shorten(settings[key])}; expected a list of fields, such as `[statement]`"
        for key in ("needs", "optional")
        if settings.get(key) is not None and not _all(settings[key], str)
    ]
    if settings.get("keeps-tags") not in (None, True):
        faults.append(f"`keeps-tags` is {shorten(settings['keeps-tags'])}; expected true, or no such line")
    if "needs" not in settings:
        faults.append(
            "its header has no `needs`; expected the fields that it shows, such as `needs: [statement]`, or `[]`"
        )
    verdict, scale = settings.get("verdict"), settings.get("scale")
    form = VERDICT_FORMS.get(verdict) if isinstance(verdict, str) else None
    if verdict is not None and form is None:
        faults.append(f"`verdict` is {shorten(verdict)}; expected {', '.join(VERDICT_FORMS)}")
    if (verdict is None) != (scale is None) or (scale is not None and not (scale and _all(scale, int, float))):
        faults.append(
            "`verdict` and `scale` go together; expected both, as in `verdict: points` and `scale: [0, 1, 2]`"
        )
    elif scale and form and not _is_scale(scale, form):
        faults.append(
            f"`scale` is {shorten(scale)}; expected {form.grades}; the highest must be an integer of at least 1"
        )
    return faults


def _is_scale(scale: list[float], form: Form) -> bool:
    """Return whether this form can express each of these grades, and the highest is an integer of at least 1."""
    return all(map(form.says, scale)) and max(scale) >= 1 and max(scale) == int(max(scale))


def _all(value: Any, *kinds: type) -> bool:
    return isinstance(value, list) and all(type(item) in kinds for item in value)


def _body_faults(body: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the faults of the text: invalid Jinja, and fields that the header does not name."""
    try:
        names = meta.find_undeclared_variables(tree := _JINJA.parse(body))
        others = [short(other or "another file") for other in meta.find_referenced_templates(tree)]
        _JINJA.from_string(body)
    except TemplateSyntaxError as error:
        return [f"line {error.lineno} of its text is no template ({short(error.message or '')}); expected Jinja"]
    except (SyntaxError, *_FAULTS) as error:
        return [f"its text is no template ({type(error).__name__}: {short(str(error))}); expected Jinja"]
    if others:
        return [f"its text includes `{others[0]}`; expected one file with the full text. Copy that text into it"]
    if settings.get("keeps-tags") and not _FIELD.fullmatch(body.strip()):
        return [
            "`keeps-tags` is set and its text is more than one field; expected only a field, which has no block to close"
        ]
    lists: list[Any] = [settings.get(key) for key in ("needs", "optional")]
    named = {name for some in lists if _all(some, str) for name in some}
    return [
        f"it shows `{name}`, which is in neither `needs` nor `optional`; expected fields of its header"
        for name in sorted(names - named)
    ]
