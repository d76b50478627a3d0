"""`dr_grpo`: the sum over tokens, divided by rollouts times `max-tokens` (Dr. GRPO, arXiv 2503.20783, section 3)."""

from typing import Any

from proofmill.training.losses.estimator import Estimator, Step


def divisors(step: Step) -> Any:
    """Return the tokens that the step's rollouts could have had."""
    return step.rollouts * step.max_tokens


ESTIMATOR = Estimator(divisors)
