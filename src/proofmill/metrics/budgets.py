"""Compute cost curves of sampling settings, and compare settings at equal budgets.

    at-equal-budget: single        # a setting of `sampling`: as many of its attempts as the other setting's budget buys

An attempt costs the tokens and dollars of all its calls. Several attempts become one answer by a rule: the most frequent
answer, or the attempt that another grader ranks first. With k attempts the rule costs k times as much, including the other
grader's output. Its grade is the expectation over all draws of k attempts at a problem (estimates.py). These points are the
cost curve of the setting.

A scaffold is compared with the baseline's single attempts and each of its rules at equal spending: k is the number of
attempts with the same average cost. If k is not a whole number, the value is interpolated between floor(k) and ceil(k).
Difference, interval and test are by problem and by training seed, as between two models.

From: the cost of a point, which QED-Nano's table of scaffolds leaves open; Brown et al. 2024 ("Large Language Monkeys",
section 3) for grades over numbers of attempts; Snell et al. 2024 ("Scaling LLM Test-Time Compute Optimally", section 5)
for methods at equal computation.

1. Budgets are the measured means. The intervals cover other problems, not other token counts.
2. The baseline is not extrapolated beyond its attempts. If it has too few, the score page states how many are needed.
3. Tokens are output tokens. Dollars also include the prompts.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from proofmill.metrics.attempt_table import Rows
from proofmill.metrics.comparisons import Values, compare_values
from proofmill.metrics.kernels import per_problem
from proofmill.metrics.metrics import METRICS
from proofmill.metrics.score_rows import BLANK, Cell, compute_metric
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.errors import TableError
from proofmill.text.suggestions import among

ONE = "one"
RULES = {ONE: "avg-at-k", "majority": "majority-at-k", "best": "best-at-k"}  # the metric of each rule
SPLIT = "budget"  # of the rows of a curve
BUDGETS = ("tokens", "dollars")
ROUNDING = 1e-9  # budgets are means of floating-point numbers


@dataclass(frozen=True)
class Curve:
    """A rule over the attempts of one cell; `spent` is the average cost of an attempt, None if unknown."""

    rule: str
    rows: Rows
    spent: Mapping[str, float | None]
    success: float

    @cached_property
    def attempts(self) -> int:
        """Attempts per problem and training seed."""
        return 1 + max(row["attempt"] for row in self.rows)

    def sizes(self) -> list[int]:
        """Return the numbers of attempts to report: powers of two, and all."""
        if self.rule == ONE:
            return [1]
        return sorted({2**power for power in range(1, self.attempts.bit_length())} | {self.attempts})

    def values(self, k: float) -> Values:
        """Return the function of attempts to the grade of each problem that has ceil(k) scored ones.

        A fractional k is interpolated.
        """
        low, high = math.floor(k + ROUNDING), math.ceil(k - ROUNDING)

        def by_problem(rows: Rows) -> dict[str, float]:
            below = self._whole(low, rows)
            if low == high:
                return below
            above = self._whole(high, rows)
            return {p: below[p] + (k - low) * (above[p] - below[p]) for p in below if p in above}

        return by_problem

    def _whole(self, k: int, rows: Rows) -> dict[str, float]:
        # With one attempt all rules are equal.
        return per_problem(METRICS[RULES[self.rule if k > 1 else ONE]].apply, k, self.success, rows)


def faults(entry: Scores) -> Iterator[str]:
    """Yield the fault in the name of the baseline, if any."""
    if entry.at_equal_budget and entry.models and entry.at_equal_budget not in entry.sampling:
        yield (
            f"`at-equal-budget` is `{entry.at_equal_budget}`; expected a setting of `sampling`: "
            f"{among(entry.at_equal_budget, entry.sampling)}"
        )


def curves(rows: Rows, success: float) -> list[Curve]:
    """Return the curves of a cell: single attempts, and each rule that its grader and number of attempts allow."""
    spent = {"tokens": _mean(rows, "response_tokens"), "dollars": _mean(rows, "response_cost")}
    cell_curves = [Curve(ONE, rows, spent, success)]
    if cell_curves[0].attempts == 1:
        return cell_curves
    if rows[0]["reads"]:
        cell_curves.append(Curve("majority", rows, spent, success))
    if all(row["selecting"] is not None for row in rows):
        both = {"tokens": _mean(rows, "response_tokens", "selecting_tokens"),
                "dollars": _mean(rows, "response_cost", "selecting_cost")}  # fmt: skip
        cell_curves.append(Curve("best", rows, both, success))
    return cell_curves


def _mean(rows: Rows, *fields: str) -> float | None:
    """Return the mean cost of an attempt, summed over fields; None if a value is unknown or all are 0."""
    total = 0.0
    for row in rows:
        for field in fields:
            if row[field] is None:
                return None
            total += row[field]
    return total / len(rows) if total else None


def points(groups: Mapping[Cell, Rows], entry: Scores) -> Iterator[dict[str, Any]]:
    """Yield a row for each point of each cell's curves, with its interval and cost."""
    for group, rows in groups.items() if entry.at_equal_budget else ():
        for curve in curves(rows, entry.success_threshold):
            for k in curve.sizes():
                yield {
                    **BLANK,
                    **group._asdict(),
                    "metric": f"{curve.rule}@{k}",
                    "slice": SPLIT,
                    **compute_metric(METRICS[RULES[curve.rule]].apply, rows, entry, k),
                    **{
                        f"{budget}_per_problem": None if spent is None else spent * k
                        for budget, spent in curve.spent.items()
                    },
                }


def comparisons(groups: Mapping[Cell, Rows], entry: Scores) -> Iterator[dict[str, Any]]:
    """Compare single attempts of each other setting with each rule of the baseline, at equal tokens and equal dollars.

    Raises TableError if the baseline's setting has no attempts.
    """
    if entry.at_equal_budget is None:
        return
    if not any(group.sampling == entry.at_equal_budget for group in groups):
        ways = sorted({group.sampling for group in groups})
        raise TableError(
            f"`at-equal-budget` is `{entry.at_equal_budget}`, which is not measured; expected one of {', '.join(ways)}."
        )
    for group, rows in groups.items():
        baseline = groups.get(group._replace(sampling=entry.at_equal_budget))
        if group.sampling == entry.at_equal_budget or baseline is None:
            continue
        ours = curves(rows, entry.success_threshold)[0]
        for theirs in curves(baseline, entry.success_threshold):
            for budget in BUDGETS:
                have, each = ours.spent[budget], theirs.spent[budget]
                if have and each:
                    yield _compare(group, ours, theirs, budget, max(1.0, have / each), entry)


def _compare(group: Cell, ours: Curve, theirs: Curve, budget: str, k: float, entry: Scores) -> dict[str, Any]:
    """Return the row of one comparison; without a value if the baseline has too few attempts."""
    k = 1.0 if theirs.rule == ONE else k
    enough = math.ceil(k - ROUNDING) <= theirs.attempts
    return {
        **BLANK,
        **group._asdict(),
        "baseline": f"{entry.at_equal_budget}: {theirs.rule}@{math.ceil(100 * (k - ROUNDING)) / 100:.6g}",  # rounded up
        "metric": f"at equal {budget}",
        "slice": "all",
        **compare_values(
            (group.model, group.model),
            (ours.values(1), theirs.values(k) if enough else lambda rows: {}),
            (ours.rows, theirs.rows),
            ours.rows[0]["max_points"],
            entry,
        ),
        **{f"{budget}_per_problem": spent for budget, spent in ours.spent.items()},
    }


def too_few(row: Mapping[str, Any]) -> str | None:
    """Return the advice for a comparison at equal budgets without a value; None for other rows."""
    if row["value"] is not None or not row["metric"].startswith("at equal "):
        return None
    way, _, rule = row["baseline"].partition(": ")
    return f"not comparable: sample `{way}` at least {math.ceil(float(rule.rpartition('@')[2]))} times per problem"
