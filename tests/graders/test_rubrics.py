"""Grading schemes: parsed into parts, and checked by rules."""

import pytest

from grading import SCHEME
from proofmill.graders import rubrics

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
    """Checkpoints with points and weight, zero-credit items, deductions; nested items stay in their item."""
    rubric = rubrics.parse(SCHEME)
    assert [(c.points, c.weight, c.chain) for c in rubric.checkpoints] == [(4, "main", None), (3, "routine", None)]
    assert "3 points would be too many" in rubric.checkpoints[0].text
    assert rubric.zero_credit == ("Testing small cases.", "Saying the problem again.")
    assert [(d.minus, d.cap) for d in rubric.deductions] == [(1, None), (2, None), (None, 5)]
    assert rubrics.faults(rubric) == []


def test_points_are_those_of_the_best_chain():
    """Chains are alternatives: only the best counts, with the shared checkpoints."""
    rubric = rubrics.parse(CHAINS)
    assert {name: sum(c.points for c in chain) for name, chain in rubric.chains.items()} == {"A": 7, "B": 7}
    assert rubric.points == 7
    assert rubrics.faults(rubric) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("Deductions\n", "Penalties\n", "no-sections"),
        ("Zero-credit items\n", "Zero-credit items\n- x\n\nZero-credit items\n", "no-sections"),
        ("(3 pts, routine)", "(2 pts, routine)", "wrong-total"),
        ("(4 pts, main)", "(5 pts, main)", "wrong-total"),
        ("(4 pts, main)", "(4.5 pts, main)", "invalid-points"),
        ("(4 pts, main)", "(-1 pts, main)", "invalid-points"),
        ("2. (3 pts, routine)", "2.", "checkpoint-without-points"),
        ("(4 pts, main)", "(4 pts, routine)", "main-idea-too-small"),
        ("Total (max 7): 4 + 3 = 7\n", "", "no-total-line"),
        ("- minus 1: an", "- An", "deduction-without-points"),
        ("minus 2", "minus 3", "invalid-deduction"),
        ("cap at 5/7", "cap at 7/7", "invalid-deduction"),
        ("- minus 1: an arithmetic slip that nothing depends on", "- minus 1: testing small cases", "duplicate-item"),
        ("is proved.", "is proved as in the official solution.", "not-self-contained"),
        ("is proved.", "is proved; see the lemma the reference proof shows.", "not-self-contained"),
    ],
)
def test_fault_of_a_scheme_is_named(old, new, fault):
    """Each broken rule of a scheme is reported by its name."""
    assert old in SCHEME
    assert fault in rubrics.faults(rubrics.parse(SCHEME.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("(4 pts, main) Second", "(3 pts, main) Second", "wrong-chain-total"),
        ("(6 pts, main)", "(7 pts, main)", "wrong-total"),
        (
            "**Chains are alternatives: only the best chain counts, and chains are never summed.**\n",
            "",
            "chains-not-introduced",
        ),
        ("1. (2 pts, routine) First.", "1. (1 pt, routine) a\n3. (1 pt, routine) b", "too-fine"),
    ],
)
def test_fault_of_chains_is_named(old, new, fault):
    """Every chain is worth 7, chains are introduced as alternatives, and routine work is not split too finely."""
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
    """Words count before signs, and a minus within a formula does not count."""
    (deduction,) = rubrics.parse(SCHEME.partition("- minus 1")[0] + f"- {item}\n").deductions
    assert (deduction.minus, deduction.cap) == price


@pytest.mark.parametrize(
    ("price", "points", "weight"),
    [
        ("(4 pts, main)", 4, "main"),
        ("[ 4 points ; the main idea ]", 4, "main"),
        ("(4pt.:\n critical)", 4, "main"),
        ("(4.0 pts)", 4, None),
        ("(4 pts, )", 4, None),
        (f"({'4' * 10} pts, main)", None, None),
        (f"({'4' * 5000} pts, main)", None, None),
        (f"(4 pts,{' ' * 50_000}main, {' ' * 50_000}", None, None),
    ],
)
def test_price_of_a_checkpoint_is_a_number_in_brackets(price, points, weight):
    """Spaces, dots and words may surround it; a number that is too long leaves the item without points."""
    rubric = rubrics.parse(SCHEME.replace("(4 pts, main)", price))
    if points is None:
        assert len(rubric.unpriced) == 1 and "checkpoint-without-points" in rubrics.faults(rubric)
    else:
        assert (rubric.checkpoints[0].points, rubric.checkpoints[0].weight) == (points, weight)


@pytest.mark.parametrize("price", [f"minus {'1' * 5000}", f"cap at {'1' * 5000}/7", f"-{'1' * 5000}: x"])
def test_deduction_by_a_number_of_thousands_of_digits_has_no_price(price):
    """It is a fault of the scheme like any other deduction without points."""
    assert "deduction-without-points" in rubrics.faults(rubrics.parse(SCHEME.replace("minus 2", price)))


def test_structured_scheme_with_points_of_thousands_of_digits_has_no_such_item():
    """An item whose points cannot be parsed does not count."""
    assert rubrics.parse(f"# One ({'3' * 5000} points)\nDescription: a").checkpoints == ()


@pytest.mark.parametrize("before", ["\n", "#\n", "1.\n", "**\n", " \n"])
def test_heading_far_down_is_found_with_what_stands_before_it(before):
    """Lines with only signs before a heading belong to it, however many there are."""
    scheme = SCHEME.replace("Deductions", before * 50_000 + "## Deductions")
    assert rubrics.faults(rubrics.parse(scheme)) == []
    assert rubrics.clean(before * 50_000 + scheme).endswith(scheme.strip())


def test_heading_in_letters_that_only_look_like_ours_is_none():
    """A long s is not an s."""
    assert "no-sections" in rubrics.faults(rubrics.parse(SCHEME.replace("Deductions", "Deduction\u017f")))


def test_totals_of_chains_hide_no_chain():
    """A line of totals after each chain, or an item that begins with the word, ends nothing."""
    totals = CHAINS.replace("1. (6 pts, main) The long way.\n", "1. (6 pts, main) The long way.\nTotal (max 7)\n")
    assert set(rubrics.parse(totals).chains) == {"A", "B"}
    cheaper = totals.replace("(4 pts, main) Second", "(3 pts, main) Second")
    assert "wrong-chain-total" in rubrics.faults(rubrics.parse(cheaper))
    item = SCHEME.replace("1. (4 pts, main) The induction", "1. Total number of cases (4 pts, main) The induction")
    assert rubrics.parse(item).points == 7


def test_crumbs_are_counted_in_each_chain():
    """Two routine points in each of two chains are not four in one."""
    crumbs = CHAINS.replace("1. (2 pts, routine) First.", "1. (1 pt, routine) a\n3. (1 pt, routine) b").replace(
        "1. (1 pt, routine) Shared", "1. (1 pt, main) Shared"
    )
    assert "too-fine" not in rubrics.faults(rubrics.parse(crumbs))


def test_cheaper_chain_is_a_fault_though_another_reaches_seven():
    """A chain that can never earn all points is reported, separately from the total of the best chain."""
    found = rubrics.faults(rubrics.parse(CHAINS.replace("(4 pts, main) Second", "(3 pts, main) Second")))
    assert "wrong-chain-total" in found and "wrong-total" not in found


def test_structured_scheme_is_read():
    """MathArena's items are checkpoints; sections and deductions are not required of them."""
    rubric = rubrics.parse("# One (3 points)\nDescription: a\n\n# Two (4 points)\nDescription: b")
    assert [c.points for c in rubric.checkpoints] == [3, 4]
    assert rubrics.faults(rubric, given=True) == []


def test_usamo_schemes_pass_the_linter(data, mill):
    """The six published schemes of USAMO 2025 are worth 7 points each, and the linter accepts their form."""
    entries = {
        "problems/u": {"source": "matharena", "path": str(data / "usamo_2025")},
        "schemes/u": {"problems": "problems/u"},
    }
    rows = mill(entries).make("problems/u", "schemes/u").rows(kept=False)
    assert [row["points"] for row in rows] == [7] * 6
    assert {row["dropped"] for row in rows} == {None}
    assert not {fault for row in rows for fault in row["faults"]} & {"wrong-total", "invalid-points", "no-sections"}


def test_thought_and_preamble_are_cut_off():
    """A scheme begins with its checkpoints, also if the reasoning before it mentions checkpoints."""
    said = f"<thought>Checkpoints first</thought>I will list the Checkpoints now:\n{SCHEME}\n"
    assert rubrics.clean(said) == SCHEME.strip()


TESTED = {
    "problems/p": {"source": "arithmetic", "rows": 12},
    "schemes/p": {
        "problems": "problems/p",
        "model": "api/referee",
        "tester": "api/referee",
        "keep": ["clean", {"reference-passes": 6}, "zero-for-empty", "detects-gaps"],
    },
}
