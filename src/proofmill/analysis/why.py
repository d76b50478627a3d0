"""Explain why an artifact would be rebuilt or not: its own reasons, and those of its ancestors."""

from collections.abc import Iterator
from pathlib import Path

from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.config.config import Config
from proofmill.schema import references

STATES = {
    "done": "is up to date",
    "restore": "would be restored from the archive, which has a table of the current entry",
    "make": "would be built",
}


def lines(config: Config, target: str, results: Path) -> Iterator[str]:
    """Yield a sentence for each artifact of a target, followed by the ancestors that cause a rebuild."""
    states = States(config, results)
    for name in config.list_target(target):
        state = states[name]
        yield f"{name} {STATES[state.name]}{': ' if state.why else ''}{'; '.join(state.why)}"
        if state.name == "make":  # caused by tables that would be built although their parents would not
            due = [n for n in references.ancestors(config.entries, name) if states[n].name == "make"]
            first = [n for n in due if not set(references.parents(config.entries[n])) & set(due)]
            yield from (f"  {n} {STATES['make']}: {'; '.join(states[n].why)}" for n in first)
        elif state.name == "done":
            table = Table(name, results)
            parents = ", ".join(table.stamp["parents"]) or "its entry alone"
            yield f"  built from {parents}, unchanged"
