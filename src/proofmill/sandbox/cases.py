"""Tests of a problem: what a program reads and prints, or an expression and its value after the program ran.

From: the tests that come with the problems of open-r1's code rewards (input and output), and those of CRUXEval (Gu et
al. 2024: a call and its result).

How we differ:
1. Two outputs are the same if all their lines are. open-r1 compares only as many lines as the shorter output has, so
   that an empty output passes every test.
2. Values are compared as literals: this process never executes a problem's answer.
3. A test whose result is a truth value, such as `f(1) == 2`, is decided outside the program's process (`Question`): what
   a program makes of `==` or `abs` is of no use to it.
"""

import ast
import builtins
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from proofmill.sandbox import values


@dataclass(frozen=True)
class Case:
    """One test of a program.

    The program reads `stdin` and must print `stdout`; or after it ran, the expression `call` must have the value
    `result`. Numbers are equal up to `close`, absolutely or relatively; None where what is printed must be the same text.
    """

    stdin: str = ""
    stdout: str = ""
    call: str = ""
    result: str = ""  # as `repr` writes it
    close: float | None = None

    @property
    def expected(self) -> str:
        return self.result if self.call else self.stdout

    def passed(self, value: str) -> bool:
        """Whether a value, of the call or of what was printed, as values.write writes it, is what the test expects."""
        if self.call:
            return same_value(value, self.result, self.close)
        return same_lines(values.parse(value), self.stdout, self.close)

    @cached_property
    def question(self) -> "Question | None":
        """How the test is asked so that the program does not answer it itself; None where it only gives a value."""
        return question_of(self.call) if self.result.strip() in ("True", "False") else None


@lru_cache(maxsize=4096)
def cases_of(answer: str) -> tuple[Case, ...]:
    """The tests in a problem's answer. Raises ValueError with a sentence that says what is wrong with them."""
    try:
        rows = json.loads(answer)
    except (ValueError, RecursionError):
        raise _wrong(f"`{answer[:60]}` is not JSON") from None
    if not isinstance(rows, list) or not rows:
        raise _wrong(f"`{answer[:60]}` is no list with a test in it")
    try:
        return tuple(_case(row, f"test {n}") for n, row in enumerate(rows, 1))
    except RecursionError:  # what could just be read may be too deep to be written
        raise _wrong(f"`{answer[:60]}` is nested too deeply") from None


def _case(row: Any, where: str) -> Case:
    if not isinstance(row, dict) or set(row) - {"close"} not in ({"input", "output"}, {"call", "result"}):
        raise _wrong(f"{where} is `{json.dumps(row)[:60]}`")
    close = row.pop("close", None)
    if close is not None and not (type(close) in (int, float) and 0 <= close < math.inf):
        raise _wrong(f"how `close` numbers are in {where} is `{json.dumps(close)[:60]}`")
    if "result" in row and not isinstance(row["result"], str):
        row["result"] = repr(row["result"])
    for name, text in row.items():
        if not isinstance(text, str) or re.search("[\ud800-\udfff]", text):
            raise _wrong(f"the {name} of {where} is no text")
    if "input" in row:
        return Case(stdin=row["input"], stdout=row["output"], close=close)
    try:
        ast.parse(row["call"].strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _wrong(f"the call of {where} is no expression of Python") from None
    return Case(call=row["call"], result=row["result"], close=close)


def _wrong(fault: str) -> ValueError:
    return ValueError(
        f'tests: {fault}; expected a JSON list of tests such as {{"input": "1 2\\n", "output": "3\\n"}} (what a program '
        'reads and prints) or {"call": "f(1, 2)", "result": "3"} (an expression and its value as Python writes it), with '
        '`"close": 1e-6` where numbers need be only so close. Correct the answer of the problem.'
    )


# ------------------------------------------------------------------------------------------------------------ comparing


def same_lines(one: str, other: str, close: float | None = None) -> bool:
    """Whether two outputs have the same lines, apart from blanks at line ends and blank lines at the end.

    With `close`, words that are numbers are compared as numbers, and blanks between words do not matter.
    """
    lines, others = ([line.rstrip() for line in text.rstrip().split("\n")] for text in (one, other))
    if lines == others or close is None:
        return lines == others
    return len(lines) == len(others) and all(
        len(line.split()) == len(its.split()) and all(map(_same_word, line.split(), its.split(), [close] * len(line)))
        for line, its in zip(lines, others, strict=True)
    )


_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)


def _same_word(one: str, other: str, close: float) -> bool:
    numbers = _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other)
    return one == other or (bool(numbers) and _same_number(_number(one), _number(other), close))


def _number(text: str) -> float:
    return int(text) if re.fullmatch(r"[+-]?\d{1,4000}", text, re.ASCII) else float(text)


def _same_number(one: Any, other: Any, close: float) -> bool:
    try:
        return one == other or math.isclose(one, other, rel_tol=close, abs_tol=close)
    except OverflowError:
        return False


def same_value(text: str, other: str, close: float | None = None) -> bool:
    """Whether two texts, as `repr` writes values, are the same, or literals of equal values."""
    if text.strip() == other.strip():
        return True
    try:
        value, its = values.parse(text), values.parse(other)
    except ValueError:
        return False
    return values.same(value, its) or (close is not None and _close(value, its, close))


def _close(one: Any, other: Any, close: float) -> bool:
    """Whether two values are the same but for numbers that are close."""
    if isinstance(one, (list, tuple)) and type(one) is type(other) and len(one) == len(other):
        return all(_close(item, its, close) for item, its in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return all(_close(item, other[key], close) for key, item in one.items())
    numbers = all(isinstance(value, (int, float)) for value in (one, other))
    return _same_number(one, other, close) if numbers else values.same(one, other)


# ------------------------------------------------------------------------------------------------- what is true of values

_GIVEN = {*dir(builtins), "math"} - {"eval", "exec", "globals", "locals", "vars", "__import__"}


@dataclass(frozen=True)
class Question:
    """A truth about values that a program computes: `abs(f(1) - 2) < 1e-6` asks for `f(1)`, and is then asked of that."""

    parts: tuple[str, ...]  # expressions that the program evaluates
    tree: ast.AST  # an expression: the truth, where the name `_part_n` stands for the n-th

    def answered(self, found: Sequence[str]) -> bool | None:
        """Whether it is true, where it says no more than that two values are, or are not, the same; else None."""
        body = getattr(self.tree, "body", None)
        if not (isinstance(body, ast.Compare) and len(body.ops) == 1 and isinstance(body.ops[0], (ast.Eq, ast.NotEq))):
            return None
        try:
            sides = [values.parse(self._filled(side, found)) for side in (body.left, body.comparators[0])]
        except ValueError:
            return None
        return values.same(*sides) == isinstance(body.ops[0], ast.Eq)

    def _filled(self, node: ast.AST, found: Sequence[str]) -> str:
        is_part = isinstance(node, ast.Name) and node.id.startswith("_part_")
        return found[int(node.id[6:])] if is_part else ast.unparse(node)

    def of(self, found: Sequence[str]) -> str:
        """The expression with the values of its parts, for an empty program that imports `math`."""
        literals = [ast.parse(value, mode="eval").body for value in found]

        class Filled(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.AST:
                _, _, number = node.id.partition("_part_")
                return literals[int(number)] if number.isdecimal() else node

        tree = ast.parse(ast.unparse(self.tree), mode="eval")
        return ast.unparse(Filled().visit(tree))


def question_of(call: str) -> Question | None:
    """What is asked of a program's values; None where a call is no more than a value that the program gives."""
    tree = ast.parse(call.strip(), mode="eval")
    if _root(tree.body) or any(
        isinstance(node, (ast.comprehension, ast.Lambda, ast.NamedExpr)) for node in ast.walk(tree)
    ):
        return None
    parts: list[str] = []

    class Emptied(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            if isinstance(node, ast.expr) and _root(node):
                parts.append(ast.unparse(node))
                return ast.Name(f"_part_{len(parts) - 1}", ast.Load())
            return self.generic_visit(node)

    emptied = Emptied().visit(tree)
    return Question(tuple(parts), emptied) if parts else None


def _root(node: ast.AST) -> bool:
    """Whether an expression is a name of the program's, or a call, attribute or item of such."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id not in _GIVEN
