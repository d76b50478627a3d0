"""Plan a target from the configuration, tables and journals: what would run, why, at what cost. Makes no calls.

If all parents of a stage are up to date, its requests are built and looked up in the journal, so counts are exact.
Otherwise rows are estimated (`about`): from the existing table if its source is unchanged, else from the entries and
data/sources.csv. `at most` means that filters which have not run yet may drop rows.

Tokens and dollars per call are predicted from the journal of the stage, else from other calls of the model, else from its
`expected-tokens`; without any they are unknown. The interval is a 95 % prediction interval: with mean m and standard deviation s of
k calls, n calls cost n m +- 1.96 s sqrt(n + n^2 / k).
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

from proofmill.artifacts.jobs import Job, with_weights
from proofmill.artifacts.joins import lenders_of
from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.calls import budget, prices, records
from proofmill.calls.model_requests import Requests
from proofmill.config.config import Config
from proofmill.estimation import stopping
from proofmill.graders import robustness
from proofmill.graders.escalation import grader_of
from proofmill.graders.program_graders import PROGRAMS
from proofmill.planning import _plan_text, data
from proofmill.planning._expected_costs import Range, certain, costs_of, predict, read_outputs
from proofmill.planning._power import forecasts
from proofmill.planning.connections import Connection, connections
from proofmill.public_data.registry import is_public, register
from proofmill.scaffolds import scaffolds
from proofmill.schema import references
from proofmill.schema.columns import PROBES
from proofmill.schema.entries.declared import Grader
from proofmill.schema.entries.problem_entries import Overlaps, Problems, Schemes
from proofmill.schema.entries.response_entries import Responses
from proofmill.schema.errors import TableError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import StopReason
from proofmill.sources.files import count_rows
from proofmill.sources.loaders import SOURCES


@dataclass
class PlannedJob:
    """One artifact of a plan."""

    name: str
    state: str  # done, restore, make
    why: list[str] = field(default_factory=list)
    exact: bool = True  # the rows are counted, not estimated
    at_most: bool = False  # filters that have not run yet may drop rows
    further: bool = False  # outputs can cause further calls: more rounds, escalation, retries
    rows: int | None = None
    cached: int = 0
    failed: int = 0
    calls: int | None = 0  # still to be made; None if unknown
    tokens: Range = field(default_factory=Range)
    dollars: Range = field(default_factory=Range)
    learned: str = ""  # source of the estimates of tokens and dollars
    shows: list[str] = field(default_factory=list)  # for scores: detectable differences
    least: int | None = None  # of a scaffold: minimum of the calls still to be made; `calls` is the maximum
    depth: int | None = None  # of a scaffold: maximum number of sequential calls of a row
    seconds: float | None = None  # duration of the last run
    gpus: int | None = None


@dataclass
class Totals:
    """Totals of all stages that would run: known calls, their minimum, and the number of stages with unknown calls."""

    calls: int = 0
    least: int = 0
    unknown: int = 0  # stages
    tokens: Range = field(default_factory=Range)
    dollars: Range = field(default_factory=Range)


# Fields that select the source rows. If one differs, the old table's row count is no estimate.
BEGINNING = ("source", "path", "id", "subset", "split", "where", "every", "rows", "families", "also")


class RunPlan:
    """The stages of a target, in the order in which they would run."""

    def __init__(self, config: Config, target: str, results: Path = Path("results")):
        self.config, self.results, self.target = config, results, target
        self.states = States(config, results)
        self.stages: dict[str, PlannedJob] = {}
        self._count_file = cache(count_rows)
        self._journals: dict[str, pl.DataFrame] = {}  # outputs by artifact
        self._pools: dict[tuple[str, str], pl.DataFrame] = {}  # by model and kind
        for name in self._order(target):
            self.stages[name] = self._stage(name)

    @cached_property
    def totals(self) -> Totals:
        """Totals of all stages that would run."""
        total = Totals()
        for stage in (stage for stage in self.stages.values() if stage.state == "make"):
            total.calls += stage.calls or 0
            total.least += 0 if stage.at_most else stage.calls or 0
            total.unknown += stage.calls is None
            total.tokens, total.dollars = total.tokens + stage.tokens, total.dollars + stage.dollars
        return total

    @cached_property
    def connections(self) -> list[Connection]:
        """The remote models that the stages call which would run."""
        return connections(self.config, [stage.name for stage in self.stages.values() if stage.state == "make"])

    @cached_property
    def missing(self) -> list[data.Needed]:
        """Missing public data of the stages that would run."""
        making = [stage.name for stage in self.stages.values() if stage.state == "make"]
        return [item for item in data.list_needed(self.config, making) if item.missing]

    @cached_property
    def moving(self) -> dict[str, list[str]]:
        """The stages that would run and read a branch instead of a commit, by its address."""
        return data.list_moving(self.config, [stage.name for stage in self.stages.values() if stage.state == "make"])

    def _order(self, target: str) -> list[str]:
        """Return the target's artifacts and the ancestors they need, parents first."""
        needed, stack = set(), list(self.config.list_target(target))
        while stack:
            name = stack.pop()
            if name not in needed:
                needed.add(name)
                # An up-to-date table does not need its parents, so a deleted parent is not rebuilt.
                done = self.states[name].name == "done"
                read = self.reads(name)
                stack += [parent for parent in read if not done or Table(parent, self.results).path.exists()]
        edges = {
            n: references.parents(e) + references.list_served(e, self.config.declared)
            for n, e in self.config.entries.items()
        }
        return [n for n in TopologicalSorter(edges).static_order() if n in needed]

    def reads(self, name: str) -> list[str]:
        """Return the tables that an artifact reads."""
        return references.reads(kind_of(name), self.config.entries[name], self.config.entries.get, self.config.declared)

    def lines(self, verbose: bool = False, width: int = 120) -> Iterator[str]:
        """Yield the plan as text."""
        return _plan_text.lines(self, verbose, width)

    def data(self) -> dict[str, Any]:
        """Return the plan as JSON data."""
        return _plan_text.data(self)

    def _stage(self, name: str) -> PlannedJob:
        """Return the plan of one artifact."""
        entry, table, state = self.config.entries[name], Table(name, self.results), self.states[name]
        old = table.stamp if table.path.exists() else None
        stage = PlannedJob(name, state.name, list(state.why))
        if old is not None:
            stage.seconds, stage.gpus = old["seconds"], old.get("gpus")
        if stage.state != "make":
            return stage
        read = self.reads(name)
        stage.shows = list(forecasts(entry, self))
        if KINDS[table.kind].calls_models:
            self._count(stage, entry, exact=all(self.states[parent].name == "done" for parent in read))
        return stage

    # ------------------------------------------------------------------------------------------------------- calls

    def _count(self, stage: PlannedJob, entry: Any, exact: bool) -> None:
        """Set the stage's rows, cached and failed calls, calls to make, and their cost."""
        models, further = self.models(stage.name), list(self.further_models(entry))
        if not models and not further:
            return
        if entry.scaffolds() and isinstance(entry, Responses):
            self._count_plays(stage, entry)
            return
        if isinstance(entry, Responses) and entry.until:
            self._count_tries(stage, entry, models)
            return
        stage.exact = exact and not KINDS[kind_of(stage.name)].trains
        if stage.exact:
            stage.rows = 0
            for model, requests in self._requests(stage, entry).items():
                self._look_up(stage, model, requests)
            if isinstance(entry, Overlaps) and entry.embeds and entry.model:  # the pairs depend on the vectors
                stage.exact, stage.at_most = False, True
                self._add(stage, entry.model, self.rows_of(stage.name))
        else:
            stage.rows, stage.at_most = self.rows_of(stage.name), self._at_most(stage.name)
            for model, calls in [*((model, self._calls_of(entry, model, stage.rows)) for model in models), *further]:
                self._add(stage, model, calls)
        grader = self.grader(entry)
        if isinstance(entry, Schemes) and grader and stage.rows is not None and stage.state == "make":
            tests = len(PROBES) * stage.rows * len(grader.judges)  # the schemes to be tested do not exist yet
            self._add(stage, grader.judges[0], tests)
        more = grader and (grader.parse_retries or grader.rounds or grader.escalate_to or grader.normalizer)
        if more or (grader and getattr(entry, "idle", "") == "replace"):
            stage.further = True

    def _calls_of(self, entry: Any, model: str, rows: int | None) -> int | None:
        """Return the calls of a model for the rows of a stage; for vectors, a request has 20 inputs on average."""
        if not isinstance(entry, Overlaps) or model != entry.embedding:
            return rows
        inputs = [self.rows_of(name) or math.nan for name in (*entry.problems, *entry.against)]
        return None if math.isnan(sum(inputs)) else math.ceil(sum(inputs) / 20)

    def _count_plays(self, stage: PlannedJob, entry: Responses) -> None:
        """Set the calls of a scaffold, minimum and maximum, without cached ones."""
        stage.exact, stage.rows, stage.at_most = False, self.rows_of(stage.name), self._at_most(stage.name)
        fewest, most, stage.depth = scaffolds.chosen(entry.scaffold).calls(entry.model)
        if stage.rows is None:
            self._add(stage, entry.model, None)
            return
        stage.cached = read_outputs(Table(stage.name, self.results).calls).height
        stage.least, to_do = (max(0, stage.rows * n.total() - stage.cached) for n in (fewest, most))
        for model, calls in most.items():
            self._add(stage, model, round(to_do * calls / most.total()))
        if to_do:
            share = stage.least / to_do
            stage.tokens, stage.dollars = stage.tokens.down_to(share), stage.dollars.down_to(share)

    def _count_tries(self, stage: PlannedJob, entry: Responses, models: list[str]) -> None:
        """Set the maximum of calls until a rule ends, without cached ones, and say how many to expect."""
        stage.exact, stage.rows, stage.at_most = False, self.rows_of(stage.name), True
        stage.shows = [stopping.forecast(entry, stage.rows and stage.rows // entry.attempts)]
        stage.cached = read_outputs(Table(stage.name, self.results).calls).height
        for model in models:
            self._add(stage, model, None if stage.rows is None else max(0, stage.rows - stage.cached // len(models)))

    def further_models(self, entry: Any) -> Iterator[tuple[str, int | None]]:
        """Yield the models that a training calls in addition to its reward grader, with the number of calls."""
        calls_of = dict(entry.other_calls(self.rows_of)) if hasattr(entry, "other_calls") else {}
        if getattr(entry, "max_attack", None) is not None and calls_of.get(entry.graders()[0], 0) is not None:
            calls_of[entry.graders()[0]] = calls_of.get(entry.graders()[0], 0) + robustness.about()
        for (name, prompt), calls in calls_of.items():
            if name not in PROGRAMS:
                for judge in grader_of(name, prompt, self.config.declared).judges:
                    if judge not in PROGRAMS:
                        yield judge, calls

    def models(self, name: str) -> list[str]:
        """Return the models that a stage may call, in the order of its calls."""
        entry = self.config.entries[name]
        if getattr(entry, "taken", False):
            return []
        models = [] if KINDS[kind_of(name)].trains else [getattr(entry, "model", None), *entry.also_asks()]
        grader = None if isinstance(entry, Schemes) else self.grader(entry)
        models += [*grader.judges, grader.normalizer] if grader else []
        return [model for model in models if model and "/" in model]

    def grader(self, entry: Any) -> Grader | None:
        """Return the grader whose calls are counted, the first of the entry; None for a program."""
        name, prompt = next(iter(entry.graders()), (None, None))
        return grader_of(name, prompt, self.config.declared) if name and name not in PROGRAMS else None

    def _requests(self, stage: PlannedJob, entry: Any) -> dict[str, Requests]:
        """Return the requests to each model, from the kind's module. All tables that it reads must exist."""
        read, table = self.reads(stage.name), Table(stage.name, self.results)
        declared = with_weights(self.config.declared, table, read)
        job = Job(table, declared, "", {"parents": dict.fromkeys(read)})
        return import_module(f"proofmill.{kind_of(stage.name)}").requests(entry, job)

    def _look_up(self, stage: PlannedJob, model: str, requests: Requests) -> None:
        """Count a model's requests by their state in the journal. Equal requests are one call."""
        folders = [Table(stage.name, self.results).calls]
        if kind_of(stage.name) == "grades":
            folders += lenders_of(Table(self.config.entries[stage.name].responses, self.results))
        stops = {
            k: v for f in folders for k, v in records.frame(f, "stop_reason").select("key", "stop_reason").iter_rows()
        }
        keys = [request.key for request in requests]
        to_ask = {key for key in keys if stops.get(key, StopReason.ERROR) == StopReason.ERROR}
        stage.rows = (stage.rows or 0) + len(keys)
        stage.failed += len(to_ask & set(stops))
        stage.cached += sum(key not in to_ask for key in keys)
        self._add(stage, model, len(to_ask))

    def rows_of(self, name: str) -> int | None:
        """Return the expected number of rows of a table, or of public data by address; None if unknown.

        It is the current number if the table's source rows are unchanged, else the number that the entry implies.
        """
        if is_public(name):
            return known.rows if (known := register().get(name)) else None
        entry, table = self.config.entries.get(name), Table(name, self.results)
        if entry is not None and KINDS[kind_of(name)].calls_models:
            return entry.estimate_rows(self.rows_of)
        if (stamp := _stamp(table)) is not None and self._of_same_source(name):
            return stamp["counts"].get("kept")
        return entry.estimate_rows(self.rows_of) if entry else self._count_file(name)

    @cache  # noqa: B019 (a plan exists as long as its command)
    def _of_same_source(self, name: str) -> bool:
        """Return whether the existing table was built from the source rows that a rebuild would use."""
        entry, stamp = self.config.entries.get(name), _stamp(Table(name, self.results))
        if stamp is None or entry is None:
            return stamp is not None
        if isinstance(entry, Problems):
            now = json.loads(references.canonical(entry))
            if any(stamp["entry"].get(key) != now[key] for key in BEGINNING):
                return False
        return all(self._of_same_source(parent) for parent in _rows_from(entry))

    def _at_most(self, name: str) -> bool:
        """Return whether filters may still drop some of the expected rows of a table."""
        entry = self.config.entries[name]
        if KINDS[kind_of(name)].trains:
            return False
        if not KINDS[kind_of(name)].calls_models and _stamp(Table(name, self.results)) and self._of_same_source(name):
            return False
        if isinstance(entry, Problems) and (entry.keep or entry.decontaminate or entry.where):
            return True
        if isinstance(entry, Problems) and entry.source in SOURCES and SOURCES[entry.source].attempts:
            return True  # several rows of its file may be of one problem
        return any(self._at_most(parent) for parent in _rows_from(entry))

    def _add(self, stage: PlannedJob, model: str, calls: int | None) -> None:
        """Add calls of a model with their tokens and dollars; None if their number is unknown."""
        stage.calls = None if stage.calls is None or calls is None else stage.calls + calls
        if calls is None:
            stage.tokens, stage.dollars, stage.learned = Range(None), Range(None), "the number of rows is unknown"
            return
        if not calls:
            return
        api = self.config.declared.get(model)
        price: Any = prices.price_of(api, model) if api else None
        answers, stage.learned = self._answers(stage.name, model)
        tokens = dollars = Range(None)
        if answers.height:
            tokens = predict((answers["prompt_tokens"] + answers["tokens"]).cast(pl.Float64), calls)
            if api and price != "unknown":
                dollars = predict(costs_of(answers, price), calls)
        elif api and api.expected_tokens:
            read, written = api.expected_tokens["input"], api.expected_tokens["output"]
            cost = budget.price(price, read, 0, written, 0)
            tokens = certain(calls * (read + written))
            dollars = Range(None) if cost is None else certain(calls * cost)
        if api is None or (isinstance(price, dict) and not any(price.values())):
            dollars = certain(0.0)
        stage.tokens, stage.dollars = stage.tokens + tokens, stage.dollars + dollars

    def _answers(self, name: str, model: str) -> tuple[pl.DataFrame, str]:
        """Return outputs for predictions: of the stage, else of its kind and model, else of the model in any stage."""
        own = self._read_outputs(name, model)
        if own.height > 1:
            return own, f"predicted from its {own.height:,} outputs"
        for kind, what in ((kind_of(name), f"other {kind_of(name)} of {model}"), ("", f"other calls of {model}")):
            if (answers := self._pool_outputs(model, kind, own.clear())).height > 1:
                return answers, f"predicted from {answers.height:,} outputs of {what}"
        api = self.config.declared.get(model)
        return (
            own.clear(),
            f"from `expected-tokens` of {model}"
            if api and api.expected_tokens
            else f"no outputs yet, and no `expected-tokens` in {model}",
        )

    def _read_outputs(self, name: str, model: str) -> pl.DataFrame:
        """Return the outputs in an artifact's journal. Each journal is read once. Vectors have no tokens of output."""
        if name not in self._journals:
            self._journals[name] = read_outputs(Table(name, self.results).calls)
        outputs, entry = self._journals[name], self.config.entries[name]
        vectors = isinstance(entry, Overlaps) and model == entry.embedding
        return outputs.filter((pl.col("tokens") == 0) == vectors) if isinstance(entry, Overlaps) else outputs

    def _pool_outputs(self, model: str, kind: str, none: pl.DataFrame) -> pl.DataFrame:
        """Return the outputs of a model in all artifacts of a kind; of all kinds if it is empty."""
        if (model, kind) not in self._pools:
            users = [
                name for name in self.config.entries
                if KINDS[kind_of(name)].calls_models and kind in (kind_of(name), "") and model in self.models(name)
            ]  # fmt: skip
            stored = [name for name in users if Table(name, self.results).calls.exists()]
            self._pools[model, kind] = pl.concat([none, *(self._read_outputs(each, model) for each in stored)])
        return self._pools[model, kind]


def _rows_from(entry: Any) -> list[str]:
    """Return the tables that determine the number of rows of an entry."""
    values = [getattr(entry, name, None) for name in ("source", "also", "problems", "responses", "grades")]
    names = [name for value in values for name in ([value] if isinstance(value, str) else value or [])]
    return [name for name in names if "/" in name]


def _stamp(table: Table) -> dict | None:
    """Return the stamp of a table; None if it cannot be read."""
    try:
        return table.stamp
    except TableError:
        return None
