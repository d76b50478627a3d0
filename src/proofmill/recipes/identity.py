"""The identity of an artifact: what decides its rows besides its parents and its source files.

It has the entry, the revision of its kind, its prompts, models and graders, and the user's own parts that it names.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from proofmill.graders.escalation import graders_of
from proofmill.graders.programs import PROGRAMS
from proofmill.prompts import templates
from proofmill.recipes import plugins
from proofmill.scaffolds import scaffolds
from proofmill.schema.fields import MARKING_PROMPT
from proofmill.schema.kinds import KINDS
from proofmill.schema.named import name_of
from proofmill.schema.references import canonical, references_by_word, relied_on

PIECE = 30_000  # characters, of up to four bytes: Linux takes no argument of 128 KiB


def prompts_of(entry: Any, declared: Mapping[str, Any]) -> dict[str, str]:
    """The prompts that an entry asks with, files of system prompts too, and a digest of each: edited, they make other rows."""
    names = dict.fromkeys(entry.prompts())
    for config in entry.scaffolds().values():
        names |= dict.fromkeys(scaffolds.chosen(config).prompt_names())
    for name, prompt in entry.graders():
        names |= dict.fromkeys(_prompts_of_grader(name, prompt, declared))
    texts = {text: templates.plain_digest(text) for text in entry.texts() if templates.is_path(text)}
    return {name: templates.prompt(name).digest for name in names} | texts


def _prompts_of_grader(name: str, prompt: str | None, declared: Mapping[str, Any]) -> Iterator[str]:
    """The prompts of a grader, of its further rounds, and of the graders that it escalates to."""
    if name in PROGRAMS:
        return
    for grader in graders_of(name, prompt, declared):
        if grader.judges[0] not in PROGRAMS:
            yield grader.prompt or MARKING_PROMPT
        if grader.rounds:
            yield "reconsider"
        if grader.normalizer:
            yield "normalize"


def parts_of(entry: Any, declared: Mapping[str, Any]) -> dict[str, str]:
    """The user's own parts that an entry or its graders name, and a digest of each part's code."""
    named = [(word, name_of(item)) for field, word in _lists(entry) for item in getattr(entry, field)]
    for some in (entry, *relied_on(entry, declared).values()):
        named += [(word, value) for word, value in references_by_word(some) if "/" not in value]
    chosen = [scaffolds.chosen(config) for config in entry.scaffolds().values()]
    named += [("scaffolds", each.name) for whole in chosen for each in whole.all()]
    digests = {f"{word}/{name}": plugins.digest_of(word, name) for word, name in named}
    return {part: digest for part, digest in digests.items() if digest}


def _lists(entry: Any) -> tuple[tuple[str, str], ...]:
    return next((kind.lists for kind in KINDS.values() if kind.entry is type(entry)), ())


def _deciding(entry: Any) -> dict[str, Any]:
    """The fields of an entry that decide rows."""
    fields = {name: value for name, value in json.loads(canonical(entry)).items() if name not in entry.undeciding}
    return fields | dict(entry.transport)


def identity_of(entry: Any, declared: Mapping[str, Any]) -> str:
    """The identity as JSON with sorted keys."""
    relied = {name: _deciding(value) for name, value in relied_on(entry, declared).items()}
    decides = {
        "entry": _deciding(entry),
        "revision": type(entry).revision,
        "prompts": prompts_of(entry, declared),
        "declared": relied,
    }
    if parts := parts_of(entry, declared):
        decides["plugins"] = parts
    return json.dumps(decides, sort_keys=True, ensure_ascii=False)


def arguments(identity: str) -> str | list[str]:
    """An identity as what follows `--entry`: one argument, or several for a long one, none of which looks like a flag."""
    pieces = re.findall(rf"(?s).{{1,{PIECE}}}(?!-)", identity)
    return pieces if len(pieces) > 1 else identity
