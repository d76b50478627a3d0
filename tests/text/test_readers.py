"""Parsers of texts by models or forums: any text gives a value or a reason, and long monotonous ones finish in time.

A reader is a function of a text, with a property of its value. Add a new reader to the table, and its syntax to
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
from proofmill.answers import extraction
from proofmill.answers.final_answers import read_pair
from proofmill.calls.model_requests import ModelOutput
from proofmill.decontamination.similarity import shingles
from proofmill.filters.example_filters import EXAMPLE_FILTERS
from proofmill.filters.problem_filters import ready, refusal
from proofmill.graders import rubrics, verdicts
from proofmill.graders.program_graders import PROGRAMS
from proofmill.graders.submissions import Submission
from proofmill.labels import FLAGS, read_labels
from proofmill.prompts import escapes, templates
from proofmill.rewards import format_checks
from proofmill.sandbox.cases import Case, cases_of
from proofmill.sandbox.extract import code_of
from proofmill.sources.threads import like_a_solution, plain, thread
from proofmill.synthetic import congruences, grading, referee
from proofmill.synthetic.congruences import Congruence
from proofmill.text import folding, languages, question_types, reasoning, statements

SIZE = 100_000  # characters of a dull text: quadratic time would mean 10^10 places
EXAMPLES = 1_000
PROBLEM = Congruence("products", 7, (2, 3, 4, 5, 2))


class Reader(NamedTuple):
    read: Callable[[str], Any]
    holds: Callable[[Any], bool]


# ------------------------------------------------------------------------------------------------ what holds of a value


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
    """Return whether a verdict has a grade on the scale, or the reason for having none."""
    return verdict.grade in range(verdict.max_points + 1) if verdict.reason == "ok" else verdict.grade is None


def is_score(verdict: verdicts.Verdict) -> bool:
    return verdict.grade in (0, 0.5, 1) if verdict.reason == "ok" else verdict.grade is None


def are_labels(found: tuple[dict, str]) -> bool:
    labels, reason = found
    return set(labels) == {*FLAGS, "difficulty"} if reason == "ok" else labels == {}


def is_rubric(rubric: rubrics.Rubric) -> bool:
    """Return whether points are finite and fit a column, and the linter gives a result."""
    prices = [price for d in rubric.deductions for price in (d.minus, d.cap) if price is not None]
    in_range = all(abs(price) < 10**9 for price in (*prices, *(c.points for c in rubric.checkpoints)))
    return in_range and math.isfinite(rubric.points) and set(rubrics.faults(rubric)) <= set(rubrics.FAULTS)


def is_scheme(found: tuple[str | None, str]) -> bool:
    return (found[0] is not None) == (found[1] == "ok")


def are_tokens(found: tuple[statements.StatementToken, ...]) -> bool:
    return all(token.text and token.kind in ("word", "number", "formula") for token in found)


def are_grades(grades: int) -> bool:
    return 0 <= grades <= 7


# ------------------------------------------------------------------------------------------------ how some of them read


def judged(prompt: str, stop: str) -> Callable[[str], Any]:
    return lambda text: verdicts.read(ModelOutput(text, stop), templates.prompt(prompt))


def cases_or_fault(answer: str) -> Any:
    """Return the tests in a problem's answer, or the message that says why they are invalid."""
    try:
        return cases_of(answer)
    except ValueError as error:
        return str(error)


def are_cases_or_fault(found: Any) -> bool:
    return found.startswith("tests: ") if isinstance(found, str) else all(isinstance(case, Case) for case in found)


def filtered(item: Any) -> Reader:
    """Apply a filter of problems to a row with the text in all its text fields."""

    def read(text: str) -> Any:
        row = {"problem": "p", "statement": text, "solution": text, "origin": text, "question_type": "answer"}
        return refusal(row, list(ready([item])))

    return Reader(read, lambda found: found is None or is_text(found[1]))


def selected(name: str, *argument: Any) -> Reader:
    """Apply a filter of examples to a row with the text."""
    return Reader(lambda text: EXAMPLE_FILTERS[name].apply([{"text": text}], *argument)[0], is_flag)


def posted(text: str) -> dict:
    posts = [{"post_number": n, "post_canonical": text, "thanks_received": n} for n in (1, 2)]
    return thread("t", {"response": {"response": {"posts": posts}}})


def grades_of_its_proof(statement: str) -> int:
    """Return the grade of a statement's proof in the arithmetic family, or 0 if it states no such problem."""
    problem = congruences.read(statement)
    return grading.check(problem, congruences.proof(problem)).points() if problem else 0


def graded(text: str) -> verdicts.Verdict:
    with PROGRAMS["arithmetic"].open() as check:
        return next(iter(check([Submission(congruences.statement(PROBLEM), None, None, text)])))


def shown(text: str) -> str:
    """Fill a prompt with the text in each of its fields."""
    return templates.fill("grade-strict", dict.fromkeys(("statement", "scheme", "proof", "reference"), text))


# ---------------------------------------------------------------------------------------------------------------- table

READERS: dict[str, dict[str, Reader]] = {
    "verdicts": {
        "points": Reader(judged("grade-strict", "end"), is_verdict),
        "points of a truncated output": Reader(judged("grade-strict", "length"), is_verdict),
        "box": Reader(judged("answer-equivalence", "end"), is_verdict),
        "box of a truncated output": Reader(judged("answer-equivalence", "length"), is_verdict),
        "number in a box": Reader(judged("grade-evaluation", "end"), is_score),
        "judgement": Reader(judged("answer-judgement", "end"), is_verdict),
        "word": Reader(judged("grade-words", "end"), is_verdict),
    },
    "schemes": {
        "scheme": Reader(lambda text: schemes.read_scheme(ModelOutput(text, "end")), is_scheme),
        "rubric": Reader(rubrics.parse, is_rubric),
        "checkpoints": Reader(lambda text: rubrics.parse(f"Checkpoints\n{text}"), is_rubric),
        "deductions": Reader(lambda text: rubrics.parse(f"Deductions\n1. {text}"), is_rubric),
    },
    "labels": {"labels": Reader(lambda text: read_labels(ModelOutput(text, "end")), are_labels)},
    "programs": {"program": Reader(code_of, is_text_or_none), "tests": Reader(cases_or_fault, are_cases_or_fault)},
    "answers": {
        "boxes": Reader(extraction.find_boxes, are_texts),
        "box at the end": Reader(extraction.closing_box, is_text_or_none),
        "final answer": Reader(extraction.extract, is_text_or_none),
        "excerpt for a judge": Reader(extraction.excerpt, is_text),
        "gold answer": Reader(extraction.of_gold, is_text),
        "normal form": Reader(extraction.normal, is_text),
        "pair": Reader(lambda text: read_pair("2", text)[0][0], is_text_or_none),
    },
    "reasoning": {
        "final part": Reader(reasoning.final_part, is_text),
        "final part with reasoning": Reader(lambda text: reasoning.final_part(text, ""), is_text),
        "after the thought": Reader(reasoning.after_thought, is_text),
        "after one thought": Reader(reasoning.after_one_thought, is_text),
        "thought": Reader(reasoning.thought, is_text),
        "thought or all": Reader(reasoning.thought_or_all, is_text),
        "without its key step": Reader(reasoning.without_key_step, is_text_or_none),
        "split": Reader(lambda text: list(reasoning.split_at(text, ["</think>"])), are_texts),
        "well formed": Reader(lambda text: Submission("s", None, None, text).well_formed, is_flag),
    },
    "forms": {
        "answer format": Reader(format_checks.answer_format, is_share),
        "think format": Reader(format_checks.think_format, is_share),
        "boxed format": Reader(format_checks.reward_boxed_format, is_share),
        "tags": Reader(format_checks.tag_count, is_share),
        "steps": Reader(format_checks.reasoning_steps, is_share),
        "steps as published": Reader(lambda text: format_checks.reasoning_steps(text, as_published=True), is_share),
        "repetition": Reader(lambda text: -format_checks.repetition_penalty(text), is_share),
        "short paragraphs": selected("short-paragraphs", 300),
        "no code": selected("no-code"),
    },
    "languages": {"consistency": Reader(lambda text: languages.consistency(text, "en"), is_share)},
    "statements": {
        "tokens": Reader(statements.cache_tokens, are_tokens),
        "shingles": Reader(lambda text: list(shingles(text).numbers), are_texts),
        "attempt": Reader(responses.is_attempt, is_flag),
    },
    "threads": {
        "post": Reader(plain, is_text),
        "thread": Reader(posted, lambda row: is_text(row["statement"])),
        "like a solution": Reader(like_a_solution, is_flag),
        "asks": Reader(lambda text: question_types.asks(text, text), lambda what: what in ("proof", "answer")),
    },
    "filters": {
        "has-statement": filtered("has-statement"),
        "has-solution": filtered("has-solution"),
        "is-problem": filtered("is-problem"),
        "is-proof": filtered("is-proof"),
        "no-image": filtered("no-image"),
        "not-spam": filtered("not-spam"),
        "statement-length": filtered({"statement-length": [1, 2]}),
        "solution-steps": filtered({"solution-steps": [1, 2]}),
        "origin": filtered({"origin": ["a"]}),
    },
    "arithmetic": {
        "statement": Reader(grades_of_its_proof, are_grades),
        "proof": Reader(graded, is_verdict),
        "proof with reasoning": Reader(lambda text: grading.check(PROBLEM, text).points(), are_grades),
        "verdict": Reader(referee.verdict, is_text),
        "lesson": Reader(referee.teach, is_text_or_none),
        "grade": Reader(lambda text: referee.grade(PROBLEM, text, text), is_text),
        "summary": Reader(lambda text: referee.sum_up(PROBLEM, text, text), is_text),
        "preference": Reader(lambda text: referee.prefer(PROBLEM, text), is_text),
        "classification": Reader(lambda text: referee.classify(PROBLEM, text, text), is_text),
    },
    "prompts": {
        "prompt": Reader(shown, is_text),
        "turn": Reader(escapes.without_control_tokens, is_text),
        "as it was written": Reader(folding.unescape, is_text),
    },
}


# ---------------------------------------------------------------------------------------------------------------- tests


@pytest.mark.sampled(4)
@pytest.mark.parametrize("family", READERS)
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_readers_give_a_value_or_a_reason_for_any_text(family, data):
    """Fragments of its syntax, half surrogate pairs, numbers of thousands of digits: no reader raises."""
    text = data.draw(texts(SYNTAX[family]))
    for name, reader in READERS[family].items():
        assert reader.holds(reader.read(text)), name


@pytest.mark.sampled(4)
@pytest.mark.parametrize("family", READERS)
@pytest.mark.slow
def test_readers_end_with_long_dull_texts(family):
    """Each reader handles 100,000 characters of one repeated text; in quadratic time this takes minutes."""
    for text in dull(SYNTAX[family], SIZE):
        for name, reader in READERS[family].items():
            assert reader.holds(reader.read(text)), f"{name}: {text[:20]!r}"
