"""Jobs: a job makes one artifact. It fingerprints the entry, then restores a table from the archive or makes a new one.

`python -m proofmill.<kind> <kind>/<name>` reads config.yaml and merges every --configfile onto it. A Snakemake rule
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
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proofmill.artifacts import configurations
from proofmill.artifacts.fingerprints import digest_inputs, fingerprint_of, read_identity
from proofmill.artifacts.shard_view import Share
from proofmill.artifacts.stamps import new_stamp
from proofmill.artifacts.system_errors import explained
from proofmill.artifacts.tables import Table
from proofmill.calls import merging
from proofmill.calls.calls import describe_odd_calls
from proofmill.calls.journal import Journal
from proofmill.calls.shards import Shard, ShardJournal
from proofmill.config import plugins, yaml_files
from proofmill.config.config import expand
from proofmill.config.identity import identity_of
from proofmill.runtime import durable, environment, locks, processes, signals
from proofmill.runtime.cluster import slurm
from proofmill.runtime.progress import clock, log
from proofmill.schema.errors import ProofmillError, SettingError, TableError
from proofmill.schema.fields import require
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of

# Fields of an entry that decide no row; they are passed in the terms and not in the identity.
IN_TERMS = ("max_unscored", "max_attack", "published_rows")
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # errors of flock on a file system without locks


@dataclass
class Job:
    """The argument of `main` next to the entry: table, models and graders, machine settings, unfinished stamp."""

    table: Table
    declared: Mapping[str, Any]  # api/... and grader/...
    fingerprint: str
    stamp: dict
    engine: str = "transformers"
    threads: int = 1
    engine_args: str = ""
    budget: float | None = None
    odd_calls: dict[str, str] = field(
        default_factory=dict
    )  # by key: what users should notice about them (calls.describe_odd_calls)
    keeps_state: bool = False  # keep the training state of the last step, for another training to continue from
    started: float = field(default_factory=time.monotonic)
    remark: str = ""  # added to the last line of the log
    shard: Shard | None = None  # if set, the job makes the calls of a share of the rows and writes no table
    advanced: threading.Event = field(default_factory=threading.Event)  # set once a training has saved progress
    notices: list[str] = field(default_factory=list)  # of the engines, for the stamp
    lenders: Sequence[Path] = ()  # journals of parents whose outputs count as own ones, at no cost
    published: Mapping[str, Any] | None = None  # how many rows a paper reports for this table (fields.Published)

    @property
    def name(self) -> str:
        """The name for messages."""
        return f"{self.table.name}.{self.shard.folder}" if self.shard else self.table.name

    @property
    def checkpoints(self) -> Path:
        """The checkpoints of an unfinished training with exactly this fingerprint."""
        return self.table.scratch / f"checkpoints-{self.fingerprint}"

    @property
    def engine_log(self) -> Path:
        """The log of an engine that did not start; shards start together and have one each."""
        return self.table.scratch / (f"vllm.{self.shard.folder}.log" if self.shard else "vllm.log")

    def askers(self, models: Iterable[str]) -> AbstractContextManager[dict[str, Any]] | None:
        """Return a replacement for engines; None if models are called (artifacts/maintenance/invalidation.py overrides this)."""
        return None

    def parent(self, name: str) -> Table:
        """Return a table that the entry reads. Raises LookupError for others, which the fingerprint does not cover."""
        if name not in self.stamp["parents"]:
            raise LookupError(f"{self.name} reads {name}, which neither its entry nor `behind` of its kind names")
        if self.shard and name == self.stamp["entry"][require(KINDS[self.table.kind].splits)]:
            return Share(name, self.table.results, shard=self.shard)
        return self.table.other(name)

    def open_journal(self) -> AbstractContextManager[Journal]:
        """Return the journal of its calls, to be opened with `with`; it includes the outputs of finished shards."""
        folder = self.table.calls
        if self.shard:
            return ShardJournal(folder, self.shard, self.lenders)
        return merging.whole(folder, lenders=self.lenders)

    def finish(
        self,
        rows: Any,
        counts: Mapping[str, int],
        weights: Path | None = None,
        page: str | None = None,
        spent: Any = None,
        **facts: Any,
    ) -> None:
        """Write the table with its completed stamp, and log the counts. Only the leader of several processes writes.

        A shard writes no rows: its calls are complete.

        `counts` and `spent` (calls.Spent) may be filled while rows are generated: they are read after the last row.
        `facts` are further fields of the stamp.
        """
        if processes.rank():
            return
        if self.shard:
            log(self.name, f"all calls are done; took {clock(time.monotonic() - self.started)}")
            return

        def stamp() -> dict[str, Any]:
            if self.published:
                self.notices.append(_compare(counts["kept"], **self.published))
                log(self.name, self.notices[-1])
            if self.notices:
                facts["notices"] = [*facts.get("notices", ()), *dict.fromkeys(self.notices)]
            if spent is not None:
                facts.update(cost=spent.cost and round(spent.cost, 9), tokens=spent.tokens, failures=spent.failures)
            if self.odd_calls:
                facts.update(calls_noticed=describe_odd_calls(self.odd_calls))
            seconds = round(time.monotonic() - self.started, 2)
            return {**self.stamp, "counts": dict(counts), "seconds": seconds, "gpus": _gpus(), **facts}

        self.table.write(rows, stamp, weights, page)
        outcome = _outcome(counts)
        remark = "".join(f"; {text}" for text in [self.remark, *describe_odd_calls(self.odd_calls)] if text)
        log(self.name, f"{outcome or 'done'}; took {clock(time.monotonic() - self.started)}{remark}")


def _outcome(counts: Mapping[str, int]) -> str:
    """Return counts as text: `12 ok, 3 no-verdict`, or `20 kept; dropped: 4 adds-up` if rows were dropped."""
    kept = [f"{counts['kept']:,} kept"] if "kept" in counts else []
    other = ", ".join(f"{count:,} {name}" for name, count in counts.items() if name != "kept")
    return "; dropped: ".join([*kept, *([other] if other else [])])


def _compare(kept: int, rows: int, source: str) -> str:
    """Compare the number of kept rows with a published one."""
    odd = not rows / 10 <= kept <= rows * 10
    expected = "; expected a tenth of them to ten times as many. See what its filters drop" if odd else ""
    return f"{kept:,} rows are kept; {rows:,} are published ({source}){expected}"


def _gpus() -> int:
    """Return the number of GPUs that torch sees in this process; 0 without torch."""
    torch = sys.modules.get("torch")
    return torch.cuda.device_count() if torch and torch.cuda.is_available() else 0


def run(main: Callable[[Any, Job], None]) -> None:
    """Run the command line of a kind's module."""
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
        help="the checked entry as JSON, in one or several arguments (default: that of the configuration)",
    )
    parser.add_argument("--configfile", nargs="+", default=[], help="merged onto config.yaml, in this order")
    parser.add_argument("--results", type=Path, help="results folder (default: `results` of the configuration)")
    parser.add_argument(
        "--engine",
        default="transformers",
        choices=["transformers", "vllm", "vllm-server", *([] if KINDS[kind].trains else ["service"])],
        help="engine for models that are artifacts",
    )
    parser.add_argument("--engine-args", default="", help="further flags of vLLM's server, for vllm and vllm-server")
    parser.add_argument("--threads", type=int, default=1, help="threads for computation in this process")
    parser.add_argument(
        "--limits", dest="terms", help="budget and limits of failures as JSON (default: those of the configuration)"
    )
    if KINDS[kind].splits:
        parser.add_argument(
            "--shard", metavar="I/K", help="make the calls of the I-th of K shares of the rows, and write no table"
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
        with plugins.blamed(), _requeue_at_walltime(Table(options.name, folder)) as advanced:
            make(main, options.name, identity, folder, advanced=advanced, **settings)
            signals.ignore()
    except ProofmillError as error:
        prefix = f"process {processes.rank()}: " if processes.rank() else ""
        sys.exit(f"{prefix}{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        signals.leave(f"{options.name}: interrupted; run the same command to resume.")


def _from_config(options: argparse.Namespace) -> tuple[str, str, str]:
    """Return the identity of the entry, the terms of its calls and the results folder, from the configuration."""
    files = ["config.yaml", *options.configfile]
    config = expand(yaml_files.read(*files), drafts=True)
    (name,) = config.list_target(options.name)
    with suppress(OSError):  # a read-only folder is reported when the table is written
        configurations.note(config, options.results or Path(config.results), files)
    return identity_of(config.entries[name], config.declared), config.terms, config.results


@contextmanager
def _requeue_at_walltime(table: Table) -> Iterator[threading.Event]:
    """Requeue a SLURM job that stops before its walltime, if it has saved any progress since it began.

    A job without progress would never end. When the body exits, its results are saved and its lock is released.
    """
    before, advanced = _list_outputs(table), threading.Event()
    try:
        yield advanced
    except SystemExit as end:
        if not signals.walltime_is_near() or slurm.job() is None:
            raise
        if processes.rank():  # a launcher would stop the leader with it; it ends with the job that the leader requeues
            time.sleep(signals.LAST_WORDS)
            raise
        signals.ignore()  # those of a launcher, and of SLURM at a requeue
        print(end.code, file=sys.stderr, flush=True)
        if not advanced.is_set() and _list_outputs(table) == before:
            learns = KINDS[table.kind].trains
            sys.exit(
                f"{table.name}: saved no progress within the walltime of SLURM job {slurm.job()}; expected "
                f"{'a checkpoint' if learns else 'a model output'}. Raise `runtime` of its kind in site.yaml"
                f"{', or lower PROOFMILL_SAVE_MINUTES' if learns else ''}."
            )
        log(table.name, f"resumes automatically: SLURM job {slurm.job()} is requeued")
        if not slurm.requeue():
            sys.exit(
                f"{table.name}: SLURM refuses to requeue its job (`scontrol requeue`). Run the same command to resume."
            )
        sys.exit(1)


def _list_outputs(table: Table) -> dict[Path, tuple[int, int]]:
    """Return time and size of the table and of the files of its model outputs; what changes them is progress.

    Outputs of a training's judges do not count: without a checkpoint it may sample other rollouts and repeat the calls.
    Logs and unfinished files are not progress. No clock decides: that of a file system may be behind that of a node.
    """
    answers = [] if KINDS[table.kind].trains else table.calls.rglob("*")
    outputs = {}
    for path in [*(path for path in answers if path.suffix in (".jsonl", ".parquet")), table.path]:
        with suppress(FileNotFoundError):
            outputs[path] = (path.stat().st_mtime_ns, path.stat().st_size)
    return outputs


def make(
    main: Callable[[Any, Job], None], name: str, identity: str, results: Path, terms: str | None = None, **how: Any
) -> None:
    """Make the artifact `name` from the identity of its entry (config/identity.py), or restore it from the archive.

    `terms` (`Config.terms`) limits cost and failures; `how` has the fields of Job that depend on this machine.
    """
    allowed = json.loads(terms) if terms else {"budget": None, "max_failed": {}}
    if "plugins" in allowed:
        plugins.use(allowed["plugins"])
    entry, declared = read_identity(name, identity)
    limits = {field: allowed[field][name] for field in IN_TERMS if name in allowed.get(field, {})}
    entry = replace(entry, **limits) if limits else entry
    table = Table(name, results)
    parents, sources = digest_inputs(table, entry, declared)
    fingerprint = fingerprint_of(name, entry, declared, parents, sources)

    def job() -> Job:
        stamp = new_stamp(name, identity_of(entry, declared), fingerprint, parents, sources)
        failed = {model: {"max_failed": most} for model, most in allowed["max_failed"].items()}
        for model in declared.keys() & {*failed, *(ways := allowed.get("transport", {}))}:
            declared[model] = replace(declared[model], **failed.get(model, {}), **ways.get(model, {}))
        keeps, known = name in allowed.get("states", ()), with_weights(declared, table, parents)
        published = getattr(entry, "published_rows", None)
        return Job(
            table, known, fingerprint, stamp, budget=allowed["budget"], keeps_state=keeps, published=published, **how
        )

    with explained(table, parents):
        if processes.rank():  # several processes train one model: the leader holds the lock, decides and writes
            if processes.broadcast():
                main(entry, job())
            processes.leave()
            return
        fresh = {"all", name, table.kind} & set(os.environ.get("PROOFMILL_FORCE", "").split())
        if how.get("shard"):  # the lock is for jobs that write the table
            done = table.path.exists() and table.stamp["fingerprint"] == fingerprint
            if not fresh and (done or table.archive_of(fingerprint).exists()):
                log(name, f"shard {how['shard']}: nothing to do, the table exists")
            else:
                main(entry, job())
            return
        with _alone(table):
            current = job()
            if fresh and KINDS[table.kind].trains:
                _remove_old_checkpoints(current.checkpoints)
            restored = not fresh and table.restore(fingerprint)
            processes.broadcast(not restored)
            if restored:
                log(name, "restored from the archive")
            else:
                main(entry, current)
            processes.leave()  # after everything is written
            shutil.rmtree(current.checkpoints, ignore_errors=True)
            with suppress(OSError):  # not empty: an interrupted training of another entry can resume there
                table.scratch.rmdir()


def _remove_old_checkpoints(checkpoints: Path) -> None:
    """Remove the checkpoints of a forced training, unless this run of Snakemake has forced it before.

    Its own job may have been requeued since, and then resumes.
    """
    words = os.environ["PROOFMILL_FORCE"].split()
    run = next((word.encode() for word in words if word.startswith("run-")), b"")  # graph.format_forced
    forced = checkpoints / "forced"
    if not run or not forced.exists() or forced.read_bytes() != run:
        shutil.rmtree(checkpoints, ignore_errors=True)
        checkpoints.mkdir(parents=True)
        durable.write(forced, run)


def with_weights(declared: Mapping[str, Any], table: Table, parents: Container[str]) -> dict[str, Any]:
    """Return the declared models and graders; one that serves a parent's weights gets their name as its id."""

    def describe_api(api: Any) -> Any:
        weights = getattr(api, "weights", None)
        return replace(api, id=table.other(weights).model) if weights and weights in parents else api

    return {name: describe_api(api) for name, api in declared.items()}


@contextmanager
def _alone(table: Table) -> Iterator[None]:
    """Lock out other processes that make this artifact: a requeued job, or one that outlived a killed Snakemake.

    Raises TableError if the lock stays taken, or if the file system has no locks.
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
                sys.exit(f"{table.name}: SLURM job {other} is making it; this one is requeued")
            raise TableError(
                f"{table.name}: another process has been making it for {locks.wait_seconds():g} s; expected one at a "
                "time. Wait for that job or cancel it, then rerun."
            )
        yield
