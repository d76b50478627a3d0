"""A planner that decides, call by call, which tool works on the problem next.

From: the planning agent of QED-Nano's evaluation (`math_agent`), which its authors found weaker than fixed graphs.

    repeat: the planner names tools and their arguments, and receives their results, until `max-calls` are spent
    the answer is the solution that it submits

Differences from the original:
1. Tools are named in a block of JSON, not through a server's function calls. Every model can do this, and every turn is
   in the journal unchanged.
2. The tools and their arguments are those that the prompt describes. In the original `merger` fails because of the name
   of an argument, and the limits in the prompt are not filled in.
3. If a planner never submits, the answer is the solution that its last selector chose, or the latest one. The original
   has no answer.
"""

import json
import re
from typing import Any

from proofmill.calls.dialogues import Dialogue, together
from proofmill.prompts import escapes
from proofmill.scaffolds import components
from proofmill.scaffolds.scaffold_run import Call, ScaffoldRun, ScaffoldStep

_BLOCK = re.compile(r"```json\s*(.*?)```", re.DOTALL)
TURNS = 3  # consecutive turns without a tool, after which a planner ends


class Desk:
    """The workspace of a planner: solutions, reports and approaches by name, and the number of calls left."""

    def __init__(self, play: ScaffoldRun, calls: int):
        self.play, self.left = play, calls
        self.named: dict[str, tuple[ScaffoldStep, str]] = {}  # `solution 3` -> its step and its text
        self.chosen: str | None = None
        self.submitted: str | None = None

    def name(self, word: str, step: ScaffoldStep, text: str) -> str:
        """Store a text under the next name of its kind, and return the message to the planner."""
        name = f"{word} {1 + sum(known.startswith(word) for known in self.named)}"
        self.named[name] = (step, text)
        return f"{name}:\n{escapes.in_blocks('reply', [text])}"

    def get(self, word: str, asked: Any) -> tuple[ScaffoldStep, str]:
        """Return the step and text of a name, or of a number. Raises LookupError with a message to the planner."""
        name = f"{word} {asked}" if str(asked).strip().isdigit() else re.sub(r"[_\s]+", " ", str(asked).strip().lower())
        if not name.startswith(word) or name not in self.named:
            known = ", ".join(n for n in self.named if n.startswith(word)) or "none yet"
            raise LookupError(f"there is no {word} `{asked}`; there are: {known}.")
        return self.named[name]


def planner(play: ScaffoldRun, max_calls: int, solutions: int, approaches: int) -> Dialogue:
    """Return the ending, after at most `max-calls` calls of tools and the turns of the planner."""
    desk, idle = Desk(play, max_calls), 0
    rules = play.prompt("plan", calls=str(max_calls), solutions=str(solutions), approaches=str(approaches))
    talk: tuple[tuple[str, str], ...] = (*play.system, ("user", rules))
    shown: list[ScaffoldStep] = []
    for turn in range(1, 2 * max_calls + 2 * TURNS):
        step = yield from play.ask("planner", f"plan {turn}", talk, shown)
        asked = tools_in(step.solution)
        idle = 0 if asked else idle + 1
        told, shown = yield from _run_tools(desk, turn, asked)
        if desk.submitted or idle >= TURNS:
            break
        budget = f"{desk.left} calls are left." if desk.left else "No calls are left: submit a solution."
        said = "\n\n".join(told) if asked else "No block of JSON names a tool."
        talk = (*talk, ("assistant", escapes.without_control_tokens(step.text)), ("user", f"{said}\n\n{budget}"))
        shown = [step, *shown]
    final = desk.submitted or desk.chosen or next((n for n in reversed(desk.named) if n.startswith("solution")), None)
    return play.answer(desk.named[final][0]) if final else play.nothing()


def _run_tools(desk: Desk, turn: int, asked: list[dict[str, Any]]) -> Dialogue:
    """Run the tools of one turn, as many as there are calls left. Return their messages and their steps."""
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
    """Return the dialogue of one tool, which returns a message to the planner and the step.

    Raises LookupError for unknown names.
    """
    play, tool = desk.play, str(asked.get("tool"))
    if tool == "solve" and "approach" not in asked:
        return _file(desk, "solution", play.solve(f"solve {place}"))
    if tool == "solve":
        step, approach = desk.get("approach", asked["approach"])
        talk = (*play.system, ("user", play.prompt("solve-with-approach", approach=approach)))
        return _file(desk, "solution", Call("solver", f"solve {place}", talk, [step]))
    if tool == "approaches":
        return _approaches(desk, place, asked.get("number", 1))
    if tool == "verify":
        step, _ = desk.get("solution", asked.get("solution"))
        prompt = play.prompt("verify", solution=step.solution)
        return _file(desk, "report", Call("verifier", f"verify {place}", prompt, [step]))
    if tool == "improve":
        step, _ = desk.get("solution", asked.get("solution"))
        report, _ = desk.get("report", asked.get("report"))
        prompt = play.prompt("improve", solution=step.solution, report=report.solution)
        return _file(desk, "solution", Call("improver", f"improve {place}", prompt, [step, report]))
    if tool in ("merge", "select"):
        names = asked.get("solutions")
        some = [desk.get("solution", name)[0] for name in (names if isinstance(names, list) else [])]
        if len(some) < 2:
            raise LookupError(f"`{tool}` works on at least two solutions, `solutions: [1, 2]`.")
        if tool == "merge":
            return _file(desk, "solution", components.merging(play, f"merge {place}", some))
        return _select(desk, f"select {place}", some)
    raise LookupError(f"there is no tool `{tool}`.")


def _file(desk: Desk, word: str, call: Call) -> Dialogue:
    (step,) = yield from desk.play.ask_all([call])
    if not step.solution:
        return f"The call for a {word} gave nothing.", step
    return desk.name(word, step, step.solution), step


def _approaches(desk: Desk, place: str, number: Any) -> Dialogue:
    many = min(number, 8) if type(number) is int and number > 0 else 1
    step, texts = yield from components.approaches(desk.play, f"approaches {place}", many)
    return "\n\n".join(desk.name("approach", step, text) for text in texts) or "No approach was suggested.", step


def _select(desk: Desk, name: str, some: list[ScaffoldStep]) -> Dialogue:
    asked = desk.play.prompt("select", candidates=components.letter(some))
    step = yield from desk.play.ask("selector", name, asked, some)
    best = some[components.choice(step.solution, len(some), desk.play.rng(name))]
    desk.chosen = next(
        known for known, (other, _) in desk.named.items() if other is best and known.startswith("solution")
    )
    return f"The selector prefers {desk.chosen}.", step


def tools_in(text: str) -> list[dict[str, Any]]:
    """Return the tools that a text names in its blocks of JSON. Each block is an object, or a list of them."""
    values: list[Any] = []
    for block in _BLOCK.findall(text):
        try:
            value = json.loads(block)
        except (ValueError, RecursionError):
            continue
        values += value if isinstance(value, list) else [value]
    return [tool for tool in values if isinstance(tool, dict) and isinstance(tool.get("tool"), str)]
