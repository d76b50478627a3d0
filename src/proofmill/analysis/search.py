"""Search a results folder: names of artifacts first, then ids and statements of problems, within two seconds."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.compute as pc

from proofmill.artifacts.tables import Table
from proofmill.schema.errors import ProofmillError

NAMES, PROBLEMS = 30, 20  # shown
SECONDS = 2.0  # for problems


@dataclass
class SearchResults:
    """Artifacts by name, and problems as (table, id, statement). `unread` tables were left out for time."""

    names: list[str]
    problems: list[tuple[str, str, str]] = field(default_factory=list)
    more: int = 0  # names that are not shown
    unread: list[str] = field(default_factory=list)


def search(text: str, names: Iterable[str], tables: Iterable[str], results: Path) -> SearchResults:
    """Find artifacts by name, and problems in tables by id and statement, in any case; each problem is listed once."""
    wanted, end = text.lower(), time.monotonic() + SECONDS
    matches = sorted((name for name in names if wanted in name), key=lambda name: (name.count("@"), name))
    hits, seen = SearchResults(matches[:NAMES], more=max(0, len(matches) - NAMES)), set[str]()
    for name in tables:
        try:
            for problem, statement in _problems(Table(name, results), text, end):
                if problem not in seen:
                    seen.add(problem)
                    hits.problems.append((name, problem, statement))
                if len(hits.problems) >= PROBLEMS:
                    return hits
        except TimeoutError:
            hits.unread.append(name)
        except ProofmillError:  # a damaged table has its own message
            continue
    return hits


def _problems(table: Table, text: str, end: float) -> Iterator[tuple[str, str]]:
    """Yield ids and statements. Raises TimeoutError when the time is over."""
    for batch in table.batches("problem", "statement"):
        if time.monotonic() > end:
            raise TimeoutError(table.name)
        found = pc.or_kleene(
            pc.starts_with(batch["problem"], text), pc.match_substring(batch["statement"], text, ignore_case=True)
        )
        for row in batch.filter(found).to_pylist():
            yield row["problem"], row["statement"] or ""
