"""Requests: proposers and solvers see exactly what they need; replies in the requested form can be parsed."""

import pytest

from proofmill.selfplay_tasks import proposals, requests, solutions
from proofmill.selfplay_tasks.program_text import FORBIDDEN
from proofmill.selfplay_tasks.tasks import ROLES, TASKS, Task
from proofmill.text.fences import find_fenced

PROGRAM = "def f(a):\n    return a[::-1]"
ONE = Task("deduce", PROGRAM, "'142'", "'241'")
PAIRS = Task(
    "induce",
    PROGRAM,
    inputs=("'a1'", "'b2'", "'c3'", "'d4'"),
    outputs=("'1a'", "'2b'", "'3c'", "'4d'"),
    message="Look behind.",
)
FULL, TERSE = requests.wording("tasks"), requests.wording("tasks-terse")


def text(messages):
    """Return the text of the only message."""
    (message,) = messages
    assert message["role"] == "user"
    return message["content"]


def shown(kind, words):
    """Return the solver's prompt for a task of a kind."""
    task = PAIRS if kind == "induce" else Task(kind, PROGRAM, "'142'", "KeyError" if kind == "error" else "'241'")
    return text(requests.to_solve(task, words))


@pytest.mark.parametrize("words", [FULL, TERSE], ids=["full", "terse"])
@pytest.mark.parametrize(
    ("kind", "visible", "hidden"),
    [
        ("deduce", [PROGRAM, "'142'"], ["'241'"]),
        ("error", [PROGRAM, "'142'"], ["KeyError"]),
        ("abduce", [PROGRAM, "'241'"], ["'142'"]),
        ("induce", ["'a1'", "'2b'", "Look behind."], [PROGRAM, "[::-1]", "'c3'", "'3c'", "'4d'"]),
    ],
)
def test_solver_is_shown_all_but_the_answer(words, kind, visible, hidden):
    """The prompt has program and input, program and output, or half of the pairs."""
    prompt = shown(kind, words)
    assert all(part in prompt for part in visible) and not any(part in prompt for part in hidden)


def test_terse_prompts_are_these():
    """The terse prompts are these, to the character, because tiny models were trained on them."""
    assert shown("deduce", TERSE) == f"deduce\n{PROGRAM}\nf('142')"
    assert shown("abduce", TERSE) == f"abduce\n{PROGRAM}\nf(?)='241'"
    assert shown("error", TERSE) == f"error\n{PROGRAM}\nf('142')"
    assert shown("induce", TERSE) == "induce\nf('a1')='1a'\nf('b2')='2b'\nLook behind."
    silent = Task("induce", PROGRAM, inputs=PAIRS.inputs, outputs=PAIRS.outputs)
    assert text(requests.to_solve(silent, TERSE)) == "induce\nf('a1')='1a'\nf('b2')='2b'"
    assert (
        text(requests.to_propose("deduce", [ONE, ONE], TERSE)) == "propose deduce" + f"\n{PROGRAM}\nf('142')='241'" * 2
    )
    assert text(requests.to_propose("abduce", [ONE], TERSE)) == f"propose abduce\n{PROGRAM}\nf('142')='241'"
    assert text(requests.to_propose("induce", [ONE], TERSE)) == f"propose induce\n{PROGRAM}"
    assert text(requests.to_propose("deduce", [ONE], TERSE, functions="def g_0(a):\n    return a")) == (
        f"propose deduce\ndef g_0(a):\n    return a\n{PROGRAM}\nf('142')='241'"
    )


@pytest.mark.parametrize("kind", ["deduce", "abduce", "error"])
def test_proposer_is_shown_references_and_what_is_forbidden(kind):
    """The prompt has each reference with input and output, the forbidden modules and words, the functions to call."""
    prompt = text(
        requests.to_propose(kind, [ONE, ONE], FULL, "def g_0(a):\n    return a", keywords=["raise", "assert"])
    )
    assert find_fenced(prompt, "python").count(PROGRAM) == 2 and find_fenced(prompt, "output") == ["'241'"] * 2
    assert ", ".join(sorted(FORBIDDEN)) in prompt and "def g_0" in prompt
    assert ("raise, assert" in prompt) is (kind == "error")
    without = text(requests.to_propose(kind, [], FULL))
    assert "g_0" not in without and "raise" not in without.replace("raises", "") and "(none)" in without


def test_proposer_of_an_induction_is_shown_one_program():
    """It also shows the number of inputs; any other number of references raises."""
    prompt = text(requests.to_propose("induce", [ONE], FULL, inputs=6))
    assert find_fenced(prompt, "python") == [PROGRAM] and "Write 6 inputs" in prompt and "'142'" not in prompt
    with pytest.raises(ValueError, match="unpack"):
        requests.to_propose("induce", [ONE, ONE], FULL)


def test_criteria_are_the_right_way_round():
    """The prompt for deductions asks to hide the output, the one for abductions to hide the input."""
    deduce, abduce = (text(requests.to_propose(kind, [ONE], FULL)) for kind in ("deduce", "abduce"))
    assert "must say what the program returns" in deduce and "backwards" not in deduce
    assert "must find arguments" in abduce and "backwards from the output" in " ".join(abduce.split())


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("role", ROLES)
def test_full_prompts_ask_for_tags_and_for_blocks_that_are_parsed(role, kind):
    """A prompt asks for the form that the parser tries first."""
    prompt = text(requests.to_propose(kind, [ONE], FULL)) if role == "propose" else shown(kind, FULL)
    assert prompt.endswith("<think>\nyour reasoning\n</think>\n<answer>\nyour answer\n</answer>")
    blocks = {
        "propose": ["input", "message"] if kind == "induce" else ["python", "input"],
        "solve": [{"deduce": "output", "abduce": "input", "induce": "python", "error": "output"}[kind]],
    }[role]
    assert all(f"begins with ```{block}" in prompt for block in blocks)


def test_terse_forms_are_parsed():
    """A literal, a program, a program with a call, and calls are parsed from the tags."""
    tagged = "<think>\n</think>\n<answer>{}</answer>".format
    assert solutions.parse("deduce", tagged("'241'")) == "'241'"
    assert solutions.parse("induce", tagged(PROGRAM)) == PROGRAM
    assert proposals.parse("abduce", tagged(f"{PROGRAM}\nf('35')")).inputs == ("'35'",)
    assert proposals.parse("induce", tagged("f('3')\nf('4')"), PROGRAM, inputs=2).inputs == ("'3'", "'4'")


def test_entry_may_name_another_prompt(tmp_path):
    """A file replaces one prompt; the others stay."""
    (tmp_path / "mine.md").write_text("---\nneeds: [program, input]\n---\n{{ program }} of {{ input }}?")
    words = requests.wording("tasks-terse", {"solve-deduce": str(tmp_path / "mine.md")})
    assert shown("deduce", words) == f"{PROGRAM} of '142'?" and shown("abduce", words) == shown("abduce", TERSE)


@pytest.mark.parametrize("name", requests.WORDINGS)
def test_wording_has_every_part(name):
    """A set has a prompt for each role and task, the example, the pair and the frame."""
    assert list(requests.wording(name)) == list(requests.PARTS) and len(requests.PARTS) == 11
