"""The functions that the rules of workflow/ call: input files and parameters of a job, and messages for what is refused.

Snakemake calls an input function with the wildcards of a job. An error of ours ends the run with its message alone.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from snakemake.io import ancient, contains_wildcard

from proofmill.artifacts.graph import Graph
from proofmill.config.identity import arguments, identity_of
from proofmill.planning import data
from proofmill.schema.errors import MissingData, ProofmillError
from proofmill.schema.kinds import KINDS

InputFunction = Callable[[Any], Any]  # from the wildcards of a job to its input files, or to a parameter


class RuleFunctions:
    """The functions of the rules, about the artifacts of a graph. `workflow` is Snakemake's."""

    def __init__(self, graph: Graph, workflow: Any):
        self.graph, self.config, self._workflow = graph, graph.config, workflow

    def artifact(self, kind: str, wildcards: Any) -> str:
        """Return the name of the artifact of a job; exit if it cannot be built."""
        name = f"{kind}/{wildcards.name}"
        if name not in self.config.entries:
            self.refuse(name)
        return name

    def refuse(self, target: str) -> None:
        """Exit with the reason why a target cannot be built."""
        with self._explain_errors():
            self.config.list_target(target)
        sys.exit(
            f"{target}: is a target and not a file; expected it on the command line alone. Run: snakemake {target}"
        )

    def entry(self, kind: str) -> InputFunction:
        """Return a function to the entry of a job, with defaults, revision, prompts and models, which decide its rows."""
        entries, declared = self.config.entries, self.config.declared
        return lambda wildcards: arguments(identity_of(entries[self.artifact(kind, wildcards)], declared))

    def tables_of(self, target: str) -> InputFunction:
        """Return a function to the tables of a recipe or an artifact."""

        def tables(_: Any) -> list[str]:
            with self._explain_errors():
                names = self.config.list_target(target)
            return [self.graph.table(name) for name in names]

        return tables

    def parents(self, kind: str) -> InputFunction:
        """Return a function to the input files of a job: tables that are due, then files that are up to date.

        Snakemake rebuilds by modification time, so tables that are due are forced and the others are `ancient`.
        """

        def files(wildcards: Any) -> list[str]:
            name, on_node = self.artifact(kind, wildcards), self._workflow.remote_exec
            with self._explain_errors(name):
                inputs = self.graph.inputs(name, alone=on_node)
                if not on_node and self.graph.is_due(name):
                    self._force(self.graph.table(name), *inputs.due)
            return [*inputs.due, *(ancient(file) for file in inputs.current if _is_visible(file))]

        return files

    def shards(self, kind: str) -> InputFunction:
        """Return a function to the files of shards that a job waits for. They are forced: old ones are of another run."""

        def files(wildcards: Any) -> list[str]:
            outputs = self.graph.shard_inputs(self.artifact(kind, wildcards))
            if not self._workflow.remote_exec:
                self._force(*outputs)
            return outputs

        return files

    def due_jobs(self) -> list[str]:
        """Return the artifacts that this run builds or restores."""
        jobs = self._workflow.dag.needrun_jobs()
        return [f"{job.rule.name}/{job.wildcards.name}" for job in jobs if job.rule.name in KINDS]

    def _force(self, *files: str) -> None:
        self._workflow.dag.forcefiles.update(files)

    @contextlib.contextmanager
    def _explain_errors(self, name: str = "") -> Iterator[None]:
        """Exit with the message of an error of ours, without a traceback."""
        try:
            yield
        except MissingData:
            sys.exit(self._missing_data(name))
        except ProofmillError as error:
            sys.exit(f"{f'{name}: ' if name else ''}{type(error).__name__}: {error}")

    def _missing_data(self, name: str) -> str | None:
        """Return one message about all public data that the targets, or at least `name`, lack on this machine."""
        targets = self.graph.targets(self._workflow.dag_settings.targets) or [name]
        lacking = self.graph.without_data(data.artifacts(self.config, targets))
        items = data.list_needed(self.config, dict.fromkeys([*lacking, name]))
        return data.missing_message(
            [item for item in items if not item.source.startswith(data.MODEL)], " ".join(targets)
        )


def _is_visible(file: str) -> bool:
    """Return whether Snakemake accepts a file: not one of the future, nor with words in braces, its wildcards."""
    return os.path.exists(file) and os.path.getmtime(file) <= time.time() and not contains_wildcard(file)
