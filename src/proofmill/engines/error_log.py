"""Log a server's failures at growing intervals, and find the request fields that it does not accept.

A failure is logged at once, and again at growing intervals: 2, 4, 8, ... seconds. Each class of failure has its own
intervals, so a new problem is logged at once although an old one persists. After a minute without a failure of its
class, the intervals start again.

Unsupported fields are found by trying. A server may refuse a request (400 or 422) and name a field that changes no
distribution: a neutral setting or a seed. The call is repeated at once without that field. From then on the field is
left out for this model, and reported once. This does not affect fingerprints or journal keys. A setting that an entry
asks for is never left out; the failure says to remove it there.
"""

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proofmill.calls.model_requests import ModelOutput, ModelRequest
from proofmill.calls.sampling import NEUTRAL
from proofmill.engines.retries import Failure
from proofmill.runtime.progress import log

FIRST = 2.0  # seconds
QUIET = 60.0  # seconds


@dataclass
class _Trouble:
    tries: int = 0  # failed tries of this class
    interval: float = FIRST
    reported: float = 0.0
    last: float = 0.0


class Complaints:
    """Counters of a server's failures by class, which decide when a failure is logged."""

    def __init__(self) -> None:
        self._troubles: dict[str, _Trouble] = {}

    def count(self, kind: str) -> int:
        """Count a failure of this class; return the number of failed tries if it should be logged now, else 0."""
        now = time.monotonic()
        trouble = self._troubles.get(kind)
        if trouble is None or now - trouble.last > QUIET:
            trouble = self._troubles[kind] = _Trouble(interval=FIRST / 2, reported=-QUIET)
        trouble.tries, trouble.last = trouble.tries + 1, now
        if now - trouble.reported < trouble.interval:
            return 0
        trouble.reported, trouble.interval = now, 2 * trouble.interval
        return trouble.tries


class Fields:
    """The request fields that one server accepts. Those in the entry's `omit` are left out from the start."""

    def __init__(self, name: str, omit: Sequence[str] = ()):
        self.name, self.left_out, self._known = name, set(omit), set(omit)
        self.notices: list[str] = []

    def remove_unsupported(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request without unsupported fields; settings that an entry asks for stay."""
        return {n: v for n, v in payload.items() if n not in self.left_out or not is_inert(n, v)}

    async def send(
        self, request: ModelRequest, call: Callable[[], Awaitable[ModelOutput | Failure]]
    ) -> ModelOutput | Failure:
        """Call, and repeat without each refused field, until there is an answer or another failure."""
        sent = _settings_of(request)
        tried: set[str] = set()
        while True:
            left_out = frozenset(self.left_out)
            outcome = await call()
            if isinstance(outcome, ModelOutput):
                self.confirm(left_out)
            if isinstance(outcome, ModelOutput) or outcome.kind != "bad-request":
                return outcome
            new = self.find_refused(request, outcome.detail) - left_out
            if not new:
                self.left_out -= tried - self._known  # leaving them out did not help
                asked = {n: v for n, v in sent.items() if not is_inert(n, v) and _is_named(n, outcome.detail)}
                return _with_advice(outcome, asked)
            tried |= new
            self.left_out |= new

    def find_refused(self, request: ModelRequest, message: str) -> set[str]:
        """Return the fields that a refusal of the request names, and that change no distribution."""
        return {n for n, v in _settings_of(request).items() if is_inert(n, v) and _is_named(n, message)}

    def confirm(self, left_out: frozenset[str]) -> None:
        """Report fields without which a call was answered."""
        if new := left_out - self._known:
            self._known |= new
            fields = ", ".join(f"`{name}`" for name in sorted(new))
            self.notices.append(f"{self.name} does not accept {fields}; its requests omit them")
            log(self.name, f"does not accept {fields}; further requests omit them")


def _settings_of(request: ModelRequest) -> dict[str, Any]:
    """Return the fields of a request that a server may refuse."""
    settings = {"seed": request.row_seed, **request.sampling, **request.further}
    return settings | ({"logprobs": True} if request.logprobs else {})


def is_inert(name: str, value: Any) -> bool:
    """Return whether a request field changes no distribution."""
    return name == "seed" or (name in NEUTRAL and value == NEUTRAL[name])


def _is_named(name: str, message: str) -> bool:
    """Return whether a message names a field, as servers spell it: top_p, topP, top-p."""
    return re.search(rf"\b{name.replace('_', '[ _-]?')}\b", message, re.IGNORECASE) is not None


def _with_advice(failure: Failure, asked: Mapping[str, Any]) -> Failure:
    """Return the failure with advice, if the server names a setting that an entry asks for."""
    if not asked:
        return failure
    settings = " and ".join(f"`{name.replace('_', '-')}: {value}`" for name, value in asked.items())
    return replace(failure, detail=f"remove {settings} from the entry that asks for it: {failure.detail}")
