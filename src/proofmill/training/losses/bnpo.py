"""`bnpo`: the mean over the tokens of a step, each step by its own count (TRL's name).

Differences from TRL: the mean is over a full optimizer step on all devices. TRL takes the mean of every micro-batch, so
its gradient depends on the rows of a micro-batch.
"""

from typing import Any

from proofmill.training.losses.estimator import Estimator, Step


def divisors(step: Step) -> Any:
    """Return the trained tokens of the step."""
    return step.tokens


ESTIMATOR = Estimator(divisors)
