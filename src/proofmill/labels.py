"""One row of `labels` is a judge's classification of a problem (QED-Nano, data section: the AoPS filter).

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

from proofmill import judges, kinds
from proofmill.calls import Questions, Spent
from proofmill.jobs import Job, run
from proofmill.journal import Answer
from proofmill.verdicts import UNREAD

FLAGS = ("incomplete", "gaps", "wrong", "disagreement", "computational")
FENCE = re.compile(r"```json\s*(.*?)```", re.DOTALL)


def read_labels(answer: Answer) -> tuple[dict[str, Any], str]:
    """The six labels of an answer and the reason `ok`; or no labels and why: no-verdict, off-scale, or why there is no answer."""
    if answer.reason != "ok":
        return {}, answer.reason
    fence = FENCE.search(answer.text)
    try:
        found = json.loads(fence[1] if fence else answer.text)
    except ValueError:
        return {}, "no-verdict"
    if not isinstance(found, dict) or not {*FLAGS, "difficulty"} <= set(found):
        return {}, "no-verdict"
    difficulty = found["difficulty"]
    if (
        any(not isinstance(found[flag], bool) for flag in FLAGS)
        or type(difficulty) is not int
        or not 1 <= difficulty <= 10
    ):
        return {}, "off-scale"
    return {flag: found[flag] for flag in (*FLAGS, "difficulty")}, "ok"


def questions(entry: kinds.Labels, job: Job) -> Questions:
    """What a judge is asked of each problem."""
    problems = job.parent(entry.problems).rows("problem", "statement", "solution", "origin", "candidates")
    rows = [{**problem, "comments": judges.comments(problem["candidates"] or [])} for problem in problems]
    return judges.questions(job, entry.model, entry.prompt, rows)


def main(entry: kinds.Labels, job: Job) -> None:
    asked, counts, spent = questions(entry, job), Counter(), Spent()
    answers = judges.consult(job, entry.model, asked, lambda a: read_labels(a)[1] in UNREAD, entry.requeries)

    def rows() -> Iterator[dict]:
        for (problem, _), answer in zip(asked.named(), spent.of(answers), strict=True):
            labels, reason = read_labels(answer)
            counts[reason] += 1
            unknown = dict.fromkeys((*FLAGS, "difficulty"))
            told = {"reason": reason, "verdict": answer.text, "cost": answer.cost}
            yield {"problem": problem, **unknown, **labels, **told}

    job.finish(rows(), counts, spent=spent)


if __name__ == "__main__":
    run(main)
