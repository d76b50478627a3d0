"""Connections: the servers that a target's due stages need, missing settings, and a test call to each server.

Models that are programs of this project need no connection: a job starts them automatically.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from proofmill.artifacts.states import States
from proofmill.config.config import Config
from proofmill.engines import preflight
from proofmill.runtime import environment
from proofmill.runtime.progress import log
from proofmill.schema import references
from proofmill.schema.entries.declared import Api
from proofmill.schema.errors import ServiceError, SettingError, TableError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of


@dataclass(frozen=True)
class Connection:
    """A remote model, the stages that call it, and the largest output limit among them, in tokens."""

    model: str
    api: Api
    stages: tuple[str, ...]
    most: int

    @property
    def fault(self) -> str:
        """The missing or wrong environment variable of this model; empty if none. Makes no calls."""
        try:
            environment.address(self.model)
            environment.key(self.model)
        except SettingError as error:
            return str(error)
        return ""


def connections(config: Config, names: Iterable[str]) -> list[Connection]:
    """Return the remote models that these artifacts call."""
    stages_of: dict[str, list[str]] = {}
    for name in names:
        entry = config.entries[name]
        if KINDS[kind_of(name)].calls_models and not getattr(entry, "taken", False):
            for model, api in references.list_used(entry, config.declared).items():
                is_served = isinstance(api, Api) and not api.weights
                if (
                    is_served
                    and not environment.is_service(model)
                    and (api.program is None or environment.has_address(model))
                ):
                    stages_of.setdefault(model, []).append(name)
    return [
        Connection(
            model, api := config.declared[model], tuple(stages), max(_tokens(config.entries[s], s, api) for s in stages)
        )
        for model, stages in stages_of.items()
    ]


def _tokens(entry: Any, name: str, api: Api) -> int:
    """Return the output limit in tokens: that of the entry for responses, that of the model for judges."""
    if api.protocol == "embeddings":
        return 0
    return (entry.max_tokens if kind_of(name) == "responses" else None) or api.max_tokens


def find_due(config: Config, states: States, names: Iterable[str]) -> list[str]:
    """Return the artifacts, and their ancestors, that are due. One that cannot be checked, as a file is missing, is due."""
    due_names: dict[str, None] = {}
    stack = list(names)
    while stack:
        if (name := stack.pop()) not in due_names and _is_due(states, name):
            due_names[name] = None
            stack += references.reads(kind_of(name), config.entries[name], config.entries.get, config.declared)
    return list(due_names)


def _is_due(states: States, name: str) -> bool:
    try:
        return states[name].name == "make"
    except (SettingError, TableError):
        return True


def require_addresses(config: Config) -> None:
    """Raise SettingError, with all faults at once, if the environment has an invalid address."""
    faults = []
    for name in config.declared:
        if kind_of(name) == "api" and environment.has_address(name) and not environment.is_service(name):
            try:
                environment.address(name)
            except SettingError as error:
                faults.append(str(error))
    if faults:
        raise SettingError("\n".join(faults))


def require_set(connections: Iterable[Connection]) -> None:
    """Raise SettingError, with all faults at once, if a connection lacks an environment variable."""
    if faults := [connection.fault for connection in connections if connection.fault]:
        raise SettingError("\n".join(faults))


def faults_of(connections: Iterable[Connection], results: Path, budget: float | None) -> Iterator[str]:
    """Test all connections concurrently, log the results and shut-down models, and yield the faults."""
    connections = list(connections)
    for each in connections:
        if notice := each.api.retirement(date.today()):
            log(each.model, notice)
    for trial in preflight.try_models({c.model: (c.api, c.most) for c in connections}, results, budget):
        cost = "at an unknown price" if trial.cost is None else f"for ${trial.cost:.6f}"
        if trial.fault:
            yield trial.fault
        else:
            log(trial.model, trial.note or f"answers after {trial.seconds:.1f} s, {cost}")


def require_answers(connections: Sequence[Connection], results: Path, budget: float | None) -> None:
    """Check the settings of all connections, then test each one, unless PROOFMILL_PREFLIGHT is `no`.

    Raises SettingError or ServiceError with all faults at once.
    """
    require_set(connections)
    if not connections or os.environ.get("PROOFMILL_PREFLIGHT") == "no":
        return
    if faults := list(faults_of(connections, results, budget)):
        last = (
            "Nothing was started. Set PROOFMILL_PREFLIGHT=no to skip this test, e.g. if all outputs are in the journal."
        )
        raise ServiceError("\n".join([*faults, last]))
