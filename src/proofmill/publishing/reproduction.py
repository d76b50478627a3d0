"""Derive published tables again from their published model outputs, without a call, and compare every value.

    proofmill reproduce FOLDER            what `publish --with-answers --dry-run` wrote, or a clone of the dataset
    proofmill reproduce NAMESPACE/NAME    a dataset of the hub

Each table is derived from its entry, its published parents and its own outputs (results/calls/<kind>/<name>), so equal
tables follow from the answers alone. Nothing is written, and no model is called.

Differences from rerunning a published notebook:
1. A derived value equals the published one exactly, or the first row that differs is named.
2. Trainings and weights are not derived; their tables are taken as published. So are tables whose source or model outputs
   are not here. If only some outputs are missing, the table differs.
3. Prompts, revisions and versions that differ from those of the published table are named: they may change a digit.
"""

import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

from proofmill.artifacts.fingerprints import read_identity
from proofmill.artifacts.jobs import Job, with_weights
from proofmill.artifacts.stamps import new_stamp
from proofmill.artifacts.tables import Table
from proofmill.calls import records
from proofmill.calls.model_requests import ModelOutput, ModelRequest, Requests, reader_of
from proofmill.config.identity import identity_of
from proofmill.runtime.progress import log
from proofmill.schema.columns import COLUMNS
from proofmill.schema.errors import ProofmillError, SettingError, TableError, shorten
from proofmill.schema.kinds import KINDS

TAKEN = ("base", "sft", "grpo", "selfplay")  # kinds that only a training or a download can make
DECIDING = ("python", "proofmill", "polars")  # versions that may change a digit without a call


class MissingAnswer(ProofmillError):
    """A request whose output is not among the published ones."""


@dataclass(frozen=True)
class Outcome:
    """The comparison of a table: `equal`, `differs`, or `taken` as published; with the reason, and counts."""

    name: str
    state: str
    why: str = ""
    rows: int = 0
    answers: int = 0


@dataclass
class PublishedModel:
    """A model (calls.Asker) that answers from published outputs."""

    folders: Callable[[], Sequence[Path]]
    read: Callable[[ModelOutput], ModelOutput]
    seen: set[str]
    is_open: ClassVar[bool] = False
    _answers: dict[str, ModelOutput] | None = None

    def __call__(self, requests: Requests, *_: Any, **__: Any) -> Iterator[ModelOutput]:
        return self.recall(requests)

    def recall(self, requests: Iterable[ModelRequest]) -> Iterator[ModelOutput]:
        """Yield the published outputs in order. Raises MissingAnswer for a request without one."""
        if self._answers is None:
            frames = [records.frame(folder) for folder in self.folders() if records.any_rows(folder)]
            rows = (row for frame in reversed(frames) for row in frame.to_dicts())  # its own journal counts first
            self._answers = {row["key"]: records.answer_of(row) for row in rows}
        for request in requests:
            if (answer := self._answers.get(request.key)) is None:
                raise MissingAnswer(
                    f"no published output for a request to {request.model} ({shorten(request.messages[-1][1])})"
                )
            self.seen.add(request.key)
            yield self.read(answer)


@dataclass
class ComparedJob(Job):
    """A job that makes no calls and writes no table: it compares its rows with those of the published table."""

    fault: str = ""
    rows_compared: int = 0
    seen: set[str] = field(default_factory=set)

    @contextmanager
    def askers(self, models: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yield models that answer from published outputs."""
        folders = lambda: [self.table.calls, *self.lenders]  # noqa: E731  (lenders are set before the first request)
        yield {model: PublishedModel(folders, reader_of(model, self.declared), self.seen) for model in models}

    def finish(self, rows: Any, *_: Any, page: str | None = None, **__: Any) -> None:
        """Compare the rows, and the page of scores, with the published ones; keep the first difference."""
        schema = {name: dtype for name, (dtype, _) in COLUMNS[self.table.kind].items()}
        derived = (row for frame in self.table.check_rows(rows, schema) for row in frame.to_dicts())
        for number, (own, published) in enumerate(zip_longest(derived, self.table.stream(kept=False))):
            if own is None or published is None:
                self.fault = f"row {number}: is {'missing' if own is None else 'added'} when derived"
                return
            if columns := [column for column in published if not alike(own[column], published[column])]:
                shown = f"{shorten(published[columns[0]])} is published, {shorten(own[columns[0]])} derived"
                id = published.get(KINDS[self.table.kind].key or "", "")
                self.fault = f"row {number}{f' ({id})' * bool(id)}: `{columns[0]}`: {shown}"
                return
            self.rows_compared = number + 1
        if page is not None and self.table.page.exists() and self.table.page.read_text(encoding="utf-8") != page:
            self.fault = "its page differs, and its numbers are equal"


def alike(own: Any, published: Any) -> bool:
    """Return whether two values of a column are equal, to the last digit; NaN equals NaN."""
    if isinstance(own, float) and isinstance(published, float) and math.isnan(own):
        return math.isnan(published)
    if isinstance(own, Mapping) and isinstance(published, Mapping):
        return {*own} == {*published} and all(alike(own[key], published[key]) for key in own)
    if isinstance(own, list | tuple) and isinstance(published, list | tuple):
        return len(own) == len(published) and all(map(alike, own, published))
    return own == published


def reproduce(source: str, only: Sequence[str] = ()) -> list[Outcome]:
    """Compute the tables of a publication in a folder or on the hub, and return the outcome of each, with progress logged.

    Raises SettingError for a source without tables, or unknown names in `only`.
    """
    with tempfile.TemporaryDirectory(prefix="proofmill-") as scratch:
        results = _fetch(source, Path(scratch)) / "results"
        names = sorted(
            f"{path.parent.name}/{path.stem}" for path in results.glob("*/*.parquet") if path.parent.name in KINDS
        )
        if not names:
            raise SettingError(f"{source}: has no tables; expected a publication with results/<kind>/<name>.parquet.")
        if unknown := [name for name in only if name not in names]:
            raise SettingError(f"--only {unknown[0]}: is not among the {len(names)} published tables of {source}.")
        outcomes = []
        for name in only or names:
            outcomes.append(derive(Table(name, results)))
            log(name, describe(outcomes[-1]))
        return outcomes


def _fetch(source: str, scratch: Path) -> Path:
    """Return the folder of a publication; of the hub, a download."""
    if Path(source).is_dir():
        folder = scratch / "publication"  # a copy: reading a journal must not change what was published
        inner = [] if Path(source, "results").is_dir() else [*Path(source).glob("*-tables")]  # a folder of --dry-run
        shutil.copytree(inner[0] if len(inner) == 1 else source, folder)
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return Path(snapshot_download(source, repo_type="dataset", local_dir=scratch / "publication"))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise SettingError(
            f"{source}: is no folder, and the hub does not have it ({shorten(str(error))}); expected a folder or NAMESPACE/NAME."
        ) from error


def derive(table: Table) -> Outcome:
    """Compute one published table from its parents and outputs, and compare it."""
    try:
        for _ in table.stream():
            pass
    except TableError as error:
        return Outcome(table.name, "differs", str(error))
    if table.kind in TAKEN:
        return Outcome(table.name, "taken", f"a {table.kind} is not derived from answers", table.height)
    stamp = table.stamp
    if missing := [name for name in stamp["parents"] if not table.other(name).path.exists()]:
        return Outcome(table.name, "taken", f"its parent {missing[0]} is not published", table.height)
    try:
        entry, declared = read_identity(table.name, json.dumps(stamp))
        identity = identity_of(entry, declared)
        own = new_stamp(table.name, identity, stamp["fingerprint"], stamp["parents"], stamp["sources"])
        job = ComparedJob(table, with_weights(declared, table, stamp["parents"]), stamp["fingerprint"], own)
        relaxed = {"max_unscored": 1.0} if hasattr(entry, "max_unscored") else {}  # limits decide no row
        import_module(f"proofmill.{table.kind}").main(replace(entry, **relaxed), job)
    except MissingAnswer as error:
        if not any(records.any_rows(folder) for folder in (table.calls, *job.lenders)):
            return Outcome(table.name, "taken", "its model outputs are not published", table.height)
        return Outcome(table.name, "differs", f"{error}{_differences(stamp)}", 0, 0)
    except (LookupError, TypeError, ValueError) as error:  # of a stamp that no version of proofmill wrote
        return Outcome(
            table.name, "differs", f"its entry cannot be derived: {type(error).__name__}: {shorten(str(error))}"
        )
    except ProofmillError as error:
        # A file, a dataset of the hub or a plugin may be missing here; any other fault is one of the publication.
        outside = stamp["sources"] or stamp["entry"].get("id") or stamp.get("plugins")
        state = "taken" if outside else "differs"
        return Outcome(table.name, state, f"it cannot be derived here: {shorten(str(error))}", table.height)
    if job.fault:
        return Outcome(
            table.name, "differs", f"{job.fault}{_differences(stamp, own)}", job.rows_compared, len(job.seen)
        )
    return Outcome(table.name, "equal", "", job.rows_compared, len(job.seen))


def _differences(stamp: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> str:
    """Return what differs from the code that made a table, as the end of a sentence; empty if nothing known does."""
    own = own or new_stamp(stamp["name"], json.dumps({"entry": stamp["entry"]}), "", {}, {})
    parts = [
        f"{name} {stamp['versions'][name]} made it, here is {own['versions'].get(name, 'none')}"
        for name in DECIDING
        if name in stamp["versions"] and stamp["versions"][name] != own["versions"].get(name)
    ]
    if "revision" in own and own["revision"] != stamp["revision"]:
        parts.append(f"revision {stamp['revision']} of its kind, here {own['revision']}")
    prompts = own.get("prompts", stamp["prompts"])
    parts += [f"prompt `{name}` differs" for name in stamp["prompts"] if prompts.get(name) != stamp["prompts"][name]]
    return f"; {'; '.join(parts)}" if parts else ""


def describe(outcome: Outcome) -> str:
    """Return an outcome as a line."""
    if outcome.state == "equal":
        calls = f" from {outcome.answers:,} answers" if outcome.answers else ""
        return f"equal: {outcome.rows:,} rows{calls}"
    return f"{'DIFFERS' if outcome.state == 'differs' else 'taken as published'}: {outcome.why}"


# ------------------------------------------------------------------------------------------------------------- answers


def pack_answers(table: Table, target: Path) -> Path | None:
    """Write the outputs of a table's journal as one segment, the last of each request; None without any."""
    if not records.any_rows(table.calls) and not records.shards(table.calls):
        return None
    frame = records.frame(table.calls)
    if frame.is_empty():
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    records.write(frame.sort("key"), target)
    return target
