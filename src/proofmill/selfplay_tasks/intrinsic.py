"""Intrinsic rewards: the complexity of a program, and its distance from the references of its proposer.

From: the code of Absolute Zero Reasoner (`intrinsic_reward_*`); off in its published runs, where none improved the
results. Cognitive complexity is that of G. A. Campbell (SonarSource, 2018), cyclomatic complexity that of T. McCabe
(1976), and software science that of M. Halstead (1977). The last two are counted as radon does for Python.

Differences from the original: the values are computed from the syntax tree, without the packages complexipy and radon,
which proofmill does not install. A program that cannot be parsed has the value 0, as there.
"""

import ast
import json
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from proofmill.selfplay_tasks.program_text import Unfit, parse_program

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def complexity(program: str) -> float:
    """Compute cognitive complexity / 15, the threshold of its author."""
    tree = _tree(program)
    return cognitive_complexity(tree) / 15 if tree else 0.0


def edit_distance(program: str, references: Sequence[str]) -> float:
    """Compute the mean over references of 1 - difflib's ratio of the two syntax trees, as JSON without contexts."""
    tree = _tree(program)
    others = [other for other in map(_tree, references) if other]
    if not tree or not others:
        return 0.0
    text = _json(tree)
    return sum(1 - SequenceMatcher(None, text, _json(other)).ratio() for other in others) / len(others)


def halstead(program: str) -> float:
    """Compute the weighted sum of effort, cyclomatic complexity and volume, rounded to 3 places.

    0.5 min(effort / 10000, 1) + 0.3 min(cyclomatic complexity / 10, 1) + 0.2 min(volume / 500, 1).
    """
    tree = _tree(program)
    if not tree:
        return 0.0
    science = Science.of(tree)
    parts = min(science.effort / 10_000, 1), min(cyclomatic_complexity(tree) / 10, 1), min(science.volume / 500, 1)
    return round(0.5 * parts[0] + 0.3 * parts[1] + 0.2 * parts[2], 3)


def _tree(program: str) -> ast.Module | None:
    try:
        return parse_program(program)
    except Unfit:
        return None


def _json(tree: ast.AST) -> str:
    return json.dumps(_plain(tree))


def _plain(node: Any) -> Any:
    """Convert a syntax tree to plain data, without contexts, positions and empty fields, so Python versions agree."""
    if isinstance(node, ast.AST):
        fields = {
            name: _plain(value) for name, value in ast.iter_fields(node) if name != "ctx" and value not in (None, [])
        }
        return {"type": type(node).__name__, **fields}
    if isinstance(node, list):
        return [_plain(item) for item in node]
    return node if isinstance(node, str | int | float | bool | None) else repr(node)


# ----------------------------------------------------------------------------------------------- cognitive complexity


def cognitive_complexity(tree: ast.AST) -> int:
    """Sum over a program 1 for each break in the flow, and 1 more for each level of its nesting.

    A comprehension counts as a loop and its conditions as breaks, as in complexipy.
    """
    return _cognitive(tree, 0, False)


def _cognitive(node: ast.AST, level: int, inside: bool) -> int:
    """Compute the complexity of a node and its descendants, at a level of nesting, `inside` a function or not."""
    parts = ast.iter_child_nodes(node)
    match node:
        case ast.If():
            return 1 + level + _branches(node, level, inside)
        case ast.For() | ast.AsyncFor() | ast.While():
            blocks = [*node.body, *node.orelse]
            head = [part for part in parts if part not in blocks]
            return 1 + level + _sum(head, level, inside) + _sum(blocks, level + 1, inside)
        case ast.ExceptHandler() | ast.IfExp() | ast.Match():
            return 1 + level + _sum(parts, level + 1, inside)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            conditions = sum(len(generator.ifs) for generator in node.generators)
            return len(node.generators) * (1 + level) + conditions + _sum(parts, level + 1, inside)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return int(_is_recursive(node)) + _sum(parts, level + inside, True)
        case ast.Lambda():
            return _sum(parts, level + 1, inside)
    return int(isinstance(node, ast.BoolOp)) + _sum(parts, level, inside)


def _branches(node: ast.If, level: int, inside: bool) -> int:
    """Compute the complexity of an `if`'s test and branches; `elif` and `else` add 1 each without nesting."""
    here = _cognitive(node.test, level, inside) + _sum(node.body, level + 1, inside)
    if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        return here + 1 + _branches(node.orelse[0], level, inside)
    return here + (1 + _sum(node.orelse, level + 1, inside) if node.orelse else 0)


def _sum(nodes: Iterable[ast.AST], level: int, inside: bool) -> int:
    total = 0
    for node in nodes:  # a generator would need one more stack frame per level
        total += _cognitive(node, level, inside)
    return total


def _is_recursive(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function calls itself."""
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return any(isinstance(callee, ast.Name) and callee.id == function.name for callee in calls)


# ---------------------------------------------------------------------------------------------- cyclomatic complexity


def cyclomatic_complexity(tree: ast.Module) -> int:
    """Compute the largest complexity of a program's functions and methods, with nested ones; 0 without any."""
    functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    return max((1 + sum(map(_decisions, ast.walk(function))) for function in functions), default=0)


def _decisions(node: ast.AST) -> int:
    """Return the number of further paths that a node opens, as radon counts them."""
    match node:
        case ast.If() | ast.IfExp() | ast.Assert():
            return 1
        case ast.For() | ast.AsyncFor() | ast.While():
            return 1 + bool(node.orelse)
        case ast.Try():
            return len(node.handlers) + bool(node.orelse)
        case ast.BoolOp():
            return len(node.values) - 1
        case ast.comprehension():
            return 1 + len(node.ifs)
        case ast.Match():
            return sum(
                not (isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None) for case in node.cases
            )
    return 0


# ------------------------------------------------------------------------------------------------------------ Halstead


@dataclass(frozen=True)
class Science:
    """Counts of distinct and of all operators and operands in a program's expressions."""

    operators: int
    operands: int
    all_operators: int
    all_operands: int

    @classmethod
    def of(cls, tree: ast.AST) -> "Science":
        """Count binary, unary, boolean and augmented operations and comparisons."""
        operators, operands = [], []
        for some, others in _operations(tree, ""):
            operators += some
            operands += others
        return cls(len({*operators}), len({*operands}), len(operators), len(operands))

    @property
    def volume(self) -> float:
        """Volume: (N1 + N2) log2(n1 + n2)."""
        distinct = self.operators + self.operands
        return (self.all_operators + self.all_operands) * math.log2(distinct) if distinct else 0.0

    @property
    def difficulty(self) -> float:
        """Difficulty: n1 / 2 * N2 / n2."""
        return self.operators / 2 * self.all_operands / self.operands if self.operands else 0.0

    @property
    def effort(self) -> float:
        """Effort: difficulty times volume."""
        return self.difficulty * self.volume


def _operations(tree: ast.AST, function: str) -> Iterator[tuple[list[str], list[Hashable]]]:
    """Yield the operators and operands of each operation. Names of different functions are different operands."""
    match tree:
        case ast.BinOp(left=left, op=op, right=right) | ast.AugAssign(target=left, op=op, value=right):
            yield [type(op).__name__], [_operand(left, function), _operand(right, function)]
        case ast.UnaryOp(op=op, operand=operand):
            yield [type(op).__name__], [_operand(operand, function)]
        case ast.BoolOp(op=op, values=values):
            yield [type(op).__name__], [_operand(value, function) for value in values]
        case ast.Compare(left=left, ops=ops, comparators=others):
            yield [type(op).__name__ for op in ops], [_operand(value, function) for value in (left, *others)]
    for part in tree.body if isinstance(tree, _FUNCTIONS) else ast.iter_child_nodes(tree):
        yield from _operations(part, tree.name if isinstance(tree, _FUNCTIONS) else function)


def _operand(node: ast.AST, function: str) -> Hashable:
    """Return the identity of an operand: its name, attribute or constant; other expressions are all distinct."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return function, name
        case ast.Constant(value=value):
            return function, value
    return function, node
