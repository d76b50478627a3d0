"""Sequential decisions: valid at any time, independent of the order, and right about data with a known mean."""

import math
import random

import numpy as np
import pytest

from proofmill.estimation.sequential import Band, evidence, expect_attempts, interval, looks, p_value


def test_evidence_is_a_martingale_under_the_hypothesis():
    """At the bound itself the expected capital stays 1, whatever the data: here exactly, over all outcomes of 12 trials."""
    for bound in (0.2, 0.5, 0.9):
        total = sum(
            math.comb(12, k)
            * bound**k
            * (1 - bound) ** (12 - k)
            * math.exp(evidence([1.0] * k + [0.0] * (12 - k), bound))
            for k in range(13)
        )
        assert total == pytest.approx(1.0, abs=1e-9)


def test_evidence_is_that_of_the_best_constant_bets():
    """The mixture is the average capital of constant bets, computed here one by one."""
    values, bound = [0.25, 1.0, 0.5, 0.75], 0.4
    capitals = [math.prod(1 + share / bound * (x - bound) for x in values) for share in (np.arange(40) + 0.5) / 40]
    assert evidence(values, bound) == pytest.approx(math.log(sum(capitals) / 40), rel=1e-12)


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.3, 0.9, 0.97, 1.0])
def test_a_band_is_misjudged_at_most_as_often_as_declared(rate):
    """Looking after each attempt up to 200, a true rate is put on the wrong side of a bound in at most 5 % of the runs."""
    chance, band, wrong = random.Random(7), Band(0.02, 0.9), 0
    right = "below" if rate <= 0.02 else "above" if rate >= 0.9 else "inside"
    for _ in range(200):
        grades: list[float] = []
        decision = None
        for number in looks(200):
            grades += [float(chance.random() < rate) for _ in range(number - len(grades))]
            if decision := band.decide(grades):
                break
        wrong += decision not in (right, None)
    assert wrong <= 200 * 0.05


def test_the_order_of_attempts_decides_nothing():
    """A decision depends on the grades alone."""
    grades = [0.0] * 9 + [1.0] * 6 + [0.5] * 3
    decisions = {Band(0.1, 0.9).decide(random.Random(seed).sample(grades, len(grades))) for seed in range(20)}
    assert decisions == {"inside"}


@pytest.mark.parametrize(
    ("low", "high", "grades", "decision"),
    [
        (0, 1, [0, 0, 1], "inside"),
        (0, 1, [0] * 500, None),
        (0, 1, [1] * 500, None),
        (0, 0.9, [1] * 60, "above"),
        (0.1, None, [0] * 60, "below"),
        (None, 0.5, [0] * 20, "inside"),
        (0, 0.9, [], None),
    ],
)
def test_bounds_are_strict_and_may_be_open(low, high, grades, decision):
    """A rate of 0 or 1 is never certain; one grade beyond a bound of 0 or 1 is."""
    assert Band(low, high).decide(grades) == decision


def test_grades_off_the_scale_are_refused():
    """Values must be shares of the points."""
    with pytest.raises(ValueError, match="values from 0 to 7; expected values from 0 to 1"):
        evidence([0, 7], 0.5)


def test_expected_attempts_are_those_of_a_simulation():
    """The exact expectation over grades of 0 and 1 is within the error of 2,000 simulated problems."""
    chance, band, asked = random.Random(3), Band(0, 0.9), []
    for _ in range(2000):
        grades: list[float] = []
        for number in looks(64):
            grades += [float(chance.random() < 0.6) for _ in range(number - len(grades))]
            if band.decide(grades):
                break
        asked.append(len(grades))
    assert np.mean(asked) == pytest.approx(expect_attempts(band, 64, 0.6), abs=4 * np.std(asked) / math.sqrt(2000))


def test_looks_grow_to_the_maximum():
    """The numbers of attempts rise by a quarter and end with the maximum, also with a small one."""
    assert list(looks(16)) == [4, 5, 7, 9, 12, 15, 16] and list(looks(3)) == [3] and list(looks(1)) == [1]


def test_p_of_a_difference():
    """A clear difference has a small p, early; that of equal models ever falls below 0.05 in at most 5 of 100 runs."""
    chance = random.Random(1)
    assert p_value([chance.choice((0, 1, 1)) for _ in range(40)]) < 1e-4
    assert p_value([-chance.choice((0, 1, 1)) for _ in range(40)]) < 1e-4
    assert p_value([]) == p_value([0.0] * 50) == 1
    false = 0
    for _ in range(100):
        differences = [chance.choice((-1, 0, 1)) for _ in range(150)]
        false += any(p_value(differences[:n]) <= 0.05 for n in range(1, 151, 3))
    assert false <= 5


def test_interval_holds_at_all_times_together():
    """The interval misses the mean at any of many looks in at most 5 % of the runs, and narrows as values arrive."""
    rng, missed = np.random.default_rng(5), 0
    for _ in range(100):
        grades = rng.choice([0, 0.5, 1], p=[0.5, 0.2, 0.3], size=300)
        ends = [interval(grades[:number]) for number in looks(300)]
        missed += not all(low <= 0.4 <= high for low, high in ends)
        widths = [high - low for low, high in ends]
        assert widths[0] > 0.5 and widths[-1] < 0.3
    assert missed <= 5


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [([], 0, 1), ([0.0] * 1000, 0, 0.02), ([1.0] * 1000, 0.98, 1), ([0.5] * 1000, 0.48, 0.52), ([1.0], 0, 1)],
)
def test_interval_of_equal_values(values, low, high):
    """Values that do not differ leave some room; without values all means are possible."""
    below, above = interval(values)
    assert low <= below <= above <= high and (values[:1] or [below])[0] >= below and (values[:1] or [above])[0] <= above


def test_interval_has_what_the_test_does_not_reject():
    """A difference of 0 is inside the interval exactly if its p is above the error."""
    rng = np.random.default_rng(2)
    for size in np.linspace(0, 0.5, 40):
        differences = rng.choice([-1, 0, 1], p=[0.3 - size / 2, 0.4, 0.3 + size / 2], size=60)
        low, high = interval((differences + 1) / 2, 0.05)
        assert (low <= 0.5 <= high) == (p_value(differences) > 0.05)
