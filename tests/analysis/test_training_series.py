"""Series of trainings: means over groups with intervals, logged metrics, the clock of a log, and a training that runs."""

import json
import math

import polars as pl
import pytest

from proofmill.analysis import training_series
from proofmill.artifacts.tables import Table
from proofmill.metrics.uncertainty.intervals import t_quantile
from proofmill.runtime import locks
from proofmill.schema.errors import SettingError, TableError
from proofmill.training.rollout_log import ROLLOUT_LOG, columns

ENTRY = {"rewards": {"grade": 1, "format": {"weight": 0.5}}, "preferences": {}}


def rollout(step, group, grade, use="trained", **more):
    """Return a rollout out of 4 points, with a reward of its grade and one for its form."""
    return {
        **{"step": step, "group": group, "use": use, "grade": grade, "max_points": 4, "stop_reason": "end", "tokens": 10},
        **{"audit": None, "reward_grade": None if grade is None else grade / 4, "reward_format": 1.0, **more},
    }  # fmt: skip


def summed(*rows, entry=ENTRY):
    return training_series.sum_up(pl.DataFrame(rows, schema=columns(["grade", "format"])).lazy(), entry)


def test_value_of_a_step_is_the_mean_over_its_groups():
    """A group without some grades weighs as much as the others; the interval is Student's over groups."""
    rows = [rollout(1, 0, 4.0), rollout(1, 0, 2.0), rollout(1, 1, 1.0), rollout(1, 1, None), rollout(1, 2, 3.0)]
    (point,) = summed(*rows)["grade"].to_dicts()
    groups = [0.75, 0.25, 0.75]
    mean = sum(groups) / 3
    half = t_quantile(0.975, 2) * math.sqrt(sum((g - mean) ** 2 for g in groups) / 2 / 3)
    assert point["value"] == pytest.approx(mean)
    assert (point["low"], point["high"]) == (pytest.approx(max(0, mean - half)), pytest.approx(min(1, mean + half)))


def test_interval_of_equal_groups_is_absent():
    """Groups that do not differ say nothing about others, and one group even less."""
    points = summed(rollout(1, 0, 2.0), rollout(1, 1, 2.0), rollout(2, 0, 1.0))["grade"].to_dicts()
    assert [(p["step"], p["value"], p["low"], p["high"]) for p in points] == [
        (1, 0.5, None, None),
        (2, 0.25, None, None),
    ]


def test_reward_is_the_weighted_sum_without_unscored_rollouts():
    """Weights may be in a mapping; a rollout whose rewards do not count has none; a missing one adds nothing."""
    rows = [
        rollout(1, 0, 4.0), rollout(1, 1, 4.0, reward_grade=None), rollout(1, 2, None, reward_format=None)
    ]  # fmt: skip
    assert summed(*rows)["reward"]["value"].to_list() == [pytest.approx((1.5 + 0.5) / 2)]


def test_spare_groups_do_not_count_and_idle_ones_are_a_share():
    """Rollouts that train nothing are left out; half of the others had no gradient."""
    rows = [rollout(1, 0, 4.0), rollout(1, 1, 0.0, use="idle"), rollout(1, 2, 0.0, use="spare")]
    series = summed(*rows)
    assert series["grade"]["value"].to_list() == [0.5]
    assert series["frac_reward_zero_std"]["value"].to_list() == [0.5]
    assert "audit/grade" not in series, "nothing was audited"


def test_selfplay_has_series_of_each_task_and_role():
    """Accuracies of solutions are means over tasks."""
    rows = [
        {"step": 1, "task": "deduce", "role": role, "task_id": ident, "rollout": f"{n}", "tokens": 5, "reward": 0.5, "accuracy": right}
        for n, (role, ident, right) in enumerate([("solve", "a", 1.0), ("solve", "a", 1.0), ("solve", "b", 0.0), ("propose", None, None)])
    ]  # fmt: skip
    series = training_series.sum_up(pl.DataFrame(rows).with_columns(stop_reason=pl.lit("end")).lazy(), {})
    assert series["deduce/solve/accuracy"]["value"].to_list() == [0.5]
    assert "deduce/propose/accuracy" not in series and series["deduce/propose/reward"]["value"].to_list() == [0.5]


def test_minutes_leave_out_pauses_and_repeated_steps(tmp_path):
    """Each run counts from its start; steps that a resume repeats have their new time; midnight is passed."""
    table = Table("grpo/x", tmp_path)
    table.path.parent.mkdir(parents=True)
    table.log.write_text(
        "\n2026-11-22 23:50:00 UTC on vm\n23:55:00  grpo/x  step 5 of 30, 1 steps/min, 0:25 left\n"
        "00:05:00  grpo/x  step 15 of 30, loss 0.5, reward 0.25, 1 steps/min, 0:15 left\n"
        "\n2026-11-23 09:00:00 UTC on vm\n09:01:00  grpo/x  resumes from checkpoint-10\n"
        "09:06:00  grpo/x  step 12 of 30, loss 0.4, reward 0.5, 1 steps/min, 0:15 left\n"
    )
    (table.scratch / "checkpoints-f").mkdir(parents=True)
    with locks.alone(table.lock, table.name):
        training = training_series.read("grpo/x", tmp_path, ENTRY)
    assert training.so_far and training.last == 12
    assert training.minutes.rows() == [(0, 0.0), (5, 5.0), (12, 11.0)]
    assert training.series["loss"]["value"].to_list() == [0.4] and training.series["reward"]["value"].to_list() == [0.5]


def test_running_training_has_the_rollouts_so_far(tmp_path):
    """Complete lines of the log of rollouts count, an incomplete one does not; without its lock it is not made."""
    table = Table("grpo/x", tmp_path)
    folder = table.scratch / "checkpoints-f"
    folder.mkdir(parents=True)
    lines = [json.dumps(rollout(step, group, 2.0 + group)) for step in (1, 2) for group in (0, 1)]
    (folder / ROLLOUT_LOG).write_text("\n".join([*lines, lines[0][:20]]))
    with locks.alone(table.lock, table.name):
        training = training_series.read("grpo/x", tmp_path, ENTRY)
    assert training.series["grade"].select("step", "value").rows() == [(1, 0.625), (2, 0.625)]
    with pytest.raises(TableError, match="no such table"):
        training_series.read("grpo/x", tmp_path, ENTRY)


def test_another_kind_has_no_series(tmp_path):
    """The message names the kinds that have."""
    with pytest.raises(SettingError, match=r"has no steps; expected sft/<name>"):
        training_series.read("grades/x", tmp_path)


def test_finished_training_is_read_once_for_each_version(tmp_path):
    """An equal file is not read again; a new one is."""
    table, stamp = Table("sft/x", tmp_path), {"entry": {}, "fingerprint": "f", "model": "m"}
    row = {"step": 1, "epoch": 0.0, "metric": "loss", "value": 1.0}
    table.write([row], stamp)
    first = training_series.read("sft/x", tmp_path)
    assert training_series.read("sft/x", tmp_path) is first
    Table("sft/x", tmp_path).write([row, {**row, "step": 2, "value": math.nan}, {**row, "step": 3}], stamp)
    assert training_series.read("sft/x", tmp_path).series["loss"]["step"].to_list() == [1, 3], "NaN has no point"
