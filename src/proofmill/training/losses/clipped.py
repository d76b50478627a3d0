"""`clipped`: PPO's clipped ratio as GRPO uses it (DeepSeekMath, section 4.1), with PPO's dual clip (arXiv 1912.09729, eq. 5)."""

import torch

from proofmill.training.losses.estimator import Clipping, TokenObjective


def clip(logprobs: torch.Tensor, ratios: torch.Tensor, advantages: torch.Tensor, by: Clipping) -> torch.Tensor:
    """Return min(r A, clip(r, 1 - low, 1 + high) A) (PPO, equation 7); the first r is at most `dual`.

    With A < 0 the minimum takes the larger ratio, so `dual` bounds the loss there, and changes nothing with A > 0.
    """
    free = ratios if by.dual is None else torch.clamp(ratios, max=by.dual)
    return torch.min(free * advantages, torch.clamp(ratios, 1 - by.low, 1 + by.high) * advantages)


OBJECTIVE = TokenObjective(clip)
