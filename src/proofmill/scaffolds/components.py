"""Components of several scaffolds: merging, choosing, verifying, improving, and approaches to a problem.

From: the components of QED-Nano's static and planning agents, which its RSA also uses.

Differences from the original:
1. A choice that is a draw, or that cannot be parsed, is made at random with a seed. In the original the last candidate
   wins, which favors a position.
"""

import random
import re
from collections.abc import Sequence
from itertools import product
from string import ascii_uppercase

from proofmill.answers import extraction
from proofmill.calls.dialogues import Dialogue
from proofmill.graders.verdicts import read_plain_word
from proofmill.prompts import escapes
from proofmill.scaffolds.scaffold_run import Call, ScaffoldRun, ScaffoldStep

APPROACH = re.compile(r"^#{1,6}[ \t]*suggested approach\b[^\n]*$", re.IGNORECASE | re.MULTILINE)
LABELS = (*ascii_uppercase, *map("".join, product(ascii_uppercase, repeat=2)))  # A to Z, AA to ZZ


def letter(solutions: Sequence[ScaffoldStep]) -> str:
    """Format candidates for a prompt, each under its letter."""
    return escapes.Enclosed(
        "\n\n".join(
            f"Candidate {letter}:\n{escapes.in_blocks('solution', [step.solution])}"
            for letter, step in zip(LABELS[: len(solutions)], solutions, strict=True)
        )
    )


def merging(play: ScaffoldRun, name: str, solutions: Sequence[ScaffoldStep]) -> Call:
    """Build the call that merges several solutions into one."""
    return Call("merger", name, play.prompt("merge", candidates=letter(solutions)), solutions)


def select(play: ScaffoldRun, name: str, solutions: Sequence[ScaffoldStep]) -> Dialogue:
    """Return the candidate that the selector prefers. Makes no call if there is only one."""
    if len(solutions) == 1:
        return solutions[0]
    step = yield from play.ask("selector", name, play.prompt("select", candidates=letter(solutions)), solutions)
    return solutions[choice(step.solution, len(solutions), play.rng(name))]


def choice(text: str, number: int, rng: random.Random) -> int:
    """Return the position of the candidate in the last box with a letter; random for `equal`, or without such a box."""
    for box in reversed(extraction.find_boxes(text)):
        letter = read_plain_word(box).removeprefix("candidate").strip("()\\:").upper()
        if letter in LABELS[:number]:
            return LABELS.index(letter)
        if letter == "EQUAL":
            break
    return rng.randrange(number)


def knockout(play: ScaffoldRun, name: str, solutions: Sequence[ScaffoldStep]) -> Dialogue:
    """Return the last of the candidates after rounds of pairs. An odd one advances; each round forms new pairs."""
    left, turn = list(solutions), 0
    while len(left) > 1:
        turn += 1
        pairs = [left[place : place + 2] for place in range(0, len(left), 2)]
        calls = [
            Call("selector", f"{name} {turn}.{n}", play.prompt("select", candidates=letter(pair)), pair)
            for n, pair in enumerate(pairs, 1)
            if len(pair) == 2
        ]
        steps = iter((yield from play.ask_all(calls)))
        left = [
            pair[0] if len(pair) == 1 else pair[choice((step := next(steps)).solution, 2, play.rng(step.name))]
            for pair in pairs
        ]
        play.rng(name, turn).shuffle(left)
    return left[0]


def approaches(play: ScaffoldRun, name: str, number: int) -> Dialogue:
    """Return the step that suggests approaches, and at most `number` of them."""
    step = yield from play.ask("planner", name, play.prompt("approaches", number=str(number)))
    parts = [part.strip() for part in APPROACH.split(step.solution)[1:]]
    return step, [approach for approach in parts if approach][:number]


def verify(play: ScaffoldRun, name: str, solution: ScaffoldStep, text: str | None = None) -> Dialogue:
    """Return the step that lists the faults of a solution."""
    asked = play.prompt("verify", solution=solution.solution if text is None else text)
    return (yield from play.ask("verifier", name, asked, [solution]))


def improve(play: ScaffoldRun, name: str, solution: ScaffoldStep, report: ScaffoldStep) -> Dialogue:
    """Return the step that rewrites a solution after a report on it."""
    asked = play.prompt("improve", solution=solution.solution, report=report.solution)
    return (yield from play.ask("improver", name, asked, [solution, report]))
