"""A fixed graph: several branches solve, verify and improve. Each is merged, and one of them is chosen.

From: the static agent of QED-Nano's evaluation (`static_math_agent`).

    branches = `approaches` suggested ones and `unguided` without a suggestion
    of each branch: `solutions` times (solve, then `verifications` times verify and improve), merged or chosen from
    the answer is chosen among the branches

Differences from the original:
1. A branch whose solutions are all empty is skipped.
2. An empty improvement leaves the solution unchanged.
"""

from proofmill.calls.dialogues import Dialogue, together
from proofmill.scaffolds import components
from proofmill.scaffolds.scaffold_run import Call, ScaffoldRun, ScaffoldStep


def graph(
    play: ScaffoldRun, approaches: int, unguided: int, solutions: int, verifications: int, merge: bool
) -> Dialogue:
    """Return the ending.

    Makes (approaches + unguided) * (solutions * (1 + 2 * verifications) + 1) + 1 calls, and one for the approaches.
    """
    suggested: list[tuple[ScaffoldStep, str]] = []
    if approaches:
        step, hints = yield from components.approaches(play, "approaches", approaches)
        suggested = [(step, hint) for hint in hints]
    branches = [*suggested, *[None] * unguided]
    made = yield from together(
        [_branch(play, f"branch {n}", hint, solutions, verifications, merge) for n, hint in enumerate(branches, 1)]
    )
    results = [step for step in made if step is not None]
    if not results:
        return play.nothing()
    return play.answer((yield from components.select(play, "select", results)))


def _branch(
    play: ScaffoldRun, name: str, hint: tuple[ScaffoldStep, str] | None, number: int, checks: int, merge: bool
) -> Dialogue:
    """Return the solution of a branch; None if it has none."""
    made = yield from together([_line(play, f"{name}.{n}", hint, checks) for n in range(1, number + 1)])
    solved = [step for step in made if step is not None]
    if len(solved) < 2:
        return solved[0] if solved else None
    if not merge:
        return (yield from components.select(play, f"{name}, select", solved))
    (merged,) = yield from play.ask_all([components.merging(play, f"{name}, merge", solved)])
    return merged if merged.solution else solved[-1]


def _line(play: ScaffoldRun, name: str, hint: tuple[ScaffoldStep, str] | None, checks: int) -> Dialogue:
    """Return a solution after its improvements; None if it is empty."""
    call = play.solve(f"{name}, solve")
    if hint:
        talk = (*play.system, ("user", play.prompt("solve-with-approach", approach=hint[1])))
        call = Call("solver", f"{name}, solve", talk, [hint[0]])
    (solution,) = yield from play.ask_all([call])
    for turn in range(1, checks + 1):
        if not solution.solution:
            return None
        report = yield from components.verify(play, f"{name}, verify {turn}", solution)
        improved = yield from components.improve(play, f"{name}, improve {turn}", solution, report)
        solution = improved if improved.solution else solution
    return solution if solution.solution else None
