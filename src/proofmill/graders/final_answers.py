r"""Whether the final answer of a text is the gold answer, decided by mathematics and without a language model.

    with Verifier() as verifier:
        for check in verifier.check(pairs):  # of (gold, text), any number of them
            ...

From: math-verify 0.9 in strict mode, as the training environment of QED-Nano calls it. We take over its verdicts. What
we add is that a verdict always comes, within seconds, and that the machine survives it.

How we differ:
1. A pair is judged in a process that dies when the pair takes too much time or memory. A time-out by a signal handler
   works in a main thread only; elsewhere it failed silently and made every reward 0 (verl, pull request 5635).
2. The kernel keeps the clock and counts the processor time of one pair from its first instruction. Neither the pair's
   wait in a queue (which made false zeros: PrimeIntellect's verifiers, pull request 831) nor other work counts.
3. A pair that cannot be judged is `unparsable`, with the cause, or `no-gold` if the gold answer cannot be read.
   math-verify by itself calls it wrong: a time-out, an exception, and such a gold answer, so that every answer to that
   problem is wrong.
4. Only LaTeX is parsed. math-verify goes on to look for any number, so that `k \equiv 1 \pmod 4` and
   `k \equiv 3 \pmod 4` both are 4.
5. Answers with the same normal form are equal before anything is parsed (`answers.normal`).

Known errors of math-verify, left as they are: words at the end count as a unit and are dropped, so that `n \text{ odd}`
equals `n \text{ even}`; the base of `43_5` is dropped too; `60,120` is one number; `1,3` equals `(1,3)`; letters are
factors in any order, so that a word equals another one of the same letters.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from proofmill.schema.errors import VerifierError
from proofmill.text.answers import extract, normal, of_gold

Status = Literal["correct", "wrong", "no-answer", "unparsable", "no-gold"]
LONGEST = 1000  # characters of an answer (QED-Nano: max_prediction_length)
SECONDS = 2.0  # of processor time for one pair (QED-Nano: 1 s by the wall); MATH, GSM8K and AIME need less


@dataclass(frozen=True)
class Check:
    """The verdict on one text."""

    status: Status
    answer: str | None  # the final answer of the text
    detail: str = ""  # why it cannot be judged


class Decision(NamedTuple):
    """A verdict without the answer that it is about."""

    status: Status
    detail: str = ""


class Pair(NamedTuple):
    """A gold answer and an answer in normal form: all that a verdict depends on and that a worker receives."""

    gold: str
    answer: str


# ------------------------------------------------------------------------------------------------------------- one pair


def judge(gold: str, text: str) -> Check:
    """Judge one pair in this process, however long it takes. `gold` is bare, in dollars, boxed, or a whole solution."""
    answer, pair = read_pair(gold, text)
    verdict = pair if isinstance(pair, Decision) else by_mathematics(pair)
    return Check(verdict.status, answer, verdict.detail)


def read_pair(gold: str, text: str) -> tuple[str | None, Pair | Decision]:
    """The final answer of a text, and the decision if the two texts alone settle it, else the pair to be compared."""
    answer = extract(text)
    if answer is None:
        return None, Decision("no-answer")
    if not (form := _gold_form(gold)):
        return answer, Decision("no-gold", "gold answer is empty")
    if len(answer) > LONGEST:
        return answer, Decision("unparsable", f"over {LONGEST:,} characters")
    pair = Pair(form, normal(answer))
    if not pair.answer:
        return answer, Decision("unparsable", "answer is empty")
    return answer, Decision("correct") if pair.gold == pair.answer else pair


@lru_cache(maxsize=4096)
def _gold_form(gold: str) -> str:
    return normal(of_gold(gold))


def by_mathematics(pair: Pair) -> Decision:
    """math-verify's verdict in strict mode; unparsable or no-gold where it fails or cannot read one of the two."""
    from math_verify import verify

    try:
        gold = _parsed(pair.gold)
    except _failures() as error:
        return Decision("no-gold", f"gold answer: {type(error).__name__}")
    try:
        answer = _parsed(pair.answer)
        # Each list ends with the text. Reversed, the texts are compared first, which cannot fail.
        if verify(gold[::-1], answer[::-1], strict=True, timeout_seconds=None, raise_on_error=True):
            return Decision("correct")
    except _failures() as error:
        return Decision("unparsable", type(error).__name__)
    if _is_text(gold):
        return Decision("no-gold", "gold answer cannot be parsed")
    return Decision("unparsable", "answer cannot be parsed") if _is_text(answer) else Decision("wrong")


def _is_text(parsed: list[Any]) -> bool:
    """Whether math-verify read no more than the text itself."""
    return all(isinstance(item, str) for item in parsed)


@lru_cache(maxsize=4096)
def _parsed(form: str) -> list[Any]:
    """What math-verify reads: SymPy's expression, unless there is none, and the text that it was taken from."""
    from math_verify import LatexExtractionConfig, parse

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it has no time-out
    return parse(f"\\boxed{{{form}}}", [LatexExtractionConfig()], parsing_timeout=None)


@lru_cache(maxsize=1)
def _failures() -> tuple[type[BaseException], ...]:
    """Exceptions that SymPy raises at an expression that it cannot handle; any other exception ends the worker."""
    from mpmath.libmp.libhyper import NoConvergence
    from sympy import PoleError
    from sympy.polys.polyerrors import BasePolynomialError

    return (
        ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, SyntaxError, TypeError,
        ValueError, BasePolynomialError, NoConvergence, PoleError,
    )  # fmt: skip


_INTEGER = re.compile(r"-?[0-9]{1,300}")


def by_integers(pair: Pair) -> Decision | None:
    r"""The verdict of `by_mathematics` on two plain integers, without a parser; None for any other pair.

    In `\boxed{-007}` math-verify's normalisation changes nothing (there is no unit, dollar, fraction or decimal). Its
    grammar finds one NUMBER, without leading zeros, under at most one unary minus, and SymPy makes an Integer of that
    value. Two Integers are compared by a == b, then by a - b = 0; and texts of different values differ. The limit of
    300 digits is there because Python refuses to read more than 4,300.
    """
    if _INTEGER.fullmatch(pair.gold) and _INTEGER.fullmatch(pair.answer):
        return Decision("correct" if int(pair.gold) == int(pair.answer) else "wrong")
    return None


_POINT = (1.2345, 0.377)  # value of the first symbol, and the step from each symbol to the next


def by_values(pair: Pair) -> Decision | None:
    """Wrong, where two answers clearly differ at a point; None where their values settle nothing.

    `by_mathematics` would give the same verdict, many times later or never (5 against 9^{9^9}). It calls
    two expressions equal if they are the same, if the numbers round to the same six decimals, if their difference is 0
    in 15 digits, or if it simplifies to 0; where the values differ, none of these holds. Left out are a symbol alone,
    which may stand for a word, and a percentage, which may stand for a number. An expression equals no set, tuple or
    interval with two members that differ.
    """
    try:
        fewer, more = sorted((_members(_expression(form)) for form in pair), key=len)
        if len(fewer) != 1:
            return None
        members = fewer + more if len(more) == 1 else more
        symbols = sorted(set().union(*(member.free_symbols for member in members)), key=str)
        point = {symbol: _POINT[0] + n * _POINT[1] for n, symbol in enumerate(symbols)}
        values = [member.evalf(15, subs=point, strict=True) for member in members]
        clear_gap = max(1e-3, 1e-9 * max(map(abs, values)))
        gaps = (abs(value - values[0]) for value in values)
        return Decision("wrong") if any(gap.is_finite and gap > clear_gap for gap in gaps) else None
    except _failures():
        return None


def _expression(form: str) -> Any:
    """The expression of an answer, read as in `by_integers` where it is a plain integer; None where there is none."""
    import sympy

    if _INTEGER.fullmatch(form):
        return sympy.Integer(form)
    return next((item for item in _parsed(form) if not isinstance(item, str)), None)


def _members(expression: Any) -> list[Any]:
    """Members of a set or tuple, ends of an interval, or an expression itself; [] where a part is of another kind.

    Parts may be sums, products, powers, numbers and symbols: SymPy knows how many digits of their values are right.
    """
    import sympy

    if isinstance(expression, sympy.Union):
        parts = [_members(part) for part in expression.args]
        return [member for part in parts for member in part] if all(parts) else []
    if isinstance(expression, sympy.Interval):
        members = [expression.start, expression.end]
    elif isinstance(expression, (sympy.FiniteSet, sympy.Tuple)):
        members = list(expression.args)
    else:
        members = [expression]
    plain = (sympy.Add, sympy.Mul, sympy.Pow, sympy.Number, sympy.NumberSymbol, sympy.Symbol)
    word = len(members) == 1 and isinstance(members[0], sympy.Symbol)
    inner = (part for member in members for part in sympy.preorder_traversal(member))
    return members if not word and all(isinstance(part, plain) for part in inner) else []


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
    """Raises VerifierError unless the statuses of the known answers are right (None: not decided, and not compared)."""
    for (gold, text, expected), status in zip(CANARIES, statuses, strict=True):
        if status not in (None, expected):
            raise VerifierError(
                f"verifier: `{text}` against the gold answer `{gold}` is found {status}; expected {expected}. "
                "Install math-verify, latex2sympy2_extended and sympy as envs/cpu.txt has them."
            )
