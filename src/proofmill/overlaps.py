"""One row of `overlaps` is a problem of one table that also stands in another: both rows, the method, the shared text.

From: open-r1's decontamination (`plain-ngram` is its rule); contamination/index.py says what the other methods find.

How we differ:
1. A match is evidence, not a flag: both rows, the method, and the shared text. This table drops nothing, but
   `apart-from` of `problems` does. It shows what could be dropped, also between two training sets, or between training
   and test.
2. A table may be compared with itself. A row is then not its own overlap, and a pair is reported once.
"""

from collections import Counter
from collections.abc import Iterator

from proofmill.artifacts.jobs import Job, run
from proofmill.artifacts.tables import Table
from proofmill.contamination.index import Index
from proofmill.runtime.progress import Progress
from proofmill.schema.entries import Overlaps
from proofmill.schema.ids import digest

BATCH = 5_000  # rows searched at a time


def main(entry: Overlaps, job: Job) -> None:
    index = Index(tuple(entry.methods), entry.words, entry.similarity)
    for name in entry.against:
        for ids, statements in _batches(job.parent(name), kept=False):
            index.add([f"{name}#{id}" for id in ids], statements)
    counts: Counter[str] = Counter({"rows": 0})
    reported: set[tuple] = set()  # pairs that the search can meet from either side

    def rows() -> Iterator[dict]:
        for name in entry.problems:
            progress = Progress(name, None)
            for ids, statements in _batches(job.parent(name), kept=True):
                counts["rows"] += len(ids)
                progress.add(len(ids))
                for match in index.find(statements):
                    against, _, other = match.id.partition("#")
                    pair = (match.method, *_pair(name, ids[match.row], against, other))
                    both_ways = name in entry.against and against in entry.problems
                    if pair[1] != pair[2] and pair not in reported:
                        if both_ways:
                            reported.add(pair)
                        counts[match.method] += 1
                        yield {
                            "overlap": digest(name, ids[match.row], match.id, match.method),
                            "problems": name,
                            "problem": ids[match.row],
                            "against": against,
                            "other": other,
                            "method": match.method,
                            "span": match.span,
                            "similarity": match.similarity,
                        }
            progress.close()

    job.finish(rows(), counts)


def _pair(name: str, problem: str, against: str, other: str) -> tuple:
    """Two rows in an order that does not depend on which of the two tables was searched."""
    return tuple(sorted([(name, problem), (against, other)]))


def _batches(table: Table, kept: bool) -> Iterator[tuple[list[str], list[str]]]:
    """Ids and statements in batches of BATCH rows; `kept` leaves out dropped rows."""
    ids, statements = [], []
    for row in table.stream("problem", "statement", "dropped"):
        if kept and row["dropped"] is not None:
            continue
        ids.append(row["problem"])
        statements.append(row["statement"] or "")
        if len(ids) == BATCH:
            yield ids, statements
            ids, statements = [], []
    if ids:
        yield ids, statements


if __name__ == "__main__":
    run(main)
