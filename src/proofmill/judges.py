"""How a judge is asked: a prompt from prompts/, filled with fields, through the journal; what `labels` and `schemes` share.

How we differ: an answer that cannot be read is asked for again, so often as the entry says, and is then a row with its
reason.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from proofmill import templates
from proofmill.calls import Asker, Question, Questions
from proofmill.engines import asking
from proofmill.jobs import Job
from proofmill.journal import Answer

Talk = tuple[tuple[str, str], ...]  # (role, content)


def options_of(api: Any) -> str:
    """Further fields of a request, as a question holds them."""
    return json.dumps(api.options, sort_keys=True) if api.options else ""


def comments(candidates: Iterable[str]) -> str:
    return "Comment:\n" + "\n\nComment:\n".join(candidates)


def question(api: Any, talk: Talk, sample: int = 0) -> Question:
    """What a judge is asked, at its own temperature; `sample` counts how often it is asked the same."""
    return Question(
        api.id, talk, temperature=api.temperature, max_tokens=api.max_tokens, options=options_of(api), sample=sample
    )


def questions(job: Job, model: str, prompt: str, rows: Sequence[Mapping[str, Any]]) -> Questions:
    """One prompt for many rows of fields, each with its `problem`."""
    api = job.declared[model]
    return Questions(
        len(rows),
        lambda: ((row["problem"], question(api, (("user", templates.fill(prompt, row)),))) for row in rows),
    )


def consult(
    job: Job, model: str, asked: Questions, unreadable: Callable[[Answer], bool] = lambda _: False, requeries: int = 0
) -> Iterator[Answer]:
    """A judge's answers in the order of what it is asked, each asked once ever, and again while it cannot be read."""
    with asking(job, model) as ask:
        ask(asked)
        for turn in range(1, requeries + 1):
            again = [row for row in _last(ask, asked, unreadable, turn - 1) if unreadable(row[2])]
            if not again:
                break
            asked_again = [(row, replace(question, sample=turn)) for row, question, _ in again]
            ask(Questions(len(again), partial(iter, asked_again)), of=len(asked))
        return (answer for _, _, answer in _last(ask, asked, unreadable, requeries))


def _last(
    ask: Asker, asked: Questions, unreadable: Callable[[Answer], bool], turns: int
) -> Iterator[tuple[str, Question, Answer]]:
    """Row, question and last answer, when those that could not be read were asked so many times more."""
    first = map(ask.engine.read, ask.journal.answers(asked))
    for (row, question), answer in zip(asked.named(), first, strict=True):
        for turn in range(1, turns + 1):
            if not unreadable(answer):
                break
            answer = _after(answer, ask.engine.read(ask.journal[replace(question, sample=turn)]))
        yield row, question, answer


def _after(first: Answer, second: Answer) -> Answer:
    """The second answer, with what both cost."""
    costs = (first.cost, second.cost)
    return replace(
        second,
        cost=None if None in costs else sum(costs),
        tokens=first.tokens + second.tokens,
        prompt_tokens=first.prompt_tokens + second.prompt_tokens,
    )
