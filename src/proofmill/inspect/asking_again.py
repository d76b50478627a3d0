"""Asking again: sets answers of a finished or broken stage aside, as when its judge was mended, so that they are asked anew.

Which answers belong to which row is found by making the stage's rows once more from its journal alone: nobody is asked,
and no table is written. Nothing is deleted. An answer that is set aside stays in its journal, followed by a line that
says so; the table goes to a copy that is not brought back (results/kept/<kind>/<name>/<fingerprint>.asked-again).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any, ClassVar

from proofmill.artifacts.fingerprints import fingerprint_of, made_from
from proofmill.artifacts.jobs import Job, with_weights
from proofmill.artifacts.kept import ASKED_AGAIN
from proofmill.artifacts.tables import Table
from proofmill.calls import merging, records
from proofmill.calls.calls import split_reasoning
from proofmill.calls.exchange import Answer, Question, Questions
from proofmill.calls.journal import AT_ONCE, Journal
from proofmill.recipes.book import Book
from proofmill.runtime import locks
from proofmill.schema.columns import COLUMNS
from proofmill.schema.errors import SettingError, TableError
from proofmill.schema.ids import digest
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import Reason, Stop
from proofmill.text.suggestions import among

_MISSING = Answer("", Stop.ERROR, Reason.ERROR)


@dataclass
class _Recalling:
    """Stands for an open model (calls.Asker): answers from the journal, and notes whose questions are asked."""

    journal: Journal
    read: Callable[[Answer], Answer]
    asked: dict[str, set[str]]  # keys by the row's id
    flows: ClassVar[bool] = False

    def __call__(self, questions: Questions, *_: Any, **__: Any) -> Iterator[Answer]:
        for row, question in questions.named():
            self.asked[row].add(question.key)
        return self.recalled(questions)

    def recalled(self, questions: Iterable[Question]) -> Iterator[Answer]:
        questions = iter(questions)
        while some := list(islice(questions, AT_ONCE)):
            answers = self.journal.answers([question for question in some if question in self.journal])
            yield from (self.read(next(answers)) if question in self.journal else _MISSING for question in some)


@dataclass
class _Rereading(Job):
    """A job that asks nobody, and of its rows keeps the ids of those that are wanted instead of writing all."""

    journal: Journal | None = None
    wanted: Callable[[Mapping[str, Any]], bool] = bool
    asked: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    chosen: set[str] = field(default_factory=set)

    @contextmanager
    def askers(self, models: Iterable[str]) -> Iterator[dict[str, Any]]:
        assert self.journal is not None
        yield {model: _Recalling(self.journal, self._reader(model), self.asked) for model in models}

    def _reader(self, model: str) -> Callable[[Answer], Answer]:
        if kind_of(model) != "api" or self.declared[model].weights:
            return lambda answer: answer
        return partial(split_reasoning, delimiters=self.declared[model].delimiters)

    def finish(self, rows: Any, *_: Any, **__: Any) -> None:
        self.chosen = {row[KINDS[self.table.kind].key] for row in rows if self.wanted(row)}


@dataclass(frozen=True)
class SetAside:
    """The answers that were set aside, and the rows that are asked again (None: all, which were not looked at).

    A row whose call failed has no answer to set aside, and is asked again all the same.
    """

    answers: int
    rows: int | None

    def __bool__(self) -> bool:
        return bool(self.answers or self.rows)


def ask_again(book: Book, table: Table, where: Sequence[str] = (), everything: bool = False) -> SetAside:
    """Set the answers of some rows aside: of those `where` all of `column=value` hold; without any, of unsettled rows.

    Unsettled is a row whose reason is not `ok`, or that was dropped. `everything`: all answers of the journal. Kill it
    when you like, and run it again. Raises SettingError for a table without journal or column, TableError where a job
    is making the table, or a parent is missing.
    """
    entry = book.entries[table.name]
    if not table.calls.is_dir():
        raise SettingError(f"{table.name}: has no journal in {table.calls}; expected answers to ask for again.")
    if KINDS[table.kind].learns and not everything:
        raise SettingError(
            f"{table.name}: asks while it trains, so that no answer stands for a row; expected all or none. Say --all to train "
            "it again with new answers."
        )
    wanted = _condition(where, table.kind)
    parents, sources = made_from(table, entry, book.declared)
    fingerprint = fingerprint_of(entry, book.declared, parents, sources)
    with locks.alone(table.lock) as alone:
        if not alone:
            raise TableError(f"{table.name}: another process is making it; expected none. Wait for it or cancel it.")
        with merging.whole(table.calls) as journal:
            if everything:
                keys, rows = {row.key for row in records.all_rows(table.calls)}, None
            else:
                stamp, declared = {"parents": parents}, with_weights(book.declared, table, parents)
                job = _Rereading(table, declared, fingerprint, stamp, journal=journal, wanted=wanted)
                import_module(f"proofmill.{table.kind}").main(entry, job)
                keys, rows = _keys(job)
            there = [key for key in sorted(keys) if _row(key) in journal]
            if keys:  # first the table: what is due is made from the journal, whatever a kill leaves there
                _make_due(table, fingerprint)
            _set_aside(journal, there)
    return SetAside(len(there), rows)


def _condition(where: Sequence[str], kind: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether all of `column=value` hold for a row; without any, whether it is unsettled."""
    if not where:
        return lambda row: row["reason"] != Reason.OK or row.get("dropped") is not None
    pairs = [condition.partition("=") for condition in where]
    for column, equals, value in pairs:
        if not equals or column not in COLUMNS[kind]:
            known = among(column, COLUMNS[kind], 30)
            raise SettingError(f"--where {column}{equals}{value}: expected column=value with one of {known}")
    return lambda row: all(_shown(row[column]) == value for column, _, value in pairs)


def _shown(value: Any) -> str:
    """A value as it is written after --where."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _keys(job: _Rereading) -> tuple[set[str], int]:
    """The keys of the questions that the chosen rows rest on, and how many rows that are.

    A question is noted under its row's id, or, where a problem has several attempts, under the problem's: the attempt's
    id is then made of both.
    """
    keys: dict[str, set[str]] = defaultdict(set)
    for row, asked in job.asked.items():
        for key in asked:
            for name in {row, digest(row, key)} & job.chosen:
                keys[name].add(key)
    return set().union(*keys.values()), len(keys)


def _set_aside(journal: Journal, keys: Iterable[str]) -> None:
    """Add to each of these answers that it is set aside."""
    for key in keys:
        row = _row(key, f"set aside on {date.today()}")
        journal.add(row, row.answer)
    journal.sync()


def _row(key: str, detail: str = "") -> records.Row:
    """The line of a journal that sets an answer aside."""
    return records.Row(key, Answer("", Stop.ERROR, Reason.SET_ASIDE, attempts=0, detail=detail))


def _make_due(table: Table, fingerprint: str) -> None:
    """Put the table aside, if it is as its entry says, and the copy that would be brought back in its place."""
    kept, current = table.kept(fingerprint), table.path.exists() and table.stamp["fingerprint"] == fingerprint
    if current and not kept.exists():
        kept.keep(table.path, table.folder, table.page)
    if kept.exists():
        kept.put_aside(ASKED_AGAIN)
    if current:
        table.path.unlink()
