"""Expand `scores` over models and benchmarks, and `repeat` over seeds, into separate entries.

Derived names contain `@`, which declared names never do: `responses/grpo-nano@bench@sampled`, `sft/cold@seed-1`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from graphlib import TopologicalSorter
from typing import Any

from proofmill.graders.escalation import PROMPT_FOR, wants
from proofmill.schema.entries.response_entries import Grades, Responses
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.kinds import DECLARED, KINDS
from proofmill.schema.names import cell, kind_of, reseed
from proofmill.schema.references import ancestors, list_used, references


def _values(entry: Any) -> dict:
    return {f.name: getattr(entry, f.name) for f in fields(entry)}


def derive_grades(entry: Scores) -> Iterator[tuple[str, str, str, str]]:
    """Yield (grades name, model, problems, sampling name) of every cell of a `scores` entry."""
    for model in entry.models:
        for problems in entry.problems:
            for way in entry.sampling:
                yield cell("grades", model, problems, way), model, problems, way


def derive_names(entries: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of each table of responses and grades that a `scores` entry derives, with that entry."""
    return {
        cell(kind, model, problems, way): name
        for name, entry in entries.items()
        if kind_of(name) == "scores"
        for _, model, problems, way in derive_grades(entry)
        for kind in ("responses", "grades")
    }


def expand_scores(entries: dict[str, Any], recipes: dict[str, list[str]], mistakes: list[str]) -> None:
    """Add responses and grades for models x benchmarks x sampling settings, and list the grades in the scores."""
    for name in [n for n, entry in entries.items() if kind_of(n) == "scores" and entry.models]:
        entry = entries[name]
        scheme = dict(zip(entry.problems, entry.schemes, strict=True)) if entry.schemes else {}
        cells = list(derive_grades(entry))
        for grades, model, problems, way in cells:
            responses = cell("responses", model, problems, way)
            derived = {
                responses: Responses(
                    problems=problems,
                    model=model,
                    **_sampling_fields(entry, way, model, entries),
                    **_rule_fields(entry, way, model, problems, scheme.get(problems)),
                ),
                grades: Grades(
                    responses=responses,
                    schemes=scheme.get(problems),
                    grader=entry.grader,
                    grader_prompt=entry.grader_prompt,
                ),
            }
            for new, value in derived.items():
                if new in entries and entries[new] != value:
                    mistakes.append(
                        f"{name}: sampling `{way}` has two different definitions for {model} on {problems}; expected one. Rename one of them."
                    )
                entries[new] = value
                for listed in recipes.values():
                    if name in listed and new not in listed:
                        listed.insert(listed.index(name), new)
        entries[name] = Scores(**{**_values(entry), "grades": [*entry.grades, *(cell[0] for cell in cells)]})


def _sampling_fields(entry: Scores, way: str, model: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling fields of a model. By default, a remote model gets the prompt that fits the grader."""
    values = {key: value for key, value in _values(entry.sampling[way]).items() if key not in ("until", "against")}
    if values["prompt"] is None and kind_of(model) == "api":
        values["prompt"] = PROMPT_FOR[wants(str(entry.grader), entry.grader_prompt, entries)]
    return values


def _rule_fields(entry: Scores, way: str, model: str, problems: str, schemes: str | None) -> dict[str, Any]:
    """Return the fields of the rule that ends the problems of a model; none for those that others are compared with."""
    sampling = entry.sampling[way]
    if sampling.until is None or model in sampling.against:
        return {}
    return {
        "until": sampling.until,
        "against": [cell("grades", other, problems, way) for other in sampling.against],
        "error": round(1 - entry.confidence, 9),
        "grader": entry.grader,
        "grader_prompt": entry.grader_prompt,
        "schemes": schemes,
    }


def fill_defaults(entries: dict[str, Any]) -> None:
    """Fill in the default prompt and token limit of responses, which depend on the model.

    A remote model follows instructions and has its own limit. A model trained here gets the prompt of its training.
    """
    for name, entry in entries.items():
        if kind_of(name) == "responses":
            remote = kind_of(entry.model) == "api"
            prompt, most = ("solve-any", entries[entry.model].max_tokens) if remote else ("solve", 128)
            entries[name] = replace(
                entry,
                prompt=prompt if entry.prompt is None else entry.prompt,
                max_tokens=most if entry.max_tokens is None else entry.max_tokens,
            )


def expand_repeats(entries: dict[str, Any], recipes: dict[str, list[str]]) -> None:
    """Expand `repeat: scores/x, seeds: [0, 1]`: add everything that `scores/x` needs, once for each seed.

    That includes graders whose judges are models trained here, so that each seed is judged by its own.
    """
    declared = {n: entry for n, entry in entries.items() if kind_of(n) in DECLARED}
    for name in [n for n, entry in entries.items() if kind_of(n) == "scores" and entry.repeat]:
        entry = entries[name]
        order = TopologicalSorter({n: references(e) for n, e in entries.items()})
        needed = {entry.repeat, *ancestors(entries, entry.repeat)}
        needed |= {n for each in needed for n in list_used(entries[each], declared)}
        chain = [n for n in order.static_order() if n in needed]
        grades: list[str] = []
        selected_by: list[str] = []
        for seed in entry.seeds:
            renamed: dict[str, str] = {}
            for old in chain:
                values = _values(entries[old])
                changed = {key: _rename(value, renamed) for key, value in values.items()}
                if old not in declared and KINDS[kind_of(old)].reseeded:
                    changed["seed"] = values["seed"] + seed
                if seed == 0 or changed == values or kind_of(old) == "scores":
                    continue
                renamed[old] = new = reseed(old, seed)
                entries[new] = type(entries[old])(**changed)
                for listed in recipes.values():
                    if name in listed and old not in declared:
                        listed.insert(listed.index(name), new)
            grades += _rename(entries[entry.repeat].grades, renamed)
            selected_by += _rename(entries[entry.repeat].selected_by, renamed)
        inherited = _values(entries[entry.repeat]) | dict.fromkeys(("models", "problems", "schemes", "sampling"))
        stated = {key: value for key, value in _values(entry).items() if value != getattr(Scores(), key)}
        combined = {**inherited, **stated, "repeat": None, "grades": grades, "selected_by": selected_by, "grader": None}
        entries[name] = Scores(**{key: value for key, value in combined.items() if value is not None})


def _rename(value: Any, renamed: Mapping[str, str]) -> Any:
    """Return a field's value with references to renamed entries replaced."""
    if isinstance(value, str):
        return renamed.get(value, value)
    if isinstance(value, list):
        return [_rename(item, renamed) for item in value]
    if isinstance(value, dict):
        return {_rename(key, renamed): _rename(item, renamed) for key, item in value.items()}
    return value
