"""Rules that end the calls of a `responses` stage early, as its entry states them with `until`.

    {pass-rate: [low, high]}   at each problem: until it is known whether its pass rate is between the bounds
    {width: 0.1}               over problems: until the interval of the mean grade is this narrow
    sign                       over problems: until it is known which of two models has the higher mean grade

The first ends the attempts at a problem, the others the list of problems. Problems are asked in a random order that
depends on the seed alone, so models with one seed share it. A rule looks at grades only after a whole group of problems,
so nothing depends on the order in which calls return.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from proofmill.estimation.sequential import Band, expect_attempts, interval, looks, p_value
from proofmill.schema.ids import digest

PROBLEMS = 16  # problems before the first look of a rule over problems
UNKNOWN = 1_000  # problems of a forecast if their number is not known
DIFFER = 0.4  # share of problems with different grades in a forecast of a sign

Shares = Mapping[str, float]  # by problem: the mean grade as a share of the points


def name_rule(until: Any) -> str | None:
    """Return `pass-rate`, `width` or `sign`; None without a rule."""
    return until if isinstance(until, str) else next(iter(until or ()), None)


def band_of(entry: Any) -> Band | None:
    """Return the question about each problem of an entry with `until: {pass-rate: ...}`; None for another rule."""
    if name_rule(entry.until) != "pass-rate":
        return None
    low, high = entry.until["pass-rate"]
    return Band(low, high, entry.error)


class Rule(Protocol):
    """A rule over problems."""

    def end(self, shares: Shares) -> str | None:
        """Return what is known from the problems so far, as text; None while the rule needs more."""


@dataclass(frozen=True)
class Width:
    """Ends once the interval of the mean is narrow; its level is 1 - `error`."""

    width: float
    error: float

    def end(self, shares: Shares) -> str | None:
        low, high = interval([*shares.values()], self.error)
        return f"the mean is between {low:.3f} and {high:.3f} of the points" if high - low <= self.width else None


@dataclass(frozen=True)
class Signs:
    """Ends once each difference has a sign. The chance that any of them is wrong is at most `error` (Holm 1979)."""

    baselines: Mapping[str, Shares]
    error: float

    def end(self, shares: Shares) -> str | None:
        found = {name: _differences(shares, theirs) for name, theirs in self.baselines.items()}
        p_values = sorted(p_value(differences) for differences in found.values())
        if any(p * (len(p_values) - rank) > self.error for rank, p in enumerate(p_values)):
            return None
        means = {name: math.fsum(differences) for name, differences in found.items()}
        return ", ".join(f"{'higher' if mean > 0 else 'lower'} than {name}" for name, mean in means.items())


def _differences(ours: Shares, theirs: Shares) -> list[float]:
    return [share - theirs[problem] for problem, share in ours.items() if problem in theirs]


def rule_of(entry: Any, baseline: Callable[[str], Shares]) -> Rule | None:
    """Return the rule over problems of an entry, if it has one; `baseline` reads the shares of a table of grades."""
    if (name := name_rule(entry.until)) == "width":
        return Width(entry.until["width"], entry.error)
    return Signs({other: baseline(other) for other in entry.against}, entry.error) if name == "sign" else None


def groups_of(entry: Any, problems: Sequence[dict]) -> Iterator[Sequence[dict]]:
    """Yield the problems; for a rule over problems in a random order, in groups of 16, 4, 5, 7, ..., after which it looks."""
    if band_of(entry):
        yield problems
        return
    order = sorted(problems, key=lambda row: digest(entry.seed, row["problem"]))
    start = 0
    for number in looks(len(order), PROBLEMS):
        yield order[start:number]
        start = number


# ------------------------------------------------------------------------------------------------------------ forecasts


def forecast(entry: Any, problems: int | None) -> str:
    """Return a sentence on the calls that an entry with `until` will need: the attempts, or the problems of so many."""
    most = problems or UNKNOWN
    if band := band_of(entry):
        what, most = "attempts to expect at a problem, by its pass rate", entry.attempts
        needed = {rate: expect_attempts(band, most, rate) for rate in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)}
    elif isinstance(rule := rule_of(entry, lambda _: _Zero()), Width):
        what = "problems to expect, by the share that is solved"
        needed = {rate: _expect(rule, most, {1.0: rate, 0.0: 1 - rate}) for rate in (0.05, 0.2, 0.5)}
    else:
        what = f"problems to expect if the grades of {DIFFER:.0%} differ, by the difference"
        needed = {
            size: _expect(rule, most, {1.0: (DIFFER + size) / 2, -1.0: (DIFFER - size) / 2, 0.0: 1 - DIFFER})
            for size in (0.05, 0.1, 0.2, 0.4)
        }
    shown = ", ".join(f"{number:.0f} at {rate:g}" for rate, number in needed.items())
    return f"{what}: {shown} (at most {most:,})"


class _Zero(dict[str, float]):
    """The shares of a baseline that earns nothing at any problem."""

    def __missing__(self, problem: str) -> float:
        return 0.0

    def __contains__(self, problem: object) -> bool:
        return True


def _expect(rule: Any, most: int, chances: Mapping[float, float]) -> int:
    """Return the number of problems after which a rule ends if each value occurs as often as is to be expected."""
    for number in looks(most, PROBLEMS):
        times = [round(chance * number) for chance in chances.values()]
        if rule.end(dict(enumerate(np.repeat([*chances], times).tolist()))):
            return number
    return most
