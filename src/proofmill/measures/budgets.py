"""What ways of sampling are worth: marks over what a problem costs, and ways compared at equal budgets.

    at-equal-budget: single        # a way of `sampling`: its attempts, as many as the other way's budget buys

A way of sampling spends tokens and dollars on a problem: those of all calls of an attempt. Several attempts become one
answer by a rule: the answer that most of them give, or the attempt that another grader puts first. With k attempts the
rule costs k times as much, what the other grader writes included, and its mark is the expectation over all k of the
attempts at a problem (estimates.py). These points are the curve of the way.

A scaffold is compared with the baseline's attempts and each of its rules at equal spending: with so many attempts k that
they cost on average what the scaffold does. A k that is no whole number stands for a draw between the two beside it.
The difference, its interval and its test are by problem, as of two models.

From: the question that QED-Nano's table of scaffolds leaves open (what does a mark cost?); Brown et al. 2024 ("Large
Language Monkeys", section 3) for marks over numbers of attempts, Snell et al. 2024 ("Scaling LLM Test-Time Compute
Optimally", section 5) for methods at equal computation.

1. Budgets are taken as they were measured: the intervals describe other problems, not other token counts.
2. A baseline that was not sampled often enough for a budget is not extended beyond its attempts: the page says how many
   are needed.
3. Tokens are those written. Prompts are read, at other prices; the dollars have both.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from proofmill.measures.attempts import Rows
from proofmill.measures.comparisons import paired
from proofmill.measures.measures import MEASURES, per_problem
from proofmill.measures.numbers import BLANK, Cell, measured
from proofmill.schema.errors import TableError
from proofmill.schema.scores_entry import Scores
from proofmill.text.suggestions import among

ONE = "one"
RULES = {ONE: "avg-at-k", "majority": "majority-at-k", "best": "best-at-k"}  # how attempts become one answer
SPLIT = "budget"  # of a curve's rows
BUDGETS = ("tokens", "dollars")
ROUNDING = 1e-9  # budgets are means of measured numbers


@dataclass(frozen=True)
class Curve:
    """A rule over the attempts of one cell; `spent` is what an attempt costs on average, None where that is unknown."""

    rule: str
    rows: Rows
    spent: Mapping[str, float | None]
    success: float

    @cached_property
    def attempts(self) -> int:
        """How many attempts each problem has in each training seed."""
        return 1 + max(row["attempt"] for row in self.rows)

    def sizes(self) -> list[int]:
        """The numbers of attempts that are shown: powers of two, and all."""
        if self.rule == ONE:
            return [1]
        return sorted({2**power for power in range(1, self.attempts.bit_length())} | {self.attempts})

    def by_problem(self, k: float) -> dict[str, float]:
        """The mark of each problem that has so many scored attempts."""
        low, high = math.floor(k + ROUNDING), math.ceil(k - ROUNDING)
        below = self._whole(low)
        if low == high:
            return below
        above = self._whole(high)
        return {p: below[p] + (k - low) * (above[p] - below[p]) for p in below if p in above}

    def _whole(self, k: int) -> dict[str, float]:
        # One attempt is that attempt by every rule.
        return per_problem(MEASURES[RULES[self.rule if k > 1 else ONE]].apply, k, self.success, self.rows)


def faults(entry: Scores) -> Iterator[str]:
    """What is wrong with the name of the baseline."""
    if entry.at_equal_budget and entry.models and entry.at_equal_budget not in entry.sampling:
        yield (
            f"`at-equal-budget` is `{entry.at_equal_budget}`; expected a way of `sampling`: "
            f"{among(entry.at_equal_budget, entry.sampling)}"
        )


def curves(rows: Rows, success: float) -> list[Curve]:
    """The curves of a cell's attempts: a single one, and each rule that its grader and its size allow."""
    spent = {"tokens": _mean(rows, "response_tokens"), "dollars": _mean(rows, "response_cost")}
    found = [Curve(ONE, rows, spent, success)]
    if found[0].attempts == 1:
        return found
    if rows[0]["reads"]:
        found.append(Curve("majority", rows, spent, success))
    if all(row["selecting"] is not None for row in rows):
        both = {"tokens": _mean(rows, "response_tokens", "selecting_tokens"),
                "dollars": _mean(rows, "response_cost", "selecting_cost")}  # fmt: skip
        found.append(Curve("best", rows, both, success))
    return found


def _mean(rows: Rows, *fields: str) -> float | None:
    """What an attempt spends on average, summed over fields; None where some is unknown, and where everything is free."""
    total = 0.0
    for row in rows:
        for field in fields:
            if row[field] is None:
                return None
            total += row[field]
    return total / len(rows) if total else None


def points(groups: Mapping[Cell, Rows], entry: Scores) -> Iterator[dict[str, Any]]:
    """A row for each point of each cell's curves, with its interval and what it costs."""
    for group, rows in groups.items() if entry.at_equal_budget else ():
        for curve in curves(rows, entry.success):
            for k in curve.sizes():
                yield {
                    **BLANK,
                    **group._asdict(),
                    "measure": f"{curve.rule}@{k}",
                    "split": SPLIT,
                    **measured(MEASURES[RULES[curve.rule]].apply, rows, entry, k),
                    **{
                        f"spent_{budget}": None if spent is None else spent * k for budget, spent in curve.spent.items()
                    },
                }


def comparisons(groups: Mapping[Cell, Rows], entry: Scores) -> Iterator[dict[str, Any]]:
    """An attempt of each other way, against each rule of the baseline at equal tokens and at equal dollars.

    Raises TableError where nothing was sampled in the baseline's way.
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
        ours = curves(rows, entry.success)[0]
        for theirs in curves(baseline, entry.success):
            for budget in BUDGETS:
                have, each = ours.spent[budget], theirs.spent[budget]
                if have and each:
                    yield _compared(group, ours, theirs, budget, max(1.0, have / each), entry)


def _compared(group: Cell, ours: Curve, theirs: Curve, budget: str, k: float, entry: Scores) -> dict[str, Any]:
    """A row of one comparison; without a value where the baseline has too few attempts."""
    k = 1.0 if theirs.rule == ONE else k
    enough = math.ceil(k - ROUNDING) <= theirs.attempts
    values = theirs.by_problem(k) if enough else {}
    return {
        **BLANK,
        **group._asdict(),
        "against": f"{entry.at_equal_budget}: {theirs.rule}@{math.ceil(100 * (k - ROUNDING)) / 100:.6g}",  # never too few
        "measure": f"at equal {budget}",
        "split": "all",
        **paired(ours.by_problem(1), values, (ours.rows, theirs.rows), entry),
        **{f"spent_{budget}": spent for budget, spent in ours.spent.items()},
    }


def too_few(row: Mapping[str, Any]) -> str | None:
    """What to do about a comparison at equal budgets that could not be made."""
    if row["value"] is not None or not row["measure"].startswith("at equal "):
        return None
    way, _, rule = row["against"].partition(": ")
    return f"not comparable: sample `{way}` at least {math.ceil(float(rule.rpartition('@')[2]))} times a problem"
