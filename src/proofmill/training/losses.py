"""Losses of policy optimisation: an objective for each token, and its sum over tokens as the recipe says.

From: PPO's clipped ratio as GRPO uses it (DeepSeekMath, section 4.1), and the loss of QED-Nano's trainer (PipelineRL):
tokens are summed and divided by the number of attempts, so that long attempts weigh more. The other sums (`grpo`,
`dapo`, `bnpo`, `dr_grpo`) are TRL's own; tests compare all of them with the formulas.

How we differ from PipelineRL:
1. The weights of entropy and divergence are constant.

Axes: N attempts, T tokens.
"""

import numpy as np
import torch

KL_BOUND = 5.0  # bound on the difference of log-probabilities in the divergence (PipelineRL's base configuration)


def ratios(logprobs_NT: torch.Tensor, old_NT: torch.Tensor) -> torch.Tensor:
    """How many times likelier each token is now than when it was sampled, shape NT."""
    return torch.exp(logprobs_NT - old_NT)


def clipped(ratios_NT: torch.Tensor, advantages_N: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """min(r A, clip(r, 1 - low, 1 + high) A), shape NT (PPO, equation 7)."""
    advantages_N1 = advantages_N.unsqueeze(1)
    return torch.min(ratios_NT * advantages_N1, torch.clamp(ratios_NT, 1 - low, 1 + high) * advantages_N1)


def reinforce(
    logprobs_NT: torch.Tensor, ratios_NT: torch.Tensor, advantages_N: torch.Tensor, high: float
) -> torch.Tensor:
    """log p A weighted by the ratio, clipped at 1 + high and without gradient, shape NT (PipelineRL's default)."""
    return logprobs_NT * advantages_N.unsqueeze(1) * torch.clamp(ratios_NT, 0, 1 + high).detach()


def divergence(logprobs_NT: torch.Tensor, reference_NT: torch.Tensor, bound: float = KL_BOUND) -> torch.Tensor:
    """exp(d) - d - 1 with d = log p_ref - log p, an estimate of KL(p | p_ref) that is never negative, shape NT.

    Schulman's k3, as in DeepSeekMath (equation 4); d is clamped to +-bound.
    """
    d_NT = torch.clamp(reference_NT - logprobs_NT, -bound, bound)
    return torch.exp(d_NT) - d_NT - 1


def sequence_sum(objective_NT: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """Minus the objective's sum over tokens, divided by the number of attempts, masked ones included."""
    return -(objective_NT * mask_NT).sum() / objective_NT.size(0)


def token_weights(loss: str, tokens_N: np.ndarray, step_tokens: float, max_tokens: int) -> np.ndarray:
    """What each token of an attempt weighs in the sum of its step, shape N; `step_tokens` are those that are learned.

    `grpo` is the mean over attempts of each attempt's mean, `dapo` and `bnpo` the mean over tokens, `dr_grpo` divides by
    attempts times `max-tokens`, `sequence_sum` by attempts. Attempts that are not learned are counted among them.
    """
    attempts = len(tokens_N)
    per_attempt = {
        "grpo": attempts * np.maximum(tokens_N, 1),
        "dr_grpo": attempts * max_tokens,
        "sequence_sum": attempts,
    }
    return np.broadcast_to(1.0 / per_attempt.get(loss, step_tokens), tokens_N.shape)


def effective_share(ratios_NT: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """(sum r)^2 / (n sum r^2) over the n tokens: 1 on policy, near 0 if few tokens have all the weight."""
    weights_NT = ratios_NT * mask_NT
    return weights_NT.sum() ** 2 / (mask_NT.sum() * (weights_NT**2).sum()).clamp(min=1e-12)
