"""Rewards: the worth of tasks, and the reward of a reply in each situation."""

import pytest

from proofmill.selfplay_tasks.learnability import (
    Scale,
    accuracy,
    admits,
    combine_terms,
    learnability,
    proposer_reward,
    solver_reward,
    term,
)
from proofmill.selfplay_tasks.tasks import Invalid, Task

TASK = Task("deduce", "def f(a):\n    return a", "1", "1")


def test_learnability_is_highest_for_a_single_success():
    """Equation 4 with eight attempts: 0.875 for one success, less with each further one, 0 for none and for all."""
    worths = [learnability(successes / 8) for successes in range(9)]
    assert worths == [0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0]
    assert learnability(0, "inverse") == 1 and learnability(0.25, "inverse") == 0.75


def test_accuracy_is_the_mean_of_known_grades():
    """A missing grade does not count as 0, and without any grade the accuracy is None."""
    assert accuracy([1.0, 0.0, None, 1.0, 1.0]) == 0.75
    assert accuracy([None, None]) is None and accuracy([]) is None


@pytest.mark.parametrize(
    ("rule", "admitted"),
    [("all", [True] * 3), ("non-one", [True, True, False]), ("non-extremes", [False, True, False])],
)
def test_rule_decides_which_tasks_enter_a_buffer(rule, admitted):
    """At accuracies 0, 0.5 and 1, the rules decide as listed."""
    assert [admits(mean, rule) for mean in (0.0, 0.5, 1.0)] == admitted


@pytest.mark.parametrize(
    ("task", "formed", "worth", "reward"),
    [
        (TASK, True, 0.875, 0.875),
        (TASK, True, 0.0, -0.5),
        (TASK, False, 0.875, -1),
        (Invalid("raised"), True, None, -1),
        (Invalid("format"), False, None, -1),
        (TASK, True, None, None),
    ],
)
def test_proposer_earns_by_its_situation(task, formed, worth, reward):
    """It earns the worth, -0.5 for a trivial or unsolvable task, -1 for a wrong form or an invalid task, or None."""
    assert proposer_reward(task, formed, worth) == reward


@pytest.mark.parametrize(
    ("grade", "formed", "reward"),
    [(1.0, True, 1), (0.4, True, 0.4), (0.0, True, -0.5), (1.0, False, -1), (None, True, None)],
)
def test_solver_earns_by_its_situation(grade, formed, reward):
    """A wrong answer earns -0.5, a wrong form -1, and a missing grade None."""
    assert solver_reward(grade, formed) == reward


def test_scale_changes_the_penalties():
    """The rewards of unsuccessful replies can differ from the published ones."""
    scale = Scale(malformed=-0.1, nothing=0.0)
    assert proposer_reward(TASK, True, 0.0, scale=scale) == solver_reward(0.0, True, scale) == 0
    assert proposer_reward(TASK, False, 0.5, scale=scale) == solver_reward(1.0, False, scale) == -0.1


@pytest.mark.parametrize(
    ("combine", "reward"), [("sum", 1.2), ("multiply", 0.06), ("sum-multiply", 0.62), ("multiply-sum", 0.35)]
)
def test_intrinsic_terms_are_combined_in_four_ways(combine, reward):
    """Terms are combined with a positive worth; without terms the worth is returned."""
    assert combine_terms(0.5, [0.4, 0.3], combine) == pytest.approx(reward)
    assert combine_terms(0.5, [], combine) == 0.5
    assert proposer_reward(TASK, True, 0.5, [0.4, 0.3], combine) == pytest.approx(reward)
    assert proposer_reward(TASK, True, 0.0, [0.4, 0.3], combine) == -0.5


def test_term_has_a_weight_and_a_limit():
    """A term is min(weight * value, most)."""
    assert term(2.0, 0.1) == pytest.approx(0.2) and term(20.0, 0.1) == 0.5 and term(20.0, 0.1, most=1.5) == 1.5
