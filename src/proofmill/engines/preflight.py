"""Preflight checks: test whether servers respond, accept the key and know the model, before a run calls them.

A check asks for the list of models, which is free, and for an output of one token. That tests the key, the model's id,
the account's credit and the fields of a request. All servers are checked at once, each within SECONDS. The calls count
towards the budget, and are in a journal of the model: results/calls/api/<name>/.
"""

import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from proofmill.calls import prices
from proofmill.calls.budget import Budget, most
from proofmill.calls.journal import Journal
from proofmill.calls.model_requests import ModelOutput, ModelRequest
from proofmill.engines.open_engine import open_api
from proofmill.engines.remote import ApiEngine
from proofmill.engines.retries import Failure
from proofmill.runtime.environment import variable
from proofmill.schema.entries.declared import Api
from proofmill.schema.errors import SettingError
from proofmill.schema.fields import require
from proofmill.schema.reasons import Reason, StopReason
from proofmill.text.suggestions import among

SECONDS = 6.0  # more than a connection may take (remote.CONNECT)
# Tokens of the output: the minimum of each protocol. A reasoning model may refuse so few, see TOO_FEW.
TOKENS = {"chat": 1, "responses": 16, "embeddings": 0}
TOO_FEW = "output limit was reached"
# Names of the context length (prompt and output): vLLM, OpenRouter and Together, Groq, Mistral.
WINDOWS = ("max_model_len", "context_length", "context_window", "max_context_length")


@dataclass(frozen=True)
class Trial:
    """The result of checking one model: a `fault` that a run would meet too, or a `note`, and the cost."""

    model: str
    fault: str = ""
    note: str = ""
    cost: float | None = 0.0  # dollars; None for an unknown price
    seconds: float = 0.0


class _Account(NamedTuple):
    """The journal and the budget of one model's check, its request, and the dollars reserved for it."""

    journal: Journal
    budget: Budget
    request: ModelRequest
    reserved: float

    def config(self, outcome: ModelOutput | Failure) -> None:
        """Write the call and its cost into the journal; an unknown cost is the reserved amount."""
        if isinstance(outcome, Failure):
            cost = None if outcome.charged else outcome.cost
            outcome = outcome.answer or ModelOutput(
                "", StopReason.ERROR, outcome.reason, cost=cost, detail=outcome.detail
            )
        if outcome.cost is None and self.budget.dollars is not None and self.reserved:
            outcome = replace(outcome, cost=self.reserved)
        self.journal.add(self.request, outcome)


def try_models(models: Mapping[str, tuple[Api, int]], results: Path, dollars: float | None) -> Iterator[Trial]:
    """Check models, each with the maximum tokens of its requests; yield the results as they end, all within SECONDS.

    `results` is the folder whose journals get the calls; `dollars` is the budget over all of them.
    """
    for client in ("aiohttp", "openai"):  # takes seconds on a busy machine, which must not count as the servers'
        import_module(client)
    trials: queue.SimpleQueue[tuple[Trial, ModelOutput | Failure | None]] = queue.SimpleQueue()
    accounts: dict[str, _Account] = {}
    with ExitStack() as stack:
        for name, (api, longest) in models.items():
            talk = (("user", "Say yes."),)
            request = ModelRequest(require(api.id), talk, api.temperature, max_tokens=TOKENS[api.protocol])
            journal = stack.enter_context(Journal(results / "calls" / name))
            budget = Budget(dollars, results / "calls", journal)
            stack.callback(budget.close)
            reserved = most(prices.price_of(api), request.size, request.max_tokens)
            if not budget.reserve(reserved):
                yield Trial(name, note="was not tested: the budget has no room for a call")
                continue
            accounts[name] = _Account(journal, budget, request, reserved)
            # A thread may hang in a DNS lookup, which cannot be canceled, so threads are daemons.
            arguments = name, api, longest, request
            threading.Thread(target=lambda *args: trials.put(_trial(*args)), args=arguments, daemon=True).start()
        end = time.monotonic() + SECONDS + 1.5  # allowance for opening engines on a busy machine
        while accounts:
            try:
                trial, outcome = trials.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                for name, account in accounts.items():
                    account.config(Failure("timeout", Reason.TIMEOUT, f"no answer in {SECONDS:g} s", charged=True))
                    yield Trial(name, fault=_silent(name))
                return
            account = accounts.pop(trial.model)
            if outcome is not None:
                account.config(outcome)
            yield trial


def _silent(name: str) -> str:
    return (
        f"{name}: no answer of any kind in {SECONDS:g} s; expected a server at the address of {variable(name)}_URL. Check "
        "its host name and the network."
    )


def _trial(name: str, api: Api, longest: int, request: ModelRequest) -> tuple[Trial, ModelOutput | Failure | None]:
    """Check one model; the outcome is None if no call was made."""
    try:
        with open_api(name, api) as engine:
            start = time.monotonic()
            models, outcome = engine.try_out(request, SECONDS)
            seconds = time.monotonic() - start
            fault, note = _classify(engine, models, outcome)
            known = next((model for model in models if model["id"] == api.id), {})
            if isinstance(outcome, ModelOutput) or outcome.answer:
                fault = _too_small(name, known, longest)
    except SettingError as error:
        return Trial(name, str(error)), None
    return Trial(name, fault, note, outcome.cost, seconds), outcome


def _classify(
    engine: ApiEngine, models: Sequence[Mapping[str, Any]], outcome: ModelOutput | Failure
) -> tuple[str, str]:
    """Return the fault and the note of an outcome; both are empty for an answer."""
    name = engine.name
    if isinstance(outcome, ModelOutput) or outcome.answer or outcome.kind in ("refused", "too-long"):
        return "", ""
    message = outcome.detail.rstrip(".")
    if not outcome.reached:
        return (
            f"{name}: cannot be reached: {message}; expected a server at the address of {variable(name)}_URL. Start it, or fix "
            "the address."
        ), ""
    if outcome.kind in ("no-use", "forbidden"):
        near = _find_known(engine.model, models)
        return f"{engine.no_use(outcome).rstrip('.')}.{near}", ""
    if outcome.kind == "bad-request" and TOO_FEW not in message:
        asked = "a vector" if engine.api.protocol == "embeddings" else "an output of one token"
        fault = f"{name}: refuses a request for {asked}: {message}; expected an answer. Check `extra-body`, `omit`, "
        return f"{fault}`protocol`, `max-tokens-field` and `id` of {name}.{_find_known(engine.model, models)}", ""
    if not outcome.readable:
        return (
            f"{name}: {message}; expected an answer of {engine.model}. Check {variable(name)}_URL (does it end in /v1?).",
            "",
        )
    busy = "is busy" if outcome.reason == Reason.RATE_LIMIT else "gave no usable answer yet"
    return "", f"{busy}: {message}" if outcome.kind != "bad-request" else ""


def _find_known(model: str, models: Sequence[Mapping[str, Any]]) -> str:
    ids = [known["id"] for known in models]
    return f" Its models: {among(model, ids)}" if ids and model not in ids else ""


def _too_small(name: str, known: Mapping[str, Any], most: int) -> str:
    """Return the fault of a server whose context is no longer than the longest output, else ""."""
    windows = [known[word] for word in WINDOWS if isinstance(known.get(word), int) and known[word] > 0]
    if not windows or most < min(windows):
        return ""
    return (
        f"{name}: its server takes {min(windows):,} tokens of prompt and answer together, but requests ask for answers of {most:,}; "
        "expected room for the prompt. Lower `max-tokens`, or serve the model with a longer context."
    )
