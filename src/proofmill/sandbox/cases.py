"""Tests of a problem: input and expected output, or an expression and its expected value after the program ran.

From: the tests that come with the problems of open-r1's code rewards (input and output), and those of CRUXEval (Gu et
al. 2024: a call and its result).

Differences from the original:
1. Two outputs are equal only if all lines are equal. open-r1 compares as many lines as the shorter output has, so an
   empty output passes every test.
2. Values are compared as plain data (values.py). This process never executes a problem's answer.
3. A call that compares, such as `f(1) == 2`, is decided outside the program's process (`TestCase`), so a program gains
   nothing by redefining `==` or `abs`. The request depends on the test's call alone, never on the expected result.
4. A test may have a checker (checkers.py), which accepts several outputs.
"""

import ast
import builtins
import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from proofmill.sandbox import values
from proofmill.sandbox.executions import Result
from proofmill.sandbox.values import EXACT, Tolerance

Text = Annotated[str, AfterValidator(lambda text: text.encode().decode())]  # without half a character
Distance = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_FORMS = ({"input", "output"}, {"call", "result"})


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class Case:
    """One test of a program.

    Either the program reads `input` and must print `output`, or the expression `call`, evaluated after the program, must
    have the value `result`, as `repr` writes it. Numbers may differ by `absolute`, or `relative` to the larger one; without
    these the printed texts must be equal. `setup` names the code that precedes the program (extract.SETUPS). `megabytes`
    overrides the sandbox's memory. A `checker` (checkers.py) decides alone; then the expected side may be missing.
    """

    input: Text | None = None
    output: Text | None = None
    call: Annotated[Text, Field(min_length=1)] = ""
    result: Annotated[Text | None, BeforeValidator(lambda value: value if isinstance(value, str) else repr(value))] = (
        None
    )
    absolute: Distance = 0.0
    relative: Distance = 0.0
    setup: Literal["leetcode"] | None = None
    megabytes: Annotated[float, Field(ge=8, le=4096)] | None = None
    checker: Text = ""

    def passes(self, result: Result) -> bool:
        """Return whether the value of the call, or the output, is the expected one."""
        tolerance = (self.absolute, self.relative)
        if self.call:
            return same_value(result.value, self.result or "", tolerance)
        return same_lines(result.printed, self.output or "", tolerance)

    @cached_property
    def question(self) -> "TestCase | None":
        """The form in which the test is decided outside the program; None if the call only returns a value."""
        return question_of(self.call) if self.call and not self.checker else None

    @property
    def has_reference(self) -> bool:
        return (self.result if self.call else self.output) is not None

    @cached_property
    def sources(self) -> tuple[str, str]:
        """The input, or the arguments of the call, and the expected side or None, as source for a checker."""
        if not self.call:
            return repr(self.input), repr(self.output)
        tree = values.expression(self.call)
        if not isinstance(tree, ast.Call) or tree.keywords:
            raise ValueError("it needs a call with positional arguments")
        return values.source(ast.unparse(ast.Tuple(tree.args, ast.Load()))), values.source(self.result or "None")


@lru_cache(maxsize=64)  # a problem's attempts follow one another
def cases_of(answer: str) -> tuple[Case, ...]:
    """Parse the tests in a problem's answer. Raises ValueError with a message that names the fault."""
    try:
        rows = json.loads(answer)
    except ValueError:  # also of an integer with over 4,300 digits
        raise _wrong(f"`{answer[:60]}` is not JSON") from None
    except RecursionError:
        raise _wrong(f"`{answer[:60]}` is nested too deeply") from None
    options = {**rows} if isinstance(rows, dict) else {"tests": rows}
    tests = options.pop("tests", None)
    if not isinstance(tests, list) or not tests:
        raise _wrong(f"`{answer[:60]}` is not a list of at least one test")
    try:
        return tuple(_case(row, options, f"test {n}") for n, row in enumerate(tests, 1))
    except RecursionError:
        raise _wrong(f"`{answer[:60]}` is nested too deeply") from None


def state_tolerance(answer: str) -> str:
    """Return tests in which each test with an expected float has its tolerance, also if that is the default."""
    rows = json.loads(answer)
    for row, case in zip(rows["tests"] if isinstance(rows, dict) else rows, cases_of(answer), strict=True):
        nodes = ast.walk(values.expression(case.result)) if case.result and not case.checker else ()
        if any(isinstance(getattr(node, "value", None), float) for node in nodes):
            row |= {"absolute": case.absolute, "relative": case.relative}
    return json.dumps(rows, ensure_ascii=False)


def _case(row: Any, options: Mapping[str, Any], where: str) -> Case:
    names = {*_FORMS[0], *_FORMS[1]}.intersection(row if isinstance(row, dict) else ())
    if names not in _FORMS and (names not in ({"input"}, {"call"}) or not {**options, **row}.get("checker")):
        raise _wrong(f"{where} is `{json.dumps(row)[:60]}`")
    try:
        case = Case(**{**options, **row})
    except ValidationError as error:
        fault = error.errors()[0]
        raise _wrong(f"`{fault['loc'][0]}` of {where} is `{str(fault['input'])[:60]}` ({fault['msg']})") from None
    try:
        what = "call"
        _ = case.question or (case.call and values.expression(case.call))
        what = "result"
        _ = case.result is None or values.parse(case.result)
        what = "checker"
        with values.reading():
            defined = [getattr(node, "name", "") for node in ast.parse(case.checker).body]
        if case.checker and case.sources and "check" not in defined:
            raise ValueError("it defines no function `check`")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise _wrong(f"the {what} of {where}, `{getattr(case, what)[:60]}`, cannot be read ({error})") from None
    return case


def _wrong(fault: str) -> ValueError:
    return ValueError(
        f'tests: {fault}; expected a JSON list of tests such as {{"input": "1 2\\n", "output": "3\\n"}} (input and '
        'expected output) or {"call": "f(1, 2)", "result": "3"} (an expression and its value as `repr` writes it, so a text '
        "has quotes), with the options of docs/sandbox.md. Fix the answer of the problem."
    )


# ------------------------------------------------------------------------------------------------------------ comparing


def same_lines(one: str, other: str, tolerance: Tolerance = EXACT) -> bool:
    """Return whether two outputs have the same lines, ignoring blanks at line ends and blank lines at the end.

    With a tolerance, words that are numbers are compared as numbers, and the amount of space between words is ignored.
    """
    lines, others = ([line.rstrip() for line in text.rstrip().split("\n")] for text in (one, other))
    if lines == others or tolerance == EXACT:
        return lines == others
    return len(lines) == len(others) and all(
        len(line.split()) == len(its.split())
        and all(_same_word(*words, tolerance) for words in zip(line.split(), its.split(), strict=True))
        for line, its in zip(lines, others, strict=True)
    )


_NUMBER = re.compile(r"(?=.{1,1000}$)[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)


def _same_word(one: str, other: str, tolerance: Tolerance) -> bool:
    numbers = _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other)
    return one == other or (bool(numbers) and values.are_close(Decimal(one), Decimal(other), tolerance))


def same_value(text: str, other: str, tolerance: Tolerance = EXACT) -> bool:
    """Return whether two texts written by `repr` are equal, or are of equal values."""
    if text.strip() == other.strip():
        return True
    try:
        return values.same(values.parse(text), values.parse(other), tolerance)
    except ValueError:
        return False


# ------------------------------------------------------------------------------------------------- conditions on values

_GIVEN = {*dir(builtins), "math", "np", "numpy"} - {"eval", "exec", "globals", "locals", "vars", "__import__"}


@dataclasses.dataclass(frozen=True)
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
        """Return the condition with the values of its parts filled in, for an empty program that imports `math`.

        Raises ValueError if one is an instance of a class of the program.
        """

        class Filled(ast.NodeTransformer):
            def visit(self, node: ast.AST) -> ast.AST:
                if isinstance(node, ast.Name) and node.id.startswith("_part_"):
                    return values.expression(values.source(results[int(node.id[6:])]))
                if values.is_made(node):
                    return values.expression(values.source(ast.unparse(node)))
                return self.generic_visit(node)

        return ast.unparse(Filled().visit(values.expression(ast.unparse(self.tree))))


def question_of(call: str) -> TestCase | None:
    """Split a call into program expressions and a condition on their values; None if it only returns a value."""
    tree = values.expression(call)
    if _root(tree) or any(isinstance(node, (ast.comprehension, ast.Lambda, ast.NamedExpr)) for node in ast.walk(tree)):
        return None
    parts: list[str] = []

    class Emptied(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            if values.is_made(node):  # data, whatever the program calls by these names
                return node
            if isinstance(node, ast.expr) and _root(node):
                parts.append(ast.unparse(node))
                return ast.Name(f"_part_{len(parts) - 1}", ast.Load())
            return self.generic_visit(node)

    emptied = Emptied().visit(tree)
    return TestCase(tuple(parts), emptied) if parts and any(map(_is_condition, ast.walk(emptied))) else None


_PREDICATES = {"all", "allclose", "any", "array_equal", "bool", "callable", "hasattr", "issubclass"}


def _is_condition(node: ast.AST) -> bool:
    """Return whether a node compares, negates, or calls a predicate."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        return name in _PREDICATES or name.startswith("is")
    return isinstance(node, (ast.Compare, ast.Not))


def _root(node: ast.AST) -> bool:
    """Return whether an expression is a name defined by the program, or a call, attribute or item of one."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id not in _GIVEN
