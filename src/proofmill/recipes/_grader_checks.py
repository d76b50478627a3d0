"""Checks of graders: remote models, judges, juries, cascades, their prompts and scales."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from proofmill.arithmetic import referee
from proofmill.calls import prices
from proofmill.graders.escalation import full_marks, graders_of, then_of
from proofmill.graders.programs import PROGRAMS
from proofmill.prompts import templates
from proofmill.schema.declared import Api, Grader
from proofmill.schema.entries import Grades
from proofmill.schema.fields import MARKING_PROMPT
from proofmill.schema.model_entries import Grpo
from proofmill.schema.names import kind_of
from proofmill.schema.scores_entry import Scores

# To a judge that marks (graders/judges.py).
SHOWN = ("statement", "proof", "scheme", "reference", "answer", "judgement")

# Fields of a request that a question consists of, that an entry has a word for, or that would change what comes back.
DECIDED = (
    *("model", "messages", "input", "instructions", "prompt", "previous_response_id", "conversation"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "temperature", "seed", "logprobs", "n"),
    *("stream", "stream_options", "background", "store", "include", "response_format"),
)


def api_faults(entry: Api, _: Mapping) -> Iterator[str]:
    if (entry.id is None) == (entry.weights is None):
        yield "found both `id` and `weights`, or none; expected the id of a server's model, or a model of ours that plays it."
    if entry.weights and entry.temperature is None:
        yield "`weights` play the server and `temperature` is not given; expected one, since no server chooses it."
    if entry.weights and (
        unread := [name for name in ("program", "options", "omit", "delimiters") if getattr(entry, name)]
    ):
        yield f"`weights` play the server, and `{unread[0]}` is for another; expected none. Remove it."
    if "temperature" in entry.omit and entry.temperature not in (None, 1):
        yield (
            f"`omit` has `temperature`, and `temperature` is {entry.temperature:g}; expected one of them. Remove `temperature`, "
            "which the server then chooses, or take it out of `omit`."
        )
    if prices.price_of(entry) is None:
        yield (
            f"has no `price`, and data/prices.csv has none for `{entry.id}`; expected `{{input: , output: }}` in dollars per "
            "million tokens, with `price-source`, or `unknown`."
        )
    paid = isinstance(entry.price, dict) and any(entry.price.values())
    if paid and not re.search(r"\d{4}-\d{2}-\d{2}", entry.price_source):
        yield (
            f"`price-source` is {entry.price_source!r}; expected where the price was read and on which day, such as "
            "`https://example.org/pricing, 2026-11-20`."
        )
    if overruled := [name for name in DECIDED if name in entry.options]:
        yield (
            f"`options` sets {', '.join(f'`{name}`' for name in overruled)}, which an entry or the asking decides; expected "
            "further fields of the request only."
        )
    elif entry.program == "referee" and (fault := referee.option_fault(entry.options)):
        yield f"`options`: {fault}"


def grader_faults(entry: Grader, entries: Mapping) -> Iterator[str]:
    programs = [name for name in entry.judges if name in PROGRAMS]
    if programs and len(entry.judges) > 1:
        yield f"`judges` has the program `{programs[0]}` beside others; expected it alone. Name the others in `escalate-to`."
    if programs and (entry.prompt or entry.rounds or entry.normalizer or entry.reference):
        yield f"`{programs[0]}` is a program and asked nothing; expected no prompt, rounds, normalizer or reference."
    if entry.rounds and len(entry.judges) < 2:
        yield "`rounds` needs judges who can disagree; expected at least two."
    if entry.quorum > len(entry.judges):
        yield f"`quorum` is {entry.quorum} of {len(entry.judges)} judges; expected at most as many as there are."
    band = entry.escalate_band
    if bool(band) != ("band" in entry.escalate_on) or (band and (len(band) != 2 or band[0] > band[1])):
        yield f"`escalate-band` is {band}; expected `[<least>, <most>]`, and `band` in `escalate-on`."
    if "disagreement" in entry.escalate_on and len(entry.judges) < 2:
        yield "`escalate-on` names a disagreement and there is one judge; expected at least two."
    if not programs and templates.is_known(entry.prompt):
        prompt = templates.prompt(entry.prompt or MARKING_PROMPT)
        if prompt.reads is None:
            yield f"prompt `{prompt.name}` asks for no verdict; expected one whose header says what it `reads`."
        if entry.reference and "reference" not in (*prompt.needs, *prompt.takes):
            yield f"prompt `{prompt.name}` shows no reference; expected one that does, or no `reference`."
        if "reference" in prompt.needs and not entry.reference:
            yield f"prompt `{prompt.name}` needs the reference; expected `reference: true`."
    if entry.escalate_to is None and set(entry.escalate_on) != {"unscored"}:
        yield "`escalate-on` is given and `escalate-to` is not; expected who marks then."
    prompts_known = templates.is_known(entry.prompt)
    if prompts_known and band and band[1] > full_marks(entry):
        yield f"`escalate-band` is {band}, and marks are out of {full_marks(entry)}; expected a band within them."
    if entry.escalate_to in entries and prompts_known:
        yield from _other_scale(entry, then_of(entry, entries))


def _other_scale(entry: Grader, then: Grader) -> Iterator[str]:
    if templates.is_known(then.prompt) and full_marks(entry) != full_marks(then):
        yield (
            f"marks are out of {full_marks(entry)}, and out of {full_marks(then)} after `escalate-to`; expected one scale. "
            "Choose prompts with the same one."
        )


def judged_faults(entry: Grades | Grpo | Scores, entries: Mapping) -> Iterator[str]:
    yield from marking_faults(entry.grader, entry.prompt, entry.schemes, entries)


def marking_faults(
    name: str | None, prompt: str | None, schemes: Any, entries: Mapping, field: str = "prompt"
) -> Iterator[str]:
    """Faults of a grader and its prompt. `schemes` is what the entry names, or True if every prompt gets a scheme.

    Unknown names are left to the other checks.
    """
    known = [*entries, *PROGRAMS]
    if name is None or name not in known or not templates.is_known(prompt):
        return
    if prompt and kind_of(name) != "api":
        yield f"`{field}` is given and `{name}` has its own; expected none."
    if not ends(name, entries):
        return
    for grader in graders_of(name, prompt, entries):
        if grader.judges[0] in PROGRAMS or not templates.is_known(grader.prompt):
            continue
        rubric = templates.prompt(grader.prompt or MARKING_PROMPT)
        if more := {*rubric.needs, *rubric.takes} - {*SHOWN}:
            yield f"prompt `{rubric.name}` shows {', '.join(sorted(more))}; expected one that shows a judge only {', '.join(SHOWN)}."
        if rubric.reads is None:
            yield f"prompt `{rubric.name}` asks for no verdict; expected one whose header says what it `reads`."
            return
        if "judgement" in rubric.needs:
            yield (
                f"prompt `{rubric.name}` needs a judgement, and there may be none that can be read; expected `takes: "
                "[judgement]`."
            )
        if kind_of(name) == "api" and "reference" in rubric.needs:
            yield f"prompt `{rubric.name}` needs the reference; expected a `grader/<name>` with `reference: true`."
        if "scheme" in rubric.needs and not schemes:
            yield f"prompt `{rubric.name}` shows the judge a scheme and `schemes` is not given; expected a schemes/<name>."


def ends(name: str, entries: Mapping) -> bool:
    """Whether all graders that one escalates to exist, without a circle among them."""
    seen: set[str] = set()
    while kind_of(name) == "grader":
        if name in seen or name not in entries:
            return False
        seen.add(name)
        if (then := entries[name].escalate_to) is None:
            return True
        name = then
    return name in (*entries, *PROGRAMS)
