"""Every reader of what a model or a forum wrote: any text has a value or a reason, and long dull ones are read too.

A reader is a function of a text, and what holds of its value. A new reader belongs in the table, and its syntax in
fixtures/adversarial.py.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adversarial import SYNTAX, dull, texts
from proofmill import responses, schemes
from proofmill.arithmetic import congruences, marking, referee
from proofmill.arithmetic.congruences import Congruence
from proofmill.calls.exchange import Answer
from proofmill.contamination.similarity import shingles
from proofmill.filters.examples import SELECTORS
from proofmill.filters.problems import ready, refusal
from proofmill.graders import rubrics, verdicts
from proofmill.graders.final_answers import read_pair
from proofmill.graders.programs import PROGRAMS
from proofmill.graders.submissions import Submission
from proofmill.labels import FLAGS, read_labels
from proofmill.prompts import escapes, templates
from proofmill.sandbox.cases import Case, cases_of
from proofmill.sandbox.programs import code_of
from proofmill.sources.threads import like_a_solution, plain, thread
from proofmill.text import answers, asks, folding, formats, languages, reasoning, statements

SIZE = 100_000  # characters of a dull text: a pattern that takes quadratic time would look at 10^10 places
EXAMPLES = 1_000
PROBLEM = Congruence("products", 7, (2, 3, 4, 5, 2))


class Reader(NamedTuple):
    read: Callable[[str], Any]
    holds: Callable[[Any], bool]


# ------------------------------------------------------------------------------------------------- what holds of a value


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def is_share(value: Any) -> bool:
    return value is None or 0 <= value <= 1


def is_verdict(verdict: verdicts.Verdict) -> bool:
    """A grade on the scale, or the reason for having none."""
    return verdict.grade in range(verdict.out_of + 1) if verdict.reason == "ok" else verdict.grade is None


def is_score(verdict: verdicts.Verdict) -> bool:
    return verdict.grade in (0, 0.5, 1) if verdict.reason == "ok" else verdict.grade is None


def are_labels(found: tuple[dict, str]) -> bool:
    labels, reason = found
    return set(labels) == {*FLAGS, "difficulty"} if reason == "ok" else labels == {}


def is_rubric(rubric: rubrics.Rubric) -> bool:
    """Points are finite and have a column's range, and the linter has its say about them."""
    prices = [price for d in rubric.deductions for price in (d.minus, d.cap) if price is not None]
    in_range = all(abs(price) < 10**9 for price in (*prices, *(c.points for c in rubric.checkpoints)))
    return in_range and math.isfinite(rubric.points) and set(rubrics.faults(rubric)) <= set(rubrics.FAULTS)


def is_scheme(found: tuple[str | None, str]) -> bool:
    return (found[0] is not None) == (found[1] == "ok")


def are_tokens(found: tuple[statements.Token, ...]) -> bool:
    return all(token.text and token.kind in ("word", "number", "formula") for token in found)


def are_marks(marks: int) -> bool:
    return 0 <= marks <= 7


# ----------------------------------------------------------------------------------------------- how some of them read


def judged(prompt: str, stop: str) -> Callable[[str], Any]:
    return lambda text: verdicts.read(Answer(text, stop), templates.prompt(prompt))


def cases_or_fault(answer: str) -> Any:
    """The tests in a problem's answer, or the sentence that says what is wrong with them."""
    try:
        return cases_of(answer)
    except ValueError as error:
        return str(error)


def are_cases_or_fault(found: Any) -> bool:
    return found.startswith("tests: ") if isinstance(found, str) else all(isinstance(case, Case) for case in found)


def filtered(item: Any) -> Reader:
    """A filter of problems, of a row that has the text wherever a text can be."""

    def read(text: str) -> Any:
        row = {"problem": "p", "statement": text, "solution": text, "origin": text, "asks": "answer"}
        return refusal(row, list(ready([item])))

    return Reader(read, lambda found: found is None or is_text(found[1]))


def selected(name: str, *argument: Any) -> Reader:
    """A selector of examples, of a row with the text."""
    return Reader(lambda text: SELECTORS[name].apply([{"text": text}], *argument)[0], is_flag)


def posted(text: str) -> dict:
    posts = [{"post_number": n, "post_canonical": text, "thanks_received": n} for n in (1, 2)]
    return thread("t", {"response": {"response": {"posts": posts}}})


def marks_of_its_proof(statement: str) -> int:
    """Marks of the proof of a problem of the arithmetic family that a statement states, or 0 where it states none."""
    problem = congruences.read(statement)
    return marking.check(problem, congruences.proof(problem)).marks() if problem else 0


def marked(text: str) -> verdicts.Verdict:
    with PROGRAMS["arithmetic"].open() as check:
        return next(iter(check([Submission(congruences.statement(PROBLEM), None, None, text)])))


def shown(text: str) -> str:
    """A prompt with the text in each of its fields."""
    return templates.fill("grade-strict", dict.fromkeys(("statement", "scheme", "proof", "reference"), text))


# ---------------------------------------------------------------------------------------------------------------- table

READERS: dict[str, dict[str, Reader]] = {
    "verdicts": {
        "points": Reader(judged("grade-strict", "end"), is_verdict),
        "points of a cut-off answer": Reader(judged("grade-strict", "length"), is_verdict),
        "box": Reader(judged("answer-equivalence", "end"), is_verdict),
        "box of a cut-off answer": Reader(judged("answer-equivalence", "length"), is_verdict),
        "number in a box": Reader(judged("grade-evaluation", "end"), is_score),
        "judgement": Reader(judged("answer-judgement", "end"), is_verdict),
        "word": Reader(judged("grade-words", "end"), is_verdict),
    },
    "schemes": {
        "scheme": Reader(lambda text: schemes.read_scheme(Answer(text, "end")), is_scheme),
        "rubric": Reader(rubrics.parse, is_rubric),
        "checkpoints": Reader(lambda text: rubrics.parse(f"Checkpoints\n{text}"), is_rubric),
        "deductions": Reader(lambda text: rubrics.parse(f"Deductions\n1. {text}"), is_rubric),
    },
    "labels": {"labels": Reader(lambda text: read_labels(Answer(text, "end")), are_labels)},
    "programs": {"program": Reader(code_of, is_text_or_none), "tests": Reader(cases_or_fault, are_cases_or_fault)},
    "answers": {
        "boxes": Reader(answers.boxed, are_texts),
        "box at the end": Reader(answers.closing_box, is_text_or_none),
        "final answer": Reader(answers.extract, is_text_or_none),
        "what a judge sees": Reader(answers.shown, is_text),
        "gold answer": Reader(answers.of_gold, is_text),
        "normal form": Reader(answers.normal, is_text),
        "pair": Reader(lambda text: read_pair("2", text)[0][0], is_text_or_none),
    },
    "reasoning": {
        "final part": Reader(reasoning.final_part, is_text),
        "final part beside reasoning": Reader(lambda text: reasoning.final_part(text, ""), is_text),
        "after the thought": Reader(reasoning.after_thought, is_text),
        "after one thought": Reader(reasoning.after_one_thought, is_text),
        "thought": Reader(reasoning.thought, is_text),
        "thought or all": Reader(reasoning.thought_or_all, is_text),
        "without its key step": Reader(reasoning.without_key_step, is_text_or_none),
        "split": Reader(lambda text: list(reasoning.split_at(text, ["</think>"])), are_texts),
        "well formed": Reader(lambda text: Submission("s", None, None, text).well_formed, is_flag),
    },
    "forms": {
        "answer format": Reader(formats.answer_format, is_share),
        "think format": Reader(formats.think_format, is_share),
        "boxed format": Reader(formats.boxed_format, is_share),
        "tags": Reader(formats.tag_count, is_share),
        "steps": Reader(formats.reasoning_steps, is_share),
        "steps as published": Reader(lambda text: formats.reasoning_steps(text, as_published=True), is_share),
        "repetition": Reader(lambda text: -formats.repetition_penalty(text), is_share),
        "short paragraphs": selected("short-paragraphs", 300),
        "no code": selected("no-code"),
    },
    "languages": {"consistency": Reader(lambda text: languages.consistency(text, "en"), is_share)},
    "statements": {
        "tokens": Reader(statements.cached, are_tokens),
        "shingles": Reader(lambda text: list(shingles(text).numbers), are_texts),
        "attempt": Reader(responses.is_attempt, is_flag),
    },
    "threads": {
        "post": Reader(plain, is_text),
        "thread": Reader(posted, lambda row: is_text(row["statement"])),
        "like a solution": Reader(like_a_solution, is_flag),
        "asks": Reader(lambda text: asks.asks(text, text), lambda what: what in ("proof", "answer")),
    },
    "filters": {
        "has-problem": filtered("has-problem"),
        "has-solution": filtered("has-solution"),
        "is-problem": filtered("is-problem"),
        "is-proof": filtered("is-proof"),
        "no-image": filtered("no-image"),
        "not-spam": filtered("not-spam"),
        "statement-length": filtered({"statement-length": [1, 2]}),
        "logic-steps": filtered({"logic-steps": [1, 2]}),
        "origin": filtered({"origin": ["a"]}),
    },
    "arithmetic": {
        "statement": Reader(marks_of_its_proof, are_marks),
        "proof": Reader(marked, is_verdict),
        "proof with reasoning": Reader(lambda text: marking.check(PROBLEM, text).marks(), are_marks),
        "verdict": Reader(referee.verdict, is_text),
        "lesson": Reader(referee.teach, is_text_or_none),
        "mark": Reader(lambda text: referee.mark(PROBLEM, text, text), is_text),
        "summary": Reader(lambda text: referee.sum_up(PROBLEM, text, text), is_text),
        "preference": Reader(lambda text: referee.prefer(PROBLEM, text), is_text),
        "classification": Reader(lambda text: referee.classify(PROBLEM, text, text), is_text),
    },
    "prompts": {
        "prompt": Reader(shown, is_text),
        "turn": Reader(escapes.without_control_tokens, is_text),
        "as it was written": Reader(folding.unescaped, is_text),
    },
}


# ---------------------------------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize("family", READERS)
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_readers_give_a_value_or_a_reason_for_any_text(family, data):
    """Its own syntax cut up, half pairs of surrogates, numbers of thousands of digits: no reader raises."""
    text = data.draw(texts(SYNTAX[family]))
    for name, reader in READERS[family].items():
        assert reader.holds(reader.read(text)), name


@pytest.mark.parametrize("family", READERS)
def test_readers_end_with_long_dull_texts(family):
    """Each reads a text of 100,000 characters that says one thing over and over; in quadratic time one takes minutes."""
    for text in dull(SYNTAX[family], SIZE):
        for name, reader in READERS[family].items():
            assert reader.holds(reader.read(text)), f"{name}: {text[:20]!r}"
