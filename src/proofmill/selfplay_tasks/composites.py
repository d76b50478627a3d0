"""Composites: a curriculum in which a new program must call programs of the buffer.

From: the code of Absolute Zero Reasoner (`composite_function_*`), which reports that it does not help, because models
write trivial wrappers. Off unless an entry sets `composite`.

Differences from the original: only programs of imports and one function are used, so their names cannot collide.
"""

import ast
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from proofmill.selfplay_tasks.program_text import ENTRY, Unfit, bound_names, functions, parse_program, rename, unparse
from proofmill.selfplay_tasks.proposals import Proposal
from proofmill.selfplay_tasks.tasks import Invalid, Task

GIVEN = "g_"  # prefix of the functions that a program must call: g_0, g_1, ...


@dataclass(frozen=True)
class CompositeSchedule:
    """The probability that a proposal must be a composite, and the number of its functions, by training step."""

    probability: float = 0.0
    functions: int = 1
    gain: float = 0.01  # added to the probability every `every` steps, from `start_step`
    max_probability: float = 0.8
    max_functions: int = 3
    start_step: int = 101
    every: int = 50

    def at(self, step: int) -> tuple[float, int]:
        """Return the probability and the number of functions at a step (from 1)."""
        rises = (step - self.start_step) // self.every + 1 if step >= self.start_step else 0
        chance = min(max(self.max_probability, self.probability), self.probability + rises * self.gain)
        return chance, min(max(self.max_functions, self.functions), self.functions + rises)


def draw_functions(tasks: Sequence[Task], count: int, rng: random.Random) -> str:
    """Return the source of functions g_0, g_1, ... of `count` tasks drawn without replacement; empty if impossible."""
    sources = list(dict.fromkeys(task.program for task in tasks if is_single(task.program)))
    if len(sources) < count or not count:
        return ""
    chosen = rng.sample(sources, count)
    try:
        return "\n".join(
            unparse(rename(parse_program(source), ENTRY, f"{GIVEN}{n}")) for n, source in enumerate(chosen)
        )
    except Unfit:
        return ""  # one of them is too deep, or has a g_ of its own


def is_single(program: str) -> bool:
    """Return whether a program consists of imports and one function, `f`."""
    try:
        tree = parse_program(program)
    except Unfit:
        return False
    single = [function.name for function in functions(tree)] == [ENTRY]
    return single and all(isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef) for node in tree.body)


def compose(proposal: Proposal | Invalid, source: str) -> Proposal | Invalid:
    """Put the functions to be called before a proposal's program. validity.py checks that it calls them."""
    if isinstance(proposal, Invalid) or not source:
        return proposal
    return replace(proposal, program=f"{source}\n\n{proposal.program}", proposed=proposal.program)


def misuse(program: ast.Module, own: ast.Module) -> str | None:
    """Return how `own`, the written part of a program, misuses the functions g_0, g_1, ... before it; None if correct.

    It must call each of them in `f`, bind none of their names, and pass them only names from the scope of `f`.
    """
    names = {function.name for function in functions(program) if function.name.startswith(GIVEN)}
    entry = next((function for function in functions(own) if function.name == ENTRY), None)
    if entry is None:
        return "no function `f`"
    if changed := names & set(bound_names(own)):
        return f"it changes `{min(changed)}`"
    outside = {
        name for node in own.body if not isinstance(node, ast.Import | ast.ImportFrom) for name in bound_names(node)
    }
    outside -= {name for part in (entry.args, *entry.body) for name in bound_names(part)}
    called = set()
    for call in ast.walk(entry):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in names:
            called.add(call.func.id)
            parts = [part for argument in (*call.args, *call.keywords) for part in ast.walk(argument)]
            if passed := outside & {part.id for part in parts if isinstance(part, ast.Name)}:
                return f"it passes `{min(passed)}`, which is not in the scope of `f`"
    missing = names - called
    return f"it does not call `{min(missing)}`" if missing else None
