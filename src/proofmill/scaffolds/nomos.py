"""Score many solutions, keep one group of them, and let them play a tournament.

From: Nomos as in QED-Nano's evaluation.

    `solutions` solutions, each scored from 0 to 7
    keep the first `kept` with 7 if `perfect` of them have it, else the `kept` best
    a consolidator keeps the group whose conclusion it believes
    the answer wins a tournament of pairs

How we differ:
1. A solution without a readable score is behind those that have one; there it has 0.
2. A consolidator that keeps nobody has kept all.
3. Ties and pairings are drawn with a seed.
"""

import random
import re

from proofmill.calls.dialogues import Dialogue
from proofmill.prompts import escapes
from proofmill.scaffolds.play import Call, Play, Step, candidates
from proofmill.text import answers

_KEEP = re.compile(r"<keep>\s*\[?([\d,\s]*)\]?\s*</keep>", re.IGNORECASE)
_VERDICT = re.compile(r"<verdict>\s*(1|2|tie)\s*</verdict>", re.IGNORECASE)


def nomos(play: Play, solutions: int, kept: int, perfect: int) -> Dialogue:
    """Return the ending; 2 * solutions + kept calls at most."""
    solved = candidates((yield from play.ask_all([_solving(play, n) for n in range(1, solutions + 1)])))
    if not solved:
        return play.nothing()
    calls = [
        Call("verifier", f"score {n}", play.prompt("score", solution=step.solution), [step])
        for n, step in enumerate(solved, 1)
    ]
    scored = list(zip(solved, (yield from play.ask_all(calls)), strict=True))
    marks = {step.number: score_in(feedback.solution) for step, feedback in scored}
    full = [pair for pair in scored if marks[pair[0].number] == 7]
    ranked = sorted(scored, key=lambda pair: _rank(marks[pair[0].number]), reverse=True)
    chosen = (full if len(full) >= perfect else ranked)[:kept]
    left = yield from _consolidated(play, chosen)
    turn = 0
    while len(left) > 1:
        turn += 1
        play.rng("tournament", turn).shuffle(left)
        left = yield from _round(play, turn, left)
    return play.answer(left[0])


def _rank(mark: int | None) -> int:
    return -1 if mark is None else mark


def _solving(play: Play, number: int) -> Call:
    return Call("solver", f"solve {number}", (*play.system, ("user", play.statement)))


def _consolidated(play: Play, scored: list[tuple[Step, Step]]) -> Dialogue:
    """Return the solutions of the group that is believed to be right."""
    blocks = (
        escapes.in_blocks("solution", [s.solution]) + "\n" + escapes.in_blocks("judgement", [f.solution])
        for s, f in scored
    )
    submissions = escapes.Enclosed("\n\n".join(f"Submission {n}:\n{block}" for n, block in enumerate(blocks, 1)))
    shown = [step for pair in scored for step in pair]
    step = yield from play.ask("selector", "consolidate", play.prompt("consolidate", submissions=submissions), shown)
    lists = _KEEP.findall(step.solution)
    places = {int(n) for n in re.findall(r"\d{1,4}", lists[-1])} if lists else set()
    return [solution for n, (solution, _) in enumerate(scored, 1) if n in places] or [s for s, _ in scored]


def _round(play: Play, turn: int, left: list[Step]) -> Dialogue:
    """Return the winners of a round; the last of an odd number passes."""
    pairs = [left[place : place + 2] for place in range(0, len(left) - 1, 2)]
    calls = [
        Call(
            "selector",
            f"round {turn}, pair {n}",
            play.prompt("compare", first=one.solution, second=other.solution),
            [one, other],
        )
        for n, (one, other) in enumerate(pairs, 1)
    ]
    verdicts = yield from play.ask_all(calls)
    winners = [pair[winner(step.solution, play.rng(step.name))] for pair, step in zip(pairs, verdicts, strict=True)]
    return [*winners, *(left[-1:] if len(left) % 2 else [])]


def score_in(text: str) -> int | None:
    """The last boxed whole number from 0 to 7; None where there is none."""
    found = [int(box) for raw in answers.boxed(text) if re.fullmatch(r"[0-7]", box := raw.strip())]
    return found[-1] if found else None


def winner(text: str, rng: random.Random) -> int:
    """0 or 1 by the last verdict; by chance for a tie, or where there is none."""
    verdicts = _VERDICT.findall(text)
    word = verdicts[-1].lower() if verdicts else "tie"
    return rng.randrange(2) if word == "tie" else int(word) - 1
