"""Replay the rollouts of a finished run under other rewards or other grades, without training again.

    proofmill replay grpo/rl --rewards '{grade: 1, length-group: {weight: 0.5}}' --grades grades/round-2 --out new.parquet

The rollouts stay those of the run. A replay shows in which direction the first step under other terms would push, not
where such a run would end. Grades of rollouts are those of `responses: {model: grpo/rl, rollouts: true}`.

How it works:
1. `before` is read from the table. The run's own rewards are also recomputed, and differences are reported: they mean
   that the code or the table has changed since the run.
2. A centred reward within float32's rounding of 0 counts as 0, before and after; else equal attempts would have signs.
3. A batch (`scale-rewards: batch`) has the rollouts of one step, or of the `mini-batches` that share a rollout batch.
4. The scores of preferences are those of the table; a replay makes no calls.

Axes: P groups, G attempts in each, N attempts, K rewards.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import yaml
from pyarrow import parquet

from proofmill.analysis import _comparison
from proofmill.artifacts.checked_parquet import writer
from proofmill.artifacts.tables import Table
from proofmill.config.entry_values import entry_from
from proofmill.graders.submissions import OF_PROBLEM, Submission
from proofmill.graders.verdicts import Verdict
from proofmill.rewards.rewards import REWARDS, Rollout, RolloutGroup, weight
from proofmill.runtime import durable
from proofmill.runtime.progress import Progress, log
from proofmill.schema.errors import SettingError, TableError
from proofmill.schema.kinds import ROLLOUTS
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import Reason
from proofmill.text.suggestions import among
from proofmill.training import advantages
from proofmill.training.rollout_rewards import decide

# Share of a group's largest sum of absolute rewards: sixteen times the rounding error of float32 sums.
ROUNDING = 2e-6
AT_ONCE = 1024  # rollouts in memory
WRITTEN = ("text", "stop_reason", "tokens", "reference_tokens", "grade", "max_points", "reason")
NOT_ASKED = Reason.NOT_ASKED  # the reason of a rollout that needs no verdict

Verdicts = Mapping[str, Verdict]  # by rollout


@dataclass(frozen=True)
class Terms:
    """The terms of rewarding an attempt, as in an entry of `grpo`."""

    rewards: Mapping[str, Any]
    scale: str
    unscored: str

    def __str__(self) -> str:
        rewards = yaml.safe_dump(dict(self.rewards), default_flow_style=True, sort_keys=False, width=10**6).strip()
        return f"{rewards}, scale {self.scale}, unscored {self.unscored}"


class RescoredRun:
    """The rollouts of a finished run, group after group.

    Raises SettingError if `name` is no `grpo` artifact, TableError if its rollouts cannot be replayed.
    """

    def __init__(self, name: str, results: Path):
        if kind_of(name) != "grpo":
            raise SettingError(f"{name}: no training by rewards; expected grpo/<name>. Name one whose table is made.")
        table = Table(name, results)
        self.name, self.entry = name, entry_from("grpo", table.stamp["entry"])
        self.path = table.weights() / ROLLOUTS
        self.preferences = {reference.partition("/")[2]: p["weight"] for reference, p in self.entry.preferences.items()}
        self.terms = Terms({**self.entry.rewards, **self.preferences}, self.entry.scale_rewards, self.entry.unscored)
        if not self.terms.rewards:
            raise SettingError(
                f"{name}: was trained by its teacher alone; expected a training with `rewards` or `preferences`, whose advantages "
                "can be computed again. Name such a training."
            )
        if unknown := [each for each in self.entry.rewards if each not in REWARDS]:
            raise SettingError(
                f"{name}: was trained with the reward `{unknown[0]}`, which is unknown here; expected the plugin that defines it. "
                "Run the command in the project's folder, and list the file under `plugins`."
            )
        again = f"Make them again: snakemake --forcerun {table.path} {table.path}"
        if not self.path.exists():
            raise TableError(f"{self.path}: no such file; expected the rollouts of {name}. {again}")
        needed = {"rollout", "step", "group", "advantage", *WRITTEN, *(f"reward_{name}" for name in self.terms.rewards)}
        columns = set(pl.read_parquet_schema(self.path))
        if missing := sorted(needed - columns):
            raise TableError(
                f"{self.path}: has no column `{missing[0]}`; expected {', '.join(sorted(needed))}. {again}"
            )
        self.frame = pl.read_parquet(self.path, columns=sorted(columns & (needed | {"rewards_defined"}) - {"text"}))
        runs = self.frame.select(pl.struct("step", "group").rle().alias("run")).unnest("run")
        if runs["len"].n_unique() != 1 or runs["value"].n_unique() != runs.height or not self.frame["step"].is_sorted():
            raise TableError(
                f"{self.path}: its groups differ in size or are torn apart; expected {self.entry.group_size} attempts one after "
                f"another for each step and group. {again}"
            )
        problems = table.other(self.entry.problems)
        known = problems.path.exists() and problems.content == table.stamp["parents"].get(problems.name)
        rows = problems.rows("problem", *OF_PROBLEM) if known and "problem" in columns else ()
        self.problems = {row["problem"]: row for row in rows}
        if not self.problems:
            log(name, f"{problems.name} is not as in the run: rewards get no statement, answer and reference solution")
        self.size = int(runs["len"][0])
        self.step_P = self.frame["step"].to_numpy()[:: self.size]

    def groups(self, verdicts: Verdicts | None = None) -> Iterator[RolloutGroup]:
        """Yield the groups with their texts, read in batches; with the recorded verdicts or with `verdicts`."""
        with parquet.ParquetFile(self.path) as file:
            batches = file.iter_batches(
                batch_size=AT_ONCE, columns=["rollout", *["problem"] * bool(self.problems), *WRITTEN]
            )
            rows = (row for batch in batches for row in batch.to_pylist())
            while group := [self._rollout(row, verdicts) for row in islice(rows, self.size)]:
                yield RolloutGroup(group, self.entry.max_tokens)

    def _rollout(self, row: Mapping[str, Any], verdicts: Verdicts | None) -> Rollout:
        problem, own = (
            self.problems.get(row.get("problem"), {}),
            Verdict(row["grade"], row["max_points"] or 0, row["reason"]),
        )
        unknown = replace(own, grade=None, reason=Reason.NOT_GRADED)
        submission = Submission(
            problem.get("statement", ""), problem.get("answer"), None, row["text"] or "", stop_reason=row["stop_reason"],
            reference=problem.get("solution"), question_type=problem.get("question_type") or "proof",
        )  # fmt: skip
        verdict = own if verdicts is None else verdicts.get(row["rollout"], unknown)
        return Rollout(submission, verdict, row["tokens"], row["reference_tokens"])

    def column(self, name: str) -> np.ndarray:
        """Read a numeric column N; NaN for null."""
        return self.frame[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()

    def applies(self, name: str) -> np.ndarray:
        """Return which rollouts N a reward applies to: as recorded, or for a new one by verdict and reference solution."""
        if name in self.terms.rewards and "rewards_defined" in self.frame.columns:
            return self.frame["rewards_defined"].list.contains(name).fill_null(True).to_numpy()
        if name in REWARDS:
            asked_N = (self.frame["reason"] != NOT_ASKED).fill_null(True).to_numpy()
            return REWARDS[name].applies(asked_N, self.frame["reference_tokens"].is_not_null().to_numpy())
        return np.ones(self.frame.height, dtype=bool)

    def read_rewards(self) -> "RescoredReward":
        """Return the rewards that the run counted."""
        return RescoredReward.weigh(
            self, self.terms, {name: self.column(f"reward_{name}") for name in self.terms.rewards}
        )

    def compute_rewards(self, terms: Terms, verdicts: Verdicts | None = None) -> "RescoredReward":
        """Recompute the rewards under these terms; preferences are as recorded."""
        values_by_name: dict[str, list] = {name: [] for name in terms.rewards if name not in self.preferences}
        progress = Progress(self.name, len(self.step_P), "groups")
        for group in self.groups(verdicts) if values_by_name else ():
            for name, values in values_by_name.items():
                values += REWARDS[name].values(group, terms.rewards[name])
            progress.add()
        preferred = {name: self.column(f"reward_{name}") for name in terms.rewards if name in self.preferences}
        computed = {name: np.array(values, dtype=float) for name, values in values_by_name.items()}
        return RescoredReward.weigh(self, terms, {**computed, **preferred})


@dataclass(frozen=True)
class RescoredReward:
    """Rewards of the rollouts by name (NaN where none counts), their totals, and their advantages. All PG."""

    terms: Terms
    values: Mapping[str, np.ndarray]
    unscored_PG: np.ndarray  # lacks a reward that applies
    totals_PG: np.ndarray
    advantages_PG: np.ndarray
    divisors_P1: np.ndarray
    rounding_P1: np.ndarray  # totals of a group that differ by no more count as equal

    @classmethod
    def weigh(cls, run: RescoredRun, terms: Terms, values: Mapping[str, np.ndarray]) -> "RescoredReward":
        weights = [weight(settings) for settings in terms.rewards.values()]
        values_NK = np.column_stack([values[name] for name in terms.rewards])
        applies_NK = np.column_stack([run.applies(name) for name in terms.rewards])
        missing_NK = applies_NK & np.isnan(values_NK)
        values_NK = advantages.mask_uncounted(values_NK, applies_NK, terms.unscored)
        totals_PG = advantages.total(values_NK, weights, applies_NK).reshape(-1, run.size)
        sizes_PG = np.nansum(np.abs(values_NK * weights), axis=1).reshape(-1, run.size)
        batches = np.split(totals_PG, np.flatnonzero(np.diff(run.step_P)) + 1)
        return cls(
            terms,
            {name: values_N.reshape(-1, run.size) for name, values_N in zip(terms.rewards, values_NK.T, strict=True)},
            missing_NK.any(axis=1).reshape(-1, run.size),
            totals_PG,
            np.concatenate([advantages.advantages(batch_PG, terms.scale) for batch_PG in batches]),
            np.concatenate([advantages.divisors(batch_PG, terms.scale) for batch_PG in batches]),
            ROUNDING * sizes_PG.max(axis=1, keepdims=True),
        )

    def pushes(self, advantages_PG: np.ndarray | None = None) -> np.ndarray:
        """Return the advantages (or the given ones, for the same rewards), 0 if the centred reward is only rounding."""
        advantages_PG = self.advantages_PG if advantages_PG is None else advantages_PG
        apart_PG = np.abs(np.nan_to_num(advantages.center(self.totals_PG)))
        return np.where(apart_PG > self.rounding_P1, advantages_PG, 0.0)

    def best(self) -> np.ndarray:
        """Return which attempts PG have the highest total of their group."""
        totals_PG = np.where(np.isnan(self.totals_PG), -np.inf, self.totals_PG)
        highest_P1 = totals_PG.max(axis=1, keepdims=True)
        return np.isfinite(totals_PG) & (totals_PG >= highest_P1 - self.rounding_P1)


@dataclass(frozen=True)
class Replay:
    """A run as recorded, its own rewards computed again, and its rollouts under other terms."""

    run: RescoredRun
    was: RescoredReward  # as recorded
    again: RescoredReward  # the same terms, computed again
    now: RescoredReward
    covered_P: np.ndarray  # groups with grades to replay
    grades: str | None = None

    @cached_property
    def recorded_PG(self) -> np.ndarray:
        """The advantages that the run was trained with."""
        return np.nan_to_num(self.run.column("advantage")).reshape(-1, self.run.size)

    @cached_property
    def before_PG(self) -> np.ndarray:
        return self.was.pushes(self.recorded_PG)

    @cached_property
    def after_PG(self) -> np.ndarray:
        return self.now.pushes()

    @cached_property
    def changes(self) -> dict[str, np.ndarray]:
        """Attempts PG by how the sign of their advantage changes."""
        before_PG, after_PG = np.sign(self.before_PG), np.sign(self.after_PG)
        return {
            "+ to -": (before_PG > 0) & (after_PG < 0),
            "- to +": (before_PG < 0) & (after_PG > 0),
            "0 to + or -": (before_PG == 0) & (after_PG != 0),
            "+ or - to 0": (before_PG != 0) & (after_PG == 0),
        }

    @cached_property
    def changed_PG(self) -> np.ndarray:
        return np.logical_or.reduce(list(self.changes.values()))

    @cached_property
    def turned_PG(self) -> np.ndarray:
        """Attempts PG whose advantage changes from one sign to the other."""
        return self.changes["+ to -"] | self.changes["- to +"]

    @cached_property
    def other_best_P(self) -> np.ndarray:
        """Groups P where no best attempt stays one of the best; also those with a best one only before or after."""
        before_PG, after_PG = self.was.best(), self.now.best()
        return (before_PG | after_PG).any(axis=1) & ~(before_PG & after_PG).any(axis=1)

    @cached_property
    def reversed_P(self) -> np.ndarray:
        """Groups P whose advantages before and after correlate negatively (both have the mean 0)."""
        product_P = (self.before_PG * self.after_PG).sum(axis=1)
        sizes_P = np.sqrt((self.before_PG**2).sum(axis=1) * (self.after_PG**2).sum(axis=1))
        return product_P < -ROUNDING * sizes_P

    def as_recorded(self) -> tuple[int, int]:
        """Count the recomputed rewards, and the advantages from recorded rewards, that equal the table's."""
        was, again = self.was, self.again
        equal_PG = np.abs(was.totals_PG - again.totals_PG) <= np.maximum(was.rounding_P1, again.rounding_P1)
        neither_PG = np.isnan(was.totals_PG) & np.isnan(again.totals_PG)
        apart_PG = np.abs(self.recorded_PG - was.advantages_PG) * np.nan_to_num(was.divisors_P1, nan=1.0)
        within_PG = apart_PG <= was.rounding_P1 * np.maximum(1.0, np.abs(was.advantages_PG))
        return int((equal_PG | neither_PG).sum()), int(within_PG.sum())

    # ---------------------------------------------------------------------------------------------------------- output

    def lines(self) -> Iterator[str]:
        """Return the replay as text."""
        return _comparison.lines(self)

    def write(self, path: Path) -> None:
        """Write the rollouts with `advantage_replayed` and `reward_<name>_replayed`, in one rename.

        Raises SettingError if the file exists, TableError if it cannot be written.
        """
        require_absent(path)
        new = {"advantage_replayed": self.now.advantages_PG} | {
            f"reward_{name}_replayed": values_PG for name, values_PG in self.now.values.items()
        }
        # from_pandas: NaN becomes null
        added = pa.table({name: pa.array(values.ravel(), from_pandas=True) for name, values in new.items()})
        temporary = path.with_name(f".{path.name}.new")
        try:
            with parquet.ParquetFile(self.run.path) as file:
                schema = pa.schema([*file.schema_arrow, *added.schema])
                with writer(temporary, schema) as new_file:
                    start = 0
                    for batch in file.iter_batches(batch_size=AT_ONCE):
                        columns = [*batch.columns, *added.slice(start, batch.num_rows).combine_chunks().columns]
                        new_file.write_table(pa.table(columns, schema=schema))
                        start += batch.num_rows
            durable.replace(temporary, path)
        except OSError as error:
            raise TableError(
                f"{path}: cannot be written ({error.strerror or error}); expected a folder with room and permission to write."
            ) from error
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------------------ replaying


def replay_run(
    name: str,
    results: Path = Path("results"),
    rewards: str | None = None,
    grades: str | None = None,
    scale: str | None = None,
    unscored: str | None = None,
) -> Replay:
    """Replay a run; terms that are None stay as they were. `rewards` is YAML, a mapping of all rewards."""
    run = RescoredRun(name, results)
    terms = Terms(
        run.terms.rewards if rewards is None else read_rewards(rewards, run),
        scale or run.terms.scale,
        unscored or run.terms.unscored,
    )
    verdicts = None if grades is None else read_verdicts(grades, run, results)
    again = run.compute_rewards(run.terms)
    now = again if terms == run.terms and verdicts is None else run.compute_rewards(terms, verdicts)
    covered_N = (
        run.frame["rollout"].is_in(list(verdicts))
        if verdicts is not None
        else pl.repeat(True, run.frame.height, eager=True)
    )
    covered_P = np.asarray(covered_N.to_numpy().reshape(-1, run.size).any(axis=1))
    return Replay(run, run.read_rewards(), again, now, covered_P, grades)


def read_rewards(text: str, run: RescoredRun) -> dict[str, Any]:
    """Parse the rewards of `--rewards`; raises SettingError for unreadable ones. The run's preferences have only a weight."""
    shape = "expected a mapping such as `{grade: 1, format: 0.1}`."
    try:
        rewards = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingError(f"--rewards: cannot be read as YAML ({error}); {shape}") from error
    if not isinstance(rewards, dict) or not rewards:
        raise SettingError(f"--rewards: found {rewards!r}; {shape}")
    for name, value in rewards.items():
        if name not in REWARDS and name not in run.preferences:
            raise SettingError(
                f"--rewards: names `{name}`; expected one of {among(name, [*REWARDS, *run.preferences])}"
            )
        factor = value.get("weight", 1) if isinstance(value, dict) and name not in run.preferences else value
        if not isinstance(factor, int | float) or isinstance(factor, bool) or not isfinite(factor):
            raise SettingError(f"--rewards: `{name}` has the weight {factor!r}; expected a number.")
        if name not in run.preferences and (fault := REWARDS[name].fault(name, value)):
            raise SettingError(f"--rewards: {fault}")
    return rewards


def read_verdicts(name: str, run: RescoredRun, results: Path) -> Verdicts:
    """Read the verdicts of a grades table by rollout; raises TableError if it has none of the run's rollouts."""
    if kind_of(name) != "grades":
        raise SettingError(f"--grades: `{name}` is no table of grades; expected grades/<name>. Name one that is made.")
    table = Table(name, results)
    rows = table.rows("response", "grade", "max_points", "reason")
    rollouts = set(run.frame["rollout"])
    rows = [row for row in rows if row["response"] in rollouts]
    verdicts = {row["response"]: decide(Verdict(row["grade"], row["max_points"], row["reason"])) for row in rows}
    if not verdicts:
        raise TableError(
            f"{table.path}: has no grades of rollouts of {run.name}, but of {table.stamp['entry']['responses']}; expected grades of its "
            f"rollouts. Declare `responses: {{model: {run.name}, rollouts: true, ...}}` and grade these."
        )
    return verdicts


def require_absent(path: Path) -> None:
    """Raise SettingError if the path exists."""
    if path.exists():
        raise SettingError(f"{path}: exists; expected a new file. Name another one, or move it away.")
