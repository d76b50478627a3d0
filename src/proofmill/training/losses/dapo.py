"""`dapo`: the mean over the tokens of a step (DAPO, arXiv 2503.14476, equation 12).

Differences from the original: steps that share a rollout batch all divide by their mean number of tokens, as in TRL.
"""

from typing import Any

from proofmill.training.losses.estimator import Estimator, Step


def divisors(step: Step) -> Any:
    """Return the mean tokens of the steps that share a rollout batch."""
    return step.mean_tokens


ESTIMATOR = Estimator(divisors)
