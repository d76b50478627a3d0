"""Interface of a sampler: it receives requests for rollouts, and reports each as soon as it is finished."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from proofmill.schema.ids import digest


@dataclass(frozen=True)
class RolloutRequest:
    """Attempts at one prompt, in tokens; `places` number them in their group, which is negative for held-out problems."""

    group: int
    prompt: Sequence[int]
    places: Sequence[int]
    temperature: float | None = None  # None: that of the training


@dataclass(frozen=True, eq=False)
class SampledRollout:
    """One finished rollout: its T tokens, with the log-probability of each at the sampling temperature.

    `policy_step` is the training step of the weights that sampled its first token.
    """

    group: int
    place: int
    policy_step: int
    ids_T: np.ndarray  # int32
    logprobs_T: np.ndarray  # float32


def derive_seed(seed: int, group: int, place: int) -> int:
    """Return the seed of one rollout's noise, in 0 to 2^63 - 1. No other rollout has it, also after a resume."""
    return int(digest(seed, group, place), 16) % 2**63


Tell = Callable[[SampledRollout], None]


class Sampler(Protocol):
    """A separate model that receives the weights of the training after each step."""

    def start(self, tell: Tell) -> None:
        """Start; call `tell` in a thread of the sampler for each finished rollout."""
        ...

    def ask(self, requests: Sequence[RolloutRequest]) -> None:
        """Queue requests, in this order, after earlier ones."""
        ...

    def check(self) -> None:
        """Raise ServiceError if the sampler has ended."""
        ...

    def coming(self, step: int) -> None:
        """Announce that the next weights are those after this step."""
        ...

    def report_weights(self, step: int) -> None:
        """Report that the weights after this step have arrived."""
        ...

    def stop(self) -> None:
        """End, whatever is under way."""
        ...
