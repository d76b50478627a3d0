"""One row of `labels` is a judge's classification of a problem (QED-Nano's filter of AoPS threads).

How we differ:
1. An answer that is no JSON, or whose values are of the wrong kind, is a row with null labels and the reason; filters
   over labels refuse such rows by name instead of guessing.
2. Labels do not drop anything: thresholds are in the `keep` list of the problems made from them.
"""

import json
import re
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
FENCE = re.compile(r"```json\s*(.*?)```", re.DOTALL)


def main(entry: Labels, job: Job) -> None:
    counts, spent = Counter(), Spent()
    begin = _begin(entry, job)
    with asking(job, entry.model) as asker:
        answers = Dialogues({entry.model: asker}).results(begin)

    def rows() -> Iterator[dict]:
        for (problem, _), answer in zip(begin(), spent.counted(answers), strict=True):
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
    """What the judge is asked of each problem."""
    return Dialogues.first_questions(_begin(entry, job))


def _begin(entry: Labels, job: Job) -> Begin:
    """A question for each problem, asked again while the labels cannot be read."""
    problems = job.parent(entry.problems).rows("problem", "statement", "solution", "origin", "candidates")
    api = job.declared[entry.model]

    def dialogues() -> Iterator[tuple[str, Any]]:
        for problem in problems:
            fields = {**problem, "comments": judges.comments(problem["candidates"] or [])}
            question = judges.filled(api, entry.prompt, fields)
            yield problem["problem"], one_answer(entry.model, question, _unreadable, entry.requeries)

    return dialogues


def read_labels(answer: Answer) -> tuple[dict[str, Any], Reason]:
    """The six labels of an answer and the reason `ok`; or no labels and why: no-verdict, off-scale, or why there is no answer."""
    if answer.reason != Reason.OK:
        return {}, Reason(answer.reason)
    fence = FENCE.search(answer.text)
    try:
        said = json.loads(fence[1] if fence else answer.text)
    except ValueError:
        return {}, Reason.NO_VERDICT
    if not isinstance(said, dict) or not {*FLAGS, "difficulty"} <= set(said):
        return {}, Reason.NO_VERDICT
    difficulty = said["difficulty"]
    flagged = all(isinstance(said[flag], bool) for flag in FLAGS)
    if not flagged or type(difficulty) is not int or not 1 <= difficulty <= 10:
        return {}, Reason.OFF_SCALE
    return {name: said[name] for name in (*FLAGS, "difficulty")}, Reason.OK


def _unreadable(answer: Answer) -> bool:
    return read_labels(answer)[1] in UNREAD


if __name__ == "__main__":
    run(main)
