"""What a target would make, why, and what it would cost: read from config, tables and journals; nothing is run or asked.

A stage whose parents stand as they will be is counted exactly: its questions are made and looked up in its journal. Of a
stage behind one that will be made again the rows are estimated (`about`), from the table as it is, or from the entries.
Tokens and dollars of a call are learned from the answers in the stage's journal, or else in others with the same model;
without any, from the `guess` of the model; or they are unknown, and it says so. The interval is the 95 % prediction
interval of a sum: n calls of mean m and deviation s learned from k answers cost n m +- 1.96 s sqrt(n + n^2 / k).
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

from proofmill import budget, jobs, kinds, recipes
from proofmill import journal as journals
from proofmill.calls import Questions
from proofmill.inspect.power import forecasts
from proofmill.jobs import Job
from proofmill.progress import clock
from proofmill.recipes import Book, RecipeError
from proofmill.tables import Table, TableError

Z = 1.96
ASKING = ("labels", "schemes", "responses", "grades", "grpo")  # kinds that may ask a model
PROBES = 4  # known answers by which a scheme is tested and that a judge is asked about; a part of them may be missing
LEARNED = ("prompt_tokens", "cached_tokens", "tokens", "reasoning_tokens", "stop")


@dataclass
class Range:
    """A number with its interval; `value` None is unknown."""

    value: float | None = 0.0
    low: float = 0.0
    high: float = 0.0

    def __add__(self, other: "Range") -> "Range":
        """Independent sums: deviations add up by their squares."""
        if self.value is None or other.value is None:
            return Range(None)
        value = self.value + other.value
        down = math.hypot(self.value - self.low, other.value - other.low)
        up = math.hypot(self.high - self.value, other.high - other.value)
        return Range(value, max(0.0, value - down), value + up)

    def shown(self, form: str) -> str:
        """Such as `$4.10 [$3.90, $4.30]`; without the interval where it is no wider than the number."""
        if self.value is None:
            return "unknown"
        ends = [form.format(end) for end in (self.low, self.high)]
        return form.format(self.value) + (f" [{ends[0]}, {ends[1]}]" if len(set(ends)) > 1 else "")


@dataclass
class Stage:
    """One artifact of a plan."""

    name: str
    state: str  # done, restore, make
    why: list[str] = field(default_factory=list)
    exact: bool = True  # the rows are counted, not estimated
    further: bool = False  # answers decide what is asked after them: further rounds, another grader, once more
    rows: int | None = None
    cached: int = 0
    parked: int = 0
    calls: int | None = 0  # to do
    tokens: Range = field(default_factory=Range)
    dollars: Range = field(default_factory=Range)
    learned: str = ""  # from what tokens and dollars are known
    shows: list[str] = field(default_factory=list)  # of scores: which differences it can show
    seconds: float | None = None  # of the last time it was made
    gpus: int | None = None


class Plan:
    """The stages of a target in the order they would run."""

    def __init__(self, book: Book, target: str, results: Path = Path("results")):
        self.book, self.results, self.target = book, results, target
        self.stages: dict[str, Stage] = {}
        self._contents: dict[str, str] = {}  # of tables that stand as they will, or will be brought back
        for name in self._order(target):
            self.stages[name] = self._stage(name)

    @cached_property
    def totals(self) -> Stage:
        """All stages that would run, added up."""
        made = [stage for stage in self.stages.values() if stage.state == "make"]
        total = Stage("all", "make" if made else "done")
        for stage in made:
            total.calls = None if None in (total.calls, stage.calls) else total.calls + stage.calls
            total.tokens, total.dollars = total.tokens + stage.tokens, total.dollars + stage.dollars
        return total

    def _order(self, target: str) -> list[str]:
        name = target.removeprefix(f"{self.results}/").removeprefix("results/").removesuffix(".parquet")
        if name in self.book.recipes:
            wanted = self.book.targets(name)
        elif name in self.book.entries:
            wanted = [name]
        else:
            raise RecipeError(
                f"{target}: no recipe and no artifact; expected one of {', '.join(self.book.recipes)}, or <kind>/<name>."
            )
        needed = {n for w in wanted for n in (w, *kinds.ancestors(self.book.entries, w))}
        order = TopologicalSorter({n: kinds.parents(self.book.entries[n]) for n in self.book.entries}).static_order()
        return [n for n in order if n in needed]

    # ----------------------------------------------------------------------------------------------- one artifact

    def _stage(self, name: str) -> Stage:
        entry, table = self.book.entries[name], Table(name, self.results)
        read = kinds.reads(table.kind, entry, self.book.entries.get)
        remade = [parent for parent in read if self.stages[parent].state == "make"]
        old = _stamp(table)
        stage = Stage(name, "make", seconds=old and old["seconds"], gpus=old and old.get("gpus"))
        stage.why = [f"{parent} will be made" for parent in remade]
        if not remade:
            parents = {parent: self._contents[parent] for parent in read}
            sources = jobs.sources_of(table.kind, entry, self.book.entries.get)
            fingerprint = jobs.fingerprint_of(entry, self.book.declared, parents, sources)
            kept = old if old and old["fingerprint"] == fingerprint else table.kept_stamp(fingerprint)
            if kept:
                stage.state, self._contents[name] = "done" if kept is old else "restore", kept["content"]
                return stage
            stage.why = self._changes(entry, old, parents, sources) if old else ["never made"]
        if isinstance(entry, kinds.Scores):
            stage.shows = list(forecasts(entry, self))
        if table.kind in ASKING:
            self._count(stage, entry, exact=all(self.stages[parent].state == "done" for parent in read))
        return stage

    def _changes(self, entry: Any, old: dict, parents: Mapping[str, str], sources: Mapping[str, str]) -> list[str]:
        """Which field of which entry, which prompt, parent or file differs from what the table was made from."""
        new = json.loads(recipes.identity(entry, self.book.declared))
        found = [
            f"`{key.replace('_', '-')}` {_shown(old['entry'].get(key))} -> {_shown(value)}"
            for key, value in new["entry"].items()
            if old["entry"].get(key) != value
        ]
        found += [f"`{key}` is gone" for key in old["entry"] if key not in new["entry"]]
        found += [f"revision {old['revision']} -> {new['revision']}"] * (old["revision"] != new["revision"])
        found += [
            f"prompt `{name}` was edited"
            for name, text in new["prompts"].items()
            if old["prompts"].get(name, text) != text
        ]
        found += [
            f"{api}: `{key.replace('_', '-')}` {_shown(old['declared'][api].get(key))} -> {_shown(value)}"
            for api, values in new["declared"].items()
            if api in old["declared"]
            for key, value in values.items()
            if old["declared"][api].get(key) != value
        ]
        found += [
            f"{name} has other rows"
            for name, content in parents.items()
            if old["parents"].get(name, content) != content
        ]
        found += [f"{path} was edited" for path, sha in sources.items() if old["sources"].get(path, sha) != sha]
        return found or ["made by another version of the project"]

    # ------------------------------------------------------------------------------------------------------- calls

    def _count(self, stage: Stage, entry: Any, exact: bool) -> None:
        """Rows cached, to do and parked, and what those to do would cost."""
        models = self._models(entry)
        beside = list(self._beside(entry)) if isinstance(entry, kinds.Grpo) else []
        if not models and not beside:
            return
        stage.exact = exact and not isinstance(entry, kinds.Grpo)
        if stage.exact:
            stage.rows = stage.calls = 0
            for model, asked in self._asked(stage, entry, models).items():
                self._look_up(stage, model, asked)
        else:
            stage.rows = self.rows_of(stage.name)
            stage.calls = None if stage.rows is None else stage.rows * len(models)
            for model in models:
                self._price(stage, model, stage.rows)
            for model, calls in beside:
                stage.calls += calls
                self._price(stage, model, calls)
        grader = self._grader(entry)
        if isinstance(entry, kinds.Schemes) and grader and stage.rows is not None and stage.state == "make":
            tests = PROBES * stage.rows * len(grader.judges)
            stage.calls += tests  # their schemes are not written yet
            self._price(stage, grader.judges[0], tests)
        if grader and (grader.requeries or grader.rounds or grader.escalate_to or grader.normalizer):
            stage.further = True

    def _beside(self, entry: kinds.Grpo) -> Iterator[tuple[str, int]]:
        """Whom a training asks besides its grader, and how often: preferences, the second grader, the summarizer."""
        step = entry.problems_per_step * entry.group
        asked = {
            (name, given.get("prompt")): max(entry.steps - max(given.get("from_step", 0) - 1, 0), 0) * step
            for name, given in entry.preferences.items()
            if kinds.kind_of(name) in kinds.DECLARED
        }
        if entry.hold_out and entry.hold_out not in kinds.PROGRAMS:
            asked[entry.hold_out, entry.hold_out_prompt] = entry.steps // entry.hold_out_every * entry.hold_out_rows
        for (name, prompt), calls in asked.items():
            for judge in kinds.grader_of(name, prompt, self.book.declared).judges:
                if judge not in kinds.PROGRAMS:
                    yield judge, calls // entry.iterations
        if entry.summarizer:
            problems = entry.steps * entry.problems_per_step // (entry.iterations * entry.states)
            yield entry.summarizer, problems * entry.turns

    def _models(self, entry: Any) -> list[str]:
        """The models that a stage may ask, the first one first."""
        if isinstance(entry, kinds.Responses) and entry.rollouts:
            return []
        names = [getattr(entry, "model", None)] if not isinstance(entry, kinds.Grpo) else []
        grader = None if isinstance(entry, kinds.Schemes) else self._grader(entry)
        names += [*grader.judges, grader.normalizer] if grader else []
        return [name for name in names if name and "/" in name]

    def _grader(self, entry: Any) -> kinds.Grader | None:
        name, prompt = getattr(entry, "grader", None), getattr(entry, "prompt", None)
        if isinstance(entry, kinds.Schemes):
            name, prompt = entry.tester, entry.tester_prompt
        asks = name is not None and name != "human" and name not in kinds.PROGRAMS
        return kinds.grader_of(name, prompt, self.book.declared) if asks else None

    def _asked(self, stage: Stage, entry: Any, models: list[str]) -> dict[str, Questions]:
        job = Job(Table(stage.name, self.results), self.book.declared, "", {})
        asked = import_module(f"proofmill.{kinds.kind_of(stage.name)}").questions(entry, job)
        return asked if isinstance(asked, dict) else {models[0]: asked} if len(asked) else {}

    def _look_up(self, stage: Stage, model: str, asked: Questions) -> None:
        """Count a model's questions by what its journal says of them: equal ones are one call."""
        folder = Table(stage.name, self.results).calls
        known = dict(journals.frame(folder, "stop").select("key", "stop").iter_rows())
        keys = [question.key for question in asked]
        missing = {key for key in keys if known.get(key, "error") == "error"}
        stage.rows, stage.calls = stage.rows + len(keys), stage.calls + len(missing)
        stage.parked += len(missing & set(known))
        stage.cached += sum(key not in missing for key in keys)
        self._price(stage, model, len(missing))

    def rows_of(self, name: str) -> int | None:
        """About how many rows a table will have: as many as it has, or as its entry says."""
        entry, table = self.book.entries.get(name), Table(name, self.results)
        if isinstance(entry, kinds.Grpo):
            return entry.steps * entry.problems_per_step * entry.group // entry.iterations
        if isinstance(entry, kinds.Responses) and entry.rollouts:
            return self.rows_of(entry.model)
        if isinstance(entry, kinds.Responses):
            problems = self.rows_of(entry.problems)
            return None if problems is None else problems * entry.attempts
        if isinstance(entry, kinds.Labels | kinds.Schemes):
            return self.rows_of(entry.problems)
        if isinstance(entry, kinds.Grades):
            return self.rows_of(entry.responses)
        if (stamp := _stamp(table)) is not None:
            return stamp["counts"].get("kept")
        if isinstance(entry, kinds.Problems):
            return entry.rows or (self.rows_of(entry.source) if "/" in entry.source else None)
        return None

    def _price(self, stage: Stage, model: str, calls: int | None) -> None:
        """Add what so many calls of a model would take."""
        if calls is None:
            stage.tokens, stage.dollars, stage.learned = Range(None), Range(None), "the number of rows is unknown"
            return
        if not calls:
            return
        api = self.book.declared.get(model)
        answers, stage.learned = self._answers(stage.name, model)
        tokens = dollars = Range(None)
        if answers.height:
            tokens = _sum((answers["prompt_tokens"] + answers["tokens"]).cast(pl.Float64), calls)
            if api and api.price != "unknown":
                dollars = _sum(_costs(answers, api.price), calls)
        elif api and api.guess:
            read, written = api.guess["input"], api.guess["output"]
            cost = budget.price(api.price, read, 0, written, 0)
            tokens = _certain(calls * (read + written))
            dollars = Range(None) if cost is None else _certain(calls * cost)
        if api is None or (isinstance(api.price, dict) and not any(api.price.values())):
            dollars = _certain(0.0)
        stage.tokens, stage.dollars = stage.tokens + tokens, stage.dollars + dollars

    def _answers(self, name: str, model: str) -> tuple[pl.DataFrame, str]:
        """Answers to learn from: of the stage itself, or else of its kind with the same model, or of any with it."""
        own = _answered(Table(name, self.results).calls)
        if own.height > 1:
            return own, f"learned from its {own.height:,} answers"
        users = [
            other for other, entry in self.book.entries.items()
            if other != name and model in self._models(entry)
        ]  # fmt: skip
        alike = [other for other in users if kinds.kind_of(other) == kinds.kind_of(name)]
        for others, what in ((alike, f"other {kinds.kind_of(name)} by {model}"), (users, f"other calls of {model}")):
            found = pl.concat([own.clear(), *(_answered(Table(other, self.results).calls) for other in others)])
            if found.height > 1:
                return found, f"learned from {found.height:,} answers to {what}"
        api = self.book.declared.get(model)
        return (
            own.clear(),
            f"by the guess of {model}" if api and api.guess else f"no answers yet, and no `guess` in {model}",
        )

    # ------------------------------------------------------------------------------------------------------ showing

    def lines(self) -> Iterator[str]:
        """The plan as text."""
        width = max(map(len, self.stages), default=0)
        for stage in self.stages.values():
            yield f"{stage.name:<{width}}  {_STATES[stage.state]}{': ' if stage.why else ''}{'; '.join(stage.why)}".rstrip()
            if stage.state == "make":
                yield from (f"{'':<{width}}    {line}" for line in self._details(stage))
        yield from self._sums()

    def _details(self, stage: Stage) -> Iterator[str]:
        about = "" if stage.exact else "about "
        if stage.rows:
            known = f"{stage.cached:,} cached, {stage.calls:,} to do, {stage.parked:,} of them parked before"
            counted = known if stage.exact else "how many are cached is known when they are there"
            yield f"{about}{stage.rows:,} rows: {counted}"
        if stage.calls is None or stage.calls:
            calls = "?" if stage.calls is None else f"{stage.calls:,}"
            tokens, dollars = stage.tokens.shown("{:,.0f}"), stage.dollars.shown("${:,.2f}")
            yield f"{about}{calls} calls{' or more' * stage.further}, {tokens} tokens, {dollars} ({stage.learned})"
        yield from stage.shows
        if stage.seconds is not None:
            gpus = f", {stage.seconds * stage.gpus / 3600:,.2f} GPU-hours" if stage.gpus else ""
            yield f"took {clock(stage.seconds)}{gpus} the last time"

    def _sums(self) -> Iterator[str]:
        states = [stage.state for stage in self.stages.values()]
        yield ""
        yield f"{states.count('make')} to make, {states.count('restore')} to restore, {states.count('done')} done"
        total = self.totals
        if total.calls is None or total.calls:
            calls = "an unknown number of" if total.calls is None else f"about {total.calls:,}"
            yield f"{calls} calls, {total.tokens.shown('{:,.0f}')} tokens, {total.dollars.shown('${:,.2f}')}"
        made = [stage for stage in self.stages.values() if stage.state == "make"]
        hours = sum(stage.seconds * stage.gpus for stage in made if stage.gpus) / 3600
        unknown = sum(stage.gpus is None for stage in made if kinds.kind_of(stage.name) in ("sft", "grpo", "responses"))
        if hours:
            yield f"{hours:,.2f} GPU-hours as the last time"
        if unknown:
            yield f"GPU-hours unknown for {unknown} stages that were never made"
        spent, most = budget.spent(self.results / "calls"), self.book.budget
        if most is None:
            yield f"${spent:,.2f} spent so far; no budget is declared"
        else:
            yield f"${spent:,.2f} spent so far of a budget of ${most:,.2f}"
            if total.dollars.value is not None and spent + total.dollars.high > most:
                yield f"the budget may not suffice: up to ${spent + total.dollars.high - most:,.2f} are missing"

    def data(self) -> dict[str, Any]:
        """The plan for programs."""
        return {
            "target": self.target,
            "stages": [asdict(stage) for stage in self.stages.values()],
            "totals": {
                key: value for key, value in asdict(self.totals).items() if key in ("calls", "tokens", "dollars")
            },
            "spent": budget.spent(self.results / "calls"),
            "budget": self.book.budget,
        }


_STATES = {"done": "done", "restore": "restore, it was made before", "make": "make"}


def _stamp(table: Table) -> dict | None:
    try:
        return table.stamp
    except TableError:
        return None


def _answered(folder: Path) -> pl.DataFrame:
    return journals.frame(folder, *LEARNED).filter(pl.col("stop") != "error")


def _costs(answers: pl.DataFrame, declared: Mapping[str, float]) -> pl.Series:
    """Dollars of each answer by the price as it is declared now."""
    counts = ("prompt_tokens", "cached_tokens", "tokens", "reasoning_tokens")
    return pl.Series([budget.price(declared, *row) for row in answers.select(counts).iter_rows()], dtype=pl.Float64)


def _sum(values: pl.Series, calls: int) -> Range:
    """The sum over so many calls, predicted from the values of some."""
    mean, known = values.mean(), values.len()
    error = Z * (values.std() or 0.0) * math.sqrt(calls + calls**2 / known)
    return Range(mean * calls, max(0.0, mean * calls - error), mean * calls + error)


def _certain(value: float) -> Range:
    return Range(value, value, value)


def _shown(value: Any, most: int = 60) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]}..."


def of(target: str | None, configfiles: Iterable[str] = (), results: Path = Path("results")) -> Plan:
    """The plan of a target of config.yaml; without one, of its first recipe."""
    book = recipes.expand(recipes.read("config.yaml", *configfiles))
    return Plan(book, target or next(iter(book.recipes)), results)
