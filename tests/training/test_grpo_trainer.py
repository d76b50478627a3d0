"""The trainer of `grpo`: what is read of a rollout, and what a step's gradient depends on."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import polars as pl
import pytest
import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

import fixed_rollouts
from mill import SMALL, Mill
from proofmill.config.identity import identity_of
from proofmill.engines import rollout_engines as rollouts_module
from proofmill.graders.graders import SubmissionGrader
from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Verdict
from proofmill.rewards.rewards import Rollout
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.errors import RecipeError, ServiceError
from proofmill.training import grpo_trainer as trainer_module
from proofmill.training import run
from proofmill.training.rollout_rewards import Rewarded, Rewarding, Unscored, causes
from proofmill.training.rollouts import weight_sync
from trained import TAUGHT, Gradients, held_up_until_asked

pytestmark = pytest.mark.slow

GRPO = {
    "model": "sft/taught", "problems": "problems/train", "grader": "arithmetic", "unscored": "drop", "group-size": 4,
    "rewards": {"grade": 1, "format": 0.5, "think-format": 0.5, "language": 0.1}, "problems-per-step": 4, "steps": 1,
    "learning-rate": 1e-3, "max-tokens": 64, "log-every": 1,
}  # fmt: skip
# As in TRL's for Qwen3: the text in the tags is the reasoning, and the rest is the content.
RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "reasoning_content": {"open": "<think>", "close_pattern": r"</think>\s*", "content": "text"},
        "content": {"close_pattern": r"<\|end\|>\s*", "content": "text"},
    },
}


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
        more = {base: {"source": "folder", "path": str(folder)}, "grpo/read": training}
        table = Mill(taught.results, **SMALL, **more).make(base, "grpo/read")
        frames.append(pl.read_parquet(table.folder / "rollouts.parquet").drop("rollout"))
        kept = json.loads((table.folder / "tokenizer_config.json").read_text())
        assert (kept.get("response_template") == RESPONSE) == (name == "parsed")
    plain, parsed = frames
    assert plain.equals(parsed)
    assert plain["text"].str.contains("</think>").any() and plain["reward_think-format"].sum() > 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", [{}, {"temperature": 0.7, "top-p": 0.9}, {"lora": {"rank": 4, "alpha": 8}}], ids=str)
def test_rollouts_are_those_of_transformers_own_loop(taught, monkeypatch, way):
    """From the same seed, in each of three steps: texts, rewards and updates do not depend on whose loop it is."""
    entries = {"sft/taught": TAUGHT, "grpo/looped": {**GRPO, **way, "steps": 3}}
    frames = []
    monkeypatch.setenv("PROOFMILL_FORCE", "all")
    for theirs in (False, True):
        if theirs:
            monkeypatch.setattr(rollouts_module, "decode_by_ours", lambda job, model, **_: None)
        table = Mill(taught.results, **SMALL, **entries).make("grpo/looped")
        frames.append(pl.read_parquet(table.folder / "rollouts.parquet").drop("rollout"))
    ours, theirs = frames
    assert ours["text"].to_list() == theirs["text"].to_list() and ours["tokens"].to_list() == theirs["tokens"].to_list()
    assert ours["advantage"].to_list() == pytest.approx(theirs["advantage"].to_list(), abs=1e-5)
    assert ours["step"].n_unique() == 3 and ours["tokens"].n_unique() > 5


def test_judge_is_asked_about_the_first_rollout_while_others_are_written(taught, monkeypatch):
    """Sampling continues only once the judge has been asked; texts, verdicts and advantages are those of asking at the end."""
    judged = {**GRPO, "grader": "api/referee", "schemes": "schemes/train", "steps": 2}
    frames = []
    with held_up_until_asked() as heard:
        for name in ("early", "late"):
            table = Mill(taught.results, **SMALL, **{"sft/taught": TAUGHT, f"grpo/{name}": judged}).make(f"grpo/{name}")
            frames.append(
                pl.read_parquet(table.folder / "rollouts.parquet").drop("rollout", "cost", "judge_tokens", "logprobs")
            )
            monkeypatch.setattr(
                rollouts_module, "report_at_once", lambda job, model, _: rollouts_module.decode_by_ours(job, model)
            )
    assert len(heard) > 4 and all(heard)
    assert frames[0].equals(frames[1]) and frames[0]["verdict"].n_unique() > 4


# ------------------------------------------------------------------------------------- what a gradient does not depend on


class SilentOnSome(SubmissionGrader):
    """The real grader, with no verdict on every third submission."""

    def __call__(self, submissions, quiet=False):
        verdicts = super().__call__(submissions, quiet)
        return [Verdict(None, 7, "no-verdict") if place % 3 == 0 else v for place, v in enumerate(verdicts)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "changed",
    [
        {"loss": "bnpo"},
        {"loss": "bnpo", "mini-batches": 2, "kl": 0.01, "entropy": 0.05},
        {"loss": "dapo", "entropy": 0.05, "mask-truncated": True},
        {"loss": "dapo", "mini-batches": 2, "iterations": 2},
        {"loss": "grpo", "entropy": 0.05},
        {"loss": "dr_grpo", "entropy": 0.05, "scale-rewards": "none"},
        {"loss": "sequence_sum", "entropy": 0.01, "kl": 0.01},
    ],
    ids=lambda changed: " ".join(f"{name}={value}" for name, value in changed.items()),
)
def test_gradient_of_a_step_does_not_depend_on_the_rows_of_a_pass(taught, monkeypatch, changed):
    """Micro-batches of 8, 4, 2 or 1 rows: the gradient of each step is the same to five digits, unscored rollouts included."""
    monkeypatch.setattr("proofmill.grpo.SubmissionGrader", SilentOnSome)
    steps = changed.get("mini-batches", 1) * changed.get("iterations", 1)
    # The weights stay where they are, so that a step's gradient is no consequence of the rounding in the one before.
    still = {"problems-per-step": 2, "steps": steps, "learning-rate": 1e-12, "max-grad-norm": 1e9, "max-unscored": 1.0}
    found = []
    for rows in (8, 4, 2, 1):
        monkeypatch.setenv("PROOFMILL_MICRO_BATCH_SIZE", str(rows))
        gradients = Gradients()
        monkeypatch.setattr(run, "watching", lambda name, callback=gradients: nullcontext([callback]))
        monkeypatch.setenv("PROOFMILL_FORCE", "all")
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


@pytest.mark.long
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


IDLE = (2, 3, 5)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rows", [8, 4, 1])
@pytest.mark.parametrize("loss", ["bnpo", "dapo", "grpo", "dr_grpo", "sequence_sum"])
def test_rows_without_advantage_are_left_out_and_the_gradient_is_the_same(taught, monkeypatch, loss, rows):
    """They count in every denominator as before; fewer rows go through the model, at most as many at a time."""
    weights, seen = taught.table("sft/taught").folder, []

    def learned() -> torch.Tensor:
        trainer = fixed_rollouts.trainer(weights, rows, loss, 0.0, IDLE)
        passed = trainer._get_per_token_logps_and_entropies
        trainer._get_per_token_logps_and_entropies = lambda model, ids, *a, **o: (
            seen.append(len(ids)) or passed(model, ids, *a, **o)
        )
        return fixed_rollouts.gradient(trainer)

    less = learned()
    counts, seen = seen, []
    monkeypatch.setattr(trainer_module.GrpoTrainer, "_has_gradient", lambda self, rows: torch.ones(8, dtype=torch.bool))
    whole = learned()
    assert seen == [rows] * (8 // rows)
    # Of eight rows three have no advantage and one has no tokens; a pass for which none is left takes one of these.
    assert len(counts) == len(seen) and sum(counts) == max(4, len(seen)) and max(counts) <= rows
    assert whole.norm() > 0 and (less - whole).norm() < 1e-5 * whole.norm()


def test_rows_without_advantage_are_learned_where_the_entropy_counts(taught):
    """With a bonus on it they have a gradient: only what has no tokens is left out."""
    trainer = fixed_rollouts.trainer(taught.table("sft/taught").folder, 4, "dapo", 0.05, IDLE)
    fixed_rollouts.gradient(trainer)
    assert sum(len(part["advantages"]) for part in trainer._buffered_inputs) == 7


@pytest.mark.parametrize("loss", ["dapo", "grpo", "sequence_sum"])
def test_step_of_which_nothing_is_learned_is_a_step(taught, loss):
    """Its gradient is 0, the optimizer continues, and its measures are numbers."""
    trainer = fixed_rollouts.trainer(taught.table("sft/taught").folder, 2, loss, 0.0, tuple(range(8)))
    assert not fixed_rollouts.gradient(trainer).any()
    assert trainer.state.global_step == 1
    assert all(weight.isfinite().all() for weight in trainer.model.parameters())


def test_metrics_of_a_step_are_those_of_its_tokens(taught):
    """Entropy and ratios do not depend on how many rows a pass has, although passes have rows of different lengths."""
    found = []
    for rows in (8, 2):
        trainer = fixed_rollouts.trainer(taught.table("sft/taught").folder, rows, "dapo", 0.0)
        trainer.train()
        found.append(
            {k: v for row in trainer.state.log_history for k, v in row.items() if "ratio" in k or k == "entropy"}
        )
    assert len(found[0]) > 5 and found[0] == pytest.approx(found[1], rel=1e-5)


# ----------------------------------------------------------------------------------------------------------- checkpoints


def test_checkpoint_falls_on_the_end_of_the_steps_that_share_rollouts(taught, monkeypatch):
    """However often it is due: two steps share a round and are gone through twice, so that the first is after step 4."""
    monkeypatch.setenv("PROOFMILL_SAVE_MINUTES", "1e-9")
    fields = {**GRPO, "problems-per-step": 2, "mini-batches": 2, "iterations": 2, "steps": 8}
    mill = Mill(taught.results, **SMALL, **{"sft/taught": TAUGHT, "grpo/whole": fields, "grpo/killed": fields})
    remember = trainer_module.GrpoTrainer._remember

    def dying(self, *facts):
        if self.made_for == 5:
            raise ConnectionError("as if it were killed")
        remember(self, *facts)

    with monkeypatch.context() as patched, pytest.raises(ConnectionError):
        patched.setattr(trainer_module.GrpoTrainer, "_remember", dying)
        mill.make("grpo/killed")
    folders = mill.table("grpo/killed").scratch.glob("checkpoints-*/checkpoint-*")
    assert [path.name for path in folders] == ["checkpoint-4"]
    whole, killed = mill.make("grpo/whole"), mill.make("grpo/killed")
    assert list(whole.rows()) == list(killed.rows())


# ------------------------------------------------------------------------------------------------- no rollout has a verdict


class Silent(SubmissionGrader):
    """The real grader, which never comes to a verdict after its first call."""

    calls = 0

    def __call__(self, submissions, quiet=False):
        Silent.calls += 1
        verdicts = super().__call__(submissions, quiet)
        return verdicts if Silent.calls == 1 else [Verdict(None, 7, "no-verdict") for _ in verdicts]


def test_training_without_scored_rollouts_stops_and_resumes(taught, monkeypatch):
    """It stops in its third step and says why; with a higher limit it resumes from its checkpoint, and not from its beginning."""
    monkeypatch.setenv("PROOFMILL_SAVE_STEPS", "1")
    monkeypatch.setattr("proofmill.grpo.SubmissionGrader", Silent)
    Silent.calls = 0
    few = {**GRPO, "problems-per-step": 2, "steps": 12, "max-tokens": 16}

    def mill(**changed):
        return Mill(taught.results, **SMALL, **{"sft/taught": TAUGHT, "grpo/silent": {**few, **changed}})

    said = r"16 of the last 24 rollouts have no verdict \(16 no-verdict\); expected at most 10% \(`max-unscored`\)"
    with pytest.raises(ServiceError, match=said):
        mill().make("grpo/silent")
    assert Silent.calls == 3
    with pytest.raises(ServiceError, match=r"8 of the last 8 rollouts .* expected at most 5%"):
        mill(**{"max-unscored": 0.05}).make("grpo/silent")
    assert Silent.calls == 4
    table = mill(**{"max-unscored": 1.0}).make("grpo/silent")
    rollouts = pl.read_parquet(table.folder / "rollouts.parquet")
    assert Silent.calls == 4 + 10 and rollouts["step"].n_unique() == 12
    assert rollouts.filter(~pl.col("unscored"))["step"].unique().to_list() == [1]
    assert table.stamp["counts"]["unscored"] == 88


@pytest.mark.long
def test_processes_of_a_training_stop_together_without_scored_rollouts(taught, tmp_path):
    """The main process alone counts the verdicts; both end with the same sentence, and neither waits for the other."""
    path = tmp_path / "others.jsonl"
    path.write_text("".join(f'{{"statement": "What is love, part {n}?"}}\n' for n in range(4)))
    training = {**GRPO, "problems": "problems/other", "problems-per-step": 2, "steps": 20, "max-tokens": 48}
    entries = {"sft/taught": TAUGHT, "problems/other": {"source": "table", "path": str(path)}, "grpo/other": training}
    mill = Mill(taught.results, **SMALL, **entries)
    mill.make("problems/other")
    identity = identity_of(mill.config.entries["grpo/other"], mill.config.declared)
    done = subprocess.run(
        [sys.executable, *TWO, "-m", "proofmill.grpo", "grpo/other", "--entry", identity, "--results", taught.results],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = r"^ServiceError: grpo/other: \d+ of the last \d+ rollouts have no verdict \(\d+ no-verdict\)"
    assert done.returncode and re.search(said, done.stderr, re.MULTILINE), done.stderr
    assert not mill.table("grpo/other").path.exists()


def rewarded(*reasons: str) -> Rewarded:
    """Return a batch whose rollouts have these reasons; `ok?` has grades, and lacks another reward."""
    verdicts = [Verdict(1.0 if reason.startswith("ok") else None, 7, reason.strip("?")) for reason in reasons]
    values = [[1.0 if reason == "ok" else math.nan] for reason in reasons]
    rollouts = [Rollout(Submission("s", None, None, "text"), verdict, 3) for verdict in verdicts]
    return Rewarded(rollouts, np.array(values), np.ones((len(reasons), 1), dtype=bool))


ENTRY = {"model": "sft/x", "problems": "problems/x", "grader": "api/x", "unscored": "drop", "rewards": {"grade": 1}}


@pytest.mark.parametrize(
    ("fields", "rounds", "said"),
    [
        # 0.25 of ten rounds of four: ten may be missing
        ({"steps": 100}, [["timeout"] * 4] * 2 + [["off-scale", "off-scale", "ok", "ok?"]], "11 of the last 12 rollouts"),
        ({"steps": 100}, [["no-verdict", "ok", "ok", "ok"]] * 100, None),
        ({"steps": 100}, [["no-verdict"] * 4] * 2 + [["ok"] * 4] * 8 + [["no-verdict"] * 4] * 2, None),
        ({"steps": 2}, [["ok"] * 4, ["ok", "no-verdict", "no-verdict", "ok"]], None),
        ({"steps": 2}, [["ok"] * 4, ["ok", "no-verdict", "no-verdict", "no-scheme"]], "3 of the last 8 rollouts"),
        ({"steps": 4, "mini_batches": 2, "iterations": 2}, [["ok?"] * 8], r"8 of the last 8 rollouts .*\(8 no preference\)"),
        ({"steps": 1, "max_unscored": 1.0}, [["no-verdict"] * 4], None),
        ({"steps": 1, "max_unscored": 0.0}, [["ok", "ok", "ok", "no-verdict"]], "1 of the last 4 rollouts"),
    ],
)  # fmt: skip
def test_unscored_rollouts_are_a_share_of_those_of_the_latest_rounds(fields, rounds, said):
    """One rollout batch too many is reported with its reasons, and not one before; what is older than ten rounds does not count."""
    entry = Grpo(**{**ENTRY, "group_size": 4, "problems_per_step": 1, "max_unscored": 0.25, **fields})
    unscored = Unscored(entry.max_unscored, entry.mini_batches * entry.group_size, entry.rounds)
    *before, last = [unscored.add(causes(rewarded(*reasons))) for reasons in rounds]
    assert not any(before)
    assert last is None if said is None else re.match(said, last)


CODE = '[{"call": "f(2)", "result": "4"}]'


def test_what_a_program_cannot_decide_is_0_as_a_reward_and_unscored_as_a_grade():
    """An unreadable answer earns 0 with its reason; an unreadable gold answer is no fault."""

    def submission(asks: str, answer: str, text: str) -> Submission:
        return Submission("s", answer, None, text, question_type=asks)

    shown = [
        submission("answer", "18", "\\boxed{18}"),
        submission("answer", "18", "\\boxed{" + "1" * 1001 + "}"),
        submission("answer", "18", "\\boxed{\\frac{7}}"),
        submission("answer", "\\frac{7}", "\\boxed{18}"),
        submission("code", CODE, "```python\ndef f(x): return 2 * x\n```"),
        submission("code", CODE, "```python\nimport nothing\ndef f(x): return 2 * x\n```"),
        submission("code", CODE, "```python\ndef f(x): return 3\n" + "#" * 33_000 + "\n```"),
        submission("code", "no tests", "```python\ndef f(x): return 2 * x\n```"),
    ]
    reasons = ["ok", "unparsable", "unparsable", "no-gold", "ok", "ok", "ok", "no-gold"]
    entry = Grpo(
        **{
            **ENTRY,
            "grader": "rules",
            "rewards": {"grade": 1, "outcome": {"preset": "dima"}},
            "steps": 1,
            "group_size": 4,
        }
    )
    with SubmissionGrader("rules", None, {}) as grader:
        grades = grader(shown)
        found = Rewarding(entry, grader).reward(shown, [3] * 8, [None] * 8, step=1)
    assert [verdict.reason for verdict in grades] == reasons
    assert [verdict.grade for verdict in grades] == [1.0, None, None, None, 1.0, 0.0, 0.0, None]
    assert [rollout.verdict.reason for rollout in found.rollouts] == reasons
    assert found.values_NK[:, 0].tolist() == pytest.approx([1, 0, 0, math.nan, 1, 0, 0, math.nan], nan_ok=True)
    assert found.values_NK[:, 1].tolist() == pytest.approx([1, -1, -1, math.nan, 1, -1, -1, math.nan], nan_ok=True)
    assert found.unscored_N.tolist() == [False, False, False, True] * 2


def test_rollout_that_never_comes_to_an_answer_earns_0():
    """A policy cannot leave its grade open by never closing its thought, nor by sending it apart."""
    shown = [
        Submission("s", "18", None, "<think>It is \\boxed{18}", question_type="answer"),
        Submission("s", "18", None, "", reasoning="It is \\boxed{18}", question_type="answer"),
    ]
    entry = Grpo(**{**ENTRY, "grader": "rules", "rewards": {"grade": 1}, "steps": 1, "group_size": 2})
    with SubmissionGrader("rules", None, {}) as grader:
        grades = grader(shown)
        found = Rewarding(entry, grader).reward(shown, [3] * 2, [None] * 2, step=1)
    assert [(grade.grade, grade.reason) for grade in grades] == [(0, "empty"), (None, "reasoning-only")]
    assert found.values_NK[:, 0].tolist() == [0.0, 0.0]
    assert {rollout.verdict.reason for rollout in found.rollouts} == {"empty"}


# ------------------------------------------------------------------------------------------- weights of the engine


@pytest.mark.parametrize(
    ("apart", "tokens", "refused"), [(0.29, 20, 0), (0.31, 20, 1), (9.0, 7, 0), (float("nan"), 8, 1)]
)
def test_engine_with_other_log_probabilities_is_refused(apart, tokens, refused):
    """More than 0.3 nats a token, as the mean of a rollout of at least 8 tokens, is an error with its prompt; padding is not read."""
    ours_NT = torch.full((3, 24), -1.0)
    engine_NT, tokens_NT = ours_NT.clone(), torch.zeros(3, 24, dtype=torch.bool)
    tokens_NT[:, :tokens] = True
    engine_NT[:, tokens:] = -50.0
    engine_NT[1, :tokens] -= apart
    with pytest.raises(ServiceError, match=r"grpo/x: .*prompt: `row 1`") if refused else nullcontext():
        weight_sync.require_same("grpo/x", ours_NT, engine_NT, tokens_NT, lambda row: f"row {row}")


@pytest.mark.parametrize(("unknown", "refused"), [(1, 0), (10, 0), (11, 1)])
def test_engine_may_leave_out_log_probabilities_of_some_tokens(unknown, refused):
    """Of up to half of a rollout's tokens; the others are compared. More say that the engine is broken."""
    ours_NT, tokens_NT = torch.full((2, 20), -1.0), torch.ones(2, 20, dtype=torch.bool)
    engine_NT = ours_NT.clone()
    engine_NT[1, :unknown] = math.nan
    with pytest.raises(ServiceError, match="prompt: `row 1`") if refused else nullcontext():
        weight_sync.require_same("grpo/x", ours_NT, engine_NT, tokens_NT, lambda row: f"row {row}")


def test_model_that_counts_padding_as_positions_is_refused(taught, tmp_path):
    """GPT-2 has other probabilities after padding; a training would pad all but the longest prompts of a step."""
    folder = taught.table("sft/taught").weights()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=1, n_head=2, **ends)).eval()
    ids, padding = torch.tensor([[20, 30, 40]]), torch.tensor([[0, 0]])
    mask = torch.tensor([[0, 0, 1, 1, 1]])
    padded = model(torch.cat([padding, ids], dim=1), attention_mask=mask).logits[:, 2:]
    assert not torch.allclose(padded, model(ids).logits, atol=1e-3)
    model.save_pretrained(tmp_path / "old")
    tokenizer.save_pretrained(tmp_path / "old")
    more = {"base/old": {"source": "folder", "path": str(tmp_path / "old")}, "grpo/old": {**GRPO, "model": "base/old"}}
    with pytest.raises(RecipeError, match=r"grpo/old: its model \(gpt2\) has a table of positions, .* another model"):
        Mill(taught.results, **SMALL, **more).make(*more)
