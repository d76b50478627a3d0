"""One play of a scaffold: its calls about one problem, each a step of its history, and its answer.

    def twice(play):                                     # a scaffold is a generator over dialogues
        first = yield from play.ask("solver", "first", play.statement)
        checked = yield from play.ask("verifier", "check", play.prompt("verify", solution=first.solution), shown=[first])
        return play.answer(first) if "right" in checked.text else play.nothing()

From: the agents of QED-Nano's evaluation. Each class there is a generator here.

Differences from an agent loop:
1. Every output is in the journal as soon as it arrives. A scaffold that was killed in its 43rd call resumes there.
2. A call that fails for a transient reason ends the play with that reason, and the next run retries it. No decision is
   made without it.
3. A text that is empty or was refused is not a candidate. It never gets a grade, and is never an answer.
4. A random draw has its own seed, by the attempt and by the decision, so that another run decides the same.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from proofmill.calls.dialogues import Ask, Dialogue, together
from proofmill.calls.model_requests import ModelOutput, ModelRequest, total
from proofmill.prompts import templates
from proofmill.schema.reasons import TRANSIENT, Reason, StopReason
from proofmill.text.reasoning import final_part

Talk = tuple[tuple[str, str], ...]  # (role, content)
SAMPLES = 10_000  # sample indices that an attempt reserves for calls with the same prompt
FOLDER = "scaffolds"  # the folder of the prompts


@dataclass(frozen=True)
class ScaffoldStep:
    """A call and its output. `depth` is the number of sequential calls up to this one."""

    name: str  # unique in its play: `round 2, merge 5`
    role: str
    who: str  # the model's reference
    answer: ModelOutput
    number: int  # 0, 1, ... in the order of the history
    shown: tuple[int, ...]  # the numbers of the steps whose texts its prompt shows
    depth: int

    @property
    def text(self) -> str:
        """The text of the output."""
        return self.answer.text

    @cached_property
    def solution(self) -> str:
        """The text after the reasoning; empty without such a text, or if the call was refused."""
        return final_part(self.answer.text, self.answer.reasoning) if self.answer.reason == Reason.OK else ""


@dataclass(frozen=True)
class Call:
    """A call to make: the role, the conversation, and the steps whose texts it shows."""

    role: str
    name: str
    talk: str | Talk  # a text is the user's message
    shown: Sequence[ScaffoldStep] = ()


@dataclass(frozen=True)
class Played:
    """The end of a play: the answer with its reason, the step that wrote it, and the complete history."""

    text: str
    reasoning: str | None
    stop_reason: str
    reason: str
    answer_step: int | None
    steps: tuple[ScaffoldStep, ...]

    @property
    def tokens(self) -> int:
        """Output tokens of all calls."""
        return sum(step.answer.tokens for step in self.steps)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of all calls."""
        return sum(step.answer.prompt_tokens for step in self.steps)

    @property
    def reasoning_tokens(self) -> int:
        """Reasoning tokens of all calls."""
        return sum(step.answer.reasoning_tokens for step in self.steps)

    @property
    def cost(self) -> float | None:
        """Dollars of all calls; None if a price is unknown."""
        return total(step.answer.paid for step in self.steps)

    @property
    def depth(self) -> int:
        """The largest number of sequential calls."""
        return max((step.depth for step in self.steps), default=0)


@dataclass(frozen=True)
class Player:
    """A model in a role: `request` builds a request from a conversation and the sample index."""

    who: str
    request: Callable[[Talk, int], ModelRequest]


@dataclass(frozen=True)
class Nested:
    """A scaffold in a role: it gets the prompt as its problem, and its answer is the reply."""

    run: Callable[["ScaffoldRun"], Dialogue]
    players: Mapping[str, "Player | Nested"]
    prompts: Mapping[str, str]


class Failed(Exception):
    """A call failed for a transient reason."""

    def __init__(self, step: ScaffoldStep):
        super().__init__(step.answer.detail)
        self.step = step


@dataclass
class ScaffoldRun:
    """An open play: the statement in the solver's prompt, the players, and the steps so far."""

    statement: str
    players: Mapping[str, Player | Nested]
    attempt: int = 0
    seed: int = 0
    system: Talk = ()
    prompts: Mapping[str, str] = field(default_factory=dict)  # part -> name or path of the prompt that replaces it
    place: str = ""  # of a nested play: the step that it replaces
    steps: list[ScaffoldStep] = field(default_factory=list)
    asked: Counter = field(default_factory=Counter)  # the number of calls with each prompt
    read: dict[str, templates.Prompt] = field(default_factory=dict)  # prompts by name, each read once

    # --------------------------------------------------------------------------------------------------- for scaffolds

    def prompt(self, part: str, **fields: Any) -> str:
        """Render a prompt of this folder, or the entry's replacement, with the problem."""
        return self.template(part).render({"statement": self.statement, **fields})

    def template(self, part: str) -> templates.Prompt:
        """Read a prompt of this folder, or the entry's replacement."""
        name = self.prompts.get(part, prompt_name(part))
        if name not in self.read:
            self.read[name] = templates.prompt(name)
        return self.read[name]

    def solve(self, name: str = "solve", **fields: Any) -> Call:
        """Build the call for a solution, with a prompt that shows the problem."""
        return Call("solver", name, (*self.system, ("user", self.prompt("solve", **fields))))

    def ask(self, role: str, name: str, talk: str | Talk, shown: Sequence[ScaffoldStep] = ()) -> Dialogue:
        """Make one call and return its step."""
        (step,) = yield from self.ask_all([Call(role, name, talk, shown)])
        return step

    def ask_all(self, calls: Sequence[Call]) -> Dialogue:
        """Make calls concurrently and return their steps in order. Raises Failed if one fails transiently."""
        return (yield from together([self._one(call) for call in calls]))

    def rng(self, *what: Any) -> random.Random:
        """Return the random generator of one decision."""
        return random.Random(" ".join(map(str, (self.seed, self.attempt, self.place, *what, self.statement))))

    def answer(self, step: ScaffoldStep, text: str | None = None) -> "Ending":
        """End with a step's solution, or with a part of it."""
        return Ending(step, step.solution if text is None else text)

    def nothing(self) -> "Ending":
        """End without an answer: as empty, or as refused if every call was."""
        reasons = {step.answer.reason for step in self.steps}
        return Ending(None, "", Reason.OK if Reason.OK in reasons or not reasons else min(reasons))

    # -------------------------------------------------------------------------------------------------------------- calls

    def _one(self, call: Call) -> Dialogue:
        talk: Talk = (("user", call.talk),) if isinstance(call.talk, str) else call.talk
        player = self.players[call.role]
        name = f"{self.place}: {call.name}" if self.place else call.name
        if isinstance(player, Nested):
            return (yield from self._nest(player, call, talk, name))
        request = player.request(talk, 0)
        key = (player.who, request.key)
        sample = self.attempt * SAMPLES + self.asked[key]
        self.asked[key] += 1
        depth = 1 + max((step.depth for step in self.steps), default=0)  # dialogues advance in lock-step
        (answer,) = yield [Ask(player.who, replace(request, sample=sample))]
        return self._take(name, call, player.who, answer, depth)

    def _nest(self, player: Nested, call: Call, talk: Talk, name: str) -> Dialogue:
        statement = "\n\n".join(content for _, content in talk)
        play = replace(self, statement=statement, players=player.players, prompts=player.prompts, place=name)
        ending = yield from player.run(play)
        inside = [step for step in self.steps if step.name.startswith(f"{name}: ")]
        if ending.step is None:
            answer = ModelOutput("", StopReason.END, ending.reason, cost=0.0)
        else:
            # Its calls count its tokens and its cost.
            answer = ModelOutput(ending.text, ending.step.answer.stop_reason, reasoning="", cost=0.0)
        shown = [ending.step] if ending.step else inside[-1:]
        return self._take(name, replace(call, shown=shown), "", answer, max(step.depth for step in inside))

    def _take(self, name: str, call: Call, who: str, answer: ModelOutput, depth: int) -> ScaffoldStep:
        shown = tuple(step.number for step in call.shown)
        self.steps.append(step := ScaffoldStep(name, call.role, who, answer, len(self.steps), shown, depth))
        if answer.reason in TRANSIENT:
            raise Failed(step)
        return step


@dataclass(frozen=True)
class Ending:
    """The return value of a scaffold: the step that answers and its text, or no step and the reason."""

    step: ScaffoldStep | None
    text: str
    reason: str = Reason.OK


def run_scaffold(run: Callable[[ScaffoldRun], Dialogue], play: ScaffoldRun) -> Dialogue:
    """Run a scaffold to its end and return a Played."""
    try:
        ending = yield from run(play)
    except Failed as failed:
        return Played("", None, StopReason.ERROR, failed.step.answer.reason, None, tuple(play.steps))
    step = ending.step
    if step is None or not ending.text:  # an empty text is graded as such, unless every call was refused
        return Played("", "", StopReason.END, ending.reason, None, tuple(play.steps))
    as_written = ending.text == step.solution
    return Played(
        text=step.text if as_written else ending.text,
        reasoning=step.answer.reasoning if as_written else "",
        stop_reason=step.answer.stop_reason,
        reason=Reason.OK,
        answer_step=step.number,
        steps=tuple(play.steps),
    )


def prompt_name(part: str) -> str:
    """Return the name of a scaffold's prompt: in this folder, or in the one above it (`./summarize`)."""
    return part.removeprefix("./") if part.startswith("./") else f"{FOLDER}/{part}"


def candidates(steps: Sequence[ScaffoldStep]) -> list[ScaffoldStep]:
    """Return the steps with a solution."""
    return [step for step in steps if step.solution]
