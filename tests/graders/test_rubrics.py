"""Marking schemes: read into parts, checked by rules, and tried out on answers whose marks are known."""

import pytest

from marking import SCHEME
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
    """Spaces, dots and words may stand around it; a number too long to be a price leaves the item without one."""
    rubric = rubrics.parse(SCHEME.replace("(4 pts, main)", price))
    if points is None:
        assert len(rubric.unpriced) == 1 and "unpriced-checkpoint" in rubrics.faults(rubric)
    else:
        assert (rubric.checkpoints[0].points, rubric.checkpoints[0].weight) == (points, weight)


@pytest.mark.parametrize("price", [f"minus {'1' * 5000}", f"cap at {'1' * 5000}/7", f"-{'1' * 5000}: x"])
def test_deduction_by_a_number_of_thousands_of_digits_has_no_price(price):
    """It is a fault of the scheme like any other deduction without a price."""
    assert "unpriced-deduction" in rubrics.faults(rubrics.parse(SCHEME.replace("minus 2", price)))


def test_structured_scheme_with_points_of_thousands_of_digits_has_no_such_item():
    """An item whose points cannot be read is none."""
    assert rubrics.parse(f"# One ({'3' * 5000} points)\nDescription: a").checkpoints == ()


@pytest.mark.parametrize("before", ["\n", "#\n", "1.\n", "**\n", " \n"])
def test_heading_far_down_is_found_with_what_stands_before_it(before):
    """Lines of nothing but signs before a heading belong to it, however many they are."""
    scheme = SCHEME.replace("Deductions", before * 50_000 + "## Deductions")
    assert rubrics.faults(rubrics.parse(scheme)) == []
    assert rubrics.clean(before * 50_000 + scheme).endswith(scheme.strip())


def test_heading_in_letters_that_only_look_like_ours_is_none():
    """A long s is no s."""
    assert "no-sections" in rubrics.faults(rubrics.parse(SCHEME.replace("Deductions", "Deduction\u017f")))


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


def test_thought_and_preamble_are_cut_off():
    """A scheme begins with its checkpoints, also where a thought before it speaks of checkpoints."""
    said = f"<thought>Checkpoints first</thought>I will list the Checkpoints now:\n{SCHEME}\n"
    assert rubrics.clean(said) == SCHEME.strip()


TESTED = {
    "problems/p": {"source": "arithmetic", "rows": 12},
    "schemes/p": {
        "problems": "problems/p",
        "model": "api/referee",
        "tester": "api/referee",
        "keep": ["clean", {"reference-passes": 6}, "nothing-for-nothing", "notices-gaps"],
    },
}
