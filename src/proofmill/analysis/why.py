"""Explain why an artifact would be rebuilt or not: its own reasons, and those of its ancestors."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.config.config import Config
from proofmill.schema import references

STATES = {
    "done": "is up to date",
    "restore": "would be restored from the archive, which has a table of the current entry",
    "make": "would be built",
}


def explain(config: Config, target: str, results: Path) -> list[dict[str, Any]]:
    """Return the state of each artifact of a target, with its reasons, the ancestors that cause them, and its parents."""
    states = States(config, results)
    explained = []
    for name in config.list_target(target):
        state = states[name]
        causes: list[str] = []
        if state.name == "make":  # caused by tables that would be built although their parents would not
            due = [n for n in references.ancestors(config.entries, name) if states[n].name == "make"]
            causes = [n for n in due if not set(references.parents(config.entries[n])) & set(due)]
        explained.append(
            {
                "name": name,
                "state": state.name,
                "why": list(state.why),
                "causes": [{"name": n, "why": list(states[n].why)} for n in causes],
                "parents": list(Table(name, results).stamp["parents"]) if state.name == "done" else None,
            }
        )
    return explained


def lines(explained: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each artifact, followed by the ancestors that cause a rebuild."""
    for each in explained:
        yield f"{each['name']} {STATES[each['state']]}{': ' if each['why'] else ''}{'; '.join(each['why'])}"
        yield from (f"  {cause['name']} {STATES['make']}: {'; '.join(cause['why'])}" for cause in each["causes"])
        if each["parents"] is not None:
            yield f"  built from {', '.join(each['parents']) or 'its entry alone'}, unchanged"
