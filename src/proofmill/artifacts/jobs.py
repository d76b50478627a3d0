"""Jobs: a job makes one artifact. It fingerprints the entry, and restores a kept table or makes a new one.

`python -m proofmill.<kind> <kind>/<name>` reads config.yaml (and every --configfile, laid over it). A Snakemake rule
passes the checked entry as JSON instead, so that a job on another node needs no configuration.
"""

import argparse
import errno
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proofmill.artifacts import configurations
from proofmill.artifacts.faults import explained
from proofmill.artifacts.fingerprints import fingerprint_of, made_from, read_identity
from proofmill.artifacts.shares import Share
from proofmill.artifacts.stamps import new_stamp
from proofmill.artifacts.tables import Table
from proofmill.calls import merging
from proofmill.calls.calls import noticed
from proofmill.calls.journal import Journal
from proofmill.calls.shards import Shard, ShardJournal
from proofmill.recipes import plugins, yaml_files
from proofmill.recipes.book import expand
from proofmill.recipes.identity import identity_of
from proofmill.runtime import durable, environment, locks, processes, signals
from proofmill.runtime.cluster import slurm
from proofmill.runtime.progress import clock, say
from proofmill.schema.errors import ProofmillError, SettingError, TableError
from proofmill.schema.fields import required
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of

STOPPING = ("max_unscored", "max_attack")  # fields of an entry that are no part of its identity and come in the terms
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # of flock, where a file system has none


@dataclass
class Job:
    """What `main` of a kind gets besides the entry: table, models and graders, machine settings, unfinished stamp."""

    table: Table
    declared: Mapping[str, Any]  # api/... and grader/...
    fingerprint: str
    stamp: dict
    engine: str = "transformers"
    threads: int = 1
    engine_args: str = ""
    budget: float | None = None
    odd_calls: dict[str, str] = field(default_factory=dict)  # by key: what is to be noticed about them (calls.noticed)
    keeps_state: bool = False  # of a training: whether another may go on from its last step
    started: float = field(default_factory=time.monotonic)
    remark: str = ""  # what the last line says besides what came of it
    shard: Shard | None = None  # it asks the questions of a share of the rows alone, and writes no table
    advanced: threading.Event = field(default_factory=threading.Event)  # set where a training keeps what brings it on
    notices: list[str] = field(default_factory=list)  # of the engines that were open, for the stamp

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.table.name}.{self.shard.folder}" if self.shard else self.table.name

    @property
    def checkpoints(self) -> Path:
        """The checkpoints of an unfinished training with exactly this fingerprint."""
        return self.table.scratch / f"checkpoints-{self.fingerprint}"

    @property
    def engine_log(self) -> Path:
        """What an engine of its own said that did not start; shards of an artifact, which start together, have one each."""
        return self.table.scratch / (f"vllm.{self.shard.folder}.log" if self.shard else "vllm.log")

    def askers(self, models: Iterable[str]) -> AbstractContextManager[dict[str, Any]] | None:
        """What answers in the place of engines; None where models are really asked (inspect/asking_again.py)."""
        return None

    def parent(self, name: str) -> Table:
        """A table that the entry reads. Raises LookupError for others: fingerprint and graph do not cover them."""
        if name not in self.stamp["parents"]:
            raise LookupError(f"{self.name} reads {name}, which neither its entry nor `behind` of its kind names")
        if self.shard and name == self.stamp["entry"][required(KINDS[self.table.kind].splits)]:
            return Share(name, self.table.results, shard=self.shard)
        return self.table.other(name)

    def open_journal(self) -> AbstractContextManager[Journal]:
        """The journal of its calls: opened inside, with what shards were answered before."""
        return ShardJournal(self.table.calls, self.shard) if self.shard else merging.whole(self.table.calls)

    def finish(
        self,
        rows: Any,
        counts: Mapping[str, int],
        weights: Path | None = None,
        page: str | None = None,
        spent: Any = None,
        **facts: Any,
    ) -> None:
        """Write the table with its completed stamp, and log the counts. Of several processes only the leader writes.

        A shard, which has asked all that it was to ask, makes no rows.

        `counts` and `spent` (calls.Spent) may be filled while rows are made: they are read when all rows are written.
        `facts` are further fields of the stamp.
        """
        if processes.rank():
            return
        if self.shard:
            say(self.name, f"is answered; took {clock(time.monotonic() - self.started)}")
            return

        def stamp() -> dict[str, Any]:
            if self.notices:
                facts["notices"] = [*facts.get("notices", ()), *dict.fromkeys(self.notices)]
            if spent is not None:
                facts.update(cost=spent.cost and round(spent.cost, 9), tokens=spent.tokens, failures=spent.failures)
            if self.odd_calls:
                facts.update(calls_noticed=noticed(self.odd_calls))
            seconds = round(time.monotonic() - self.started, 2)
            return {**self.stamp, "counts": dict(counts), "seconds": seconds, "gpus": _gpus(), **facts}

        self.table.write(rows, stamp, weights, page)
        outcome = _outcome(counts)
        remark = "".join(f"; {text}" for text in [self.remark, *noticed(self.odd_calls)] if text)
        say(self.name, f"{outcome or 'done'}; took {clock(time.monotonic() - self.started)}{remark}")


def _outcome(counts: Mapping[str, int]) -> str:
    """Such as `12 ok, 3 no-verdict`; and `20 kept; dropped: 4 adds-up` where rows were refused."""
    kept = [f"{counts['kept']:,} kept"] if "kept" in counts else []
    other = ", ".join(f"{count:,} {what}" for what, count in counts.items() if what != "kept")
    return "; dropped: ".join([*kept, *([other] if other else [])])


def _gpus() -> int:
    """The number of GPUs that torch sees in this process; 0 without torch."""
    torch = sys.modules.get("torch")
    return torch.cuda.device_count() if torch and torch.cuda.is_available() else 0


def run(main: Callable[[Any, Job], None]) -> None:
    """The command line of a kind's module."""
    kind = Path(sys.argv[0]).stem
    # Progress bars of libraries make a log unreadable; progress.py logs instead.
    os.environ.setdefault("TQDM_DISABLE", "1")
    parser = argparse.ArgumentParser(
        prog=f"python -m proofmill.{kind}", description=f"Make one artifact of kind `{kind}`."
    )
    parser.add_argument("name", help=f"{kind}/<name>, as in config.yaml")
    parser.add_argument(
        "--entry",
        nargs="+",
        help="the checked entry as JSON, in one argument or several, instead of reading the configuration",
    )
    parser.add_argument("--configfile", nargs="+", default=[], help="laid over config.yaml")
    parser.add_argument("--results", type=Path, help="where tables stand, instead of where the configuration says")
    parser.add_argument(
        "--engine",
        default="transformers",
        choices=["transformers", "vllm", "vllm-server", *([] if KINDS[kind].learns else ["service"])],
        help="what serves an artifact model",
    )
    parser.add_argument("--engine-args", default="", help="further flags of vLLM's server, for either way of vLLM")
    parser.add_argument("--threads", type=int, default=1, help="for arithmetic in this process")
    parser.add_argument(
        "--terms", help="the budget and the shares that may fail as JSON, instead of the configuration's"
    )
    if KINDS[kind].splits:
        parser.add_argument(
            "--shard", metavar="I/K", help="ask the I-th of K shares of the questions, and write no table"
        )
    options = parser.parse_args()
    signals.at_once(options.name)
    try:
        environment.read_file()
        if kind_of(options.name) != kind:
            raise SettingError(f"{options.name}: expected {kind}/<name> for python -m proofmill.{kind}.")
        if options.entry is None:
            identity, options.terms, results = _from_config(options)
        else:
            identity, results = "".join(options.entry), "results"
        settings = {key: getattr(options, key) for key in ("terms", "engine", "threads", "engine_args")}
        settings["shard"] = Shard.read(options.shard) if getattr(options, "shard", None) else None
        folder = options.results or Path(results)
        with plugins.blamed(), _going_on_by_itself(Table(options.name, folder)) as advanced:
            make(main, options.name, identity, folder, advanced=advanced, **settings)
            signals.ignore()
    except ProofmillError as error:
        prefix = f"process {processes.rank()}: " if processes.rank() else ""
        sys.exit(f"{prefix}{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        signals.leave(f"{options.name}: interrupted; run the same command to go on.")


def _from_config(options: argparse.Namespace) -> tuple[str, str, str]:
    """The identity of the entry, the terms of its calls, and the folder of tables, from the configuration."""
    files = ["config.yaml", *options.configfile]
    book = expand(yaml_files.read(*files), drafts=True)
    (name,) = book.targeted(options.name)
    with suppress(OSError):  # a folder that cannot be written is reported when the table is
        configurations.note(book, options.results or Path(book.results), files)
    return identity_of(book.entries[name], book.declared), book.terms, book.results


@contextmanager
def _going_on_by_itself(table: Table) -> Iterator[threading.Event]:
    """Put a SLURM job that its walltime stops back into the queue, if it has kept anything since it began.

    One that has not would never end. Inside it everything that was made is kept, and the lock is gone.
    """
    began, advanced = time.time(), threading.Event()
    try:
        yield advanced
    except SystemExit as end:
        if not signals.walltime_is_near() or slurm.job() is None:
            raise
        if processes.rank():  # a launcher would end the leader with it; it ends with the job that the leader puts back
            time.sleep(signals.LAST_WORDS)
            raise
        signals.ignore()  # a launcher's, and SLURM's answer
        print(end.code, file=sys.stderr, flush=True)
        if not advanced.is_set() and not _wrote(table, began):
            learns = KINDS[table.kind].learns
            sys.exit(
                f"{table.name}: nothing was kept within the walltime of SLURM job {slurm.job()}; expected "
                f"{'a checkpoint' if learns else 'an answer'}. Raise `runtime` of its kind in site.yaml"
                f"{', or lower PROOFMILL_SAVE_MINUTES' if learns else ''}."
            )
        say(table.name, f"goes on by itself: SLURM job {slurm.job()} is put back into the queue")
        if not slurm.requeue():
            sys.exit(
                f"{table.name}: SLURM does not take its job back (`scontrol requeue`). Run the same command to go on."
            )
        sys.exit(1)


def _wrote(table: Table, began: float) -> bool:
    """Whether answers or the table were written since then.

    The answers of a training's judges count for nothing: without a checkpoint it may sample other attempts and ask anew.
    A log or an unfinished file brings no job on.
    """
    answers = [] if KINDS[table.kind].learns else table.calls.rglob("*")
    files = [*(path for path in answers if path.suffix in (".jsonl", ".parquet")), table.path]
    return any(path.exists() and path.stat().st_mtime >= began for path in files)


def make(
    main: Callable[[Any, Job], None], name: str, identity: str, results: Path, terms: str | None = None, **how: Any
) -> None:
    """Make the artifact `name` from the identity of its entry (recipes/identity.py), or restore the table it once had.

    `terms` (`Book.terms`) limits cost and failures; `how` has the fields of Job that belong to this machine.
    """
    allowed = json.loads(terms) if terms else {"budget": None, "max_parked": {}}
    if "plugins" in allowed:
        plugins.use(allowed["plugins"])
    entry, declared = read_identity(name, identity)
    limits = {field: allowed[field][name] for field in STOPPING if name in allowed.get(field, {})}
    entry = replace(entry, **limits) if limits else entry
    table = Table(name, results)
    parents, sources = made_from(table, entry, declared)
    fingerprint = fingerprint_of(entry, declared, parents, sources)

    def job() -> Job:
        stamp = new_stamp(name, identity_of(entry, declared), fingerprint, parents, sources)
        parked = {model: {"max_parked": most} for model, most in allowed["max_parked"].items()}
        for model in declared.keys() & {*parked, *(ways := allowed.get("transport", {}))}:
            declared[model] = replace(declared[model], **parked.get(model, {}), **ways.get(model, {}))
        keeps, known = name in allowed.get("states", ()), with_weights(declared, table, parents)
        return Job(table, known, fingerprint, stamp, budget=allowed["budget"], keeps_state=keeps, **how)

    with explained(table, parents):
        if processes.rank():  # several processes train one model: the leader holds the lock, decides and writes
            if processes.broadcast():
                main(entry, job())
            processes.leave()
            return
        fresh = {"all", name, table.kind} & set(os.environ.get("PROOFMILL_FRESH", "").split())
        if how.get("shard"):  # the lock is for those who write the table
            stands = table.path.exists() and table.stamp["fingerprint"] == fingerprint
            if not fresh and (stands or table.kept(fingerprint).exists()):
                say(name, f"shard {how['shard']} has nothing to ask: the table was made before")
            else:
                main(entry, job())
            return
        with _alone(table):
            current = job()
            if fresh and KINDS[table.kind].learns:
                _begin_anew(current.checkpoints)
            restored = not fresh and table.restore(fingerprint)
            processes.broadcast(not restored)
            if restored:
                say(name, "restored: the same was made before and kept")
            else:
                main(entry, current)
            processes.leave()  # after everything is written
            shutil.rmtree(current.checkpoints, ignore_errors=True)
            with suppress(OSError):  # not empty: an interrupted training of another entry can resume there
                table.scratch.rmdir()


def _begin_anew(checkpoints: Path) -> None:
    """Remove the checkpoints of a training that is forced, unless this run of Snakemake has forced it before.

    Its own job may have been put back into the queue meanwhile, and resumes then.
    """
    words = os.environ["PROOFMILL_FRESH"].split()
    run = next((word.encode() for word in words if word.startswith("run-")), b"")  # workflow/common.smk
    forced = checkpoints / "forced"
    if not run or not forced.exists() or forced.read_bytes() != run:
        shutil.rmtree(checkpoints, ignore_errors=True)
        checkpoints.mkdir(parents=True)
        durable.write(forced, run)


def with_weights(declared: Mapping[str, Any], table: Table, parents: Container[str]) -> dict[str, Any]:
    """What is declared; a remote model that weights among the parents play has their name as its id."""

    def played(api: Any) -> Any:
        weights = getattr(api, "weights", None)
        return replace(api, id=table.other(weights).model) if weights and weights in parents else api

    return {name: played(api) for name, api in declared.items()}


@contextmanager
def _alone(table: Table) -> Iterator[None]:
    """Lock out other processes that make this artifact: a requeued job, or one that outlived a killed Snakemake.

    Raises TableError when the lock stays taken, or where the file system has none.
    """
    with ExitStack() as stack:
        try:
            locked = stack.enter_context(locks.alone(table.lock, table.name))
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            raise TableError(
                f"{table.lock}: this file system has no locks ({error.strerror}); expected one where `flock` works, since two jobs "
                "could make one table. Mount it with locks (Lustre: -o flock; NFS: without -o nolock), or put results on "
                "another (--results)."
            ) from error
        if not locked:
            other = locks.slurm_job(table.lock)
            if other and slurm.in_queue(other) and slurm.requeue():
                sys.exit(f"{table.name}: SLURM job {other} is making it; this one is put back into the queue")
            raise TableError(
                f"{table.name}: another process has been making it for {locks.wait_seconds():g} s; expected one at a "
                "time. Wait for that job or cancel it, then run again."
            )
        yield
