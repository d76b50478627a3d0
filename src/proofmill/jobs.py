"""One job makes one artifact: reads its entry, fingerprints it, brings back a kept table or makes a new one.

`python -m proofmill.<kind> <kind>/<name>` reads config.yaml (and every --configfile, laid over it); a Snakemake rule hands
the checked entry over as JSON instead, so that a job on another node needs no configuration.
"""

import argparse
import errno
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from proofmill import kinds, locks, recipes
from proofmill.calls import JournalError
from proofmill.progress import clock, say
from proofmill.recipes import RecipeError
from proofmill.tables import Table, TableError, digest, file_sha256, new_stamp


@dataclass
class Job:
    """What `main` of a kind is given besides the entry: its table, the remote models, the machine, and the stamp to be."""

    table: Table
    apis: Mapping[str, Any]
    fingerprint: str
    stamp: dict
    engine: str = "transformers"
    threads: int = 1
    started: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def checkpoints(self) -> Path:
        """Where an unfinished training of exactly this entry stands: of another fingerprint it would be another training."""
        return self.table.scratch / f"checkpoints-{self.fingerprint}"

    def parent(self, name: str) -> Table:
        return self.table.other(name)

    def finish(
        self, rows: Any, counts: Mapping[str, int], weights: Path | None = None, page: str | None = None, **facts: Any
    ) -> None:
        """Write the table with its completed stamp, and say what became of the rows."""
        seconds = round(time.monotonic() - self.started, 2)
        self.table.write(rows, {**self.stamp, "counts": dict(counts), "seconds": seconds, **facts}, weights, page)
        outcome = ", ".join(f"{count:,} {what}" for what, count in counts.items())
        say(self.name, f"{outcome or 'done'}; took {clock(seconds)}")


def run(main: Callable[[Any, Job], None]) -> None:
    """The command line of a kind's module."""
    kind = Path(sys.argv[0]).stem
    os.environ.setdefault(
        "TQDM_DISABLE", "1"
    )  # bars of libraries make a log unreadable; progress.py says what is to be said
    parser = argparse.ArgumentParser(
        prog=f"python -m proofmill.{kind}", description=f"Make one artifact of kind `{kind}`."
    )
    parser.add_argument("name", help=f"{kind}/<name>, as in config.yaml")
    parser.add_argument("--entry", help="the checked entry as JSON, instead of reading the configuration")
    parser.add_argument("--configfile", nargs="+", default=[], help="laid over config.yaml")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where tables stand")
    parser.add_argument(
        "--engine", default="transformers", choices=["transformers", "vllm"], help="what serves an artifact model"
    )
    parser.add_argument("--threads", type=int, default=1, help="for arithmetic in this process")
    options = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(f"{options.name}: stopped by SIGTERM; run the same command to go on.")
    )
    try:
        if kinds.kind_of(options.name) != kind:
            raise RecipeError(f"{options.name}: expected {kind}/<name> for python -m proofmill.{kind}.")
        make(main, options.name, options.entry or _identity(options), options.results, options.engine, options.threads)
    except (RecipeError, TableError, JournalError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        sys.exit(
            f"TableError: {error.filename or options.results}: {error.strerror}; expected room and permission to write "
            f"there. Make room and run again: {options.name} goes on where it was."
        )
    except KeyboardInterrupt:
        sys.exit(f"{options.name}: interrupted; run the same command to go on.")


def _identity(options: argparse.Namespace) -> str:
    book = recipes.expand(recipes.read("config.yaml", *options.configfile))
    if options.name not in book.entries:
        known = [n for n in book.entries if kinds.kind_of(n) == kinds.kind_of(options.name)]
        raise RecipeError(f"{options.name}: no recipe declares it; expected one of {', '.join(sorted(known))}.")
    return recipes.identity(book.entries[options.name], book.apis)


def make(
    main: Callable[[Any, Job], None],
    name: str,
    identity: str,
    results: Path,
    engine: str = "transformers",
    threads: int = 1,
) -> None:
    """Make the artifact `name` from the identity of its entry (recipes.identity), or bring back the table it once had."""
    given = json.loads(identity)
    entry = recipes.entry_from(kinds.kind_of(name), given["entry"])
    apis = {api: recipes.entry_from("api", values) for api, values in given["apis"].items()}
    table = Table(name, results)
    read = kinds.reads(table.kind, entry, lambda parent: table.other(parent).stamp["entry"])
    parents = {parent: table.other(parent).content for parent in read}
    sources = {str(path): _source_digest(path) for path in recipes.source_files(entry)}
    fingerprint = digest(recipes.identity(entry, apis), sorted(parents.items()), sorted(sources.values()))
    fresh = os.environ.get("PROOFMILL_FRESH", "").split()
    with _alone(table):
        stamp = new_stamp(name, recipes.identity(entry, apis), fingerprint, parents, sources)
        job = Job(table, apis, fingerprint, stamp, engine, threads)
        if not {"all", name, table.kind} & set(fresh) and table.restore(fingerprint):
            say(name, "restored: the same was made before and kept")
        else:
            try:
                main(entry, job)
            except pl.exceptions.ComputeError:
                for parent in parents:
                    job.parent(parent).check()
                raise
        shutil.rmtree(job.checkpoints, ignore_errors=True)
        with suppress(OSError):  # not empty: a training of another entry was broken off and can go on
            table.scratch.rmdir()


@contextmanager
def _alone(table: Table) -> Iterator[None]:
    """No other process makes this artifact meanwhile: a requeued job, or one that outlived a killed Snakemake."""
    with ExitStack() as stack:
        try:
            held = stack.enter_context(locks.alone(table.scratch.with_name(f"{table.scratch.name}.lock")))
        except OSError as error:
            raise TableError(
                f"{error.filename}: cannot be written ({error.strerror}); expected a writable results folder."
            ) from error
        if not held:
            raise TableError(
                f"{table.name}: another process has been making it for {locks.WAIT_SECONDS:g} s; expected one at a "
                "time. Wait for that job or cancel it, then run again."
            )
        yield


def _source_digest(path: Path) -> str:
    if not path.is_file():
        raise TableError(f"{path}: no such file or folder; expected the source that the entry names.")
    return file_sha256(path)
