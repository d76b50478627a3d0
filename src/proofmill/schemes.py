"""Write, read and test 0-7 grading schemes (from QED-Nano). One row is the scheme of a problem.

A scheme is written by a judge, read from a published table, or is the problem's own guidelines.

Differences from the original:
1. A scheme is parsed into its parts and checked by rules when it arrives (graders/rubrics.py).
2. A scheme is tested before it is used: a grader grades known answers by it, and each grade is a column.
3. A scheme that fails stays in the table with the filter that refused it, and is not used for grading.
4. Rows keep the order of the problems, regardless of the order of the outputs.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from proofmill.artifacts.jobs import Job, run
from proofmill.calls import runner
from proofmill.calls.calls import Spent
from proofmill.calls.dialogues import Begin, first_requests, one_answer
from proofmill.calls.model_requests import ModelOutput, Requests, build_prompt_request, total
from proofmill.engines.open_engine import asking, asking_for
from proofmill.filters import scheme_filters
from proofmill.graders import rubrics
from proofmill.graders.graders import SubmissionGrader
from proofmill.graders.submissions import Submission
from proofmill.public_data.locations import local_path
from proofmill.runtime.progress import log
from proofmill.schema.columns import PROBES
from proofmill.schema.entries.problem_entries import Schemes
from proofmill.schema.fields import require
from proofmill.schema.reasons import Reason
from proofmill.sources import files, record_fields
from proofmill.text import statements
from proofmill.text.reasoning import without_key_step

BLANK = "I was not able to solve this problem."


def read_scheme(answer: ModelOutput) -> tuple[str | None, Reason]:
    """Return the scheme in an output and the reason `ok`; or None and the reason."""
    if answer.reason != Reason.OK:
        return None, Reason(answer.reason)
    text = rubrics.clean(answer.text)
    return (text, Reason.OK) if text else (None, Reason.NO_VERDICT)


def _unreadable(answer: ModelOutput) -> bool:
    """Return whether an output contains no scheme. A retry may help then; for a badly built scheme it does not."""
    text, reason = read_scheme(answer)
    return reason == Reason.NO_VERDICT or (text is not None and not rubrics.parse(text).checkpoints)


def requests(entry: Schemes, job: Job) -> dict[str, Requests]:
    """Return the request to write a scheme for each problem, by judge; empty without a judge."""
    if entry.model is None:
        return {}
    problems = job.parent(entry.problems).rows("problem", "statement", "solution")
    return first_requests(_begin(entry, job, problems))


def _begin(entry: Schemes, job: Job, problems: Sequence[Mapping[str, Any]]) -> Begin:
    """Return a dialogue for each problem: one request, retried while the output contains no scheme."""
    model = require(entry.model)

    def dialogues() -> Iterator[tuple[str, Any]]:
        for problem in problems:
            request = build_prompt_request(job.declared[model], entry.prompt, problem)
            yield problem["problem"], one_answer(model, request, _unreadable, entry.parse_retries)

    return dialogues


def main(entry: Schemes, job: Job) -> None:
    spent = Spent()
    problems = job.parent(entry.problems).rows("problem", "statement", "solution", "guidelines")
    answers = _write(entry, job, problems, spent)
    rows = [_row(p["problem"], *answer) for p, answer in zip(problems, answers, strict=True)]
    if entry.tester and not job.shard:  # the test needs other problems' solutions, perhaps from another shard
        _test(entry, job, problems, rows, spent)
    for row in rows:
        row["dropped"] = scheme_filters.find_refusal(row, entry.keep)
    counts = {
        "kept": sum(row["dropped"] is None for row in rows),
        **Counter(r["dropped"] for r in rows if r["dropped"]),
    }
    faults = Counter(fault for row in rows for fault in row["faults"])
    if faults:
        log(job.name, f"the linter found {', '.join(f'{n} {fault}' for fault, n in faults.most_common())}")
    job.finish([{key: value for key, value in row.items() if key != "given"} for row in rows], counts, spent=spent)


def _write(entry: Schemes, job: Job, problems: list[dict], spent: Spent) -> Iterator[tuple]:
    """Yield for each problem the scheme, whether it came with the problem, the reason, the judge's output and its cost."""
    if entry.model is None:
        published = _find_published(entry) if entry.source else None
        for problem in problems:
            text = published(problem) if published else problem["guidelines"]
            text = (text or "").strip() or None
            yield text, True, Reason.OK if text else Reason.NO_GUIDELINES, None, 0.0
        return
    if not problems:
        return
    with asking(job, entry.model) as asker:
        answers = runner.results(_begin(entry, job, problems), {entry.model: asker}, "problems")
    for answer in spent.count(answers):
        scheme, reason = read_scheme(answer)
        yield scheme, False, reason, answer.text, answer.cost


def _find_published(entry: Schemes) -> Callable[[Mapping[str, Any]], str | None]:
    """Return a function that looks up a problem's scheme, by id if mapped, else by statement; the first of several."""
    own: Literal["problem", "statement"] = "problem" if "problem" in entry.columns else "statement"
    schemes_by: dict[str, str | None] = {}
    for where, record in files.read(local_path(require(entry.path))):
        key = record_fields.word(where, record, entry.columns[own]) or ""
        structured = isinstance(record.get(entry.columns["scheme"]), list)
        read = record_fields.render if structured else record_fields.text
        key = key if own == "problem" else statements.normal(key)
        schemes_by.setdefault(key, read(where, record, entry.columns["scheme"]))
    return lambda row: schemes_by.get(row[own] if own == "problem" else statements.normal(row[own] or ""))


def _row(problem: str, scheme: str | None, given: bool, reason: str, verdict: str | None, cost: float | None) -> dict:
    """Build a row with the parts of the scheme and the linter's faults."""
    rubric = rubrics.parse(scheme or "")
    unstructured = given and not rubric.checkpoints  # published guidelines need not follow our format
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
        **{f"{probe}_grade": None for probe in PROBES},
        "self_test": None,
        "verdict": verdict,
        "cost": cost,
    }


# -------------------------------------------------------------------------------------------------------- the self-test


def _test(entry: Schemes, job: Job, problems: list[dict], rows: list[dict], spent: Spent) -> None:
    """Grade known answers by each scheme, and set their grades, `self_test` and `cost` in its row."""
    testable = [index for index, row in enumerate(rows) if row["scheme"]]
    probes = [(index, name, text) for index in testable for name, text in _probes(problems, index) if text]

    def submissions() -> Iterator[tuple[str, Submission]]:
        for index, _, text in probes:
            p = problems[index]
            yield p["problem"], Submission(p["statement"], None, rows[index]["scheme"], text, reference=p["solution"])

    with asking_for(
        job,
        submission_grader := SubmissionGrader(require(entry.tester), entry.tester_prompt, job.declared, schemes=True),
    ):
        for (index, name, _), verdict in zip(probes, submission_grader.verdicts(submissions), strict=True):
            rows[index][f"{name}_grade"] = verdict.grade
            rows[index]["cost"] = total((rows[index]["cost"], verdict.cost))
            spent.of_verdict(verdict)
    for index in testable:
        rows[index]["self_test"] = _outcome(rows[index])


def _probes(problems: Sequence[Mapping[str, Any]], index: int) -> Iterator[tuple[str, str | None]]:
    """Yield the known answers to one problem by name; None if the solution, or another problem with one, is missing."""
    problem = problems[index]
    solution = (problem["solution"] or "").strip() or None
    others = (problems[(index + distance) % len(problems)] for distance in range(1, len(problems)))
    yield "reference", solution
    yield "empty", BLANK
    yield "restated", problem["statement"]
    yield "unrelated", next((o["solution"] for o in others if (o["solution"] or "").strip()), None)
    yield "gapped", solution and without_key_step(solution)


EXPECTED: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "reference": lambda row: row["reference_grade"] >= 6,
    "empty": lambda row: row["empty_grade"] == 0,
    "restated": lambda row: row["restated_grade"] == 0,
    "unrelated": lambda row: row["unrelated_grade"] == 0,
    "gapped": lambda row: row["reference_grade"] is None or row["gapped_grade"] < row["reference_grade"],
}


def _outcome(row: Mapping[str, Any]) -> str:
    """Return the known answers with wrong grades; or `unscored` if one has no grade; or `ok`."""
    failed = []
    for probe, fulfilled in EXPECTED.items():
        if row[f"{probe}_grade"] is not None and not fulfilled(row):
            failed.append(probe)
    if not failed and any(row[f"{probe}_grade"] is None for probe in PROBES):
        return "unscored"
    return ", ".join(failed) or "ok"


if __name__ == "__main__":
    run(main)
