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
4. The judge's candidates are the nearest in words, or with `embedding` in vectors. Without a judge, `embedding` reports
   pairs from a similarity on. Vectors are model outputs, also those of the model in this process, so each is computed
   or paid for once.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np

from proofmill.artifacts.jobs import Job, run
from proofmill.artifacts.tables import Table
from proofmill.calls import runner
from proofmill.calls.calls import Asker, Spent
from proofmill.calls.dialogues import Ask, Begin, Dialogue, first_requests, one_answer
from proofmill.calls.model_requests import ModelOutput, Requests, build_prompt_request, build_request
from proofmill.decontamination.embeddings import NONE, Cosines, batches, read_text, unpack
from proofmill.decontamination.index import LOOKED_UP, MOST, Finding, Index, excerpt
from proofmill.decontamination.nearest import Nearest
from proofmill.engines.open_engine import asking_all
from proofmill.graders import verdicts
from proofmill.prompts import templates
from proofmill.runtime.progress import Progress, log
from proofmill.schema.entries.declared import Api
from proofmill.schema.entries.problem_entries import EMBEDDING, JUDGE, MINILM_VECTORS, Overlaps
from proofmill.schema.errors import ServiceError
from proofmill.schema.fields import require
from proofmill.schema.ids import digest
from proofmill.schema.reasons import UNPARSED, Reason
from proofmill.text.seen_texts import Seen

BATCH = 5_000  # rows searched at a time


class OverlapPair(NamedTuple):
    """A row and a statement of `against` that a judge compares, and the similarity of their words or vectors."""

    problems: str
    problem: str
    statement: str
    against: str
    other: str
    other_statement: str
    similarity: float


def main(entry: Overlaps, job: Job) -> None:
    counts: Counter[str] = Counter()
    spent, vectors = Spent(), None
    judged: Iterable[tuple[OverlapPair, ModelOutput]] = ()
    models = [*([entry.embedding] if entry.embeds else []), *([entry.model] if entry.model else [])]
    with ExitStack() as stack:
        askers = stack.enter_context(asking_all(job, models)) if models else {}
        if entry.embeds:
            vectors = compute_vectors(entry, job, askers[entry.embedding], spent, counts)
        if entry.model:
            pairs = candidate_pairs(entry, job, vectors)
            answers = runner.results(_begin(entry, job, pairs), {entry.model: askers[entry.model]}, "pairs")
            judged, vectors = zip(pairs, spent.count(answers), strict=True), None
    rows = chain(_evidence(entry, job, counts, vectors), _verdicts(entry, judged, counts))
    job.finish(rows, counts, spent=spent if models else None)


# ------------------------------------------------------------------------------------------------------------- search


class Batch(NamedTuple):
    """Some rows of a table, and the findings in them of the methods that call no model."""

    table: str
    ids: list[str]
    statements: list[str]
    findings: list[Finding]
    cosines: Iterator[np.ndarray | None]  # by row, those of its vectors to all statements of `against`; None: by words


class Search:
    """An index of the statements of `against` by id, in which the rows of `problems` are looked up.

    `vectors` has those of all statements of `against`, then those of all rows.
    """

    def __init__(self, entry: Overlaps, job: Job, vectors: Iterator[np.ndarray] | None = None):
        self._entry, self._job, self._vectors = entry, job, vectors
        self.index = Index([method for method in entry.methods if method in LOOKED_UP], entry.words, entry.similarity)
        for name in entry.against:
            for ids, statements in _batches(job.parent(name), kept=False):
                self.index.add([f"{name}#{id}" for id in ids], statements)
        self._cosines = None if vectors is None else Cosines(self._take(self.index.statements))

    def _take(self, statements: list[str]) -> list[np.ndarray]:
        return [next(require(self._vectors)) if read_text(text) else NONE for text in statements]

    def batches(self) -> Iterator[Batch]:
        for name in self._entry.problems:
            progress = Progress(name, None)
            for ids, statements in _batches(self._job.parent(name), kept=True):
                progress.add(len(ids))
                findings = list(self.index.find(statements))
                cosines: Iterator[Any] = self._cosines.of(self._take(statements)) if self._cosines else repeat(None)
                if self._cosines and not self._entry.model:
                    findings = sorted([*findings, *self._near(statements, cosines)], key=lambda match: match.row)
                yield Batch(name, ids, statements, findings, cosines)
            progress.close()

    def _near(self, statements: list[str], cosines: Iterator[np.ndarray]) -> Iterator[Finding]:
        """Yield the findings of `embedding`, the most similar of a row first. Both texts are shown: they share none."""
        least = max(self._entry.embedding_similarity, 1e-4)  # 0: one of the two has no vector
        for row, cosine_B in enumerate(cosines):
            near = np.flatnonzero(cosine_B >= least)
            for other in near[np.argsort(-cosine_B[near], kind="stable")][:MOST].tolist():
                span = f"{excerpt(statements[row])} ~ {excerpt(self.index.statements[other])}"
                yield Finding(row, self.index.ids[other], EMBEDDING, span, float(cosine_B[other]))


def _evidence(entry: Overlaps, job: Job, counts: Counter[str], vectors: Iterator[np.ndarray] | None) -> Iterator[dict]:
    """Yield the rows of all methods except `judge`, and fill `counts` along the way."""
    search = Search(entry, job, vectors)
    reported = Seen()  # pairs that the search can find from either side
    counts["searched"] = 0
    for batch in search.batches():
        counts["searched"] += len(batch.ids)
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
    """Return the requests by remote model: for vectors, and about pairs unless these depend on vectors."""
    of_vectors = first_requests(_begin_vectors(entry, job)) if entry.also_asks() else {}
    of_pairs = entry.model and not entry.embeds
    return of_vectors | (first_requests(_begin(entry, job, candidate_pairs(entry, job))) if of_pairs else {})


def candidate_pairs(entry: Overlaps, job: Job, vectors: Iterator[np.ndarray] | None = None) -> list[OverlapPair]:
    """Return the pairs for the judge: the rows nearest to each statement of `against` that no other method matched."""
    search = Search(entry, job, vectors)
    index = search.index
    nearest = Nearest(index.statements, entry.candidates, entry.candidate_similarity)
    places = {match: place for place, match in enumerate(index.ids)}
    for batch in search.batches():
        matches: dict[int, set[int]] = {}
        for finding in batch.findings:
            matches.setdefault(finding.row, set()).add(places[finding.id])
        for row, (id, statement, cosine_B) in enumerate(zip(batch.ids, batch.statements, batch.cosines, strict=False)):
            own = places.get(f"{batch.table}#{id}")
            apart = {*matches.get(row, ()), *([] if own is None else [own])}
            nearest.see((batch.table, id), statement, apart, cosine_B)
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
    entry: Overlaps, judged: Iterable[tuple[OverlapPair, ModelOutput]], counts: Counter[str]
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


# ------------------------------------------------------------------------------------------------------------ vectors


def _begin_vectors(entry: Overlaps, job: Job) -> Begin:
    """Return a dialogue for each batch of statements: of `against`, then of the rows of `problems`."""
    local = Api(id=json.dumps(MINILM_VECTORS), price={"input": 0.0, "output": 0.0})
    api = job.declared.get(entry.embedding, local)

    def ask(texts: list[str]) -> Ask:
        return Ask(entry.embedding, build_request(api, tuple(("input", text) for text in texts)))

    def vectors(batch: list[str]) -> Dialogue:
        """Return one output with the vectors of all texts. If it has none, add an output for each text."""
        answers = yield [ask(batch)]
        if len(batch) > 1 and not answers[0].text:  # a text may be too long for the model: the others still count
            answers += yield [ask([text]) for text in batch]
        return answers

    def dialogues() -> Iterator[tuple[str, Dialogue]]:
        for names, kept in ((entry.against, False), (entry.problems, True)):
            for name in names:
                for _, statements in _batches(job.parent(name), kept):
                    yield from ((name, vectors(batch)) for batch in batches(filter(None, map(read_text, statements))))

    return dialogues


def compute_vectors(
    entry: Overlaps, job: Job, asker: Asker, spent: Spent, counts: Counter[str]
) -> Iterator[np.ndarray]:
    """Compute the vectors of all statements, and return them in order, without those of empty statements.

    Raises ServiceError while they are read if they are of several models.
    """
    log(job.name, f"computes vectors with {entry.embedding}")
    results = runner.results(_begin_vectors(entry, job), {entry.embedding: asker}, "batches")
    return _read_vectors(entry, job, results, spent, counts)


def _read_vectors(
    entry: Overlaps, job: Job, results: Iterator[list[ModelOutput]], spent: Spent, counts: Counter[str]
) -> Iterator[np.ndarray]:
    origins: set[str] = set()
    for answers in results:
        outputs = list(spent.count(answers))
        origins |= {
            f"{o.text.partition(' ')[0]} dimensions of `{o.model or entry.embedding}`" for o in outputs if o.text
        }
        if len(origins) > 1:
            raise ServiceError(
                f"{job.name}: {entry.embedding} sent vectors with {' and '.join(sorted(origins))}; expected those of one model, since "
                f"others cannot be compared. Fix the server, run `proofmill invalidate {job.name} --all`, and rerun."
            )
        for output in outputs[len(outputs) > 1 :]:
            counts.update([] if output.text else ["no-vector"])
            yield from unpack(output.text) if output.text else [NONE]


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
