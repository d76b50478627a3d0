"""Dialogues: generators that yield their next questions and return a result, and are replayed from the journal.

    def second_thought(model, problem):
        (first,) = yield [Ask(model, question(problem))]
        (second,) = yield [Ask(model, question(problem, first.text))]
        return second.text

All dialogues advance in lock-step, so that questions are sent in batches; flow.py has those that need not wait for each
other. All questions and answers are in the journal,
so that a kill loses only what was in flight: the next run replays each dialogue from its old answers and goes on. A
dialogue must therefore yield the same questions whenever it is sent the same answers.

Dialogues nest: `yield from` runs one inside another, `together` runs several side by side inside one, and `until_read`
repeats a question while the answer cannot be read. Graders, labels, marking schemes and the reasoning cache are
dialogues.

How we differ from an agent loop or a chain of stages:
1. Only the journal has to survive. A few dialogues stay in memory between their steps. Of many, only one window is in
   memory at a time, and each step replays them, so that a million gradings take no more memory than some hundred.
2. One dialogue may ask several models, remote or not, and programs as well, which answer in the same step.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from proofmill.calls.exchange import Answer, Question, Questions, total

if TYPE_CHECKING:  # a configuration that names scaffolds is read without the journal and its libraries
    from proofmill.calls.calls import Asker

WINDOW = 512  # dialogues in memory at a time
RETRY_TEMPERATURE = 0.7


@dataclass(frozen=True)
class Ask:
    """A dialogue's next question, and who answers it.

    `who` is a model's reference and `what` a Question, or `who` is a program's name and `what` that program's input.
    """

    who: str
    what: Any


Dialogue = Generator[list[Ask], list[Any], Any]  # is sent Answers to Questions, and outputs of programs
Begin = Callable[[], Iterable[tuple[str, Dialogue]]]  # all dialogues as (row's id, dialogue), begun anew each time
Program = Callable[[Sequence[Any]], Iterable[Any]]  # inputs -> outputs, in order


@dataclass(frozen=True)
class Done:
    """The result of a dialogue that has ended."""

    result: Any


State = Done | list[Ask]


def advance(dialogue: Dialogue, replies: list[Any] | None) -> State:
    """Send a dialogue its replies (None to begin it); returns its next questions, or its end."""
    try:
        return next(dialogue) if replies is None else dialogue.send(replies)
    except StopIteration as stop:
        return Done(stop.value)


# ---------------------------------------------------------------------------------------------------------- combinators


def together(dialogues: Sequence[Dialogue]) -> Dialogue:
    """Run dialogues side by side as one dialogue; returns their results in order."""
    states = [advance(dialogue, None) for dialogue in dialogues]
    while unfinished := {index: state for index, state in enumerate(states) if not isinstance(state, Done)}:
        replies = iter((yield [ask for asks in unfinished.values() for ask in asks]))
        for index, asks in unfinished.items():
            states[index] = advance(dialogues[index], list(islice(replies, len(asks))))
    return [state.result for state in states if isinstance(state, Done)]


def until_read(ask: Callable[[int], Ask], unreadable: Callable[[Answer], bool], requeries: int) -> Dialogue:
    """Ask once, and up to `requeries` times more while the answer cannot be read. Returns all answers; the last counts.

    `ask` makes the question of turn 0, 1, ...: the same question with another sample index. A greedy model would repeat
    its answer, so from turn 1 on it is asked at RETRY_TEMPERATURE.
    """
    answers: list[Answer] = []
    for turn in range(requeries + 1):
        asked = ask(turn)
        if turn and asked.what.temperature == 0:
            asked = replace(asked, what=replace(asked.what, temperature=RETRY_TEMPERATURE))
        (answer,) = yield [asked]
        answers.append(answer)
        if not unreadable(answer):
            break
    return answers


def one_answer(who: str, question: Question, unreadable: Callable[[Answer], bool], requeries: int = 0) -> Dialogue:
    """Ask one model, and again while its answer cannot be read. Returns the last answer, with the cost of all."""
    answers = yield from until_read(lambda turn: Ask(who, replace(question, sample=turn)), unreadable, requeries)
    return last_of(answers)


def last_of(answers: Sequence[Answer]) -> Answer:
    """The last of several answers, with the cost and tokens of all."""
    if len(answers) == 1:
        return answers[0]
    return replace(
        answers[-1],
        cost=total(answer.paid for answer in answers),
        tokens=sum(answer.tokens for answer in answers),
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
    )


# -------------------------------------------------------------------------------------------------------------- running


def replies(asks: Sequence[Ask], askers: "Mapping[str, Asker]", programs: Mapping[str, Program]) -> list[Any]:
    """The journal's answer to each question, and the programs' output for each input."""
    found: list[Any] = [None] * len(asks)
    for who in dict.fromkeys(ask.who for ask in asks):
        indices = [index for index, ask in enumerate(asks) if ask.who == who]
        inputs = [asks[index].what for index in indices]
        outputs = askers[who].recalled(inputs) if who in askers else programs[who](inputs)
        for index, reply in zip(indices, outputs, strict=True):
            found[index] = reply
    return found


class _Window:
    """Dialogues that advance side by side, each with its next questions or its result."""

    def __init__(self, rows: Sequence[tuple[str, Dialogue]]):
        self.rows = [row for row, _ in rows]
        self._dialogues = [dialogue for _, dialogue in rows]
        self.states = [advance(dialogue, None) for dialogue in self._dialogues]

    @property
    def open(self) -> bool:
        return any(not isinstance(state, Done) for state in self.states)

    @property
    def results(self) -> list[Any]:
        """The results of the dialogues that have ended, in order."""
        return [state.result for state in self.states if isinstance(state, Done)]

    def asks(self) -> Iterator[tuple[str, Ask]]:
        for row, state in zip(self.rows, self.states, strict=True):
            if not isinstance(state, Done):
                yield from ((row, ask) for ask in state)

    def advance(self, replies: Callable[[Sequence[Ask]], Sequence[Any]]) -> None:
        """Take all unfinished dialogues one step further."""
        answers = iter(replies([ask for _, ask in self.asks()]))
        for index, state in enumerate(self.states):
            if not isinstance(state, Done):
                self.states[index] = advance(self._dialogues[index], list(islice(answers, len(state))))


class _Many:
    """Dialogues of several windows: each pass begins them anew and replays them, a window at a time."""

    def __init__(self, begin: Begin):
        self._begin = begin

    def after(self, steps: int | None, replies: Callable) -> Iterator[_Window]:
        """Each window after so many steps; with None, when all of its dialogues have ended."""
        rows = iter(self._begin())
        while part := list(islice(rows, WINDOW)):
            window, step = _Window(part), 0
            while window.open and step != steps:
                window.advance(replies)
                step += 1
            yield window


class _Few:
    """The dialogues of one window, which stay in memory from step to step."""

    def __init__(self, rows: Sequence[tuple[str, Dialogue]]):
        self._window, self._step = _Window(rows), 0

    def after(self, steps: int | None, replies: Callable) -> Iterator[_Window]:
        while self._window.open and (steps is None or self._step < steps):
            self._window.advance(replies)
            self._step += 1
        yield self._window


class Dialogues:
    """Runs dialogues to their results, with the models and programs that they ask.

    `askers` are open models by reference, `programs` the programs by name. The share of calls that may fail is taken of
    the largest step so far, or of `of`, the assumed size of the stage, where that is larger.
    """

    def __init__(self, askers: "Mapping[str, Asker]", programs: Mapping[str, Program] | None = None, of: int = 0):
        self.askers, self.programs, self.of = askers, programs or {}, of

    def results(self, begin: Begin, quiet: bool = False) -> Iterator[Any]:
        """The result of each dialogue, in order. All models are asked before the first result is given."""
        source = self._source(begin)
        step = largest = 0
        while self.askers and (by_model := self._questions(source, step)) is not None:
            largest = max([largest, *map(len, by_model.values())])
            for model, questions in by_model.items():
                self.askers[model](questions, quiet, of=max(largest, self.of), what=self._calls(model, step))
            step += 1
        return (result for window in source.after(None, self._replies) for result in window.results)

    def _calls(self, model: str, step: int) -> str:
        """What progress lines call the calls of a step: which model's, if several are asked, and which round's."""
        return f"calls{f' of {model}' * (len(self.askers) > 1)}{f' in round {step + 1}' * bool(step)}"

    @staticmethod
    def first_questions(begin: Begin) -> dict[str, Questions]:
        """The questions of the first step by model; no engine has to be open."""
        return Dialogues({})._questions(_Many(begin), 0) or {}

    def _source(self, begin: Begin) -> _Few | _Many:
        few = list(islice(begin(), WINDOW + 1))
        return _Few(few) if len(few) <= WINDOW else _Many(begin)

    def _questions(self, source: _Few | _Many, step: int) -> dict[str, Questions] | None:
        """The questions of a step by model (the journal has the steps before it); None if all dialogues have ended."""

        def questions(model: str) -> Iterator[tuple[str, Question]]:
            for window in source.after(step, self._replies):
                yield from ((row, ask.what) for row, ask in window.asks() if ask.who == model)

        counts: Counter[str] = Counter()
        any_open = False
        for window in source.after(step, self._replies):
            any_open = any_open or window.open
            counts.update(ask.who for _, ask in window.asks() if isinstance(ask.what, Question))
        if not any_open:
            return None
        return {model: Questions(n, partial(questions, model)) for model, n in counts.items()}

    def _replies(self, asks: Sequence[Ask]) -> list[Any]:
        return replies(asks, self.askers, self.programs)
