"""The update of self-play: its loss against the formulas, its advantages by task and role, what has no part in either."""

import math

import pytest
import torch

from proofmill.schema.entries.selfplay_entry import Selfplay
from proofmill.selfplay import in_long_form, sampling_options
from proofmill.selfplay_tasks.round import PolicyReply, TaskRequest, Turn
from proofmill.selfplay_tasks.tasks import Invalid, Task
from proofmill.training.micro_batches import trim
from proofmill.training.selfplay_trainer import SelfplayTrainer, entries

PAD = 0
TASK = Task("deduce", "def f(a):\n return a", "1", "1")


@pytest.fixture
def trainer(small, tmp_path):
    """Return a trainer of the small model that has played nothing, with changed fields of the entry."""

    def made(**changed) -> SelfplayTrainer:
        from datasets import Dataset
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from trl import GRPOConfig

        entry = Selfplay(
            **{"model": "sft/cold", "steps": 1, "batch_size": 2, "max_tokens": 4, "entropy": 0.0, **changed}
        )
        folder = small.table("sft/cold").weights()
        config = GRPOConfig(
            output_dir=str(tmp_path), use_cpu=True, per_device_train_batch_size=2, report_to=[], max_steps=1, bf16=False,
            **sampling_options(entry),
        )  # fmt: skip
        ready = SelfplayTrainer(
            entry, "selfplay/test", None, [], None, None, 2, model=AutoModelForCausalLM.from_pretrained(folder), args=config,
            train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": ""}]}] * 2),
            processing_class=AutoTokenizer.from_pretrained(folder),
        )  # fmt: skip
        ready.current_gradient_accumulation_steps = 1
        return ready

    return made


def batch(trainer: SelfplayTrainer, advantages: list[float], spread: float) -> tuple[dict, torch.Tensor, torch.Tensor]:
    """Return replies of one and three tokens, whose tokens were `spread` likelier or less likely when they were
    sampled."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(10, 200, (2, 5), generator=generator)
    mask = torch.tensor([[1, 0, 0], [1, 1, 1]])
    inputs = {
        "prompt_ids": ids[:, :2],
        "prompt_mask": torch.ones(2, 2, dtype=torch.long),
        "completion_ids": ids[:, 2:] * mask,
        "completion_mask": mask,
        "advantages": torch.tensor(advantages),
        "num_items_in_batch": mask.sum(),
    }
    attention = torch.cat([inputs["prompt_mask"], mask], dim=1)
    tokens = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    with torch.no_grad():
        now, entropies, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, tokens, attention, 3, compute_entropy=True
        )
    inputs["old_per_token_logps"] = now - spread * torch.randn(2, 3, generator=generator)
    return inputs, now, entropies


def slow_loss(entry: Selfplay, inputs: dict, now: torch.Tensor, entropies: torch.Tensor) -> float:
    """Compute PPO's clipped objective token by token (Schulman et al. 2017, eq. 7; dual clip: Ye et al. 2020, eq. 5)."""
    low, high = entry.epsilon, entry.epsilon if entry.epsilon_high is None else entry.epsilon_high
    total = bonus = count = 0.0
    for n in range(2):
        advantage = inputs["advantages"][n].item()
        for t in range(3):
            if inputs["completion_mask"][n, t]:
                ratio = math.exp(now[n, t].item() - inputs["old_per_token_logps"][n, t].item())
                value = min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
                if entry.dual_clip is not None and advantage < 0:
                    value = max(value, entry.dual_clip * advantage)
                total, bonus, count = total + value, bonus + entropies[n, t].item(), count + 1
    return -total / count - entry.entropy * bonus / count


@pytest.mark.parametrize("advantages", [[1.0, -0.5], [-1.0, -2.0]])
@pytest.mark.parametrize(
    "changed", [{}, {"epsilon": 0.2, "epsilon_high": 0.28, "dual_clip": 3.0}, {"entropy": 0.01}, {"dual_clip": 1.5}]
)
def test_loss_equals_the_formula(trainer, changed, advantages):
    """Off policy, with either clip and with entropy, it is a mean over the tokens of all replies."""
    made = trainer(**changed)
    made.model.train()
    inputs, now, entropies = batch(made, advantages, spread=1.5)
    wanted = slow_loss(made.entry, inputs, now, entropies)
    assert made.compute_loss(made.model, inputs).item() == pytest.approx(wanted, rel=1e-4, abs=1e-6)


def test_reply_without_a_verdict_has_no_part_in_the_loss(trainer):
    """Its tokens are masked: the loss is that of the other reply alone."""
    made = trainer(entropy=0.01)
    made.model.train()
    inputs, now, entropies = batch(made, [0.0, -0.5], spread=0.0)
    inputs["completion_mask"] = inputs["completion_mask"] * torch.tensor([[0], [1]])
    inputs["num_items_in_batch"] = inputs["completion_mask"].sum()
    wanted = slow_loss(made.entry, inputs, now, entropies)
    assert made.compute_loss(made.model, inputs).item() == pytest.approx(wanted, rel=1e-4)


def test_padding_that_no_row_needs_is_cut_off(trainer):
    """Prompts lose it before them, replies behind them; the loss stays."""
    made = trainer(entropy=0.01)
    made.model.train()
    inputs, _, _ = batch(made, [1.0, -0.5], spread=0.5)
    padded = {
        name: torch.nn.functional.pad(value, (0, 4)) if name.startswith(("c", "old")) else value
        for name, value in inputs.items()
    }
    padded |= {name: torch.nn.functional.pad(inputs[name], (5, 0)) for name in ("prompt_ids", "prompt_mask")}
    short = trim(padded)
    assert all(torch.equal(short[name], inputs[name]) for name in inputs)
    assert made.compute_loss(made.model, padded).item() == pytest.approx(
        made.compute_loss(made.model, inputs).item(), rel=1e-5
    )
    alone = trim({name: value[:1] if value.dim() > 1 else value for name, value in padded.items()})
    assert alone["completion_ids"].shape == alone["old_per_token_logps"].shape == (1, 1)


def turn(kind: str, role: str, reward: float | None, tokens: int = 1) -> Turn:
    request = TaskRequest(kind, [{"role": "user", "content": "?"}], [TASK])
    return Turn(role, request, PolicyReply("!", ids=[1] * tokens), TASK, True, [reward], reward)


@pytest.mark.parametrize(("answer", "fits"), [(4, True), (512, False)])
def test_prompt_fits_if_the_context_has_room_for_its_answer(trainer, answer, fits):
    """A model with a context of 512 tokens is shown no prompt that leaves less than `max-tokens`."""
    assert trainer(max_tokens=answer).fits([{"role": "user", "content": "f(1)"}]) == fits


def test_advantages_are_of_a_task_and_a_role(trainer):
    """Each batch has its own mean and deviation; with one baseline they are those of all replies."""
    turns = [
        turn("deduce", "solve", 1.0), turn("deduce", "solve", -0.5), turn("induce", "solve", 0.0),
        turn("induce", "solve", 0.0), turn("deduce", "propose", 5.0), turn("deduce", "propose", 5.5),
    ]  # fmt: skip
    half = math.sqrt(0.5)
    found = trainer()._advantages(turns)
    assert found == pytest.approx([half, -half, 0, 0, -half, half], abs=1e-4)
    one = trainer(baselines="global")._advantages(turns)
    assert sum(one) == pytest.approx(0) and one[4] > 0 and one[0] < 0


def test_baseline_over_tokens_weighs_replies_by_their_length(trainer):
    """A reply of three tokens and one of one: the mean is (3 a + b) / 4, or (a + b) / 2 by reply."""
    turns = [turn("deduce", "solve", 1.0, tokens=3), turn("deduce", "solve", 0.0, tokens=1)]
    by_token = trainer()._advantages(turns)
    assert by_token[0] / by_token[1] == pytest.approx(-(1 - 0.75) / 0.75)
    by_reply = trainer(baseline_over="rollout")._advantages(turns)
    assert by_reply[0] == pytest.approx(-by_reply[1])


def test_unscored_reply_is_in_no_baseline(trainer):
    """The others have the advantages that they would have without it, and its own is nothing."""
    scored = [turn("deduce", "solve", 1.0), turn("deduce", "solve", -0.5)]
    found = trainer()._advantages([*scored, turn("deduce", "solve", None)])
    assert found == pytest.approx([*trainer()._advantages(scored), 0.0])


def test_rollout_log_says_why_there_is_no_task_or_no_verdict():
    """An invalid proposal has its reason and what was found; a reply that was not judged is `unscored`."""
    request = TaskRequest("deduce", [{"role": "user", "content": "?"}], [])
    refused = Turn("propose", request, PolicyReply("x"), Invalid("raised", "ZeroDivisionError"), True, [], -1.0)
    first, second = entries("selfplay/x", 3, [refused, turn("deduce", "solve", None)], [0.5, 0.0])
    assert (first["reason"], first["detail"], first["task_id"], first["reward"]) == (
        "raised",
        "ZeroDivisionError",
        None,
        -1,
    )
    assert (second["reason"], second["task_id"], second["reward"]) == ("unscored", TASK.id, None)
    assert first["rollout"] != second["rollout"]


def test_rows_name_task_and_role():
    """Metrics of a task and role have both in columns; reasons that did not occur are left out."""
    logged = {
        "deduce/propose/valid": 0.5, "deduce/propose/invalid/raised": 0.5, "deduce/propose/invalid/timeout": 0.0,
        "buffer/input-types": 2.0, "loss": 0.1, "rewards/reward/mean": 0.3,
    }  # fmt: skip
    rows = [{"step": 1, "epoch": 1.0, "metric": name, "value": value} for name, value in logged.items()]
    found = [(row["task"], row["role"], row["metric"]) for row in in_long_form(iter(rows))]
    assert found == [
        ("deduce", "propose", "valid"), ("deduce", "propose", "invalid/raised"), (None, None, "buffer/input-types"),
        (None, None, "loss"),
    ]  # fmt: skip
