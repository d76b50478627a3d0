"""One check says what an entry gets wrong beyond the types of its fields: unknown names, and fields that do not go together.

Each yields sentences; recipes.py puts the place before them and shows all at once.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from graphlib import CycleError, TopologicalSorter
from typing import Any, get_type_hints

from proofmill import arithmetic, filters, measures, named, rewards, rubrics, selectors, templates
from proofmill.kinds import (
    ENTRY_TYPES,
    GIVING,
    MARKING_PROMPT,
    METHODS,
    PROGRAMS,
    SOURCES,
    Api,
    Base,
    Examples,
    Grader,
    Grades,
    Grpo,
    Overlaps,
    Problems,
    Responses,
    Schemes,
    Scores,
    Sft,
    graders_of,
    kind_of,
    ref_of,
    references,
    then_of,
)


def description(cls: type, key: str) -> str:
    docs = {f.name.replace("_", "-"): f.default.description for f in fields(cls)}
    return docs.get(key.split(".")[0], "a value")


def among(found: str, known: Any, limit: int = 8) -> str:
    """The nearest known name first; a short list otherwise."""
    near = difflib.get_close_matches(str(found), [str(k) for k in known], n=1, cutoff=0.6)
    listed = sorted(str(k) for k in known)
    return f"{', '.join(listed[:limit])}{' ...' if len(listed) > limit else ''}" + (
        f". Did you mean `{near[0]}`?" if near else "."
    )


NAMED = {  # which lists of small named things a field of a kind draws on
    ("problems", "keep"): filters.FILTERS,
    ("schemes", "keep"): rubrics.DEMANDS,
    ("examples", "keep"): selectors.SELECTORS,
    ("scores", "measures"): measures.MEASURES,
    ("grpo", "rewards"): rewards.REWARDS,
}


def check(where: str, entry: Any, entries: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[str]:
    """What one entry gets wrong beyond types: unknown references, names, prompts, and fields that do not go together.

    `declared` are all names there are, `entries` those among them that could be read.
    """
    kind = next(k for k, cls in ENTRY_TYPES.items() if cls is type(entry))
    hints = get_type_hints(type(entry), include_extras=True)
    for f in fields(entry):
        value, ref = getattr(entry, f.name), ref_of(hints[f.name])
        key = f.name.replace("_", "-")
        if value is not None and ref is not None:
            for name in [value] if isinstance(value, str) else value:
                if "/" not in name and name in ref.kinds:
                    continue
                if kind_of(name) not in ref.kinds or "/" not in name:
                    yield f"{where}: `{key}` is `{name}`; expected {among(name, ref.kinds, 20)}"
                elif name not in declared:
                    alike = [n for n in declared if kind_of(n) == kind_of(name)]
                    yield f"{where}: `{key}` refers to `{name}`, which no recipe declares; expected one of {among(name, alike)}"
        if (names := NAMED.get((kind, f.name))) is not None:
            for item in value:
                name = named.name_of(item)
                if not isinstance(item, str) and len(item) != 1:
                    yield f"{where}: `{key}` has an item with {len(item)} names: {', '.join(item)}; expected each as an item of its own."
                elif name not in names:
                    yield f"{where}: `{key}` names `{name}`; expected one of {among(name, names, 30)}"
                elif fault := names[name].fault(*((name, value[name]) if kind == "grpo" else (item,))):
                    yield f"{where}: `{key}`: {fault}"
        if f.name in ("prompt", "ask", "tester_prompt") and value is not None and value not in templates.names():
            yield f"{where}: `{key}` is `{value}`, which is no file in prompts/; expected one of {among(value, templates.names())}"
    yield from (f"{where}: {fault}" for fault in _FAULTS.get(kind, lambda *_: [])(entry, entries))


def _api_faults(entry: Api, _: Mapping) -> Iterator[str]:
    paid = isinstance(entry.price, dict) and any(entry.price.values())
    if paid and not re.search(r"\d{4}-\d{2}-\d{2}", entry.price_source):
        yield (
            f"`price-source` is {entry.price_source!r}; expected where the price was read and on which day, such as "
            "`https://example.org/pricing, 2026-11-20`."
        )
    if "response_format" in entry.options or {"model", "messages", "input"} & set(entry.options):
        yield "`options` sets what a question consists of; expected further fields of the request only."


def _problems_faults(entry: Problems, _: Mapping) -> Iterator[str]:
    if "/" in entry.source or entry.source not in SOURCES:
        reads = {"rows"}
    else:
        reads = SOURCES[entry.source]
        if {"path", "id"} & reads and not (entry.path or entry.id):
            yield f"source `{entry.source}` needs {' or '.join(sorted({'path', 'id'} & reads))}; expected one of them."
    for f in fields(entry):
        own = {"source", "labels", "grades", "schemes", "keep", "apart_from", "overlap_words", "overlap_similarity"}
        if f.name not in own | reads and getattr(entry, f.name) not in (f.default.default, [], {}, None):
            yield f"`{f.name}` is not read by source `{entry.source}`; expected only {', '.join(sorted(reads))}. Remove it."
    if entry.source.startswith("arithmetic"):
        if entry.rows is None:
            yield f"source `{entry.source}` needs `rows`; expected how many to make."
        if unknown := [family for family in entry.families if family not in arithmetic.FAMILIES]:
            yield f"`families` names `{unknown[0]}`; expected some of {among(unknown[0], arithmetic.FAMILIES)}"
    if entry.id and not entry.commit:
        yield "a dataset of the hub has `id` and no `commit`; expected the commit that the rows come from. Pin it."
    if any(name in filters.NEEDS_LABELS for name in filters.names_in(entry.keep)) and not entry.labels:
        yield "`keep` asks for labels and `labels` is not given; expected a labels/<name>."
    if "has-scheme" in filters.names_in(entry.keep) and not entry.schemes:
        yield "`keep` asks for a scheme and `schemes` is not given; expected a schemes/<name>."
    if "pass-rate" in filters.names_in(entry.keep) and not entry.grades:
        yield "`keep` asks for a pass rate and `grades` is not given; expected a grades/<name>."


def _base_faults(entry: Base, _: Mapping) -> Iterator[str]:
    needs = {"scratch": "problems", "folder": "path", "hub": "id", "tokenizer": "path"}[entry.source]
    if getattr(entry, needs) is None:
        yield f"source `{entry.source}` needs `{needs}`; expected {description(Base, needs)}."
    if entry.source == "hub" and not entry.commit:
        yield "source `hub` has no `commit`; expected the commit that the weights come from. Pin it."


def _examples_faults(entry: Examples, _: Mapping) -> Iterator[str]:
    given = [key for key in ("problems", "responses", "grades", "mix") if getattr(entry, key)]
    if entry.mix and abs(sum(entry.mix.values()) - 1) > 1e-6:
        yield f"the shares of `mix` add up to {sum(entry.mix.values()):g}; expected 1."
    if entry.mix and entry.keep:
        yield "`keep` stands beside `mix`; expected selectors in the tables that are mixed, before they are mixed."
    if entry.rows and not entry.mix:
        yield "`rows` is for `mix`; expected none here. Use the selector `at-most-per-problem`, or mix with share 1."
    if len(given) != 1:
        yield f"found {' and '.join(given) or 'no source'}; expected exactly one of problems, responses, grades, mix."


def _grader_faults(entry: Grader, entries: Mapping) -> Iterator[str]:
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
    if not programs and entry.prompt in (None, *templates.names()):
        prompt = templates.prompt(entry.prompt or MARKING_PROMPT)
        if prompt.reads is None:
            yield f"prompt `{prompt.name}` asks for no verdict; expected one whose header says what it `reads`."
        if entry.reference and "reference" not in (*prompt.needs, *prompt.takes):
            yield f"prompt `{prompt.name}` shows no reference; expected one that does, or no `reference`."
        if "reference" in prompt.needs and not entry.reference:
            yield f"prompt `{prompt.name}` needs the reference; expected `reference: true`."
    if entry.escalate_to is None and set(entry.escalate_on) != {"unscored"}:
        yield "`escalate-on` is given and `escalate-to` is not; expected who marks then."
    prompts_known = entry.prompt in (None, *templates.names())
    if prompts_known and band and band[1] > full_marks(entry):
        yield f"`escalate-band` is {band}, and marks are out of {full_marks(entry)}; expected a band within them."
    if entry.escalate_to in entries and prompts_known:
        yield from _other_scale(entry, then_of(entry, entries))


def _other_scale(entry: Grader, then: Grader) -> Iterator[str]:
    if then.prompt in (None, *templates.names()) and full_marks(entry) != full_marks(then):
        yield (
            f"marks are out of {full_marks(entry)}, and out of {full_marks(then)} after `escalate-to`; expected one scale. "
            "Choose prompts with the same one."
        )


def full_marks(grader: Grader) -> int:
    """What the marks of a grader are out of."""
    if grader.judges[0] in PROGRAMS:
        return PROGRAMS[grader.judges[0]]
    return max(templates.prompt(grader.prompt or MARKING_PROMPT).scale)


def _judged_faults(entry: Grades | Grpo | Scores | Schemes, entries: Mapping) -> Iterator[str]:
    tests = isinstance(entry, Schemes)
    name, prompt = (entry.tester, entry.tester_prompt) if tests else (entry.grader, entry.prompt)
    known = [*entries, *PROGRAMS]
    if name not in known or prompt not in (None, *templates.names()):
        return
    if prompt and kind_of(name) != "api":
        yield f"`{'tester-' * tests}prompt` is given and `{name}` has its own; expected none."
    if not _ends(name, entries):
        return
    chain = graders_of(name, prompt, entries)
    for grader in chain:
        if grader.judges[0] in PROGRAMS or grader.prompt not in (None, *templates.names()):
            continue
        rubric = templates.prompt(grader.prompt or MARKING_PROMPT)
        if rubric.reads is None:
            yield f"prompt `{rubric.name}` asks for no verdict; expected one whose header says what it `reads`."
            return
        if kind_of(name) == "api" and "reference" in rubric.needs:
            yield f"prompt `{rubric.name}` needs the reference; expected a `grader/<name>` with `reference: true`."
        if "scheme" in rubric.needs and not tests and not entry.schemes:
            yield f"prompt `{rubric.name}` shows the judge a scheme and `schemes` is not given; expected a schemes/<name>."
    if tests and chain[0].prompt in (None, *templates.names()) and full_marks(chain[0]) != rubrics.FULL_MARKS:
        yield f"`tester` gives marks out of {full_marks(chain[0])}; expected one that marks by the scheme, out of {rubrics.FULL_MARKS}."


def _ends(name: str, entries: Mapping) -> bool:
    """Whether all graders that one escalates to are there, and none comes twice."""
    seen: set[str] = set()
    while kind_of(name) == "grader":
        if name in seen or name not in entries:
            return False
        seen.add(name)
        if (then := entries[name].escalate_to) is None:
            return True
        name = then
    return name in (*entries, *PROGRAMS)


def _sft_faults(entry: Sft, _: Mapping) -> Iterator[str]:
    if (entry.steps is None) == (entry.epochs is None):
        yield "expected exactly one of `steps` and `epochs`."


def _schemes_faults(entry: Schemes, entries: Mapping) -> Iterator[str]:
    yield from _judged_faults(entry, entries)
    tests = [name for name in map(named.name_of, entry.keep) if name in rubrics.TESTS]
    if tests and not entry.tester:
        yield f"`keep` asks for `{tests[0]}` and `tester` is not given; expected who marks the known answers."


def _overlaps_faults(entry: Overlaps, _: Mapping) -> Iterator[str]:
    if not entry.methods:
        yield f"`methods` is empty; expected some of {', '.join(METHODS)}."


def _responses_faults(entry: Responses, entries: Mapping) -> Iterator[str]:
    yield from _asking_faults("prompt", entry.prompt)
    if entry.model == "given" and (source := _source_of(entry.problems, entries)) and source not in GIVING:
        yield f"`model: given` and source `{source}` holds no attempts; expected one of {', '.join(GIVING)}."


def _asking_faults(field: str, name: str) -> Iterator[str]:
    """A solver is shown the statement and nothing else."""
    if name in templates.names() and (more := set(templates.prompt(name).needs) - {"statement"}):
        yield f"`{field}` is `{name}`, which shows {', '.join(sorted(more))}; expected a prompt that shows the statement alone."


def _grades_faults(entry: Grades, entries: Mapping) -> Iterator[str]:
    yield from _judged_faults(entry, entries)
    responses = entries.get(entry.responses)
    if entry.grader == "human" and responses is not None and responses.model != "given":
        yield f"`grader: human` and {entry.responses} are not given ones; expected attempts that came with human marks."


def _measure_faults(entry: Scores, entries: Mapping) -> Iterator[str]:
    """Measures that need another field, and comparisons of what is not measured."""
    kernels = {m: measures.MEASURES[m].apply for m in map(named.name_of, entry.measures) if m in measures.MEASURES}
    for name, kernel in kernels.items():
        if isinstance(kernel, measures.OfHuman) and not entry.human:
            yield f"`{name}` compares with human marks and `human` is not given; expected a grades/<name> by `human`."
        for k in [named.split(item)[1] for item in entry.measures if named.name_of(item) == name]:
            short = [way for way, sampling in entry.sampling.items() if type(k) is int and sampling.attempts < k]
            if isinstance(kernel, measures.OfProblem) and len(short) == len(entry.sampling) > 0:
                yield f"`{name}` is of {k} attempts, and no way of `sampling` has so many; expected `attempts` of {k} or more."
        if getattr(kernel, "needs", "") == "selecting" and not entry.selected_by:
            yield f"`{name}` needs `selected-by`; expected the grades that select, for each of `grades`."
    if entry.human in entries and entries[entry.human].grader != "human":
        yield f"`human` is {entry.human}, which is marked by {entries[entry.human].grader}; expected grades by `human`."
    if entry.human and entry.models:
        yield "`human` marks are of attempts that are there; expected `grades` of the same responses instead of `models`."
    for pair in entry.compare:
        if len(pair) != 2:
            yield f"`compare` has {pair}; expected pairs `[model, baseline]`."
        elif entry.models and (strange := [model for model in pair if model not in entry.models]):
            yield f"`compare` names `{strange[0]}`, which is not measured; expected one of {among(strange[0], entry.models)}"


def _source_of(name: str, entries: Mapping) -> str | None:
    """The loader behind a problems table; None where a name on the way is unknown or they go round in a circle."""
    seen: set[str] = set()
    while "/" in name:
        if name in seen or name not in entries:
            return None
        seen.add(name)
        name = entries[name].source
    return name


def _scores_faults(entry: Scores, entries: Mapping) -> Iterator[str]:
    yield from _judged_faults(entry, entries)
    if len(set(entry.seeds)) < len(entry.seeds):
        yield f"`seeds` are {entry.seeds}; expected each once."
    for way, sampling in entry.sampling.items():
        yield from (f"sampling `{way}`: {fault}" for fault in _asking_faults("prompt", sampling.prompt))
        if sampling.prompt not in templates.names():
            known = among(sampling.prompt, templates.names())
            yield f"sampling `{way}`: `prompt` is `{sampling.prompt}`, which is no file in prompts/; expected one of {known}"
    known = {m: measures.MEASURES[m].apply for m in map(named.name_of, entry.measures) if m in measures.MEASURES}
    of_attempts = [m for m, kernel in known.items() if not isinstance(kernel, measures.OfCorpus | None)]
    of_texts = [m for m, kernel in known.items() if isinstance(kernel, measures.OfCorpus)]
    if of_texts and not (entry.problems and entry.tokenizer):
        yield f"`{of_texts[0]}` measures the texts of problems; expected `problems` and a `tokenizer`."
    if of_attempts and not (entry.models or entry.grades or entry.repeat):
        yield f"`{of_attempts[0]}` measures attempts and there are none; expected models, grades or repeat."
    yield from _measure_faults(entry, entries)
    if entry.repeat and (not entry.seeds or entry.models or entry.grades or entry.problems):
        yield "`repeat` needs `seeds`, and nothing else that is measured; expected `repeat`, `seeds` and `measures`."
    elif not (entry.repeat or entry.measures):
        yield "`measures` is missing; expected named measures."
    elif not (entry.repeat or entry.models or entry.grades or entry.problems):
        yield "nothing to measure; expected models and problems, grades, problems, or repeat."
    if entry.models and not (entry.problems and entry.sampling and entry.grader):
        yield "`models` needs `problems`, `sampling` and `grader`; expected all four."
    if entry.schemes and len(entry.schemes) != len(entry.problems):
        yield f"{len(entry.schemes)} schemes for {len(entry.problems)} benchmarks; expected a scheme for each, in the same order."


_FAULTS: dict[str, Any] = {
    "api": _api_faults,
    "problems": _problems_faults,
    "grader": _grader_faults,
    "overlaps": _overlaps_faults,
    "schemes": _schemes_faults,
    "responses": _responses_faults,
    "grades": _grades_faults,
    "grpo": _judged_faults,
    "base": _base_faults,
    "examples": _examples_faults,
    "sft": _sft_faults,
    "scores": _scores_faults,
}


def cycles(entries: Mapping[str, Any]) -> Iterator[str]:
    try:
        TopologicalSorter({name: references(entry) for name, entry in entries.items()}).prepare()
    except CycleError as error:
        yield f"entries go round in a circle: {' <- '.join(error.args[1])}; expected each to be made from earlier ones."
