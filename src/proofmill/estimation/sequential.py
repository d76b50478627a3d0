r"""Decide while data arrive: tests that stay valid however often one looks at them.

    evidence(values, bound)     log of the evidence that the mean of values in [0, 1] is above a bound
    Band(low, high).decide(x)   whether a mean is inside a band, above or below it, or not known yet
    interval(values)            the means that are not rejected
    p_value(differences)        of the hypothesis that two models are equally good

From: Waudby-Smith and Ramdas 2024 ("Estimating means of bounded random variables by betting", section 4): a gambler who
bets against the hypothesis "the mean is at most m" multiplies the capital by 1 + b (x - m) at each value x. If the
hypothesis holds, no bet gains on average, and the capital ever reaches 1/error with a chance of at most `error`
(Ville's inequality). One may therefore look after each value, stop at any time, and continue later.

Differences from the original:
1. The bets are a mixture of constant ones (Cover's universal portfolio on a grid), not predicted from earlier values. So
   the evidence depends on the values alone, not on their order, and nothing has to be tuned.
2. A bound of 0 or 1 is decided by one value beyond it: no mean of 0 has a positive value.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

BETS = 40  # constant bets in the mixture
GROWTH = 4  # the next look comes after a quarter more attempts; asked for together, they wait once
FIRST = 4  # attempts before the first look

Decision = Literal["inside", "above", "below"]


def evidence(values: Sequence[float] | np.ndarray, bound: float) -> float:
    """Return the log of the evidence that the mean of values in [0, 1] is above `bound`; log(1/error) is enough."""
    values = np.asarray(values, dtype=float)
    if not values.size:
        return 0.0
    if not 0 <= values.min() <= values.max() <= 1:
        raise ValueError(
            f"values from {values.min():g} to {values.max():g}; expected values from 0 to 1. Divide by the scale."
        )
    if bound <= 0:
        return math.inf if bound < 0 or values.max() > 0 else 0.0
    if bound >= 1:
        return 0.0
    different, counts = np.unique(values, return_counts=True)
    capitals = (counts * np.log1p(_bets() / bound * (different - bound))).sum(axis=1)
    return float(capitals.max() + np.log(np.exp(capitals - capitals.max()).mean()))


@lru_cache(maxsize=1)
def _bets() -> np.ndarray:
    """Return the shares of the largest bet that cannot lose everything, as a column."""
    return ((np.arange(BETS) + 0.5) / BETS)[:, None]


@dataclass(frozen=True)
class Band:
    """The question whether a mean is strictly between two bounds, answered wrongly with a chance of at most `error`."""

    low: float | None
    high: float | None
    error: float = 0.05

    def decide(self, values: Sequence[float] | np.ndarray) -> Decision | None:
        """Return where the mean of all possible values is; None while it is not known. Order does not matter."""
        values = np.asarray(values, dtype=float)
        enough = math.log(2 / self.error)  # two bounds may be judged wrongly
        over = self.low is None or evidence(values, self.low) >= enough
        under = self.high is None or evidence(1 - values, 1 - self.high) >= enough
        if over and under:
            return "inside"
        if self.low is not None and evidence(1 - values, 1 - self.low) >= enough:
            return "below"
        return "above" if self.high is not None and evidence(values, self.high) >= enough else None


def looks(most: int, first: int = FIRST) -> Iterator[int]:
    """Yield the numbers of attempts after which to look, up to `most`: 4, 5, 7, 9, 12, ..."""
    number = min(first, most)
    while number < most:
        yield number
        number = min(most, number + -(-number // GROWTH))
    yield most


def expect_attempts(band: Band, most: int, rate: float) -> float:
    """Return the expected number of attempts at a problem that a model solves with this chance.

    Exact for grades of 0 and 1: the decision depends on the number of successes alone.
    """
    chances, before, expected = {0: 1.0}, 0, 0.0
    for number in looks(most):
        new = number - before
        steps = [math.comb(new, k) * rate**k * (1 - rate) ** (new - k) for k in range(new + 1)]
        reached: dict[int, float] = {}
        for successes, chance in chances.items():
            for k, step in enumerate(steps):
                reached[successes + k] = reached.get(successes + k, 0.0) + chance * step
        expected += new * sum(chances.values())
        chances = {
            s: chance for s, chance in reached.items() if band.decide(np.repeat([1.0, 0.0], [s, number - s])) is None
        }
        before = number
    return expected


def interval(values: Sequence[float] | np.ndarray, error: float = 0.05) -> tuple[float, float]:
    """Return the interval of the mean of values in [0, 1]: all means that neither bet rejects.

    The probability that it ever misses the mean, at any number of values, is at most `error`. (0, 1) without values.
    """
    values = np.asarray(values, dtype=float)
    enough = math.log(2 / error)
    return _reject_up_to(values, enough), 1 - _reject_up_to(1 - values, enough)


def _reject_up_to(values: np.ndarray, enough: float) -> float:
    """Return the largest bound below the mean that is rejected, by bisection: the evidence falls as the bound rises."""
    low, high = 0.0, float(values.mean()) if values.size else 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if evidence(values, middle) >= enough else (low, middle)
    return low


def p_value(differences: Sequence[float] | np.ndarray) -> float:
    """Return the p of equal means for differences in [-1, 1], one of each problem in random order.

    Valid at any number of problems: the probability that it is ever at most p is at most p.
    """
    shares = (np.asarray(differences, dtype=float) + 1) / 2
    return min(1.0, 2 * math.exp(-max(evidence(shares, 0.5), evidence(1 - shares, 0.5))))
