"""The loss of a policy: an objective for each token, and its weighted sum over tokens.

Each objective and each estimator has a file with its formula (registry.py). Tests compare losses and gradients with the
formulas.

Axes: N rollouts, T tokens.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch

from proofmill.training.losses.estimator import Clipping, Tokens
from proofmill.training.losses.registry import ESTIMATORS, OBJECTIVES
from proofmill.training.losses.token_statistics import summarize


@dataclass(frozen=True)
class Objective:
    """The objective to maximize: the names of estimator (`loss`) and objective (`objective`), clipping, and weights of terms."""

    low: float  # how far below 1 the ratio is clipped
    high: float
    entropy: float
    loss: str = "dapo"
    objective: str = "clipped"
    kl: float = 0.0
    dual_clip: float | None = None
    mask_divergence: float | None = None  # see `policy_loss`
    teacher_weight: float | None = None  # of the divergence from the teacher, if there is one; default: 1

    @classmethod
    def of(cls, entry: Any) -> "Objective":
        """Read the objective of an entry of `grpo` or `selfplay`."""
        high = entry.epsilon if entry.epsilon_high is None else entry.epsilon_high
        fields = ("loss", "objective", "kl", "dual_clip", "mask_divergence", "teacher_weight")
        named = {name: getattr(entry, name) for name in fields if hasattr(entry, name)}
        return cls(entry.epsilon, high, entry.entropy, **named)


def policy_loss(tokens: Tokens, objective: Objective, step_tokens: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a micro-batch's part of the step's loss, and what `token_statistics` adds up over micro-batches.

    `step_tokens` are the trained tokens of the step on all devices. A rollout with a negative advantage whose mean
    log-probability has fallen by more than `mask_divergence` since it was sampled adds nothing but its divergence and
    entropy (off-policy sequence masking: DeepSeek-V3.2, arXiv 2512.02556, section 3.1). With a teacher, the advantage of a
    token grows by `teacher_weight` (log p_teacher - log p_old), which lowers the reverse KL divergence
    (rollouts/teacher.py).
    """
    estimator, kind = ESTIMATORS[objective.loss], OBJECTIVES[objective.objective]
    changes, kl = tokens.logprobs - tokens.old, None
    ratios = torch.exp(tokens.mean_by_rollout(changes) if kind.by_rollout else changes)
    advantages, gaps = tokens.advantages, None
    if tokens.teacher is not None:
        gaps = tokens.old - tokens.teacher
        advantages = advantages - (objective.teacher_weight or 1.0) * gaps
    by = Clipping(objective.low, objective.high, objective.dual_clip)
    values = kind.values(tokens.logprobs, ratios, advantages, by)
    if objective.mask_divergence is not None:
        fallen = tokens.mean_by_rollout(-changes.detach()) > objective.mask_divergence
        values = torch.where(fallen & (advantages < 0), 0.0, values)
    if tokens.correction is not None:
        values = values * tokens.correction
    if objective.kl:
        assert tokens.reference is not None, "a divergence has a reference"
        kl = divergence(tokens.logprobs, tokens.reference, estimator.kl_bound)
        values = values - objective.kl * kl
    loss = -(values * tokens.weights).sum()
    trained = tokens.weights > 0
    if objective.entropy:
        shares = tokens.weights if estimator.sums_entropy else trained / step_tokens
        loss = loss - objective.entropy * (shares * tokens.entropies).sum()
    with torch.no_grad():
        low = (ratios < 1 - objective.low) & (advantages < 0)
        high = (ratios > 1 + objective.high) & (advantages > 0)
        sums = summarize(trained, ratios, tokens.entropies, low, high, kl, gaps)
    return loss, sums


def divergence(logprobs: torch.Tensor, reference: torch.Tensor, bound: float = math.inf) -> torch.Tensor:
    """Return exp(d) - d - 1 with d = log p_ref - log p, an estimate of KL(p | p_ref) that is never negative.

    Schulman's k3, as in DeepSeekMath (equation 4); d is clamped to +-bound.
    """
    d = reference - logprobs if bound == math.inf else torch.clamp(reference - logprobs, -bound, bound)
    return torch.exp(d) - d - 1
