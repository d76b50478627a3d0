"""One play of a scaffold: the calls that it makes about one problem, each a step of its history, and the answer it gives.

    def twice(play):                                     # a scaffold is a generator over dialogues
        first = yield from play.ask("solver", "first", play.statement)
        checked = yield from play.ask("verifier", "check", play.prompt("verify", solution=first.solution), shown=[first])
        return play.answer(first) if "right" in checked.text else play.nothing()

From: the agents of QED-Nano's evaluation, one generator here for each class there.

How we differ from an agent loop:
1. Every call is in the journal the moment it is answered. A scaffold that was killed in its 43rd call goes on with it.
2. A call that failed for a reason that may pass ends the play with that reason, and the next run asks it again. Nothing
   is decided without it.
3. A text that is empty or was refused is no candidate. It is never given a mark, and never an answer.
4. A draw of chance has a seed of its own, by the attempt and by what it decides: another run decides the same.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from proofmill.calls.dialogues import Ask, Dialogue, together
from proofmill.calls.exchange import Answer, Question, total
from proofmill.prompts import templates
from proofmill.schema.reasons import PASSING, Reason, Stop
from proofmill.text.reasoning import final_part

Talk = tuple[tuple[str, str], ...]  # (role, content)
SAMPLES = 10_000  # numbers of samples that an attempt reserves for calls with the same prompt
FOLDER = "scaffolds"  # of the prompts


@dataclass(frozen=True)
class Step:
    """A call and its answer. `depth` counts the calls that had to be answered one after another up to this one."""

    name: str  # unique in its play: `round 2, merge 5`
    role: str
    who: str  # the model's reference
    answer: Answer
    number: int  # 0, 1, ... in the order of the history
    shown: tuple[int, ...]  # the numbers of the steps whose texts its prompt shows
    depth: int

    @property
    def text(self) -> str:
        return self.answer.text

    @cached_property
    def solution(self) -> str:
        """What stands after the reasoning; empty where nothing does, or the call was refused."""
        return final_part(self.answer.text, self.answer.reasoning) if self.answer.reason == Reason.OK else ""


@dataclass(frozen=True)
class Call:
    """A call to make: who plays which role, and what it is shown."""

    role: str
    name: str
    talk: str | Talk  # a text is what the user says
    shown: Sequence[Step] = ()


@dataclass(frozen=True)
class Played:
    """The end of a play: the answer with its reason, the step whose text it is, and the whole history."""

    text: str
    reasoning: str | None
    stop: str
    reason: str
    answered_by: int | None
    steps: tuple[Step, ...]

    @property
    def tokens(self) -> int:
        return sum(step.answer.tokens for step in self.steps)

    @property
    def prompt_tokens(self) -> int:
        return sum(step.answer.prompt_tokens for step in self.steps)

    @property
    def reasoning_tokens(self) -> int:
        return sum(step.answer.reasoning_tokens for step in self.steps)

    @property
    def cost(self) -> float | None:
        return total(step.answer.paid for step in self.steps)

    @property
    def depth(self) -> int:
        return max((step.depth for step in self.steps), default=0)


@dataclass(frozen=True)
class Player:
    """A model in a role: `question` makes a call of a conversation and the number of the sample."""

    who: str
    question: Callable[[Talk, int], Question]


@dataclass(frozen=True)
class Nested:
    """A scaffold in a role: it plays for itself, and its answer is the reply; what it is shown is its problem."""

    run: Callable[["Play"], Dialogue]
    players: Mapping[str, "Player | Nested"]
    prompts: Mapping[str, str]


class Failed(Exception):
    """A call failed for a reason that may pass."""

    def __init__(self, step: Step):
        super().__init__(step.answer.detail)
        self.step = step


@dataclass
class Play:
    """A problem under way: its statement as the solver is shown it, who plays, and the steps so far."""

    statement: str
    players: Mapping[str, Player | Nested]
    attempt: int = 0
    seed: int = 0
    system: Talk = ()
    prompts: Mapping[str, str] = field(default_factory=dict)  # part -> the name or path of the prompt in its place
    place: str = ""  # of a nested play: the step that it stands for
    steps: list[Step] = field(default_factory=list)
    asked: Counter = field(default_factory=Counter)  # how often each prompt was asked
    read: dict[str, templates.Prompt] = field(default_factory=dict)  # by name: files that were read already

    # ----------------------------------------------------------------------------------------------- what a scaffold uses

    def prompt(self, part: str, **fields: Any) -> str:
        """A prompt of this folder, or the one that the entry names in its place, about the problem."""
        return self.template(part).render({"statement": self.statement, **fields})

    def template(self, part: str) -> templates.Prompt:
        name = self.prompts.get(part, prompt_name(part))
        if name not in self.read:
            self.read[name] = templates.prompt(name)
        return self.read[name]

    def solve(self, name: str = "solve", **fields: Any) -> Call:
        """A call for a solution, by a prompt that shows the problem."""
        return Call("solver", name, (*self.system, ("user", self.prompt("solve", **fields))))

    def ask(self, role: str, name: str, talk: str | Talk, shown: Sequence[Step] = ()) -> Dialogue:
        """Make one call; returns its step."""
        (step,) = yield from self.ask_all([Call(role, name, talk, shown)])
        return step

    def ask_all(self, calls: Sequence[Call]) -> Dialogue:
        """Make calls side by side; returns their steps in order. Raises Failed where one may be answered later."""
        return (yield from together([self._one(call) for call in calls]))

    def rng(self, *what: Any) -> random.Random:
        """Chance for one decision."""
        return random.Random(" ".join(map(str, (self.seed, self.attempt, self.place, *what, self.statement))))

    def answer(self, step: Step, text: str | None = None) -> "Ending":
        """End with a step's solution, or with a part of it."""
        return Ending(step, step.solution if text is None else text)

    def nothing(self) -> "Ending":
        """End without an answer: as an empty one, or as refused where every call was."""
        reasons = {step.answer.reason for step in self.steps}
        return Ending(None, "", Reason.OK if Reason.OK in reasons or not reasons else min(reasons))

    # -------------------------------------------------------------------------------------------------------------- calls

    def _one(self, call: Call) -> Dialogue:
        talk: Talk = (("user", call.talk),) if isinstance(call.talk, str) else call.talk
        player = self.players[call.role]
        name = f"{self.place}: {call.name}" if self.place else call.name
        if isinstance(player, Nested):
            return (yield from self._nested(player, call, talk, name))
        question = player.question(talk, 0)
        key = (player.who, question.key)
        sample = self.attempt * SAMPLES + self.asked[key]
        self.asked[key] += 1
        depth = 1 + max((step.depth for step in self.steps), default=0)  # dialogues advance in lock-step
        (answer,) = yield [Ask(player.who, replace(question, sample=sample))]
        return self._taken(name, call, player.who, answer, depth)

    def _nested(self, player: Nested, call: Call, talk: Talk, name: str) -> Dialogue:
        statement = "\n\n".join(content for _, content in talk)
        play = replace(self, statement=statement, players=player.players, prompts=player.prompts, place=name)
        ending = yield from player.run(play)
        inside = [step for step in self.steps if step.name.startswith(f"{name}: ")]
        if ending.step is None:
            answer = Answer("", Stop.END, ending.reason, cost=0.0)
        else:
            # Its tokens and its cost are counted by its calls.
            answer = Answer(ending.text, ending.step.answer.stop, reasoning="", cost=0.0)
        shown = [ending.step] if ending.step else inside[-1:]
        return self._taken(name, replace(call, shown=shown), "", answer, max(step.depth for step in inside))

    def _taken(self, name: str, call: Call, who: str, answer: Answer, depth: int) -> Step:
        shown = tuple(step.number for step in call.shown)
        self.steps.append(step := Step(name, call.role, who, answer, len(self.steps), shown, depth))
        if answer.reason in PASSING:
            raise Failed(step)
        return step


@dataclass(frozen=True)
class Ending:
    """What a scaffold returns: the step that answers and its text; or no step and the reason."""

    step: Step | None
    text: str
    reason: str = Reason.OK


def played(run: Callable[[Play], Dialogue], play: Play) -> Dialogue:
    """Play a scaffold to its end; returns a Played."""
    try:
        ending = yield from run(play)
    except Failed as failed:
        return Played("", None, Stop.ERROR, failed.step.answer.reason, None, tuple(play.steps))
    step = ending.step
    if step is None or not ending.text:  # an empty text is marked as such, unless nobody would answer
        return Played("", "", Stop.END, ending.reason, None, tuple(play.steps))
    as_written = ending.text == step.solution
    return Played(
        text=step.text if as_written else ending.text,
        reasoning=step.answer.reasoning if as_written else "",
        stop=step.answer.stop,
        reason=Reason.OK,
        answered_by=step.number,
        steps=tuple(play.steps),
    )


def prompt_name(part: str) -> str:
    """The name of a scaffold's prompt: a file of this folder, or one beside it that others use too (`./summarize`)."""
    return part.removeprefix("./") if part.startswith("./") else f"{FOLDER}/{part}"


def candidates(steps: Sequence[Step]) -> list[Step]:
    """The steps that hold a solution."""
    return [step for step in steps if step.solution]
