"""Read a training as series by step: from its rollouts, and what they lack from its table; while it runs from its log.

A value of a step's rollouts is the mean over its groups, each of which is a mean of its rollouts. Its 95 % interval is
over groups, by Student's t, and absent where the groups do not differ. Spare groups, which train nothing, do not count.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl

from proofmill.artifacts.tables import Table
from proofmill.metrics.uncertainty.intervals import t_quantile
from proofmill.rewards.rewards import weight
from proofmill.schema.columns import FILE_COLUMNS
from proofmill.schema.errors import SettingError
from proofmill.schema.kinds import ROLLOUTS, list_trained
from proofmill.schema.names import preference_name

SHARES = re.compile(r"(.*/)?(grade|solved|accuracy|frac_reward_zero_std|clipped_ratio|truncated|mean_token_accuracy)")
GROUP = "frac_reward_zero_std", "completions/mean_length", "completions/clipped_ratio"  # as TRL names them
LATEST = 2**26  # bytes at the end of a log of rollouts that are read while it is written
LINE = re.compile(r"(\d\d):(\d\d):(\d\d)  \S+  step ([\d,]+) of [\d,]*\d(.*)")  # of a job's log
START = re.compile(r"\d{4}-\d\d-\d\d (\d\d):(\d\d):(\d\d) .* on ")
LARGE = ("text", "prompt", "verdict", "token_ids", "logprobs", "rewards_defined", "reward_<name>")
Series = dict[str, pl.DataFrame]  # by metric, with the columns step, value, and if known low, high


@dataclass(frozen=True)
class Training:
    """A training with its entry, its series, and the minutes since it began at some steps, without pauses."""

    name: str
    entry: Mapping[str, Any]
    series: Series
    minutes: pl.DataFrame  # step, value
    rolled: bool = False  # its rollouts have pages
    so_far: bool = False  # it is running

    @property
    def last(self) -> int:
        """The last step of any series."""
        return max((part["step"][-1] for part in self.series.values()), default=0)


def read(name: str, results: Path, entry: Mapping[str, Any] | None = None) -> Training:
    """Return a training, as far as it is if it is running; its `entry` is then that of the configuration.

    Raises SettingError for another kind, and TableError for a training that was not made and is not running.
    """
    table = require_steps(Table(name, results))
    if entry is not None and table.is_being_made:
        return _read_running(table, entry)
    files = [file.stat() for file in (table.path, table.folder / ROLLOUTS, table.log) if file.exists()]
    return _read_finished(table, *((file.st_size, file.st_mtime_ns) for file in files))


def require_steps(table: Table) -> Table:
    """Return the table of a training. Raises SettingError for another kind."""
    if table.kind not in list_trained():
        kinds = " or ".join(f"{kind}/<name>" for kind in list_trained())
        raise SettingError(f"{table.name}: has no steps; expected {kinds}.")
    return table


@lru_cache(maxsize=32)
def _read_finished(table: Table, *_: tuple[int, int]) -> Training:
    """Read a finished training, once for each version of its files."""
    entry, file = table.stamp["entry"], table.folder / ROLLOUTS
    rolled = file.exists()
    of_rollouts = sum_up(pl.scan_parquet(file), entry) if rolled else {}
    return Training(table.name, entry, {**read_metrics(table), **of_rollouts}, _read_log(table)[0], rolled)


def _read_running(table: Table, entry: Mapping[str, Any]) -> Training:
    """Read the rollouts so far, of which a long log has only the latest, and the loss from the lines of progress."""
    from proofmill.training.rollout_log import ROLLOUT_LOG

    minutes, series = _read_log(table)
    if paths := sorted(table.scratch.glob(f"checkpoints-*/{ROLLOUT_LOG}"), key=lambda path: path.stat().st_mtime):
        columns = FILE_COLUMNS[table.kind][ROLLOUTS].items()
        schema = {name: kind for name, (kind, _) in columns if name not in LARGE}
        with open(paths[-1], "rb") as file:
            file.seek(start := max(0, paths[-1].stat().st_size - LATEST))
            lines = file.read().rpartition(b"\n")[0]
        if lines := lines.partition(b"\n")[2] if start else lines:
            schema |= {f"reward_{name}": pl.Float64 for name in weights(entry)}
            series |= sum_up(pl.read_ndjson(lines, schema=schema).lazy(), entry)
    return Training(table.name, entry, series, minutes, so_far=True)


def read_metrics(table: Table) -> Series:
    """Return the logged metrics of a training, `<task>/<role>/<metric>` in self-play, with their logged intervals."""
    rows = table.scan().select(pl.exclude("epoch")).collect().filter(pl.col("value").is_finite())
    rows = rows.sort("step", maintain_order=True)
    parts = [part for part in ("task", "role", "metric") if part in rows.columns]
    rows = rows.select("step", "value", metric=pl.concat_str(parts, separator="/", ignore_nulls=True))
    logged = {str(key[0]): part for key, part in rows.partition_by("metric", as_dict=True, include_key=False).items()}
    for name in [name.removesuffix("/low") for name in logged if name.endswith("/low")]:
        for end in ("low", "high"):
            logged[name] = logged[name].join(logged[f"{name}/{end}"].rename({"value": end}), "step", "left")
    return logged


def sum_up(rollouts: pl.LazyFrame, entry: Mapping[str, Any]) -> Series:
    """Return the series of a training's rollouts; self-play has them for each task and role."""
    names = rollouts.collect_schema().names()
    sides = [name for name in ("task", "role") if name in names]
    if sides:
        group = pl.concat_str("step", *sides, pl.coalesce("task_id", "rollout"), separator=" ")
        values = {"reward": pl.col("reward"), "accuracy": pl.col("accuracy"), "tokens": pl.col("tokens")}
    else:
        rollouts, share = rollouts.filter(pl.col("use") != "spare"), pl.col("grade") / pl.col("max_points")
        group = pl.col("step") * 2**32 + pl.col("group")  # one number: much faster than two columns
        values = {"grade": share, "solved": share == 1, "audit/grade": pl.col("audit")}
        of_groups = (pl.col("use") == "idle", pl.col("tokens"), pl.col("stop_reason") == "length")
        values |= dict(zip(GROUP, of_groups, strict=True))
        if terms := [pl.col(f"reward_{name}") * factor for name, factor in weights(entry).items()]:
            some = pl.any_horizontal(term.is_not_null() for term in terms)
            values["reward"] = pl.when(some).then(pl.sum_horizontal(terms))
    numbers = [value.cast(pl.Float64).alias(name) for name, value in values.items()]
    rows = rollouts.select(pl.col("step", *sides), *numbers, of=group)
    groups = rows.group_by("of").agg(pl.col("step", *sides).first(), pl.col(*values).mean()).drop("of")
    moments = [pl.all().mean(), pl.all().std().name.suffix(" std"), pl.all().count().name.suffix(" count")]
    steps = groups.group_by("step", *sides).agg(moments).sort("step").collect()
    parts = steps.partition_by(sides, as_dict=True).items() if sides else [((), steps)]
    series = {"/".join((*side, name)): _add_interval(part, name) for side, part in parts for name in values}
    return {name: part for name, part in series.items() if part.height}


def weights(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the weight of each reward of an entry, and of each preference."""
    preferences = {preference_name(name): config for name, config in (entry.get("preferences") or {}).items()}
    return {name: weight(config) for name, config in {**(entry.get("rewards") or {}), **preferences}.items()}


def _add_interval(steps: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the mean of a value at each step that has it, with its interval."""
    counts = steps[f"{name} count"]
    quantiles = {count: t_quantile(0.975, count - 1) / count**0.5 for count in counts.unique() if count > 1}
    factor = counts.replace_strict(quantiles, default=None, return_dtype=pl.Float64)
    half = pl.when(pl.col(f"{name} std") > 0).then(pl.col(f"{name} std") * factor)
    low, high = ((pl.col(name) + end).clip(*((0, 1) if SHARES.fullmatch(name) else ())) for end in (-half, half))
    return steps.select("step", value=pl.col(name), low=low, high=high).drop_nulls("value")


def _read_log(table: Table) -> tuple[pl.DataFrame, Series]:
    """Return the minutes of training by step, and loss and reward, from a job's log; a later run replaces steps."""
    rows: list[dict[str, Any]] = [{"step": 0, "value": 0.0}]
    clock, text = 0.0, table.log.read_text(encoding="utf-8", errors="replace") if table.log.exists() else ""
    for line in text.splitlines():
        if match := START.match(line) or LINE.match(line):
            hour, minute, second = map(int, match.groups()[:3])
            before, clock = clock, 60 * hour + minute + second / 60
            if match.re is LINE:
                step = int(match[4].replace(",", ""))
                rows = [row for row in rows if row["step"] < step]
                latest = {key: float(value) for key, value in re.findall(r", (loss|reward) ([^,\s]+)", match[5])}
                rows.append({"step": step, "value": rows[-1]["value"] + (clock - before) % (24 * 60), **latest})
    frame = pl.DataFrame(rows, schema={"step": pl.Int64, **dict.fromkeys(("value", "loss", "reward"), pl.Float64)})
    logged = {key: frame.select("step", value=key).drop_nulls() for key in ("loss", "reward")}
    return frame.select("step", "value"), {key: part for key, part in logged.items() if part.height}
