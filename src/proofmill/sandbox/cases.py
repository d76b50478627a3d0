"""Tests of a problem: what a program reads and prints, or an expression and its value after the program ran.

From: the tests that come with the problems of open-r1's code rewards (input and output), and those of CRUXEval (Gu et
al. 2024: a call and its result).

How we differ:
1. Two outputs are the same if all their lines are. open-r1 compares only as many lines as the shorter output has, so
   that an empty output passes every test.
2. Values are compared as literals: this process never executes a problem's answer.
3. A call that compares, such as `f(1) == 2`, is decided outside the program's process (`Question`): what a program makes
   of `==` or `abs` is of no use to it. How a test is asked depends on its call alone, never on what is expected.
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
from proofmill.sandbox.executions import Result
from proofmill.sandbox.programs import SETUPS

MOST_MEGABYTES = 4096  # that a test may ask for
_OPTIONS = {"close", "setup", "megabytes"}


@dataclass(frozen=True)
class Case:
    """One test of a program.

    The program reads `stdin` and must print `stdout`; or after it ran, the expression `call` must have the value
    `result`. Numbers are equal up to `close`, absolutely or relatively; None where what is printed must be the same text.
    `setup` names what precedes the program (programs.SETUPS), `megabytes` is its memory where it is not the sandbox's.
    """

    stdin: str = ""
    stdout: str = ""
    call: str = ""
    result: str = ""  # as `repr` writes it
    close: float | None = None
    setup: str = ""
    megabytes: float | None = None

    def passed(self, result: Result) -> bool:
        """Return whether the value of the call, or what was printed, is what the test expects."""
        if self.call:
            return same_value(result.value, self.result, self.close)
        return same_lines(result.printed, self.stdout, self.close)

    @cached_property
    def question(self) -> "Question | None":
        """How the test is asked so that the program does not answer it itself; None where it only gives a value."""
        return question_of(self.call) if self.call else None


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
    if not isinstance(row, dict) or set(row) - _OPTIONS not in ({"input", "output"}, {"call", "result"}):
        raise _wrong(f"{where} is `{json.dumps(row)[:60]}`")
    close, setup, megabytes = (row.pop(name, None) for name in ("close", "setup", "megabytes"))
    if setup is not None and not (isinstance(setup, str) and setup in SETUPS):
        raise _wrong(f"the setup of {where} is `{json.dumps(setup)[:60]}`")
    if megabytes is not None and not (type(megabytes) in (int, float) and 8 <= megabytes <= MOST_MEGABYTES):
        raise _wrong(f"the megabytes of {where} are `{json.dumps(megabytes)[:60]}`")
    if close is not None and not (type(close) in (int, float) and 0 <= close < math.inf):
        raise _wrong(f"how `close` numbers are in {where} is `{json.dumps(close)[:60]}`")
    if "result" in row and not isinstance(row["result"], str):
        row["result"] = repr(row["result"])
    for name, text in row.items():
        if not isinstance(text, str) or re.search("[\ud800-\udfff]", text):
            raise _wrong(f"the {name} of {where} is no text")
    if "input" in row:
        return Case(row["input"], row["output"], close=close, setup=setup or "", megabytes=megabytes)
    case = Case(call=row["call"], result=row["result"], close=close, setup=setup or "", megabytes=megabytes)
    try:
        _ = case.question
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _wrong(f"the call of {where} is no expression of Python") from None
    try:
        values.parse(case.result)
    except ValueError as error:
        raise _wrong(f"the result of {where}, `{case.result[:60]}`, is {error}") from None
    return case


def _wrong(fault: str) -> ValueError:
    return ValueError(
        f'tests: {fault}; expected a JSON list of tests such as {{"input": "1 2\\n", "output": "3\\n"}} (what a program '
        'reads and prints) or {"call": "f(1, 2)", "result": "3"} (an expression and its value as Python writes it), with '
        '`"close": 1e-6` where numbers need be only so close, `"setup": "leetcode"` for the usual imports and '
        f'`"megabytes": 1024` for memory up to {MOST_MEGABYTES}. Correct the answer of the problem.'
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
        body = self.tree
        if not (isinstance(body, ast.Compare) and len(body.ops) == 1 and isinstance(body.ops[0], (ast.Eq, ast.NotEq))):
            return None
        try:
            sides = [values.parse(self._filled(side, found)) for side in (body.left, body.comparators[0])]
        except ValueError:
            return None
        return values.same(*sides) == isinstance(body.ops[0], ast.Eq)

    def _filled(self, node: ast.AST, found: Sequence[str]) -> str:
        if isinstance(node, ast.Name) and node.id.startswith("_part_"):
            return found[int(node.id[6:])]
        return ast.unparse(node)

    def of(self, found: Sequence[str]) -> str:
        """The expression with the values of its parts, for an empty program that imports `math`."""
        literals = [values.expression(value) for value in found]

        class Filled(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.AST:
                _, _, number = node.id.partition("_part_")
                return literals[int(number)] if number.isdecimal() else node

        return ast.unparse(Filled().visit(values.expression(ast.unparse(self.tree))))


def question_of(call: str) -> Question | None:
    """What is asked of a program's values; None where a call is no more than a value that the program gives."""
    tree = values.expression(call)
    if _root(tree) or any(isinstance(node, (ast.comprehension, ast.Lambda, ast.NamedExpr)) for node in ast.walk(tree)):
        return None
    parts: list[str] = []

    class Emptied(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            if isinstance(node, ast.expr) and _root(node):
                parts.append(ast.unparse(node))
                return ast.Name(f"_part_{len(parts) - 1}", ast.Load())
            return self.generic_visit(node)

    emptied = Emptied().visit(tree)
    return Question(tuple(parts), emptied) if parts and any(map(_says_truth, ast.walk(emptied))) else None


def _says_truth(node: ast.AST) -> bool:
    """Return whether a node compares, negates, or calls a function that says whether something is so."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        return name in ("all", "any", "bool", "callable", "hasattr", "issubclass") or name.startswith("is")
    return isinstance(node, (ast.Compare, ast.Not))


def _root(node: ast.AST) -> bool:
    """Whether an expression is a name of the program's, or a call, attribute or item of such."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id not in _GIVEN
