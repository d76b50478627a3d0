"""Filters refuse a row of `problems` with their evidence, or let it pass: `keep: [is-proof, no-image]`.

A filter is a function of the row and, if it has one, its argument. It returns its evidence, or None to let the row
pass. A row has the columns of `problems`, and besides them `label` and `scheme` (its rows of those tables) and `rate`
(the mean of its grades as a share of full marks), each None where there is none. Filters that remember the rows that
were kept are classes.

From: the data filter of QED-Nano, and the pass-rate filter of open-r1.

How we differ:
1. QED-Nano writes labels and drops nothing; here each label is a filter, and a row without a label never passes one.
2. A dropped row stays in the table with the filter's name and evidence.
3. Duplicates are compared with kept rows only, so a row refused for another reason does not drop its duplicates.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from proofmill.contamination.alike import Alike
from proofmill.contamination.similarity import Overlap, shingles
from proofmill.schema.named import Named, split, within
from proofmill.schema.reasons import Reason
from proofmill.text import formats, statements
from proofmill.text.asks import ASKS_PROOF
from proofmill.text.seen import Seen, Texts

Row = Mapping[str, Any]
Refusal = tuple[str, str | None]  # the evidence, and the id of the row that the refused row matches
_INSTRUCTION = re.compile(
    r"\b(find|determine|compute|calculate|evaluate|solve|simplify|express|what(?:'s)?|who|when|"
    r"how (?:many|much|long|far|old|fast|tall|often)|which|is it (?:true|possible)|(?:does|do) there exist|"
    r"can (?:he|she|it|they|we|you|one)|construct|factor|give|"
    r"let|suppose|consider|given|if|for (?:all|every|any|which))\b",
    re.IGNORECASE,
)


def _short(text: str, length: int = 80) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 3]}..."


# --------------------------------------------------------------------------------------------------------- from the row


def _has_problem(row: Row) -> str | None:
    return None if (row["statement"] or "").strip() else "the statement is empty"


_POINTER = re.compile(
    r"^\W*+(?:(?:first|second|third|fourth|another|alternative|official)\s+(?:solution|proof|method|approach)|"
    r"(?:solution|proof|answer|problem|part|question)\s*+[0-9a-z]?+|see (?:above|below)|same as (?:above|below))\W*+$",
    re.IGNORECASE,
)


def _is_problem(row: Row) -> str | None:
    """Refuses headings, pointers, and lines that have no formula and pose nothing."""
    statement = (row["statement"] or "").strip()
    poses = (
        _FORMULA.search(statement) or _INSTRUCTION.search(statement) or ASKS_PROOF.search(statement) or "?" in statement
    )
    return None if poses and not _POINTER.match(statement) else f"states no problem: {_short(statement)}"


def _has_scheme(row: Row) -> str | None:
    scheme = row["scheme"]
    if scheme is None:
        return "no scheme: there is no row for it"
    if scheme["dropped"] is not None:
        return f"its scheme was refused: {scheme['dropped']} ({', '.join(scheme['faults']) or scheme['tested'] or scheme['reason']})"
    return None if scheme["scheme"] else f"no scheme: {scheme['reason']}"


def _has_solution(row: Row) -> str | None:
    return None if (row["solution"] or "").strip() else "there is no solution"


def _has_answer(row: Row) -> str | None:
    return None if (row["answer"] or "").strip() else "there is no answer"


def _has_readable_answer(row: Row) -> str | None:
    """Refuses a right answer with which `final-answer` could compare nothing; tests of a program are none.

    `fault` of the row reads the answer as `final-answer` does, within its limits (graders/verifier.py).
    """
    if missing := _has_answer(row):
        return missing
    if row["asks"] == "code":
        return None
    fault = row["fault"](row["answer"])
    return _short(fault) if fault else None


def _is_proof(row: Row) -> str | None:
    return None if row["asks"] == "proof" else f"asks for an answer: {_short(row['statement'] or '')}"


# An address or a `![` is searched up to the next one, which is searched in its turn.
_IMAGE = re.compile(
    r"\[img\b|\[/img\]|\[attachment\b|\[asy\]|\\includegraphics|!\[(?:(?!!\[)[^\]\n])*+\]\(|<img\b|\[image\b|"
    r"https?://(?:(?!https?://)\S)+?\.(?:png|jpe?g|gif|svg|bmp|webp)\b",
    re.IGNORECASE,
)


_DRAWING = re.compile(r"\[asy\](?:(?!\[asy\]).)*?\[/asy\]", re.DOTALL | re.IGNORECASE)


def _no_image(row: Row) -> str | None:
    """An Asymptote drawing counts in the statement, which may need it, but not in the solution."""
    for column, text in (("statement", row["statement"] or ""), ("solution", _DRAWING.sub("", row["solution"] or ""))):
        if match := _IMAGE.search(text):
            return f"the {column} has an image: {_short(text[match.start() : match.start() + 80])}"
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
    """Refuses adverts, and questions about software or the forum: such words, no formula, nothing to find or prove."""
    statement = row["statement"] or ""
    advert, link = _ADVERT.search(statement), _LINK.search(statement)
    match = advert or link or _SOFTWARE.search(statement)
    if not match or _FORMULA.search(statement):
        return None
    poses = _INSTRUCTION.search(_LINK.sub("", statement)) or ASKS_PROOF.search(statement)
    if poses and not _HOW_TO.search(statement) and not (advert and link):
        return None
    return f"no mathematics, but `{match[0]}`: {_short(statement)}"


def _statement_length(row: Row, bounds: list) -> str | None:
    return _length(row["statement"] or "", bounds)


def _solution_length(row: Row, bounds: list) -> str | None:
    return _length(row["solution"] or "", bounds)


def _logic_steps(row: Row, bounds: list) -> str | None:
    steps = formats.logic_steps(row["solution"] or "")
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


def _origin(row: Row, texts: list[str]) -> str | None:
    origin = row["origin"] or ""
    return (
        None if any(text.lower() in origin.lower() for text in texts) else f"from `{origin}`, not {' or '.join(texts)}"
    )


class NotDuplicate:
    """Refuses a statement that an earlier kept row has too, up to LaTeX spelling, punctuation and case."""

    def __init__(self) -> None:
        self.seen, self.ids = Seen(), Texts()

    def __call__(self, row: Row) -> Refusal | None:
        number = self.seen.find(statements.normal(row["statement"] or ""))
        return None if number is None else (f"the same statement as {self.ids[number]}", self.ids[number])

    def remember(self, row: Row) -> None:
        if self.seen.add(statements.normal(row["statement"] or "")) == len(self.ids):
            self.ids.append(row["problem"])


class First:
    """Lets the first `most` rows pass."""

    def __init__(self, most: int) -> None:
        self.most, self.kept = most, 0

    def __call__(self, row: Row) -> str | None:
        return f"{self.most:,} rows are kept before it" if self.kept >= self.most else None

    def remember(self, row: Row) -> None:
        self.kept += 1


class NotNearDuplicate:
    """Refuses a statement that has an earlier kept row's numbers, and nearly its words or nearly its formulas."""

    def __init__(self, threshold: float) -> None:
        self.index = Alike(threshold)

    def __call__(self, row: Row) -> Refusal | None:
        match = self.index.find(shingles(row["statement"] or ""))
        return (f"{match.by} {match.similarity:.2f} similar to {match.id}, same numbers", match.id) if match else None

    def remember(self, row: Row) -> None:
        self.index.add(row["problem"], shingles(row["statement"] or ""))


class ApartFrom:
    """Refuses a statement of a benchmark: a shared run of text (similarity.Overlap), or a near duplicate."""

    def __init__(self, words: int, similarity: float) -> None:
        self.overlap = Overlap(words)
        self.alike = Alike(similarity)

    def add(self, id: str, statement: str) -> None:
        self.overlap.add(id, statement)
        self.alike.add(id, shingles(statement))

    def __call__(self, row: Row) -> Refusal | None:
        statement = row["statement"] or ""
        if run := self.overlap.find(statement):
            return f"{run.words} tokens in a row: {_short(run.text, 300)}", run.id
        if match := self.alike.find(shingles(statement)):
            return f"{match.by} {match.similarity:.2f} similar, same numbers: {_short(statement, 300)}", match.id
        return None


# ------------------------------------------------------------------------------------------------------ from the labels


def _labelled(row: Row) -> str | None:
    if row["label"] is None:
        return "no labels: the judge was not asked"
    reason = row["label"]["reason"]
    return None if reason == Reason.OK else f"no labels: {reason}"


def _unless(label: str, evidence: str) -> Callable[[Row], str | None]:
    """A filter that passes a row only if the judge labelled it with `label` false."""

    def apply(row: Row) -> str | None:
        if refusal := _labelled(row):
            return refusal
        value = row["label"][label]
        return None if value is False else evidence if value else f"the judge gave no `{label}`"

    return apply


def _difficulty(row: Row, bounds: list) -> str | None:
    if refusal := _labelled(row):
        return refusal
    value = row["label"]["difficulty"]
    if value is None:
        return "the judge gave no `difficulty`"
    return None if within(value, bounds) else f"difficulty {value}, not {_range(bounds)}"


def _pass_rate(row: Row, bounds: list) -> str | None:
    """Both bounds are strict, as in open-r1: [0, 1] drops problems that are never or always solved."""
    rate, (low, high) = row["rate"], bounds
    if rate is None or rate != rate:
        return "no graded attempt"
    passes = (low is None or rate > low) and (high is None or rate < high)
    return None if passes else f"pass rate {rate:.3f}, not strictly {_range(bounds)}"


# ------------------------------------------------------------------------------------------------------------- the list

FILTERS: dict[str, Named] = {
    "has-problem": Named(_has_problem, "the statement is not empty"),
    "has-solution": Named(_has_solution, "there is a solution"),
    "has-answer": Named(_has_answer, "there is a final answer; of a programming problem: tests"),
    "has-readable-answer": Named(
        _has_readable_answer, "the final answer can be read whole, so that others can be compared with it"
    ),
    "is-problem": Named(
        _is_problem, "the statement states a problem: a formula, a question or an instruction, not a heading"
    ),
    "has-scheme": Named(_has_scheme, "its marking scheme was kept", needs="schemes"),
    "is-proof": Named(_is_proof, "asks for a proof: says prove, show, ..., or its solution ends a proof"),
    "no-image": Named(_no_image, "neither statement nor solution needs an image"),
    "not-spam": Named(_not_spam, "no advert, and no question about software or the forum"),
    "statement-length": Named(_statement_length, "characters of the statement", "bounds"),
    "solution-length": Named(_solution_length, "characters of the solution", "bounds"),
    "logic-steps": Named(_logic_steps, "lines of the solution but its last, `####` (GSM8K)", "bounds"),
    "year": Named(_year, "year of the contest or post; an unknown year is refused", "bounds"),
    "origin": Named(_origin, "the origin contains one of these texts", "texts"),
    "not-duplicate": Named(NotDuplicate, "no earlier kept row has the same statement after normalisation"),
    "not-near-duplicate": Named(NotNearDuplicate, "no earlier kept row has this Jaccard similarity or more", "number"),
    "labelled": Named(_labelled, "the judge's labels were there and could be read", needs="labels"),
    "complete": Named(
        _unless("incomplete", "statement or solution is partial"), "label: not incomplete", needs="labels"
    ),
    "no-gaps": Named(_unless("gaps", "the solution skips a large part"), "label: no gaps", needs="labels"),
    "not-wrong": Named(
        _unless("wrong", "the solution signals that the statement is ambiguous or false"),
        "label: not wrong",
        needs="labels",
    ),
    "undisputed": Named(
        _unless("disagreement", "a comment objects to the solution"), "label: no disagreement", needs="labels"
    ),
    "not-computational": Named(
        _unless("computational", "the difficulty is evaluating an expression"),
        "label: not computational",
        needs="labels",
    ),
    "difficulty": Named(_difficulty, "label: difficulty from 1 to 10", "bounds", needs="labels"),
    "first": Named(First, "the first rows that no other filter refuses, up to this number", "count"),
    "pass-rate": Named(_pass_rate, "mean grade as a share of full marks, both bounds strict", "bounds", needs="grades"),
}


def ready(keep: list) -> Iterator[tuple[str, Callable[[Row], str | Refusal | None]]]:
    """Name and function of each filter of a list; filters that remember begin with an empty memory."""
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
    """Name, evidence and matching row of the first filter that refuses, or None when all let the row pass."""
    for name, apply in filters:
        outcome = apply(row)
        if outcome is not None:
            evidence, matched = (outcome, None) if isinstance(outcome, str) else outcome
            return name, evidence, matched
    return None
