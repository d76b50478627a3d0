"""One row of `overlaps` is a problem of one table that also stands in another: which two, how it was found, and where.

From: open-r1's decontamination (`plain-ngram` is its rule); contamination.py says what the other methods find.

How we differ:
1. Evidence, not a flag: both rows, the method, and the text they share. Nothing is dropped here; `apart-from` of `problems`
   drops, and this table says what there is to drop, also between two training sets, or training and test.
2. A table may be looked for in itself; a row is then not its own overlap, and a pair is told once.
"""

from collections import Counter
from collections.abc import Iterator

from proofmill.artifacts.jobs import Job, run
from proofmill.artifacts.tables import Table
from proofmill.contamination.index import Index
from proofmill.runtime.progress import Progress
from proofmill.schema.entries import Overlaps
from proofmill.schema.ids import digest

BATCH = 5_000  # rows looked for at a time


def main(entry: Overlaps, job: Job) -> None:
    index = Index(tuple(entry.methods), entry.words, entry.similarity)
    for name in entry.against:
        for ids, statements in _batches(job.parent(name), kept=False):
            index.add([f"{name}#{id}" for id in ids], statements)
    counts: Counter[str] = Counter({"rows": 0})
    told: set[tuple] = set()  # pairs that may be found from either side

    def rows() -> Iterator[dict]:
        for name in entry.problems:
            progress = Progress(name, None)
            for ids, statements in _batches(job.parent(name), kept=True):
                counts["rows"] += len(ids)
                progress.add(len(ids))
                for found in index.find(statements):
                    against, _, other = found.id.partition("#")
                    pair = (found.method, *_pair(name, ids[found.row], against, other))
                    both_ways = name in entry.against and against in entry.problems
                    if pair[1] != pair[2] and pair not in told:
                        if both_ways:
                            told.add(pair)
                        counts[found.method] += 1
                        yield {
                            "overlap": digest(name, ids[found.row], found.id, found.method),
                            "problems": name,
                            "problem": ids[found.row],
                            "against": against,
                            "other": other,
                            "method": found.method,
                            "span": found.span,
                            "similarity": found.similarity,
                        }
            progress.close()

    job.finish(rows(), counts)


def _pair(name: str, problem: str, against: str, other: str) -> tuple:
    """Two rows, whichever was looked for in whose table."""
    return tuple(sorted([(name, problem), (against, other)]))


def _batches(table: Table, kept: bool) -> Iterator[tuple[list[str], list[str]]]:
    """Ids and statements, so many rows at a time."""
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
