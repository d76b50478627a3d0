"""The graph of artifacts, as Snakemake sees it: the files that a job waits for, its shards, and its command.

The rules in workflow/ call this module and pass the answers to Snakemake. Nothing here imports Snakemake.
"""

import os
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from proofmill.artifacts.states import States
from proofmill.config.config import Config
from proofmill.config.source_paths import source_names
from proofmill.public_data.registry import local_copy
from proofmill.runtime.job_logs import RUN
from proofmill.schema import references
from proofmill.schema.errors import MissingData
from proofmill.schema.names import kind_of


@dataclass(frozen=True)
class Inputs:
    """Input files of a job: tables that this run builds first (`due`), and tables and sources that are up to date."""

    due: list[str]
    current: list[str]


class Graph:
    """The artifacts of a configuration, their states and their files.

    `shards` is the number of shards by artifact or by kind. `forced` returns the artifacts to rebuild whatever their
    state; it is called once, when the first state is needed.
    """

    def __init__(self, config: Config, shards: Mapping[str, int], forced: Callable[[], Collection[str]]):
        self.config, self.results = config, config.results
        self._shards, self._forced = shards, forced

    @cached_property
    def states(self) -> States:
        """The states of all artifacts, by their stamps."""
        return States(self.config, Path(self.results), self._forced())

    def table(self, name: str) -> str:
        """Return the path of an artifact's table."""
        return f"{self.results}/{name}.parquet"

    def is_due(self, name: str) -> bool:
        """Return whether an artifact must be built or restored."""
        return self.states[name].name != "done"

    def inputs(self, name: str, alone: bool = False) -> Inputs:
        """Return the tables and source files that an artifact is built from.

        None is due for an artifact that is up to date, or for a job that builds it `alone` (on a cluster's node).
        Raises MissingData if public data are not on this machine and the artifact needs them.
        """
        sources = self._sources(name)
        tables = references.reads(
            kind_of(name), self.config.entries[name], self.config.entries.get, self.config.declared
        )
        due = [other for other in tables if self.is_due(other)] if not alone and self.is_due(name) else []
        current = [self.table(other) for other in tables if other not in due]
        return Inputs([self.table(other) for other in due], current + sources)

    def _sources(self, name: str) -> list[str]:
        """Return the files that an artifact reads; none if it is up to date but its public data were removed."""
        if self.is_due(name):
            for address in self.states[name].missing:
                local_copy(address)
        try:
            return [
                str(file) for file in source_names(kind_of(name), self.config.entries[name], self.config.entries.get)
            ]
        except MissingData:
            if self.is_due(name):
                raise
            return []

    def without_data(self, names: Iterable[str]) -> list[str]:
        """Return the artifacts that lack public data on this machine."""
        return [name for name in names if self.states[name].missing]

    def targets(self, words: Iterable[object]) -> list[str]:
        """Return the recipes and artifacts among the targets of a command line; the first recipe if it has none."""
        targets = [str(word) for word in words] or [next(iter(self.config.recipes))]
        return [target for target in targets if target in self.config.recipes or target in self.config.entries]

    # -------------------------------------------------------------------------------------------------------- shards

    def shard_files(self, name: str) -> dict[str, str]:
        """Return the empty file that each shard leaves, by the name of the shard; empty without shards."""
        number = self._shards.get(name, self._shards.get(kind_of(name), 1))
        parts = range(1, number + 1) if number > 1 else ()
        return {f"{name}.{n}-of-{number}": f"{self.results}/unfinished/{name}/shard-{n}-of-{number}" for n in parts}

    def shard_inputs(self, name: str) -> list[str]:
        """Return the files of the shards that an artifact waits for; none if it is not rebuilt or calls no model."""
        if getattr(self.config.entries[name], "taken", False) or self.states[name].name != "make":
            return []
        return list(self.shard_files(name).values())

    # ------------------------------------------------------------------------------------------------ a run's messages

    def failures(self, since: float) -> Iterator[str]:
        """Yield the last line of each job that logged after `since` (seconds since the epoch) and has no output."""
        for name in self.config.entries:
            jobs = {} if os.path.exists(self.table(name)) else {name: self.table(name), **self.shard_files(name)}
            for job, output in jobs.items():
                log = Path(self.results, f"{job}.log")
                if not os.path.exists(output) and log.exists() and log.stat().st_mtime >= since:
                    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
                    logged = lines and not RUN.fullmatch(lines[-1])
                    yield f"{job} failed: {lines[-1] if logged else 'it ended before it logged anything'} (full log: {log})"


# ------------------------------------------------------------------------------------------------------------ forcing


def find_forced(config: Config, files: Collection[str], rules: Collection[str]) -> set[str]:
    """Return the artifacts whose table, name or kind is forced."""
    return {
        name
        for name in config.entries
        if f"{config.results}/{name}.parquet" in files or name in rules or kind_of(name) in rules
    }


def format_forced(asked: Iterable[object], everything: bool, results: str, run: int) -> str:
    """Return the value of PROOFMILL_FORCE: the forced artifacts, rules and kinds, and the number of this run.

    The number tells a requeued job that this run has forced it before.
    """
    names = [str(word).removeprefix(f"{results}/").removesuffix(".parquet") for word in asked]
    return " ".join(["all"] * everything + names + [f"run-{run}"])


# ------------------------------------------------------------------------------------------------------------ commands


def shell_word(text: str) -> str:
    """Quote a text as one word of a shell command, without fields for Snakemake to fill in."""
    return shlex.quote(text).replace("{", "{{").replace("}", "}}")


def command(config: Config, kind: str, start: str, shard: bool = False) -> str:
    """Return the shell command of a kind's rule: the entry decides what runs, threads and resources decide where.

    The shell ignores SIGINT, SIGTERM and SIGUSR1. The job prints how to resume, and the shell must outlive it to write
    the log. A log keeps every run of its job, each line with its time; it is not Snakemake's `log:`, which is deleted
    before a rerun. Under a live display the lines go only to the log, and the shell's own messages (a killed job) to
    the folder PROOFMILL_STATUS_DIR. The signal that ended a job is its last line.
    """
    log = ".{wildcards.shard}-of-{wildcards.shards}.log" if shard else ".log"
    share = "--shard {wildcards.shard}/{wildcards.shards} " if shard else ""
    ended = (
        f"{kind}/{{wildcards.name}}  ended by SIG$(kill -l $code); expected an end of its own. The usual cause of SIGKILL is a "
        "lack of memory. Run the same command to resume."
    )
    return (
        f"trap '' INT TERM USR1; mkdir -p {config.results}/{kind}; log={config.results}/{kind}/{{wildcards.name}}{log}; "
        "printf '\\n%(%F %T %Z)T on %s\\n' -1 \"$HOSTNAME\" >>$log; "
        '[ -z "${{PROOFMILL_STATUS_DIR:-}}" ] || exec 2>>"$PROOFMILL_STATUS_DIR/shell"; '
        f"{{{{ {start} proofmill.{kind} {kind}/{{wildcards.name}} {share}"
        f"--entry {{params.entry:q}} --limits {shell_word(config.terms)} "
        f"--results {config.results} --engine {{resources.engine}} --engine-args={{resources.engine_args:q}} "
        f'--threads {{threads}} 2>&1 || {{{{ code=$?; [ $code -le 128 ] || echo "{ended}"; exit $code; }}}}; }}}} | '
        'while IFS= read -r line || [ -n "$line" ]; do '
        'printf \'%(%T)T  %s\\n\' -1 "$line" >>$log; [ -n "${{PROOFMILL_STATUS_DIR:-}}" ] || printf \'%s\\n\' "$line"; done'
        + " && mkdir -p $(dirname {output}) && touch {output}"
        * shard
    )
