"""Connections: which servers a target's due stages ask, what the environment lacks for them, and whether they answer.

Models of this project's own programs, which a job starts by itself, need none.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofmill.artifacts.states import States
from proofmill.engines import trials
from proofmill.recipes.book import Book
from proofmill.runtime import environment
from proofmill.runtime.progress import say
from proofmill.schema import references
from proofmill.schema.declared import Api
from proofmill.schema.errors import ServiceError, SettingError, TableError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of


@dataclass(frozen=True)
class Connection:
    """A remote model, the stages that ask it, and the most tokens that they ask for."""

    model: str
    api: Api
    stages: tuple[str, ...]
    most: int

    @property
    def fault(self) -> str:
        """What the environment lacks, or has wrong, for this model; empty if nothing. Nobody is asked."""
        try:
            environment.address(self.model)
            environment.key(self.model)
        except SettingError as error:
            return str(error)
        return ""


def connections(book: Book, names: Iterable[str]) -> list[Connection]:
    """The remote models that these artifacts ask."""
    asking: dict[str, list[str]] = {}
    for name in names:
        entry = book.entries[name]
        if KINDS[kind_of(name)].asks and not getattr(entry, "taken", False):
            for model, api in references.relied_on(entry, book.declared).items():
                is_served = isinstance(api, Api) and not api.weights
                if (
                    is_served
                    and not environment.is_service(model)
                    and (api.program is None or environment.has_address(model))
                ):
                    asking.setdefault(model, []).append(name)
    return [
        Connection(
            model, api := book.declared[model], tuple(stages), max(_tokens(book.entries[s], s, api) for s in stages)
        )
        for model, stages in asking.items()
    ]


def _tokens(entry: Any, name: str, api: Api) -> int:
    """The most tokens of an answer: attempts have a limit of their own, judges the model's."""
    return (entry.max_tokens if kind_of(name) == "responses" else None) or api.max_tokens


def due(book: Book, states: States, names: Iterable[str]) -> list[str]:
    """Those of the artifacts, and of what they are made from, that have to be made.

    Where that cannot be known for want of a file, they count as such.
    """
    found: dict[str, None] = {}
    stack = list(names)
    while stack:
        if (name := stack.pop()) not in found and _is_due(states, name):
            found[name] = None
            stack += references.reads(kind_of(name), book.entries[name], book.entries.get, book.declared)
    return list(found)


def _is_due(states: States, name: str) -> bool:
    try:
        return states[name].name == "make"
    except (SettingError, TableError):
        return True


def require_addresses(book: Book) -> None:
    """Raise SettingError, with every fault at once, where the environment has an address that is none."""
    faults = []
    for name in book.declared:
        if kind_of(name) == "api" and environment.has_address(name) and not environment.is_service(name):
            try:
                environment.address(name)
            except SettingError as error:
                faults.append(str(error))
    if faults:
        raise SettingError("\n".join(faults))


def require_set(connections: Iterable[Connection]) -> None:
    """Raise SettingError, with every fault at once, where the environment lacks what a connection needs."""
    if faults := [connection.fault for connection in connections if connection.fault]:
        raise SettingError("\n".join(faults))


def faults_of(connections: Iterable[Connection], results: Path, budget: float | None) -> Iterator[str]:
    """Try all connections at once, log how each went, and yield the faults as they are found."""
    for trial in trials.tried({c.model: (c.api, c.most) for c in connections}, results, budget):
        cost = "at an unknown price" if trial.cost is None else f"for ${trial.cost:.6f}"
        if trial.fault:
            yield trial.fault
        else:
            say(trial.model, trial.note or f"answers after {trial.seconds:.1f} s, {cost}")


def require_answers(connections: Sequence[Connection], results: Path, budget: float | None) -> None:
    """Look at what is set for all connections, then try them, unless PROOFMILL_TRY is `no`.

    Raises SettingError or ServiceError with every fault at once.
    """
    require_set(connections)
    if not connections or os.environ.get("PROOFMILL_TRY") == "no":
        return
    if faults := list(faults_of(connections, results, budget)):
        last = "Nothing was started. PROOFMILL_TRY=no starts without trying, as for stages whose answers are all in the journal."
        raise ServiceError("\n".join([*faults, last]))
