"""Training on rollouts of slightly older weights: what a step trains on, how old it is, and what a kill leaves."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import nullcontext
from zlib import crc32

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from trl.experimental.async_grpo.packing import TREE_ATTENTION, TreeRow

from mill import SMALL, Mill
from proofmill.config.identity import identity_of
from proofmill.engines.remote import ApiEngine
from proofmill.graders.graders import SubmissionGrader
from proofmill.graders.verdicts import Verdict
from proofmill.rewards.rewards import REWARDS, Reward, each
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.errors import ServiceError, SettingError
from proofmill.training import run
from proofmill.training.asynchronous import attention
from proofmill.training.asynchronous import trainer as trainer_module
from proofmill.training.asynchronous.rollout_queue import ATTEMPTS, RolloutQueue
from proofmill.training.asynchronous.sampler import SampledRollout
from proofmill.training.asynchronous.worker import Worker
from trained import Gradients

pytestmark = pytest.mark.slow

TWO = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--rdzv-backend", "c10d"]

TAUGHT = {**SMALL["sft/cold"], "steps": 120, "batch-size": 8, "learning-rate": 0.01}
LAGGED = {
    "model": "sft/taught", "problems": "problems/train", "grader": "arithmetic", "unscored": "drop", "group-size": 4, "max-staleness": 2,
    "rewards": {"grade": 1, "format": 0.5, "think-format": 0.5}, "problems-per-step": 3, "steps": 6,
    "learning-rate": 1e-3, "max-tokens": 64, "log-every": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def taught(small) -> Mill:
    """Build the small chain with a model that is trained to think in tags, answer and end."""
    made = Mill(small.results, **SMALL, **{"sft/taught": TAUGHT})
    made.make("sft/taught")
    return made


def mill(taught, name="grpo/lagged", **changed) -> Mill:
    return Mill(taught.results, **SMALL, **{"sft/taught": TAUGHT, name: {**LAGGED, **changed}})


def rollouts_of(table) -> pl.DataFrame:
    return pl.read_parquet(table.folder / "rollouts.parquet")


def test_rollouts_keep_max_staleness_and_each_is_trained_on_once(taught):
    """Six steps of three groups: as many rollouts as without staleness, none older than two steps, some older than none."""
    table = mill(taught).make("grpo/lagged")
    rollouts = rollouts_of(table)
    assert rollouts.height == 6 * 3 * 4 == rollouts["rollout"].n_unique()
    ages = rollouts["step"] - 1 - rollouts["policy_step"]
    assert ages.min() >= 0 and 1 <= ages.max() <= 2
    groups = rollouts.group_by("step", "group").agg(pl.col("problem").n_unique(), pl.col("policy_step").n_unique())
    assert groups.height == 18 and set(groups["problem"]) == {1}
    assert rollouts["problem"].n_unique() == 18  # of 48: none comes again before all have come
    measured = {(row["step"], row["metric"]): row["value"] for row in table.rows()}
    assert (
        measured[6, "staleness/max"]
        == (rollouts.filter(step=6)["step"] - 1 - rollouts.filter(step=6)["policy_step"]).max()
    )
    assert measured[6, "reward"] == pytest.approx(_reward(rollouts.filter(step=6)))
    assert measured[1, "ratio/max"] == pytest.approx(1, abs=1e-4)  # the first rollouts are of the weights that learn
    assert measured[6, "ratio/effective-share"] < 1


def test_batch_is_trained_on_for_a_block_of_steps(taught):
    """Two mini-batches twice: each block of four steps has one rollout batch, at most two steps old when it begins."""
    table = mill(taught, "grpo/blocks", **{"mini-batches": 2, "iterations": 2, "steps": 10}).make("grpo/blocks")
    rollouts = rollouts_of(table)
    assert rollouts.group_by("step").len().sort("step").rows() == [(step, 2 * 3 * 4) for step in (1, 5, 9)]
    assert rollouts["rollout"].n_unique() == 3 * 2 * 3 * 4 and rollouts["problem"].n_unique() == 3 * 2 * 3
    ages = rollouts["step"] - 1 - rollouts["policy_step"]
    assert ages.min() >= 0 and 1 <= ages.max() <= 2
    measured = {(row["step"], row["metric"]): row["value"] for row in table.rows()}
    assert measured[5, "staleness/max"] == ages.filter(rollouts["step"] == 5).max()
    assert measured[8, "ratio/effective-share"] < 1
    (epoch,) = {row["epoch"] for row in table.rows() if row["step"] == 10}
    assert epoch == pytest.approx(10 * 3 / 2 / 48)


@pytest.mark.long
@pytest.mark.parametrize("more", [{}, {"lora": {"rank": 4, "alpha": 8}}, {"reference-sync-steps": 2}], ids=str)
def test_reference_is_the_first_model_or_that_of_its_last_step(taught, more):
    """The divergence is 0 until a step has changed the weights, and again after an update of the reference."""
    fields = {"kl": 1e-6, "steps": 3, "learning-rate": 3e-3, **more}
    table = mill(taught, "grpo/near", **fields).make("grpo/near")
    kl = [row["value"] for row in table.rows() if row["metric"] == "kl"]
    assert kl[0] == pytest.approx(0, abs=1e-9) and kl[1] > 1e-8
    assert (kl[2] < 1e-9) == ("reference-sync-steps" in more)


def test_equal_rewards_move_no_weight(taught, monkeypatch):
    """The mean of six rewards of 0.1 is another number in floating point; the advantages are 0 all the same."""
    monkeypatch.setitem(REWARDS, "stuck", Reward(each(lambda rollout: 1.0), "always 1"))
    changed = {"rewards": {"stuck": 0.1}, "group-size": 6, "steps": 1, "learning-rate": 1.0}
    table = mill(taught, "grpo/equal", **changed).make("grpo/equal")
    assert set(rollouts_of(table)["advantage"]) == {0.0}
    before, after = (load_file(t.weights() / "model.safetensors") for t in (table.other("sft/taught"), table))
    assert all(torch.equal(weight, after[name]) for name, weight in before.items())


def _reward(rollouts: pl.DataFrame) -> float:
    return (rollouts["reward_grade"] + 0.5 * rollouts["reward_format"] + 0.5 * rollouts["reward_think-format"]).mean()


# --------------------------------------------------------------------------------------------------------- the gradient


class SilentOnSome(SubmissionGrader):
    """The real grader, with no verdict on a third of the texts."""

    def begin(self, submissions):
        futures = []
        for submission, graded in zip(submissions, super().begin(submissions), strict=True):
            silent = Future()
            silent.set_result(Verdict(None, 7, "no-verdict"))
            futures.append(silent if crc32(submission.text.encode()) % 3 == 0 else graded)
        return futures


class Weights(Gradients):
    """Records the weights with which each step begins, too."""

    def __init__(self):
        super().__init__()
        self.before = []

    def on_step_begin(self, args, state, control, model=None, **_):
        self.before.append({name: weight.detach().double() for name, weight in model.state_dict().items()})


def assert_allowed(logprobs: torch.Tensor, drawn: torch.Tensor, entry: Grpo) -> None:
    """Check that `top-k`, `top-p` and `min-p` allow each drawn token."""
    likelier = logprobs > drawn
    assert entry.top_k is None or likelier.sum(-1).max() < entry.top_k
    assert entry.top_p == 1 or (logprobs.exp() * likelier).sum(-1).max() < entry.top_p + 1e-4
    assert entry.min_p is None or (drawn - logprobs.max(-1, keepdim=True).values).min().exp() > entry.min_p - 1e-4


def expected_gradient(weights, before, entry: Grpo, groups, rollouts: pl.DataFrame, part: int) -> torch.Tensor:
    """Compute the gradient of a mini-batch slowly: each rollout alone, with the weights `before`, by the formulas."""
    model, reference = (AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float64) for _ in range(2))
    model.load_state_dict(before)
    learned = pl.Series(
        not row["unscored"] and not (entry.mask_truncated and row["stop_reason"] == "length")
        for row in rollouts.iter_rows(named=True)
    )
    if entry.idle == "leave-out":
        learned &= rollouts["use"] == "trained"
    size = entry.problems_per_step * entry.group_size
    own = pl.Series(range(rollouts.height)) // size == part
    counted = (rollouts["use"] == "trained") if entry.idle == "leave-out" else pl.Series([True] * rollouts.height)
    count, tokens = (own & counted).sum(), rollouts.filter(own & learned)["tokens"].sum()
    mean_tokens = rollouts.filter(learned)["tokens"].sum() / entry.mini_batches
    attempts = [(group, group.attempts[place]) for group in groups for place in sorted(group.attempts)]
    loss = torch.zeros((), dtype=torch.float64)
    for index, row in enumerate(rollouts.iter_rows(named=True)):
        group, attempt = attempts[index]
        assert len(attempt.ids_T) == row["tokens"]
        if not (own[index] and learned[index]):
            continue
        prompt, old = group.problem["tokens"], torch.tensor(attempt.logprobs_T).double()
        ids = torch.tensor([[*prompt, *attempt.ids_T.tolist()]])
        all_logprobs = [
            (network(ids).logits[0, len(prompt) - 1 : -1] / entry.temperature).log_softmax(-1)
            for network in (model, reference)
        ]
        chosen, initial = (values.gather(1, ids[0, len(prompt) :, None]).squeeze(1) for values in all_logprobs)
        assert np.allclose(initial.detach(), old, atol=1e-4)  # over all tokens, whatever may be drawn
        assert_allowed(all_logprobs[1].detach(), initial.detach()[:, None], entry)
        entropy = -(all_logprobs[0].exp() * all_logprobs[0]).sum(-1)
        ratio = torch.exp((chosen - old).mean().expand_as(chosen) if entry.objective == "gspo" else chosen - old)
        clipped, advantage = ratio.clamp(1 - entry.epsilon, 1 + entry.epsilon), row["advantage"]
        objective = {
            "reinforce": chosen * advantage * ratio.clamp(max=1 + entry.epsilon).detach(),
            "cispo": chosen * advantage * clipped.detach(),
        }.get(entry.objective, torch.min(ratio * advantage, clipped * advantage))
        gap = initial.detach() - chosen
        objective = objective - entry.kl * (torch.exp(gap) - gap - 1)
        if entry.loss == "sequence_sum":
            loss = loss - (objective + entry.entropy * entropy).sum() / count
            continue
        part_of = {
            "grpo": count * row["tokens"],
            "dr_grpo": count * entry.max_tokens,
            "dapo": mean_tokens,
        }.get(entry.loss, tokens)
        loss = loss - objective.sum() / part_of - entry.entropy * entropy.sum() / tokens
    loss.backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "changed",
    [
        {"loss": "dapo", "entropy": 0.05, "temperature": 0.8},
        {"loss": "grpo", "mask-truncated": True, "max-tokens": 80},
        {"loss": "dr_grpo", "scale-rewards": "none"},
        {"loss": "sequence_sum", "objective": "reinforce", "entropy": 0.01, "scale-rewards": "batch"},
        {"loss": "grpo", "objective": "gspo", "mask-divergence": 0.1},
        {"loss": "bnpo", "objective": "cispo", "entropy": 0.01},
        {"loss": "dapo", "kl": 0.05, "mini-batches": 2, "iterations": 2, "temperature": 0.8, "top-p": 0.9},
        {"loss": "grpo", "kl": 0.05, "iterations": 3, "idle": "leave-out", "top-k": 8},
        {"loss": "bnpo", "mini-batches": 2, "idle": "leave-out", "entropy": 0.05, "min-p": 0.05},
    ],
    ids=str,
)
def test_gradient_is_that_of_each_rollout_alone_by_the_formula(taught, monkeypatch, changed):
    """Packed as trees, with unscored rollouts among them: the gradient of each step of a rollout batch is the slow one's."""
    monkeypatch.setattr("proofmill.grpo.SubmissionGrader", SilentOnSome)
    monkeypatch.setenv("PROOFMILL_FORCE", "all")
    step, groups = Worker.step, []
    monkeypatch.setattr(Worker, "step", lambda self: groups.append(step(self)) or groups[-1])
    monkeypatch.setenv("PROOFMILL_MICRO_BATCH_SIZE", "6")
    gradients = Weights()
    monkeypatch.setattr(run, "watching", lambda name: nullcontext([gradients]))
    steps = changed.get("mini-batches", 1) * changed.get("iterations", 1)
    fixed = {"steps": steps, "max-grad-norm": 1e9, "max-unscored": 1.0, "problems-per-step": 6, "learning-rate": 1e-3}
    made = mill(taught, **fixed, **changed)
    rollouts = rollouts_of(made.make("grpo/lagged"))
    assert 0 < rollouts["unscored"].sum() < rollouts.height == 24 * changed.get("mini-batches", 1)
    entry = made.config.entries["grpo/lagged"]
    assert len(gradients.found) == len(gradients.before) == steps and len(groups) == 1
    for number, (found, before) in enumerate(zip(gradients.found, gradients.before, strict=True)):
        part = number % entry.mini_batches
        weights = taught.table("sft/taught").weights()
        slow = expected_gradient(weights, before, entry, groups[0], rollouts, part)
        assert slow.norm() > 0
        assert (found - slow).norm() / slow.norm() < 2e-4


@pytest.mark.long
@pytest.mark.parametrize("more", [{}, {"lora": {"rank": 4, "alpha": 8}}], ids=str)
def test_two_processes_take_the_steps_of_one(taught, tmp_path, more):
    """On the first rollout batch, loss, gradient and divergence of each step are the same; a second batch follows."""
    shutil.copytree(taught.results, tmp_path / "results")
    fields = {**LAGGED, "kl": 0.1, "mini-batches": 2, "iterations": 2, "steps": 8, "problems-per-step": 4, **more}
    made = Mill(tmp_path / "results", **SMALL, **{"sft/taught": TAUGHT, "grpo/one": fields, "grpo/two": fields})
    one = made.make("grpo/one")
    identity = identity_of(made.config.entries["grpo/two"], made.config.declared)
    command = [*TWO, "-m", "proofmill.grpo", "grpo/two", "--entry", identity, "--results", tmp_path / "results"]
    subprocess.run([sys.executable, *command], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    values = [
        {(row["step"], row["metric"]): row["value"] for row in table.rows()} for table in (one, made.table("grpo/two"))
    ]
    for step in range(1, 5):
        for metric in ("loss", "grad_norm", "kl", "ratio/max"):
            wanted = pytest.approx(values[0][step, metric], rel=1e-3, abs=1e-6)
            assert values[1][step, metric] == wanted, (step, metric)
    assert values[1][4, "kl"] > 0 and values[1].keys() == values[0].keys()


def test_tree_attention_is_that_of_each_sequence_alone(taught):
    """Sequences that share a beginning, in one row: the same outputs as sequentially, and so with a window."""
    attention._register()
    folder = taught.table("sft/taught").weights()
    packed = AutoModelForCausalLM.from_pretrained(folder, attn_implementation=TREE_ATTENTION)
    alone = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    texts = [[5, 6, 7, 8, 9], [5, 6, 7, 8, 10, 11], [5, 6, 12], [13, 14, 15, 16]]
    row = TreeRow()
    for group, ids in enumerate(texts):
        mask = np.array([0] + [1] * (len(ids) - 1))
        row.add(
            {"input_ids": np.array(ids), "completion_mask": mask, "old_log_probs": mask * 0.0, "advantage": 1.0,
             "group_id": group}
        )  # fmt: skip
    batch = row.pack()
    tree = {name: batch[name] for name in trainer_module.TREE}
    tree["tree_max_seqlen_q"], tree["tree_max_seqlen_k"] = batch["tree_max_seqlens"].tolist()
    ids, places = batch["input_ids"][None], batch["position_ids"][None]
    with torch.no_grad():
        logits = packed(input_ids=ids, position_ids=places, **tree).logits[0][batch["token_index"]]
        wanted = torch.cat([alone(input_ids=torch.tensor([ids])).logits[0, :-1] for ids in texts])
    assert len(batch["input_ids"]) < sum(map(len, texts))
    assert torch.allclose(logits, wanted, atol=1e-5)


# ------------------------------------------------------------------------------------------------- concurrent work


@pytest.mark.long
def test_rollouts_of_later_steps_are_judged_before_the_first_step_is_learned(taught, monkeypatch):
    """The first step is held up until the judge has been asked about a rollout that the step does not train on."""
    asked, later = [], threading.Event()
    attempt, making = ApiEngine.attempt, trainer_module.AsyncGrpoTrainer._make

    async def noted(self, request, attempts):
        asked.append(request.messages[-1][1])
        later.set()
        return await attempt(self, request, attempts)

    def waits(self, groups, count):
        own = [row["text"] for group in groups for row in group.rows.values() if row["text"]]

        def of_others():
            return [text for text in asked if not any(one in text for one in own)]

        deadline = time.monotonic() + 30
        while self.state.global_step == 0 and not of_others() and time.monotonic() < deadline:
            later.wait(1)
            later.clear()
        early.append(len(of_others()))
        return making(self, groups, count)

    early: list[int] = []
    monkeypatch.setattr(ApiEngine, "attempt", noted)
    monkeypatch.setattr(trainer_module.AsyncGrpoTrainer, "_make", waits)
    judged = mill(taught, "grpo/judged", grader="api/referee", schemes="schemes/train", steps=4)
    rollouts = rollouts_of(judged.make("grpo/judged"))
    assert early[0] > 0
    assert rollouts["grade"].null_count() == 0 and rollouts.height == 4 * 3 * 4


def test_process_that_samples_and_dies_ends_the_training_with_its_name(taught, monkeypatch):
    """Killed from outside, it is missed within a second; no step waits for rollouts that do not come."""
    from proofmill.engines.rollout_servers.samplers import ProcessSampler

    start = ProcessSampler.start

    def dying(self, tell):
        start(self, tell)
        self._process.kill()

    monkeypatch.setattr(ProcessSampler, "start", dying)
    with pytest.raises(ServiceError, match=r"the process that samples has ended \(exit -9\)"):
        mill(taught, "grpo/orphan").make("grpo/orphan")


def test_weights_that_do_not_arrive_as_sent_stop_the_training(taught, monkeypatch):
    """If the process that samples gets other weights, the first step stops with both log-probabilities and the prompt."""
    from proofmill.engines.rollout_servers.samplers import ProcessSampler

    send = ProcessSampler.send_weights

    def send_wrongly(self, weights):
        send(self, ((name, -weight if "o_proj" in name else weight) for name, weight in weights))

    monkeypatch.setattr(ProcessSampler, "send_weights", send_wrongly)
    said = r"have a mean log-probability of -[\d.]+, and of -[\d.]+ by the trained weights .*prompt: `.+`.; expected at most"
    with pytest.raises(ServiceError, match=said):
        mill(taught, "grpo/garbled").make("grpo/garbled")


def test_engine_that_cannot_sample_during_the_training_is_refused(taught):
    """vLLM in the same process samples or learns; the message says what can do both."""
    with pytest.raises(SettingError, match="expected an engine that samples next to the training"):
        mill(taught, "grpo/beside").make("grpo/beside", engine="vllm")


@pytest.mark.long
def test_adapter_learns_ahead_and_is_merged(taught):
    """With staleness an adapter is trained too: the process that samples gets the merged weights, which are what is saved."""
    table = mill(taught, "grpo/thin", lora={"rank": 4, "alpha": 8}, steps=3).make("grpo/thin")
    assert (table.folder / "adapter/adapter_config.json").exists()
    measured = {(row["step"], row["metric"]): row["value"] for row in table.rows()}
    assert measured[1, "ratio/max"] == pytest.approx(1, abs=1e-4) and measured[3, "staleness/max"] >= 1
    before, after = (AutoModelForCausalLM.from_pretrained(t.weights()) for t in (taught.table("sft/taught"), table))
    assert any(not torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))


# ------------------------------------------------------------------------------------------------------------- after a kill


@pytest.mark.long
def test_killed_training_goes_on_with_what_was_sampled(taught, tmp_path, monkeypatch):
    """A run that dies in its fourth step: the next one learns all steps, from attempts of the first run too, and samples no
    problem that was sampled already."""
    monkeypatch.setenv("PROOFMILL_SAVE_STEPS", "2")
    shutil.copytree(taught.results, tmp_path / "results")
    made = Mill(tmp_path / "results", **SMALL, **{"sft/taught": TAUGHT, "grpo/lagged": {**LAGGED, "steps": 8}})
    making, kept = trainer_module.AsyncGrpoTrainer._make, {}

    def dying(self, groups, count):
        if self.state.global_step == 3:
            folder = made.results.glob("unfinished/grpo/*/**/attempts.jsonl")
            kept.update({(line["group"], line["place"]): line for line in _lines(next(folder)) if "ids" in line})
            raise ConnectionError("as if it were killed")
        return making(self, groups, count)

    with monkeypatch.context() as patched, pytest.raises(ConnectionError):
        patched.setattr(trainer_module.AsyncGrpoTrainer, "_make", dying)
        made.make("grpo/lagged")
    step, later = Worker.step, []
    monkeypatch.setattr(Worker, "step", lambda self: later.append(step(self)) or later[-1])
    rollouts = rollouts_of(made.make("grpo/lagged"))
    assert rollouts["step"].unique().sort().to_list() == list(range(1, 9))
    assert rollouts.height == rollouts["rollout"].n_unique() == 8 * 3 * 4 and rollouts["problem"].n_unique() == 24
    ages = rollouts["step"] - 1 - rollouts["policy_step"]
    assert ages.max() <= 2 and ages.min() >= -2
    again = [attempt for groups in later for group in groups for attempt in group.attempts.values()]
    taken_up = [a for a in again if (line := kept.get((a.group, a.place))) and line["policy_step"] == a.policy_step]
    assert len(taken_up) >= 3 * 4  # at least the step that died


@pytest.mark.long
def test_training_killed_within_a_block_resumes_at_its_start(taught, tmp_path, monkeypatch):
    """It dies in step 7, the third of its block: steps 5 to 8 train again on one rollout batch, with the reference of step 4."""
    monkeypatch.setenv("PROOFMILL_SAVE_STEPS", "1")  # every block: no other step can have a checkpoint
    shutil.copytree(taught.results, tmp_path / "results")
    fields = {**LAGGED, "mini-batches": 2, "iterations": 2, "steps": 12, "kl": 1e-6, "reference-sync-steps": 4}
    made = Mill(tmp_path / "results", **SMALL, **{"sft/taught": TAUGHT, "grpo/lagged": fields})
    training_step = trainer_module.AsyncGrpoTrainer.training_step

    def dying(self, *args, **options):
        if self.state.global_step == 6:
            raise ConnectionError("as if it were killed")
        return training_step(self, *args, **options)

    with monkeypatch.context() as patched, pytest.raises(ConnectionError):
        patched.setattr(trainer_module.AsyncGrpoTrainer, "training_step", dying)
        made.make("grpo/lagged")
    folders = [path.name for path in made.results.glob("unfinished/grpo/*/**/checkpoint-*")]
    assert folders == ["checkpoint-4"]
    table = made.make("grpo/lagged")
    rollouts = rollouts_of(table)
    assert rollouts.group_by("step").len().sort("step").rows() == [(step, 2 * 3 * 4) for step in (1, 5, 9)]
    assert rollouts["rollout"].n_unique() == rollouts.height
    ages = rollouts["step"] - 1 - rollouts["policy_step"]
    assert ages.max() <= 2 and ages.min() >= -2
    kl = {row["step"]: row["value"] for row in table.rows() if row["metric"] == "kl"}
    assert [step for step, value in sorted(kl.items()) if value < 1e-9] == [1, 5, 9] and len(kl) == 12


def _lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines() if line.endswith(b"}")]


def attempt(group, place, policy_step=0, tokens=3):
    return SampledRollout(group, place, policy_step, np.arange(tokens, dtype="i4"), -np.ones(tokens, "f4"))


def test_attempts_of_unlearned_groups_outlive_a_kill(tmp_path):
    """Attempts come back with their tokens and probabilities, but for those of a line that the kill truncated."""
    first = RolloutQueue(tmp_path, after=0, max_staleness=2)
    for group in range(4):
        for place in range(2):
            first.add(attempt(group, place, policy_step=group))
    first.learn(1, [0, 2])
    first.learn(2, [1])
    with open(tmp_path / ATTEMPTS, "ab") as file:
        file.write(b'{"group": 9, "place": 0, "pol')
    after_one = RolloutQueue(tmp_path, after=1, max_staleness=2)
    assert {group: sorted(found) for group, found in after_one.waiting.items()} == {1: [0, 1], 3: [0, 1]}
    assert after_one.waiting[3][1].ids_T.tolist() == [0, 1, 2] and after_one.waiting[3][1].policy_step == 3
    numbers = after_one.groups
    assert [next(numbers) for _ in range(4)] == [1, 3, 4, 5]


def test_attempts_are_forgotten_when_no_kill_can_undo_their_step(tmp_path):
    """Rollouts trained on before a checkpoint leave the file, later ones stay, and a restart from it knows both."""
    attempts = RolloutQueue(tmp_path, after=0, max_staleness=2)
    for group in range(4):
        attempts.add(attempt(group, 0))
    attempts.learn(1, [0])
    attempts.learn(2, [1])
    before = (tmp_path / ATTEMPTS).stat().st_size
    attempts.forget(1)
    assert (tmp_path / ATTEMPTS).stat().st_size < before
    for after, waiting in ((1, {1, 2, 3}), (2, {2, 3})):
        copy = tmp_path / f"after{after}"
        copy.mkdir()
        shutil.copy(tmp_path / ATTEMPTS, copy)
        assert set(RolloutQueue(copy, after=after, max_staleness=2).waiting) == waiting
    assert set(RolloutQueue(tmp_path, after=0, max_staleness=2).waiting) == {
        1,
        2,
        3,
    }  # without a checkpoint they are not learned


def test_attempts_of_lost_weights_are_kept_within_max_staleness(tmp_path):
    """Those that are too far from the step that is resumed from do not come back when the training gets there."""
    first = RolloutQueue(tmp_path, after=0, max_staleness=2)
    for step in range(6):
        first.add(attempt(step, 0, step))
    assert set(RolloutQueue(tmp_path, after=0, max_staleness=2).waiting) == {0, 1, 2}
    assert set(RolloutQueue(tmp_path, after=3, max_staleness=2).waiting) == {1, 2}  # 3 and more were forgotten


def test_attempt_that_no_run_has_sampled_brings_the_training_on(tmp_path):
    """One that was sampled before and is sampled again does not: a job that does so alone has kept nothing."""
    for places, brings_on in (((0, 1), True), ((0, 1), False), ((1, 2), True)):
        advanced = threading.Event()
        attempts = RolloutQueue(tmp_path, 0, 2, advanced)
        assert not advanced.is_set()
        for place in places:
            attempts.add(attempt(0, place))
        assert advanced.is_set() is brings_on
