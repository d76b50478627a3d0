"""The trainer of `grpo`: what is read of a rollout, and what a step's gradient depends on."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext

import polars as pl
import pytest
import torch
from transformers import TrainerCallback

import fixed_rollouts
from mill import SMALL, Mill
from proofmill.graders.graders import Marker
from proofmill.graders.verdicts import Verdict
from proofmill.training import grpo_trainer as trainer_module
from proofmill.training import run

TAUGHT = {**SMALL["sft/cold"], "steps": 120, "batch": 8, "learning-rate": 0.01}
GRPO = {
    "model": "sft/taught", "problems": "problems/train", "grader": "arithmetic", "unscored": "drop", "group": 4,
    "rewards": {"grade": 1, "format": 0.5, "think-format": 0.5, "language": 0.1}, "problems-per-step": 4, "steps": 1,
    "learning-rate": 1e-3, "max-tokens": 64, "log-every": 1,
}  # fmt: skip
# As in TRL's for Qwen3: what stands in the tags is the reasoning, and the rest is the content.
RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "reasoning_content": {"open": "<think>", "close_pattern": r"</think>\s*", "content": "text"},
        "content": {"close_pattern": r"<\|end\|>\s*", "content": "text"},
    },
}


@pytest.fixture(scope="module")
def taught(small) -> Mill:
    """The small chain with a model that has learned to think in tags, answer and end."""
    made = Mill(small.results, **SMALL, **{"sft/taught": TAUGHT})
    made.make("sft/taught")
    return made


@pytest.mark.parametrize("opens", [False, True], ids=["the model opens", "the template opens"])
def test_rollout_is_all_that_was_written_whatever_the_tokenizer_parses(taught, tmp_path, opens):
    """With and without a `response_template` the same seed gives the same texts, rewards and verdicts, reasoning included."""
    frames = []
    for name in ("plain", "parsed"):
        folder = tmp_path / name
        shutil.copytree(taught.table("sft/taught").folder, folder)
        if name == "parsed":
            path = folder / "tokenizer_config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "response_template": RESPONSE}))
        if opens:
            path = folder / "chat_template.jinja"
            path.write_text(path.read_text().replace("<|assistant|>{% endif %}", "<|assistant|><think>\n{% endif %}"))
        base = f"base/{name}-{opens}".lower()
        training = {**GRPO, "model": base}
        more = {base: {"source": "folder", "path": str(folder)}, "grpo/x": training}
        table = Mill(taught.results, **SMALL, **more).make(base, "grpo/x")
        frames.append(pl.read_parquet(table.folder / "rollouts.parquet").drop("rollout"))
        kept = json.loads((table.folder / "tokenizer_config.json").read_text())
        assert (kept.get("response_template") == RESPONSE) == (name == "parsed")
    plain, parsed = frames
    assert plain.equals(parsed)
    assert plain["text"].str.contains("</think>").any() and plain["reward_think-format"].sum() > 0


# ------------------------------------------------------------------------------------- what a gradient does not depend on


class Gradients(TrainerCallback):
    """Keeps the gradient of each optimizer step."""

    def __init__(self):
        self.found = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.found.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]).double())


class SilentOnSome(Marker):
    """The real grader, with no verdict on every third submission."""

    def __call__(self, submissions, quiet=False):
        verdicts = super().__call__(submissions, quiet)
        return [Verdict(None, 7, "no-verdict") if place % 3 == 0 else v for place, v in enumerate(verdicts)]


@pytest.mark.parametrize(
    "changed",
    [
        {"loss": "bnpo"},
        {"loss": "bnpo", "batches": 2, "kl": 0.01, "entropy": 0.05},
        {"loss": "dapo", "entropy": 0.05, "mask-truncated": True},
        {"loss": "dapo", "batches": 2, "iterations": 2},
        {"loss": "grpo", "entropy": 0.05},
        {"loss": "dr_grpo", "entropy": 0.05, "scale": "none"},
        {"loss": "sequence_sum", "entropy": 0.01, "kl": 0.01},
    ],
    ids=lambda changed: " ".join(f"{name}={value}" for name, value in changed.items()),
)
def test_gradient_of_a_step_does_not_depend_on_the_rows_of_a_pass(taught, monkeypatch, changed):
    """8, 4, 2 or 1 rows at a time: the gradient of each step is the same to five digits, unscored rollouts included."""
    monkeypatch.setattr("proofmill.grpo.Marker", SilentOnSome)
    steps = changed.get("batches", 1) * changed.get("iterations", 1)
    # The weights stay where they are, so that a step's gradient is no consequence of the rounding in the one before.
    still = {"problems-per-step": 2, "steps": steps, "learning-rate": 1e-12, "clip": 1e9}
    found = []
    for rows in (8, 4, 2, 1):
        monkeypatch.setenv("PROOFMILL_ROWS_PER_DEVICE", str(rows))
        gradients = Gradients()
        monkeypatch.setattr(run, "watching", lambda name, callback=gradients: nullcontext([callback]))
        monkeypatch.setenv("PROOFMILL_FRESH", "all")
        Mill(taught.results, **SMALL, **{"sft/taught": TAUGHT, "grpo/split": {**GRPO, **still, **changed}}).make(
            "grpo/split"
        )
        found.append(gradients.found)
    whole, *splits = found
    assert len(whole) == steps and all(gradient.norm() > 0 for gradient in whole)
    for split in splits:
        for one, other in zip(whole, split, strict=True):
            assert (one - other).norm() < 1e-5 * one.norm()


TWO = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--rdzv-backend", "c10d"]


def test_gradient_of_a_step_does_not_depend_on_the_devices(taught, tmp_path):
    """Two processes with two passes of two rows each have the gradient of one process with eight rows, for each loss."""
    losses = ["bnpo", "dapo:0.05", "grpo:0.05", "dr_grpo:0.05", "bnpo:0.05", "sequence_sum:0.01"]
    weights, path = taught.table("sft/taught").folder, tmp_path / "gradients.pt"
    subprocess.run(
        [sys.executable, *TWO, fixed_rollouts.__file__, weights, path, "2", *losses],
        env={**os.environ, "ACCELERATE_TORCH_DEVICE": "cpu", "OMP_NUM_THREADS": "1"},
        check=True,
    )
    one, two = fixed_rollouts.gradients(weights, 8, losses), torch.load(path)
    for loss in losses:
        assert (one[loss] - two[loss]).norm() < 1e-5 * one[loss].norm(), loss
    assert (one["bnpo"] - one["bnpo:0.05"]).norm() > 1e-3 * one["bnpo"].norm()


# ----------------------------------------------------------------------------------------------------------- checkpoints


def test_checkpoint_falls_on_the_end_of_the_steps_that_share_rollouts(taught, monkeypatch):
    """However often it is due: two steps share a round and are gone through twice, so that the first is after step 4."""
    monkeypatch.setenv("PROOFMILL_SAVE_MINUTES", "1e-9")
    fields = {**GRPO, "problems-per-step": 2, "batches": 2, "iterations": 2, "steps": 8}
    mill = Mill(taught.results, **SMALL, **{"sft/taught": TAUGHT, "grpo/whole": fields, "grpo/killed": fields})
    remember = trainer_module.Trainer._remember

    def dying(self):
        if self.made_for == 5:
            raise ConnectionError("as if it were killed")
        remember(self)

    with monkeypatch.context() as patched, pytest.raises(ConnectionError):
        patched.setattr(trainer_module.Trainer, "_remember", dying)
        mill.make("grpo/killed")
    folders = mill.table("grpo/killed").scratch.glob("checkpoints-*/checkpoint-*")
    assert [path.name for path in folders] == ["checkpoint-4"]
    whole, killed = mill.make("grpo/whole"), mill.make("grpo/killed")
    assert list(whole.rows()) == list(killed.rows())
