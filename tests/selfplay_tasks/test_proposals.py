"""Proposals: parsing replies with blocks, with lines, and bare."""

import pytest

from proofmill.selfplay_tasks.proposals import Normal, Proposal, call_arguments, parse
from proofmill.selfplay_tasks.tasks import Invalid

PROGRAM = "def f(a, b):\n    # adds\n    return a + b"
BLOCKS = f"A task.\n```python\n{PROGRAM}\n```\nand\n```input\n1, 2\n```\n"


def tagged(answer, thought="Hm."):
    """Return a reply with tags."""
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
def test_program_and_input_are_parsed_in_every_form(answer):
    """Fenced blocks, a comment, and a call on the last line are parsed; the first program and input count."""
    assert parse("deduce", tagged(answer)) == FOUND


def test_reasoning_is_not_parsed():
    """A block in the reasoning, or before the last tag, is not a proposal."""
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
def test_reply_without_a_proposal_has_a_reason(answer, reason):
    """A missing or unusable program or input makes the reply invalid."""
    proposal = parse("abduce", tagged(answer))
    assert isinstance(proposal, Invalid) and proposal.reason == reason


def test_reply_without_tags_is_parsed_only_with_tags_off():
    """With `tags=False` the full reply is parsed."""
    assert parse("deduce", BLOCKS) == Invalid("format")
    assert parse("deduce", BLOCKS, tags=False) == FOUND


def test_program_is_normalized():
    """The options of programs.normalize are applied."""
    normal = Normal(drop=frozenset({"comments"}))
    assert parse("deduce", tagged(BLOCKS), normal=normal).program == "def f(a, b):\n    return a + b"
    two = BLOCKS.replace("def f", "def g(x):\n    return x\n\ndef f")
    assert parse("deduce", tagged(two), normal=Normal(one_function=True)).reason == "many-functions"


def test_program_that_contains_its_input_can_be_refused():
    """With `holds_input=False` a program that contains its input is invalid."""
    revealing = BLOCKS.replace("return a + b", "return a + b\nassert f(1, 2) == 3")
    assert parse("abduce", tagged(revealing), normal=Normal(holds_input=False)) == Invalid("holds-input")
    assert isinstance(parse("abduce", tagged(revealing)), Proposal)
    assert isinstance(parse("abduce", tagged(BLOCKS), normal=Normal(holds_input=False)), Proposal)


def inductions(count, form="```input\n{}\n```", message="```message\nA hint.\n```"):
    """Return an answer with `count` inputs."""
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
def test_inputs_and_message_of_an_induction_are_parsed_in_every_form(answer):
    """Blocks, comments and calls are parsed; the message may follow the last call."""
    proposal = parse("induce", tagged(answer), PROGRAM, inputs=3)
    assert proposal == Proposal("induce", PROGRAM, ("0", "1", "2"), "A hint.")


def test_induction_has_the_last_inputs_and_needs_enough():
    """Of twelve inputs the last ten count, as published; nine are too few."""
    assert parse("induce", tagged(inductions(12)), PROGRAM).inputs == tuple(map(str, range(2, 12)))
    assert parse("induce", tagged(inductions(9)), PROGRAM) == Invalid("no-input", "9 of 10")
    assert parse("induce", tagged("No."), PROGRAM, inputs=1) == Invalid("no-input", "0 of 1")


def test_induction_with_blocks_needs_a_message():
    """An empty block is a message, a missing block makes it invalid; bare calls may end the reply."""
    assert parse("induce", tagged(inductions(2, message="```message\n```")), PROGRAM, inputs=2).message == ""
    assert parse("induce", tagged(inductions(2, message="")), PROGRAM, inputs=2) == Invalid("no-message")
    assert parse("induce", tagged("f(1)\nf(2)"), PROGRAM, inputs=2).message == ""


@pytest.mark.parametrize(
    ("line", "expected"),
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
def test_only_a_line_that_is_a_call_has_arguments(line, expected):
    """Only `f(...)` is a call."""
    assert call_arguments(line) == expected
