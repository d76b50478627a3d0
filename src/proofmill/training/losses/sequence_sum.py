"""`sequence_sum`: the sum over tokens, divided by rollouts, so long rollouts have more weight (QED-Nano's trainer, PipelineRL).

The entropy is part of each token's objective, and the divergence is bounded.

Differences from PipelineRL: the weights of entropy and divergence are constant.
"""

from typing import Any

from proofmill.training.losses.estimator import Estimator, Step

KL_BOUND = 5.0  # PipelineRL's base configuration


def divisors(step: Step) -> Any:
    """Return the rollouts of the step."""
    return step.rollouts


ESTIMATOR = Estimator(divisors, sums_entropy=True, kl_bound=KL_BOUND)
