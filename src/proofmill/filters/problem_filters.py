"""Filters of problems: each rejects a row with evidence, or keeps it, as in `keep: [is-proof, no-image]`.

A filter is a function of the row and, if any, its argument. It returns its evidence, or None to keep the row. A row has the
columns of `problems`, and also `label` and `scheme` (its rows of those tables) and `rate` (its mean grade as a share of all
points); each is None if missing. Filters that depend on the kept rows are classes (remembering_filters.py).

From: the data filter of QED-Nano, and the pass-rate filter of open-r1.

Differences from the originals:
1. QED-Nano writes labels and drops nothing. Here each label is a filter, and a row without labels never passes one.
2. A dropped row stays in the table with the filter's name and evidence.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from proofmill.filters.remembering_filters import (
    AtMostPerAnswer,
    First,
    NotDuplicate,
    NotNearDuplicate,
    Refusal,
    Row,
    shorten_line,
)
from proofmill.rewards import format_checks
from proofmill.schema.errors import RecipeError, shorten
from proofmill.schema.ids import digest
from proofmill.schema.reasons import Reason
from proofmill.schema.registry_items import Named, split, within
from proofmill.text import statements
from proofmill.text.question_types import ASKS_PROOF

_INSTRUCTION = re.compile(
    r"\b(find|determine|compute|calculate|evaluate|solve|simplify|express|what(?:'s)?|who|when|"
    r"how (?:many|much|long|far|old|fast|tall|often)|which|is it (?:true|possible)|(?:does|do) there exist|"
    r"can (?:he|she|it|they|we|you|one)|construct|factor|give|"
    r"let|suppose|consider|given|if|for (?:all|every|any|which))\b",
    re.IGNORECASE,
)


# --------------------------------------------------------------------------------------------------------- from the row


def _has_statement(row: Row) -> str | None:
    return None if (row["statement"] or "").strip() else "the statement is empty"


_POINTER = re.compile(
    r"^\W*+(?:(?:first|second|third|fourth|another|alternative|official)\s+(?:solution|proof|method|approach)|"
    r"(?:solution|proof|answer|problem|part|question)\s*+[0-9a-z]?+|see (?:above|below)|same as (?:above|below))\W*+$",
    re.IGNORECASE,
)


def _is_problem(row: Row) -> str | None:
    """Reject headings, pointers, and lines without formula, question or instruction."""
    statement = (row["statement"] or "").strip()
    poses = (
        _FORMULA.search(statement) or _INSTRUCTION.search(statement) or ASKS_PROOF.search(statement) or "?" in statement
    )
    return None if poses and not _POINTER.match(statement) else f"states no problem: {shorten_line(statement)}"


def _has_scheme(row: Row) -> str | None:
    scheme = row["scheme"]
    if scheme is None:
        return "no scheme: there is no row for it"
    if scheme["dropped"] is not None:
        return f"its scheme was refused: {scheme['dropped']} ({', '.join(scheme['faults']) or scheme['self_test'] or scheme['reason']})"
    return None if scheme["scheme"] else f"no scheme: {scheme['reason']}"


def _has_solution(row: Row) -> str | None:
    return None if (row["solution"] or "").strip() else "there is no solution"


def _has_answer(row: Row) -> str | None:
    return None if (row["answer"] or "").strip() else "there is no answer"


def _has_parsable_answer(row: Row) -> str | None:
    """Reject a reference answer that `final-answer` cannot parse. The tests of a program were read before (problems.py).

    The row's `fault` parses the answer as `final-answer` does, within its limits (answers/verifier.py).
    """
    if missing := _has_answer(row):
        return missing
    if row["question_type"] == "code":
        return None
    fault = row["fault"](row["answer"])
    return shorten_line(fault) if fault else None


def _is_proof(row: Row) -> str | None:
    return None if row["question_type"] == "proof" else f"asks for an answer: {shorten_line(row['statement'] or '')}"


# The search from an address or a `![` ends at the next one, which has its own search.
_IMAGE = re.compile(
    r"\[img\b|\[/img\]|\[attachment\b|\[asy\]|\\includegraphics|!\[(?:(?!!\[)[^\]\n])*+\]\(|<img\b|\[image\b|"
    r"https?://(?:(?!https?://)\S)+?\.(?:png|jpe?g|gif|svg|bmp|webp)\b",
    re.IGNORECASE,
)


def _no_image(row: Row) -> str | None:
    """Reject images. An Asymptote drawing counts in the statement, which may need it, but not in the solution."""
    solution = statements.DRAWING.sub("", row["solution"] or "")
    for column, text in (("statement", row["statement"] or ""), ("solution", solution)):
        if match := _IMAGE.search(text):
            return f"the {column} has an image: {shorten_line(text[match.start() : match.start() + 80])}"
    return None


_ADVERT = re.compile(
    r"\b(click here|visit (?:our|my)|order now|buy now|best price|free shipping|discount code|promo code|"
    r"whatsapp|telegram channel|essay writing|casino|sign up now|enroll now|for sale|limited offer|"
    r"subscribe to|check out my)\b",
    re.IGNORECASE,
)
_SOFTWARE = re.compile(
    r"\b(latex|asymptote|texmaker|texnic\w*|miktex|kile|geogebra|install\w*|download\w*|browser|firefox|chrome|forum|"
    r"moderator|avatar|username|password|my post|my account|aops(?:er)? (?:site|wiki)|website|"
    r"signature|render\w*|bbcode)\b",
    re.IGNORECASE,
)
_LINK = re.compile(r"https?://|\bwww\.", re.IGNORECASE)
_FORMULA = re.compile(r"\$[^$]{1,300}\$|\\\[|\\\(|[0-9a-z)]\s*[=<>≤≥^]\s*[-0-9a-z(\\]")


_HOW_TO = re.compile(
    r"\b(how (?:can|do|to|should) (?:i|we|you)|how to|does anyone know|what(?:'s| is) wrong with my|"
    r"is th(?:e|is) forum)\b",
    re.IGNORECASE,
)


def _not_spam(row: Row) -> str | None:
    """Reject adverts, and questions about software or the forum: such words, no formula, nothing to find or prove."""
    statement = row["statement"] or ""
    advert, link = _ADVERT.search(statement), _LINK.search(statement)
    match = advert or link or _SOFTWARE.search(statement)
    if not match or _FORMULA.search(statement):
        return None
    poses = _INSTRUCTION.search(_LINK.sub("", statement)) or ASKS_PROOF.search(statement)
    if poses and not _HOW_TO.search(statement) and not (advert and link):
        return None
    return f"no mathematics, but `{match[0]}`: {shorten_line(statement)}"


def _statement_length(row: Row, bounds: list) -> str | None:
    return _length(row["statement"] or "", bounds)


def _solution_length(row: Row, bounds: list) -> str | None:
    return _length(row["solution"] or "", bounds)


def _solution_steps(row: Row, bounds: list) -> str | None:
    steps = format_checks.solution_steps(row["solution"] or "")
    return None if within(steps, bounds) else f"{steps} logic steps, not {_range(bounds)}"


def _length(text: str, bounds: list) -> str | None:
    return None if within(len(text), bounds) else f"{len(text)} characters, not {_range(bounds)}"


def _range(bounds: list) -> str:
    low, high = bounds
    return f"{low} to {high}" if None not in bounds else f"at least {low}" if high is None else f"at most {high}"


def _year(row: Row, bounds: list) -> str | None:
    if row["year"] is None:
        return "the year is unknown"
    return None if within(row["year"], bounds) else f"of {row['year']}, not {_range(bounds)}"


def _not_after(row: Row, last: int) -> str | None:
    return None if row["year"] is None or row["year"] <= last else f"of {row['year']}, after {last}"


def _date(row: Row, days: list[str]) -> str | None:
    if not row["date"]:
        return "the date is unknown"
    return None if days[0] <= row["date"] <= days[1] else f"of {row['date']}, not {' to '.join(days)}"


def _origin(row: Row, texts: list[str]) -> str | None:
    origin = row["origin"] or ""
    return (
        None if any(text.lower() in origin.lower() for text in texts) else f"from `{origin}`, not {' or '.join(texts)}"
    )


def _level(row: Row, levels: list[str]) -> str | None:
    return None if row["level"] in levels else f"level `{row['level']}`, not {' or '.join(levels)}"


def _statement_share(row: Row, bounds: list) -> str | None:
    """Keep a share of all statements. Equal statements fall together, so shares that do not overlap share no problem."""
    place = int(digest("share", statements.normal(row["statement"] or "")), 16) / 2**64
    low, high = (0.0 if bounds[0] is None else bounds[0]), (1.0 if bounds[1] is None else bounds[1])
    return None if low <= place < high else f"at {place:.3f} of 1"


# ------------------------------------------------------------------------------------------------------ from the labels


def _is_labeled(row: Row) -> str | None:
    if row["label"] is None:
        return "no labels: the judge was not asked"
    reason = row["label"]["reason"]
    return None if reason == Reason.OK else f"no labels: {reason}"


def _unless(label: str, evidence: str) -> Callable[[Row], str | None]:
    """Build a filter that keeps a row only if the judge's `label` is false."""

    def apply(row: Row) -> str | None:
        if refusal := _is_labeled(row):
            return refusal
        value = row["label"][label]
        return None if value is False else evidence if value else f"the judge gave no `{label}`"

    return apply


def _difficulty(row: Row, bounds: list) -> str | None:
    if refusal := _is_labeled(row):
        return refusal
    value = row["label"]["difficulty"]
    if value is None:
        return "the judge gave no `difficulty`"
    return None if within(value, bounds) else f"difficulty {value}, not {_range(bounds)}"


def _pass_rate(row: Row, bounds: list) -> str | None:
    """Reject rates outside strict bounds, as in open-r1: [0, 1] drops problems that are never or always solved."""
    rate, (low, high) = row["rate"], bounds
    if rate is None or rate != rate:
        return "no graded attempt"
    passes = (low is None or rate > low) and (high is None or rate < high)
    return None if passes else f"pass rate {rate:.3f}, not strictly {_range(bounds)}"


# ------------------------------------------------------------------------------------------------------------- the list

FILTERS: dict[str, Named] = {
    "has-statement": Named(_has_statement, "the statement is not empty"),
    "has-solution": Named(_has_solution, "there is a solution"),
    "has-answer": Named(_has_answer, "there is a final answer; for programming problems: tests"),
    "has-parsable-answer": Named(
        _has_parsable_answer,
        "the final answer can be parsed completely, so that responses can be compared with it; for programming problems: "
        "the tests can be read, and a checker accepts its reference output",
    ),
    "is-problem": Named(_is_problem, "the statement has a formula, a question or an instruction, and is not a heading"),
    "has-scheme": Named(_has_scheme, "its grading scheme was kept", needs="schemes"),
    "is-proof": Named(
        _is_proof, "a proof is required: the statement says prove, show, ..., or the solution ends as a proof"
    ),
    "no-image": Named(_no_image, "neither statement nor solution needs an image"),
    "not-spam": Named(_not_spam, "not an advert, not a question about software or the forum"),
    "statement-length": Named(_statement_length, "length of the statement in characters", "bounds"),
    "solution-length": Named(_solution_length, "length of the solution in characters", "bounds"),
    "solution-steps": Named(_solution_steps, "lines of the solution without the last, `####` (GSM8K)", "bounds"),
    "year": Named(_year, "year of the contest or post; rows of unknown year are dropped", "bounds"),
    "not-after": Named(_not_after, "year of the contest or post; rows of unknown year are kept", "count"),
    "dated": Named(_date, "published between these two days; rows of unknown date are dropped", "days"),
    "origin": Named(_origin, "the origin contains one of these texts", "texts"),
    "level": Named(_level, "the level is one of these", "texts"),
    "not-duplicate": Named(NotDuplicate, "no earlier kept row has the same normalized statement"),
    "not-near-duplicate": Named(NotNearDuplicate, "no earlier kept row has at least this Jaccard similarity", "share"),
    "labeled": Named(_is_labeled, "the judge's labels are present and were parsed", needs="labels"),
    "complete": Named(
        _unless("incomplete", "statement or solution is partial"), "label `incomplete` is false", needs="labels"
    ),
    "no-gaps": Named(_unless("gaps", "the solution skips a large part"), "label `gaps` is false", needs="labels"),
    "not-wrong": Named(
        _unless("wrong", "the solution signals that the statement is ambiguous or false"),
        "label `wrong` is false",
        needs="labels",
    ),
    "undisputed": Named(
        _unless("disagreement", "a comment objects to the solution"), "label `disagreement` is false", needs="labels"
    ),
    "not-computational": Named(
        _unless("computational", "the difficulty is evaluating an expression"),
        "label `computational` is false",
        needs="labels",
    ),
    "difficulty": Named(_difficulty, "label `difficulty`, from 1 to 10", "bounds", needs="labels"),
    "statement-share": Named(
        _statement_share,
        "a share of the statements, drawn by their digest: `[0, 0.9]` for training, `[0.9, 1]` held out",
        "bounds",
    ),
    "at-most-per-answer": Named(
        AtMostPerAnswer, "the first rows with each answer, at most this number: as many attempts of each grade", "count"
    ),
    "first": Named(First, "the first rows that pass the other filters, at most this number", "count"),
    "pass-rate": Named(
        _pass_rate, "mean grade as a share of all points; both bounds are strict", "bounds", needs="grades"
    ),
}


def ready(keep: list) -> Iterator[tuple[str, Callable[[Row], str | Refusal | None]]]:
    """Yield name and function of each filter of a list; filters with memory start empty."""
    for item in keep:
        name, argument = split(item)
        arguments = () if argument is None else (argument,)
        apply = FILTERS[name].apply
        if isinstance(apply, type):
            yield name, apply(*arguments)
        else:
            yield name, partial(_with_arguments, apply, arguments)


def _with_arguments(apply: Callable, arguments: tuple, row: Row) -> Any:
    return apply(row, *arguments)


def refusal(row: Row, filters: list[tuple[str, Callable]]) -> tuple[str, str, str | None] | None:
    """Return name, evidence and matching row of the first filter that rejects the row; None if all keep it.

    Raises RecipeError if a filter returns neither None nor evidence.
    """
    for name, apply in filters:
        outcome = apply(row)
        if outcome is not None:
            evidence, matched = outcome if isinstance(outcome, tuple) and len(outcome) == 2 else (outcome, None)
            if not isinstance(evidence, str) or not isinstance(matched, str | None):
                raise RecipeError(
                    f"filter `{name}` returned {shorten(outcome)} about problem `{row['problem']}`; expected None to keep "
                    "the row, or a text with the evidence against it. Fix the filter."
                )
            return name, evidence.encode("utf-8", "replace").decode(), matched  # half a surrogate pair fits no table
    return None
