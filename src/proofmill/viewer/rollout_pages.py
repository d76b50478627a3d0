"""Collect the pages of a training's rollouts: a step with rewards and advantages, audit differences, and one rollout."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from proofmill.artifacts.tables import Table
from proofmill.schema.errors import SettingError, TableError
from proofmill.schema.kinds import ROLLOUTS, list_trained

PREVIEW = 300  # characters of a text in a list
MOST = 100  # disagreements in a list


@dataclass(frozen=True)
class GroupView:
    """The rollouts of a step that share a group."""

    title: str
    problem: str | None
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class RolloutPage:
    step: int
    before: int | None
    after: int | None
    last: int
    groups: list[GroupView]
    rewards: list[str]  # columns
    facts: dict[str, str]
    audited: bool  # whether the audit grader graded some rollouts of the training


def path(table: Table) -> Path:
    """Return the file of a training's rollouts. Raises SettingError for a kind without rollouts, TableError if missing."""
    if table.kind not in list_trained():
        kinds = " or ".join(f"{kind}/<name>" for kind in list_trained())
        raise SettingError(f"{table.name}: has no rollouts; expected {kinds}. Fix the address.")
    file = table.weights() / ROLLOUTS
    if not file.exists():
        raise TableError(f"{file}: no such file; expected the rollouts of a finished `grpo` or `selfplay`.")
    return file


def step(table: Table, wanted: int | None) -> RolloutPage:
    """Return the rollouts of a step, by default the last. Raises SettingError for a step without any."""
    frame = pl.scan_parquet(path(table))
    steps = frame.select(pl.col("step").unique().sort()).collect()["step"].to_list()
    if not steps:
        raise TableError(f"{table.name}: has no rollout; expected some. See results/{table.name}.log.")
    at = steps[-1] if wanted is None else wanted
    if at not in steps:
        raise SettingError(f"{table.name}: no rollouts of step {at}; expected one of {steps[0]} to {steps[-1]}.")
    names = frame.collect_schema().names()
    rows = _brief(frame.filter(pl.col("step") == at)).collect()
    key = ["group"] if "group" in names else ["task", "role"]
    groups = []
    for of, some in rows.group_by(key, maintain_order=True):
        problem = some["problem"][0] if "problem" in names else None
        title = f"group {of[0]}" if key == ["group"] else f"{of[0]}, {of[1]}"
        groups.append(GroupView(title, problem, some.to_dicts()))
    place = steps.index(at)
    audited = "audit" in names and frame.select(pl.col("audit").is_not_null().any()).collect().item()
    return RolloutPage(
        step=at,
        before=steps[place - 1] if place else None,
        after=steps[place + 1] if place + 1 < len(steps) else None,
        last=steps[-1],
        groups=groups,
        rewards=[name for name in names if name == "reward" or name.startswith("reward_")],
        facts=_facts(rows, groups),
        audited=audited,
    )


def _brief(frame: pl.LazyFrame) -> pl.LazyFrame:
    return frame.with_columns(pl.col("^(text|prompt|verdict)$").str.slice(0, PREVIEW))


def _facts(rows: pl.DataFrame, groups: list[GroupView]) -> dict[str, str]:
    """Summarize a step."""
    facts = {"rollouts": f"{rows.height:,}", "tokens": f"{rows.select(pl.col('tokens').mean()).item():,.0f} on average"}
    if "grade" in rows.columns:
        grade = rows.select((pl.col("grade") / pl.col("max_points")).mean()).item()
        facts["mean grade"] = "none" if grade is None else f"{float(grade):.3f} of all points"
        facts["ungraded"] = f"{rows['unscored'].sum():,}"
    if "advantage" in rows.columns:
        idle = sum(all(abs(row["advantage"] or 0) < 1e-6 for row in group.rows) for group in groups)
        facts["groups without a gradient"] = f"{idle} of {len(groups)} (no rollout has an advantage)"
    return facts


def disagreements(table: Table) -> list[dict[str, Any]]:
    """Return the rollouts whose grade and audit grade differ most, as shares of all points."""
    frame = pl.scan_parquet(path(table))
    if "audit" not in frame.collect_schema().names():
        return []
    share = pl.col("grade") / pl.col("max_points")
    apart = frame.filter(pl.col("audit").is_not_null() & share.is_not_null()).with_columns(
        share.alias("share"), (share - pl.col("audit")).alias("apart")
    )
    worst = apart.sort(pl.col("apart").abs(), descending=True, maintain_order=True).head(MOST)
    return _brief(worst.filter(pl.col("apart") != 0)).collect().to_dicts()


def rollout(table: Table, ident: str) -> dict[str, Any]:
    """Return one rollout with all its texts. Raises SettingError for an unknown id."""
    rows = pl.scan_parquet(path(table)).filter(pl.col("rollout") == ident).head(1).collect().to_dicts()
    if not rows:
        raise SettingError(f"{table.name}: no rollout `{ident}`; expected an id from the list of a step.")
    return rows[0]
