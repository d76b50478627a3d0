"""Programs as text: normalization, forbidden names, literal inputs."""

import ast

import pytest

from proofmill.selfplay_tasks.program_text import (
    FORBIDDEN,
    Unfit,
    arguments,
    find_forbidden,
    keyword_in,
    normalize,
    parse_program,
)

NESTED = '''import math

class Point:
    """A point."""

    def __init__(self, x):
        self.x = x  # kept

def outer(a, b=2):
    """Says what it does."""
    def inner(n):
        print(n)
        return n + 1
    return inner(a) + b

print(outer(1))
'''


def reason(*arguments_, call=normalize, **named):
    """Return the reason why a program or an input is unfit."""
    with pytest.raises(Unfit) as unfit:
        call(*arguments_, **named)
    return unfit.value.reason


# ------------------------------------------------------------------------------------------------------------ normalization


def test_program_with_a_function_f_is_unchanged():
    """Comments, blank lines and quotes are kept."""
    source = 'def f(a):\n    # one\n\n    return "a"'
    assert normalize(f"\n{source}\n") == source


def test_only_function_becomes_f_with_its_calls():
    """Recursive calls and other uses are renamed."""
    source = "def fact(n):\n    return 1 if n < 2 else n * fact(n - 1)\ntable = {'fact': fact}"
    assert normalize(source) == "def f(n):\n    return 1 if n < 2 else n * f(n - 1)\ntable = {'fact': f}"


def test_only_the_function_is_renamed():
    """Keywords, attributes and texts of the same name stay; if something else has the name, renaming is refused."""
    source = "def key(a):\n    return sorted(a.key, key=key), 'key'"
    assert normalize(source) == "def f(a):\n    return (sorted(a.key, key=f), 'key')"
    for twice in ("def g(g):\n    return g", "import g\ndef g(a):\n    return a", "def g(a):\n    g = a\n    return g"):
        assert reason(twice) == "no-function"


@pytest.mark.parametrize(("rule", "entry"), [("first", "a"), ("last", "b"), ("f-or-first", "a"), ("f-or-last", "b")])
def test_entry_is_chosen_by_the_rule(rule, entry):
    """Without a function `f`, the first or the last of the top level is the entry."""
    source = normalize("def a(x):\n    return 1\ndef b(x):\n    return 2", rule)
    spaces: dict = {}
    exec(source, spaces)
    assert spaces["f"](0) == {"a": 1, "b": 2}[entry]


@pytest.mark.parametrize("rule", ["f-or-first", "f-or-last"])
def test_function_f_stays_the_entry(rule):
    """Its position among other functions does not matter."""
    source = "def a(x):\n    return 1\ndef f(x):\n    return a(x)\ndef b(x):\n    return 2"
    assert normalize(source, rule) == source


def test_name_f_that_is_taken_is_not_reused():
    """Renaming to a name that is in use is refused."""
    assert reason("def g(x):\n    f = 2\n    return f * x") == "no-function"
    assert reason("def a(x):\n    return 1\ndef f(x):\n    return 2", "first") == "no-function"


def test_nested_functions_and_methods_are_not_counted():
    """Only functions at the top level count."""
    assert normalize(NESTED, one_function=True).count("def f(a, b=2)") == 1
    assert reason("def f(a):\n    return g(a)\ndef g(a):\n    return a", one_function=True) == "many-functions"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(a) return a", "syntax"),
        ("\0", "syntax"),
        ("(" * 5_000, "syntax"),
        ("def f(a):\n    return " + "-" * 250 + "a", "syntax"),
        ("def f(a):\n    return " + "-" * 9_000 + "a", "syntax"),
        ("x = 1", "no-function"),
        ("class A:\n    def f(self):\n        return 1", "no-function"),
        ("async def f(a):\n    return a", "no-function"),
        ("def f():\n    return 1", "no-parameter"),
        ("def f(*, a):\n    return a", "no-parameter"),
        ("", "no-function"),
    ],
)
def test_unfit_program_has_a_reason(source, expected):
    """Each fault has its reason."""
    assert reason(source) == expected


def test_dropping_parts_leaves_a_program():
    """Comments, docstrings, prints and other statements can be dropped; an empty body becomes `pass`."""
    everything = normalize(NESTED, drop={"comments", "top-level", "prints"})
    assert "A point" not in everything and "#" not in everything and "print" not in everything
    assert [type(node).__name__ for node in ast.parse(everything).body] == ["Import", "ClassDef", "FunctionDef"]
    assert normalize("def f(a):\n    '''x'''", drop={"comments"}) == "def f(a):\n    pass"
    assert normalize("def f(a):\n    if a:\n        print(a)\n    else:\n        print(1)", drop={"prints"}) == (
        "def f(a):\n    if a:\n        pass"
    )


def test_inputs_that_a_program_assigns_are_dropped():
    """`input = ...` outside of the function is dropped, inside it stays."""
    source = "inputs = [1, 2]\ninput = (3,)\ndef f(a):\n    input = a\n    return input"
    assert normalize(source, drop={"inputs"}) == "def f(a):\n    input = a\n    return input"


@pytest.mark.parametrize("drop", ["comments", "top-level", "prints"])
def test_each_part_is_dropped_alone(drop):
    """Other parts stay, except for comments, which are lost when a program is rewritten."""
    program = normalize(NESTED, drop={drop})
    assert ("A point" in program, "print(f(1))" in program, "print(n)" in program) == {
        "comments": (False, True, True),
        "top-level": (True, False, True),
        "prints": (True, False, False),
    }[drop]


# -------------------------------------------------------------------------------------------------- forbidden names


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("import random", "random"),
        ("import numpy.random", "numpy.random"),
        ("from numpy import random as r", "numpy.random"),
        ("from numpy.random import rand", "numpy.random.rand"),
        ("import numpy as np\nx = np.random.rand()", "numpy.random"),
        ("import os.path", "os.path"),
        ("from os import path", "os.path"),
        ("def f(a):\n    import time\n    return time.time()", "time"),
        ("import importlib.util", "importlib.util"),
        ("__import__('os')", "__import__"),
        ("x = __builtins__", "__builtins__"),
        ("f = (lambda: 0).__globals__", "__globals__"),
        ("().__class__.__base__.__subclasses__()", "__subclasses__"),
        ("def f(a):\n    return open(a)", "open"),
        ("x = input()", "input"),
    ],
)
def test_forbidden_modules_are_found_by_every_route(source, path):
    """Plain, dotted and renamed imports, and names that lead to the interpreter, are found."""
    name = find_forbidden(parse_program(source))
    assert name is not None and path in name


@pytest.mark.parametrize(
    "source",
    [
        "import math, re, collections.abc, string",
        "class A:\n    def __init__(self):\n        self.time = self.random = 0\n        super().__init__()",
        "def f(time):\n    return time.random",
        "x = {'os': 1}['os']",
        "import numpy as np\nx = np.linalg.norm([1])",
        "def f(a):\n    return a.open",
        "def f(input):\n    open = exit = len(input)\n    return open + exit",
    ],
)
def test_other_names_like_a_forbidden_module_are_allowed(source):
    """Attributes, parameters and variables of the same name are not modules."""
    assert find_forbidden(parse_program(source)) is None


def test_dotted_entry_forbids_paths_that_begin_with_it():
    """`numpy.random` forbids itself and its members, not `random` elsewhere."""
    forbidden = {"numpy.random"}
    assert find_forbidden(parse_program("import numpy as np\nnp.random.rand()"), forbidden) == "numpy.random.rand"
    assert find_forbidden(parse_program("import random"), forbidden) is None


def test_published_list_is_forbidden_and_so_is_the_interpreter():
    """The list has the published modules, and `os`, `sys`, `builtins` and others."""
    assert {"random", "multiprocessing", "calendar", "os", "sys", "builtins", "socket"} <= FORBIDDEN


def test_keywords_are_words():
    """`raise` occurs in `raise ValueError`, not in `praise`."""
    assert keyword_in("def f(a):\n    raise ValueError", ["assert", "raise"]) == "raise"
    assert keyword_in("praise = 1", ["raise"]) is None


# -------------------------------------------------------------------------------------------------------------- inputs


@pytest.mark.parametrize(
    "text",
    [
        "1", "1, [2]", "'a', b=2", "dict(a=1, b=2)", "float('nan')", "[i * 2 for i in range(3)]", "lambda x: x + 1",
        "''.join(['A'] * 20)", "*[1, 2]", "**{'a': 1}", "-1, +2.5, 1j", "{1: {2}}, b'x'", "(1, ), (1, 2)", "",
        "f'{1}'", "[[x, y] for x in range(2) for y in range(x)]",
    ],
)  # fmt: skip
def test_literal_inputs_are_accepted(text):
    """Literals, constructors, comprehensions, lambdas and methods are accepted."""
    assert arguments(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "1) or (3", "1)(2", "1); (2", "1\n) + f(2", "(f := lambda n: 5)", "[f := 3, 2][1]", "f(1)", "globals()", "exec('f = 1')",
        "g", "x.y", "().__class__", "open('a')", "__import__('os')", "print(1)", "type('A', (), {})", "setattr(1, 'a', 2)",
        "1 # a comment", "1,,2", "await x", "(yield)", "eval('1')",
    ],
)  # fmt: skip
def test_other_inputs_are_refused(text):
    """Other calls, names of the program, assignments and hidden attributes are refused."""
    assert reason(text, call=arguments) == "bad-input"


def test_input_on_several_lines_is_joined():
    """The call is the same, and comments are dropped."""
    assert arguments("{\n 'a': 1, # one\n 'b': [2,\n3]\n}, 4") == "{'a': 1, 'b': [2, 3]}, 4"


def test_input_may_call_classes_and_read_variables_of_the_program():
    """It may call top-level classes and read variables, but not change them or use other names."""
    tree = parse_program("class A:\n    seen = []\ntable = [1, 2]\nlimit: int = 3\ndef g(x):\n    return x\n")
    for text in ("A()", "A(1), table[:1]", "table, limit", "[A() for _ in range(2)]"):
        assert arguments(text, tree) == text
    for text in (
        "g(1)",
        "table.append(1)",
        "A.seen.append(1)",
        "table()",
        "(lambda t: t())(table)",
        "list.append(table, 1)",
    ):
        assert reason(text, tree, call=arguments) == "bad-input"
    for text in ("A()", "table"):
        assert reason(text, call=arguments) == "bad-input"
