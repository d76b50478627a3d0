"""Training: what is learned, what an unscored rollout does, and what is kept."""

import threading

import polars as pl
import pytest

from mill import SMALL, Mill
from proofmill import grpo
from proofmill.artifacts import jobs
from proofmill.config.identity import identity_of
from proofmill.graders.graders import SubmissionGrader
from proofmill.graders.verdicts import Verdict
from proofmill.training import run
from proofmill.training.rollout_log import RolloutLog

pytestmark = pytest.mark.slow

GRPO = {
    "model": "sft/cold", "problems": "problems/train", "schemes": "schemes/train", "grader": "api/referee",
    "rewards": {"grade": 1, "format": 0.5}, "unscored": "drop", "group-size": 4, "problems-per-step": 2, "steps": 3,
    "learning-rate": 1e-3, "max-tokens": 16,
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(small):
    made = Mill(small.results, **SMALL, **{"grpo/x": GRPO})
    made.make("grpo/x")
    return made


def test_grpo_keeps_every_rollout(trained):
    """Each rollout of each step is kept with its rewards, advantage and verdict; advantages of a group add up to nothing."""
    rollouts = pl.read_parquet(trained.table("grpo/x").folder / "rollouts.parquet")
    assert rollouts.height == 3 * 2 * 4
    assert {"step", "problem", "text", "grade", "reason", "advantage", "reward_grade", "reward_format"} <= set(
        rollouts.columns
    )
    sums = rollouts.group_by("step", "problem").agg(pl.col("advantage").sum())["advantage"]
    assert sums.abs().max() < 1e-3


def test_grpo_rewards_are_the_graders_grades(trained):
    """The reward `grade` of a rollout is its grades over 7."""
    rollouts = pl.read_parquet(trained.table("grpo/x").folder / "rollouts.parquet")
    assert rollouts["reward_grade"].to_list() == pytest.approx((rollouts["grade"] / 7).to_list())


def test_grpo_table_has_its_curves(trained):
    """Reward, length, groups without a difference and the share unscored are measured at every logged step."""
    metrics = {row["metric"] for row in trained.table("grpo/x").rows()}
    assert {"reward", "rewards/grade/mean", "completions/mean_length", "frac_reward_zero_std", "unscored"} <= metrics


class SilentOnSome(SubmissionGrader):
    """The real grader, with no verdict on every third submission."""

    def __call__(self, submissions, quiet=False):
        verdicts = super().__call__(submissions, quiet)
        return [Verdict(None, 7, "no-verdict") if place % 3 == 0 else v for place, v in enumerate(verdicts)]


@pytest.mark.parametrize("unscored", ["drop", "zero"])
def test_unscored_rollout_has_no_gradient_when_dropped(small, tmp_path, monkeypatch, unscored):
    """Dropped, it has no reward and no advantage and its group is centred without it; as zero, it counts as the worst."""
    monkeypatch.setattr("proofmill.grpo.SubmissionGrader", SilentOnSome)
    made = Mill(
        small.results, **SMALL, **{f"grpo/{unscored}": {**GRPO, "unscored": unscored, "steps": 2, "max-unscored": 1.0}}
    )
    table = made.make(f"grpo/{unscored}")
    rollouts = pl.read_parquet(table.folder / "rollouts.parquet")
    silent = rollouts.filter(pl.col("reason") == "no-verdict")
    assert silent.height == table.stamp["counts"]["unscored"] > 0
    if unscored == "drop":
        assert {0.0} == set(silent["advantage"])
        assert silent["reward_grade"].is_null().all() and silent["reward_format"].is_null().all()
        spoken = (
            rollouts.filter(pl.col("reason") != "no-verdict").group_by("step", "problem").agg(pl.col("advantage").sum())
        )
        assert spoken["advantage"].abs().max() < 1e-3
    else:
        assert {0.0} == set(silent["reward_grade"])


def test_rewards_with_arguments_train(small):
    """Length and outcome rewards next to grades: each is a column of the rollouts, weighed as the entry says."""
    weighed = {"grade": 1, "length-kimi": {"weight": 0.5}, "overlong": {"weight": 0.1, "buffer": 4}, "tag-count": 0.1}
    made = Mill(small.results, **SMALL, **{"grpo/weighed": {**GRPO, "rewards": weighed, "steps": 2}})
    rollouts = pl.read_parquet(made.make("grpo/weighed").folder / "rollouts.parquet")
    assert [c for c in rollouts.columns if c.startswith("reward_")] == [f"reward_{name}" for name in weighed]
    assert (
        rollouts["reward_overlong"].is_between(-1, 0).all()
        and rollouts["reward_length-kimi"].is_between(-0.5, 0.5).all()
    )
    sizes = rollouts.group_by("step", "problem", maintain_order=True).agg(pl.len(), pl.col("advantage").sum())
    assert sizes["len"].to_list() == [4] * 4 and sizes["advantage"].abs().max() < 1e-3


@pytest.mark.parametrize(("kind", "arguments"), [("sft", "SFTConfig"), ("grpo", "GRPOConfig")])
def test_model_is_loaded_after_the_trainers_arguments_exist(small, monkeypatch, kind, arguments):
    """ZeRO-3 shares out what is loaded from then on, so that no process holds the whole model."""
    import trl

    made, class_ = [], getattr(trl, arguments)
    monkeypatch.setattr(class_, "__post_init__", lambda self, init=class_.__post_init__: made.append(init(self)))

    def load(*_):
        assert made == [None]
        raise InterruptedError

    monkeypatch.setattr(run, "load", load)
    entry = {"grpo": GRPO, "sft": SMALL["sft/cold"]}[kind]
    with pytest.raises(InterruptedError):
        Mill(small.results, **{**SMALL, f"{kind}/shared": {**entry, "seed": 5}}).make(f"{kind}/shared")


@pytest.mark.parametrize("sharding", ["none", "fsdp2"])
def test_gradients_are_shared_out_after_each_pass_under_fsdp2(small, monkeypatch, sharding):
    """As the plan of memory counts them; transformers would keep whole ones on every device until the last pass."""
    import trl

    made, init = [], trl.SFTConfig.__post_init__
    monkeypatch.setattr(trl.SFTConfig, "__post_init__", lambda self: made.append(self) or init(self))
    monkeypatch.setattr(run.processes, "sharding", lambda: sharding)

    def load(*_):
        raise InterruptedError

    monkeypatch.setattr(run, "load", load)
    with pytest.raises(InterruptedError):
        Mill(small.results, **{**SMALL, "sft/spread": {**SMALL["sft/cold"], "seed": 6}}).make("sft/spread")
    accumulation = made[0].accelerator_config.gradient_accumulation_kwargs
    assert (accumulation or {}).get("sync_each_batch", False) is (sharding == "fsdp2")


@pytest.mark.parametrize("cut", [{}, {"top-p": 0.9}, {"top-k": 1}, {"min-p": 0.1}], ids=str)
def test_vllm_weighs_no_token_by_the_nucleus_it_was_drawn_from(small, monkeypatch, cut):
    """Where the tail is truncated, vLLM's probabilities are no measure of the trained model's: nothing is corrected."""
    import trl

    made, init = [], trl.GRPOConfig.__post_init__
    monkeypatch.setattr(trl.GRPOConfig, "__post_init__", lambda self: made.append(self) or init(self))
    name = "-".join(["grpo/nucleus", *cut])
    table = Mill(small.results, **{**SMALL, name: {**GRPO, **cut, "steps": 1}}).make(name)
    assert made[0].vllm_importance_sampling_correction is (not cut)
    if "top-k" in cut:  # of one token there is one text
        groups = pl.read_parquet(table.folder / "rollouts.parquet").group_by("group").agg(pl.col("text").n_unique())
        assert set(groups["text"]) == {1}


def test_logits_are_computed_for_learned_tokens_alone(trained):
    """The loss is the cross-entropy of the learned tokens, and what the head computes grows with their number, not the row's."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    run.logits_of_trained_tokens()
    model = AutoModelForCausalLM.from_pretrained(trained.table("grpo/x").folder, dtype="float32")
    ids = torch.arange(5, 69).view(2, 32)
    plain = model(input_ids=ids).logits[:, :-1]
    add_fused_lm_head(model)
    head = model.get_output_embeddings().weight
    computed = []
    for learned in (8, 16):
        labels = ids.clone()
        labels[:, :-learned] = -100
        with FlopCounterMode(display=False) as counter:
            loss = model(input_ids=ids, labels=labels, fused_lm_head=True).loss
        expected = torch.nn.functional.cross_entropy(plain.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
        computed.append(counter.get_total_flops())
    assert computed[1] - computed[0] == 2 * 8 * 2 * head.numel()


def test_checkpoint_brings_a_training_on_and_what_lies_before_it_does_not(small, monkeypatch):
    """The job is signalled after the second step, whose checkpoint is complete, and neither by the rollout log nor by a judge's answers."""
    monkeypatch.setenv("PROOFMILL_SAVE_STEPS", "2")
    advanced, told, add = threading.Event(), [], RolloutLog.add
    monkeypatch.setattr(RolloutLog, "add", lambda self, rows: told.append(advanced.is_set()) or add(self, rows))
    made = Mill(small.results, **SMALL, **{"grpo/kept": {**GRPO, "seed": 7}})
    identity = identity_of(made.config.entries["grpo/kept"], made.config.declared)
    jobs.make(grpo.main, "grpo/kept", identity, made.results, made.config.terms, advanced=advanced)
    assert told == [False, False, True]
