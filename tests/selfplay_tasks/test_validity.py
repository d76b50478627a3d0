"""Validity: proposals must run, with the same value in different processes."""

import pytest

from proofmill.selfplay_tasks.proposals import Proposal
from proofmill.selfplay_tasks.tasks import Invalid, Task
from proofmill.selfplay_tasks.validity import valid


def proposal(body, text="3", kind="deduce", **more):
    """Build a proposal from the body of its function `f` of `a`, or from a full source with `def f`."""
    source = body if "def f" in body else f"def f(a):\n    {body}"
    return Proposal(kind, source, (text,) if isinstance(text, str) else text, **more)


def reason(executor, *arguments, **named):
    """Return the reason why a proposal is invalid; None if it is a task."""
    (outcome,) = valid([proposal(*arguments)], executor, **named)
    return outcome.reason if isinstance(outcome, Invalid) else None


def test_valid_proposals_become_tasks_with_their_values(executor):
    """Each has the value of its program and its step, and the order is kept."""
    outcomes = valid(
        [
            proposal("return a + 1"),
            Invalid("format"),
            proposal("return sorted(a)", "{'b', 'a'}", "abduce"),
            proposal("return a * 2", ("1", "'x'", "[0]"), "induce", message="Twice."),
            proposal("return 1 // a", "0", "error"),
            proposal("return 1 // a", "2", "error"),
        ],
        executor,
        step=7,
    )
    assert outcomes == [
        Task("deduce", "def f(a):\n    return a + 1", "3", "4", step=7),
        Invalid("format"),
        Task("abduce", "def f(a):\n    return sorted(a)", "{'b', 'a'}", "['a', 'b']", step=7),
        Task(
            "induce",
            "def f(a):\n    return a * 2",
            inputs=("1", "'x'", "[0]"),
            outputs=("2", "'xx'", "[0, 0]"),
            message="Twice.",
            step=7,
        ),
        Task("error", "def f(a):\n    return 1 // a", "0", "ZeroDivisionError", step=7),
        Task("error", "def f(a):\n    return 1 // a", "2", "NoError", step=7),
    ]


# Programs whose value depends on more than their input. They are validated without forbidden modules.
UNSTABLE = {
    "chance": "import random\ndef f(a):\n    return random.random()",
    "chance-seeded-by-time": "import random\ndef f(a):\n    return random.Random().randrange(10 ** 12)",
    "chance-of-the-system": "import os\ndef f(a):\n    return os.urandom(8)",
    "secrets": "import secrets\ndef f(a):\n    return secrets.token_hex()",
    "uuid": "import uuid\ndef f(a):\n    return str(uuid.uuid4())",
    "time": "import time\ndef f(a):\n    return time.time_ns()",
    "clock": "import time\ndef f(a):\n    return time.perf_counter_ns()",
    "date": "from datetime import datetime\ndef f(a):\n    return datetime.now().microsecond",
    "hash": "def f(a):\n    return hash('a' * a)",
    "hash-of-bytes": "def f(a):\n    return hash(b'ab')",
    "order-of-a-set": "def f(a):\n    return list({str(n) for n in range(50)})",
    "order-in-a-dict": "def f(a):\n    return list(dict.fromkeys({'k%d' % n for n in range(50)}))",
    "first-of-a-set": "def f(a):\n    return {str(n) for n in range(1000)}.pop()",
    "address": "def f(a):\n    return id(object())",
    "address-in-text": "def f(a):\n    return str(object())",
    "address-of-a-function": "def f(a):\n    return repr(f)",
    "process": "import os\ndef f(a):\n    return os.getpid()",
}


@pytest.mark.parametrize("name", UNSTABLE)
def test_program_that_depends_on_more_than_its_input_is_invalid(executor, name):
    """Randomness, time, hash seed, set order, addresses and the process are detected without forbidden modules."""
    assert reason(executor, UNSTABLE[name], forbidden=()) in ("differs", "raised", "refused", "crashed")


def test_two_executions_are_not_two_calls_in_one_process(executor):
    """A hash agrees with itself in one process, and differs between two."""
    program = "def f(a):\n    assert hash('x') == hash('x')\n    return hash('x')"
    assert reason(executor, program) == "differs"


def test_programs_with_small_sets_are_executed_more_often(executor):
    """Two texts in a set have the same order half the time: two executions pass many of 60 such programs, six few."""
    forms = [
        "return list({{'{0}', 'a'}})", "return [x for x in a.keys() - {{1}}]", "return hash('{0}') % 2", "return list(a)"
    ]  # fmt: skip
    programs = [
        proposal(forms[number % 4].format(f"x{number}"), f"dict.fromkeys(['u{number}', 'v'])" if number % 4 == 1 else
                 f"{{'u{number}', 'v'}}")
        for number in range(60)
    ]  # fmt: skip
    passed = [sum(isinstance(each, Task) for each in valid(programs, executor, runs_of_sets=runs)) for runs in (2, 6)]
    assert passed[0] >= 15 and passed[1] <= 10  # 30 and 2 expected


def test_order_that_does_not_matter_is_no_difference(executor):
    """Sets, dicts and NaN are compared by value."""
    for body in (
        "return {str(n) for n in range(50)}",
        "return {str(n): n for n in {'a', 'b', 'c'}}",
        "return float('nan')",
    ):
        assert reason(executor, body) is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("raise StopIteration", "raised"),  # no "error" in its name: such programs pass in the original
        ("raise KeyboardInterrupt", "raised"),
        ("class Odd(Exception):\n    pass\ndef f(a):\n    raise Odd", "raised"),
        ("return a[0]", "raised"),
        ("while True:\n        pass", "timeout"),
        ("return list(range(10 ** 9))", "memory"),
        ("return 'x' * 20_000", "refused"),
        ("return f", "refused"),
        ("return (n for n in 'ab')", "refused"),
    ],
)
def test_program_that_fails_is_invalid(executor, body, expected):
    """The status of its execution is the reason."""
    assert reason(executor, body) == expected


def test_exit_of_the_process_is_not_a_value(executor):
    """A program that exits is invalid, even if its module is allowed."""
    program = "import sys\ndef f(a):\n    sys.exit(0)"
    assert reason(executor, program) == "forbidden"
    assert reason(executor, program, forbidden=()) in ("raised", "crashed", "refused")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("import os\ndef f(a):\n    return a",), "forbidden"),
        (("import numpy.random as r\ndef f(a):\n    return a",), "forbidden"),
        (("return a", "g(1)"), "bad-input"),
        (("return a", "1) or (2"), "bad-input"),
        (("return a  # " + "x" * 10_000,), "too-long"),
        (("return a", f"'{'x' * 10_000}'"), "too-long"),
        (("return '```'",), "unshowable"),
        (("return '<think>'",), "unshowable"),
        (("return a", "'<|im_end|>'"), "unshowable"),
        (("if a:\n        raise ValueError\n    return a",), "keyword"),
    ],
)
def test_proposal_that_is_refused_before_it_runs_has_a_reason(executor, arguments, expected):
    """Forbidden modules, inputs that are not literal, length, unshowable text and forbidden words have reasons."""
    assert reason(executor, *arguments, keywords=["raise"]) == expected


def test_every_input_of_an_induction_must_pass(executor):
    """An input that raises, or that uses a class of the program, makes it invalid."""
    assert reason(executor, "return 6 // a", ("1", "2", "0"), "induce") == "raised"
    program = "class A:\n    pass\ndef f(a):\n    return 1"
    assert reason(executor, program, ("A()", "2"), "induce") == "bad-input"
    assert reason(executor, program, "A()", "abduce") is None


@pytest.mark.parametrize("message", ["It is this:\ndef f(a):\n    return a", "f = lambda a: a", "  class A:\n  pass"])
def test_message_with_a_program_is_invalid(executor, message):
    """A hint in words is valid, and may mention classes and functions."""
    (outcome,) = valid([proposal("return a", ("1", "2"), "induce", message=message)], executor)
    assert outcome.reason == "tells"
    hint = "Think of a class of numbers; def is short for define, and lambda is a letter."
    assert isinstance(valid([proposal("return a", ("1", "2"), "induce", message=hint)], executor)[0], Task)


def test_error_must_be_the_same_twice(executor):
    """An exception that varies is invalid; a custom one is named without its module."""
    by_chance = "raise type('E%d' % hash('x'), (Exception,), {})"
    assert reason(executor, by_chance, "1", "error") == "differs"
    custom = "class Odd(Exception):\n    pass\ndef f(a):\n    raise Odd('no: really')"
    assert valid([proposal(custom, "1", "error")], executor)[0].output == "Odd"


def test_limits_hold_for_errors_too(executor):
    """An endless loop is a timeout, not an exception."""
    assert reason(executor, "while True:\n        pass", "1", "error") == "timeout"


def test_given_functions_must_be_called(executor):
    """A composite that ignores a given function is invalid, one that calls it is a task."""
    given = "def g_0(a):\n    return a + 1\n\n"
    for own, expected in (("def f(a):\n    return a", "composite"), ("def f(a):\n    return g_0(a) * 2", None)):
        (outcome,) = valid([Proposal("deduce", given + own, ("1",), proposed=own)], executor)
        assert (outcome.reason if isinstance(outcome, Invalid) else None) == expected
    assert outcome.output == "4" and outcome.own == own


def test_no_proposals_give_no_tasks(executor):
    """An empty batch and one of invalid proposals run nothing."""
    assert valid([], executor) == []
    assert valid([Invalid("format")], executor) == [Invalid("format")]
