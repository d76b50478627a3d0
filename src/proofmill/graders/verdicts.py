"""Verdicts: a mark out of full marks, or no mark with the reason, and how one is read from a judge's answer.

How we differ from QED-Nano's parsers (its evaluation):
1. An answer that cannot be read, or a mark off the offered scale, is `grade = None` with the reason. It is never 0, and
   "10" is not 1.
2. The last verdict counts, also where the judge quotes another one before it.
3. A box that says neither Correct nor Incorrect is no verdict; there every other word counted as correct.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from proofmill.calls.exchange import Answer, total
from proofmill.prompts.templates import Prompt
from proofmill.schema.reasons import Reason, Stop
from proofmill.text import answers

# A tag that is never closed runs to the end and holds no verdict: looking for its end once more at each tag is what
# would take quadratic time.
POINTS = re.compile(r"<points\b[^<>]*+>(.*?)(</points>|\Z)", re.DOTALL | re.IGNORECASE)
NUMBER = re.compile(r"^[\s*]*(-?\d{1,9})(?:\.0+)?(?:\s*(?:/|out of)\s*(\d+))?[\s*.]*$")
SCORES = {"0": 0.0, "0.0": 0.0, "0.5": 0.5, ".5": 0.5, "1/2": 0.5, "\\frac{1}{2}": 0.5, "1": 1.0, "1.0": 1.0}
ENDED = re.compile(r"(?:</points>|\\boxed\{[^{}]*+(?:\{[^{}]*+\})?+[^{}]*+\})[\s.$*]*+\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Opinion:
    """What one judge said in one round."""

    judge: str
    round: str  # `1`, `2`, ...; `escalated 1`, ...
    grade: float | None
    reason: Reason
    text: str = ""


@dataclass(frozen=True)
class Verdict:
    """`reason` is ok, `empty` or `no-answer` (nothing was written, or no answer: 0 marks), or why there is no grade."""

    grade: float | None
    out_of: int
    reason: Reason
    text: str = ""
    cost: float | None = 0.0
    tokens: int = 0
    prompt_tokens: int = 0
    opinions: tuple[Opinion, ...] = ()

    def paid(self, calls: Sequence[Answer], opinions: Sequence[Opinion] = ()) -> "Verdict":
        """The same verdict with the cost and tokens of the calls that led to it, and the opinions in them."""
        return replace(
            self,
            cost=total(answer.paid for answer in calls),
            tokens=sum(answer.tokens for answer in calls),
            prompt_tokens=sum(answer.prompt_tokens for answer in calls),
            opinions=tuple(opinions),
        )


def read(answer: Answer, prompt: Prompt) -> Verdict:
    """The verdict in a judge's answer to a prompt, checked against the prompt's scale.

    A tag that is never closed is no verdict, nor is a number of ten digits or more.
    """
    full = int(max(prompt.scale))
    if answer.reason != Reason.OK:
        return Verdict(None, full, Reason(answer.reason), answer.text or answer.detail)
    if answer.stop == Stop.LENGTH and not ENDED.search(answer.text):  # cut off before its last verdict
        return Verdict(None, full, Reason.NO_VERDICT, answer.text)
    grade = _READERS[prompt.reads or "points"](answer.text)
    if grade is None:
        return Verdict(None, full, Reason.NO_VERDICT, answer.text)
    if grade not in prompt.scale:
        return Verdict(None, full, Reason.OFF_SCALE, answer.text)
    return Verdict(float(grade), full, Reason.OK, answer.text)


def _points(text: str) -> int | None:
    tags = [inside for inside, closed in POINTS.findall(text) if closed]
    number = NUMBER.match(tags[-1]) if tags else None
    return int(number[1]) if number and number[2] in (None, "7") else None


def _correct(text: str) -> int | None:
    boxes = answers.boxed(text)
    word = re.sub(r"\\(?:text|textbf|mathrm|mathbf)\s*|[{}\s.*]", "", boxes[-1]).lower() if boxes else ""
    return {"correct": 1, "incorrect": 0}.get(word)


def score_in(text: str) -> float | None:
    """The last boxed 0, 0.5 or 1; None where there is none."""
    found = [SCORES[box] for raw in answers.boxed(text) if (box := raw.strip().strip("$")) in SCORES]
    return found[-1] if found else None


_READERS: dict[str, Callable[[str], float | None]] = {"points": _points, "correct": _correct, "score": score_in}
