"""Groups of rollouts without a learning signal: counted, left out, or replaced by groups of further problems."""

import os
import shutil
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import torch

from mill import SMALL, Mill
from proofmill.config.identity import identity_of
from proofmill.graders.program_graders import PROGRAMS, ProgramGrader, grades
from proofmill.schema.errors import RecipeError
from proofmill.training import grpo_trainer as trainer_module
from proofmill.training.rollouts import idle_groups
from trained import TAUGHT

TRAINING = {
    "model": "sft/taught", "problems": "problems/train", "grader": "even", "unscored": "drop", "group-size": 2,
    "rewards": {"grade": 1}, "problems-per-step": 6, "steps": 3, "learning-rate": 1e-3, "max-tokens": 32, "log-every": 1,
}  # fmt: skip
TWO = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--rdzv-backend", "c10d"]
nan = float("nan")


@pytest.fixture(autouse=True)
def even(monkeypatch):
    """Register a grader by which many groups are idle: a point for an even number of digits."""
    check = grades(lambda submission: 1 - sum(map(str.isdigit, submission.text)) % 2)
    monkeypatch.setitem(PROGRAMS, "even", ProgramGrader(1, "a point for an even number of digits", check))


def curve(table, metric: str) -> list[float]:
    return [row["value"] for row in table.rows() if row["metric"] == metric]


@pytest.mark.slow
def test_idle_groups_are_replaced_within_the_bound_and_all_are_kept(taught, tmp_path):
    """Each step trains on as many live groups as it has problems, if rounds suffice; further rounds draw other problems."""
    shutil.copytree(taught.results, tmp_path / "results")
    entries = {"grpo/x": {**TRAINING, "idle": "replace", "idle-rounds": 4}, "grpo/counted": TRAINING}
    mill = Mill(tmp_path / "results", **SMALL, **{"sft/taught": TAUGHT}, **entries)
    table = mill.make("grpo/x")
    rollouts = pl.read_parquet(table.folder / "rollouts.parquet")
    assert rollouts["rollout"].n_unique() == rollouts.height
    groups = rollouts.group_by("step", "group", maintain_order=True).agg(
        pl.col("use").unique(), pl.col("problem").unique(), pl.col("reward_grade").n_unique() > 1
    )
    assert (groups["use"].list.len() == 1).all() and (groups["problem"].list.len() == 1).all()
    groups = groups.explode("use", "problem")
    assert (groups["reward_grade"] == (groups["use"] != "idle")).all()
    left, replaced, rounds = (curve(table, f"idle/{name}") for name in ("left", "replaced", "rounds"))
    for step, of_step in groups.group_by("step", maintain_order=True):
        uses = of_step["use"].to_list()
        assert of_step["group"].to_list() == [*range(len(uses))]
        assert uses.count("trained") == round(6 * (1 - left[step[0] - 1]))
        assert of_step["problem"].n_unique() == len(uses)  # 48 problems are enough for fresh ones
        assert 1 <= rounds[step[0] - 1] <= 4
        first = uses[:6].count("idle") / 6
        assert curve(table, "frac_reward_zero_std")[step[0] - 1] == first
        assert replaced[step[0] - 1] == pytest.approx(first - left[step[0] - 1])
    assert max(rounds) > 1 and max(replaced) > 0
    counted = pl.read_parquet(mill.make("grpo/counted").folder / "rollouts.parquet")
    first_step = rollouts.filter((pl.col("step") == 1) & (pl.col("group") < 6))
    same = [name for name in counted.columns if name not in ("rollout", "advantage")]
    assert counted.filter(step=1).select(same).equals(first_step.select(same))  # metrics are those of the first round
    assert curve(table, "grade")[0] == curve(mill.table("grpo/counted"), "grade")[0]


@pytest.mark.slow
def test_killed_training_replaces_the_same_groups(taught, tmp_path, monkeypatch):
    """A kill after the second step's first round costs that round only: table and rollouts are those of one piece."""
    monkeypatch.setenv("PROOFMILL_SAVE_STEPS", "1")
    entry, tables = {**TRAINING, "idle": "replace"}, []
    for name in ("whole", "killed"):
        shutil.copytree(taught.results, tmp_path / name)
        mill = Mill(tmp_path / name, **SMALL, **{"sft/taught": TAUGHT, "grpo/x": entry})
        if name == "killed":
            replace = trainer_module.GrpoTrainer._replace_idle

            def dying(self, *args, replace=replace):
                if self.made_for == 2:
                    raise ConnectionError("as if it were killed")
                return replace(self, *args)

            with monkeypatch.context() as patched, pytest.raises(ConnectionError):
                patched.setattr(trainer_module.GrpoTrainer, "_replace_idle", dying)
                mill.make("grpo/x")
        tables.append(mill.make("grpo/x"))
    whole, killed = tables
    assert whole.content == killed.content


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"max-staleness": 1}], ids=["in turn", "asynchronous"])
def test_left_out_groups_have_no_part_in_the_denominators(taught, tmp_path, more):
    """The gradient's norm is that of counted groups times all rollouts over those with a signal (`sequence_sum`)."""
    shutil.copytree(taught.results, tmp_path / "results")
    fields = {**TRAINING, "loss": "sequence_sum", "steps": 1, "max-grad-norm": 1e9, **more}
    entries = {"grpo/count": fields, "grpo/leave": {**fields, "idle": "leave-out"}}
    mill = Mill(tmp_path / "results", **SMALL, **{"sft/taught": TAUGHT}, **entries)
    tables = [mill.make(name) for name in entries]
    rollouts = pl.read_parquet(tables[1].folder / "rollouts.parquet")
    share = (rollouts["use"] == "trained").mean()
    assert 0 < share < 1
    count, leave = (curve(table, "grad_norm")[0] for table in tables)
    assert leave == pytest.approx(count / share, rel=1e-4)


@pytest.mark.long
def test_two_processes_replace_groups_as_one_does(taught, tmp_path):
    """Groups are whole, uses are right and each step has its groups, also where an odd number of groups is idle."""
    shutil.copytree(taught.results, tmp_path / "results")
    rewards = {"format": 1, "think-format": 1, "language": 0.1}
    fields = {**TRAINING, "grader": "arithmetic", "rewards": rewards, "group-size": 3, "idle": "replace", "steps": 2}
    mill = Mill(tmp_path / "results", **SMALL, **{"sft/taught": TAUGHT, "grpo/x": fields})
    identity = identity_of(mill.config.entries["grpo/x"], mill.config.declared)
    command = [*TWO, "-m", "proofmill.grpo", "grpo/x", "--entry", identity, "--results", tmp_path / "results"]
    subprocess.run([sys.executable, *command], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    rollouts = pl.read_parquet(mill.table("grpo/x").folder / "rollouts.parquet")
    groups = rollouts.group_by("step", "group", maintain_order=True).agg(
        pl.len(), pl.col("use").first(), pl.col("problem").n_unique(), pl.col("advantage").abs().max()
    )
    assert (groups["len"] == 3).all() and (groups["problem"] == 1).all()
    assert ((groups["advantage"] > 0) == (groups["use"] != "idle")).all()
    left = curve(mill.table("grpo/x"), "idle/left")
    for step in (1, 2):
        assert groups.filter(step=step, use="trained").height == round(6 * (1 - left[step - 1]))


def test_live_groups_have_two_scored_attempts_and_different_rewards():
    """NaN is unscored; the first groups with a signal are trained on, and later ones are spare."""
    totals_PG = np.array([[1, 1, nan], [1, 0, nan], [1, nan, nan], [nan, nan, nan], [0, 0, 1], [2, 3, 3]])
    live_P = idle_groups.find_live(totals_PG)
    assert live_P.tolist() == [False, True, False, False, True, True]
    assert idle_groups.name_uses(live_P, 2) == ["idle", "trained", "idle", "idle", "trained", "spare"]


def test_rows_take_their_place_with_their_padding():
    """A longer prompt and a shorter completion replace a row; other rows are the same but for their padding."""
    old = {
        "prompt_ids": torch.tensor([[0, 5], [6, 7]]), "prompt_mask": torch.tensor([[0, 1], [1, 1]]),
        "completion_ids": torch.tensor([[1, 2, 3], [4, 0, 0]]), "completion_mask": torch.tensor([[1, 1, 1], [1, 0, 0]]),
        "advantages": torch.tensor([0.0, 1.0]), "num_items_in_batch": torch.tensor(4),
        "prompt_lengths": torch.tensor([1, 2]), "completion_lengths": torch.tensor([3, 1]),
    }  # fmt: skip
    new = {
        "prompt_ids": torch.tensor([[8, 8, 8]]), "prompt_mask": torch.ones(1, 3, dtype=torch.long),
        "completion_ids": torch.tensor([[9, 0]]), "completion_mask": torch.tensor([[1, 0]]),
        "advantages": torch.tensor([-1.0]), "num_items_in_batch": torch.tensor(1),
        "prompt_lengths": torch.tensor([3]), "completion_lengths": torch.tensor([1]),
    }  # fmt: skip
    (row,) = idle_groups.rows_of(new, [0])
    put = idle_groups.put(old, {0: row}, pad=0)
    assert put["prompt_ids"].tolist() == [[8, 8, 8], [0, 6, 7]] and put["prompt_mask"].tolist() == [
        [1, 1, 1],
        [0, 1, 1],
    ]
    assert put["completion_ids"].tolist() == [[9, 0, 0], [4, 0, 0]]
    assert put["completion_mask"].tolist() == [[1, 0, 0], [1, 0, 0]]
    assert put["advantages"].tolist() == [-1.0, 1.0] and put["num_items_in_batch"] == 4
    assert old["advantages"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("more", [{"scale-rewards": "batch"}, {"max-staleness": 1}])
def test_what_cannot_be_replaced_is_refused(more):
    """A deviation over the batch as drawn, and rollouts ahead of the training."""
    with pytest.raises(RecipeError, match="found `idle: replace` with"):
        Mill(None, **SMALL, **{"grpo/x": {**TRAINING, "model": "sft/cold", "idle": "replace", **more}})
