"""The share of idle groups by group size, from a few attempts at each problem."""

import math

import numpy as np
import pytest

from proofmill.estimation.idle import count_values, forecast_idle


def draw(rng, problems: int, attempts: int, chances) -> list[list[int]]:
    return [list(rng.choice(len(p), size=attempts, p=p)) for p in (chances(rng) for _ in range(problems))]


def share_idle(groups) -> float:
    return float(np.mean([len(set(group)) == 1 for group in groups]))


@pytest.mark.parametrize(
    "chances",
    [
        lambda rng: (p := rng.beta(0.4, 1.2), 1 - p),  # many problems are never solved
        lambda rng: rng.dirichlet([0.3, 0.1, 0.1, 0.6]),
        lambda rng: (0.7, 0.3),
    ],
    ids=["solved or not", "points", "alike"],
)
@pytest.mark.parametrize("size", [2, 8, 16])
def test_share_is_forecast_from_four_attempts(chances, size):
    """For smaller and larger groups, within 3 points of what new groups of as many problems show."""
    rng = np.random.default_rng(size)
    known = draw(rng, 3000, 4, chances)
    rng = np.random.default_rng(size)  # the same problems would need the same chances: a new draw of as many
    shown = share_idle(draw(rng, 3000, size, chances))
    assert forecast_idle(count_values(known), size) == pytest.approx(shown, abs=0.03)


def test_problems_keep_what_is_known_of_them():
    """A problem that is always solved stays idle; one that is solved in half of its attempts does not."""
    always, half = [[1] * 40] * 50, [[0] * 20 + [1] * 20] * 50
    assert forecast_idle(count_values(always + half), 4) == pytest.approx(0.5 * 1 + 0.5 * 2 * 0.5**4, abs=0.03)


def test_without_attempts_nothing_is_forecast():
    """Problems without attempts have no part."""
    assert math.isnan(forecast_idle(count_values([]), 8)) and math.isnan(forecast_idle(count_values([[], []]), 8))
    assert forecast_idle(count_values([[1, 1], []]), 8) == pytest.approx(1)


def test_one_attempt_at_each_problem_shows_nothing():
    """Two attempts show how alike those at a problem are."""
    assert math.isnan(forecast_idle(count_values([[0], [1], [1]]), 8))


def test_rewards_with_as_many_values_as_attempts_are_never_idle():
    """Twenty thousand groups of lengths take neither memory for all pairs nor minutes."""
    lengths = np.random.default_rng(0).random((20_000, 8))
    assert count_values(lengths).shape == (20_000, 65)
    assert forecast_idle(count_values(lengths), 8) < 0.001
    assert forecast_idle(count_values([*lengths, *np.zeros((20_000, 8))]), 8) == pytest.approx(0.5, abs=0.01)
