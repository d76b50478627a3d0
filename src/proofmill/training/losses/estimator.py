"""The record of an estimator: how the objectives of tokens become the loss of an optimizer step.

Axis: N rollouts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """Counts of an optimizer step over all devices, and the trained tokens N of the rollouts at hand."""

    tokens_N: Any  # array or tensor
    rollouts: int  # includes those that are not trained on
    tokens: Any  # trained tokens of the step, at least 1
    mean_tokens: Any  # trained tokens of a step, averaged over the steps that share a rollout batch, at least 1
    max_tokens: int


@dataclass(frozen=True)
class Estimator:
    """`divisors` gives what the summed objectives of a rollout's tokens are divided by: one number, or one per rollout."""

    divisors: Callable[[Step], Any]
    sums_entropy: bool = False  # the entropy is summed as the objective is; else it is a mean over the step's tokens
    kl_bound: float = math.inf  # limit of the difference of log-probabilities in the divergence
