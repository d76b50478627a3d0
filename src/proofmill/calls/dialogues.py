"""Dialogues: generators that yield their next requests and return a result, and are replayed from the journal.

    def second_thought(model, problem):
        (first,) = yield [Ask(model, request(problem))]
        (second,) = yield [Ask(model, request(problem, first.text))]
        return second.text

runner.py runs them. All requests and outputs are in the journal, so a kill loses only the calls in flight: the next run
replays each dialogue from its old outputs and continues. A dialogue must therefore yield the same requests whenever it
receives the same outputs.

Dialogues nest. `yield from` runs one inside another, `together` runs several concurrently inside one, and `until_read`
repeats a request while the output cannot be parsed. Graders, labels, grading schemes, scaffolds and the reasoning cache
are dialogues.

Differences from an agent loop or a chain of stages:
1. Only the journal has to survive.
2. One dialogue may call several models, remote or in this process, and programs as well.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from proofmill.calls.model_requests import ModelOutput, ModelRequest, Requests, total

RETRY_TEMPERATURE = 0.7


@dataclass(frozen=True)
class Ask:
    """A dialogue's next request: to a model, or to a program.

    `who` is a model's reference and `what` a ModelRequest, or `who` is a program's name and `what` that program's input.
    """

    who: str
    what: Any


Dialogue = Generator[list[Ask], list[Any], Any]  # receives the outputs of its requests, and those of programs
Begin = Callable[[], Iterable[tuple[str, Dialogue]]]  # all dialogues as (row's id, dialogue), new ones at each call
Program = Callable[[Sequence[Any]], Iterable[Any]]  # inputs -> outputs, in order


@dataclass(frozen=True)
class Done:
    """The result of a dialogue that has ended."""

    result: Any


State = Done | list[Ask]


def advance(dialogue: Dialogue, replies: list[Any] | None) -> State:
    """Send a dialogue its replies (None to begin it). Return its next requests, or its end."""
    try:
        return next(dialogue) if replies is None else dialogue.send(replies)
    except StopIteration as stop:
        return Done(stop.value)


def first_requests(begin: Begin) -> dict[str, Requests]:
    """Return the first requests of all dialogues, by model. No engine has to be open."""

    def asks() -> Iterator[tuple[str, Ask]]:
        for row, dialogue in begin():
            if not isinstance(state := advance(dialogue, None), Done):
                yield from ((row, ask) for ask in state if isinstance(ask.what, ModelRequest))

    def requests(model: str) -> Iterator[tuple[str, ModelRequest]]:
        return ((row, ask.what) for row, ask in asks() if ask.who == model)

    counts = Counter(ask.who for _, ask in asks())
    return {model: Requests(number, partial(requests, model)) for model, number in counts.items()}


# ---------------------------------------------------------------------------------------------------------- combinators


def together(dialogues: Sequence[Dialogue]) -> Dialogue:
    """Run dialogues concurrently as one dialogue, in lock-step. Return their results in order."""
    states = [advance(dialogue, None) for dialogue in dialogues]
    while unfinished := {index: state for index, state in enumerate(states) if not isinstance(state, Done)}:
        replies = iter((yield [ask for asks in unfinished.values() for ask in asks]))
        for index, asks in unfinished.items():
            states[index] = advance(dialogues[index], list(islice(replies, len(asks))))
    return [state.result for state in states if isinstance(state, Done)]


def until_read(ask: Callable[[int], Ask], unreadable: Callable[[ModelOutput], bool], parse_retries: int) -> Dialogue:
    """Call a model once, and up to `parse-retries` more times while its output cannot be parsed.

    Return all outputs; the last counts. `ask` builds the request of turn 0, 1, ...: the same request with another
    sample index. A greedy model would repeat its output, so from turn 1 on its temperature is RETRY_TEMPERATURE.
    """
    answers: list[ModelOutput] = []
    for turn in range(parse_retries + 1):
        asked = ask(turn)
        if turn and asked.what.temperature == 0:
            asked = replace(asked, what=replace(asked.what, temperature=RETRY_TEMPERATURE))
        (answer,) = yield [asked]
        answers.append(answer)
        if not unreadable(answer):
            break
    return answers


def one_answer(
    who: str, request: ModelRequest, unreadable: Callable[[ModelOutput], bool], parse_retries: int = 0
) -> Dialogue:
    """Call one model, and retry while its output cannot be parsed. Return the last output, with the cost of all."""
    answers = yield from until_read(lambda turn: Ask(who, replace(request, sample=turn)), unreadable, parse_retries)
    return last_of(answers)


def last_of(answers: Sequence[ModelOutput]) -> ModelOutput:
    """Return the last of several outputs, with the cost and tokens of all."""
    if len(answers) == 1:
        return answers[0]
    return replace(
        answers[-1],
        cost=total(answer.paid for answer in answers),
        tokens=sum(answer.tokens for answer in answers),
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
    )
