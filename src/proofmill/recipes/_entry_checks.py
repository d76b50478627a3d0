"""Checks of an entry by its kind: fields that do not go together, and names that do not exist.

Each check yields sentences. checks.py puts the place of the entry before them, and book.py reports all at once.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from proofmill.arithmetic import congruences
from proofmill.filters.problems import FILTERS
from proofmill.filters.schemes import DEMANDS, FULL_MARKS
from proofmill.graders.escalation import full_marks, graders_of
from proofmill.graders.programs import PROGRAMS
from proofmill.measures import averages, budgets, claims
from proofmill.measures.measures import MEASURES, OfCorpus, OfHuman, OfProblem
from proofmill.prompts import templates
from proofmill.recipes._grader_checks import api_faults, ends, grader_faults, judged_faults, marking_faults
from proofmill.runtime.public_data import fault_of, is_public
from proofmill.schema import named
from proofmill.schema.entries import JUDGE, METHODS, Examples, Grades, Labels, Overlaps, Problems, Responses, Schemes
from proofmill.schema.fields import ASKED, description_of, info_of
from proofmill.schema.model_entries import Base, Grpo, Sft
from proofmill.schema.names import WAY, kind_of
from proofmill.schema.scores_entry import Sampling, Scores
from proofmill.schema.selfplay_entry import Selfplay
from proofmill.sources import conversations
from proofmill.sources.loaders import SOURCES
from proofmill.text.suggestions import among


def _problems_faults(entry: Problems, _: Mapping) -> Iterator[str]:
    if "/" in entry.source or entry.source not in SOURCES:
        reads = frozenset({"rows"})
    else:
        reads = SOURCES[entry.source].reads
        if {"path", "id"} & reads and not (entry.path or entry.id):
            yield f"source `{entry.source}` needs {' or '.join(sorted({'path', 'id'} & reads))}; expected one of them."
    for f in fields(entry):
        own = {"source", "labels", "grades", "schemes", "also", "asks", "keep", "apart_from", "overlap_words"}
        own |= {"overlap_similarity"}
        if f.name not in own | reads and getattr(entry, f.name) not in (info_of(f).default, [], {}, None):
            yield f"`{f.name}` is not read by source `{entry.source}`; expected only {', '.join(sorted(reads))}. Remove it."
    if known := SOURCES[entry.source].families if entry.source in SOURCES else ():
        if entry.rows is None:
            yield f"source `{entry.source}` needs `rows`; expected how many to make."
        if unknown := [family for family in entry.families if family not in known]:
            yield f"`families` names `{unknown[0]}`; expected some of {among(unknown[0], known)}"
        if "sizes" in reads:
            yield from congruences.size_faults(entry.sizes)
    if entry.path and entry.id:
        yield "found both `path` and `id`; expected one of them."
    yield from _address_faults(entry.path)
    if entry.id and not entry.commit:
        yield "a dataset of the hub has `id` and no `commit`; expected the commit that the rows come from. Pin it."
    for name in map(named.name_of, entry.keep):
        needs = FILTERS[name].needs if name in FILTERS else None
        if needs and not getattr(entry, needs):
            yield f"`keep` has `{name}`, which asks for `{needs}`, and `{needs}` is not given; expected a {needs}/<name>."


def _address_faults(path: str | None) -> Iterator[str]:
    if path and is_public(path) and (fault := fault_of(path)):
        yield fault


def _base_faults(entry: Base, _: Mapping) -> Iterator[str]:
    needs = "source" if "/" in entry.source else {"scratch": "problems", "hub": "id"}.get(entry.source, "path")
    if getattr(entry, needs) is None and not (entry.source == "tokenizer" and entry.id):
        yield f"source `{entry.source}` needs `{needs}`; expected a value. {description_of(Base, needs)}"
    if entry.path and entry.id:
        yield "found both `path` and `id`; expected one of them."
    if "/" in entry.source and (entry.path or entry.id):
        yield f"source `{entry.source}` is an entry, and `path` or `id` is given; expected neither. Remove it."
    if entry.source == "tokenizer" and (entry.context or entry.rope_theta):
        yield "source `tokenizer` has no weights, and `context` or `rope-theta` is given; expected neither."
    if entry.template not in (None, "plain") and not entry.template.endswith((".jinja", ".jinja2", ".j2")):
        yield f"`template` is `{entry.template}`; expected `plain`, or a file such as `chat.jinja`."
    if entry.id and not entry.commit:
        yield f"source `{entry.source}` has `id` and no `commit`; expected the commit that the files come from. Pin it."


def _examples_faults(entry: Examples, _: Mapping) -> Iterator[str]:
    yield from _asking_faults("prompt", entry.prompt)
    sources = [key for key in ("problems", "responses", "grades", "mix", "join", "source") if getattr(entry, key)]
    if entry.mix and abs(sum(entry.mix.values()) - 1) > 1e-6:
        yield f"the shares of `mix` add up to {sum(entry.mix.values()):g}; expected 1."
    if (entry.mix or entry.join) and entry.keep:
        yield "`keep` stands beside `mix` or `join`; expected selectors in the tables that are mixed, before they are mixed."
    if entry.rows and not (entry.mix or entry.source):
        yield "`rows` is for `mix` and `source`; expected none here. Use the selector `at-most-per-problem`, or mix with share 1."
    if len(sources) != 1:
        yield f"found {' and '.join(sources) or 'no source'}; expected exactly one of problems, responses, grades, mix, join, source."
    yield from _conversations_faults(entry)


def _conversations_faults(entry: Examples) -> Iterator[str]:
    """Where conversations of others are read from, and what their columns are called."""
    needs = {"table": "path", "hub": "id", None: None}[entry.source]
    if needs and not getattr(entry, needs):
        yield f"source `{entry.source}` needs `{needs}`; expected a value. {description_of(Examples, needs)}"
    read = {"table": ("path", "columns"), "hub": ("id", "commit", "config", "split", "columns"), None: ()}[entry.source]
    for key in ("path", "id", "commit", "config", "columns"):
        if getattr(entry, key) and key not in read:
            yield f"`{key}` is given and {f'source `{entry.source}` does not read it' if entry.source else '`source` is not'}; expected `source: {'table' if key == 'path' else 'hub'}`, or no `{key}`."
    if entry.id and not entry.commit:
        yield "a dataset of the hub has `id` and no `commit`; expected the commit that the rows come from. Pin it."
    if unknown := [column for column in entry.columns if column not in conversations.COLUMNS]:
        yield f"`columns` names `{unknown[0]}`; expected some of {among(unknown[0], conversations.COLUMNS)}"
    if len({"prompt", "completion"} & {*entry.columns}) == 1:
        yield "`columns` names one of `prompt` and `completion`; expected both."


def _sft_faults(entry: Sft, entries: Mapping) -> Iterator[str]:
    if (entry.steps is None) == (entry.epochs is None):
        yield "expected exactly one of `steps` and `epochs`."
    if entry.evaluate and entry.evaluate_share:
        yield "found both `evaluate` and `evaluate-share`; expected the loss measured on one of them."
    if entry.evaluate == entry.examples:
        yield f"`evaluate` is {entry.evaluate}, which is learned; expected other examples, or `evaluate-share` of these."
    if entry.last_step and entry.steps and entry.last_step > entry.steps:
        yield f"`last-step` is {entry.last_step} of {entry.steps} `steps`; expected that or less."
    if entry.floor and entry.schedule != "cosine":
        yield f"`floor` is where a cosine ends, and `schedule` is `{entry.schedule}`; expected `cosine`, or no floor."
    if isinstance(before := entries.get(entry.continues), Sft):
        yield from (f"continues {entry.continues}, {fault}" for fault in _continuing_faults(entry, before))


def _continuing_faults(entry: Sft, before: Sft) -> Iterator[str]:
    """Why a training cannot go on from the end of another as if both were one."""
    own = ("steps", "epochs", "last_step", "continues", "keep_state")
    differing = [f.name for f in fields(Sft) if f.name not in own and getattr(entry, f.name) != getattr(before, f.name)]
    if differing:
        yield f"which has another `{differing[0].replace('_', '-')}`; expected one training. For another, begin anew: `model: {entry.continues}`."
    elif (entry.steps, entry.epochs) == (before.steps, before.epochs):
        if before.last_step is None or (entry.last_step or math.inf) <= before.last_step:
            yield "and ends where that ends; expected more `steps`, `epochs`, or a later `last-step`."
    elif before.schedule != "constant":
        yield (
            f"whose schedule `{before.schedule}` is laid out for {before.steps or before.epochs} {'steps' if before.steps else 'epochs'} and would be another one "
            f"for more; expected `schedule: constant`, or the whole length in both and a `last-step` in {entry.continues}. For more steps with a schedule of their own, begin anew: "
            f"`model: {entry.continues}`."
        )
    elif (entry.steps is None) != (before.steps is None):
        yield f"which counts in `{'steps' if before.steps else 'epochs'}`; expected the same here."
    elif (entry.last_step or entry.steps or entry.epochs or 0) <= (
        before.last_step or before.steps or before.epochs or 0
    ):
        yield "and ends before that ends; expected more `steps` or `epochs`."


def _default(cls: Any, *names: str) -> tuple:
    defaults = {f.name: info_of(f).default for f in fields(cls)}
    return tuple(defaults[name] for name in names)


def _grpo_faults(entry: Grpo, entries: Mapping) -> Iterator[str]:
    yield from judged_faults(entry, entries)
    yield from _asking_faults("ask", entry.ask)
    if not (entry.rewards or entry.preferences):
        yield "nothing is rewarded; expected `rewards`, `preferences`, or both."
    yield from _preference_faults(entry, entries)
    if entry.policy == "reinforce" and entry.loss != "sequence_sum":
        yield f"`policy: reinforce` and `loss: {entry.loss}`; expected `loss: sequence_sum`, whose tokens it weighs."
    if entry.sync_reference and (not entry.kl or entry.adapter):
        yield "`sync-reference` needs a reference of its own; expected `kl` above 0 and no `adapter`."
    if entry.hold_out:
        yield from marking_faults(entry.hold_out, entry.hold_out_prompt, entry.schemes, entries, "hold-out-prompt")
    elif entry.hold_out_apart is not None or entry.hold_out_prompt:
        yield "a setting of the second grader is given and `hold-out` is not; expected who it is."
    if entry.hold_out and (entry.hold_out, entry.hold_out_prompt) == (entry.grader, entry.prompt):
        yield f"`hold-out` is {entry.hold_out}, which rewards; expected another grader, or another prompt."
    unlike = {"kl": entry.kl, "iterations": entry.iterations > 1, "batches": entry.batches > 1} | {
        "top-p": entry.top_p < 1, "top-k": entry.top_k, "min-p": entry.min_p, "summarizer": entry.summarizer,
    }  # fmt: skip
    if entry.lag and (found := [name for name, is_set in unlike.items() if is_set]):
        said = "rollouts that are drawn from all tokens and learned once, and no reference"
        yield f"`lag` is {entry.lag} beside `{'`, `'.join(found)}`; expected {said}."
    if entry.lag and entry.adapter and entry.adapter.get("quantized"):
        yield "`lag` beside an `adapter` that is quantized; expected one that is not, or `lag: 0`."
    if not entry.summarizer and (entry.turns, entry.states) != _default(Grpo, "turns", "states"):
        yield "`turns` or `states` is given and `summarizer` is not; expected who sums up."
    if entry.summarizer:
        yield from _asking_faults("turn-prompt", entry.turn_prompt, ("statement", "summary"))
        yield from _asking_faults("summary-prompt", entry.summary_prompt, ("statement", "summary", "reasoning"))
        if entry.states > entry.turns + 1:
            yield f"`states` is {entry.states} of {entry.turns} turns and the one after; expected at most {entry.turns + 1}."
        if entry.problems_per_step * entry.batches % entry.states:
            yield f"`problems-per-step` are groups, {entry.states} for each problem; expected a multiple of `states`."


def _preference_faults(entry: Grpo, entries: Mapping) -> Iterator[str]:
    names = [name.partition("/")[2] for name in entry.preferences]
    for name in names:
        if name in entry.rewards or names.count(name) > 1:
            yield f"two rewards are called `{name}`; expected a name for each. Rename the one in `preferences`."
    for name, settings in entry.preferences.items():
        if settings.get("from_step", 0) > entry.steps:
            yield f"`preferences` > `{name}` counts from step {settings['from_step']} of {entry.steps}; expected that or an earlier one."
        if getattr(entries.get(name), "source", "") == "scratch":
            yield f"`preferences` > `{name}` is a model of random weights; expected a reward model, from a folder or the hub."
        prompt = settings.get("prompt")
        if prompt is not None and (fault := templates.fault(str(prompt))):
            yield f"`preferences` > `{name}`: `prompt` {fault}"
        elif kind_of(name) not in ASKED and prompt:
            yield f"`preferences` > `{name}` is a reward model and asked nothing; expected no `prompt`."
        elif kind_of(name) == "api" and not prompt:
            yield f"`preferences` > `{name}` is a judge asked alone; expected its `prompt`, such as `prefer-helpful`."
        elif kind_of(name) in ASKED:
            yield from (f"`preferences` > `{name}`: {f}" for f in marking_faults(name, prompt, None, entries))


def _selfplay_faults(entry: Selfplay, _: Mapping) -> Iterator[str]:
    for part, prompt in entry.reworded.items():
        if fault := templates.fault(prompt):
            yield f"`reworded` > `{part}` {fault}"
        usual = templates.prompt(f"{entry.wording}/{part}")
        yield from _asking_faults(f"reworded` > `{part}", prompt, (*usual.needs, *usual.takes))
    if twice := [task for task in dict.fromkeys(entry.tasks) if entry.tasks.count(task) > 1]:
        yield f"`tasks` names `{twice[0]}` {entry.tasks.count(twice[0])} times; expected each once."
    if entry.proposer == "absent" and entry.seed_tasks is None:
        yield "`proposer` is absent and there are no `seed-tasks`; expected tasks to solve, as problems/<name>."
    if entry.proposer != "trained":
        for field in ("intrinsic", "learnability"):
            if (getattr(entry, field),) != _default(Selfplay, field) and getattr(entry, field):
                yield f"`{field}` rewards proposals and `proposer` is {entry.proposer}; expected `trained`, or none of it."
    if entry.composite and not {"abduce", "deduce", "error"} & {*entry.tasks}:
        yield "`composite` is for new programs, and an induction is about a known one; expected another task besides."
    if entry.dual_clip is not None and entry.dual_clip <= 1 + (entry.epsilon_high or entry.epsilon):
        yield f"`dual-clip` is {entry.dual_clip:g}; expected more than 1 + `epsilon-high`, up to which ratios count anyway."


def _labels_faults(entry: Labels, _: Mapping) -> Iterator[str]:
    yield from _asking_faults("prompt", entry.prompt, ("statement", "solution", "origin", "comments"))


def _schemes_faults(entry: Schemes, entries: Mapping) -> Iterator[str]:
    yield from _asking_faults("prompt", entry.prompt, ("statement", "solution"))
    yield from _address_faults(entry.path)
    if entry.source and entry.model:
        yield "found both `source` and `model`; expected schemes of a table, or a judge that writes them."
    if entry.source and not (entry.path and "scheme" in entry.columns and {"problem", "statement"} & {*entry.columns}):
        yield (
            "`source: table` needs `path` and `columns`; expected `columns` with `scheme`, and `problem` or `statement` by which "
            "a scheme finds its problem."
        )
    if not entry.source and (entry.path or entry.columns):
        yield "found `path` or `columns` without `source`; expected `source: table` beside them."
    yield from marking_faults(entry.tester, entry.tester_prompt, True, entries, "tester-prompt")
    if entry.tester and entry.tester in (*entries, *PROGRAMS) and ends(entry.tester, entries):
        first = graders_of(entry.tester, entry.tester_prompt, entries)[0]
        if templates.is_known(first.prompt) and full_marks(first) != FULL_MARKS:
            yield f"`tester` gives marks out of {full_marks(first)}; expected one that marks by the scheme, out of {FULL_MARKS}."
    for name in map(named.name_of, entry.keep):
        if name in DEMANDS and DEMANDS[name].needs and not entry.tester:
            yield f"`keep` asks for `{name}` and `tester` is not given; expected who marks the known answers."


def _overlaps_faults(entry: Overlaps, _: Mapping) -> Iterator[str]:
    if not entry.methods:
        yield f"`methods` is empty; expected some of {', '.join(METHODS)}."
    if (JUDGE in entry.methods) != (entry.model is not None):
        found = f"`methods` are {', '.join(entry.methods)} and `model` is {entry.model or 'not given'}"
        yield f"{found}; expected both `{JUDGE}` and a `model`, or neither."
    if entry.model:
        yield from _asking_faults("prompt", entry.prompt, ("statement", "other"))
        if templates.is_known(entry.prompt) and templates.prompt(entry.prompt).reads is None:
            yield f"prompt `{entry.prompt}` asks for no verdict; expected one whose header says what it `reads`."


def _responses_faults(entry: Responses, entries: Mapping) -> Iterator[str]:
    yield from _asking_faults("prompt", entry.prompt)
    yield from _sampling_faults(entry.model, entry, entries)
    if entry.scaffold is not None and entry.taken:
        yield "attempts that are there already are not asked for, and `scaffold` is given; expected a model, or no scaffold."
    if entry.rollouts and kind_of(entry.model) != "grpo":
        yield f"`rollouts` of `{entry.model}`; expected a grpo/<name>, which keeps what it was trained on."
    if entry.model == "given" and (source := _source_of(entry.problems, entries)) and not SOURCES[source].attempts:
        yield f"`model: given` and source `{source}` holds no attempts; expected one of {', '.join(s for s in SOURCES if SOURCES[s].attempts)}."


def _asking_faults(field: str, name: str | None, shown: tuple[str, ...] = ("statement",)) -> Iterator[str]:
    """A prompt that shows more fields than there are; a solver is shown the statement alone."""
    if name is None or not templates.is_known(name):
        return
    prompt = templates.prompt(name)
    if more := {*prompt.needs, *prompt.takes} - {*shown}:
        yield f"`{field}` is `{name}`, which shows {', '.join(sorted(more))}; expected a prompt that shows only {', '.join(shown)}."


def _sampling_faults(model: str, sampling: Responses | Sampling, entries: Mapping) -> Iterator[str]:
    """Settings of the sampling that the model's `options` set for every call, or that its protocol does not have."""
    options = getattr(entries.get(model), "options", {})
    for name, unset in (("top_p", 1), ("top_k", None), ("min_p", None), ("stop", [])):
        if name in options and (value := getattr(sampling, name)) != unset:
            key = name.replace("_", "-")
            yield f"`{key}` is {value} and the `options` of {model} set `{name}`; expected one of the two."
    if sampling.stop and getattr(entries.get(model), "protocol", "chat") == "responses":
        yield f"`stop` is given and the protocol of {model} is `responses`, which has no such field; expected `protocol: chat`, or no `stop`."


def _grades_faults(entry: Grades, entries: Mapping) -> Iterator[str]:
    yield from judged_faults(entry, entries)
    responses = entries.get(entry.responses)
    if entry.grader == "human" and not entry.path and responses is not None and responses.model != "given":
        yield (
            f"`grader: human` and {entry.responses} are not given ones; expected attempts that came with human marks, or the "
            "`path` of marks that were given in `proofmill view`."
        )
    if entry.path and entry.grader != "human":
        yield f"`path` holds marks of people and `grader` is `{entry.grader}`; expected `human`, or no `path`."


def _measure_faults(entry: Scores, entries: Mapping) -> Iterator[str]:
    """Measures without a field that they need, and comparisons of models that are not measured."""
    kernels = {m: MEASURES[m].apply for m in map(named.name_of, entry.measures) if m in MEASURES}
    for name, kernel in kernels.items():
        if isinstance(kernel, OfHuman) and not entry.human:
            yield f"`{name}` compares with human marks and `human` is not given; expected a grades/<name> by `human`."
        for k in [named.split(item)[1] for item in entry.measures if named.name_of(item) == name]:
            short = [way for way, sampling in entry.sampling.items() if type(k) is int and sampling.attempts < k]
            if isinstance(kernel, OfProblem) and len(short) == len(entry.sampling) > 0:
                yield f"`{name}` is of {k} attempts, and no way of `sampling` has so many; expected `attempts` of {k} or more."
        if getattr(kernel, "needs", "") == "selecting" and not entry.selected_by:
            yield f"`{name}` needs `selected-by`; expected the grades that select, for each of `grades`."
    if entry.human in entries and entries[entry.human].grader not in ("human", *PROGRAMS):
        yield f"`human` is {entry.human}, which is marked by {entries[entry.human].grader}; expected grades by `human`, or by a program."
    if entry.human and entry.models:
        yield "`human` marks are of attempts that are there; expected `grades` of the same responses instead of `models`."
    for pair in entry.compare:
        if len(pair) != 2:
            yield f"`compare` has {pair}; expected pairs `[model, baseline]`."
        elif entry.models and (unmeasured := [model for model in pair if model not in entry.models]):
            yield f"`compare` names `{unmeasured[0]}`, which is not measured; expected one of {among(unmeasured[0], entry.models)}"


def _source_of(name: str, entries: Mapping) -> str | None:
    """The loader at the start of a chain of problems tables; None where a name is unknown or the chain is a circle."""
    seen: set[str] = set()
    while "/" in name:
        if name in seen or name not in entries:
            return None
        seen.add(name)
        name = entries[name].source
    return name


def _scores_faults(entry: Scores, entries: Mapping) -> Iterator[str]:
    yield from judged_faults(entry, entries)
    for faults in (averages.faults, budgets.faults, claims.faults):
        yield from faults(entry)
    if len(set(entry.seeds)) < len(entry.seeds):
        yield f"`seeds` are {entry.seeds}; expected each once."
    for way, sampling in entry.sampling.items():
        yield from (f"sampling `{way}`: {fault}" for fault in _asking_faults("prompt", sampling.prompt))
        if sampling.prompt is not None and (fault := templates.fault(sampling.prompt)):
            yield f"sampling `{way}`: `prompt` {fault}"
        if sampling.system is not None and (fault := templates.plain_fault(sampling.system)):
            yield f"sampling `{way}`: `system` {fault}"
        if not WAY.match(way):
            yield f"sampling `{way}` is no name; expected letters, digits, `-`, `_`, `.`, and not `seed-` at its beginning."
        for model in entry.models:
            yield from (f"sampling `{way}`: {fault}" for fault in _sampling_faults(model, sampling, entries))
    kernels = {m: MEASURES[m].apply for m in map(named.name_of, entry.measures) if m in MEASURES}
    of_attempts = [m for m, kernel in kernels.items() if not isinstance(kernel, OfCorpus | None)]
    of_texts = [m for m, kernel in kernels.items() if isinstance(kernel, OfCorpus)]
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


ENTRY_CHECKS: dict[str, Any] = {
    "api": api_faults,
    "problems": _problems_faults,
    "grader": grader_faults,
    "overlaps": _overlaps_faults,
    "labels": _labels_faults,
    "schemes": _schemes_faults,
    "responses": _responses_faults,
    "grades": _grades_faults,
    "grpo": _grpo_faults,
    "base": _base_faults,
    "examples": _examples_faults,
    "sft": _sft_faults,
    "selfplay": _selfplay_faults,
    "scores": _scores_faults,
}
