"""Invalidate model outputs of a stage, so that its next run repeats the calls, e.g. after fixing its judge.

The outputs of a row are found by rebuilding the stage's rows from its journal alone, without calls or a new table.
Nothing is deleted. An invalidated output stays in its journal, followed by a line that invalidates it. The table becomes
an archived copy that is never restored (results/archive/<kind>/<name>/<fingerprint>.invalidated). So do all other copies,
because an edit that is reverted would restore them; they are rebuilt from the journal, with calls for these rows only.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from proofmill.artifacts.archive import INVALIDATED, ArchivedTable
from proofmill.artifacts.fingerprints import digest_inputs, fingerprint_of
from proofmill.artifacts.jobs import Job, with_weights
from proofmill.artifacts.joins import lenders_of
from proofmill.artifacts.tables import Table
from proofmill.calls import merging, records
from proofmill.calls.journal import AT_ONCE, Journal
from proofmill.calls.model_requests import ModelOutput, ModelRequest, Requests, reader_of
from proofmill.config.config import Config
from proofmill.runtime import locks
from proofmill.schema.columns import COLUMNS
from proofmill.schema.errors import SettingError, TableError
from proofmill.schema.ids import digest
from proofmill.schema.kinds import KINDS
from proofmill.schema.reasons import Reason, StopReason
from proofmill.text.suggestions import among

_MISSING = ModelOutput("", StopReason.ERROR, Reason.ERROR)


@dataclass
class _JournalModel:
    """A model (calls.Asker) that answers from the journal and records the request keys of each row."""

    journal: Journal
    read: Callable[[ModelOutput], ModelOutput]
    asked: dict[str, set[str]]  # keys by the row's id
    is_open: ClassVar[bool] = False

    def __call__(self, requests: Requests, *_: Any, **__: Any) -> Iterator[ModelOutput]:
        for row, request in requests.with_rows():
            self.asked[row].add(request.key)
        return self.recall(requests)

    def recall(self, requests: Iterable[ModelRequest]) -> Iterator[ModelOutput]:
        """Yield the journal's outputs in order; an error for a request that it lacks."""
        requests = iter(requests)
        while batch := list(islice(requests, AT_ONCE)):
            answers = self.journal.answers([request for request in batch if request in self.journal])
            yield from (self.read(next(answers)) if request in self.journal else _MISSING for request in batch)


@dataclass
class _DryJob(Job):
    """A job that makes no calls, writes no table, and records the ids of the rows that are selected."""

    journal: Journal | None = None
    is_selected: Callable[[Mapping[str, Any]], bool] = bool
    asked: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    selected: set[str] = field(default_factory=set)

    @contextmanager
    def askers(self, models: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yield models that answer from the journal."""
        assert self.journal is not None
        yield {model: _JournalModel(self.journal, reader_of(model, self.declared), self.asked) for model in models}

    def finish(self, rows: Any, *_: Any, **__: Any) -> None:
        """Record the ids of the selected rows."""
        self.selected = {row[KINDS[self.table.kind].key] for row in rows if self.is_selected(row)}


@dataclass(frozen=True)
class Invalidated:
    """The number of invalidated outputs, and of rows whose calls are repeated (None: all rows, not counted).

    A row whose call failed has no output to invalidate, but its call is repeated, too.
    """

    answers: int
    rows: int | None

    def __bool__(self) -> bool:
        return bool(self.answers or self.rows)


def invalidate(config: Config, table: Table, where: Sequence[str] = (), everything: bool = False) -> Invalidated:
    """Invalidate the outputs of the rows where all of `column=value` hold; without any, of unsettled rows.

    A row is unsettled if its reason is not `ok`, or if it was dropped. `everything`: all outputs of the journal. Can be
    killed and rerun at any time. Raises SettingError for a table without journal or column, or whose outputs are in its
    parent's journal, TableError if a job is building the table, or a parent is missing.
    """
    entry = config.entries[table.name]
    if not table.calls.is_dir():
        raise SettingError(f"{table.name}: has no journal in {table.calls}; expected model outputs to invalidate.")
    if KINDS[table.kind].trains and not everything:
        raise SettingError(
            f"{table.name}: makes its calls while training, so no output belongs to a single row; expected --all. Set --all to "
            "repeat the training with new outputs."
        )
    is_selected = (lambda _: True) if everything else _condition(where, table.kind)
    parents, sources = digest_inputs(table, entry, config.declared)
    fingerprint = fingerprint_of(table.name, entry, config.declared, parents, sources)
    with locks.alone(table.lock) as alone:
        if not alone:
            raise TableError(f"{table.name}: another process is building it; expected none. Wait for it, or cancel it.")
        lenders = lenders_of(table.other(entry.responses)) if table.kind == "grades" else []
        with merging.whole(table.calls, lenders=lenders) as journal:
            keys, rows = ({row.key for row in records.all_rows(table.calls)} if everything else set()), None
            if lenders or not everything:
                stamp, declared = {"parents": parents}, with_weights(config.declared, table, parents)
                job = _DryJob(table, declared, fingerprint, stamp, journal=journal, is_selected=is_selected)
                import_module(f"proofmill.{table.kind}").main(entry, job)
                asked, selected = _keys(job)
                keys, rows = keys | asked, None if everything else selected
            _check_own(table, entry, keys, lenders)
            stored = [key for key in sorted(keys) if _row(key) in journal]
            if keys:  # the tables first: a rebuild reads the journal, whatever state a kill leaves it in
                _make_due(table)
            _add_invalidations(journal, stored)
    return Invalidated(len(stored), rows)


def _condition(where: Sequence[str], kind: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return a predicate: all of `column=value` hold for a row; without any, the row is unsettled."""
    if not where:
        return lambda row: row["reason"] != Reason.OK or row.get("dropped") is not None
    pairs = [condition.partition("=") for condition in where]
    for column, equals, value in pairs:
        if not equals or column not in COLUMNS[kind]:
            known = among(column, COLUMNS[kind])
            raise SettingError(f"--where {column}{equals}{value}: expected column=value with one of {known}")
    return lambda row: all(_format_value(row[column]) == value for column, _, value in pairs)


def _format_value(value: Any) -> str:
    """Return a value as it is written after --where."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _keys(job: _DryJob) -> tuple[set[str], int]:
    """Return the keys of the requests that the selected rows depend on, and the number of these rows.

    A request is recorded under its row's id. If a problem has several attempts, it is recorded under the problem's id, and
    the id of the attempt is a digest of both.
    """
    keys: dict[str, set[str]] = defaultdict(set)
    for row, asked in job.asked.items():
        for key in asked:
            for name in {row, digest(row, key)} & job.selected:
                keys[name].add(key)
    return set().union(*keys.values()), len(keys)


def _check_own(table: Table, entry: Any, keys: Set[str], lenders: Sequence[Path]) -> None:
    """Raise SettingError if one of the outputs is in a parent's journal, which would answer the next run as well."""
    if lent := sum(key in lender for lender in map(records.Earlier, lenders) for key in keys):
        raise SettingError(
            f"{table.name}: {lent:,} of these outputs are in the journal of {entry.responses}, which asks the grader while it "
            f"samples (`until`); expected outputs of its own calls. Repeat those calls: proofmill invalidate {entry.responses} --all"
        )


def _add_invalidations(journal: Journal, keys: Iterable[str]) -> None:
    """Add a line to the journal for each output that is no longer valid."""
    for key in keys:
        row = _row(key, f"invalidated on {date.today()}")
        journal.add(row, row.answer)
    journal.sync()


def _row(key: str, detail: str = "") -> records.CallRecord:
    """Return the line of a journal that invalidates an output."""
    return records.CallRecord(key, ModelOutput("", StopReason.ERROR, Reason.INVALIDATED, tries=0, detail=detail))


def _make_due(table: Table) -> None:
    """Move the table and all its archived copies out of use."""
    if exists := table.path.exists():
        kept = table.archive_of(table.stamp["fingerprint"])
        if not kept.exists():
            kept.keep(table.path, table.folder, table.page)
    for folder in sorted((table.results / "archive" / table.name).glob("*")):
        copy = ArchivedTable(folder, table.name)
        if copy.exists() and not copy.is_aside:
            copy.set_invalid(INVALIDATED)
    if exists:
        table.path.unlink()
