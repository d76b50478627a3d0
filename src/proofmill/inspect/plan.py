"""What a target would make, why, and what it would cost: read from config, tables and journals; nothing is run or asked.

A stage whose parents stand as they will be is counted exactly: its questions are made and looked up in its journal. Of a
stage behind one that will be made again the rows are estimated (`about`), from the table as it is, or from the entries.
Tokens and dollars of a call are learned from the answers in the stage's journal, or else in others with the same model;
without any, from the `guess` of the model; or they are unknown, and it says so. The interval is the 95 % prediction
interval of a sum: n calls of mean m and deviation s learned from k answers cost n m +- 1.96 s sqrt(n + n^2 / k).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

from proofmill.artifacts import fingerprints
from proofmill.artifacts.jobs import Job
from proofmill.artifacts.tables import Table
from proofmill.calls import budget
from proofmill.calls import journal as journals
from proofmill.calls.exchange import Questions
from proofmill.graders.escalation import grader_of
from proofmill.graders.programs import PROGRAMS
from proofmill.inspect import _plan_text
from proofmill.inspect._expected_costs import Range, answered, certain, costs_of, predicted
from proofmill.inspect._power import forecasts
from proofmill.recipes import yaml_files
from proofmill.recipes.book import Book, expand
from proofmill.recipes.identity import identity_of
from proofmill.schema import references
from proofmill.schema.declared import Grader
from proofmill.schema.entries import Schemes, Scores
from proofmill.schema.errors import SettingError, TableError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import Stop

PROBES = 4  # known answers by which a scheme is tested and that a judge is asked about; a part of them may be missing


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
            raise SettingError(
                f"{target}: no recipe and no artifact; expected one of {', '.join(self.book.recipes)}, or <kind>/<name>."
            )
        needed = {n for w in wanted for n in (w, *references.ancestors(self.book.entries, w))}
        order = TopologicalSorter(
            {n: references.parents(self.book.entries[n]) for n in self.book.entries}
        ).static_order()
        return [n for n in order if n in needed]

    def lines(self) -> Iterator[str]:
        """The plan as text."""
        return _plan_text.lines(self)

    def data(self) -> dict[str, Any]:
        """The plan for programs."""
        return _plan_text.data(self)

    # ----------------------------------------------------------------------------------------------- one artifact

    def _stage(self, name: str) -> Stage:
        entry, table = self.book.entries[name], Table(name, self.results)
        read = references.reads(table.kind, entry, self.book.entries.get)
        remade = [parent for parent in read if self.stages[parent].state == "make"]
        old = _stamp(table)
        stage = Stage(name, "make", seconds=old and old["seconds"], gpus=old and old.get("gpus"))
        stage.why = [f"{parent} will be made" for parent in remade]
        if not remade:
            parents = {parent: self._contents[parent] for parent in read}
            sources = fingerprints.sources_of(table.kind, entry, self.book.entries.get)
            fingerprint = fingerprints.fingerprint_of(entry, self.book.declared, parents, sources)
            kept = old if old and old["fingerprint"] == fingerprint else table.kept(fingerprint).stamp
            if kept:
                stage.state, self._contents[name] = "done" if kept is old else "restore", kept["content"]
                return stage
            stage.why = self._changes(entry, old, parents, sources) if old else ["never made"]
        if isinstance(entry, Scores):
            stage.shows = list(forecasts(entry, self))
        if KINDS[table.kind].asks:
            self._count(stage, entry, exact=all(self.stages[parent].state == "done" for parent in read))
        return stage

    def _changes(self, entry: Any, old: dict, parents: Mapping[str, str], sources: Mapping[str, str]) -> list[str]:
        """Which field of which entry, which prompt, parent or file differs from what the table was made from."""
        new = json.loads(identity_of(entry, self.book.declared))
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
        models, beside = self._models(stage.name), list(self._beside(entry))
        if not models and not beside:
            return
        stage.exact = exact and not KINDS[kind_of(stage.name)].learns
        if stage.exact:
            stage.rows = stage.calls = 0
            for model, asked in self._asked(stage, entry).items():
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
        if isinstance(entry, Schemes) and grader and stage.rows is not None and stage.state == "make":
            tests = PROBES * stage.rows * len(grader.judges)
            stage.calls += tests  # their schemes are not written yet
            self._price(stage, grader.judges[0], tests)
        if grader and (grader.requeries or grader.rounds or grader.escalate_to or grader.normalizer):
            stage.further = True

    def _beside(self, entry: Any) -> Iterator[tuple[str, int]]:
        """Whom a training asks besides the grader that rewards, and how often."""
        beside = entry.calls_beside() if hasattr(entry, "calls_beside") else {}
        for (name, prompt), calls in beside.items():
            if name not in PROGRAMS:
                for judge in grader_of(name, prompt, self.book.declared).judges:
                    if judge not in PROGRAMS:
                        yield judge, calls

    def _models(self, name: str) -> list[str]:
        """The models that a stage may ask, the first one first."""
        entry = self.book.entries[name]
        if getattr(entry, "taken", False):
            return []
        models = [] if KINDS[kind_of(name)].learns else [getattr(entry, "model", None)]
        grader = None if isinstance(entry, Schemes) else self._grader(entry)
        models += [*grader.judges, grader.normalizer] if grader else []
        return [model for model in models if model and "/" in model]

    def _grader(self, entry: Any) -> Grader | None:
        """The judges whose calls are counted: the first grader of an entry."""
        name, prompt = next(iter(entry.graders()), (None, None))
        return grader_of(name, prompt, self.book.declared) if name and name not in PROGRAMS else None

    def _asked(self, stage: Stage, entry: Any) -> dict[str, Questions]:
        """What each model is asked, by the kind's own module, whose tables all stand."""
        read = references.reads(kind_of(stage.name), entry, self.book.entries.get)
        job = Job(Table(stage.name, self.results), self.book.declared, "", {"parents": dict.fromkeys(read)})
        return import_module(f"proofmill.{kind_of(stage.name)}").questions(entry, job)

    def _look_up(self, stage: Stage, model: str, asked: Questions) -> None:
        """Count a model's questions by what its journal says of them: equal ones are one call."""
        folder = Table(stage.name, self.results).calls
        known = dict(journals.frame(folder, "stop").select("key", "stop").iter_rows())
        keys = [question.key for question in asked]
        missing = {key for key in keys if known.get(key, Stop.ERROR) == Stop.ERROR}
        stage.rows, stage.calls = stage.rows + len(keys), stage.calls + len(missing)
        stage.parked += len(missing & set(known))
        stage.cached += sum(key not in missing for key in keys)
        self._price(stage, model, len(missing))

    def rows_of(self, name: str) -> int | None:
        """About how many rows a table will have: as many as it has, or as its entry says."""
        entry, table = self.book.entries.get(name), Table(name, self.results)
        if KINDS[kind_of(name)].asks:
            return entry.expected_rows(self.rows_of)
        if (stamp := _stamp(table)) is not None:
            return stamp["counts"].get("kept")
        return entry.expected_rows(self.rows_of) if entry else None

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
            tokens = predicted((answers["prompt_tokens"] + answers["tokens"]).cast(pl.Float64), calls)
            if api and api.price != "unknown":
                dollars = predicted(costs_of(answers, api.price), calls)
        elif api and api.guess:
            read, written = api.guess["input"], api.guess["output"]
            cost = budget.price(api.price, read, 0, written, 0)
            tokens = certain(calls * (read + written))
            dollars = Range(None) if cost is None else certain(calls * cost)
        if api is None or (isinstance(api.price, dict) and not any(api.price.values())):
            dollars = certain(0.0)
        stage.tokens, stage.dollars = stage.tokens + tokens, stage.dollars + dollars

    def _answers(self, name: str, model: str) -> tuple[pl.DataFrame, str]:
        """Answers to learn from: of the stage itself, or else of its kind with the same model, or of any with it."""
        own = answered(Table(name, self.results).calls)
        if own.height > 1:
            return own, f"learned from its {own.height:,} answers"
        users = [
            other for other in self.book.entries
            if KINDS[kind_of(other)].asks and other != name and model in self._models(other)
        ]  # fmt: skip
        alike = [other for other in users if kind_of(other) == kind_of(name)]
        for others, what in ((alike, f"other {kind_of(name)} by {model}"), (users, f"other calls of {model}")):
            found = pl.concat([own.clear(), *(answered(Table(other, self.results).calls) for other in others)])
            if found.height > 1:
                return found, f"learned from {found.height:,} answers to {what}"
        api = self.book.declared.get(model)
        return (
            own.clear(),
            f"by the guess of {model}" if api and api.guess else f"no answers yet, and no `guess` in {model}",
        )


def _stamp(table: Table) -> dict | None:
    try:
        return table.stamp
    except TableError:
        return None


def _shown(value: Any, most: int = 60) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]}..."


def planned(target: str | None, configfiles: Iterable[str] = (), results: Path = Path("results")) -> Plan:
    """The plan of a target of config.yaml; without one, of its first recipe."""
    book = expand(yaml_files.read("config.yaml", *configfiles))
    return Plan(book, target or next(iter(book.recipes)), results)
