"""Marking schemes: read into parts, checked by rules, and tried out on answers whose marks are known."""

import pytest

from conftest import SMALL
from proofmill import arithmetic, rubrics, schemes
from proofmill.calls import Answer
from proofmill.schemes import read_scheme, without_key_step

SCHEME = """Checkpoints (7 pts total)
1. (4 pts, main) The induction is set up and its step is proved.
   - a remark that belongs to the first checkpoint (3 points would be too many)
2. (3 pts, routine) The base cases are checked.
Total (max 7): 4 + 3 = 7

Zero-credit items
- Testing small cases.
- Saying the problem again.

Deductions
- minus 1: an arithmetic slip that nothing depends on
- minus 2: the step is shown for even n only
- cap at 5/7: contradictory claims
"""
CHAINS = """Checkpoints (7 pts total)
**Chains are alternatives: only the best chain counts, and chains are never summed.**
1. (1 pt, routine) Shared by all.
Chain A
1. (6 pts, main) The long way.
Chain B
1. (2 pts, routine) First.
2. (4 pts, main) Second.
Total (max 7)

Zero-credit items

Deductions
- cap at 5/7: circular
"""


def test_scheme_is_read_into_its_parts():
    """Checkpoints with points and weight, items worth nothing, deductions with their price; parts of an item stay in it."""
    rubric = rubrics.parse(SCHEME)
    assert [(c.points, c.weight, c.chain) for c in rubric.checkpoints] == [(4, "main", None), (3, "routine", None)]
    assert "3 points would be too many" in rubric.checkpoints[0].text
    assert rubric.zero_credit == ("Testing small cases.", "Saying the problem again.")
    assert [(d.minus, d.cap) for d in rubric.deductions] == [(1, None), (2, None), (None, 5)]
    assert rubrics.faults(rubric) == []


def test_points_are_those_of_the_best_chain():
    """Chains are alternatives: only the best counts, with what is shared."""
    rubric = rubrics.parse(CHAINS)
    assert {name: sum(c.points for c in chain) for name, chain in rubric.chains.items()} == {"A": 7, "B": 7}
    assert rubric.points == 7
    assert rubrics.faults(rubric) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("Deductions\n", "Penalties\n", "no-sections"),
        ("Zero-credit items\n", "Zero-credit items\n- x\n\nZero-credit items\n", "no-sections"),
        ("(3 pts, routine)", "(2 pts, routine)", "off-total"),
        ("(4 pts, main)", "(5 pts, main)", "off-total"),
        ("(4 pts, main)", "(4.5 pts, main)", "broken-points"),
        ("(4 pts, main)", "(-1 pts, main)", "broken-points"),
        ("2. (3 pts, routine)", "2.", "unpriced-checkpoint"),
        ("(4 pts, main)", "(4 pts, routine)", "small-main-idea"),
        ("Total (max 7): 4 + 3 = 7\n", "", "no-total-line"),
        ("- minus 1: an", "- An", "unpriced-deduction"),
        ("minus 2", "minus 3", "broken-deduction"),
        ("cap at 5/7", "cap at 7/7", "broken-deduction"),
        ("- minus 1: an arithmetic slip that nothing depends on", "- minus 1: testing small cases", "said-twice"),
        ("is proved.", "is proved as in the official solution.", "not-self-contained"),
        ("is proved.", "is proved; see the lemma the reference proof shows.", "not-self-contained"),
    ],
)
def test_fault_of_a_scheme_is_named(old, new, fault):
    """Each rule that a scheme breaks is found by its name."""
    assert old in SCHEME
    assert fault in rubrics.faults(rubrics.parse(SCHEME.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("(4 pts, main) Second", "(3 pts, main) Second", "chain-off-total"),
        ("(6 pts, main)", "(7 pts, main)", "off-total"),
        (
            "**Chains are alternatives: only the best chain counts, and chains are never summed.**\n",
            "",
            "chains-not-introduced",
        ),
        ("1. (2 pts, routine) First.", "1. (1 pt, routine) a\n3. (1 pt, routine) b", "cut-too-fine"),
    ],
)
def test_fault_of_chains_is_named(old, new, fault):
    """Every chain is worth 7, chains are introduced as alternatives, and routine work is not cut into crumbs."""
    assert old in CHAINS
    assert fault in rubrics.faults(rubrics.parse(CHAINS.replace(old, new)))


@pytest.mark.parametrize(
    ("item", "price"),
    [
        ("minus 1: a slip", (1, None)), ("-1 point: a slip", (1, None)), ("−2: a gap", (2, None)), ("cap at 4/7: circular", (None, 4)),
        ("using n-1 instead of n: minus 2", (2, None)), ("the bound x^{k-3} is wrong: minus 1", (1, None)), ("a wrong n-2", (None, None)),
    ],
)  # fmt: skip
def test_price_of_a_deduction_is_not_a_formula(item, price):
    """Words count before signs, and a minus within a formula is none."""
    (deduction,) = rubrics.parse(SCHEME.partition("- minus 1")[0] + f"- {item}\n").deductions
    assert (deduction.minus, deduction.cap) == price


def test_totals_of_chains_hide_no_chain():
    """A line of totals after each chain, or an item that begins with the word, ends nothing."""
    totals = CHAINS.replace("1. (6 pts, main) The long way.\n", "1. (6 pts, main) The long way.\nTotal (max 7)\n")
    assert set(rubrics.parse(totals).chains) == {"A", "B"}
    cheaper = totals.replace("(4 pts, main) Second", "(3 pts, main) Second")
    assert "chain-off-total" in rubrics.faults(rubrics.parse(cheaper))
    item = SCHEME.replace("1. (4 pts, main) The induction", "1. Total number of cases (4 pts, main) The induction")
    assert rubrics.parse(item).points == 7


def test_crumbs_are_counted_in_each_chain():
    """Two routine points in each of two ways are not four in one."""
    crumbs = CHAINS.replace("1. (2 pts, routine) First.", "1. (1 pt, routine) a\n3. (1 pt, routine) b").replace(
        "1. (1 pt, routine) Shared", "1. (1 pt, main) Shared"
    )
    assert "cut-too-fine" not in rubrics.faults(rubrics.parse(crumbs))


def test_cheaper_chain_is_a_fault_though_another_reaches_seven():
    """A way that can never earn full marks is found, and it is not the total of the best."""
    found = rubrics.faults(rubrics.parse(CHAINS.replace("(4 pts, main) Second", "(3 pts, main) Second")))
    assert "chain-off-total" in found and "off-total" not in found


def test_structured_scheme_is_read():
    """MathArena's items are checkpoints; sections and prices of deductions are not asked of them."""
    rubric = rubrics.parse("# One (3 points)\nDescription: a\n\n# Two (4 points)\nDescription: b")
    assert [c.points for c in rubric.checkpoints] == [3, 4]
    assert rubrics.faults(rubric, given=True) == []


def test_usamo_schemes_pass_the_linter(data, mill):
    """The six published schemes of USAMO 2025 are worth 7 points each, and the linter has no objection to their form."""
    entries = {
        "problems/u": {"source": "usamo", "path": str(data / "usamo_2025")},
        "schemes/u": {"problems": "problems/u"},
    }
    rows = mill(entries).make("problems/u", "schemes/u").rows(kept=False)
    assert [row["points"] for row in rows] == [7] * 6
    assert {row["dropped"] for row in rows} == {None}
    assert not {fault for row in rows for fault in row["faults"]} & {"off-total", "broken-points", "no-sections"}


def test_guidelines_without_points_are_kept_as_they_are(data, mill):
    """IMO-ProofBench's guidelines price nothing; they are no schemes of ours, and they are marked by."""
    path = str(data / "imobench/proofbench_v2.csv")
    entries = {"problems/p": {"source": "proofbench", "path": path}, "schemes/p": {"problems": "problems/p"}}
    rows = mill(entries).make("problems/p", "schemes/p").rows(kept=False)
    assert {(row["dropped"], row["points"]) for row in rows} == {(None, None)}


@pytest.mark.parametrize("text", ["", "   ", "I cannot write one."])
def test_answer_without_a_scheme_is_asked_for_again(text):
    """A text without a checkpoint is no scheme; one that is badly built is, and is kept with its faults."""
    assert schemes._unreadable(Answer(text, "end"))
    assert not schemes._unreadable(Answer(SCHEME.replace("3 pts", "2 pts"), "end"))


def test_failure_of_the_judge_is_its_reason():
    """A failed call has no scheme; the reason says why."""
    assert read_scheme(Answer(SCHEME, "error", "timeout")) == (None, "timeout")


def test_thought_and_preamble_are_cut_off():
    """A scheme begins with its checkpoints, also where a thought before it speaks of checkpoints."""
    said = f"<thought>Checkpoints first</thought>I will list the Checkpoints now:\n{SCHEME}\n"
    assert rubrics.clean(said) == SCHEME.strip()


@pytest.mark.parametrize(
    ("solution", "expected"),
    [
        ("First part.\n\nThe long middle part of it all.\n\nSo we are done.", "First part.\n\nSo we are done."),
        ("a=1\nb=a+1=2, c=b+1=3\nso c=3", "a=1\nso c=3"),
        ("Let x be odd. Then x squared is odd too. Done.", "Let x be odd. Done."),
        ("It is obvious.", None),
        ("", None),
    ],
)
def test_key_step_is_the_longest_but_not_the_conclusion(solution, expected):
    """Paragraphs, else lines, else sentences; a text of one step has none to take out."""
    assert expected == without_key_step(solution)


TESTED = {
    "problems/p": {"source": "arithmetic", "rows": 12},
    "schemes/p": {
        "problems": "problems/p",
        "model": "api/referee",
        "tester": "api/referee",
        "keep": ["clean", {"reference-passes": 6}, "nothing-for-nothing", "notices-gaps"],
    },
}


def test_self_test_marks_known_answers(mill):
    """The reference has at least 6 marks, nothing has none, and the reference without its key step has fewer."""
    rows = mill(TESTED).make("problems/p", "schemes/p").rows(kept=False)
    assert len(rows) == 12
    assert {row["tested"] for row in rows} == {"ok"}
    assert {row["reference_marks"] for row in rows} == {7}
    assert {(row["blank_marks"], row["restated_marks"], row["unrelated_marks"]) for row in rows} == {(0, 0, 0)}
    assert all(row["cut_marks"] < 7 for row in rows)
    assert {row["dropped"] for row in rows} == {None}


def test_scheme_that_gives_marks_away_is_found_and_not_marked_by(mill, monkeypatch):
    """A scheme by which everything is right passes the linter and fails its self-test; its row says where."""
    monkeypatch.setattr(arithmetic.Marking, "marks", lambda *_, **__: 7)
    entries = TESTED | {"schemes/p": TESTED["schemes/p"] | {"tester": "arithmetic"}}
    table = mill(entries).make("problems/p", "schemes/p")
    rows = table.rows(kept=False)
    assert {row["tested"] for row in rows} == {"blank, restated, unrelated, cut"}
    assert {row["dropped"] for row in rows} == {"nothing-for-nothing"}
    assert all(row["scheme"] for row in rows)
    assert table.rows() == []


def test_problem_whose_scheme_failed_is_dropped_by_name(mill, monkeypatch):
    """`has-scheme` of problems refuses those whose scheme was refused, with the demand as evidence."""
    monkeypatch.setattr(schemes, "BLANK", arithmetic.proof(next(arithmetic.problems("train", 0))))
    entries = TESTED | {"problems/q": {"source": "problems/p", "schemes": "schemes/p", "keep": ["has-scheme"]}}
    rows = mill(entries).make("problems/p", "schemes/p", "problems/q").rows(kept=False)
    dropped = {row["evidence"] for row in rows if row["dropped"] == "has-scheme"}
    assert dropped == {"its scheme was refused: nothing-for-nothing (blank)"}
    assert rows[0]["dropped"] == "has-scheme"


def test_unscored_self_test_is_not_passed(mill):
    """A tester without a verdict says nothing about a scheme: `unscored`, and a demand that needs the mark refuses it."""
    entries = SMALL | {
        "schemes/t": {"problems": "problems/train", "tester": "api/referee", "keep": [{"reference-passes": 6}]}
    }
    made = mill(entries)
    made.make("problems/train")
    rows = made.make("schemes/t").rows(kept=False)
    assert {(row["reason"], row["tested"], row["dropped"]) for row in rows} == {
        ("no-guidelines", None, "reference-passes")
    }
