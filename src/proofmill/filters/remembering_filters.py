"""Filters of problems that depend on the rows kept before: each remembers them.

Difference from the originals: duplicates are compared with kept rows only, so a row dropped for another reason does not
drop its duplicates.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from proofmill.decontamination.alike import Alike
from proofmill.decontamination.similarity import Overlap, shingles
from proofmill.schema.reasons import Reason
from proofmill.text import statements
from proofmill.text.seen_texts import Seen, Texts

Row = Mapping[str, Any]
Refusal = tuple[str, str | None]  # the evidence, and the id of the row that the dropped row matches


def shorten_line(text: str, length: int = 80) -> str:
    """Return a text on one line, cut to a length in characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 3]}..."


class NotDuplicate:
    """Rejects a statement equal to that of an earlier kept row, up to LaTeX spelling, punctuation and case."""

    def __init__(self) -> None:
        self.seen, self.ids = Seen(), Texts()

    def __call__(self, row: Row) -> Refusal | None:
        number = self.seen.find(statements.normal(row["statement"] or ""))
        return None if number is None else (f"the same statement as {self.ids[number]}", self.ids[number])

    def remember(self, row: Row) -> None:
        if self.seen.add(statements.normal(row["statement"] or "")) == len(self.ids):
            self.ids.append(row["problem"])


class First:
    """Keeps the first `most` rows."""

    def __init__(self, most: int) -> None:
        self.most, self.kept = most, 0

    def __call__(self, row: Row) -> str | None:
        return f"{self.most:,} rows are kept before it" if self.kept >= self.most else None

    def remember(self, row: Row) -> None:
        self.kept += 1


class AtMostPerAnswer:
    """Keeps the first `most` rows with each answer, and those without an answer."""

    def __init__(self, most: int) -> None:
        self.most, self.kept = most, Counter[str]()

    def __call__(self, row: Row) -> str | None:
        answer = row["answer"] or ""
        full = answer and self.kept[answer] >= self.most
        return f"{self.most:,} rows with this answer are kept before it" if full else None

    def remember(self, row: Row) -> None:
        self.kept[row["answer"] or ""] += 1


class NotNearDuplicate:
    """Rejects a statement with the numbers and nearly the words, or nearly the formulas, of an earlier kept row."""

    def __init__(self, threshold: float) -> None:
        self.index = Alike(threshold)

    def __call__(self, row: Row) -> Refusal | None:
        match = self.index.find(shingles(row["statement"] or ""))
        return (f"{match.by} {match.similarity:.2f} similar to {match.id}, same numbers", match.id) if match else None

    def remember(self, row: Row) -> None:
        self.index.add(row["problem"], shingles(row["statement"] or ""))


class Decontamination:
    """Rejects a statement of a benchmark: a shared run of text (similarity.Overlap), a near duplicate, or a known match."""

    def __init__(self, words: int, similarity: float) -> None:
        self.overlap = Overlap(words)
        self.alike = Alike(similarity)
        self.matches: dict[str, Refusal] = {}  # by id of a row, the first match in a table of overlaps

    def add_match(self, match: Row) -> None:
        """Add a row of a table of overlaps, unless it is undecided."""
        if match["reason"] == Reason.OK:
            evidence = f"{match['method']} {match['similarity']:.2f}: {match['span']}"
            self.matches.setdefault(match["problem"], (evidence, f"{match['against']}#{match['against_problem']}"))

    def add(self, id: str, statement: str) -> None:
        self.overlap.add(id, statement)
        self.alike.add(id, shingles(statement))

    def __call__(self, row: Row) -> Refusal | None:
        statement = row["statement"] or ""
        if known := self.matches.get(row.get("problem", "")):
            return known
        if run := self.overlap.find(statement):
            return f"{run.words} tokens in a row: {shorten_line(run.text, 300)}", run.id
        if match := self.alike.find(shingles(statement)):
            return f"{match.by} {match.similarity:.2f} similar, same numbers: {shorten_line(statement, 300)}", match.id
        return None
