"""Declared faults of the referee's judgement, for what is learned from a judge that errs.

A request chooses them by fields of its own, which the `options` of an `api/...` entry are:

    api/lenient: {id: referee-1, program: referee, ..., options: {errs: 0.2}}

What a fault does is decided by a hash of the prompt: the same text has the same verdict whenever it is asked for, so
asking again is no help. Faults bear on marks of proofs; labels, schemes and summaries are as ever. Faults of the
server that brings the verdicts are _referee_faults.py.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from proofmill.arithmetic import congruences, marking
from proofmill.arithmetic.congruences import Congruence
from proofmill.arithmetic.marking import FULL_MARKS

SILENCE = "I do not say what this is worth."
DECLINED = "I cannot read this as an argument, so I do not say what it is worth."
# Fields that requests have anyhow: of Chat Completions, and those that vLLM's server adds for sampling.
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
    """The faults that a request chooses; none of them by default."""

    errs: float = 0.0  # share of the proofs that are given another number of points
    silent: float = 0.0  # share of the proofs that are given no verdict
    likes_length: int = 0  # characters for which a proof is given one point more
    believes: bool = False  # each line that looks like a calculation passes for the one that ought to stand there
    declines: bool = False  # no verdict on what the checker cannot read as an argument, instead of 0

    def __post_init__(self) -> None:
        for name in ("errs", "silent"):
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                raise ValueError(f"`{name}` is {share!r}; expected a share from 0 to 1.")
        if isinstance(self.likes_length, bool) or not isinstance(self.likes_length, int) or self.likes_length < 0:
            raise ValueError(f"`likes_length` is {self.likes_length!r}; expected characters for a point, such as 40.")
        for name in ("believes", "declines"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"`{name}` is {getattr(self, name)!r}; expected true or false.")

    def verdict(self, prompt: str, problem: Congruence | None, proof: str, marked: Callable[[str], str]) -> str:
        """The verdict on a proof that the prompt shows; `marked` gives the referee's own on a text.

        Of a problem that is none of the family there is no verdict whose points a fault could change.
        """
        if problem is None:
            return marked(proof)
        if _chance(prompt, "silent") < self.silent:
            return SILENCE
        if self.declines and marking.check(problem, proof, answer_only=True).fault:
            return DECLINED
        text = marked(_as_believed(problem, proof) if self.believes else proof)
        if not (given := list(_POINTS.finditer(text))):
            return text
        points = int(given[-1][1])
        if _chance(prompt, "errs") < self.errs:
            others = [other for other in range(FULL_MARKS + 1) if other != points]
            points = others[int(_chance(prompt, "points") * len(others))]
        if self.likes_length:
            points = min(FULL_MARKS, points + len(proof) // self.likes_length)
        return f"{text[: given[-1].start()]}<points>{points}</points>"


UNBIASED = Biases()


def of_request(body: Mapping[str, Any]) -> Biases:
    """The faults that a request's body chooses. Raises ValueError for a field that no request has, or a wrong value."""
    known = {field.name: body[field.name] for field in fields(Biases) if field.name in body}
    if unknown := sorted(body.keys() - known.keys() - OF_REQUESTS):
        names = ", ".join(field.name for field in fields(Biases))
        raise ValueError(f"`{unknown[0]}` is no option of the referee; expected some of {names}.")
    return Biases(**known)


def _as_believed(problem: Congruence, proof: str) -> str:
    """The proof with each line that has the signs of a calculation replaced by the one that ought to stand there."""
    right = iter(congruences.checkpoints(problem))
    lines = marking.written_lines(proof)
    return "\n".join(next(right, line) if marking.is_calculation(line) else line for line in lines)


def _chance(prompt: str, what: str) -> float:
    """A number from 0 to below 1 that the prompt decides, another for each fault."""
    return int.from_bytes(hashlib.sha256(f"{what} {prompt}".encode()).digest()[:6]) / 2**48
