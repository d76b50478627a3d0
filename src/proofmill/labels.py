"""Classify problems with a judge (QED-Nano's filter of AoPS threads). One row is the labels of a problem.

Differences from the original:
1. If an output is not JSON, or its values have wrong types, the row has null labels and the reason. Filters over labels
   drop such rows by name instead of guessing.
2. Labels drop nothing: thresholds are in the `keep` list of the `problems` built from them.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from proofmill.artifacts.jobs import Job, run
from proofmill.calls import runner
from proofmill.calls.calls import Spent
from proofmill.calls.dialogues import Begin, first_requests, one_answer
from proofmill.calls.model_requests import ModelOutput, Requests, build_prompt_request
from proofmill.engines.open_engine import asking
from proofmill.prompts import escapes
from proofmill.schema.entries.problem_entries import Labels
from proofmill.schema.reasons import UNPARSED, Reason

FLAGS = ("incomplete", "gaps", "wrong", "disagreement", "computational")


def main(entry: Labels, job: Job) -> None:
    counts: Counter[str] = Counter()
    spent = Spent()
    begin = _begin(entry, job)
    with asking(job, entry.model) as asker:
        answers = runner.results(begin, {entry.model: asker}, "problems")

    def rows() -> Iterator[dict]:
        asked = job.parent(entry.problems).stream("problem", kept=True)
        for problem, answer in zip((row["problem"] for row in asked), spent.count(answers), strict=True):
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


def requests(entry: Labels, job: Job) -> dict[str, Requests]:
    """Return the judge's request about each problem."""
    return first_requests(_begin(entry, job))


def _begin(entry: Labels, job: Job) -> Begin:
    """Return a dialogue for each problem: one request, retried while the labels cannot be parsed."""
    table, api = job.parent(entry.problems), job.declared[entry.model]

    def dialogues() -> Iterator[tuple[str, Any]]:
        for problem in table.stream("problem", "statement", "solution", "origin", "candidates", kept=True):
            fields = {**problem, "comments": escapes.in_blocks("comment", problem["candidates"] or [])}
            request = build_prompt_request(api, entry.prompt, fields)
            yield problem["problem"], one_answer(entry.model, request, _unreadable, entry.parse_retries)

    return dialogues


def read_labels(answer: ModelOutput) -> tuple[dict[str, Any], Reason]:
    """Return the six labels of an output and `ok`; or no labels and no-verdict, off-scale, or the output's own reason.

    The labels are the JSON in the last ```json block, since a judge may quote an earlier one. Without such a block, the
    complete output is the JSON.
    """
    if answer.reason != Reason.OK:
        return {}, Reason(answer.reason)
    _, fence, block = answer.text.rpartition("```json")
    try:
        labels = json.loads(block.partition("```")[0].strip() if fence else answer.text)
    except (ValueError, RecursionError):  # not JSON, an integer of thousands of digits, deep nesting
        return {}, Reason.NO_VERDICT
    if not isinstance(labels, dict) or not {*FLAGS, "difficulty"} <= set(labels):
        return {}, Reason.NO_VERDICT
    difficulty = labels["difficulty"]
    flags_valid = all(isinstance(labels[flag], bool) for flag in FLAGS)
    if not flags_valid or type(difficulty) is not int or not 1 <= difficulty <= 10:
        return {}, Reason.OFF_SCALE
    return {name: labels[name] for name in (*FLAGS, "difficulty")}, Reason.OK


def _unreadable(answer: ModelOutput) -> bool:
    return read_labels(answer)[1] in UNPARSED


if __name__ == "__main__":
    run(main)
