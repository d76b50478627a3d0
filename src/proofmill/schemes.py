"""One row of `schemes` is a 0-7 marking scheme (QED-Nano's generation of grading schemes), or the guidelines a problem came with.

How we differ:
1. A scheme is read into its parts and checked by rules when it arrives (rubrics.py).
2. It is tried out before anything is marked by it: answers whose marks are known are marked by it, and each outcome is a
   column. Nobody else checks a rubric before thousands of GPU-hours are spent on it.
3. A scheme that fails is kept and marked with the demand that refused it; nothing is marked by it.
4. Rows keep the order of the problems, whatever order the answers came in.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from proofmill.artifacts.jobs import Job, run
from proofmill.calls.calls import Spent
from proofmill.calls.dialogues import Begin, Dialogues, one_answer
from proofmill.calls.exchange import Answer, Questions
from proofmill.engines.opening import asking, asking_for
from proofmill.filters import schemes
from proofmill.graders import judges, rubrics
from proofmill.graders.graders import Marker
from proofmill.graders.submissions import Submission
from proofmill.runtime.progress import say
from proofmill.schema.entries import Schemes
from proofmill.schema.reasons import Reason
from proofmill.text.reasoning import without_key_step

BLANK = "I was not able to solve this problem."
PROBES = ("reference", "blank", "restated", "unrelated", "cut")


def read_scheme(answer: Answer) -> tuple[str | None, Reason]:
    """The scheme in an answer and the reason `ok`; or none and why."""
    if answer.reason != Reason.OK:
        return None, Reason(answer.reason)
    text = rubrics.clean(answer.text)
    return (text, Reason.OK) if text else (None, Reason.NO_VERDICT)


def _unreadable(answer: Answer) -> bool:
    """An answer that is no scheme at all: asking again may help, unlike with a scheme that is badly built."""
    text, reason = read_scheme(answer)
    return reason == Reason.NO_VERDICT or (text is not None and not rubrics.parse(text).checkpoints)


def questions(entry: Schemes, job: Job) -> dict[str, Questions]:
    """What the judge is asked to write, for each problem."""
    problems = job.parent(entry.problems).rows("problem", "statement", "solution") if entry.model else []
    return Dialogues.first_questions(_begin(entry, job, problems))


def _begin(entry: Schemes, job: Job, problems: Sequence[Mapping[str, Any]]) -> Begin:
    """A question for each problem, asked again while the answer is no scheme at all."""

    def dialogues() -> Iterator[tuple[str, Any]]:
        for problem in problems:
            question = judges.filled(job.declared[entry.model], entry.prompt, problem)
            yield problem["problem"], one_answer(entry.model, question, _unreadable, entry.requeries)

    return dialogues


def main(entry: Schemes, job: Job) -> None:
    spent = Spent()
    problems = job.parent(entry.problems).rows("problem", "statement", "solution", "guidelines")
    rows = [_row(p["problem"], *told) for p, told in zip(problems, _told(entry, job, problems, spent), strict=True)]
    if entry.tester:
        _test(entry, job, problems, rows, spent)
    for row in rows:
        row["dropped"] = schemes.refused(row, entry.keep)
    counts = {
        "kept": sum(row["dropped"] is None for row in rows),
        **Counter(r["dropped"] for r in rows if r["dropped"]),
    }
    faults = Counter(fault for row in rows for fault in row["faults"])
    if faults:
        say(job.name, f"the linter found {', '.join(f'{n} {fault}' for fault, n in faults.most_common())}")
    job.finish([{key: value for key, value in row.items() if key != "given"} for row in rows], counts, spent=spent)


def _told(entry: Schemes, job: Job, problems: list[dict], spent: Spent) -> Iterator[tuple]:
    """Scheme, whether it was given, reason, the judge's answer and its cost, for each problem."""
    if entry.model is None:
        for problem in problems:
            text = (problem["guidelines"] or "").strip() or None
            yield text, True, Reason.OK if text else Reason.NO_GUIDELINES, None, 0.0
        return
    with asking(job, entry.model) if problems else nullcontext() as asker:
        answers = Dialogues({entry.model: asker}).results(_begin(entry, job, problems)) if problems else iter(())
    for answer in spent.counted(answers):
        scheme, reason = read_scheme(answer)
        yield scheme, False, reason, answer.text, answer.cost


def _row(problem: str, scheme: str | None, given: bool, reason: str, verdict: str | None, cost: float | None) -> dict:
    """A row with the parts of the scheme and what the linter finds."""
    rubric = rubrics.parse(scheme or "")
    unstructured = given and not rubric.checkpoints  # guidelines in a form of their own are not held to ours
    return {
        "problem": problem,
        "scheme": scheme,
        "points": int(rubric.points) if rubric.checkpoints and float(rubric.points).is_integer() else None,
        "checkpoints": [
            {"chain": c.chain, "points": c.points, "weight": c.weight, "text": c.text} for c in rubric.checkpoints
        ],
        "zero_credit": list(rubric.zero_credit),
        "deductions": [{"minus": d.minus, "cap": d.cap, "text": d.text} for d in rubric.deductions],
        "faults": [] if scheme is None or unstructured else rubrics.faults(rubric, given),
        "reason": reason,
        "given": given,
        **{f"{probe}_marks": None for probe in PROBES},
        "tested": None,
        "verdict": verdict,
        "cost": cost,
    }


# ---------------------------------------------------------------------------------------------------------- the self-test


def _test(entry: Schemes, job: Job, problems: list[dict], rows: list[dict], spent: Spent) -> None:
    """Mark known answers by each scheme; `tested` says which of them did not get what they must, null where all did."""
    places = [place for place, row in enumerate(rows) if row["scheme"]]
    probes = [(place, name, text) for place in places for name, text in _probes(problems, place) if text]

    def submissions() -> Iterator[tuple[str, Submission]]:
        for place, _, text in probes:
            p = problems[place]
            yield p["problem"], Submission(p["statement"], None, rows[place]["scheme"], text, reference=p["solution"])

    with asking_for(job, marker := Marker(entry.tester, entry.tester_prompt, job.declared, schemes=True)):
        for (place, name, _), verdict in zip(probes, marker.verdicts(submissions), strict=True):
            rows[place][f"{name}_marks"] = verdict.grade
            rows[place]["cost"] = (
                None if None in (rows[place]["cost"], verdict.cost) else rows[place]["cost"] + verdict.cost
            )
            spent.of_verdict(verdict)
    for place in places:
        rows[place]["tested"] = _outcome(rows[place])


def _probes(problems: Sequence[Mapping[str, Any]], place: int) -> Iterator[tuple[str, str | None]]:
    """The known answers to one problem; none where there is no solution, or no other problem with one."""
    problem = problems[place]
    solution = (problem["solution"] or "").strip() or None
    others = (problems[(place + step) % len(problems)] for step in range(1, len(problems)))
    yield "reference", solution
    yield "blank", BLANK
    yield "restated", problem["statement"]
    yield "unrelated", next((o["solution"] for o in others if (o["solution"] or "").strip()), None)
    yield "cut", solution and without_key_step(solution)


EXPECTED: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "reference": lambda row: row["reference_marks"] >= 6,
    "blank": lambda row: row["blank_marks"] == 0,
    "restated": lambda row: row["restated_marks"] == 0,
    "unrelated": lambda row: row["unrelated_marks"] == 0,
    "cut": lambda row: row["reference_marks"] is None or row["cut_marks"] < row["reference_marks"],
}


def _outcome(row: Mapping[str, Any]) -> str:
    """`ok`, or the known answers that did not get the marks they must; `unscored` ones have no mark at all."""
    found = []
    for probe, fulfilled in EXPECTED.items():
        if row[f"{probe}_marks"] is not None and not fulfilled(row):
            found.append(probe)
    if not found and any(row[f"{probe}_marks"] is None for probe in PROBES):
        return "unscored"
    return ", ".join(found) or "ok"


if __name__ == "__main__":
    run(main)
