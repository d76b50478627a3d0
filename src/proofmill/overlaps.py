"""Find problems of one table that also occur in another. One row is a match: both rows, the method, the shared text.

From: open-r1's decontamination (`plain-ngram` is its rule). decontamination/index.py documents the other methods.
`judge` is lm-sys's LLM decontaminator (Yang et al. 2023, arXiv 2311.04850): a model decides about the rows nearest to
each benchmark statement.

Differences from the original:
1. A match is evidence, not a flag: both rows, the method, and the shared text. This table drops nothing;
   `decontaminate` of `problems` does. It also compares two training sets, or training with test.
2. A table may be compared with itself. A row is then not its own overlap, and a pair is reported once.
3. The judge gets only pairs that no other method of the entry finds. A pair that it leaves undecided, because the call
   failed or cannot be parsed, is a row with the reason. A pair that it calls different problems gets no row.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from proofmill.artifacts.jobs import Job, run
from proofmill.artifacts.tables import Table
from proofmill.calls import runner
from proofmill.calls.calls import Spent
from proofmill.calls.dialogues import Begin, first_requests, one_answer
from proofmill.calls.model_requests import ModelOutput, Requests, build_prompt_request
from proofmill.decontamination.index import Finding, Index, excerpt
from proofmill.decontamination.nearest import Nearest
from proofmill.engines.open_engine import asking
from proofmill.graders import verdicts
from proofmill.prompts import templates
from proofmill.runtime.progress import Progress
from proofmill.schema.entries.problem_entries import JUDGE, Overlaps
from proofmill.schema.ids import digest
from proofmill.schema.reasons import UNPARSED, Reason
from proofmill.text.seen_texts import Seen

BATCH = 5_000  # rows searched at a time


class OverlapPair(NamedTuple):
    """A row and a statement of `against` that a judge compares, and the similarity of their words."""

    problems: str
    problem: str
    statement: str
    against: str
    other: str
    other_statement: str
    similarity: float


def main(entry: Overlaps, job: Job) -> None:
    counts: Counter[str] = Counter()
    if entry.model is None:
        job.finish(_evidence(entry, job, counts), counts)
        return
    pairs, spent = candidate_pairs(entry, job), Spent()
    with asking(job, entry.model) as asker:
        answers = runner.results(_begin(entry, job, pairs), {entry.model: asker}, "pairs")
    judged = zip(pairs, spent.count(answers), strict=True)
    job.finish(chain(_evidence(entry, job, counts), _verdicts(entry, judged, counts)), counts, spent=spent)


# ------------------------------------------------------------------------------------------------------------- search


class Batch(NamedTuple):
    """Some rows of a table, and the findings in them of the methods that call no model."""

    table: str
    ids: list[str]
    statements: list[str]
    findings: list[Finding]


class Search:
    """An index of the statements of `against` by id, in which the rows of `problems` are looked up."""

    def __init__(self, entry: Overlaps, job: Job):
        self._entry, self._job = entry, job
        self.index = Index([method for method in entry.methods if method != JUDGE], entry.words, entry.similarity)
        for name in entry.against:
            for ids, statements in _batches(job.parent(name), kept=False):
                self.index.add([f"{name}#{id}" for id in ids], statements)

    def batches(self) -> Iterator[Batch]:
        for name in self._entry.problems:
            progress = Progress(name, None)
            for ids, statements in _batches(self._job.parent(name), kept=True):
                progress.add(len(ids))
                yield Batch(name, ids, statements, list(self.index.find(statements)))
            progress.close()


def _evidence(entry: Overlaps, job: Job, counts: Counter[str]) -> Iterator[dict]:
    """Yield the rows of all methods except `judge`, and fill `counts` along the way."""
    search = Search(entry, job)
    reported = Seen()  # pairs that the search can find from either side
    counts["rows"] = 0
    for batch in search.batches():
        counts["rows"] += len(batch.ids)
        for match in batch.findings:
            id = batch.ids[match.row]
            pair = _sort_pair(batch.table, id, match.id)
            if len(pair) == 1:
                continue
            from_both_sides = batch.table in entry.against and match.id.partition("#")[0] in entry.problems
            if from_both_sides and not reported.is_new("\0".join((match.method, *sorted(pair)))):
                continue
            counts[match.method] += 1
            yield _row(batch.table, id, match.id, match.method, match.span, match.similarity)


def _sort_pair(table: str, id: str, match: str) -> frozenset[str]:
    """Return the pair of a row and a statement of `against`, unordered; a single element if they are the same row."""
    return frozenset((f"{table}#{id}", match))


def _row(table: str, id: str, match: str, method: str, span: str, similarity: float, reason: str = Reason.OK) -> dict:
    against, _, other = match.partition("#")
    return {
        "overlap": digest(table, id, match, method),
        "problems": table,
        "problem": id,
        "against": against,
        "against_problem": other,
        "method": method,
        "span": span,
        "similarity": similarity,
        "reason": reason,
    }


# -------------------------------------------------------------------------------------------------------------- judge


def requests(entry: Overlaps, job: Job) -> dict[str, Requests]:
    """Return the request about each pair, by judge; empty without a judge."""
    return first_requests(_begin(entry, job, candidate_pairs(entry, job))) if entry.model else {}


def candidate_pairs(entry: Overlaps, job: Job) -> list[OverlapPair]:
    """Return the pairs for the judge: the rows nearest to each statement of `against` that no other method matched."""
    search = Search(entry, job)
    index = search.index
    nearest = Nearest(index.statements, entry.candidates, entry.candidate_similarity)
    places = {match: place for place, match in enumerate(index.ids)}
    for batch in search.batches():
        matches: dict[int, set[int]] = {}
        for finding in batch.findings:
            matches.setdefault(finding.row, set()).add(places[finding.id])
        for row, (id, statement) in enumerate(zip(batch.ids, batch.statements, strict=True)):
            own = places.get(f"{batch.table}#{id}")
            nearest.see((batch.table, id), statement, {*matches.get(row, ()), *([] if own is None else [own])})
    pairs: dict[frozenset[str], OverlapPair] = {}  # if a pair is found from both sides, the first
    for place, (match, statement) in enumerate(zip(index.ids, index.statements, strict=True)):
        against, _, other = match.partition("#")
        for near in nearest.of(place):
            table, id = near.row
            pairs.setdefault(
                _sort_pair(table, id, match),
                OverlapPair(table, id, near.statement, against, other, statement, near.cosine),
            )
    return list(pairs.values())


def _begin(entry: Overlaps, job: Job, pairs: list[OverlapPair]) -> Begin:
    """Return a dialogue for each pair: one request, retried while the verdict cannot be parsed."""
    assert entry.model is not None
    model, api, prompt = entry.model, job.declared[entry.model], templates.prompt(entry.prompt)

    def unreadable(answer: ModelOutput) -> bool:
        return verdicts.read(answer, prompt).reason in UNPARSED

    def dialogues() -> Iterator[tuple[str, Any]]:
        for pair in pairs:
            fields = {"statement": pair.statement, "other": pair.other_statement}
            request = build_prompt_request(api, entry.prompt, fields)
            yield _build_row(pair)["overlap"], one_answer(model, request, unreadable, entry.parse_retries)

    return dialogues


def _verdicts(
    entry: Overlaps, judged: Iterator[tuple[OverlapPair, ModelOutput]], counts: Counter[str]
) -> Iterator[dict]:
    """Yield the pairs that the judge calls the same problem, and those that it left undecided, with the reason."""
    prompt = templates.prompt(entry.prompt)
    for pair, answer in judged:
        verdict = verdicts.read(answer, prompt)
        counts["judged"] += 1
        if verdict.grade is None:
            counts[verdict.reason] += 1
        elif verdict.grade < verdict.max_points:
            continue
        else:
            counts[JUDGE] += 1
        yield _build_row(pair, verdict.reason)


def _build_row(pair: OverlapPair, reason: str = Reason.OK) -> dict:
    match = f"{pair.against}#{pair.other}"
    return _row(pair.problems, pair.problem, match, JUDGE, excerpt(pair.statement), pair.similarity, reason)


# ------------------------------------------------------------------------------------------------------------- tables


def _batches(table: Table, kept: bool) -> Iterator[tuple[list[str], list[str]]]:
    """Yield ids and statements in batches of BATCH rows; `kept` skips dropped rows."""
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
