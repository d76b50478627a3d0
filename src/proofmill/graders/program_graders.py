"""Program graders, which grade without a model. A new one needs one record in PROGRAMS.

    def counts_lines(submission):
        return min(7.0, submission.final.count("\\n"))

    PROGRAMS["lines"] = ProgramGrader(7, "a point for each line", grades(counts_lines))

Differences from graders that fall back to 0:
1. A response without an answer gets 0. A response that our program cannot parse, or a problem without a reference
   answer, is unscored, with the reason.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from proofmill.answers import extraction
from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Verdict
from proofmill.graders.verifiers import grade_verdict
from proofmill.schema.reasons import Reason, StopReason
from proofmill.synthetic import congruences, grading, small_proofs, small_tasks
from proofmill.synthetic.grading import MAX_POINTS

Check = Callable[[Sequence[Submission]], Iterable[Verdict]]  # a verdict for each submission, in order


@dataclass(frozen=True)
class ProgramGrader:
    """A program grader.

    `open` is a context manager inside which submissions are checked. `needs` are the fields that a problem must have to
    be graded. `wants` is what problems ask for by default (`answers`, `code`, `proofs`; empty for any of these).
    `reads` is how final answers are extracted from a text (answers/extraction.py); None if they do not count.
    """

    max_points: int
    doc: str
    open: Callable[[], AbstractContextManager[Check]]
    needs: tuple[str, ...] = ()
    wants: Literal["", "answers", "code", "proofs"] = ""
    reads: Literal["strict", "flexible", "choice"] | None = None


def grades(points: Callable[[Submission], Any]) -> Callable[[], AbstractContextManager[Check]]:
    """Return the `open` of a program that grades one submission at a time.

    The function returns the grade, or None if it cannot tell. It may also return `(grade, text)`; the text is stored
    next to the grade. A grade outside 0 to the program's maximum is an error of the program and stops the stage.
    """

    def verdicts(submissions: Sequence[Submission]) -> Iterator[Verdict]:
        for submission in submissions:
            result = points(submission)
            grade, text = result if isinstance(result, tuple) else (result, "")
            reason = Reason.NO_VERDICT if grade is None else Reason.OK
            yield Verdict(None if grade is None else float(grade), 0, reason, str(text))

    @contextmanager
    def open_check() -> Iterator[Check]:
        yield verdicts

    return open_check


# -------------------------------------------------------------------------------------------------------- final answers


def _final_answers(reading: str = "strict") -> Callable[[], AbstractContextManager[Check]]:
    """Return the `open` of a comparison with the reference answer; `reading` is how the text's answer is extracted."""
    return lambda: _comparing(reading)


@contextmanager
def _comparing(reading: str) -> Iterator[Check]:
    from proofmill.answers.verifier import Verifier

    with Verifier() as verifier:

        def compare(submissions: Sequence[Submission]) -> Iterator[Verdict]:
            checks = verifier.check([(s.answer, s.answer_form(reading)) for s in submissions if s.answer])
            for submission in submissions:
                yield _of_check(next(checks), submission) if submission.answer else Verdict(None, 1, Reason.NO_GOLD)

        yield compare


def _compare_letters(submission: Submission) -> Verdict:
    """Compare the letter that a text chooses with the correct one; texts without a letter get 0."""
    gold, letter = (extraction.read_choice(text or "") for text in (submission.answer, submission.final))
    if gold in (None, "?"):
        return Verdict(None, 1, Reason.NO_GOLD)
    return Verdict(float(letter == gold), 1, Reason.OK if letter else Reason.NO_ANSWER)


def _of_check(check: Any, submission: Submission) -> Verdict:
    """Return the verdict of one comparison (final_answers.Check): 1 or 0 of 1 point."""
    grade = {"correct": 1.0, "wrong": 0.0, "no-answer": 0.0}.get(check.status)
    text = ", ".join(_doubts(submission)) if grade == 0 else check.detail
    return Verdict(grade, 1, Reason.OK if check.status in ("correct", "wrong") else Reason(check.status), text)


def _doubts(submission: Submission) -> Iterator[str]:
    """Yield reasons to doubt a grade of 0 (after the warnings of MathArena's parser): the grader may be wrong."""
    if submission.stop_reason == StopReason.LENGTH:
        yield "doubtful: the response is truncated"
    if extraction.classify_extraction(submission.final) == "several":
        yield "doubtful: the text has several boxes, and only the last one counts"
    answer = (submission.answer or "").strip()
    if answer and re.search(rf"(?<![\w.]){re.escape(answer)}(?![\w.]*\w)", submission.final):
        yield "doubtful: the correct answer is elsewhere in the text"


# ---------------------------------------------------------------------------------------------------------------- tests


@contextmanager
def _tests() -> Iterator[Check]:
    from proofmill.graders.code_grading import Code  # starts no sandbox, but takes a while

    with Code() as code:
        yield code.verdicts


@contextmanager
def _inspect_task() -> Iterator[Check]:
    from proofmill.foreign import inspect_tasks

    def check(submissions: Sequence[Submission]) -> Iterator[Verdict]:
        return (Verdict(grade, 1, reason, text) for grade, reason, text in inspect_tasks.grade(submissions))

    yield check


@contextmanager
def _rules() -> Iterator[Check]:
    with _comparing("strict") as compare, _tests() as run:

        def points(submissions: Sequence[Submission]) -> Iterator[Verdict]:
            is_code = [submission.question_type == "code" for submission in submissions]
            of_code = iter(run([s for s, code in zip(submissions, is_code, strict=True) if code]))
            of_answers = iter(compare([s for s, code in zip(submissions, is_code, strict=True) if not code]))
            return (next(of_code if code else of_answers) for code in is_code)

        yield points


# ----------------------------------------------------------------------------------------------------------- arithmetic


def _each(check: Callable[[Submission], Verdict]) -> Callable[[], AbstractContextManager[Check]]:
    """Return the `open` of a program that gives a verdict on one submission at a time."""
    return lambda: nullcontext(lambda submissions: map(check, submissions))


def _check_lines(submission: Submission) -> Verdict:
    """Check a proof of the arithmetic family line by line."""
    full = MAX_POINTS
    if (problem := congruences.read(submission.statement)) is None:
        return Verdict(None, full, Reason.NO_VERDICT, "not a problem of the arithmetic family")
    checked = grading.check(problem, submission.final, answer_only=True)
    return Verdict(float(checked.points()), full, Reason.OK, " ".join(checked.faults()))


def _grade_small_task(submission: Submission) -> float | None:
    return small_tasks.grade(submission.answer or "", submission.final)


def _grade_small_proof(submission: Submission) -> tuple[int, str] | None:
    has_numbers = re.search(r"\d", submission.statement)
    return small_proofs.check(submission.statement, submission.final) if has_numbers else None


PROGRAMS: dict[str, ProgramGrader] = {
    "arithmetic": ProgramGrader(MAX_POINTS, "checks proofs of the arithmetic family line by line", _each(_check_lines)),
    "final-answer": ProgramGrader(
        1,
        "compares the content of the box, or the text after `####`, with the reference answer",
        _final_answers(),
        ("answer",),
        wants="answers",
        reads="strict",
    ),
    "final-answer-flexible": ProgramGrader(
        1,
        "like `final-answer`, but if the text has no box or `####`, compares its last value",
        _final_answers("flexible"),
        ("answer",),
        wants="answers",
        reads="flexible",
    ),
    "choice": ProgramGrader(
        1,
        "compares the letter that the text chooses with the correct one (multiple choice)",
        _each(_compare_letters),
        ("answer",),
        wants="answers",
        reads="choice",
    ),
    "small-tasks": ProgramGrader(
        1,
        "compares the last number, list, date, expression etc. with the answer; a list of the right numbers gets its share of correct places",
        grades(_grade_small_task),
        ("answer",),
        wants="answers",
    ),
    "small-proofs": ProgramGrader(
        small_proofs.MAX_POINTS,
        "checks small proofs: the number, true comparisons, all comparisons",
        grades(_grade_small_proof),
        wants="proofs",
    ),
    "tests": ProgramGrader(
        1,
        "runs the last block of code; the grade is the share of tests that pass, and 0 or 1 for a self-play task",
        _tests,
        ("answer",),
        wants="code",
    ),
    "grade-distance": ProgramGrader(
        1,
        "grades a verdict by its distance from the grade of the attempt: 1 - |grade - truth| / (max points); problems of the source `graded-attempts`",
        _each(grade_verdict),
        ("answer",),
    ),
    "inspect-task": ProgramGrader(
        1,
        "runs the solver and the scorer of the inspect_ai task that the problem comes from",
        _inspect_task,
        ("answer",),
        wants="",
    ),
    "rules": ProgramGrader(
        1, "`tests` if a problem asks for code, else `final-answer`", _rules, ("answer",), reads="strict"
    ),
}


def gradable(grader: str, problem: Mapping[str, Any], schemes: Mapping[str, str] | None) -> bool:
    """Return whether a problem has the fields that the grader's program needs, and a scheme if `schemes` is given."""
    needs = PROGRAMS[grader].needs if grader in PROGRAMS else ()
    return all(problem[field] for field in needs) and (schemes is None or problem["problem"] in schemes)
