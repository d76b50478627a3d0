"""Programs in texts: which block is taken, and how its source is edited."""

import ast

import pytest

from boxed import real_programs
from proofmill.sandbox._programs import Program, code_of


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```", "a\n"),
        ("```py\na\n```", "a\n"),
        ("```Python3 title=x\na\n```", "a\n"),
        ("``` python\na\n```", "a\n"),
        ("````python\n```\na\n````", "```\na\n"),
        ("  ```python\n  a\n  ```", "  a\n"),
        ("```python\r\na\r\n```\r\n", "a\r\n"),
        ("```\na\n```", "a\n"),
        ("```python\na\n```\nor\n```python\nb\n```", "b\n"),
        ("```python\na\n```\nprints\n```\nb\n```", "a\n"),  # a bare block counts where there is no other
        ("```\na\n```\nand\n```\nb\n```", "a\n".replace("a", "b")),
        ("```python\na\n```\nthen\n```cpp\nb\n```", "a\n"),
        ("```cpp\na\n```", None),
        ("```python\na\n```\nand\n```python\nb", "a\n"),  # not closed
        ("```python\na\n```python\nb\n```", "b\n"),  # the first is not closed
        ("```python\n```", "\n"),
        ("```python a```", None),
        ("print(1)", None),
        ("", None),
    ],
)
def test_code_of_a_text_is_its_last_block_of_python(text, code):
    """Blocks that say they are Python come before those that say nothing, and what is not closed is no block."""
    assert code_of(text) == code


@pytest.mark.parametrize("text", ["```python\n" * 100_000, f"```{'a' * 200_000}`", f"```{' ' * 200_000}`"])
def test_code_of_a_text_without_a_block_is_none_however_long(text):
    """The time goes with the length of the text, not with its square."""
    assert code_of(text) is None


# -------------------------------------------------------------------------------------------------------------- the edits


class _Wrapped(ast.NodeTransformer):
    """What the edits are to do to the tree of a program."""

    def visit_GeneratorExp(self, node):
        self.generic_visit(node)
        return ast.Call(ast.Name("_sandbox_iter", ast.Load()), [node], [])

    def visit_JoinedStr(self, node):
        return node


def edited(code: str) -> tuple[str, str]:
    """The tree of the edited source and what it is to be, as texts."""
    found = ast.parse(Program(code).source.removesuffix("\nNone\n"))
    return ast.dump(found), ast.dump(ast.fix_missing_locations(_Wrapped().visit(ast.parse(code))))


@pytest.mark.parametrize(
    "code",
    [
        "sum(x for x in y)", "f((x for x in y), 1)", "é = 'é'; list(é for é in 'é') + list((c for c in d))",
        "((a for a in b) for b in (c for c in d))", "any(\n  x\n  for x in y\n)", "f(x for x in y)(z for z in w)", "x = (  y for y in z  )",
        "f'{sum(x for x in y)}' + ''.join(c for c in s)", "[(x for x in y) for z in w]", "lambda: (x for x in y)", "@f(x for x in y)\ndef g(): pass",
    ],
)  # fmt: skip
def test_edits_of_generators_change_nothing_else(code):
    """Each generator outside f-strings becomes its iterator, and the tree is otherwise the same."""
    found, expected = edited(code)
    assert found == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys", "sys = _sandbox_sys"),
        ("import sys as s, os, sys", "import os; s = _sandbox_sys; sys = _sandbox_sys"),
        ("from sys import stdin as i, exit", "i = _sandbox_sys.stdin; exit = _sandbox_sys.exit"),
        ("if x: import sys; y", "if x: sys = _sandbox_sys; y"),
        ("def f():\n    from sys import (stdin,\n        exit)\n    return 1", None),
        (
            "import system; from system import sys; import os.sys",
            "import system; from system import sys; import os.sys",
        ),
        ("from sys import *", "from sys import *"),
        ("from .sys import x", "from .sys import x"),
    ],
)
def test_edits_of_imports_are_of_sys_alone_and_keep_lines(code, expected):
    """`sys` in any import is the prelude's, other imports stay, and no line is moved."""
    source = Program(code).source.removesuffix("\nNone\n")
    assert source.count("\n") == code.count("\n")
    if expected:
        assert ast.dump(ast.parse(source)) == ast.dump(ast.parse(expected))
    else:
        assert ast.parse(source).body[0].body[-1].lineno == ast.parse(code).body[0].body[-1].lineno


def test_edits_of_real_programs_are_of_generators_alone(data):
    """The edited source of each has the tree of the program, each generator wrapped."""
    for code in sorted({code for code, _, _ in real_programs(data)}):
        found, expected = edited(code)
        assert found == expected
