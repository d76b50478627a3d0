"""Proposals: what is read from a reply, in blocks, in lines, bare."""

import pytest

from proofmill.tasks.proposals import Normal, Proposal, called, parse
from proofmill.tasks.tasks import Invalid

PROGRAM = "def f(a, b):\n    # adds\n    return a + b"
BLOCKS = f"A task.\n```python\n{PROGRAM}\n```\nand\n```input\n1, 2\n```\n"


def tagged(answer, thought="Hm."):
    """A reply in its tags."""
    return f"<think>{thought}</think>\n<answer>{answer}</answer>"


FOUND = Proposal("deduce", PROGRAM, ("1, 2",))


@pytest.mark.parametrize(
    "answer",
    [
        BLOCKS,
        BLOCKS.replace("```python", "```"),
        f"```input\n1, 2\n```\n```python\n{PROGRAM}\n```",
        f"{BLOCKS}```python\ndef g(x):\n    return x\n```\n```input\n3, 4\n```",
        f"```python\n{PROGRAM}\n```\n# Input: 1, 2",
        f"{PROGRAM}\n# input:  1, 2 ",
        f"{PROGRAM}\nf(1, 2)",
        f"\n{PROGRAM}\n\nf(1, 2)\n",
    ],
)
def test_program_and_input_are_read_in_every_form(answer):
    """The first program and the first input of fenced blocks, a comment, or a call on the last line."""
    assert parse("deduce", tagged(answer)) == FOUND


def test_reasoning_is_not_read():
    """A block in the thought, or before the last tag, is no proposal."""
    assert parse("deduce", tagged("", thought=BLOCKS)) == Invalid("format")
    assert parse("abduce", tagged("<answer>" + BLOCKS)).program == PROGRAM


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("```input\n1\n```", "no-program"),
        ("f(1)", "no-program"),
        (f"```python\n{PROGRAM}\n```", "no-input"),
        (PROGRAM, "no-input"),
        (f"```python\n{PROGRAM}\n```\n```input\n```", "no-input"),
        ("```python\nx = 1\n```\n```input\n1\n```", "no-function"),
        ("```python\ndef f(a)\n```\n```input\n1\n```", "syntax"),
        ("I cannot.", "syntax"),
        ("   ", "format"),
    ],
)
def test_reply_that_proposes_nothing_says_why(answer, reason):
    """Neither a program nor an input is made up."""
    found = parse("abduce", tagged(answer))
    assert isinstance(found, Invalid) and found.reason == reason


def test_reply_without_tags_is_read_only_where_none_were_asked_for():
    """Seeding reads all of a reply of a model that has not learned the tags."""
    assert parse("deduce", BLOCKS) == Invalid("format")
    assert parse("deduce", BLOCKS, tags=False) == FOUND


def test_program_is_brought_into_its_form():
    """The options of programs.normalised are those of an entry."""
    normal = Normal(drop=frozenset({"comments"}))
    assert parse("deduce", tagged(BLOCKS), normal=normal).program == "def f(a, b):\n    return a + b"
    two = BLOCKS.replace("def f", "def g(x):\n    return x\n\ndef f")
    assert parse("deduce", tagged(two), normal=Normal(one_function=True)).reason == "many-functions"


def test_program_may_be_kept_from_holding_its_input():
    """A test in the program gives away what a solver must find."""
    told = BLOCKS.replace("return a + b", "return a + b\nassert f(1, 2) == 3")
    assert parse("abduce", tagged(told), normal=Normal(holds_input=False)) == Invalid("holds-input")
    assert isinstance(parse("abduce", tagged(told)), Proposal)
    assert isinstance(parse("abduce", tagged(BLOCKS), normal=Normal(holds_input=False)), Proposal)


def inductions(count, form="```input\n{}\n```", message="```message\nA hint.\n```"):
    """An answer with some inputs."""
    return "\n".join([*(form.format(n) for n in range(count)), message])


@pytest.mark.parametrize(
    "answer",
    [
        inductions(3),
        inductions(3, "# Input: {}", "# Message: A hint."),
        inductions(3, "f({})", "A hint."),
        "Inputs:\n" + inductions(3, "f({})", "\nA hint.\n"),
    ],
)
def test_inputs_and_message_of_an_induction_are_read_in_every_form(answer):
    """In blocks, comments or calls; the message is what follows the last call."""
    found = parse("induce", tagged(answer), PROGRAM, inputs=3)
    assert found == Proposal("induce", PROGRAM, ("0", "1", "2"), "A hint.")


def test_induction_has_the_last_inputs_and_needs_enough():
    """Of twelve the last ten, as published; of nine none."""
    assert parse("induce", tagged(inductions(12)), PROGRAM).inputs == tuple(map(str, range(2, 12)))
    assert parse("induce", tagged(inductions(9)), PROGRAM) == Invalid("no-input", "9 of 10")
    assert parse("induce", tagged("No."), PROGRAM, inputs=1) == Invalid("no-input", "0 of 1")


def test_induction_may_have_no_message():
    """An empty hint is a hint."""
    assert parse("induce", tagged(inductions(2, message="")), PROGRAM, inputs=2).message == ""
    assert parse("induce", tagged("f(1)\nf(2)"), PROGRAM, inputs=2).message == ""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (" f(1, 2) ", "1, 2"),
        ("f()", ""),
        ("f(1)(2)", ""),
        ("g(1)", ""),
        ("f(1", ""),
        ("f(1) + f(2)", ""),
        ("f('\"')", "'\"'"),
    ],
)
def test_call_is_a_line_of_its_own(line, found):
    """Nothing but `f(...)` is a call."""
    assert called(line) == found
