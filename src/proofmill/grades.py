"""One row of `grades` is a verdict on a response: a mark, or the reason for having none (QED-Nano's evaluation).

How we differ:
1. A failure is `grade = null` with its reason. Each judge's opinion is kept beside the judges' joint verdict.
2. The final answer of a response stands beside its mark, with how it was found, so that majorities and answers can be
   counted later.
3. Where many attempts were cut off, are empty or give no answer, the log and the stamp say so, and what to change.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from proofmill.artifacts.jobs import Job, run
from proofmill.artifacts.joins import ById, attempts
from proofmill.calls.calls import Spent
from proofmill.calls.exchange import Questions
from proofmill.engines.opening import asking_for
from proofmill.graders import human_marks
from proofmill.graders.escalation import answers_read
from proofmill.graders.graders import Marker, Submissions
from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Verdict
from proofmill.measures.notices import Notices
from proofmill.runtime.paths import local_path
from proofmill.runtime.progress import say
from proofmill.schema.entries import Grades
from proofmill.schema.errors import TableError
from proofmill.schema.fields import TAKEN
from proofmill.schema.reasons import Reason
from proofmill.text import answers

OF_RESPONSE = ("attempt", "text", "reasoning", "stop", "reason", "mark", "out_of")
OF_PROBLEM = ("statement", "answer", "solution", "asks")


def main(entry: Grades, job: Job) -> None:
    submissions = submissions_of(entry, job)
    if entry.grader == "human":
        _finish(entry, job, submissions, _human_verdicts(entry, submissions))
        return
    with asking_for(job, marker := marker_for(entry, job)):
        _finish(entry, job, submissions, marker.verdicts(submissions))


def questions(entry: Grades, job: Job) -> dict[str, Questions]:
    """The first question to each judge about each response."""
    return {} if entry.grader == "human" else marker_for(entry, job).questions(submissions_of(entry, job))


def marker_for(entry: Grades, job: Job) -> Marker:
    return Marker(entry.grader, entry.prompt, job.declared, schemes=entry.schemes is not None)


def submissions_of(entry: Grades, job: Job) -> Submissions:
    """A function that reads the responses anew at each call and yields them with their problems and schemes, by id."""
    schemes = ById(job.parent(entry.schemes), "problem", "scheme", "dropped") if entry.schemes else {}

    def submissions() -> Iterator[tuple[str, Submission]]:
        for response, problem, _ in attempts(job.parent, entry.responses, OF_RESPONSE, OF_PROBLEM):
            scheme = schemes.get(response["problem"])
            yield (
                response["response"],
                Submission(
                    statement=problem["statement"],
                    answer=problem["answer"],
                    scheme=(scheme["scheme"] or None) if scheme and scheme["dropped"] is None else None,
                    text=response["text"] or "",
                    reasoning=response["reasoning"],
                    stop=response["stop"],
                    reason=response["reason"],
                    reference=problem["solution"],
                    asks=problem["asks"] or "proof",
                    mark=response["mark"],
                    out_of=response["out_of"],
                ),
            )

    return submissions


def _human_verdicts(entry: Grades, submissions: Submissions) -> Iterator[Verdict]:
    """The marks of a file, or those that came with the attempts."""
    marks = human_marks.read(local_path(entry.path)) if entry.path else None
    full = max((mark["out_of"] for mark in marks.values()), default=0) if marks else 0
    met = False
    for response, submission in submissions():
        met = met or response in (marks or ())
        if marks is None:
            mark, out_of, comment = submission.mark, submission.out_of or 0, ""
        else:
            given = marks.get(response, {})
            mark, out_of, comment = given.get("mark"), given.get("out_of", full), given.get("comment", "")
        reason = Reason(submission.reason)
        if reason == Reason.OK and mark is None:
            reason = Reason.NO_MARK
        yield Verdict(mark if reason == Reason.OK else None, out_of, reason, comment)
    if marks and not met:
        raise TableError(
            f"{entry.path}: none of its {len(marks):,} marks is of an attempt in {entry.responses}; expected marks of these "
            "attempts. Name the responses that they were given to."
        )


def _finish(entry: Grades, job: Job, submissions: Submissions, verdicts: Iterator[Verdict]) -> None:
    counts: Counter[str] = Counter()
    spent, noticed = Spent(), []
    attempted = job.parent(entry.responses).stamp
    asked = attempted["entry"]
    limit = None if asked["model"] in TAKEN or asked["rollouts"] else asked["max_tokens"]
    reading = None if entry.grader == "human" else answers_read(entry.grader, entry.prompt, job.declared)
    responses = job.parent(entry.responses).stream("response", "problem", "attempt", "stop", "tokens")

    def rows() -> Iterator[dict]:
        notices = Notices(limit, reading)
        for response, (_, submission), verdict in zip(responses, submissions(), verdicts, strict=True):
            answered = submission.reason == Reason.OK
            found = answers.found(submission.final) if answered else None
            notices.add(submission.stop, verdict.reason, response.pop("tokens"), found)
            counts[verdict.reason] += 1
            spent.of_verdict(verdict)
            yield {
                **response,
                "grade": verdict.grade,
                "out_of": verdict.out_of,
                "reason": verdict.reason,
                "well_formed": submission.well_formed if answered else None,
                "answer": answers.extract(answers.in_form(submission.final, reading or "strict")) if answered else None,
                "answer_found": found,
                "verdict": verdict.text,
                "opinions": [asdict(opinion) for opinion in verdict.opinions],
                "prompt_tokens": verdict.prompt_tokens,
                "tokens": verdict.tokens,
                "cost": verdict.cost,
            }
        noticed.extend(notices.sentences())

    job.finish(rows(), counts, spent=spent, reads=reading, notices=noticed)
    if new := [sentence for sentence in noticed if sentence not in attempted.get("notices", ())]:
        say(job.name, ". ".join(new))


if __name__ == "__main__":
    run(main)
