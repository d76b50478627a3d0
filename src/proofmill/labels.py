"""One row of `labels` is a judge's classification of a problem (QED-Nano's filter of AoPS threads).

How we differ:
1. If an answer is no JSON, or its values have wrong types, the row has null labels and the reason. Filters over labels
   refuse such rows by name instead of guessing.
2. Labels drop nothing: thresholds are in the `keep` list of the problems made from them.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from proofmill.artifacts.jobs import Job, run
from proofmill.calls.calls import Spent
from proofmill.calls.dialogues import Begin, Dialogues, one_answer
from proofmill.calls.exchange import Answer, Questions
from proofmill.engines.opening import asking
from proofmill.graders import judges
from proofmill.schema.entries import Labels
from proofmill.schema.reasons import UNREAD, Reason

FLAGS = ("incomplete", "gaps", "wrong", "disagreement", "computational")


def main(entry: Labels, job: Job) -> None:
    counts: Counter[str] = Counter()
    spent = Spent()
    begin = _begin(entry, job)
    with asking(job, entry.model) as asker:
        answers = Dialogues({entry.model: asker}).results(begin)

    def rows() -> Iterator[dict]:
        asked = job.parent(entry.problems).stream("problem", kept=True)
        for problem, answer in zip((row["problem"] for row in asked), spent.counted(answers), strict=True):
            labels, reason = read_labels(answer)
            counts[reason] += 1
            unknown = dict.fromkeys((*FLAGS, "difficulty"))
            yield {
                "problem": problem,
                **unknown,
                **labels,
                "reason": reason,
                "verdict": answer.text,
                "cost": answer.cost,
            }

    job.finish(rows(), counts, spent=spent)


def questions(entry: Labels, job: Job) -> dict[str, Questions]:
    """The judge's question about each problem."""
    return Dialogues.first_questions(_begin(entry, job))


def _begin(entry: Labels, job: Job) -> Begin:
    """A dialogue for each problem: one question, asked again while the labels cannot be read."""
    table, api = job.parent(entry.problems), job.declared[entry.model]

    def dialogues() -> Iterator[tuple[str, Any]]:
        for problem in table.stream("problem", "statement", "solution", "origin", "candidates", kept=True):
            fields = {**problem, "comments": judges.comments(problem["candidates"] or [])}
            question = judges.filled(api, entry.prompt, fields)
            yield problem["problem"], one_answer(entry.model, question, _unreadable, entry.requeries)

    return dialogues


def read_labels(answer: Answer) -> tuple[dict[str, Any], Reason]:
    """The six labels of an answer and `ok`; or no labels and no-verdict, off-scale, or the answer's own reason.

    They are the JSON in the last ```json block, as the last verdict counts: a judge may quote an earlier one. Without
    such a block the whole answer is the JSON.
    """
    if answer.reason != Reason.OK:
        return {}, Reason(answer.reason)
    _, fence, block = answer.text.rpartition("```json")
    try:
        labels = json.loads(block.partition("```")[0].strip() if fence else answer.text)
    except (ValueError, RecursionError):  # no JSON, an integer of thousands of digits, lists in lists in lists
        return {}, Reason.NO_VERDICT
    if not isinstance(labels, dict) or not {*FLAGS, "difficulty"} <= set(labels):
        return {}, Reason.NO_VERDICT
    difficulty = labels["difficulty"]
    flags_valid = all(isinstance(labels[flag], bool) for flag in FLAGS)
    if not flags_valid or type(difficulty) is not int or not 1 <= difficulty <= 10:
        return {}, Reason.OFF_SCALE
    return {name: labels[name] for name in (*FLAGS, "difficulty")}, Reason.OK


def _unreadable(answer: Answer) -> bool:
    return read_labels(answer)[1] in UNREAD


if __name__ == "__main__":
    run(main)
