"""The pages of a training's rollouts: a step with its rewards and advantages; where the hold-out judge disagrees; one rollout."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from proofmill.artifacts.tables import Table
from proofmill.schema.errors import SettingError, TableError
from proofmill.schema.kinds import ROLLOUTS, learned

PREVIEW = 300  # characters of a text in a list
MOST = 100  # disagreements that are listed


@dataclass(frozen=True)
class Group:
    """The rollouts of a step that were compared with each other."""

    title: str
    problem: str | None
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Page:
    step: int
    before: int | None
    after: int | None
    last: int
    groups: list[Group]
    rewards: list[str]  # columns
    facts: dict[str, str]
    judged_again: bool  # whether a second judge marked some of the training's rollouts


def path(table: Table) -> Path:
    """The file of a training's rollouts. SettingError for a kind that has none, TableError where it is missing."""
    if table.kind not in learned():
        raise SettingError(f"{table.name}: has no rollouts; expected {' or '.join(f'{k}/<name>' for k in learned())}.")
    found = table.weights() / ROLLOUTS
    if not found.exists():
        raise TableError(f"{found}: no such file; expected the rollouts of a finished training by rewards.")
    return found


def step(table: Table, wanted: int | None) -> Page:
    """The rollouts of a step; the last one where none is named. SettingError for a step without any."""
    frame = pl.scan_parquet(path(table))
    steps = frame.select(pl.col("step").unique().sort()).collect()["step"].to_list()
    if not steps:
        raise TableError(f"{table.name}: no rollout was made; expected some. See results/{table.name}.log.")
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
        groups.append(Group(title, problem, some.to_dicts()))
    place = steps.index(at)
    judged = "hold_out" in names and frame.select(pl.col("hold_out").is_not_null().any()).collect().item()
    return Page(
        step=at,
        before=steps[place - 1] if place else None,
        after=steps[place + 1] if place + 1 < len(steps) else None,
        last=steps[-1],
        groups=groups,
        rewards=[name for name in names if name.startswith("reward")],
        facts=_facts(rows, groups),
        judged_again=judged,
    )


def _brief(frame: pl.LazyFrame) -> pl.LazyFrame:
    return frame.with_columns(pl.col("^(text|prompt|verdict)$").str.slice(0, PREVIEW))


def _facts(rows: pl.DataFrame, groups: list[Group]) -> dict[str, str]:
    """What is true of a step as a whole."""
    facts = {"rollouts": f"{rows.height:,}", "tokens": f"{rows.select(pl.col('tokens').mean()).item():,.0f} on average"}
    if "grade" in rows.columns:
        marks = rows.select((pl.col("grade") / pl.col("out_of")).mean()).item()
        facts["marks"] = "none" if marks is None else f"{float(marks):.3f} of full marks"
        facts["without a verdict"] = f"{rows['unscored'].sum():,}"
    if "advantage" in rows.columns:
        idle = sum(all(abs(row["advantage"] or 0) < 1e-6 for row in group.rows) for group in groups)
        facts["groups that teach nothing"] = f"{idle} of {len(groups)}: none of their rollouts has an advantage"
    return facts


def disagreements(table: Table) -> list[dict[str, Any]]:
    """The rollouts whose mark and whose hold-out judge's mark lie furthest apart, as shares of full marks."""
    frame = pl.scan_parquet(path(table))
    if "hold_out" not in frame.collect_schema().names():
        return []
    share = pl.col("grade") / pl.col("out_of")
    apart = frame.filter(pl.col("hold_out").is_not_null() & share.is_not_null()).with_columns(
        share.alias("share"), (share - pl.col("hold_out")).alias("apart")
    )
    worst = apart.sort(pl.col("apart").abs(), descending=True, maintain_order=True).head(MOST)
    return _brief(worst.filter(pl.col("apart") != 0)).collect().to_dicts()


def rollout(table: Table, ident: str) -> dict[str, Any]:
    """One rollout with all its texts; SettingError for an id of none."""
    rows = pl.scan_parquet(path(table)).filter(pl.col("rollout") == ident).head(1).collect().to_dicts()
    if not rows:
        raise SettingError(f"{table.name}: no rollout `{ident}`; expected the id of one, as the list of a step has it.")
    return rows[0]
