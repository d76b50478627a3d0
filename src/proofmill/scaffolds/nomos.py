"""Score many solutions, keep one group of them, and let them play a tournament.

From: Nomos as in QED-Nano's evaluation.

    `solutions` solutions, each scored from 0 to 7
    keep the first `finalists` with 7 if `min-perfect` of them have it, else the `finalists` best
    a consolidator keeps the group whose conclusion it considers correct
    the answer wins a tournament of pairs

Differences from the original:
1. A solution without a parsable score ranks after those with one; in the original it has 0.
2. A consolidator that keeps no solution keeps all.
3. Ties and pairings are drawn with a seed.
"""

import random
import re

from proofmill.answers import extraction
from proofmill.calls.dialogues import Dialogue
from proofmill.prompts import escapes
from proofmill.scaffolds.scaffold_run import Call, ScaffoldRun, ScaffoldStep, candidates

_KEEP = re.compile(r"<keep>\s*\[?([\d,\s]*)\]?\s*</keep>", re.IGNORECASE)
_VERDICT = re.compile(r"<verdict>\s*(1|2|tie)\s*</verdict>", re.IGNORECASE)


def nomos(play: ScaffoldRun, solutions: int, finalists: int, min_perfect: int) -> Dialogue:
    """Return the ending, after at most 2 * solutions + finalists calls."""
    solved = candidates((yield from play.ask_all([_solving(play, n) for n in range(1, solutions + 1)])))
    if not solved:
        return play.nothing()
    calls = [
        Call("verifier", f"score {n}", play.prompt("score", solution=step.solution), [step])
        for n, step in enumerate(solved, 1)
    ]
    scored = list(zip(solved, (yield from play.ask_all(calls)), strict=True))
    scores = {step.number: score_in(feedback.solution) for step, feedback in scored}
    full = [pair for pair in scored if scores[pair[0].number] == 7]
    ranked = sorted(scored, key=lambda pair: _rank(scores[pair[0].number]), reverse=True)
    chosen = (full if len(full) >= min_perfect else ranked)[:finalists]
    left = yield from _consolidate(play, chosen)
    turn = 0
    while len(left) > 1:
        turn += 1
        play.rng("tournament", turn).shuffle(left)
        left = yield from _round(play, turn, left)
    return play.answer(left[0])


def _rank(score: int | None) -> int:
    return -1 if score is None else score


def _solving(play: ScaffoldRun, number: int) -> Call:
    return Call("solver", f"solve {number}", (*play.system, ("user", play.statement)))


def _consolidate(play: ScaffoldRun, scored: list[tuple[ScaffoldStep, ScaffoldStep]]) -> Dialogue:
    """Return the solutions of the group that the consolidator considers correct."""
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


def _round(play: ScaffoldRun, turn: int, left: list[ScaffoldStep]) -> Dialogue:
    """Return the winners of a round; the last of an odd number advances."""
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
    """Return the last boxed whole number from 0 to 7; None without one."""
    scores = [int(box) for raw in extraction.find_boxes(text) if re.fullmatch(r"[0-7]", box := raw.strip())]
    return scores[-1] if scores else None


def winner(text: str, rng: random.Random) -> int:
    """Return 0 or 1 by the last verdict; at random for a tie, or without a verdict."""
    verdicts = _VERDICT.findall(text)
    word = verdicts[-1].lower() if verdicts else "tie"
    return rng.randrange(2) if word == "tie" else int(word) - 1
