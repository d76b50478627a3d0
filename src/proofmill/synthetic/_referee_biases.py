"""Configurable faults of the referee's verdicts, to study training with a judge that errs.

A request sets them by fields of its own, which are the `extra-body` of an `api/...` entry:

    api/lenient: {id: referee-1, program: referee, ..., extra-body: {noise: 0.2}}

A hash of the prompt decides each fault, so the same text always has the same verdict, and a retry does not help. Faults
affect grades of proofs; labels, schemes and summaries are unchanged. For faults of the server see _referee_faults.py.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from proofmill.synthetic import congruences, grading
from proofmill.synthetic.congruences import Congruence
from proofmill.synthetic.grading import MAX_POINTS

SILENCE = "I do not say what this is worth."
DECLINED = "I cannot read this as an argument, so I do not say what it is worth."
# Fields of all requests: of Chat Completions, and those that vLLM's server adds for sampling.
OF_REQUESTS = {
    *("model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "stop"),
    *(
        "presence_penalty",
        "frequency_penalty",
        "seed",
        "n",
        "logprobs",
        "top_logprobs",
        "stream",
        "user",
        "reasoning_effort",
        "response_format",
    ),
}
_POINTS = re.compile(r"<points>(\d)</points>")


@dataclass(frozen=True)
class Biases:
    """The faults that a request sets; none by default."""

    noise: float = 0.0  # share of the proofs that get a wrong number of points
    missing: float = 0.0  # share of the proofs that get no verdict
    length_bias: int = 0  # characters of a proof that earn one point more; 0 for none
    credulous: bool = False  # each line that looks like a calculation counts as the correct line
    declines: bool = False  # no verdict, instead of 0 points, on a text that the checker cannot parse as an argument

    def __post_init__(self) -> None:
        for name in ("noise", "missing"):
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                raise ValueError(f"`{name}` is {share!r}; expected a share between 0 and 1.")
        if isinstance(self.length_bias, bool) or not isinstance(self.length_bias, int) or self.length_bias < 0:
            raise ValueError(f"`length_bias` is {self.length_bias!r}; expected characters for a point, such as 40.")
        for name in ("credulous", "declines"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"`{name}` is {getattr(self, name)!r}; expected true or false.")

    def verdict(self, prompt: str, problem: Congruence | None, proof: str, grade: Callable[[str], str]) -> str:
        """Return the verdict on a proof in the prompt; `grade` returns the unbiased verdict on a text.

        Faults do not apply to a problem outside of the family, because its verdict has no points.
        """
        if problem is None:
            return grade(proof)
        if _chance(prompt, "silent") < self.missing:
            return SILENCE
        if self.declines and grading.check(problem, proof, answer_only=True).fault:
            return DECLINED
        text = grade(_with_correct_lines(problem, proof) if self.credulous else proof)
        if not (matches := list(_POINTS.finditer(text))):
            return text
        points = int(matches[-1][1])
        if _chance(prompt, "errs") < self.noise:
            others = [other for other in range(MAX_POINTS + 1) if other != points]
            points = others[int(_chance(prompt, "points") * len(others))]
        if self.length_bias:
            points = min(MAX_POINTS, points + len(proof) // self.length_bias)
        return f"{text[: matches[-1].start()]}<points>{points}</points>"


UNBIASED = Biases()


def of_request(body: Mapping[str, Any]) -> Biases:
    """Read the faults that a request's body sets. Raises ValueError for an unknown field or a wrong value."""
    known = {field.name: body[field.name] for field in fields(Biases) if field.name in body}
    if unknown := sorted(body.keys() - known.keys() - OF_REQUESTS):
        names = ", ".join(field.name for field in fields(Biases))
        raise ValueError(f"`{unknown[0]}` is not an option of the referee; expected some of {names}.")
    return Biases(**known)


def _with_correct_lines(problem: Congruence, proof: str) -> str:
    """Replace each line of a proof that looks like a calculation by the correct one."""
    correct = iter(congruences.checkpoints(problem))
    lines = grading.split_lines(proof)
    return "\n".join(next(correct, line) if grading.is_calculation(line) else line for line in lines)


def _chance(prompt: str, what: str) -> float:
    """Return a number in [0, 1) that is determined by the prompt and the fault."""
    return int.from_bytes(hashlib.sha256(f"{what} {prompt}".encode()).digest()[:6]) / 2**48
