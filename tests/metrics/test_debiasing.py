"""Debiased means: the published estimator, honest intervals, strata, comparisons, and proposals that stay unbiased."""

import math

import numpy as np
import pytest

from proofmill.metrics.uncertainty.debiasing import debias, difference, propose


def world(rng, problems=80, attempts=3, agree=0.8):
    """Return problem, judge's share and true share of attempts; a judge that is wrong in a part of them, and generous."""
    rates = np.repeat(rng.beta(0.6, 0.8, problems), attempts)
    true = (rng.random(len(rates)) < rates).astype(float)
    judged = np.where(rng.random(len(rates)) < agree, true, np.minimum(1, true + 0.5))
    return [f"p{n}" for n in np.repeat(np.arange(problems), attempts)], judged, true


def labelled(rng, true, number):
    """Return the labels of a random draw, NaN for the others."""
    human = np.full(len(true), math.nan)
    chosen = rng.choice(len(true), number, replace=False)
    human[chosen] = true[chosen]
    return human


# ppi_mean_pointestimate of ppi-python 0.2.3 on these numbers. There the judge's mean is over unlabelled attempts only, so
# a weight here is `lam` = weight * 400 / 480 there.
@pytest.mark.parametrize(
    ("weight", "published"),
    [(0.0, 0.39624895), (0.3, 0.408311), (0.7, 0.42439372), (1.0, 0.43645577)],
)
def test_estimate_is_the_published_one(weight, published):
    """Without strata and clusters the value is that of prediction-powered inference, for any weight of the judge."""
    rng = np.random.default_rng(0)
    true = rng.beta(2, 3, 480)
    judged = np.clip(true + 0.1 + 0.15 * rng.normal(size=480), 0.001, 0.999)
    human = np.where(np.arange(480) < 80, true, math.nan)
    found = debias([str(n) for n in range(480)], judged, human, weight)
    assert found.value == pytest.approx(published, abs=1e-8) and found.weight == weight
    best = debias([str(n) for n in range(480)], judged, human)
    assert best.error <= found.error + 1e-12 and 0 < best.weight < 1


def test_judge_that_is_always_right_needs_no_more_than_itself():
    """If all labels agree, the value is the judge's mean; the interval allows for a label that would not."""
    rng = np.random.default_rng(1)
    problems, _, true = world(rng)
    found = debias(problems, true, labelled(rng, true, 60))
    assert found.value == pytest.approx(true.mean()) and found.labels == 60
    low, high = found.ends(0.95)
    assert low < found.value < high and found.beyond > 0


def test_useless_judge_has_little_weight():
    """Labels decide if the judge's grades have nothing to do with them."""
    rng = np.random.default_rng(2)
    problems, _, true = world(rng, 300, 1)
    judged = rng.uniform(0.01, 0.99, len(true))
    assert debias(problems, judged, labelled(rng, true, 150)).weight < 0.4


def test_all_attempts_labelled_is_their_mean():
    """With a label of each attempt the value is the mean by problem, whatever the judge says."""
    rng = np.random.default_rng(3)
    problems, judged, true = world(rng, 40, 2)
    assert debias(problems, judged, true).value == pytest.approx(true.mean(), abs=0.02)
    assert debias(problems, np.full(80, 0.5), true).value == pytest.approx(true.mean())


@pytest.mark.parametrize("how", ["random", "proposed"])
def test_interval_holds_and_the_judge_alone_does_not(how):
    """In 200 draws the interval covers the mean over problems about as often as it says, also for proposed labels."""
    rng = np.random.default_rng(4)
    covered, errors, shift = 0, [], []
    for seed in range(200):
        problems, judged, true = world(rng)
        names = [str(n) for n in range(len(true))]
        human = labelled(rng, true, 40) if how == "random" else np.full(len(true), math.nan)
        while how == "proposed" and np.isnan(human).sum() > len(true) - 40:
            chosen = [int(name) for name in propose(names, judged, human, 20, seed)]
            human[chosen] = true[chosen]
        found = debias(problems, judged, human)
        low, high = found.ends(0.95)
        covered += low <= 0.6 / 1.4 <= high
        errors.append(found.value - 0.6 / 1.4)
        shift.append(judged.mean() - 0.6 / 1.4)
    assert covered >= 182 and abs(np.mean(errors)) < 0.015 < np.mean(shift)


def test_proposed_labels_do_not_shift_another_value_or_the_labels_alone():
    """The share of full points by a strict judge stays unbiased, since strata are by its points; and so do labels alone."""
    rng = np.random.default_rng(8)
    shifts: dict[str, list[float]] = {"solved": [], "labels": []}
    for seed in range(60):
        problems, _, true = world(rng, 120, 2)
        share = np.where(true > 0, rng.choice([0.5, 1.0], len(true), p=[0.6, 0.4]), rng.choice([0.0, 0.5], len(true)))
        names, human = [str(n) for n in range(len(true))], np.full(len(true), math.nan)
        for _ in range(4):
            chosen = [int(name) for name in propose(names, share, human, 30, seed)]
            human[chosen] = true[chosen]
        solved = (share == 1).astype(float)
        shifts["solved"].append(debias(problems, solved, human, share_N=share).value - true.mean())
        shifts["labels"].append(debias(problems, solved, human, 0.0, share).value - true.mean())
    assert all(abs(np.mean(some)) < 0.01 for some in shifts.values())


def test_few_problems_have_no_interval():
    """Labels at fewer than five problems say too little of others; without labels there is no estimate."""
    rng = np.random.default_rng(5)
    problems, judged, true = world(rng)
    human = np.full(len(true), math.nan)
    assert debias(problems, judged, human) is None
    human[:12] = true[:12]
    assert debias(problems, judged, human).ends(0.95) == (None, None)
    human[12:15] = true[12:15]
    assert None not in debias(problems, judged, human).ends(0.95)


def test_grades_off_the_scale_are_refused():
    """Values must be shares of the points."""
    with pytest.raises(ValueError, match="grades from 0 to 7; expected shares of the points"):
        debias(["a", "b"], np.array([0.0, 7.0]), np.array([0.0, math.nan]))


def test_difference_at_common_problems_is_narrower():
    """Two models at the same problems share what the problems add; equal models differ in no draw out of 20 too often."""
    rng, narrow, false = np.random.default_rng(6), 0, 0
    for _ in range(20):
        rates = np.repeat(rng.beta(0.5, 0.5, 60), 3)
        sides = []
        for _ in range(2):
            true = (rng.random(180) < rates).astype(float)
            judged = np.where(rng.random(180) < 0.9, true, 1.0)
            sides.append(debias([f"p{n // 3}" for n in range(180)], judged, labelled(rng, true, 60)))
        value, (low, high), p = difference(*sides, 0.95)
        assert value == pytest.approx(sides[0].value - sides[1].value) and (low <= 0 <= high) == (p >= 0.05)
        narrow += high - low < 2 * 1.99 * math.hypot(sides[0].error, sides[1].error)
        false += p < 0.05
    assert narrow >= 15 and false <= 4


def test_proposals_go_where_the_judge_errs():
    """More attempts are proposed where labels have differed from the judge's grades; none twice, in a random order."""
    rng = np.random.default_rng(7)
    judged = np.repeat([0.0, 0.5, 1.0], 200)
    names, human = [str(n) for n in range(600)], np.full(600, math.nan)
    assert {len(propose(names, judged, human, number)) for number in (0, 30, 600, 700)} == {0, 30, 600}
    first = propose(names, judged, human)
    assert first == propose(names, judged, human) != propose(names, judged, human, seed=1)
    assert [sum(judged[int(name)] == share for name in first) for share in (0, 0.5, 1)] == [10, 10, 10]
    for share in (0.0, 0.5, 1.0):
        places = np.flatnonzero(judged == share)[:20]
        human[places] = rng.integers(0, 2, 20) if share == 1 else share
    later = propose(names, judged, human)
    assert not {*later} & {str(n) for n in np.flatnonzero(~np.isnan(human))}
    assert sum(judged[int(name)] == 1 for name in later) >= 15
