"""A dialogue is a generator that yields its next questions and returns its result; it is replayed from the journal.

    def second_thought(model, problem):
        (first,) = yield [Ask(model, question(problem))]
        (second,) = yield [Ask(model, question(problem, first.text))]
        return second.text

All dialogues advance in lock-step, so that questions are sent in batches. What is asked and answered is in the journal, so a kill
loses what was in flight: the next run replays each dialogue from its old answers and goes on. A dialogue must therefore ask the
same whenever it is sent the same answers.

Dialogues nest: `yield from` runs one inside another, `together` runs several side by side inside one, and `until_read` asks the
same again while the answer cannot be read. Graders, labels, marking schemes and the reasoning cache are dialogues.

How we differ from an agent loop or a chain of stages:
1. Nothing but the journal has to survive. A few dialogues stay in memory between their steps; of many only a window is held at a
   time, and each step replays them, so a million gradings take no more memory than some hundred.
2. One dialogue may ask several models, remote or not, and programs besides, which answer in the same step.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from proofmill.calls.calls import Asker
from proofmill.calls.exchange import Answer, Question, Questions

WINDOW = 512  # dialogues that are held in memory at a time


@dataclass(frozen=True)
class Ask:
    """What a dialogue wants to know next, and from whom.

    `who` is a model by its reference, and `what` the Question; or `who` is a program, and `what` whatever that program takes.
    """

    who: str
    what: Any


Dialogue = Generator[list[Ask], list[Any], Any]  # is sent an Answer for each Question, and what a program says
Begin = Callable[[], Iterable[tuple[str, Dialogue]]]  # (row's id, its dialogue), begun anew each time
Program = Callable[[Sequence[Any]], Iterable[Any]]  # what it is asked -> what it says, in order


@dataclass(frozen=True)
class Done:
    """The end of a dialogue."""

    result: Any


State = Done | list[Ask]


def _advance(dialogue: Dialogue, replies: list[Any] | None) -> State:
    """What a dialogue asks next, or its end."""
    try:
        return dialogue.send(replies)
    except StopIteration as stop:
        return Done(stop.value)


# ------------------------------------------------------------------------------------------------------------- combinators


def together(dialogues: Sequence[Dialogue]) -> Dialogue:
    """Runs dialogues side by side as one, and returns their results in order."""
    states = [_advance(dialogue, None) for dialogue in dialogues]
    while asking := [place for place, state in enumerate(states) if not isinstance(state, Done)]:
        replies = iter((yield [ask for place in asking for ask in states[place]]))
        for place in asking:
            states[place] = _advance(dialogues[place], list(islice(replies, len(states[place]))))
    return [state.result for state in states]


def until_read(ask: Callable[[int], Ask], unreadable: Callable[[Answer], bool], requeries: int) -> Dialogue:
    """Asks once, and again up to `requeries` times while the answer cannot be read; returns all answers, the last one counts.

    `ask` gives what is asked in turn 0, 1, ...: the same question with another sample index.
    """
    answers: list[Answer] = []
    for turn in range(requeries + 1):
        (answer,) = yield [ask(turn)]
        answers.append(answer)
        if not unreadable(answer):
            break
    return answers


def one_answer(who: str, question: Question, unreadable: Callable[[Answer], bool], requeries: int = 0) -> Dialogue:
    """A question to one model, asked again while its answer cannot be read; returns the last answer, at the cost of all."""
    answers = yield from until_read(lambda turn: Ask(who, replace(question, sample=turn)), unreadable, requeries)
    return last_of(answers)


def last_of(answers: Sequence[Answer]) -> Answer:
    """The last of several answers, at the cost of all."""
    costs = [answer.cost for answer in answers]
    return replace(
        answers[-1],
        cost=None if None in costs else sum(costs),
        tokens=sum(answer.tokens for answer in answers),
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
    )


# ----------------------------------------------------------------------------------------------------------------- running


class _Window:
    """Some dialogues side by side: each asks something next, or has its result."""

    def __init__(self, rows: Sequence[tuple[str, Dialogue]]):
        self.rows = [row for row, _ in rows]
        self._dialogues = [dialogue for _, dialogue in rows]
        self.states = [_advance(dialogue, None) for dialogue in self._dialogues]

    @property
    def open(self) -> bool:
        return any(not isinstance(state, Done) for state in self.states)

    def asks(self) -> Iterator[tuple[str, Ask]]:
        for row, state in zip(self.rows, self.states, strict=True):
            if not isinstance(state, Done):
                yield from ((row, ask) for ask in state)

    def advance(self, replies: Callable[[Sequence[Ask]], Sequence[Any]]) -> None:
        """One step of all of them."""
        answered = iter(replies([ask for _, ask in self.asks()]))
        for place, state in enumerate(self.states):
            if not isinstance(state, Done):
                self.states[place] = _advance(self._dialogues[place], list(islice(answered, len(state))))


class _Many:
    """More dialogues than fit one window: each pass begins them anew and replays them, a window at a time."""

    def __init__(self, begin: Begin):
        self._begin = begin

    def after(self, steps: int | None, replies: Callable) -> Iterator[_Window]:
        """All windows after so many steps; without `steps` at the end."""
        rows = iter(self._begin())
        while part := list(islice(rows, WINDOW)):
            window, done = _Window(part), 0
            while window.open and done != steps:
                window.advance(replies)
                done += 1
            yield window


class _Few:
    """The dialogues of one window, which stay in memory from step to step."""

    def __init__(self, rows: Sequence[tuple[str, Dialogue]]):
        self._window, self._done = _Window(rows), 0

    def after(self, steps: int | None, replies: Callable) -> Iterator[_Window]:
        while self._window.open and (steps is None or self._done < steps):
            self._window.advance(replies)
            self._done += 1
        yield self._window


class Dialogues:
    """Carries dialogues on to their results, with the models and programs that they ask.

    `askers` are open engines by model reference; `programs` answer what no model is asked. `of` is the size that a stage is
    assumed to have where it is larger than its steps: the share of calls that may fail is taken of it.
    """

    def __init__(self, askers: Mapping[str, Asker], programs: Mapping[str, Program] | None = None, of: int = 0):
        self.askers, self.programs, self.of = askers, programs or {}, of

    def results(self, begin: Begin, quiet: bool = False) -> Iterator[Any]:
        """The result of each dialogue, in order; all models are asked before the first is given."""
        source = self._source(begin)
        step = most = 0
        while self.askers and (asked := self._asked(source, step)) is not None:
            most = max([most, *map(len, asked.values())])
            for model, questions in asked.items():
                self.askers[model](questions, quiet, of=max(most, self.of))
            step += 1
        return (state.result for window in source.after(None, self._replies) for state in window.states)

    @staticmethod
    def first_questions(begin: Begin) -> dict[str, Questions]:
        """What each model is asked to begin with; no engine has to be open."""
        return Dialogues({})._asked(_Many(begin), 0) or {}

    def _source(self, begin: Begin) -> _Few | _Many:
        few = list(islice(begin(), WINDOW + 1))
        return _Few(few) if len(few) <= WINDOW else _Many(begin)

    def _asked(self, source: _Few | _Many, step: int) -> dict[str, Questions] | None:
        """What each model is asked in a step, when all steps before are in the journal; None when all dialogues are done."""

        def questions(model: str) -> Iterator[tuple[str, Question]]:
            for window in source.after(step, self._replies):
                yield from ((row, ask.what) for row, ask in window.asks() if ask.who == model)

        numbers: Counter[str] = Counter()
        going = False
        for window in source.after(step, self._replies):
            going = going or window.open
            numbers.update(ask.who for _, ask in window.asks() if isinstance(ask.what, Question))
        if not going:
            return None
        return {model: Questions(n, lambda model=model: questions(model)) for model, n in numbers.items()}

    def _replies(self, asks: Sequence[Ask]) -> list[Any]:
        """The journal's answer to each question, and what the programs say."""
        replies: list[Any] = [None] * len(asks)
        for who in dict.fromkeys(ask.who for ask in asks):
            places = [place for place, ask in enumerate(asks) if ask.who == who]
            asked = [asks[place].what for place in places]
            said = self.askers[who].recalled(asked) if who in self.askers else self.programs[who](asked)
            for place, reply in zip(places, said, strict=True):
                replies[place] = reply
        return replies
