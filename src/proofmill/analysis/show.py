"""Print the score pages of finished tables and the paths of all results, as at the end of a run."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from proofmill.analysis import show_artifact
from proofmill.artifacts.tables import Table
from proofmill.schema.kinds import KINDS, list_trained

FEW = 4  # maximum number of names to print


def list_outputs(names: Sequence[str], results: Path) -> Iterator[str]:
    """Yield the page of each table that has one, then the paths of tables, models, pages and logs."""
    tables = [Table(name, results) for name in names]
    pages = [table.page for table in tables if table.page.exists()]
    for table in tables:
        if table.page.exists():
            yield from (*show_artifact.page_of(table).strip().splitlines(), "")
    finished = [table for table in tables if table.path.exists()]
    kinds = ", ".join(f"{count} in {kind}/" for kind, count in Counter(table.kind for table in finished).items())
    yield f"{len(finished)} of {len(names)} tables are in {results}/, each with its log{kinds and f': {kinds}'}"
    if models := [f"{table.folder}/" for table in finished if table.kind in list_trained()]:
        yield f"Models (for transformers and vLLM): {_few(models)}"
    if pages:
        yield f"Pages: {_few(map(str, pages))}"
    if missing := [name for name in names if name not in {table.name for table in finished}]:
        yield f"Not built yet: {_few(missing)}; see `proofmill plan {missing[-1]}`"


def to_data(name: str, results: Path) -> dict[str, Any]:
    """Return the files of an artifact, with the number of rows and stamp of its table, and the rows if they are scores."""
    table = Table(name, results)
    files = {"path": table.path, "page": table.page, "weights": table.folder if KINDS[table.kind].weights else None}
    shown: dict[str, Any] = {"name": name, "built": table.path.exists()}
    shown |= {what: str(path) if path and path.exists() else None for what, path in files.items()}
    if shown["built"]:
        shown |= {"rows_n": table.height, "stamp": table.stamp}
        shown |= {"rows": list(table.rows())} if table.kind == "scores" else {}
    return shown


def _few(names: Iterable[str]) -> str:
    """Return the first names, and the number of the others."""
    names = list(names)
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more
