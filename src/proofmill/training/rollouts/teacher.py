"""The teacher of on-policy distillation: a model whose log-probabilities of the policy's own rollouts are a reward.

From: generalized knowledge distillation with the reverse KL divergence on the student's samples (Agarwal et al. 2024,
arXiv 2306.13649, section 3).

Differences from the original:
1. A divergence is estimated from the sampled token alone: its log-probability under the policy minus that under the
   teacher, whose mean over samples is the divergence. The original sums over the vocabulary at each position. So the
   teacher is one more term of a token's advantage, which works with every objective and next to rewards.
2. Both log-probabilities are at the temperature of the rollouts.
3. The teacher can be a service of another machine (engines/rollout_servers/served_teacher.py).
"""

from typing import Any, Protocol, runtime_checkable

import torch
from transformers import AutoModelForCausalLM
from trl.models.utils import prepare_deepspeed
from trl.trainer.utils import add_fused_lm_head

from proofmill.artifacts.jobs import Job
from proofmill.prompts.chat_templates import TALK
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.errors import TableError
from proofmill.sources import models
from proofmill.training import run


@runtime_checkable
class RemoteTeacher(Protocol):
    """A teacher whose weights are not in this process."""

    def score_rollouts(self, outputs: dict[str, Any]) -> torch.Tensor:
        """Return the log-probabilities of the tokens of a rollout batch, shape (N, T)."""


def load(entry: Grpo, job: Job, tokenizer: Any, remote: RemoteTeacher | None = None) -> Any:
    """Load the entry's teacher in the precision of the training, unless it is `remote`; None without one.

    Raises TableError if it reads other tokens than the policy, whose `tokenizer` is given.
    """
    if entry.teacher is None:
        return None
    require_alike(entry, tokenizer, run.tokenizer_of(job, entry.teacher))
    if remote:
        return remote
    folder = job.parent(entry.teacher).weights()
    options = {**models.in_float32(folder), "dtype": entry.precision}
    return AutoModelForCausalLM.from_pretrained(folder, **options).eval().requires_grad_(False)


def require_alike(entry: Grpo, policy: Any, teacher: Any) -> None:
    """Raise TableError unless both tokenizers have one vocabulary, one last token and one chat template.

    The teacher gets the tokens of the policy. Others would be other text to it, without an error (Tinker, issue 796).
    """
    names = f"{entry.model} and its teacher {entry.teacher}"
    advice = "Choose a teacher of the same family, or train the policy from one."
    numbers, others = policy.get_vocab(), teacher.get_vocab()
    if differing := sorted(token for token in {*numbers, *others} if numbers.get(token) != others.get(token)):
        raise TableError(
            f"{names} have different vocabularies: {len(differing):,} tokens differ, such as {differing[0]!r}; expected equal ones, "
            f"because the teacher scores the tokens of the policy. {advice}"
        )
    shown = [render(tokenizer) for tokenizer in (policy, teacher)]
    if shown[0] != shown[1]:
        raise TableError(
            f"{names} have different chat templates, which write {shown[0]!r} and {shown[1]!r}; expected equal ones. Set "
            "`chat-template` in one's `base` to the template of the other."
        )


def render(tokenizer: Any) -> tuple[str, str]:
    """Return how a tokenizer writes a question, and the token that ends an answer."""
    return tokenizer.apply_chat_template(TALK[:1], add_generation_prompt=True, tokenize=False), tokenizer.eos_token


def place(teacher: Any, trainer: Any) -> Any:
    """Put a teacher on the devices of a trainer as TRL puts a reference model; it then returns log-probabilities."""
    if isinstance(teacher, RemoteTeacher):
        return teacher
    options = {"temperature": trainer.temperature, "cast_lm_head_to_fp32": trainer.args.cast_lm_head_to_fp32}
    add_fused_lm_head(teacher, **options)
    if trainer.is_deepspeed_enabled:
        return prepare_deepspeed(teacher, trainer.accelerator)
    if trainer.is_fsdp_enabled:
        return run.split_frozen(teacher, trainer.accelerator)
    return trainer.accelerator.prepare_model(teacher, evaluation_mode=True)


@torch.no_grad()
def score(trainer: Any, outputs: dict[str, Any]) -> torch.Tensor:
    """Return the log-probabilities of the tokens of a rollout batch under the trainer's teacher, shape (N, T)."""
    if isinstance(trainer.teacher, RemoteTeacher):
        return trainer.teacher.score_rollouts(outputs)
    ids, mask = (torch.cat([outputs[f"prompt_{k}"], outputs[f"completion_{k}"]], dim=1) for k in ("ids", "mask"))
    length, rows = outputs["completion_ids"].size(1), trainer.args.per_device_train_batch_size
    logprobs, _, _ = trainer._get_per_token_logps_and_entropies(trainer.teacher, ids, mask, length, batch_size=rows)
    return logprobs
