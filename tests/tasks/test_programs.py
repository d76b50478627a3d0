"""Programs as text: their form, what they reach for, which inputs are written out."""

import ast

import pytest

from proofmill.tasks.programs import FORBIDDEN, Unfit, arguments, keyword_in, normalised, parsed, reaches

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


def reason(*arguments_, call=normalised, **named):
    """Why a program or an input is unfit."""
    with pytest.raises(Unfit) as unfit:
        call(*arguments_, **named)
    return unfit.value.reason


# ------------------------------------------------------------------------------------------------------------ the form


def test_program_with_a_function_f_stays_as_it_is():
    """Comments, blank lines and quotes included."""
    source = 'def f(a):\n    # one\n\n    return "a"'
    assert normalised(f"\n{source}\n") == source


def test_only_function_becomes_f_with_its_calls():
    """A function that calls itself is still one that does."""
    source = "def fact(n):\n    return 1 if n < 2 else n * fact(n - 1)\ntable = {'fact': fact}"
    assert normalised(source) == "def f(n):\n    return 1 if n < 2 else n * f(n - 1)\ntable = {'fact': f}"


def test_only_the_function_is_renamed():
    """Keywords, attributes and texts of the same name stay; where something else has the name, nothing is."""
    source = "def key(a):\n    return sorted(a.key, key=key), 'key'"
    assert normalised(source) == "def f(a):\n    return (sorted(a.key, key=f), 'key')"
    for twice in ("def g(g):\n    return g", "import g\ndef g(a):\n    return a", "def g(a):\n    g = a\n    return g"):
        assert reason(twice) == "no-function"


@pytest.mark.parametrize(("rule", "entry"), [("first", "a"), ("last", "b"), ("f-or-first", "a"), ("f-or-last", "b")])
def test_entry_is_chosen_by_the_rule(rule, entry):
    """Without a function `f`, the first or the last of the top level is the entry."""
    found = normalised("def a(x):\n    return 1\ndef b(x):\n    return 2", rule)
    spaces: dict = {}
    exec(found, spaces)
    assert spaces["f"](0) == {"a": 1, "b": 2}[entry]


@pytest.mark.parametrize("rule", ["f-or-first", "f-or-last"])
def test_function_f_stays_the_entry(rule):
    """Wherever it stands among the others."""
    source = "def a(x):\n    return 1\ndef f(x):\n    return a(x)\ndef b(x):\n    return 2"
    assert normalised(source, rule) == source


def test_name_f_that_is_taken_is_no_place_for_another():
    """A rename would make two things one."""
    assert reason("def g(x):\n    f = 2\n    return f * x") == "no-function"
    assert reason("def a(x):\n    return 1\ndef f(x):\n    return 2", "first") == "no-function"


def test_nested_functions_and_methods_are_not_counted():
    """One function at the top level is one function."""
    assert normalised(NESTED, one_function=True).count("def f(a, b=2)") == 1
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
def test_program_that_is_none_says_why(source, expected):
    """Each fault has its reason."""
    assert reason(source) == expected


def test_what_is_dropped_leaves_a_program():
    """Comments and docstrings, prints, and all but definitions and imports; a body that is empty then passes."""
    everything = normalised(NESTED, drop={"comments", "top-level", "prints"})
    assert "A point" not in everything and "#" not in everything and "print" not in everything
    assert [type(node).__name__ for node in ast.parse(everything).body] == ["Import", "ClassDef", "FunctionDef"]
    assert normalised("def f(a):\n    '''x'''", drop={"comments"}) == "def f(a):\n    pass"
    assert normalised("def f(a):\n    if a:\n        print(a)\n    else:\n        print(1)", drop={"prints"}) == (
        "def f(a):\n    if a:\n        pass"
    )


def test_inputs_that_a_program_assigns_are_dropped():
    """`input = ...` beside the function; a variable in it stays."""
    source = "inputs = [1, 2]\ninput = (3,)\ndef f(a):\n    input = a\n    return input"
    assert normalised(source, drop={"inputs"}) == "def f(a):\n    input = a\n    return input"


@pytest.mark.parametrize("drop", ["comments", "top-level", "prints"])
def test_each_part_is_dropped_alone(drop):
    """What is not named stays, except for comments, which no rewritten program keeps."""
    found = normalised(NESTED, drop={drop})
    assert ("A point" in found, "print(f(1))" in found, "print(n)" in found) == {
        "comments": (False, True, True),
        "top-level": (True, False, True),
        "prints": (True, False, False),
    }[drop]


# -------------------------------------------------------------------------------------------------- what it reaches for


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
    """Plain, dotted and renamed imports, and names that lead to the interpreter."""
    found = reaches(parsed(source))
    assert found is not None and path in found


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
def test_what_only_looks_like_a_forbidden_module_is_none(source):
    """Attributes, parameters and variables of the same name are nobody's module."""
    assert reaches(parsed(source)) is None


def test_dotted_entry_forbids_what_begins_with_it():
    """`numpy.random` forbids itself and what is in it, and not `random` elsewhere."""
    forbidden = {"numpy.random"}
    assert reaches(parsed("import numpy as np\nnp.random.rand()"), forbidden) == "numpy.random.rand"
    assert reaches(parsed("import random"), forbidden) is None


def test_published_list_is_forbidden_and_so_is_the_interpreter():
    """`os.path` and `sys.exit` match no import there; here their modules are forbidden."""
    assert {"random", "multiprocessing", "calendar", "os", "sys", "builtins", "socket"} <= FORBIDDEN


def test_keywords_are_words():
    """`raise` is in `raise ValueError`, and not in `praise`."""
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
def test_input_is_what_is_written_out(text):
    """Literals, constructors, comprehensions, lambdas, methods."""
    assert arguments(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "1) or (3", "1)(2", "1); (2", "1\n) + f(2", "(f := lambda n: 5)", "[f := 3, 2][1]", "f(1)", "globals()", "exec('f = 1')",
        "g", "x.y", "().__class__", "open('a')", "__import__('os')", "print(1)", "type('A', (), {})", "setattr(1, 'a', 2)",
        "1 # a comment", "1,,2", "await x", "(yield)", "eval('1')",
    ],
)  # fmt: skip
def test_input_that_does_more_than_write_is_none(text):
    """No other call, no name of the program, no assignment, no way to what is hidden."""
    assert reason(text, call=arguments) == "bad-input"


def test_input_on_several_lines_is_joined():
    """What is called is the same; comments go."""
    assert arguments("{\n 'a': 1, # one\n 'b': [2,\n3]\n}, 4") == "{'a': 1, 'b': [2, 3]}, 4"


def test_input_may_call_classes_and_read_variables_of_the_program():
    """A class of the top level may be called, a variable read; neither may be changed, and nothing else is known."""
    tree = parsed("class A:\n    seen = []\ntable = [1, 2]\nlimit: int = 3\ndef g(x):\n    return x\n")
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
