"""Generate, verify and refine in a growing pool of proofs.

From: DeepSeek-Math-V2's search as in QED-Nano's evaluation (`deepseek_math`).

    pool = `pool` proofs, each verified `verifications` times with 0, 0.5 or 1
    repeat `iterations` times, or until a proof has the mean 1:
        refine the `pool` best with their `reviews-shown` most severe verifications, verify the results, add them to the pool
    the answer is the proof with the best mean

Differences from the original:
1. A verification without a score does not count; in the original it counts 0. A proof without any parsable
   verification ranks last.
2. An empty proof is not sent to a verifier.
"""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from proofmill.calls.dialogues import Dialogue
from proofmill.graders.verdicts import read_boxed_number
from proofmill.prompts import escapes
from proofmill.scaffolds.scaffold_run import Call, ScaffoldRun, ScaffoldStep

_SOLUTION = re.compile(r"^[ \t]*#+[ \t*_]*solution\b[^\n]*$", re.IGNORECASE | re.MULTILINE)
_EVALUATION = re.compile(r"^[ \t]*#+[ \t*_]*self[ \-]*evaluation\b[^\n]*$", re.IGNORECASE | re.MULTILINE)


@dataclass
class Proof:
    """A proof of the pool: the step that wrote it, its text, and its verifications with their scores."""

    step: ScaffoldStep
    text: str
    verified: list[tuple[ScaffoldStep, float]]

    @property
    def mean(self) -> float:
        """The mean score; -1 without verifications."""
        return statistics.fmean(score for _, score in self.verified) if self.verified else -1.0


def deepseek_math(play: ScaffoldRun, pool: int, verifications: int, reviews_shown: int, iterations: int) -> Dialogue:
    """Return the ending, after at most pool * (1 + verifications) * (1 + iterations) calls."""
    asked = (*play.system, ("user", play.prompt("prove")))
    written = yield from play.ask_all([Call("solver", f"prove {n}", asked) for n in range(1, pool + 1)])
    proofs = yield from _find_verified(play, "", written, verifications)
    for turn in range(1, iterations + 1):
        if not proofs or max(proof.mean for proof in proofs) >= 1.0:
            break
        best = sorted(proofs, key=lambda proof: proof.mean)[-pool:]
        calls = [_refining(play, f"round {turn}, refine {n}", proof, reviews_shown) for n, proof in enumerate(best, 1)]
        proofs += yield from _find_verified(play, f"round {turn}, ", (yield from play.ask_all(calls)), verifications)
    if not proofs:
        return play.nothing()
    best_one = max(proofs, key=lambda proof: proof.mean)
    return play.answer(best_one.step, best_one.text)


def _find_verified(play: ScaffoldRun, turn: str, steps: Sequence[ScaffoldStep], times: int) -> Dialogue:
    """Return the proofs in some steps, with their verifications."""
    proofs = [Proof(step, text, []) for step in steps if (text := proof_in(step.solution))]
    calls = [
        Call("verifier", f"{turn}verify {n}.{k}", play.prompt("evaluate", proof=proof.text), [proof.step])
        for n, proof in enumerate(proofs, 1)
        for k in range(1, times + 1)
    ]
    read = yield from play.ask_all(calls)
    for place, step in enumerate(read):
        if (score := score_in(step.solution)) is not None:
            proofs[place // times].verified.append((step, score))
    return proofs


def _refining(play: ScaffoldRun, name: str, proof: Proof, reviews_shown: int) -> Call:
    """Build the call for a better proof, with the lowest verifications of this one."""
    worst = [step for step, _ in sorted(proof.verified, key=lambda pair: pair[1])[:reviews_shown]]
    analyses = escapes.in_blocks("assessment", [step.solution for step in worst])
    asked = play.prompt("refine", proof=proof.text, analyses=analyses)
    return Call("improver", name, (*play.system, ("user", asked)), [proof.step, *worst])


def score_in(text: str) -> float | None:
    """Return the score 0, 0.5 or 1 in the box that ends a verification; None without one."""
    score = read_boxed_number(text)
    return score if score in (0, 0.5, 1) else None


def proof_in(text: str) -> str:
    """Return the text between the headings Solution and Self-evaluation, as far as these exist."""
    start, end = _SOLUTION.search(text), _EVALUATION.search(text)
    if start and end and end.start() < start.end():
        end = _EVALUATION.search(text, start.end())
    return text[start.end() if start else 0 : end.start() if end else None].strip()
