"""Lessons for the tiny model that rehearsals start from in the place of the hub's weights (workflow/rehearsal.yaml).

A lesson is a problem of the arithmetic family as a recipe asks it, prompt included, so that no rehearsal needs another prompt.
Proofs are sloppy, some lack the form that was asked for and some have no words: the rewards of a training have to vary.
"""

import random
import re
from collections.abc import Iterator
from typing import Any

from proofmill.arithmetic import congruences, referee
from proofmill.prompts.templates import fill
from proofmill.schema.entries import Problems
from proofmill.sources.loaders import Source

ASKED = ("solve", "prove", "solve", "think-answer", "go-on", "answer", "go-on", "sum-up-answer")  # in turn
SIZES = {"powers": (1, 2), "digits": (2, 4), "products": (1, 2), "recurrence": (1, 3)}
FLAWED = 0.1  # of the proofs lack their form
WORDLESS = 0.2  # of the thoughts are a formula alone
RETOLD = 0.6  # of the prompts to go on have a summary


def lessons(entry: Problems) -> Iterator[dict[str, Any]]:
    """Yield problems of the arithmetic family in the words of each prompt in turn, with sloppy proofs in its form."""
    rng = random.Random(f"rehearsal {entry.part} {entry.seed}")
    for number, problem in enumerate(congruences.problems(entry.part, entry.seed, sizes=SIZES)):
        asked = ASKED[number // len(congruences.FAMILIES) % len(ASKED)]
        proof = congruences.sloppy_proof(problem, rng)
        thought, _, body = proof.removeprefix("<think>").partition("</think>\n")
        if rng.random() < WORDLESS:
            thought = re.sub(r"[a-z]{2,}.*", "", thought)
        if rng.random() < FLAWED:
            proof = body
        elif asked == "think-answer":
            proof = f"<think>\n{thought}\n</think>\n<answer>\n{body}\n</answer>"
        else:
            proof = f"<think>{thought}</think>\n{body}"
        fields: dict[str, Any] = {"statement": congruences.statement(problem, rng.randint(0, 1))}
        if asked == "go-on":  # as a reasoning cache asks: at first without a summary
            fields["summary"] = referee.sum_up(problem, "", body) if rng.random() < RETOLD else None
        yield {"statement": fill(asked, fields), "solution": proof, "origin": "rehearsal"}


SOURCES = {"rehearsal": Source(lessons, "lessons for rehearsals", frozenset({"part", "rows", "seed"}))}
