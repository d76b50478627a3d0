r"""Compare the final answer of a text with the gold answer by mathematics, without a language model.

    with Verifier() as verifier:
        for check in verifier.check(pairs):  # of (gold, text), any number of them
            ...

extraction.py extracts an answer from a text, parse.py parses it, and equality.py compares two. They build on the parser of
math-verify 0.9, and use math-verify's comparison if no values can be compared.

Differences from math-verify:
1. A pair is judged in a process that dies when the pair takes too much time or memory. A timeout by a signal handler
   works in a main thread only; elsewhere it failed silently and made every reward 0 (verl, pull request 5635).
2. The kernel keeps the clock and counts the processor time of one pair from its first instruction. Waiting
   in a queue does not count (it made false zeros: PrimeIntellect's verifiers, pull request 831), nor does other work.
3. A pair that cannot be judged is `unparsable`, with the cause, or `no-gold` if the gold answer cannot be parsed. Gold
   answers are parsed in the same processes, under the same limits of length, time and memory, as answers. math-verify
   calls such pairs wrong, whether the cause is a timeout, an exception or an unreadable gold answer.
4. An answer is parsed completely. Nothing in it is dropped, and no part is picked out (answers/parse.py).
5. Answers with the same normal form are equal without any parsing (`answers.normal`).

As in math-verify: letters are factors in any order, so `abc` equals `cab`; a word with a vowel in it is a word.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal, NamedTuple

from proofmill.answers.comparison import identities
from proofmill.answers.comparison.equality import doubt, equal, may_agree, unread
from proofmill.answers.comparison.values import Unclear, Unreadable
from proofmill.answers.extraction import extract, normal, of_gold
from proofmill.answers.reading import formulas
from proofmill.answers.reading.forms import Several, formulas_in
from proofmill.answers.reading.parse import readings
from proofmill.schema.errors import VerifierError

Answers = tuple[str | None, str | None]  # a text's final answer by all of its boxes, and by the last ones
Status = Literal["correct", "wrong", "no-answer", "unparsable", "no-gold"]
LONGEST = 1000  # characters of an answer (QED-Nano: max_prediction_length)
SECONDS = 2.0  # processor time to parse a gold answer, and again to compare it (QED-Nano: 1 s of wall time)


@dataclass(frozen=True)
class EqualityCheck:
    """The verdict on one text."""

    status: Status
    answer: str | None  # the final answer of the text
    detail: str = ""  # why it cannot be judged


class Decision(NamedTuple):
    """A verdict without its answer. With `last`, it is about the last boxes of a text, not about all of them."""

    status: Status
    detail: str = ""
    last: bool = False


class AnswerPair(NamedTuple):
    """A gold answer and an answer in normal form: everything that a verdict depends on, sent to a worker.

    `answer` joins all boxes, for a problem that asks for several values; `last` has only the last ones, for other problems.
    A Decision replaces an answer that has no normal form.
    """

    gold: str
    answer: str | Decision
    last: str | Decision


# ------------------------------------------------------------------------------------------------------------- one pair


def judge(gold: str, text: str) -> EqualityCheck:
    """Judge one pair in this process, without a time limit. `gold` is bare, in dollars, boxed, or a full solution."""
    answers, pair = read_pair(gold, text)
    return check_of(answers, pair if isinstance(pair, Decision) else by_mathematics(pair))


def read_pair(gold: str, text: str) -> tuple[Answers, AnswerPair | Decision]:
    """Return the final answers of a text, of all boxes and of the last ones, and the decision or the pair to compare.

    The decision is returned if the texts alone settle it. The gold answer is not parsed here.
    """
    answers = extract(text), extract(text, several=False)
    if answers == (None, None):
        return answers, Decision("no-answer")
    form = gold_form(gold)
    if isinstance(form, Decision):
        return answers, form
    answer, last = map(_answer_form, answers)
    if answers[0] == answers[1] and (isinstance(answer, Decision) or answer == form):
        return answers, answer if isinstance(answer, Decision) else Decision("correct")
    return answers, AnswerPair(form, answer, last)


def check_of(answers: Answers, decision: Decision) -> EqualityCheck:
    """Return a decision with its answer."""
    return EqualityCheck(decision.status, answers[decision.last], decision.detail)


@lru_cache(maxsize=4096)
def gold_form(gold: str) -> str | Decision:
    """Return the normal form of a gold answer, or `no-gold` if it is empty or too long."""
    answer = of_gold(gold)
    if len(answer) > LONGEST:
        return Decision("no-gold", f"gold answer has over {LONGEST:,} characters")
    return normal(answer) or Decision("no-gold", "gold answer is empty")


def _answer_form(answer: str | None) -> str | Decision:
    """Return the normal form of an answer, or why it has none."""
    if answer is None:
        return Decision("no-answer")
    if len(answer) > LONGEST:
        return Decision("unparsable", f"over {LONGEST:,} characters")
    return normal(answer) or Decision("unparsable", "answer is empty")


def by_mathematics(pair: AnswerPair) -> Decision:
    """Decide whether two answers are equal; unparsable or no-gold if a part of one of them cannot be parsed."""
    return compare(pair, *read_gold(pair.gold))


@lru_cache(maxsize=4096)
def read_gold(form: str) -> tuple[bool, str]:
    """Return whether a gold answer may be several values, and why it cannot be parsed (or ""). Raises nothing.

    Like `compare`, it may take long, or end the process.
    """
    several = False
    try:
        several = any(isinstance(gold, Several) and len(gold.members) > 1 for gold in readings(form))
        part = unread(form)
        return several, f"gold answer cannot be read: {part}" if part else ""
    except formulas.failures() as error:
        return several, f"gold answer: {type(error).__name__}"


def compare(pair: AnswerPair, several: bool, fault: str) -> Decision:
    """Decide on the answer that counts: all boxes if several values are asked for, else the last ones."""
    answer = pair.answer if several else pair.last
    if answer != pair.gold and fault:
        return Decision("no-gold", fault, not several)
    decision = answer if isinstance(answer, Decision) else _compare(pair.gold, answer)
    return decision._replace(last=not several)


def _compare(gold: str, answer: str) -> Decision:
    if gold == answer:
        return Decision("correct")
    try:
        pairs = list(product(readings(gold), readings(answer)))
        for one, other in pairs:
            if equal(one, other):
                return Decision("correct", doubt(one, other))
        if any(next(formulas_in(form), None) for pair in pairs for form in pair):
            with identities.assuming():
                if any(equal(one, other) for one, other in pairs):
                    return Decision("correct", "doubtful: equal if letters are positive, or whole numbers")
        if part := unread(answer):
            return Decision("unparsable", f"cannot be read: {part}")
        doubts = {may_agree(one, other) for one, other in pairs}
        return Decision("unparsable", f"not clear: {max(doubts)}") if max(doubts) else Decision("wrong")
    except Unclear as error:
        return Decision("unparsable", f"not clear: {error}")
    except Unreadable as error:
        return Decision("unparsable", f"cannot be read: {error}")
    except formulas.failures() as error:
        return Decision("unparsable", type(error).__name__)


_INTEGER = re.compile(r"-?[0-9]{1,300}")


def by_integers(pair: AnswerPair) -> Decision | None:
    r"""Return the verdict of `by_mathematics` on two plain integers, without a parser; None for any other pair.

    In `\boxed{-007}` math-verify's normalization changes nothing (there is no unit, dollar, fraction or decimal). Its
    grammar finds one NUMBER, without leading zeros, under at most one unary minus, and SymPy makes an Integer of that
    value. Two Integers are compared by a == b, then by a - b = 0; texts of different values differ. The limit is 300
    digits because Python parses at most 4,300.
    """
    if isinstance(pair.last, str) and _INTEGER.fullmatch(pair.gold) and _INTEGER.fullmatch(pair.last):
        return Decision("correct" if int(pair.gold) == int(pair.last) else "wrong", "", last=True)  # it is one value
    return None


# -------------------------------------------------------------------------------------------------------- known answers

CANARIES: tuple[tuple[str, str, Status], ...] = (
    ("18", "#### 18", "correct"),
    ("18", r"\boxed{19}", "wrong"),
    ("$18$", "The answer is 18.", "no-answer"),
    (r"\boxed{\frac{1}{2}}", r"So $\boxed{0.5}$.", "correct"),
    (r"\{1,2\}", r"\boxed{2}, \boxed{1}", "correct"),
    ("(2,1)", r"\boxed{\{1,2\}}", "wrong"),
    ("x+1", r"\boxed{y+1}", "wrong"),
    ("(x+1)^2", r"\boxed{x^2+2x+1}", "correct"),
    (r"\frac{2\sqrt{3}}{\pi}", r"\boxed{\frac{2 \sqrt{3}}{3}}", "wrong"),
    (r"(-\infty,-1)\cup[2,3)", r"\boxed{[2,3)\cup(-\infty,-1)}", "correct"),
    (r"\begin{pmatrix} 1 \\ -2 \end{pmatrix}", r"\boxed{\begin{pmatrix} 1 & -2 \end{pmatrix}}", "wrong"),
    ("7", r"\boxed{\frac{7}}", "unparsable"),
)


def check_canaries(statuses: Sequence[str | None]) -> None:
    """Raise VerifierError if a status of the known answers is wrong. None is not compared: it is not decided yet."""
    for (gold, text, expected), status in zip(CANARIES, statuses, strict=True):
        if status not in (None, expected):
            raise VerifierError(
                f"verifier: `{text}` with the gold answer `{gold}` is {status}; expected {expected}. "
                "Install the versions of math-verify, latex2sympy2_extended and sympy in envs/cpu.txt."
            )
