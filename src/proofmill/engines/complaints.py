"""What a server complains of: its failures, as the log reports them, and the fields of a request that it cannot take.

A failure is in the log at once, and again at growing intervals: 2, 4, 8, ... seconds. Each class of failure has its own
intervals, so that a new trouble is said at once beside an old one. After a minute without it, it is a new trouble.

What a server cannot take is learned by trying. If it refuses a request (400 or 422) and names a field that changes
nothing, a neutral setting or a seed, it is asked again at once without that field, which is then left out for this
model and reported once. This is transport: neither a fingerprint nor a key of a journal depends on it. A setting that
an entry asks for is never left out; the failure says to remove it there.
"""

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proofmill.calls.exchange import Answer, Question
from proofmill.calls.sampling import NEUTRAL
from proofmill.engines.conversation import Failure
from proofmill.runtime.progress import say

FIRST = 2.0  # seconds
QUIET = 60.0  # seconds


@dataclass
class _Trouble:
    tries: int = 0  # that failed so
    interval: float = FIRST
    said: float = 0.0
    last: float = 0.0


class Complaints:
    """Counts the failures of a server by class, and decides which of them are said."""

    def __init__(self) -> None:
        self._troubles: dict[str, _Trouble] = {}

    def heard(self, kind: str) -> int:
        """Count a failure of this class; returns how many there were if it is to be said now, else 0."""
        now = time.monotonic()
        trouble = self._troubles.get(kind)
        if trouble is None or now - trouble.last > QUIET:
            trouble = self._troubles[kind] = _Trouble(interval=FIRST / 2, said=-QUIET)
        trouble.tries, trouble.last = trouble.tries + 1, now
        if now - trouble.said < trouble.interval:
            return 0
        trouble.said, trouble.interval = now, 2 * trouble.interval
        return trouble.tries


class Fields:
    """The fields of a request that one server takes; `omit` of its entry is known from the start."""

    def __init__(self, name: str, omit: Sequence[str] = ()):
        self.name, self.left_out, self._known = name, set(omit), set(omit)
        self.notices: list[str] = []

    def taken(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request without what the server cannot take; what an entry asks for stays."""
        return {n: v for n, v in request.items() if n not in self.left_out or not is_inert(n, v)}

    async def learn(self, question: Question, call: Callable[[], Awaitable[Answer | Failure]]) -> Answer | Failure:
        """Call; again without the fields that are refused, until there is an answer or another failure."""
        sent = {"seed": question.row_seed, **question.sampling, **question.further}
        sent |= {"logprobs": True} if question.logprobs else {}
        tried: set[str] = set()
        while True:
            left_out = frozenset(self.left_out)
            outcome = await call()
            if isinstance(outcome, Answer):
                self._report(left_out - self._known)
            if isinstance(outcome, Answer) or outcome.kind != "bad-request":
                return outcome
            named = [name for name in sent if _is_named(name, outcome.detail)]
            new = {name for name in named if is_inert(name, sent[name])} - left_out
            if not new:
                self.left_out -= tried - self._known  # they were not the reason
                return _blamed(outcome, {name: sent[name] for name in named if not is_inert(name, sent[name])})
            tried |= new
            self.left_out |= new

    def _report(self, new: frozenset[str]) -> None:
        """Report fields without which a call was answered."""
        if new:
            self._known |= new
            fields = ", ".join(f"`{name}`" for name in sorted(new))
            self.notices.append(f"{self.name} does not take {fields}, which its requests leave out")
            say(self.name, f"does not take {fields}: left out of its requests from now on")


def is_inert(name: str, value: Any) -> bool:
    """Return whether a field of a request leaves every distribution as it is."""
    return name == "seed" or (name in NEUTRAL and value == NEUTRAL[name])


def _is_named(name: str, message: str) -> bool:
    """Return whether a message names a field, as servers spell it: top_p, topP, top-p."""
    return re.search(rf"\b{name.replace('_', '[ _-]?')}\b", message, re.IGNORECASE) is not None


def _blamed(failure: Failure, asked: Mapping[str, Any]) -> Failure:
    """Return the failure with what to change, where the server names a setting that an entry asks for."""
    if not asked:
        return failure
    settings = " and ".join(f"`{name.replace('_', '-')}: {value}`" for name, value in asked.items())
    return replace(failure, detail=f"remove {settings} from the entry that asks for it: {failure.detail}")
