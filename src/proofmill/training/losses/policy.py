"""The loss of a policy: an objective for each token, and its weighted sum over tokens.

From: PPO's clipped ratio as GRPO uses it (DeepSeekMath, section 4.1), PPO's dual clip (arXiv 1912.09729, equation 5), and
the REINFORCE objective of QED-Nano's trainer (PipelineRL). Tests compare the loss of each estimator with the formulas.

Axes: N rollouts, T tokens. Tensors of tokens are of shape (N, T) if padded, or flat.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch

from proofmill.training.losses.registry import ESTIMATORS
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

    @classmethod
    def of(cls, entry: Any) -> "Objective":
        """Read the objective of an entry of `grpo` or `selfplay`."""
        high = entry.epsilon if entry.epsilon_high is None else entry.epsilon_high
        named = {
            name: getattr(entry, name) for name in ("loss", "objective", "kl", "dual_clip") if hasattr(entry, name)
        }
        return cls(entry.epsilon, high, entry.entropy, **named)


@dataclass(frozen=True)
class Tokens:
    """The tokens of a micro-batch. All tensors have one shape; advantages and correction broadcast to it."""

    logprobs: torch.Tensor
    old: torch.Tensor  # log-probabilities when the tokens were sampled
    advantages: torch.Tensor
    weights: torch.Tensor  # in the sum over tokens; 0 for those that are not trained on
    entropies: torch.Tensor
    reference: torch.Tensor | None = None  # log-probabilities of the reference model, if `kl` is positive
    correction: torch.Tensor | None = None  # our probabilities over those of the engine that sampled


def policy_loss(tokens: Tokens, objective: Objective, step_tokens: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a micro-batch's part of the step's loss, and what `token_statistics` adds up over micro-batches.

    `step_tokens` are the trained tokens of the step on all devices.
    """
    estimator = ESTIMATORS[objective.loss]
    ratios, kl = torch.exp(tokens.logprobs - tokens.old), None
    if objective.objective == "clipped":
        values = clip(ratios, tokens.advantages, objective.low, objective.high, objective.dual_clip)
    else:
        values = reinforce(tokens.logprobs, ratios, tokens.advantages, objective.high)
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
        low = (ratios < 1 - objective.low) & (tokens.advantages < 0)
        high = (ratios > 1 + objective.high) & (tokens.advantages > 0)
        sums = summarize(trained, ratios, tokens.entropies, low, high, kl)
    return loss, sums


def clip(
    ratios: torch.Tensor, advantages: torch.Tensor, low: float, high: float, dual_clip: float | None = None
) -> torch.Tensor:
    """Return min(r A, clip(r, 1 - low, 1 + high) A) (PPO, equation 7); `dual_clip` is the largest r of the first term."""
    free = ratios if dual_clip is None else torch.clamp(ratios, max=dual_clip)
    return torch.min(free * advantages, torch.clamp(ratios, 1 - low, 1 + high) * advantages)


def reinforce(logprobs: torch.Tensor, ratios: torch.Tensor, advantages: torch.Tensor, high: float) -> torch.Tensor:
    """Return log p A weighted by the ratio, clipped at 1 + high and without gradient (PipelineRL's default)."""
    return logprobs * advantages * torch.clamp(ratios, 0, 1 + high).detach()


def divergence(logprobs: torch.Tensor, reference: torch.Tensor, bound: float = math.inf) -> torch.Tensor:
    """Return exp(d) - d - 1 with d = log p_ref - log p, an estimate of KL(p | p_ref) that is never negative.

    Schulman's k3, as in DeepSeekMath (equation 4); d is clamped to +-bound.
    """
    d = reference - logprobs if bound == math.inf else torch.clamp(reference - logprobs, -bound, bound)
    return torch.exp(d) - d - 1
