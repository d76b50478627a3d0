"""`reinforce`: log-probabilities weighted by the ratio, as QED-Nano's trainer does (PipelineRL).

With `loss: bnpo` it is REINFORCE with the mean over the tokens of a step.
"""

import torch

from proofmill.training.losses.estimator import Clipping, TokenObjective


def reinforce(logprobs: torch.Tensor, ratios: torch.Tensor, advantages: torch.Tensor, by: Clipping) -> torch.Tensor:
    """Return log p A weighted by the ratio, clipped at 1 + high and without gradient (PipelineRL's default)."""
    return logprobs * advantages * torch.clamp(ratios, 0, 1 + by.high).detach()


OBJECTIVE = TokenObjective(reinforce)
