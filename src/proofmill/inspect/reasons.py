"""Why an artifact would be made again, or not: its own reasons, and those of what it is made from."""

from collections.abc import Iterator
from pathlib import Path

from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.recipes.book import Book
from proofmill.schema import references

WHAT = {
    "done": "is as its entry says: nothing would be made",
    "restore": "was made before as its entry says now, and would be brought back from its copy",
    "make": "would be made",
}


def lines(book: Book, target: str, results: Path) -> Iterator[str]:
    """A sentence for each artifact that the target means, and below it where each reason begins."""
    states = States(book, results)
    for name in book.targeted(target):
        state = states[name]
        yield f"{name} {WHAT[state.name]}{': ' if state.why else ''}{'; '.join(state.why)}"
        if state.name == "make":  # begins where a table is made whose own parents are not
            made = [n for n in references.ancestors(book.entries, name) if states[n].name == "make"]
            first = [n for n in made if not set(references.parents(book.entries[n])) & set(made)]
            yield from (f"  {n} {WHAT['make']}: {'; '.join(states[n].why)}" for n in first)
        elif state.name == "done":
            table = Table(name, results)
            parents = ", ".join(table.stamp["parents"]) or "nothing but its entry"
            yield f"  made from {parents}, whose content is the same"
