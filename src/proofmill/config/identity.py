"""Compute the identity of an artifact: what determines its rows, except the content of its parents and source files.

It has the entry, the revision of its kind, its prompts, models and graders, and the plugin parts that it names.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from proofmill.config import plugins
from proofmill.graders.escalation import graders_of
from proofmill.graders.program_graders import PROGRAMS
from proofmill.prompts import published, templates
from proofmill.public_data.registry import is_public
from proofmill.scaffolds import scaffolds
from proofmill.schema.fields import GRADER_PROMPT
from proofmill.schema.kinds import KINDS
from proofmill.schema.references import canonical, list_used, references_by_word
from proofmill.schema.registry_items import name_of

PIECE = 30_000  # characters of up to four bytes each; Linux allows arguments below 128 KiB


def prompts_of(entry: Any, declared: Mapping[str, Any]) -> dict[str, str]:
    """Return the prompts of an entry, including system prompt files, with their digests. An edit changes the identity."""
    texts = {text: templates.plain_digest(text) for text in entry.texts() if templates.is_file(text)}
    return {name: templates.prompt(name).digest for name in _prompt_names(entry, declared)} | texts


def prompt_files(entry: Any, declared: Mapping[str, Any]) -> list[str]:
    """Return the addresses of the public files that an entry reads prompts from."""
    texts = [*entry.texts(), *(templates.prompt(name).address or "" for name in _prompt_names(entry, declared))]
    return list(dict.fromkeys(published.file_of(text) for text in texts if is_public(text)))


def _prompt_names(entry: Any, declared: Mapping[str, Any]) -> dict[str, None]:
    names = dict.fromkeys(entry.prompt_names())
    for config in entry.scaffolds().values():
        names |= dict.fromkeys(scaffolds.chosen(config).prompt_names())
    for name, prompt in entry.graders():
        names |= dict.fromkeys(_prompts_of_grader(name, prompt, declared))
    return names


def _prompts_of_grader(name: str, prompt: str | None, declared: Mapping[str, Any]) -> Iterator[str]:
    """Yield the prompts of a grader, of its further rounds, and of the graders that it escalates to."""
    if name in PROGRAMS:
        return
    for grader in graders_of(name, prompt, declared):
        if grader.judges[0] not in PROGRAMS:
            yield grader.prompt or GRADER_PROMPT
        if grader.rounds:
            yield "reconsider"
        if grader.normalizer:
            yield "normalize"


def parts_of(entry: Any, declared: Mapping[str, Any]) -> dict[str, str]:
    """Return the plugin parts that an entry or its graders name, with a digest of each part's code."""
    named = [(word, name_of(item)) for field, word in _registries(entry) for item in getattr(entry, field)]
    for some in (entry, *list_used(entry, declared).values()):
        named += [(word, value) for word, value in references_by_word(some) if "/" not in value]
    chosen = [scaffolds.chosen(config) for config in entry.scaffolds().values()]
    named += [("scaffolds", each.name) for whole in chosen for each in whole.all()]
    digests = {f"{word}/{name}": plugins.digest_of(word, name) for word, name in named}
    return {part: digest for part, digest in digests.items() if digest}


def _registries(entry: Any) -> tuple[tuple[str, str], ...]:
    return next((kind.registries for kind in KINDS.values() if kind.entry is type(entry)), ())


def _row_fields(entry: Any) -> dict[str, Any]:
    """Return the fields of an entry that can change rows."""
    fields = {name: value for name, value in json.loads(canonical(entry)).items() if name not in entry.cosmetic}
    return fields | dict(entry.transport)


def identity_of(entry: Any, declared: Mapping[str, Any]) -> str:
    """Return the identity as JSON with sorted keys."""
    relied = {name: _row_fields(value) for name, value in list_used(entry, declared).items()}
    decides = {
        "entry": _row_fields(entry),
        "revision": type(entry).revision,
        "prompts": prompts_of(entry, declared),
        "declared": relied,
    }
    if relied_on := entry.relies_on():
        decides["relies_on"] = relied_on
    if parts := parts_of(entry, declared):
        decides["plugins"] = parts
    return json.dumps(decides, sort_keys=True, ensure_ascii=False)


def arguments(identity: str) -> str | list[str]:
    """Return an identity as the value of `--entry`: one argument, or several if it is long. None begins with `-`."""
    pieces = re.findall(rf"(?s).{{1,{PIECE}}}(?!-)", identity)
    return pieces if len(pieces) > 1 else identity
