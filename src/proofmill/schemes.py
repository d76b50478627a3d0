"""One row of `schemes` is a 0-7 marking scheme (QED-Nano, grading-scheme generation), or the guidelines a problem came with.

How we differ:
1. A scheme is checked when it arrives: three sections, whole points, the best chain worth exactly 7. One that fails is
   kept with the reason, and nothing is marked by it.
2. Rows keep the order of the problems, whatever order the answers came in.
"""

import re
from collections import Counter
from collections.abc import Iterator

from proofmill import judges, kinds
from proofmill.calls import Questions, Spent
from proofmill.jobs import Job, run
from proofmill.journal import Answer

SECTIONS = ("Checkpoints", "Zero-credit items", "Deductions")
POINTS = re.compile(r"[(\[]\s*(\d+)\s*(?:pts?|points?)\.?\s*[)\]]", re.IGNORECASE)
CHAIN = re.compile(r"^\W*Chain [A-Z]\b", re.MULTILINE)


def clean(text: str) -> str:
    """The scheme itself: without a thought before it and without a preamble."""
    text = text.rpartition("</thought>")[2]
    start = text.find("Checkpoints")
    return text[max(start, 0) :].strip()


def points_of(scheme: str) -> int:
    """Points of the best chain, from the checkpoints section; points before the first chain count in every chain."""
    section = scheme.partition("Zero-credit items")[0].partition("\n")[2].partition("Total (max 7)")[0]
    shared, *chains = CHAIN.split(section)
    add = lambda text: sum(map(int, POINTS.findall(text)))  # noqa: E731
    return add(shared) + max((add(chain) for chain in chains), default=0)


def fault(scheme: str) -> str:
    """`ok`, or what is wrong with the form of a scheme: `no-sections` or `off-total`."""
    places = [scheme.find(section) for section in SECTIONS]
    if -1 in places or places != sorted(places):
        return "no-sections"
    return "ok" if points_of(scheme) == 7 else "off-total"


def read_scheme(answer: Answer) -> tuple[str | None, int | None, str]:
    """Scheme, points and reason of an answer; the scheme is null when there is none to mark by."""
    if answer.reason != "ok" or not answer.text.strip():
        return None, None, answer.reason if answer.reason != "ok" else "no-verdict"
    scheme = clean(answer.text)
    reason = fault(scheme)
    return (scheme if reason == "ok" else None), points_of(scheme), reason


def questions(entry: kinds.Schemes, job: Job) -> Questions:
    """What a judge is asked to write, for each problem."""
    rows = job.parent(entry.problems).rows("problem", "statement", "solution") if entry.model else []
    return judges.questions(job, entry.model, entry.prompt, rows) if rows else Questions(0, list)


def main(entry: kinds.Schemes, job: Job) -> None:
    if entry.model is None:
        rows = list(_given(job.parent(entry.problems).rows("problem", "guidelines")))
        job.finish(rows, Counter(row["reason"] for row in rows), spent=Spent())
        return
    asked, counts, spent = questions(entry, job), Counter(), Spent()
    answers = judges.consult(job, entry.model, asked)

    def rows() -> Iterator[dict]:
        for (problem, _), answer in zip(asked.named(), spent.of(answers), strict=True):
            scheme, points, reason = read_scheme(answer)
            counts[reason] += 1
            told = {"reason": reason, "verdict": answer.text, "cost": answer.cost}
            yield {"problem": problem, "scheme": scheme, "points": points, **told}

    job.finish(rows(), counts, spent=spent)


def _given(problems: list[dict]) -> Iterator[dict]:
    for problem in problems:
        given = problem["guidelines"]
        yield {"problem": problem["problem"], "scheme": given, "points": None, "reason": "ok" if given else "no-guidelines",
               "verdict": None, "cost": 0.0}  # fmt: skip


if __name__ == "__main__":
    run(main)
