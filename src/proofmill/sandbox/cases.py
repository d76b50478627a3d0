"""Tests of a problem: what a program reads and prints, or an expression and its value after the program ran.

From: the tests that come with the problems of open-r1's code rewards (input and output), and those of CRUXEval (Gu et
al. 2024: a call and its result).

How we differ:
1. Two outputs are the same if all their lines are. open-r1 compares only as many lines as the shorter output has, so
   that an empty output passes every test.
2. Values are compared as Python writes them, or as literals: this process never executes a problem's answer.
"""

import ast
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


@dataclass(frozen=True)
class Case:
    """One test of a program.

    The program reads `stdin` and must print `stdout`; or after it ran, the expression `call` must have the value
    `result`.
    """

    stdin: str = ""
    stdout: str = ""
    call: str = ""
    result: str = ""  # as `repr` writes it

    @property
    def expected(self) -> str:
        return self.result if self.call else self.stdout

    def passed(self, text: str) -> bool:
        """Whether a text, which the program printed or its call gave, is what the test expects."""
        return same_value(text, self.result) if self.call else same_lines(text, self.stdout)


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
    if not isinstance(row, dict) or set(row) not in ({"input", "output"}, {"call", "result"}):
        raise _wrong(f"{where} is `{json.dumps(row)[:60]}`")
    if "result" in row and not isinstance(row["result"], str):
        row["result"] = repr(row["result"])
    for name, text in row.items():
        if not isinstance(text, str) or re.search("[\ud800-\udfff]", text):
            raise _wrong(f"the {name} of {where} is no text")
    if "input" in row:
        return Case(stdin=row["input"], stdout=row["output"])
    try:
        ast.parse(row["call"], mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _wrong(f"the call of {where} is no expression of Python") from None
    return Case(call=row["call"], result=row["result"])


def _wrong(fault: str) -> ValueError:
    return ValueError(
        f'tests: {fault}; expected a JSON list of tests such as {{"input": "1 2\\n", "output": "3\\n"}} (what a program '
        'reads and prints) or {"call": "f(1, 2)", "result": "3"} (an expression and its value as Python writes it). '
        "Correct the answer of the problem."
    )


def same_lines(one: str, other: str) -> bool:
    """Whether two outputs have the same lines, apart from blanks at line ends and blank lines at the end."""
    lines, others = ([line.rstrip() for line in text.rstrip().split("\n")] for text in (one, other))
    return lines == others


def same_value(text: str, other: str) -> bool:
    """Whether two texts, as `repr` writes values, are the same, or literals of equal values."""
    if text.strip() == other.strip():
        return True
    try:
        return ast.literal_eval(text.strip()) == ast.literal_eval(other.strip())
    except (SyntaxError, TypeError, ValueError, MemoryError, RecursionError):
        return False
