"""Verifiers: models that learn to grade. A graded attempt becomes a problem, and its grade the reference answer.

The statement is a judge's prompt about the attempt, as it would be sent. The solution is a verdict to imitate. A reply is
graded by its distance from the truth: 1 - |grade - truth| / (max points).

From: the reward of the verifier of DeepSeek-Math-V2 (arXiv 2511.22570, section 2.1).

Differences from the original:
1. A reply is parsed as the verdicts of a judge are (verdicts.py). A grade off the scale, like a reply without one, gets 0.
2. The solution is the verdict of the grader itself, if the prompt's form allows it. The original starts from a model that
   can already write verdicts.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Verdict, read_text
from proofmill.prompts.templates import VERDICT_FORMS, Prompt
from proofmill.schema.errors import TableError
from proofmill.schema.reasons import ABSENT, Reason, StopReason

SHORTEST = {  # the shortest verdict of each form, with the place of its grade
    "points": "<points>{}</points>", "score": "<score>{}</score>", "boxed": r"\boxed{{{}}}",
}  # fmt: skip


@dataclass(frozen=True)
class Truth:
    """The grade that a verdict on an attempt is compared with, on the scale and in the form of the judge's prompt."""

    grade: float
    form: str
    scale: tuple[float, ...]

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str | None) -> "Truth | None":
        """Return the truth in the answer of a problem; None if the answer is something else."""
        try:
            fields = json.loads(text or "")
            truth = cls(float(fields["grade"]), str(fields["form"]), tuple(map(float, fields["scale"])))
        except (ValueError, TypeError, LookupError):
            return None
        return truth if truth.form in VERDICT_FORMS and truth.scale else None


def grade_verdict(submission: Submission) -> Verdict:
    """Return 1 - |grade - truth| / (max points) for a verdict; 0 if it cannot be parsed or is off its scale."""
    if (truth := Truth.of(submission.answer)) is None:
        return Verdict(None, 1, Reason.NO_GOLD, "its problem is no graded attempt")
    read = read_text(submission.final, truth.form, truth.scale, submission.stop_reason == StopReason.LENGTH)
    if read.grade is None:
        return Verdict(0.0, 1, Reason.OK, str(read.reason))
    return Verdict(
        1 - abs(read.grade - truth.grade) / max(truth.scale), 1, Reason.OK, f"{read.grade:g} for {truth.grade:g}"
    )


def to_problem(where: str, prompt: Prompt, submission: Submission, grade: Mapping[str, Any]) -> dict[str, Any]:
    """Return statement, answer and solution of a graded attempt, or why it has none. Raises TableError if scales differ."""
    fields = {
        "statement": submission.statement, "proof": submission.final, "scheme": submission.scheme,
        "reference": submission.reference, "answer": submission.answer, "judgement": None,
    }  # fmt: skip
    if (absent := prompt.absent(fields)) or grade["grade"] is None:
        return {"statement": "", "dropped": "graded", "evidence": str(ABSENT[absent] if absent else grade["reason"])}
    if (full := max(prompt.scale)) != grade["max_points"]:
        raise TableError(
            f"{where}: has grades of {grade['max_points']} points, and prompt `{prompt.name}` asks for verdicts of {full:g}; "
            "expected one scale. Set another `prompt`."
        )
    truth = Truth(grade["grade"], prompt.verdict or "points", prompt.scale)
    return {"statement": prompt.render(fields), "answer": str(truth), "solution": _verdict(truth, grade["verdict"])}


def _verdict(truth: Truth, text: str | None) -> str | None:
    """Return the grader's own words if they are a verdict in this form, else the shortest one; None if no form has it."""
    if text and read_text(text, truth.form, truth.scale).grade == truth.grade:
        return text
    return (
        SHORTEST[truth.form].format(f"{truth.grade:g}")
        if truth.form in SHORTEST and truth.grade in truth.scale
        else None
    )
