"""Tests of a problem: input and expected output, or an expression and its expected value after the program ran.

From: the tests that come with the problems of open-r1's code rewards (input and output), and those of CRUXEval (Gu et
al. 2024: a call and its result).

Differences from the original:
1. Two outputs are equal only if all lines are equal. open-r1 compares as many lines as the shorter output has, so an
   empty output passes every test.
2. Values are compared as literals. This process never executes a problem's answer.
3. A call that compares, such as `f(1) == 2`, is decided outside the program's process (`TestCase`), so a program gains
   nothing by redefining `==` or `abs`. The request depends on the test's call alone, never on the expected result.
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
from proofmill.sandbox.extract import SETUPS

MOST_MEGABYTES = 4096  # that a test may request
_OPTIONS = {"close", "setup", "megabytes"}


@dataclass(frozen=True)
class Case:
    """One test of a program.

    Either the program reads `stdin` and must print `stdout`, or the expression `call`, evaluated after the program, must
    have the value `result`. Numbers may differ by `close`, absolutely or relatively; with None the printed texts must be
    equal. `setup` names the code that precedes the program (programs.SETUPS). `megabytes` overrides the sandbox's memory.
    """

    stdin: str = ""
    stdout: str = ""
    call: str = ""
    result: str = ""  # as `repr` writes it
    close: float | None = None
    setup: str = ""
    megabytes: float | None = None

    def passes(self, result: Result) -> bool:
        """Return whether the value of the call, or the output, is the expected one."""
        if self.call:
            return same_value(result.value, self.result, self.close)
        return same_lines(result.printed, self.stdout, self.close)

    @cached_property
    def question(self) -> "TestCase | None":
        """The form in which the test is decided outside the program; None if the call only returns a value."""
        return question_of(self.call) if self.call else None


@lru_cache(maxsize=4096)
def cases_of(answer: str) -> tuple[Case, ...]:
    """Parse the tests in a problem's answer. Raises ValueError with a message that names the fault."""
    try:
        rows = json.loads(answer)
    except (ValueError, RecursionError):
        raise _wrong(f"`{answer[:60]}` is not JSON") from None
    if not isinstance(rows, list) or not rows:
        raise _wrong(f"`{answer[:60]}` is not a list of at least one test")
    try:
        return tuple(_case(row, f"test {n}") for n, row in enumerate(rows, 1))
    except RecursionError:  # JSON that could be read may be too deep to be written
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
        raise _wrong(f"`close` of {where} is `{json.dumps(close)[:60]}`")
    if "result" in row and not isinstance(row["result"], str):
        row["result"] = repr(row["result"])
    for name, text in row.items():
        if not isinstance(text, str) or re.search("[\ud800-\udfff]", text):
            raise _wrong(f"the {name} of {where} is not a text")
    if "input" in row:
        return Case(row["input"], row["output"], close=close, setup=setup or "", megabytes=megabytes)
    case = Case(call=row["call"], result=row["result"], close=close, setup=setup or "", megabytes=megabytes)
    try:
        _ = case.question
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _wrong(f"the call of {where} is not a Python expression") from None
    try:
        values.parse(case.result)
    except ValueError as error:
        raise _wrong(f"the result of {where}, `{case.result[:60]}`, is {error}") from None
    return case


def _wrong(fault: str) -> ValueError:
    return ValueError(
        f'tests: {fault}; expected a JSON list of tests such as {{"input": "1 2\\n", "output": "3\\n"}} (input and '
        'expected output) or {"call": "f(1, 2)", "result": "3"} (an expression and its value as Python writes it). Optional: '
        '`"close": 1e-6` to tolerate differences between numbers, `"setup": "leetcode"` for the usual imports and '
        f'`"megabytes": 1024` for memory up to {MOST_MEGABYTES}. Fix the answer of the problem.'
    )


# ------------------------------------------------------------------------------------------------------------ comparing


def same_lines(one: str, other: str, close: float | None = None) -> bool:
    """Return whether two outputs have the same lines, ignoring blanks at line ends and blank lines at the end.

    With `close`, words that are numbers are compared as numbers, and the amount of space between words is ignored.
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
    """Return whether two texts written by `repr` are equal, or are literals of equal values."""
    if text.strip() == other.strip():
        return True
    try:
        value, its = values.parse(text), values.parse(other)
    except ValueError:
        return False
    return values.same(value, its) or (close is not None and _close(value, its, close))


def _close(one: Any, other: Any, close: float) -> bool:
    """Return whether two values are equal, or differ only in numbers that are close."""
    if isinstance(one, (list, tuple)) and type(one) is type(other) and len(one) == len(other):
        return all(_close(item, its, close) for item, its in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return all(_close(item, other[key], close) for key, item in one.items())
    numbers = all(isinstance(value, (int, float)) for value in (one, other))
    return _same_number(one, other, close) if numbers else values.same(one, other)


# ------------------------------------------------------------------------------------------------- conditions on values

_GIVEN = {*dir(builtins), "math"} - {"eval", "exec", "globals", "locals", "vars", "__import__"}


@dataclass(frozen=True)
class TestCase:
    """A condition on values that a program computes.

    For `abs(f(1) - 2) < 1e-6` the program evaluates `f(1)`; the condition is then evaluated with that value, elsewhere.
    """

    parts: tuple[str, ...]  # expressions that the program evaluates
    tree: ast.AST  # the condition, in which the name `_part_n` stands for the value of the n-th part

    def decide(self, results: Sequence[str]) -> bool | None:
        """Return whether the condition is true if it is one `==` or `!=` of plain data; else None."""
        body = self.tree
        if not (isinstance(body, ast.Compare) and len(body.ops) == 1 and isinstance(body.ops[0], (ast.Eq, ast.NotEq))):
            return None
        try:
            sides = [values.parse(self._fill(side, results)) for side in (body.left, body.comparators[0])]
        except ValueError:
            return None
        return values.same(*sides) == isinstance(body.ops[0], ast.Eq)

    def _fill(self, node: ast.AST, results: Sequence[str]) -> str:
        if isinstance(node, ast.Name) and node.id.startswith("_part_"):
            return results[int(node.id[6:])]
        return ast.unparse(node)

    def fill(self, results: Sequence[str]) -> str:
        """Return the condition with the values of its parts filled in, for an empty program that imports `math`."""
        literals = [values.expression(value) for value in results]

        class Filled(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.AST:
                _, _, number = node.id.partition("_part_")
                return literals[int(number)] if number.isdecimal() else node

        return ast.unparse(Filled().visit(values.expression(ast.unparse(self.tree))))


def question_of(call: str) -> TestCase | None:
    """Split a call into program expressions and a condition on their values; None if it only returns a value."""
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
    return TestCase(tuple(parts), emptied) if parts and any(map(_is_condition, ast.walk(emptied))) else None


def _is_condition(node: ast.AST) -> bool:
    """Return whether a node compares, negates, or calls a predicate."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        return name in ("all", "any", "bool", "callable", "hasattr", "issubclass") or name.startswith("is")
    return isinstance(node, (ast.Compare, ast.Not))


def _root(node: ast.AST) -> bool:
    """Return whether an expression is a name defined by the program, or a call, attribute or item of one."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id not in _GIVEN
