"""Plans a target from config, tables and journals: what it would make, why, and at what cost. Nothing is run or asked.

A stage whose parents are final is counted exactly: its questions are built and looked up in its journal. If a parent
will be made again, the rows are estimated (`about`), from the present table if it is of the same source, else from the
entries and what data/sources.csv declares; `at most` where filters that have not run may still refuse some. Tokens and dollars of
a call are learned from the answers in the stage's journal, or else in others with the same model; without any, from the
`guess` of the model; otherwise the plan calls them unknown. The interval is the 95 % prediction interval of a sum: n
calls of mean m and deviation s learned from k answers cost n m +- 1.96 s sqrt(n + n^2 / k).
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

from proofmill.artifacts.jobs import Job, with_weights
from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.calls import budget, prices, records
from proofmill.calls.exchange import Questions
from proofmill.graders import robustness
from proofmill.graders.escalation import grader_of
from proofmill.graders.programs import PROGRAMS
from proofmill.planning import _plan_text, data
from proofmill.planning._expected_costs import Range, answered, certain, costs_of, predicted
from proofmill.planning._power import forecasts
from proofmill.planning.connections import Connection, connections
from proofmill.recipes import yaml_files
from proofmill.recipes.book import Book, expand
from proofmill.runtime.public_data import is_public, register
from proofmill.scaffolds import scaffolds
from proofmill.schema import references
from proofmill.schema.columns import PROBES
from proofmill.schema.declared import Grader
from proofmill.schema.entries import Problems, Responses, Schemes
from proofmill.schema.errors import TableError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import Stop
from proofmill.schema.scores_entry import Scores


@dataclass
class Stage:
    """One artifact of a plan."""

    name: str
    state: str  # done, restore, make
    why: list[str] = field(default_factory=list)
    exact: bool = True  # the rows are counted, not estimated
    at_most: bool = False  # filters that have not run may refuse rows
    further: bool = False  # answers decide on further calls: more rounds, another grader, a second try
    rows: int | None = None
    cached: int = 0
    parked: int = 0
    calls: int | None = 0  # that are still to be made
    tokens: Range = field(default_factory=Range)
    dollars: Range = field(default_factory=Range)
    learned: str = ""  # where the estimates of tokens and dollars come from
    shows: list[str] = field(default_factory=list)  # for scores: which differences it can show
    least: int | None = None  # of a scaffold: calls that are still to be made at least, where `calls` are the most
    depth: int | None = None  # of a scaffold: how many calls one play makes one after another at most
    seconds: float | None = None  # that the last making took
    gpus: int | None = None


@dataclass
class Totals:
    """The sum of all stages that would run: what is known of their calls, the least of it, and how many are unknown."""

    calls: int = 0
    least: int = 0
    unknown: int = 0  # stages
    tokens: Range = field(default_factory=Range)
    dollars: Range = field(default_factory=Range)


# What decides which rows a table of problems begins with; a table by others of these says nothing about this one.
BEGINNING = ("source", "path", "id", "config", "split", "where", "every", "rows", "part", "families", "also")


class Plan:
    """The stages of a target in the order they would run; `missing` are public data that they need and that are not here."""

    def __init__(self, book: Book, target: str, results: Path = Path("results")):
        self.book, self.results, self.target = book, results, target
        self.states = States(book, results)
        self.stages: dict[str, Stage] = {}
        self._journals: dict[str, pl.DataFrame] = {}  # answers by artifact
        self._pools: dict[tuple[str, str], pl.DataFrame] = {}  # by model and kind
        for name in self._order(target):
            self.stages[name] = self._stage(name)

    @cached_property
    def totals(self) -> Totals:
        """The sum of all stages that would run."""
        total = Totals()
        for stage in (stage for stage in self.stages.values() if stage.state == "make"):
            total.calls += stage.calls or 0
            total.least += 0 if stage.at_most else stage.calls or 0
            total.unknown += stage.calls is None
            total.tokens, total.dollars = total.tokens + stage.tokens, total.dollars + stage.dollars
        return total

    @cached_property
    def connections(self) -> list[Connection]:
        """The remote models that the stages to be made ask."""
        return connections(self.book, [stage.name for stage in self.stages.values() if stage.state == "make"])

    @cached_property
    def missing(self) -> list[data.Needed]:
        """Public data that are not on this machine and that a stage needs which would run."""
        making = [stage.name for stage in self.stages.values() if stage.state == "make"]
        return [item for item in data.needed(self.book, making) if item.missing]

    def _order(self, target: str) -> list[str]:
        needed, stack = set(), list(self.book.targeted(target))
        while stack:
            name = stack.pop()
            if name not in needed:
                needed.add(name)
                # What is as it should be needs none of the tables it was made from, not even one that is gone.
                done = self.states[name].name == "done"
                read = self._reads(name)
                stack += [parent for parent in read if not done or Table(parent, self.results).path.exists()]
        edges = {
            n: references.parents(e) + references.served(e, self.book.declared) for n, e in self.book.entries.items()
        }
        return [n for n in TopologicalSorter(edges).static_order() if n in needed]

    def _reads(self, name: str) -> list[str]:
        """The tables that an artifact reads."""
        return references.reads(kind_of(name), self.book.entries[name], self.book.entries.get, self.book.declared)

    def lines(self, verbose: bool = False, width: int = 120) -> Iterator[str]:
        """The plan as text."""
        return _plan_text.lines(self, verbose, width)

    def data(self) -> dict[str, Any]:
        """The plan for programs."""
        return _plan_text.data(self)

    # ----------------------------------------------------------------------------------------------- one artifact

    def _stage(self, name: str) -> Stage:
        entry, table, state = self.book.entries[name], Table(name, self.results), self.states[name]
        old = table.stamp if table.path.exists() else None
        stage = Stage(name, state.name, list(state.why))
        if old is not None:
            stage.seconds, stage.gpus = old["seconds"], old.get("gpus")
        if stage.state != "make":
            return stage
        read = self._reads(name)
        if isinstance(entry, Scores):
            stage.shows = list(forecasts(entry, self))
        if KINDS[table.kind].asks:
            self._count(stage, entry, exact=all(self.states[parent].name == "done" for parent in read))
        return stage

    # ------------------------------------------------------------------------------------------------------- calls

    def _count(self, stage: Stage, entry: Any, exact: bool) -> None:
        """Set the stage's rows, cached and parked calls, calls to make, and their cost."""
        models, beside = self.models(stage.name), list(self._beside(entry))
        if not models and not beside:
            return
        if entry.scaffolds() and isinstance(entry, Responses):
            self._count_plays(stage, entry)
            return
        stage.exact = exact and not KINDS[kind_of(stage.name)].learns
        if stage.exact:
            stage.rows = 0
            for model, questions in self._questions(stage, entry).items():
                self._look_up(stage, model, questions)
        else:
            stage.rows, stage.at_most = self.rows_of(stage.name), self._at_most(stage.name)
            for model, calls in [*((model, stage.rows) for model in models), *beside]:
                self._add(stage, model, calls)
        grader = self._grader(entry)
        if isinstance(entry, Schemes) and grader and stage.rows is not None and stage.state == "make":
            tests = len(PROBES) * stage.rows * len(grader.judges)  # the schemes that they test are not written yet
            self._add(stage, grader.judges[0], tests)
        if grader and (grader.requeries or grader.rounds or grader.escalate_to or grader.normalizer):
            stage.further = True

    def _count_plays(self, stage: Stage, entry: Responses) -> None:
        """Set the calls of a scaffold, from the least to the most that its plays make, without those that are answered."""
        stage.exact, stage.rows, stage.at_most = False, self.rows_of(stage.name), self._at_most(stage.name)
        least, most, stage.depth = scaffolds.chosen(entry.scaffold).calls(entry.model)
        if stage.rows is None:
            self._add(stage, entry.model, None)
            return
        stage.cached = answered(Table(stage.name, self.results).calls).height
        stage.least, to_do = (max(0, stage.rows * n.total() - stage.cached) for n in (least, most))
        for model, calls in most.items():
            self._add(stage, model, round(to_do * calls / most.total()))
        if to_do:
            share = stage.least / to_do
            stage.tokens, stage.dollars = stage.tokens.down_to(share), stage.dollars.down_to(share)

    def _beside(self, entry: Any) -> Iterator[tuple[str, int]]:
        """The models that a training asks besides the grader that rewards, with the number of calls."""
        beside = dict(entry.calls_beside()) if hasattr(entry, "calls_beside") else {}
        if getattr(entry, "max_attack", None) is not None:
            marker = entry.grader, entry.prompt
            beside[marker] = beside.get(marker, 0) + robustness.about()
        for (name, prompt), calls in beside.items():
            if name not in PROGRAMS:
                for judge in grader_of(name, prompt, self.book.declared).judges:
                    if judge not in PROGRAMS:
                        yield judge, calls

    def models(self, name: str) -> list[str]:
        """The models that a stage may ask, in the order of asking."""
        entry = self.book.entries[name]
        if getattr(entry, "taken", False):
            return []
        models = [] if KINDS[kind_of(name)].learns else [getattr(entry, "model", None), *entry.also_asks()]
        grader = None if isinstance(entry, Schemes) else self._grader(entry)
        models += [*grader.judges, grader.normalizer] if grader else []
        return [model for model in models if model and "/" in model]

    def _grader(self, entry: Any) -> Grader | None:
        """The grader whose calls are counted: the first one of an entry; None for a program."""
        name, prompt = next(iter(entry.graders()), (None, None))
        return grader_of(name, prompt, self.book.declared) if name and name not in PROGRAMS else None

    def _questions(self, stage: Stage, entry: Any) -> dict[str, Questions]:
        """The questions to each model, from the kind's own module; all tables that it reads must exist."""
        read, table = self._reads(stage.name), Table(stage.name, self.results)
        declared = with_weights(self.book.declared, table, read)
        job = Job(table, declared, "", {"parents": dict.fromkeys(read)})
        return import_module(f"proofmill.{kind_of(stage.name)}").questions(entry, job)

    def _look_up(self, stage: Stage, model: str, questions: Questions) -> None:
        """Count a model's questions by their state in the journal; equal questions are one call."""
        folder = Table(stage.name, self.results).calls
        stops = dict(records.frame(folder, "stop").select("key", "stop").iter_rows())
        keys = [question.key for question in questions]
        to_ask = {key for key in keys if stops.get(key, Stop.ERROR) == Stop.ERROR}
        stage.rows = (stage.rows or 0) + len(keys)
        stage.parked += len(to_ask & set(stops))
        stage.cached += sum(key not in to_ask for key in keys)
        self._add(stage, model, len(to_ask))

    def rows_of(self, name: str) -> int | None:
        """The expected number of rows of a table, or of public data by address; None if unknown.

        Those it has, if its present rows are of the same source; or else what its entry says.
        """
        if is_public(name):
            return known.rows if (known := register().get(name)) else None
        entry, table = self.book.entries.get(name), Table(name, self.results)
        if entry is not None and KINDS[kind_of(name)].asks:
            return entry.expected_rows(self.rows_of)
        if (stamp := _stamp(table)) is not None and self._of_same_source(name):
            return stamp["counts"].get("kept")
        return entry.expected_rows(self.rows_of) if entry else None

    @cache  # noqa: B019 (a plan lives as long as its command)
    def _of_same_source(self, name: str) -> bool:
        """Whether a table that is here began with the rows that it would begin with now."""
        entry, stamp = self.book.entries.get(name), _stamp(Table(name, self.results))
        if stamp is None or entry is None:
            return stamp is not None
        if isinstance(entry, Problems):
            now = json.loads(references.canonical(entry))
            if any(stamp["entry"].get(key) != now[key] for key in BEGINNING):
                return False
        return all(self._of_same_source(parent) for parent in _rows_from(entry))

    def _at_most(self, name: str) -> bool:
        """Whether the expected rows of a table may yet be refused by filters."""
        entry = self.book.entries[name]
        if KINDS[kind_of(name)].learns:
            return False
        if not KINDS[kind_of(name)].asks and _stamp(Table(name, self.results)) and self._of_same_source(name):
            return False
        if isinstance(entry, Problems) and (entry.keep or entry.apart_from or entry.where):
            return True
        return any(self._at_most(parent) for parent in _rows_from(entry))

    def _add(self, stage: Stage, model: str, calls: int | None) -> None:
        """Add so many calls of a model, with their tokens and dollars; None: it is not known how many."""
        stage.calls = None if stage.calls is None or calls is None else stage.calls + calls
        if calls is None:
            stage.tokens, stage.dollars, stage.learned = Range(None), Range(None), "the number of rows is unknown"
            return
        if not calls:
            return
        api = self.book.declared.get(model)
        price: Any = prices.price_of(api) if api else None
        answers, stage.learned = self._answers(stage.name, model)
        tokens = dollars = Range(None)
        if answers.height:
            tokens = predicted((answers["prompt_tokens"] + answers["tokens"]).cast(pl.Float64), calls)
            if api and price != "unknown":
                dollars = predicted(costs_of(answers, price), calls)
        elif api and api.guess:
            read, written = api.guess["input"], api.guess["output"]
            cost = budget.price(price, read, 0, written, 0)
            tokens = certain(calls * (read + written))
            dollars = Range(None) if cost is None else certain(calls * cost)
        if api is None or (isinstance(price, dict) and not any(price.values())):
            dollars = certain(0.0)
        stage.tokens, stage.dollars = stage.tokens + tokens, stage.dollars + dollars

    def _answers(self, name: str, model: str) -> tuple[pl.DataFrame, str]:
        """Answers to learn from: the stage's own, else of its kind with the same model, else of any stage with it."""
        own = self._answered(name)
        if own.height > 1:
            return own, f"learned from its {own.height:,} answers"
        for kind, what in ((kind_of(name), f"other {kind_of(name)} by {model}"), ("", f"other calls of {model}")):
            if (answers := self._pooled(model, kind, own.clear())).height > 1:
                return answers, f"learned from {answers.height:,} answers to {what}"
        api = self.book.declared.get(model)
        return (
            own.clear(),
            f"by the guess of {model}" if api and api.guess else f"no answers yet, and no `guess` in {model}",
        )

    def _answered(self, name: str) -> pl.DataFrame:
        """The answers in an artifact's journal; each journal is read once."""
        if name not in self._journals:
            self._journals[name] = answered(Table(name, self.results).calls)
        return self._journals[name]

    def _pooled(self, model: str, kind: str, none: pl.DataFrame) -> pl.DataFrame:
        """The answers of all artifacts of a kind (of any, if it is empty) that ask a model."""
        if (model, kind) not in self._pools:
            users = [
                name for name in self.book.entries
                if KINDS[kind_of(name)].asks and kind in (kind_of(name), "") and model in self.models(name)
            ]  # fmt: skip
            there = [name for name in users if Table(name, self.results).calls.exists()]
            self._pools[model, kind] = pl.concat([none, *map(self._answered, there)])
        return self._pools[model, kind]


def _rows_from(entry: Any) -> list[str]:
    """The tables whose number of rows decides that of an entry."""
    values = [getattr(entry, name, None) for name in ("source", "also", "problems", "responses", "grades")]
    names = [name for value in values for name in ([value] if isinstance(value, str) else value or [])]
    return [name for name in names if "/" in name]


def _stamp(table: Table) -> dict | None:
    try:
        return table.stamp
    except TableError:
        return None


def planned(target: str | None, configfiles: Iterable[str] = (), results: Path = Path("results")) -> Plan:
    """The plan of a target of config.yaml (default: its first recipe); raises SettingError for an unknown target."""
    book = expand(yaml_files.read("config.yaml", *configfiles), drafts=True)
    return Plan(book, target or next(iter(book.recipes)), results)
