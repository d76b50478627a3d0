"""Composites: a curriculum in which a new program must call programs that are known already.

From: the code of Absolute Zero Reasoner (`composite_function_*`), which reports that it does not help: models write
trivial wrappers. Off unless an entry asks for it.

How we differ: only programs of imports and one function are given, so that no name of one hides another's.
"""

import ast
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from proofmill.tasks.programs import ENTRY, Unfit, bound, functions, parsed, rename, written
from proofmill.tasks.proposals import Proposal
from proofmill.tasks.tasks import Invalid, Task

GIVEN = "g_"  # how the functions that are given are called: g_0, g_1, ...


@dataclass(frozen=True)
class Schedule:
    """How likely a proposal must be a composite, and of how many functions, as training goes on."""

    chance: float = 0.0
    functions: int = 1
    gain: float = 0.01  # of the chance, every `every` steps from `start` on
    most: float = 0.8
    most_functions: int = 3
    start: int = 101
    every: int = 50

    def at(self, step: int) -> tuple[float, int]:
        """Chance and number of functions at a step (from 1)."""
        rises = (step - self.start) // self.every + 1 if step >= self.start else 0
        chance = min(max(self.most, self.chance), self.chance + rises * self.gain)
        return chance, min(max(self.most_functions, self.functions), self.functions + rises)


def given(tasks: Sequence[Task], count: int, rng: random.Random) -> str:
    """The source of `count` functions g_0, g_1, ... from tasks, drawn without replacement; empty if that cannot be."""
    sources = list(dict.fromkeys(task.program for task in tasks if is_single(task.program)))
    if len(sources) < count or not count:
        return ""
    chosen = rng.sample(sources, count)
    try:
        return "\n".join(written(rename(parsed(source), ENTRY, f"{GIVEN}{n}")) for n, source in enumerate(chosen))
    except Unfit:
        return ""  # one of them is too deep, or has a g_ of its own


def is_single(program: str) -> bool:
    """Whether a program is imports and one function, `f`."""
    try:
        tree = parsed(program)
    except Unfit:
        return False
    single = [function.name for function in functions(tree)] == [ENTRY]
    return single and all(isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef) for node in tree.body)


def composed(proposal: Proposal | Invalid, source: str) -> Proposal | Invalid:
    """A proposal whose program stands after the functions that it was given; whether it calls them, validity says."""
    if isinstance(proposal, Invalid) or not source:
        return proposal
    return replace(proposal, program=f"{source}\n\n{proposal.program}", written=proposal.program)


def misuse(program: ast.Module, own: ast.Module) -> str | None:
    """How `own`, the written part of a program, fails to build on the functions g_0, g_1, ... that stand before it.

    It calls each of them in `f`, binds none of their names, and calls them with what is in the scope of `f` alone. None
    where it does all of that.
    """
    names = {function.name for function in functions(program) if function.name.startswith(GIVEN)}
    entry = next((function for function in functions(own) if function.name == ENTRY), None)
    if entry is None:
        return "no function `f`"
    if changed := names & set(bound(own)):
        return f"it changes `{min(changed)}`"
    outside = {name for node in own.body if not isinstance(node, ast.Import | ast.ImportFrom) for name in bound(node)}
    outside -= {name for part in (entry.args, *entry.body) for name in bound(part)}
    called = set()
    for call in ast.walk(entry):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in names:
            called.add(call.func.id)
            parts = [part for argument in (*call.args, *call.keywords) for part in ast.walk(argument)]
            if passed := outside & {part.id for part in parts if isinstance(part, ast.Name)}:
                return f"it passes `{min(passed)}`, which is not in the scope of `f`"
    missing = names - called
    return f"it does not call `{min(missing)}`" if missing else None
