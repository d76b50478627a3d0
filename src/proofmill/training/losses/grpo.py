"""`grpo`: the mean over rollouts of each rollout's mean over tokens (DeepSeekMath, arXiv 2402.03300, equation 3)."""

from typing import Any

from proofmill.training.losses.estimator import Estimator, Step


def divisors(step: Step) -> Any:
    """Return each rollout's tokens times the step's rollouts, shape (N,)."""
    return step.rollouts * step.tokens_N.clip(min=1)


ESTIMATOR = Estimator(divisors)
