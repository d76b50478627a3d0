"""Grade responses (QED-Nano's evaluation). One row is the verdict on a response: a grade, or the reason for having none.

Differences from the original:
1. A failure is `grade = null` with its reason. Each judge's opinion is stored next to the joint verdict.
2. The final answer of a response is stored with its grade and with the extraction that found it, so that majorities and
   answers can be counted later.
3. If many attempts are truncated, empty or without an answer, the log and the stamp (metadata) warn about it and
   suggest a fix.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from proofmill.answers import extraction
from proofmill.artifacts.jobs import Job, run
from proofmill.artifacts.joins import ById, attempts, lenders_of
from proofmill.calls.calls import Spent
from proofmill.calls.model_requests import Requests
from proofmill.engines.open_engine import asking_for
from proofmill.graders import human_grades
from proofmill.graders.escalation import answers_read
from proofmill.graders.graders import SubmissionGrader, Submissions
from proofmill.graders.submissions import OF_PROBLEM, Submission
from proofmill.graders.verdicts import Verdict
from proofmill.metrics.notices import Notices
from proofmill.public_data.locations import local_path
from proofmill.runtime.progress import log
from proofmill.schema.entries.response_entries import Grades
from proofmill.schema.errors import TableError
from proofmill.schema.fields import GIVEN_RESPONSES
from proofmill.schema.reasons import Reason

OF_RESPONSE = ("attempt", "text", "reasoning", "stop_reason", "reason", "given_grade", "max_points")


def main(entry: Grades, job: Job) -> None:
    submissions = submissions_of(entry, job)
    if entry.grader == "human":
        _finish(entry, job, submissions, _human_verdicts(entry, submissions))
        return
    job.lenders = lenders_of(job.parent(entry.responses))
    with asking_for(job, submission_grader := submission_grader_for(entry, job)):
        _finish(entry, job, submissions, submission_grader.verdicts(submissions))


def requests(entry: Grades, job: Job) -> dict[str, Requests]:
    """Return the first request about each response, by judge; empty for human grades."""
    return {} if entry.grader == "human" else submission_grader_for(entry, job).requests(submissions_of(entry, job))


def submission_grader_for(entry: Grades, job: Job) -> SubmissionGrader:
    return SubmissionGrader(entry.grader, entry.grader_prompt, job.declared, schemes=entry.schemes is not None)


def submissions_of(entry: Grades, job: Job) -> Submissions:
    """Return a function that reads the responses on each call and yields them, by id, with their problems and schemes."""
    schemes = ById(job.parent(entry.schemes), "problem", "scheme", "dropped") if entry.schemes else {}

    def submissions() -> Iterator[tuple[str, Submission]]:
        for response, problem, _ in attempts(job.parent, entry.responses, OF_RESPONSE, OF_PROBLEM):
            yield response["response"], Submission.of(response, problem, schemes.get(response["problem"]))

    return submissions


def _human_verdicts(entry: Grades, submissions: Submissions) -> Iterator[Verdict]:
    """Yield the grades of a file, or those that came with the attempts. Raises TableError if a file matches none."""
    grades = human_grades.read(local_path(entry.path)) if entry.path else None
    default_points = max((grade["max_points"] for grade in grades.values()), default=0) if grades else 0
    any_matched = False
    for response, submission in submissions():
        any_matched = any_matched or response in (grades or ())
        if grades is None:
            grade, max_points, comment = submission.grade, submission.max_points or 0, ""
        else:
            row = grades.get(response, {})
            grade, max_points, comment = (
                row.get("grade"),
                row.get("max_points", default_points),
                row.get("comment", ""),
            )
        reason = Reason(submission.reason)
        if reason == Reason.OK and grade is None:
            reason = Reason.NO_GRADE
        yield Verdict(grade if reason == Reason.OK else None, max_points, reason, comment)
    if grades and not any_matched:
        raise TableError(
            f"{entry.path}: none of its {len(grades):,} grades is of an attempt in {entry.responses}; expected grades of these "
            "attempts. Set `responses` to the table that was graded."
        )


def _finish(entry: Grades, job: Job, submissions: Submissions, verdicts: Iterator[Verdict]) -> None:
    counts: Counter[str] = Counter()
    spent, noticed = Spent(), []
    parent_stamp = job.parent(entry.responses).stamp
    parent = parent_stamp["entry"]
    limit = None if parent["model"] in GIVEN_RESPONSES or parent["rollouts"] else parent["max_tokens"]
    reading = None if entry.grader == "human" else answers_read(entry.grader, entry.grader_prompt, job.declared)
    responses = job.parent(entry.responses).stream("response", "problem", "attempt", "stop_reason", "tokens")

    def rows() -> Iterator[dict]:
        notices = Notices(limit, reading)
        for response, (_, submission), verdict in zip(responses, submissions(), verdicts, strict=True):
            answered = submission.reason == Reason.OK
            how = extraction.classify_extraction(submission.final) if answered else None
            notices.add(submission.stop_reason, verdict.reason, response.pop("tokens"), how)
            counts[verdict.reason] += 1
            spent.of_verdict(verdict)
            yield {
                **response,
                "grade": verdict.grade,
                "max_points": verdict.max_points,
                "reason": verdict.reason,
                "well_formed": submission.well_formed if answered else None,
                "answer": extraction.extract(submission.answer_form(reading or "strict")) if answered else None,
                "answer_extraction": how,
                "verdict": verdict.text,
                "opinions": [asdict(opinion) for opinion in verdict.opinions],
                "prompt_tokens": verdict.prompt_tokens,
                "tokens": verdict.tokens,
                "cost": verdict.cost,
            }
        noticed.extend(notices.sentences())

    job.finish(rows(), counts, spent=spent, reads=reading, notices=noticed)
    if new := [sentence for sentence in noticed if sentence not in parent_stamp.get("notices", ())]:
        log(job.name, ". ".join(new))


if __name__ == "__main__":
    run(main)
