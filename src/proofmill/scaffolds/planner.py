"""A planner that decides, call by call, which tool works on the problem next.

From: the planning agent of QED-Nano's evaluation (`math_agent`), which its authors found weaker than fixed graphs.

    repeat: the planner names tools and what they work on, and is shown what they give, until `calls` are spent
    the answer is the solution that it submits

How we differ:
1. Tools are named in a block of JSON, not through a server's function calls: every model can, and every turn is in the
   journal as it was.
2. The tools are those that the prompt describes, with these arguments. There `merger` fails for the name of one of its
   own, and the limits in the prompt are not filled in.
3. A planner that never submits has the solution which its last selector chose, or the latest one. There it has none.
"""

import json
import re
from typing import Any

from proofmill.calls.dialogues import Dialogue, together
from proofmill.prompts import escapes
from proofmill.scaffolds import components
from proofmill.scaffolds.play import Call, Play, Step

_BLOCK = re.compile(r"```json\s*(.*?)```", re.DOTALL)
TURNS = 3  # of a planner that names no tool, in a row


class Desk:
    """What a planner has at hand: solutions, reports and approaches by name, and the calls that are left."""

    def __init__(self, play: Play, calls: int):
        self.play, self.left = play, calls
        self.named: dict[str, tuple[Step, str]] = {}  # `solution 3` -> its step and its text
        self.chosen: str | None = None
        self.submitted: str | None = None

    def name(self, word: str, step: Step, text: str) -> str:
        """File a text under the next name of its sort, and return how the planner is told."""
        name = f"{word} {1 + sum(known.startswith(word) for known in self.named)}"
        self.named[name] = (step, text)
        return f"{name}:\n{escapes.in_blocks('reply', [text])}"

    def get(self, word: str, asked: Any) -> tuple[Step, str]:
        """What stands under a name, or a number alone. Raises LookupError with a sentence for the planner."""
        name = f"{word} {asked}" if str(asked).strip().isdigit() else re.sub(r"[_\s]+", " ", str(asked).strip().lower())
        if not name.startswith(word) or name not in self.named:
            known = ", ".join(n for n in self.named if n.startswith(word)) or "none yet"
            raise LookupError(f"there is no {word} `{asked}`; there are: {known}.")
        return self.named[name]


def planner(play: Play, calls: int, solutions: int, approaches: int) -> Dialogue:
    """Return the ending; `calls` of tools at most, and the turns of the planner."""
    desk, idle = Desk(play, calls), 0
    rules = play.prompt("plan", calls=str(calls), solutions=str(solutions), approaches=str(approaches))
    talk: tuple[tuple[str, str], ...] = (*play.system, ("user", rules))
    shown: list[Step] = []
    for turn in range(1, 2 * calls + 2 * TURNS):
        step = yield from play.ask("planner", f"plan {turn}", talk, shown)
        asked = tools_in(step.solution)
        idle = 0 if asked else idle + 1
        told, shown = yield from _worked(desk, turn, asked)
        if desk.submitted or idle >= TURNS:
            break
        budget = f"{desk.left} calls are left." if desk.left else "No calls are left: submit a solution."
        said = "\n\n".join(told) if asked else "No block of JSON names a tool."
        talk = (*talk, ("assistant", escapes.without_control_tokens(step.text)), ("user", f"{said}\n\n{budget}"))
        shown = [step, *shown]
    final = desk.submitted or desk.chosen or next((n for n in reversed(desk.named) if n.startswith("solution")), None)
    return play.answer(desk.named[final][0]) if final else play.nothing()


def _worked(desk: Desk, turn: int, asked: list[dict[str, Any]]) -> Dialogue:
    """Return what the tools of one turn say, and their steps; as many work as there are calls left."""
    told: list[str] = []
    work: list[Dialogue] = []
    for place, tool in enumerate(asked, 1):
        try:
            if tool.get("tool") == "submit":
                desk.get("solution", tool.get("solution"))
                desk.submitted = _name(desk, tool.get("solution"))
            elif not desk.left:
                told.append("No calls are left.")
            else:
                work.append(_tool(desk, f"{turn}.{place}", tool))
                desk.left -= 1
        except LookupError as error:
            told.append(f"Error: {error}")
    done = yield from together(work)
    return [*told, *(said for said, _ in done)], [step for _, step in done]


def _name(desk: Desk, asked: Any) -> str:
    step, text = desk.get("solution", asked)
    return next(name for name, known in desk.named.items() if known == (step, text))


def _tool(desk: Desk, place: str, asked: dict[str, Any]) -> Dialogue:
    """The dialogue of one tool, which returns what the planner is told and the step. Raises LookupError for unknown names."""
    play, tool = desk.play, str(asked.get("tool"))
    if tool == "solve" and "approach" not in asked:
        return _filed(desk, "solution", play.solve(f"solve {place}"))
    if tool == "solve":
        step, approach = desk.get("approach", asked["approach"])
        talk = (*play.system, ("user", play.prompt("solve-by", approach=approach)))
        return _filed(desk, "solution", Call("solver", f"solve {place}", talk, [step]))
    if tool == "approaches":
        return _approaches(desk, place, asked.get("number", 1))
    if tool == "verify":
        step, _ = desk.get("solution", asked.get("solution"))
        prompt = play.prompt("verify", solution=step.solution)
        return _filed(desk, "report", Call("verifier", f"verify {place}", prompt, [step]))
    if tool == "improve":
        step, _ = desk.get("solution", asked.get("solution"))
        report, _ = desk.get("report", asked.get("report"))
        prompt = play.prompt("improve", solution=step.solution, report=report.solution)
        return _filed(desk, "solution", Call("improver", f"improve {place}", prompt, [step, report]))
    if tool in ("merge", "select"):
        names = asked.get("solutions")
        some = [desk.get("solution", name)[0] for name in (names if isinstance(names, list) else [])]
        if len(some) < 2:
            raise LookupError(f"`{tool}` works on at least two solutions, `solutions: [1, 2]`.")
        if tool == "merge":
            return _filed(desk, "solution", components.merging(play, f"merge {place}", some))
        return _selected(desk, f"select {place}", some)
    raise LookupError(f"there is no tool `{tool}`.")


def _filed(desk: Desk, word: str, call: Call) -> Dialogue:
    (step,) = yield from desk.play.ask_all([call])
    if not step.solution:
        return f"The call for a {word} gave nothing.", step
    return desk.name(word, step, step.solution), step


def _approaches(desk: Desk, place: str, number: Any) -> Dialogue:
    many = min(number, 8) if type(number) is int and number > 0 else 1
    step, found = yield from components.approaches(desk.play, f"approaches {place}", many)
    return "\n\n".join(desk.name("approach", step, text) for text in found) or "No approach was suggested.", step


def _selected(desk: Desk, name: str, some: list[Step]) -> Dialogue:
    asked = desk.play.prompt("select", candidates=components.lettered(some))
    step = yield from desk.play.ask("selector", name, asked, some)
    best = some[components.choice(step.solution, len(some), desk.play.rng(name))]
    desk.chosen = next(
        known for known, (other, _) in desk.named.items() if other is best and known.startswith("solution")
    )
    return f"The selector prefers {desk.chosen}.", step


def tools_in(text: str) -> list[dict[str, Any]]:
    """The tools that a text names in its blocks of JSON: each block an object, or a list of them."""
    found: list[Any] = []
    for block in _BLOCK.findall(text):
        try:
            value = json.loads(block)
        except (ValueError, RecursionError):
            continue
        found += value if isinstance(value, list) else [value]
    return [tool for tool in found if isinstance(tool, dict) and isinstance(tool.get("tool"), str)]
