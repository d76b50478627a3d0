"""Submissions to a grader: a response with its problem and everything it is graded by. Its final part is graded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proofmill.answers import extraction
from proofmill.schema.reasons import Reason, StopReason
from proofmill.text.reasoning import OPEN, final_part, is_closed

OF_PROBLEM = ("statement", "answer", "solution", "question_type")  # columns of a problem that grading reads


@dataclass(frozen=True)
class Submission:
    """One attempt at a problem, with everything it is graded by.

    `reason` is why there is no response (refused, provider, ...), or `ok`. `answer` is the reference answer,
    `reference` the official solution, `question_type` the type of the question. `grade` and `max_points`
    are a person's grade.
    """

    statement: str
    answer: str | None
    scheme: str | None
    text: str
    reasoning: str | None = None
    stop_reason: str = StopReason.END
    reason: str = Reason.OK
    reference: str | None = None
    question_type: str = "proof"
    grade: float | None = None
    max_points: int | None = None

    @classmethod
    def of(
        cls, response: Mapping[str, Any], problem: Mapping[str, Any], scheme: Mapping[str, Any] | None
    ) -> "Submission":
        """Return the submission of a row of `responses`, with its problem, and its scheme unless that was dropped."""
        return cls(
            statement=problem["statement"],
            answer=problem["answer"],
            scheme=(scheme["scheme"] or None) if scheme and scheme["dropped"] is None else None,
            text=response["text"] or "",
            reasoning=response["reasoning"],
            stop_reason=response["stop_reason"],
            reason=response["reason"],
            reference=problem["solution"],
            question_type=problem["question_type"] or "proof",
            grade=response.get("given_grade"),
            max_points=response.get("max_points"),
        )

    @property
    def final(self) -> str:
        """The part that is graded: all text after the reasoning."""
        return final_part(self.text, self.reasoning)

    def answer_form(self, reading: str) -> str:
        """Return the final part with its answer in a box, as `reading` extracts it (answers/extraction.py)."""
        return extraction.in_form(self.final, reading, truncated=self.stop_reason == StopReason.LENGTH)

    @property
    def unanswered(self) -> bool:
        """True if the model stopped on its own, but no text was recognized as an answer.

        False for a text that begins with an opening reasoning tag: its model never wrote an answer.
        """
        elsewhere = bool(self.reasoning) or (bool(self.text.strip()) and not self.text.lstrip().startswith(OPEN))
        return self.stop_reason == StopReason.END and not self.final and elsewhere

    @property
    def well_formed(self) -> bool:
        """True if the model stopped on its own, the reasoning is closed, and the answer has exactly one box."""
        closed = self.reasoning is not None or is_closed(self.text)
        return self.stop_reason == StopReason.END and closed and self.final.count("\\boxed{") == 1
