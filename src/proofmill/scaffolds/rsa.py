"""Recursive self-aggregation: a population of solutions. Each round merges blocks of the previous one.

From: RSA as in QED-Nano's evaluation, the scaffold of its headline numbers.

    population = `population` solutions
    repeat `rounds` times: population = [merge(block) for block in blocks(population, `aggregation-size`)]
    the answer is the last one left by pairwise choices, or by one choice among all

Differences from the original:
1. Draws have a seed for each problem and attempt. In the original the blocks are the same for all problems, and the
   pairs differ in each run.
2. A block merges only members with a solution; a single one stays unchanged.
"""

from collections.abc import Sequence

from proofmill.calls.dialogues import Dialogue
from proofmill.scaffolds.components import knockout, merging, select
from proofmill.scaffolds.scaffold_run import ScaffoldRun, ScaffoldStep, candidates


def rsa(play: ScaffoldRun, population: int, rounds: int, aggregation_size: int, pairwise: bool) -> Dialogue:
    """Return the ending, after at most population * (rounds + 2) - 1 calls."""
    solved = candidates((yield from play.ask_all([play.solve(f"solve {n}") for n in range(1, population + 1)])))
    for turn in range(1, rounds + 1):
        some = blocks(play, turn, solved, min(aggregation_size, len(solved)))
        calls = [merging(play, f"round {turn}, merge {n}", members) for n, members in enumerate(some, 1)]
        merged = candidates((yield from play.ask_all(calls))) if len(solved) > 1 else []
        solved = merged or solved
    if not solved:
        return play.nothing()
    chosen = yield from (knockout if pairwise else select)(play, "select", solved)
    return play.answer(chosen)


def blocks(play: ScaffoldRun, turn: int, population: Sequence[ScaffoldStep], size: int) -> list[list[ScaffoldStep]]:
    """Draw one block per member. Each has `size` different members, and each member is in `size` blocks."""
    rng, number = play.rng("blocks", turn), len(population)
    order = rng.sample(range(number), number)
    offsets = rng.sample(range(number), size)
    return [[population[order[(start + offset) % number]] for offset in offsets] for start in range(number)]
