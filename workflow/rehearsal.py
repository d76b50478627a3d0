"""Sources of rehearsals (workflow/rehearsal.yaml): lessons for the tiny model, and problems like GSM8K's.

The tiny model replaces the hub's weights. A lesson is a problem of the arithmetic family with the prompt of a recipe,
so that rehearsals need no other prompts. Proofs are sloppy, some lack the requested form and some have no words,
because the rewards of a training must vary.
"""

import random
import re
from collections.abc import Iterator
from typing import Any

from proofmill.prompts.templates import fill
from proofmill.schema.entries.problem_entries import Problems
from proofmill.sources.loaders import Loader
from proofmill.synthetic import congruences, referee

ASKED = (
    "solve",
    "prove",
    "think-answer",
    "think-answer",
    "conversation",
    "continue-from-summary",
    "answer",
    "continue-from-summary",
    "think-then-summarize",
)  # cyclically
SIZES = {"powers": (1, 2), "digits": (2, 4), "products": (1, 2), "recurrence": (1, 3)}
FLAWED = 0.1  # share of proofs without the requested form
WORDLESS = 0.2  # share of reasoning that is only a formula
RETOLD = 0.6  # share of prompts to continue that have a summary


def lessons(entry: Problems) -> Iterator[dict[str, Any]]:
    """Yield problems of the arithmetic family in the words of each prompt in turn, with sloppy proofs in its form."""
    rng = random.Random(f"rehearsal {entry.split} {entry.seed}")
    for number, problem in enumerate(congruences.problems(entry.split, entry.seed, sizes=SIZES)):
        asked = ASKED[number // len(congruences.FAMILIES) % len(ASKED)]
        proof = congruences.sloppy_proof(problem, rng)
        thought, _, body = proof.removeprefix("<think>").partition("</think>\n")
        if rng.random() < WORDLESS:
            thought = re.sub(r"[a-z]{2,}.*", "", thought)
        if rng.random() < FLAWED:
            proof = body
        elif asked in ("think-answer", "conversation"):
            proof = f"<think>\n{thought}\n</think>\n<answer>\n{body}\n</answer>"
        else:
            proof = f"<think>{thought}</think>\n{body}"
        fields: dict[str, Any] = {"statement": congruences.statement(problem, rng.randint(0, 1))}
        if asked == "continue-from-summary":  # as in a reasoning cache, whose first turn has no summary
            fields["summary"] = referee.sum_up(problem, "", body) if rng.random() < RETOLD else None
        yield {"statement": fill(asked, fields), "solution": proof, "origin": "rehearsal"}


def steps(entry: Problems) -> Iterator[dict[str, Any]]:
    """Yield problems of that family with solutions like GSM8K's: a line for each step, then the final answer."""
    rng = random.Random(f"rehearsal steps {entry.split} {entry.seed}")
    for problem in congruences.problems(entry.split, entry.seed, sizes=entry.sizes or SIZES):
        yield {
            "statement": congruences.statement(problem, rng.randint(0, 1)),
            "solution": "\n".join([*congruences.checkpoints(problem), f"#### {problem.residue}"]),
            "answer": str(problem.residue),
            "question_type": "proof" if problem.asks_for_proof else "answer",
            "origin": "rehearsal",
        }


READS = frozenset({"split", "rows", "seed"})
SOURCES = {
    "rehearsal": Loader(lessons, "lessons for rehearsals", READS),
    "rehearsal-steps": Loader(steps, "problems for rehearsals of GSM8K", READS | {"sizes"}, None, congruences.BOUNDS),
}
