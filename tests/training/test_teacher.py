"""On-policy distillation: a teacher's log-probabilities of the policy's own rollouts are a reward of each token."""

import shutil

import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from mill import SMALL, Mill
from proofmill.analysis.replay import replay_run
from proofmill.schema.errors import RecipeError, SettingError, TableError
from proofmill.training import grpo_trainer as trainer_module
from proofmill.training import memory
from proofmill.training.rollouts import problems, teacher
from trained import TAUGHT

TRAINING = {
    "model": "sft/cold", "problems": "problems/train", "grader": "arithmetic", "unscored": "drop", "teacher": "sft/taught",
    "steps": 3, "group-size": 2, "problems-per-step": 6, "learning-rate": 0.003, "max-tokens": 24, "log-every": 1,
}  # fmt: skip


def build(taught, folder, **more):
    """Return a chain with `grpo/x`, trained by a teacher, next to copies of its models."""
    shutil.copytree(taught.results, folder)
    return Mill(folder, **SMALL, **{"sft/taught": TAUGHT, "grpo/x": {**TRAINING, **more}})


def curve(table, metric: str) -> list[float]:
    return [row["value"] for row in table.rows() if row["metric"] == metric]


def score(folder, rollouts: pl.DataFrame, temperature: float) -> list[torch.Tensor]:
    """Return the log-probabilities of kept tokens under a model in float64, one rollout at a time and without padding."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).double(), AutoTokenizer.from_pretrained(folder)
    messages = [[{"role": "user", "content": prompt}] for prompt in rollouts["prompt"]]
    scores = []
    for prompt, ids in zip(problems.in_tokens(messages, tokenizer), rollouts["token_ids"].to_list(), strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        scores.append(torch.log_softmax(logits / temperature, dim=-1)[range(len(ids)), ids])
    return scores


@pytest.mark.slow
def test_teacher_alone_is_approached_and_nothing_is_graded(taught, tmp_path):
    """The logged divergence is that of the kept tokens under both models, and it falls; every group is trained on."""
    mill = build(taught, tmp_path / "results", steps=24, temperature=0.8, **{"learning-rate": 0.01})
    table = mill.make("grpo/x")
    rollouts = pl.read_parquet(table.folder / "rollouts.parquet")
    assert rollouts["use"].unique().to_list() == ["trained"] and not rollouts["unscored"].any()
    assert rollouts["grade"].null_count() == rollouts.height
    assert not {"reward", "grade", "frac_reward_zero_std"} & {row["metric"] for row in table.rows()}
    with pytest.raises(SettingError, match="was trained by its teacher alone; expected a training with `rewards`"):
        replay_run("grpo/x", mill.results)
    divergence = curve(table, "teacher/kl")
    assert sum(divergence[-5:]) < 0.7 * sum(divergence[:5])
    first = rollouts.filter(step=1)
    policy, taught_by = (
        torch.cat(score(mill.table(name).weights(), first, 0.8)) for name in ("sft/cold", "sft/taught")
    )
    kept = torch.tensor([value for row in first["logprobs"].to_list() for value in row])
    assert torch.allclose(kept.double(), policy, atol=4e-3)  # of float16
    assert divergence[0] == pytest.approx((policy - taught_by).mean().item(), rel=1e-4)


@pytest.mark.slow
def test_policy_as_its_own_teacher_does_not_change(taught, tmp_path):
    """There is no divergence and no gradient beyond rounding."""
    table = build(taught, tmp_path / "results", teacher="sft/cold", steps=1).make("grpo/x")
    assert curve(table, "teacher/kl") == pytest.approx([0.0], abs=1e-6)
    assert curve(table, "grad_norm") == pytest.approx([0.0], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"rewards": {"grade": 1, "format": 1}, "lora": {"rank": 4, "alpha": 8}}], ids=str)
def test_killed_training_with_a_teacher_ends_the_same(taught, tmp_path, monkeypatch, more):
    """Alone, and with rewards and an adapter: table and rollouts are those of one piece, each with its grade or none."""
    monkeypatch.setenv("PROOFMILL_SAVE_STEPS", "1")
    tables = []
    for name in ("whole", "killed"):
        mill = build(taught, tmp_path / name, **more)
        if name == "killed":
            score = teacher.score

            def dying(trainer, outputs, score=score):
                if trainer.made_for == 2:
                    raise ConnectionError("as if it were killed")
                return score(trainer, outputs)

            with monkeypatch.context() as patched, pytest.raises(ConnectionError):
                patched.setattr(trainer_module.teacher, "score", dying)
                mill.make("grpo/x")
        tables.append(mill.make("grpo/x"))
    whole, killed = tables
    assert whole.content == killed.content
    rollouts = pl.read_parquet(whole.folder / "rollouts.parquet")
    assert rollouts.height == 36 and rollouts["grade"].is_null().all() == (not more)
    assert ("rewards/format/mean" in {row["metric"] for row in whole.rows()}) == bool(more)


@pytest.mark.slow
def test_tokens_of_another_vocabulary_or_template_stop_the_training_at_once(taught, tmp_path):
    """The error names a token, or both templates; nothing is sampled."""
    mill = build(taught, tmp_path / "results")
    folder = mill.table("sft/taught").weights()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = "{{ messages[0].content }}"
    entry = mill.config.entries["grpo/x"]
    with pytest.raises(TableError, match="have different chat templates, which write"):
        teacher.require_alike(entry, AutoTokenizer.from_pretrained(folder), tokenizer)
    tokenizer.add_tokens(["<new>"])
    with pytest.raises(TableError, match="1 tokens differ, such as '<new>'; expected equal ones"):
        teacher.require_alike(entry, AutoTokenizer.from_pretrained(folder), tokenizer)


def test_memory_plan_has_the_teacher(small):
    """It takes the bytes of its weights, in the precision of the training, and is named if it is the largest part."""
    folder = small.table("sft/cold").weights()
    total = memory.parameters(memory.build_empty(folder))
    for precision, width in (("float32", 4), ("bfloat16", 2)):
        with_teacher, without = (
            memory.plan(folder, rows=1, tokens_per_row=8, precision=precision, teacher=one) for one in (folder, None)
        )
        assert with_teacher.learning["teacher"] == total * width
        assert (
            with_teacher.resident - without.resident == with_teacher.fixed_bytes - without.fixed_bytes == total * width
        )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"idle": "replace"}, "found `idle: replace` with `teacher`"),
        ({"max-staleness": 1}, "found `teacher` with `max-staleness`"),
        ({"teacher": None, "teacher-weight": 2.0, "rewards": {"grade": 1}}, "found `teacher-weight` without `teacher`"),
        ({"teacher": None}, "found no `rewards`, `preferences` or `teacher`"),
        ({"audit": "rules"}, "found `audit` or `max-attack` with a `teacher` and no rewards"),
        ({"teacher": "base/other"}, "have tokenizers of their own; expected one vocabulary"),
    ],
)
def test_settings_that_a_teacher_excludes_are_refused(more, words):
    """Each names what was found and what is expected, when the recipe is read."""
    other = {**SMALL["base/tiny"], "vocabulary": 300}
    fields = {name: value for name, value in {**TRAINING, "teacher": "base/tiny", **more}.items() if value is not None}
    with pytest.raises(RecipeError, match=words):
        Mill(None, **SMALL, **{"base/other": other, "grpo/x": fields})
