"""Call models. Every call goes through this module and its journal, so each request is made only once.

The journal's key is a digest of everything that decides the output: model id or weights, messages, sampling settings,
sample index. A changed prompt therefore repeats only its own rows, a changed concurrency repeats none, and a reverted
edit finds its old outputs.

Differences from a loop over a client:
1. An output is in the journal (journal.py) before another call starts in its slot.
2. A failed call is recorded with its reason, and the stage continues. The stage fails if more calls fail than the
   model's declared share; its message names rows and reasons.
3. After SIGTERM, Ctrl-C, a spent budget or a full disk no call starts. Calls in flight may finish, and a message says
   how to resume.
"""

import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import tee
from sys import intern
from typing import Any, ClassVar, Protocol

from proofmill.calls.budget import Budget, most
from proofmill.calls.journal import Journal
from proofmill.calls.model_requests import ModelOutput, ModelRequest, Requests
from proofmill.calls.prices import is_same_model
from proofmill.runtime.progress import Progress, log
from proofmill.runtime.signals import StopRequest, gracefully
from proofmill.schema.errors import JournalError, ServiceError
from proofmill.schema.reasons import TRANSIENT

SHOWN = 5  # failed rows that a message names
# Assumed size of a stage that calls a model in small batches and tolerates failures. For a batch of five, the allowed
# share of failures would stop it at the first one.
MANY = 10_000


class Engine(Protocol):
    """A model, behind a server or with its weights in this process."""

    model: str
    max_failed: float  # share of the calls that may fail
    price: Any
    flows: bool  # whether it accepts requests while others are in flight (runner.py)
    pace: Any  # of a server (pacing.Pace); None for weights in this process

    def batches(self, requests: Iterable[ModelRequest]) -> Iterable[Iterable[ModelRequest]]:
        """Yield the batches of requests. They do not depend on what the journal has already."""
        ...

    def answer(self, requests: Iterator[ModelRequest], asking: "Asking") -> None:
        """Pass each output to `asking.take` on arrival, in any order. Start no call once `asking.stop.why` is set."""
        ...

    def read(self, answer: ModelOutput) -> ModelOutput:
        """Interpret an output of the journal, for example by splitting off its reasoning. The journal keeps it raw."""
        ...


class Asking:
    """The context of an engine's calls: the journal for their outputs, the request to stop, and the budget."""

    def __init__(
        self, journal: Journal, budget: Budget, engine: Engine, progress: Progress, stop: StopRequest, of: int = 0
    ):
        self.journal, self.budget, self.price, self.model = journal, budget, engine.price, engine.model
        self.progress, self.stop = progress, stop
        self.failed: list[tuple[str, str, str]] = []  # key, reason, detail
        self.last_failure = ""  # the message of the last failed try, if no call was answered since
        self.failure_limit = engine.max_failed * max(progress.total or 0, of)

    def missing(self, requests: Iterable[ModelRequest]) -> Iterator[ModelRequest]:
        """Yield the requests without an output in the journal, each once."""
        seen: set[str] = set()
        for request in requests:
            if request in self.journal or request.key in seen:
                self.progress.add(cached=1)
            else:
                seen.add(request.key)
                yield request

    @property
    def limited(self) -> bool:
        """True if a budget limits these calls: it is set, and their price is known."""
        return self.budget.dollars is not None and self.price != "unknown"

    def most(self, request: ModelRequest) -> float:
        """Return the most dollars the request may cost, by its limits and by the model's most expensive call so far."""
        return max(most(self.price, request.size, request.max_tokens), self.budget.dearest.get(self.model, 0.0))

    @property
    def probing(self) -> bool:
        """True if no call of the model was answered yet, so that the next one shows the cost of its calls."""
        return self.limited and self.model not in self.budget.dearest

    def learn(self, dollars: float) -> None:
        """Record the dollars of a call. Servers that ignore `max_tokens` cost more than their limits allow."""
        self.budget.dearest[self.model] = max(dollars, self.budget.dearest.get(self.model, 0.0))

    def reserve(self, dollars: float) -> bool:
        """Reserve dollars for a call. Return False if the budget has no room now, or its files cannot be used."""
        try:
            return self.budget.reserve(dollars)
        except JournalError as error:  # calls in flight may finish
            self.stop.ask(f"stopped because the files of the budget cannot be read or written: {error}")
            return False

    def complain(self, what: str) -> None:
        """Log a failure together with the progress."""
        log(self.progress.name, f"{self.progress.line()}; {what}")

    def take(self, request: ModelRequest, answer: ModelOutput) -> None:
        """Record an output or a failure. Request a stop if the disk is full or too many calls have failed."""
        if request not in self.journal:  # a batch may have answered it before it was asked
            self.journal.add(request, answer)
        self.progress.add(failed=answer.failed, tokens=answer.tokens, cost=answer.cost or 0)
        if answer.failed:
            self.failed.append((request.key, answer.reason, answer.detail[:200]))
            if len(self.failed) > self.failure_limit:
                self.stop.ask("stopped because more calls failed than `max-failed` allows")
        if self.journal.full:
            self.stop.ask("stopped because the disk is full")


class Answers:
    """Outputs of all requests in order, read from the journal during iteration. They are never all in memory."""

    def __init__(self, asker: "Asker", requests: Iterable[ModelRequest]):
        self._asker, self._requests = asker, requests

    def __iter__(self) -> Iterator[ModelOutput]:
        return self._asker.recall(self._requests)


@dataclass
class Asker:
    """An open model with the journal of the artifact that calls it, and the budget."""

    name: str
    engine: Engine
    journal: Journal
    budget: Budget
    odd: dict[str, str] = field(default_factory=dict)  # by key of a request: a notice about its output
    is_open: ClassVar[bool] = True  # whether the model can be called for what the journal lacks

    @property
    def flows(self) -> bool:
        """True if the model accepts requests while others are in flight."""
        return self.engine.flows

    def __call__(self, requests: Requests) -> Answers:
        """Make all requests that the journal lacks, and return the outputs of all.

        An output with stop `error` is a transient failure: its `reason` says which, and a rerun retries it. Raises
        ServiceError if more calls fail than the engine's share, SystemExit if something stopped the run.
        """
        progress = Progress(self.name, len(requests), "calls")
        with gracefully(self.name) as stop:
            asking = Asking(self.journal, self.budget, self.engine, progress, stop)
            for batch in self.engine.batches(requests):
                if stop.why:
                    break
                self.engine.answer(asking.missing(batch), asking)
        progress.close()
        if len(asking.failed) > asking.failure_limit:
            keys = {key for key, _, _ in asking.failed[:SHOWN]}
            rows = {request.key: row for row, request in requests.with_rows() if request.key in keys}
            raise self.too_many(asking.failed, len(requests), rows)
        if stop.why and progress.done < len(requests):
            raise self.exit_of(stop, asking, f"{progress.done - len(asking.failed):,} of {len(requests):,} calls")
        if stop.signal:  # all calls are answered: the outer signal handler decides how to end
            signal.raise_signal(stop.signal)
        if progress.done < len(requests):
            raise RuntimeError(f"{self.name}: {len(requests) - progress.done:,} calls neither succeeded nor failed")
        return Answers(self, requests)

    def recall(self, requests: Iterable[ModelRequest]) -> Iterator[ModelOutput]:
        """Yield the journal's outputs of earlier requests, in order. Raises KeyError for one never made."""
        asked, read = tee(requests)
        for request, answer in zip(asked, self.journal.answers(read), strict=True):
            self._note(request, answer)
            yield self.engine.read(answer)

    def _note(self, request: ModelRequest, answer: ModelOutput) -> None:
        """Record a call that failed, or that a model other than the requested one answered."""
        if answer.failed:
            ended = answer.detail if answer.detail.startswith("finished with") else f"failed ({answer.reason})"
            self.odd[request.key] = intern(ended)  # a million calls share a few sentences
        elif answer.model and not is_same_model(request.model, answer.model):
            self.odd[request.key] = intern(f"answered by `{answer.model}`, not by `{request.model}`")

    def exit_of(self, stop: StopRequest, asking: Asking, answered: str) -> SystemExit:
        """Return the exit of a stopped job; `answered` counts the calls in the journal."""
        self.journal.sync()
        failure = asking.last_failure
        last = f" The last try failed: {failure.rstrip('.')}." if failure and failure not in (stop.why or "") else ""
        return SystemExit(
            f"{self.name}: {stop.why}; {answered} are in the journal.{last} Rerun the same command to resume."
        )

    def too_many(self, failed: list[tuple[str, str, str]], number: int, rows: Mapping[str, str]) -> ServiceError:
        """Return the error of a job with too many failed calls; `rows` has the ids of rows by the keys of calls."""
        reasons = Counter(reason for _, reason, _ in failed)
        counted = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        named = "\n".join(f"  {rows[key]}: {reason}, {detail}" for key, reason, detail in failed[:SHOWN])
        return ServiceError(
            f"{self.name}: {len(failed):,} of {number:,} calls failed ({counted}); expected at most the share "
            f"{self.engine.max_failed:g} (`max-failed` of the model).\n{named}\n"
            "Fix the server and rerun: completed calls are not repeated."
        )


def describe_odd_calls(odd: Mapping[str, str]) -> list[str]:
    """Return a sentence for each kind of unusual call (`Asker.odd`), with its count."""
    return [f"{count:,} call{'s' * (count > 1)} {what}" for what, count in Counter(odd.values()).most_common()]


@dataclass
class Spent:
    """The cost of a table's calls: dollars (None if a price is unknown) and tokens, summed while its rows are built."""

    cost: float | None = 0.0
    tokens: int = 0
    failures: int = 0  # calls whose failure is transient: a table with such calls is not archived

    def count(self, answers: Iterable[ModelOutput]) -> Iterator[ModelOutput]:
        """Yield the same outputs, and count each."""
        for answer in answers:
            self.add(answer.paid, answer.tokens)
            self.failures += answer.reason in TRANSIENT
            yield answer

    def of_verdict(self, verdict: Any) -> None:
        """Count a verdict (verdicts.Verdict): the cost of its calls, and whether one of them failed transiently."""
        self.add(verdict.cost if verdict.reason not in TRANSIENT else verdict.cost or 0.0, verdict.tokens)
        self.failures += any(opinion.reason in TRANSIENT for opinion in verdict.opinions)

    def add(self, cost: float | None, tokens: int) -> None:
        """Add dollars and tokens; an unknown cost makes the sum unknown."""
        self.cost = None if self.cost is None or cost is None else self.cost + cost
        self.tokens += tokens
