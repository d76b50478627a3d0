"""Asking: proposers and solvers are shown what they need and no more; a reply to a prompt can be read."""

import pytest

from proofmill.tasks import asking, proposals, solutions
from proofmill.tasks.programs import FORBIDDEN
from proofmill.tasks.tasks import ROLES, TASKS, Task
from proofmill.text.fences import fenced

PROGRAM = "def f(a):\n    return a[::-1]"
ONE = Task("deduce", PROGRAM, "'142'", "'241'")
PAIRS = Task(
    "induce",
    PROGRAM,
    inputs=("'a1'", "'b2'", "'c3'", "'d4'"),
    outputs=("'1a'", "'2b'", "'3c'", "'4d'"),
    message="Look behind.",
)
FULL, TERSE = asking.wording("tasks"), asking.wording("tasks-terse")


def text(messages):
    """The only message."""
    (message,) = messages
    assert message["role"] == "user"
    return message["content"]


def shown(kind, words):
    """What a solver of a kind is shown."""
    task = PAIRS if kind == "induce" else Task(kind, PROGRAM, "'142'", "KeyError" if kind == "error" else "'241'")
    return text(asking.to_solve(task, words))


@pytest.mark.parametrize("words", [FULL, TERSE], ids=["full", "terse"])
@pytest.mark.parametrize(
    ("kind", "there", "hidden"),
    [
        ("deduce", [PROGRAM, "'142'"], ["'241'"]),
        ("error", [PROGRAM, "'142'"], ["KeyError"]),
        ("abduce", [PROGRAM, "'241'"], ["'142'"]),
        ("induce", ["'a1'", "'2b'", "Look behind."], [PROGRAM, "[::-1]", "'c3'", "'3c'", "'4d'"]),
    ],
)
def test_solver_is_shown_all_but_the_answer(words, kind, there, hidden):
    """Program and input, program and output, or half of the pairs."""
    found = shown(kind, words)
    assert all(part in found for part in there) and not any(part in found for part in hidden)


def test_terse_prompts_are_these():
    """Every token counts for a tiny model, which learns them as they are."""
    assert shown("deduce", TERSE) == f"deduce\n{PROGRAM}\nf('142')"
    assert shown("abduce", TERSE) == f"abduce\n{PROGRAM}\nf(?)='241'"
    assert shown("error", TERSE) == f"error\n{PROGRAM}\nf('142')"
    assert shown("induce", TERSE) == "induce\nf('a1')='1a'\nf('b2')='2b'\nLook behind."
    silent = Task("induce", PROGRAM, inputs=PAIRS.inputs, outputs=PAIRS.outputs)
    assert text(asking.to_solve(silent, TERSE)) == "induce\nf('a1')='1a'\nf('b2')='2b'"
    assert text(asking.to_propose("deduce", [ONE, ONE], TERSE)) == "propose deduce" + f"\n{PROGRAM}\nf('142')='241'" * 2
    assert text(asking.to_propose("abduce", [ONE], TERSE)) == f"propose abduce\n{PROGRAM}\nf('142')='241'"
    assert text(asking.to_propose("induce", [ONE], TERSE)) == f"propose induce\n{PROGRAM}"
    assert text(asking.to_propose("deduce", [ONE], TERSE, functions="def g_0(a):\n    return a")) == (
        f"propose deduce\ndef g_0(a):\n    return a\n{PROGRAM}\nf('142')='241'"
    )


@pytest.mark.parametrize("kind", ["deduce", "abduce", "error"])
def test_proposer_is_shown_references_and_what_is_forbidden(kind):
    """Each reference with its input and output, the modules, the words, the functions to call."""
    found = text(asking.to_propose(kind, [ONE, ONE], FULL, "def g_0(a):\n    return a", keywords=["raise", "assert"]))
    assert fenced(found, "python").count(PROGRAM) == 2 and fenced(found, "output") == ["'241'"] * 2
    assert ", ".join(sorted(FORBIDDEN)) in found and "def g_0" in found
    assert ("raise, assert" in found) is (kind == "error")
    without = text(asking.to_propose(kind, [], FULL))
    assert "g_0" not in without and "raise" not in without.replace("raises", "") and "(none)" in without


def test_proposer_of_an_induction_is_shown_one_program():
    """And how many inputs it is asked for; with another number of references there is none to be about."""
    found = text(asking.to_propose("induce", [ONE], FULL, inputs=6))
    assert fenced(found, "python") == [PROGRAM] and "Write 6 inputs" in found and "'142'" not in found
    with pytest.raises(ValueError, match="unpack"):
        asking.to_propose("induce", [ONE, ONE], FULL)


def test_criteria_are_the_right_way_round():
    """Who invents a deduction is told to hide the output, who invents an abduction to hide the input."""
    deduce, abduce = (text(asking.to_propose(kind, [ONE], FULL)) for kind in ("deduce", "abduce"))
    assert "must say what the program returns" in deduce and "backwards" not in deduce
    assert "must find arguments" in abduce and "backwards from the output" in " ".join(abduce.split())


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("role", ROLES)
def test_full_prompts_ask_for_tags_and_for_blocks_that_are_read(role, kind):
    """The form that a prompt asks for is that which the parser reads first."""
    asked = text(asking.to_propose(kind, [ONE], FULL)) if role == "propose" else shown(kind, FULL)
    assert asked.endswith("<think>\nyour reasoning\n</think>\n<answer>\nyour answer\n</answer>")
    blocks = {
        "propose": ["input", "message"] if kind == "induce" else ["python", "input"],
        "solve": [{"deduce": "output", "abduce": "input", "induce": "python", "error": "output"}[kind]],
    }[role]
    assert all(f"begins with ```{block}" in asked for block in blocks)


def test_terse_forms_are_read():
    """What tiny models write in their tags: a literal, a program, a program with a call, calls."""
    tagged = "<think>\n</think>\n<answer>{}</answer>".format
    assert solutions.parse("deduce", tagged("'241'")) == "'241'"
    assert solutions.parse("induce", tagged(PROGRAM)) == PROGRAM
    assert proposals.parse("abduce", tagged(f"{PROGRAM}\nf('35')")).inputs == ("'35'",)
    assert proposals.parse("induce", tagged("f('3')\nf('4')"), PROGRAM, inputs=2).inputs == ("'3'", "'4'")


def test_entry_may_name_another_prompt(tmp_path):
    """A file of one's own for one of them; the others stay."""
    (tmp_path / "mine.md").write_text("---\nneeds: [program, input]\n---\n{{ program }} of {{ input }}?")
    words = asking.wording("tasks-terse", {"solve-deduce": str(tmp_path / "mine.md")})
    assert shown("deduce", words) == f"{PROGRAM} of '142'?" and shown("abduce", words) == shown("abduce", TERSE)


@pytest.mark.parametrize("name", asking.WORDINGS)
def test_wording_has_every_part(name):
    """One prompt for each role and task, the example, the pair, what stands around."""
    assert list(asking.wording(name)) == list(asking.PARTS) and len(asking.PARTS) == 11
