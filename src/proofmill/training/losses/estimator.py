"""The records of a loss: tokens, step, the objective of each token, and the estimator that adds objectives up.

Axes: N rollouts, T tokens. Tensors of tokens are of shape (N, T) if padded, or flat.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Step:
    """Counts of an optimizer step over all devices, and the trained tokens N of the rollouts at hand."""

    tokens_N: Any  # array or tensor
    rollouts: Any  # includes those that are not trained on
    tokens: Any  # trained tokens of the step, at least 1
    mean_tokens: Any  # trained tokens of a step, averaged over the steps that share a rollout batch, at least 1
    max_tokens: int


@dataclass(frozen=True)
class Estimator:
    """`divisors` gives what the summed objectives of a rollout's tokens are divided by: one number, or one per rollout."""

    divisors: Callable[[Step], Any]
    sums_entropy: bool = False  # the entropy is summed as the objective is; else it is a mean over the step's tokens
    kl_bound: float = math.inf  # limit of the difference of log-probabilities in the divergence


@dataclass(frozen=True)
class Clipping:
    """The limits of a ratio: how far below and above 1, and, if set, the largest one at a negative advantage (`dual`)."""

    low: float
    high: float
    dual: float | None = None


@dataclass(frozen=True)
class TokenObjective:
    """`values` gives the objective of each token from log-probabilities, ratios, advantages and clipping."""

    values: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Clipping], torch.Tensor]
    by_rollout: bool = False  # ratios are those of rollouts: the geometric mean over their trained tokens


@dataclass(frozen=True)
class Tokens:
    """The tokens of a micro-batch. All tensors have one shape; advantages and correction broadcast to it."""

    logprobs: torch.Tensor
    old: torch.Tensor  # log-probabilities when the tokens were sampled
    advantages: torch.Tensor
    weights: torch.Tensor  # in the sum over tokens; 0 for those that are not trained on
    entropies: torch.Tensor
    reference: torch.Tensor | None = None  # log-probabilities of the reference model, if `kl` is positive
    teacher: torch.Tensor | None = None  # log-probabilities of the teacher, if there is one
    correction: torch.Tensor | None = None  # our probabilities over those of the engine that sampled
    rollouts: torch.Tensor | None = None  # the number of each token's rollout, if tokens are flat

    def mean_by_rollout(self, values: torch.Tensor) -> torch.Tensor:
        """Return at each token the mean of values over the trained tokens of its rollout; 0 without any."""
        trained = self.weights > 0
        values = torch.where(trained, values, 0.0)
        if self.rollouts is None:
            return (values.sum(dim=-1) / trained.sum(dim=-1).clamp(min=1)).unsqueeze(-1).expand_as(values)
        size = int(self.rollouts.max()) + 1 if self.rollouts.numel() else 0
        sums_N = values.new_zeros(size).index_add(0, self.rollouts, values)
        counts_N = values.new_zeros(size).index_add(0, self.rollouts, trained.to(values.dtype))
        return (sums_N / counts_N.clamp(min=1))[self.rollouts]
