"""What a target's finished tables say and where everything lies: the last screen of a run, shown again when asked for."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from proofmill.artifacts.tables import Table
from proofmill.inspect import reading
from proofmill.schema.kinds import learned

FEW = 4  # names; of more, their number


def shown(names: Sequence[str], results: Path) -> Iterator[str]:
    """Lines: the page of each table that has one, then the place of every table, model, page and log."""
    tables = [Table(name, results) for name in names]
    pages = [table.page for table in tables if table.page.exists()]
    for table in tables:
        if table.page.exists():
            yield from (*reading.page_of(table).strip().splitlines(), "")
    there = [table for table in tables if table.path.exists()]
    kinds = ", ".join(f"{count} in {kind}/" for kind, count in Counter(table.kind for table in there).items())
    yield f"{len(there)} of {len(names)} tables stand in {results}/, each with its log beside it{kinds and f': {kinds}'}"
    if models := [f"{table.folder}/" for table in there if table.kind in learned()]:
        yield f"Models, for transformers and vLLM as they are: {_few(models)}"
    if pages:
        yield f"Pages: {_few(map(str, pages))}"
    if missing := [name for name in names if name not in {table.name for table in there}]:
        yield f"Not made yet: {_few(missing)}; see `proofmill plan {missing[-1]}`"


def _few(names: Iterable[str]) -> str:
    found = list(names)
    more = f" and {len(found) - FEW} more" if len(found) > FEW else ""
    return ", ".join(found[:FEW]) + more
