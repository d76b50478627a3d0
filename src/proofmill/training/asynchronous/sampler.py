"""What samples ahead of a training: it is asked for attempts at prompts, and tells of each when it has ended."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Request:
    """Attempts at one prompt, in tokens; `places` number them in their group."""

    group: int
    prompt: Sequence[int]
    places: Sequence[int]


@dataclass(frozen=True, eq=False)
class Attempt:
    """One attempt that has ended: its T tokens, with the log-probability that each was drawn with at the temperature.

    `policy` is the step of the training after which its weights stood, when it began.
    """

    group: int
    place: int
    policy: int
    ids_T: np.ndarray  # int32
    logprobs_T: np.ndarray  # float32


Tell = Callable[[Attempt], None]


class Sampler(Protocol):
    """A model of its own, to which the weights of the training are handed over after each step."""

    def start(self, tell: Tell) -> None:
        """Begin; `tell` is called in a thread of the sampler's for each attempt that has ended."""
        ...

    def ask(self, requests: Sequence[Request]) -> None:
        """Have attempts made, in this order, after those that were asked for before."""
        ...

    def check(self) -> None:
        """Raise ServiceError if no more attempts will come."""
        ...

    def coming(self, step: int) -> None:
        """The weights that are handed over next are those after this step."""
        ...

    def arrived(self, step: int) -> None:
        """The weights after this step have been handed over."""
        ...

    def stop(self) -> None:
        """End, whatever is under way."""
        ...
