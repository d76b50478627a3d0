"""`cispo`: REINFORCE with a ratio clipped on both sides (CISPO of MiniMax-M1, arXiv 2506.13585, equations 4 and 5).

Clipped tokens keep their gradient. The paper uses no lower bound: set `epsilon` to 1 for that.
"""

import torch

from proofmill.training.losses.estimator import Clipping, TokenObjective


def weigh(logprobs: torch.Tensor, ratios: torch.Tensor, advantages: torch.Tensor, by: Clipping) -> torch.Tensor:
    """Return log p A weighted by clip(r, 1 - low, 1 + high), which has no gradient."""
    return logprobs * advantages * torch.clamp(ratios, 1 - by.low, 1 + by.high).detach()


OBJECTIVE = TokenObjective(weigh)
