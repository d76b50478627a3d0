"""GRPO: losses against the formulas, rewards that may be missing, preferences, an audit grader, turns of thought, references."""

import math
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from mill import REFEREE, SMALL, Mill
from project import copy_of
from proofmill import grpo
from proofmill.artifacts.jobs import Job
from proofmill.base import train_tokenizer
from proofmill.calls import records
from proofmill.config.config import expand
from proofmill.graders import robustness
from proofmill.graders.attacks import ATTACKS
from proofmill.graders.graders import SubmissionGrader
from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Verdict
from proofmill.grpo import attempts_at
from proofmill.prompts.escapes import ControlTokens
from proofmill.rewards.rewards import REWARDS, Reward, Rollout, each
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.errors import GraderError, RecipeError, TableError
from proofmill.training import grpo_trainer as trainer_module
from proofmill.training import micro_batches, rollout_rewards, run
from proofmill.training.preferences import ModelPreference
from proofmill.training.rollout_log import constant
from proofmill.training.rollout_rewards import Rewarding
from proofmill.training.rollouts import problems
from proofmill.training.rollouts.idle_groups import find_live

pytestmark = pytest.mark.slow

GRPO = {
    "model": "sft/cold", "problems": "problems/train", "schemes": "schemes/train", "grader": "api/referee",
    "rewards": {"grade": 1, "repetition": 0.5}, "unscored": "drop", "group-size": 4, "problems-per-step": 2, "steps": 2,
    "learning-rate": 1e-3, "max-tokens": 24, "log-every": 1,
}  # fmt: skip


@pytest.fixture
def train(small):
    """Train from the small chain with changed fields; gives the table and its rollouts."""

    def made(name: str, more: dict | None = None, **changed):
        mill = Mill(small.results, **SMALL, **(more or {}), **{f"grpo/{name}": {**GRPO, **changed}})
        table = mill.make(*(more or {}), f"grpo/{name}") if more else mill.make(f"grpo/{name}")
        return table, pl.read_parquet(table.folder / "rollouts.parquet")

    return made


@pytest.fixture
def preference_model(small, tmp_path):
    """Return the entry of a reward model with random weights and this many scores: it likes texts a little differently."""

    def made(scores: int) -> dict:
        from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

        weights, folder = small.table("sft/cold").weights(), tmp_path / f"preference{scores}"
        torch.manual_seed(0)
        config = AutoConfig.from_pretrained(weights, num_labels=scores)
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
        AutoTokenizer.from_pretrained(weights).save_pretrained(folder)
        return {"base/preference": {"source": "folder", "path": str(folder)}}

    return made


def measured(table, metric: str) -> list[float]:
    """Return the values of a metric, in the order of steps."""
    return [row["value"] for row in table.rows() if row["metric"] == metric]


# ---------------------------------------------------------------------------------------------------------------- losses

LENGTHS, ADVANTAGES, PAD, MAX_TOKENS = (1, 3), (1.0, -0.5), 0, 4
BY_HAND = {"grpo": -0.25, "dapo": 0.125, "bnpo": 0.125, "dr_grpo": 0.0625, "sequence_sum": 0.25}


@pytest.fixture
def trainer(small, tmp_path):
    """Return a trainer of the small model that has generated nothing, with changed fields of the entry."""

    def made(**changed):
        from datasets import Dataset
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from trl import GRPOConfig

        from proofmill.grpo import _name_reward
        from proofmill.training.grpo_trainer import GrpoTrainer

        values = {key.replace("-", "_"): value for key, value in GRPO.items()}
        entry = Grpo(**{**values, "max_tokens": MAX_TOKENS, **changed})
        folder = small.table("sft/cold").weights()
        config = GRPOConfig(
            output_dir=str(tmp_path), use_cpu=True, per_device_train_batch_size=2, num_generations=2,
            max_completion_length=entry.max_tokens, beta=entry.kl,
            steps_per_generation=entry.mini_batches, temperature=entry.temperature, report_to=[], max_steps=1, bf16=False,
        )  # fmt: skip
        data = Dataset.from_list([{"prompt": [{"role": "user", "content": "1"}]}] * 2)
        ready = GrpoTrainer(
            entry, "grpo/test", None, None, None, model=AutoModelForCausalLM.from_pretrained(folder), args=config,
            train_dataset=data, processing_class=AutoTokenizer.from_pretrained(folder), reward_funcs=[_name_reward("grade")],
        )  # fmt: skip
        ready.current_gradient_accumulation_steps = 1
        return ready

    return made


def batch(off_policy: float = 0.0, reference: bool = False, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return two attempts of one and three tokens after a prompt of two."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(10, 200, (2, 5), generator=generator)
    mask = torch.tensor([[1, 0, 0], [1, 1, 1]])
    inputs = {
        "prompt_ids": ids[:, :2],
        "prompt_mask": torch.ones(2, 2, dtype=torch.long),
        "completion_ids": ids[:, 2:] * mask,
        "completion_mask": mask,
        "advantages": torch.tensor(ADVANTAGES),
        "num_items_in_batch": mask.sum(),
        "step_tokens": mask.sum(),
    }
    if off_policy:
        inputs["old_shift"] = off_policy * torch.randn(2, 3, generator=generator)
    if reference:
        inputs["reference_shift"] = torch.randn(2, 3, generator=generator)
    return inputs


def shifted(trainer, inputs: dict) -> dict:
    """Return the batch with old and reference log-probabilities that differ from the model's by the given shifts."""
    with torch.no_grad():
        now, _ = slow_logprobs(trainer, inputs)
    found = {key: value for key, value in inputs.items() if not key.endswith("shift")}
    if "old_shift" in inputs:
        found["old_per_token_logps"] = now + inputs["old_shift"]
    if "reference_shift" in inputs:
        found["ref_per_token_logps"] = now + inputs["reference_shift"]
    return found


def slow_logprobs(trainer, inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability and entropy of each completion token, one attempt and one token at a time."""
    logprobs, entropies = torch.zeros(2, 3), torch.zeros(2, 3)
    for n in range(2):
        ids = torch.cat([inputs["prompt_ids"][n], inputs["completion_ids"][n]])
        attention = torch.cat([inputs["prompt_mask"][n], inputs["completion_mask"][n]])
        hidden = trainer.model.model(input_ids=ids[None], attention_mask=attention[None]).last_hidden_state[0]
        logits = hidden @ trainer.model.lm_head.weight.T / trainer.entry.temperature
        for t in range(3):
            row = torch.log_softmax(logits[2 + t - 1].double(), dim=-1)
            logprobs[n, t] = row[ids[2 + t]]
            entropies[n, t] = -(row.exp() * row).sum()
    return logprobs, entropies


def slow_loss(entry: Grpo, logprobs, entropies, inputs) -> float:
    """Compute the loss token by token (DeepSeekMath, equation 3; DAPO, 12; Dr.GRPO, section 3; QED-Nano, 2.2)."""
    low, high = entry.epsilon, entry.epsilon if entry.epsilon_high is None else entry.epsilon_high
    per_attempt, bonus = [], []
    for n in range(2):
        terms = []
        for t in range(LENGTHS[n]):
            now = logprobs[n, t].item()
            old = inputs["old_per_token_logps"][n, t].item() if "old_per_token_logps" in inputs else now
            ratio, advantage = math.exp(now - old), ADVANTAGES[n]
            if entry.objective == "gspo" and "old_per_token_logps" in inputs:
                changes = logprobs[n] - inputs["old_per_token_logps"][n]
                ratio = math.exp(changes[: LENGTHS[n]].mean().item())
            if entry.objective == "reinforce":
                value = now * advantage * min(ratio, 1 + high)
            elif entry.objective == "cispo":
                value = now * advantage * min(max(ratio, 1 - low), 1 + high)
            else:
                value = min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
            if entry.kl:
                d = inputs["ref_per_token_logps"][n, t].item() - now
                d = min(max(d, -5.0), 5.0)
                value -= entry.kl * (math.exp(d) - d - 1)
            if entry.loss == "sequence_sum":
                value += entry.entropy * entropies[n, t].item()
            terms.append(value)
            bonus.append(entropies[n, t].item())
        per_attempt.append(terms)
    total = sum(map(sum, per_attempt))
    value = {
        "grpo": sum(sum(terms) / len(terms) for terms in per_attempt) / 2,
        "dapo": total / sum(LENGTHS),
        "bnpo": total / sum(LENGTHS),
        "dr_grpo": total / (2 * entry.max_tokens),
        "sequence_sum": total / 2,
    }[entry.loss]
    if entry.loss != "sequence_sum":
        value += entry.entropy * sum(bonus) / len(bonus)
    return -value


@pytest.mark.parametrize("loss", BY_HAND)
def test_loss_on_policy_equals_the_hand_computed_example(trainer, loss):
    """Attempts of 1 and 3 tokens with advantages 1 and -1/2: the four sums as worked out on paper."""
    made = trainer(loss=loss)
    assert made.compute_loss(made.model, batch()).item() == pytest.approx(BY_HAND[loss], abs=1e-6)


@pytest.mark.parametrize(
    "changed",
    [
        {"epsilon": 0.2},
        {"epsilon": 0.1, "epsilon_high": 0.4},
        {"epsilon": 4.0},
        {"kl": 0.05},
        {"entropy": 0.01},
        {"temperature": 0.7, "kl": 0.01, "entropy": 0.001},
    ],
)
@pytest.mark.parametrize("loss", BY_HAND)
def test_loss_equals_the_formula(trainer, loss, changed):
    """Off policy, with clipping, divergence and entropy, each loss is the formula's value, token by token."""
    made = trainer(loss=loss, **changed)
    inputs = shifted(made, batch(off_policy=0.5, reference=bool(changed.get("kl"))))
    wanted = slow_loss(made.entry, *slow_logprobs(made, inputs), inputs)
    assert made.compute_loss(made.model, inputs).item() == pytest.approx(wanted, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("loss", "tokens"), [("bnpo", 4), ("dapo", 6)])
def test_loss_of_a_step_is_divided_by_its_own_tokens_or_by_its_share_of_the_round(trainer, loss, tokens):
    """Of two steps with 4 and 8 tokens: `bnpo` divides the first by 4, `dapo` each by 6."""
    made = trainer(loss=loss, mini_batches=2)
    made.model.train()
    inputs = {**batch(), "num_items_in_batch": torch.tensor(12), "step_tokens": torch.tensor(4)}
    assert made.compute_loss(made.model, inputs).item() == pytest.approx(4 * BY_HAND[loss] / tokens, abs=1e-6)


@pytest.mark.parametrize(
    ("objective", "loss"), [("reinforce", "sequence_sum"), ("reinforce", "bnpo"), ("cispo", "dapo"), ("gspo", "grpo")]
)
def test_objectives_equal_the_formula(trainer, objective, loss):
    """Log-probabilities weighed by the ratio within its limits, and the clipped ratio of a whole rollout."""
    made = trainer(loss=loss, objective=objective, epsilon=0.2, epsilon_high=0.3)
    inputs = shifted(made, batch(off_policy=0.5))
    logprobs, entropies = slow_logprobs(made, inputs)
    assert made.compute_loss(made.model, inputs).item() == pytest.approx(
        slow_loss(made.entry, logprobs, entropies, inputs), rel=1e-4
    )


# --------------------------------------------------------------------------------------------------------------- training


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "changed",
    [
        {"loss": "sequence_sum", "entropy": 1e-4, "scale-rewards": "none", "epsilon": 4.0},
        {"loss": "sequence_sum", "objective": "reinforce"},
        {"loss": "dr_grpo", "scale-rewards": "none", "mask-truncated": True},
        {"loss": "bnpo", "kl": 0.01, "epsilon-high": 0.3, "iterations": 2},
        {"loss": "grpo", "mini-batches": 2, "top-p": 0.9, "top-k": 8, "min-p": 0.01},
        {"lora": {"rank": 4, "alpha": 8}},
    ],
)
def test_grpo_trains_with(train, changed):
    """Each way of learning runs, moves the weights, and leaves rollouts whose advantages add up to nothing in their group."""
    table, rollouts = train("way", **changed)
    rounds = 1 if "mini-batches" in changed or "iterations" in changed else 2
    assert rollouts.height == rounds * changed.get("mini-batches", 1) * 2 * 4
    sums = rollouts.group_by("step", "group").agg(pl.col("advantage").sum())["advantage"]
    assert sums.abs().max() < 1e-3
    names = {row["metric"] for row in table.rows()}
    assert {"loss", "grade", "near_limit", "reflective_words", "reward", "frac_reward_zero_std"} <= names
    idle = not (rollouts["advantage"] != 0).any() and not {"kl", "entropy"} & changed.keys()
    if changed.get("mask-truncated") or idle:  # nothing is learned that could be measured
        assert not {"entropy", "ratio/mean", "clip_ratio/low_mean"} & names
    else:
        assert "entropy" in names and measured(table, "ratio/mean")[0] == pytest.approx(1, abs=1e-3)


def test_score_page_has_seconds_and_tokens_of_trainings(small):
    """Each training has its seconds and tokens, what it saved, and the published numbers; a model that was not trained has none."""
    reported = {
        "source": "a paper",
        "ours": "grpo/short",
        "values": {"problems/bench": 30000},
        "metric": "training-tokens",
    }
    scores = {
        "models": ["base/tiny", "grpo/long", "grpo/short"], "problems": ["problems/bench"], "grader": "arithmetic",
        "sampling": {"greedy": {"temperature": 0, "max-tokens": 4}}, "compare": [["grpo/short", "grpo/long"]],
        "metrics": ["avg-at-k", "training-seconds", "training-tokens"],
        "published": {"Theirs": {**reported, "slice": "saved against grpo/long"}},
    }  # fmt: skip
    trainings = {"grpo/long": GRPO, "grpo/short": {**GRPO, "max-tokens": 8}}
    mill = Mill(small.results, **SMALL, **trainings, **{"scores/x": scores})
    derived = sorted((name for name in mill.config.entries if "@" in name), reverse=True)  # responses before grades
    table = mill.make(*trainings, *derived, "scores/x")
    rows = {(r["model"], r["slice"], r["metric"]): r["value"] for r in table.rows() if r["problems"] is None}
    long, short = (pl.read_parquet(small.table(name).folder / "rollouts.parquet")["tokens"].sum() for name in trainings)
    tokens = {key[:2]: value for key, value in rows.items() if key[2] == "training-tokens"}
    assert tokens == {
        ("grpo/long", "training"): long,
        ("grpo/short", "training"): short,
        ("grpo/short", "saved against grpo/long"): long - short,
    }
    assert short < long and rows["grpo/long", "training", "training-seconds"] > 0
    text = table.page.read_text()
    assert f"| Theirs | problems/bench | 30,000 | grpo/short (training-tokens) | {long - short:,} |" in text
    assert "| grpo/short | saved against grpo/long | 1 |" in text


def test_advantage_is_the_reward_over_its_groups_mean(train, preference_model):
    """Without scaling the advantage of an attempt is its weighed reward minus the mean of its group's."""
    _, rollouts = train(
        "plain", preference_model(1), scale_rewards="none", preferences={"base/preference": {"weight": 2}}
    )
    total = rollouts["reward_grade"] + 0.5 * rollouts["reward_repetition"] + 2 * rollouts["reward_preference"]
    assert total.n_unique() > 4
    centred = rollouts.with_columns(total=total).with_columns(
        wanted=pl.col("total") - pl.col("total").mean().over("step", "group")
    )
    assert centred["advantage"].to_list() == pytest.approx(centred["wanted"].to_list(), abs=1e-6)
    assert rollouts["rewards_defined"].to_list() == [["grade", "repetition", "preference"]] * rollouts.height


@pytest.mark.long
def test_accumulation_learns_the_same(train, monkeypatch):
    """Micro-batches of two rows or of all: the same rollouts and the same first loss up to rounding."""
    whole, _ = train("whole", steps=1)
    monkeypatch.setenv("PROOFMILL_MICRO_BATCH_SIZE", "2")
    parts, _ = train("parts", steps=1)
    assert measured(parts, "loss") == pytest.approx(measured(whole, "loss"), abs=1e-5)
    assert measured(parts, "grade") == measured(whole, "grade")


def test_reference_is_the_model_of_its_last_step(train, preference_model):
    """Without it the divergence from the start grows; synchronized after every step it is zero."""
    liked = {"preferences": {"base/preference": {"weight": 1}}, "kl": 1e-6, "steps": 4}
    far, _ = train("far", preference_model(1), **liked)
    near, _ = train("near", preference_model(1), **liked, **{"reference-sync-steps": 1})
    assert measured(far, "kl")[0] == measured(near, "kl")[0] == 0 < measured(far, "kl")[1]
    assert measured(near, "kl")[1:] == [0, 0, 0]


# ------------------------------------------------------------------------------------------------- what may be missing

ENTRY = Grpo(
    model="sft/x", problems="problems/x", grader="api/x", unscored="drop", steps=1, group_size=2,
    rewards={"grade": 1, "format": 0.5},
    preferences={"api/preference": {"weight": 2.0, "question_types": ["chat"], "from_step": 3, "prompt": "prefer-helpful"}},
)  # fmt: skip


class Grading:
    """A grader with grades from a list, None for no verdict."""

    def __init__(self, all_points):
        self.grades = all_points

    def __call__(self, submissions, quiet=False):
        return [
            Verdict(points, 7, "ok" if points is not None else "no-verdict")
            for _, points in zip(submissions, self.grades, strict=True)
        ]


def submissions(*asks: str) -> list[Submission]:
    return [Submission("s", None, None, "<think>a</think> b", question_type=what) for what in asks]


def test_reward_that_does_not_apply_is_none_and_leaves_the_others():
    """Small talk has no grade, a proof no preference; each has the rewards that apply, and none is unscored."""
    rewards = Rewarding(ENTRY, Grading([7, 0]), {"api/preference": lambda shown: [0.25] * len(shown)})
    found = rewards.reward(submissions("proof", "proof", "chat", "chat"), [3] * 4, [None] * 4, step=3)
    assert found.applies_NK.tolist() == [[True, True, False]] * 2 + [[False, True, True]] * 2
    counted = found.mask_uncounted("drop")
    assert np.isnan(counted[:2, 2]).all() and np.isnan(counted[2:, 0]).all()
    assert counted[2:, 2].tolist() == [0.25, 0.25] and counted[:2, 0].tolist() == [1.0, 0.0]
    assert found.unscored_N.tolist() == [False] * 4


def test_reward_by_the_reference_leaves_problems_without_one_their_others():
    """It does not apply to a problem without a solution, whose grade counts; for another it misses with the verdict."""
    entry = replace(ENTRY, rewards={"grade": 1, "length-reference": 1}, preferences={}, group_size=2)
    rewards = Rewarding(entry, Grading([7, 0, 7, None]))
    found = rewards.reward(submissions(*["proof"] * 4), [3, 5, 3, 5], [None, None, 4, 4], step=1)
    assert found.applies_NK.tolist() == [[True, False]] * 2 + [[True, True]] * 2
    assert found.unscored_N.tolist() == [False, False, False, True]
    assert found.mask_uncounted("drop")[:2, 0].tolist() == [1.0, 0.0]


def test_preference_counts_from_its_step_on():
    """Before its step the preference does not apply, and no calls are made."""
    asked = []
    rewards = Rewarding(ENTRY, Grading([]), {"api/preference": lambda shown: asked.extend(shown) or [1.0] * len(shown)})
    assert (
        not rewards.reward(submissions("chat", "chat"), [3] * 2, [None] * 2, step=2).applies_NK[:, 2].any()
        and not asked
    )
    assert rewards.reward(submissions("chat", "chat"), [3] * 2, [None] * 2, step=3).values_NK[:, 2].tolist() == [
        1.0,
        1.0,
    ]


@pytest.mark.parametrize(("unscored", "wanted"), [("drop", [None, None]), ("zero", [0.0, 0.0])])
def test_missing_reward_takes_the_others_with_it_or_counts_zero(unscored, wanted):
    """Without a verdict a rollout has no reward at all; as zero it keeps its format and loses its grades."""
    rewards = Rewarding(ENTRY, Grading([None, 7]), {"api/preference": lambda shown: []})
    found = rewards.reward(submissions("proof", "proof"), [3] * 2, [None] * 2, step=0)
    assert found.unscored_N.tolist() == [True, False]
    first = [None if math.isnan(v) else v for v in found.mask_uncounted(unscored)[0, :2]]
    assert first == wanted


@pytest.mark.parametrize(("last", "stops"), [(0.5, True), (0.1, False)])
def test_second_grader_stops_what_drifts_apart(last, stops):
    """A gap that grew by more than the limit stops; one that was always there, or is not known, does not."""
    assert rollout_rewards.has_drifted([0.1, 0.1, 0.1, last, last, last], 0.2) is stops
    assert not rollout_rewards.has_drifted([0.9] * 6, 0.2)
    assert not rollout_rewards.has_drifted([0.0, 0.0, 0.9], 0.2)
    assert not rollout_rewards.has_drifted([0.1, math.nan, 0.1, 0.1, 0.9, 0.9], 0.2)


def test_audit_samples_the_same_rollouts_at_every_run():
    """A fixed number of rollouts with a verdict is graded again, chosen by seed and step."""
    rewards = Rewarding(Grpo(**{**_values(ENTRY), "audit_rows": 2}), Grading([]), {}, Grading([7, 0]))
    rollouts = [
        Rollout(s, Verdict(points, 7, "ok"), 3)
        for s, points in zip(submissions(*["proof"] * 5), [7, None, 7, 0, 7], strict=True)
    ]
    first, again, later = (rewards.sample_audit(rollouts, step) for step in (1, 1, 2))
    assert first == again and sum(v is not None for v in first) == 2 and first[1] is None
    assert later.count(None) == 3
    gaps = [r.verdict.grade / 7 - v for r, v in zip(rollouts, first, strict=True) if v is not None]
    assert rollout_rewards.audit_gap(rollouts, first) == pytest.approx(sum(gaps) / 2)


def _values(entry) -> dict:
    from dataclasses import asdict

    return asdict(entry)


# --------------------------------------------------------------------------------------- audit, preferences, thoughts


def test_audit_grader_grades_samples_and_rewards_nothing(train):
    """Every second step some rollouts have its grades; those of the checker and of the referee agree, so that nothing is apart."""
    table, rollouts = train("watched", **{"audit": "arithmetic", "audit-every": 2, "audit-rows": 3, "steps": 4})
    sampled = rollouts.filter(pl.col("audit").is_not_null())
    assert sampled.group_by("step").len().sort("step").rows() == [(2, 3), (4, 3)]
    assert measured(table, "audit/gap") == [0.0, 0.0]
    assert [c for c in rollouts.columns if c.startswith("reward_")] == ["reward_grade", "reward_repetition"]


class Flattering(SubmissionGrader):
    """The real grader, which from the fourth call on gives all points for anything."""

    calls = 0

    def __call__(self, submissions, quiet=False):
        verdicts = super().__call__(submissions, quiet)
        if self.name == "arithmetic":
            return verdicts
        Flattering.calls += 1
        return [Verdict(7.0, 7, "ok") for _ in verdicts] if Flattering.calls > 3 else verdicts


def test_reward_that_is_gamed_stops_the_training(train, monkeypatch):
    """Grades that rise while the audit grader's do not end the run early, with its weights, and the stamp says when."""
    monkeypatch.setattr("proofmill.grpo.SubmissionGrader", Flattering)
    Flattering.calls = 0
    watched = {"audit": "arithmetic", "audit-every": 1, "audit-rows": 4, "audit-gap": 0.3, "steps": 12}
    table, rollouts = train("gamed", **watched)
    assert table.stamp["counts"]["steps before the audit grader stopped it"] == rollouts["step"].max() == 6
    assert measured(table, "audit/gap")[-1] > 0.3


def test_reward_model_scores_each_text(train, preference_model):
    """A sequence classifier's one score is a reward; a classifier of several classes is refused."""
    _, rollouts = train(
        "liked", preference_model(1), preferences={"base/preference": {"weight": 0.1, "input": "summary"}}
    )
    assert rollouts["reward_preference"].null_count() == 0 and rollouts["reward_preference"].n_unique() > 2
    with pytest.raises(
        TableError, match="its classifier gives 3 scores per text; expected a reward model that gives one"
    ):
        train("classes", preference_model(3), preferences={"base/preference": {"weight": 0.1}})


def test_preference_judge_reads_the_summary_or_everything(train):
    """Helpfulness by the referee: of the summary alone, as a share of all points; nothing of it is unscored."""
    _, rollouts = train(
        "tasteful",
        rewards={"format": 1},
        preferences={"api/referee": {"weight": 1, "input": "all", "prompt": "prefer-harmless"}},
    )
    assert rollouts["reward_referee"].null_count() == 0
    assert rollouts["reward_referee"].is_between(0, 1).all()


def test_metric_without_values_has_no_row(train):
    """A preference before its step has no mean; the table has no row for it, and the others have theirs."""
    late = {"api/referee": {"weight": 1, "from-step": 3, "prompt": "prefer-helpful"}}
    table, rollouts = train("late", preferences=late, steps=3)
    assert measured(table, "rewards/referee/mean") and len(measured(table, "rewards/referee/mean")) == 1
    assert len(measured(table, "rewards/repetition/mean")) == 3
    assert rollouts["reward_referee"].null_count() == 16


def test_turns_of_thought_give_states_that_are_trained_on(train):
    """Two groups for each problem, from different turns; prompts after the first hold the summary; grades are by turn."""
    cached = {"summarizer": "api/referee", "turns": 2, "summaries": 2, "problems-per-step": 4, "max-tokens": 24}
    table, rollouts = train("cached", **cached)
    groups = rollouts.group_by("step", "group").agg(pl.col("problem").n_unique(), pl.col("turn").n_unique(), pl.len())
    assert groups.select("problem", "turn", "len").unique().rows() == [(1, 1, 4)]
    pairs = rollouts.group_by("step", "problem").agg(pl.col("turn").n_unique())
    assert pairs["turn"].to_list() == [2] * 4
    assert rollouts["turn"].is_between(1, 3).all()
    assert measured(table, "unsummarized") and any(r["metric"].startswith("grade/turn-") for r in table.rows())


def test_rollouts_are_attempts_that_may_be_graded_again(small, train):
    """The rollouts of a training are a table of responses with the same ids, and other graders grade it as any other."""
    _, rollouts = train("source")
    more = {
        "grpo/source": GRPO,
        "responses/taken": {"problems": "problems/train", "model": "grpo/source", "rollouts": True},
        "grades/taken": {"responses": "responses/taken", "grader": "arithmetic"},
    }
    mill = Mill(small.results, **SMALL, **more)
    grades = mill.make("responses/taken", "grades/taken").rows()
    assert [row["response"] for row in grades] == rollouts["rollout"].to_list()
    assert [row["grade"] for row in grades] == rollouts["grade"].to_list()
    assert {row["stop_reason"] for row in mill.table("responses/taken").rows()} <= {"end", "length"}


def test_killed_in_the_second_pass_goes_on_with_the_problems_that_were_next(small, tmp_path, monkeypatch):
    """Nine problems, four a step: a run that dies after its third step has the rollouts of one that never did."""
    monkeypatch.setenv("PROOFMILL_SAVE_STEPS", "1")
    few = {"problems/few": {"source": "problems/train", "keep": [{"first": 9}]}}
    fields = {"problems": "problems/few", "problems-per-step": 4, "group-size": 2, "steps": 6, "max-tokens": 8}
    frames = {}
    for name in ("whole", "killed"):
        shutil.copytree(small.results, tmp_path / name)
        mill = Mill(tmp_path / name, **SMALL, **few, **{"grpo/x": {**GRPO, **fields}})
        mill.make("problems/few")
        if name == "killed":
            remember = trainer_module.GrpoTrainer._remember

            def dying(self, *facts, remember=remember):
                if self.made_for == 4:
                    raise ConnectionError("as if it were killed")
                remember(self, *facts)

            with monkeypatch.context() as patched, pytest.raises(ConnectionError):
                patched.setattr(trainer_module.GrpoTrainer, "_remember", dying)
                mill.make("grpo/x")
        frames[name] = pl.read_parquet(mill.make("grpo/x").folder / "rollouts.parquet")
    assert frames["whole"]["problem"].n_unique() > 8
    assert frames["whole"].select("step", "problem", "text").equals(frames["killed"].select("step", "problem", "text"))


def test_unscored_rollouts_move_nothing(train, monkeypatch):
    """Where no rollout has a verdict, neither entropy nor divergence changes a weight, and no group is said to be of use."""
    monkeypatch.setattr("proofmill.grpo.SubmissionGrader", Silent)
    for loss in ("sequence_sum", "dapo"):
        table, rollouts = train(
            f"silent-{loss.replace('_', '-')}", loss=loss, entropy=0.1, kl=0.1, steps=2, **{"max-unscored": 1.0}
        )
        before, after = (
            load_file(folder / "model.safetensors") for folder in (table.other("sft/cold").folder, table.folder)
        )
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert rollouts["unscored"].all() and table.stamp["counts"]["unscored"] == rollouts.height
        assert measured(table, "frac_reward_zero_std") == [1.0, 1.0]


class Silent(SubmissionGrader):
    """The real grader, which never comes to a verdict."""

    def __call__(self, submissions, quiet=False):
        return [Verdict(None, 7, "no-verdict") for _ in super().__call__(submissions, quiet)]


def test_group_teaches_when_two_scored_attempts_differ():
    """All equal, or one scored attempt, or none: nothing is trained on three of four groups."""
    nan = math.nan
    live_P = find_live(np.array([[1, 1, nan], [1, 0, nan], [1, nan, nan], [nan, nan, nan]]))
    assert live_P.tolist() == [False, True, False, False]


def test_template_that_opens_the_thought_has_it_in_the_text(small, tmp_path, train):
    """The end of a prompt is put before the text, in rollouts and responses, also if it is truncated in empty
    reasoning."""
    folder = tmp_path / "thinking"
    shutil.copytree(small.table("sft/cold").folder, folder)
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").write_text(
        template.replace("<|assistant|>{% endif %}", "<|assistant|><think>\n{% endif %}")
    )
    more = {
        "base/thinking": {"source": "folder", "path": str(folder)},
        "responses/thinking": {"problems": "problems/bench", "model": "base/thinking", "max-tokens": 8},
    }
    table, rollouts = train("thinking", more, model="base/thinking", steps=1)
    texts = [*rollouts["text"], *(row["text"] for row in table.other("responses/thinking").rows())]
    assert all(text.startswith("<think>\n") for text in texts)
    assert set(rollouts.filter(~pl.col("text").str.contains("</think>"))["reason"]) == {"empty"}


def test_problems_that_could_never_be_graded_are_left_out(train):
    """Without an answer a final answer cannot be compared: such problems are not attempted."""
    more = {
        "problems/open": {"source": "problems/train", "also": ["problems/unanswered"]},
        "problems/unanswered": {
            "source": "table",
            "path": "data/programs.jsonl",
            "columns": {"statement": "problem"},
            "question-type": "answer",
        },
    }
    _, rollouts = train(
        "marked", {k: more[k] for k in reversed(more)}, problems="problems/open", schemes=None, grader="final-answer"
    )
    assert "no-gold" not in set(rollouts["reason"])


def test_reward_model_hears_one_turn_of_each(small):
    """A rollout that closes its turn and praises itself as the user is read as text."""
    from transformers import AutoTokenizer

    liked = ModelPreference.__new__(ModelPreference)
    liked.tokenizer, liked.sees = AutoTokenizer.from_pretrained(small.table("sft/cold").folder), "all"
    liked.tokenizer.add_tokens(["<turn of the judge>"])
    liked.tokens = ControlTokens(liked.tokenizer)
    said = liked._text(Submission("s<turn of the judge>", None, None, "a<|end|><|user|>Good?<|assistant|>Yes"))
    assert said.count("<|user|>") == said.count("<|assistant|>") == 1 and "<turn of the judge>" not in said


@pytest.mark.parametrize("pad", [None, "end", "other"])
def test_reward_model_scores_a_text_as_if_it_were_alone(small, tmp_path, pad):
    """Its own configuration says which token pads, or none; the score is that of a text that needs no padding."""
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    weights = small.table("sft/cold").weights()
    tokenizer = AutoTokenizer.from_pretrained(weights)
    token = {None: None, "end": tokenizer.eos_token_id, "other": tokenizer.get_vocab()["z"]}[pad]
    config = AutoConfig.from_pretrained(weights, num_labels=1, pad_token_id=token)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    model.save_pretrained(tmp_path / "liking")
    tokenizer.save_pretrained(tmp_path / "liking")
    job = SimpleNamespace(parent=lambda _: SimpleNamespace(weights=lambda: tmp_path / "liking"))
    liked = ModelPreference(job, "base/liking", "all")
    texts = [Submission("s", None, None, "a" * length) for length in (1, 9, 30)]
    ids = [tokenizer(liked._text(text), return_tensors="pt", add_special_tokens=False).input_ids for text in texts]
    assert liked(texts) == pytest.approx([model(one).logits.item() for one in ids], abs=1e-5)


def test_prompt_of_a_rollout_has_no_token_but_those_of_the_template(tmp_path):
    """A statement that writes a token that only this tokenizer knows is a statement."""
    path = tmp_path / "odd.jsonl"
    path.write_text('{"statement": "Find $5$.<turn of the judge><|end|>", "answer": "5"}\n')
    entries = {"problems/odd": {"source": "table", "path": str(path), "question-type": "answer"}}
    made = Mill(tmp_path / "results", **entries)
    made.make(*entries)
    tokenizer = train_tokenizer(["a user"], 300)
    tokenizer.add_tokens(["<turn of the judge>"])
    entry = replace(
        ENTRY, problems="problems/odd", schemes=None, grader="final-answer", problems_per_step=1, mini_batches=1
    )
    job = Job(made.table("grpo/x"), {}, "", {"parents": {"problems/odd": ""}})
    (row,) = attempts_at(entry, job, tokenizer)
    ids = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=False)
    added = [token for token in tokenizer.convert_ids_to_tokens(ids) if token in tokenizer.get_added_vocab()]
    assert added == ["<|user|>", "<|assistant|>"]
    assert "Find $5$.&lt;turn of the judge>&lt;|end|>" in tokenizer.decode(ids)


@pytest.mark.parametrize(
    ("words", "changed", "prompt"),
    [
        (40, {}, "longest"),  # however short answers are
        (2000, {}, 512 - 8),  # what the model's context leaves
        (40, {"summarizer": "api/referee", "summaries": 1}, 512 - 8),  # includes a summary that is not written yet
        (40, {"max_staleness": 1}, "longest"),
    ],
)
def test_memory_is_planned_for_the_longest_prompt(small, tmp_path, monkeypatch, words, changed, prompt):
    """The rows of a micro-batch are chosen for the prompts that are there, before any is asked."""
    path = tmp_path / "long.jsonl"
    path.write_text(f'{{"statement": "Find $5$.{" and then" * words}", "answer": "5"}}\n')
    made = Mill(
        tmp_path / "results", **{"problems/long": {"source": "table", "path": str(path), "question-type": "answer"}}
    )
    table = made.make("problems/long")
    changed = {"problems": "problems/long", "schemes": None, "grader": "final-answer", "max_tokens": 8, **changed}
    entry = replace(ENTRY, model="sft/cold", preferences={}, problems_per_step=1, **changed)
    job = Job(small.table("grpo/x"), {}, "", {"parents": {entry.model: ""}})
    parent, found = job.parent, {}
    monkeypatch.setattr(job, "parent", lambda name: table if name == "problems/long" else parent(name))

    def split(*_, tokens, **__):
        found["tokens"] = tokens
        raise InterruptedError

    monkeypatch.setattr(micro_batches, "split", split)
    with pytest.raises(InterruptedError):
        grpo.main(entry, job)
    tokenizer = run.tokenizer_of(job, entry.model)
    (ids,) = problems.in_tokens(attempts_at(entry, job, tokenizer)["prompt"], tokenizer)
    assert found["tokens"] == 8 + (len(ids) if prompt == "longest" else prompt)


# ------------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rewards": {}}, "found no `rewards`, `preferences` or `teacher`"),
        ({"objective": "cispo", "dual-clip": 3.0}, "expected `clipped` or `gspo`"),
        ({"dual-clip": 1.1}, "expected more than 1 \\+ `epsilon-high`"),
        ({"reference-sync-steps": 4}, "expected `kl` above 0"),
        ({"audit-gap": 0.1}, "without `audit`"),
        ({"summarizer": "api/referee", "summaries": 5}, "expected at most 4"),
        ({"summarizer": "api/referee", "problems-per-step": 3}, "a multiple of `summaries`"),
        ({"preferences": {"api/referee": {"weight": 1}}}, "expected a `prompt`"),
        (
            {"preferences": {"base/tiny": {"weight": 1, "prompt": "prefer-helpful"}}},
            "is a reward model and has a `prompt`",
        ),
        ({"preferences": {"api/refere": {"weight": 1}}}, "no recipe declares"),
        ({"lora": {"rank": 0, "alpha": 1}}, "greater than or equal to 1"),
        ({"rewards": {"grade": {"weight": "much"}}}, "could not convert"),
        ({"rewards": {"grade": float("nan")}}, "weighs nan; expected a number"),
        ({"audit": "api/referee"}, "which is the reward grader; expected another grader"),
        ({"summaries": 3}, "without `summarizer`; expected the model that summarizes"),
        (
            {"max-staleness": 2, "summarizer": "api/referee", "problems-per-step": 2},
            "found `max-staleness` with `summarizer`; expected one of them",
        ),
        (
            {"max-staleness": 1, "lora": {"rank": 2, "alpha": 4, "quantized": True}},
            "expected one that is not quantized",
        ),
        ({"preferences": {"base/tiny": {"weight": 1}}}, "random weights; expected a reward model"),
        (
            {"preferences": {"api/referee": {"weight": 1, "prompt": "prefer-helpful", "from-step": 9}}},
            "has `from-step: 9` and `steps` is 2",
        ),
        ({"warmup-ratio": 0.1}, "`constant`, which has no warm-up; expected `constant_with_warmup`"),
        ({"schedule": "linear", "warmup-ratio": 1.0}, "less than 1"),
        ({"beta2": 1.0}, "less than 1"),
    ],
)
def test_entry_that_does_not_go_together_is_refused(changed, said):
    """Each mistake is named before anything runs."""
    from mill import REFEREE

    with pytest.raises(RecipeError, match=said):
        expand({"test": {"api/referee": REFEREE, **SMALL, "grpo/x": {**GRPO, **changed}}})


# ------------------------------------------------------------------------------------------------------ several processes

LAUNCH = "accelerate launch --config_file workflow/accelerate/ddp.yaml --num_processes 2 -m"


@pytest.mark.pipeline
def test_two_processes_share_the_rollouts_and_one_of_them_asks(chain, tmp_path):
    """Each rollout is there once, with a verdict and an advantage within its group; the judge was asked about each of them once."""
    project = copy_of(chain, tmp_path / "copy")
    project.forget("grpo/cold")
    profile = project.folder / "profiles/default/config.yaml"
    profile.write_text(f"{profile.read_text()}\nset-resources:\n  grpo: {{launch: {LAUNCH}}}\n")
    assert project.made("results/grpo/cold.parquet") == ["grpo/cold"]
    rollouts = pl.read_parquet(project.table("grpo/cold").folder / "rollouts.parquet")
    assert rollouts.height == rollouts["rollout"].n_unique() == 8 * 4 * 2
    assert rollouts["grade"].null_count() == 0
    sums = rollouts.group_by("step", "group").agg(pl.col("advantage").sum(), pl.col("problem").n_unique())
    assert sums["advantage"].abs().max() < 1e-3 and set(sums["problem"]) == {1}
    asked = {(row["problem"], row["text"]) for row in rollouts.iter_rows(named=True) if row["reason"] != "empty"}
    assert len(project.journal("grpo/cold")) <= len(asked)


@pytest.mark.long
@pytest.mark.pipeline
def test_two_processes_learn_from_rollouts_ahead_of_them(chain, tmp_path):
    """With a staleness, too, each rollout is there once, and none is older than that."""
    project = copy_of(chain, tmp_path / "copy")
    project.forget("grpo/cold")
    project.edit("iterations: 2", "max-staleness: 2")
    profile = project.folder / "profiles/default/config.yaml"
    profile.write_text(f"{profile.read_text()}\nset-resources:\n  grpo: {{launch: {LAUNCH}}}\n")
    assert project.made("results/grpo/cold.parquet") == ["grpo/cold"]
    rollouts = pl.read_parquet(project.table("grpo/cold").folder / "rollouts.parquet")
    assert rollouts.height == rollouts["rollout"].n_unique() == 16 * 4 * 2
    assert (rollouts["step"] - 1 - rollouts["policy_step"]).is_between(0, 2).all()
    oldest = project.frame("grpo/cold").filter(metric="staleness/max")["value"]
    assert 1 <= oldest.max() <= 2


# ------------------------------------------------------------------------------------------- rewards that never vary


def test_broken_reward_is_named_in_log_and_stamp(train, monkeypatch, capsys):
    """A reward that is the same for every rollout is named; one that varies is not, and alone it has no notice."""
    monkeypatch.setitem(REWARDS, "letters", Reward(each(lambda rollout: len(rollout.submission.text)), "letters"))
    assert train("varied", rewards={"letters": 1})[0].stamp["notices"] == []
    monkeypatch.setitem(REWARDS, "stuck", Reward(each(lambda rollout: 1.0), "always 1"))
    (notice,) = train("stuck", rewards={"stuck": 1, "letters": 1})[0].stamp["notices"]
    assert "`stuck`" in notice and "`letters`" not in notice
    assert notice in capsys.readouterr().err


def test_training_whose_only_reward_never_varies_says_that_it_learned_nothing(train, capsys):
    """Weights that solve nothing earn 0 from the judge in every rollout: the notice says so in the log and the stamp."""
    table, rollouts = train("unsolved", rewards={"grade": 1})
    assert set(rollouts["grade"]) == {0.0}
    (notice,) = table.stamp["notices"]
    assert notice.startswith("no reward varied") and notice in capsys.readouterr().err


def test_rewards_that_differ_between_groups_alone_are_constant():
    """Groups with means of their own teach nothing; missing rewards are ignored; one differing group is enough."""
    frame = pl.LazyFrame(
        {"step": [1, 1, 1, 1], "group": [0, 0, 1, 1], "a": [0, 0, 1, 1], "b": [0, None, 1, 1], "c": [0, 0, 1, 0]},
        schema_overrides={name: pl.Float64 for name in "abc"},
    )
    assert constant(frame, ["a", "b", "c"], "group") == ["a", "b"]


# -------------------------------------------------------------------------------------------------------------- attacks


@pytest.fixture
def gated(small, tmp_path, monkeypatch):
    """Return a Mill on a copy of the small chain's tables, with a training that must resist some of the attacks."""
    some = {name: ATTACKS[name] for name in ("empty", "correctness-claims", "other-solution", "reference")}
    monkeypatch.setattr(robustness, "ATTACKS", some)

    def made(name: str, more: dict | None = None, **changed):
        shutil.copytree(small.results, tmp_path / "results", dirs_exist_ok=True)
        entry = {**GRPO, "max-attack": 0.1, **changed}
        return Mill(tmp_path / "results", **SMALL, **(more or {}), **{f"grpo/{name}": entry})

    return made


def test_training_by_a_grader_with_a_hole_does_not_start(gated, monkeypatch):
    """A judge that takes any line of calculation for the right one is caught: no model is loaded, no table written."""
    monkeypatch.setattr("proofmill.training.run.load", lambda *_: pytest.fail("a model is loaded"))
    mill = gated("fooled", {"api/believing": {**REFEREE, "extra-body": {"credulous": True}}}, grader="api/believing")
    with pytest.raises(GraderError, match="`other-solution` earns 0") as error:
        mill.make("grpo/fooled")
    assert "attacks earn points from api/believing" in str(error.value) and "Nothing was trained" in str(error.value)
    table = mill.table("grpo/fooled")
    assert not table.path.exists() and not table.folder.exists()


def test_training_by_an_honest_grader_starts_and_keeps_what_attacks_earned(gated, capsys):
    """The stamp and the log have what each policy earned; the judge's answers are paid with the training's, once."""
    mill = gated("honest")
    table = mill.make("grpo/honest")
    attacks = table.stamp["attacks"]
    assert attacks["reference"]["share"] == 1.0 and attacks["correctness-claims"]["share"] == 0.0
    assert "no attack earns more than an empty answer" in capsys.readouterr().err
    asked = [row.key for row in records.all_rows(table.calls)]
    table.path.unlink()
    shutil.rmtree(mill.results / "archive")
    mill.make("grpo/honest")
    assert [row.key for row in records.all_rows(table.calls)] == asked
