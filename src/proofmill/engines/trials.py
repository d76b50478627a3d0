"""Trials: whether servers answer, take the key and know the model, found out before anything is asked in earnest.

A server is asked for its list of models, which costs nothing, and for an answer of one token, which tries the key, the
model's id, the account's credit and the fields of a request. All servers are tried at once, each in SECONDS. These calls
are in the budget, and in a journal of the model: results/calls/api/<name>/.
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
from proofmill.calls.exchange import Answer, Question
from proofmill.calls.journal import Journal
from proofmill.engines.conversation import Failure
from proofmill.engines.opening import open_api
from proofmill.engines.remote import ApiEngine
from proofmill.runtime.environment import variable
from proofmill.schema.declared import Api
from proofmill.schema.errors import SettingError
from proofmill.schema.fields import required
from proofmill.schema.reasons import Reason, Stop
from proofmill.text.suggestions import among

SECONDS = 6.0  # more than a connection may take (remote.CONNECT)
# Tokens of the answer: the least that each protocol takes. What thinks first may refuse so few: TOO_FEW.
TOKENS = {"chat": 1, "responses": 16}
TOO_FEW = "output limit was reached"
# What servers call the tokens that prompt and answer may have together: vLLM, OpenRouter and Together, Groq, Mistral.
WINDOWS = ("max_model_len", "context_length", "context_window", "max_context_length")


@dataclass(frozen=True)
class Trial:
    """What came of trying one model: a `fault` that asking in earnest would meet too, or a `note`, and the cost."""

    model: str
    fault: str = ""
    note: str = ""
    cost: float | None = 0.0  # dollars; None for an unknown price
    seconds: float = 0.0


class _Account(NamedTuple):
    """The journal and the budget of one model's trial, its question, and the dollars that are reserved for it."""

    journal: Journal
    budget: Budget
    question: Question
    reserved: float

    def book(self, outcome: Answer | Failure) -> None:
        """Write the call and its cost into the journal: what was reserved, if it may have cost that and nothing is known."""
        if isinstance(outcome, Failure):
            cost = None if outcome.charged else outcome.cost
            outcome = outcome.answer or Answer("", Stop.ERROR, outcome.reason, cost=cost, detail=outcome.detail)
        if outcome.cost is None and self.budget.dollars is not None and self.reserved:
            outcome = replace(outcome, cost=self.reserved)
        self.journal.add(self.question, outcome)


def tried(models: Mapping[str, tuple[Api, int]], results: Path, dollars: float | None) -> Iterator[Trial]:
    """Try models, given with the most tokens that they are asked for; their trials as they end, all within SECONDS.

    `results` and `dollars`: the folder whose journals have the calls, and the budget over all of them.
    """
    for client in ("aiohttp", "openai"):  # seconds on a busy machine, which are not the servers'
        import_module(client)
    trials: queue.SimpleQueue[tuple[Trial, Answer | Failure | None]] = queue.SimpleQueue()
    accounts: dict[str, _Account] = {}
    with ExitStack() as stack:
        for name, (api, longest) in models.items():
            talk = (("user", "Say yes."),)
            question = Question(required(api.id), talk, api.temperature, max_tokens=TOKENS[api.protocol])
            journal = stack.enter_context(Journal(results / "calls" / name))
            budget = Budget(dollars, results / "calls", journal)
            stack.callback(budget.close)
            reserved = most(prices.price_of(api), question.size, question.max_tokens)
            if not budget.reserve(reserved):
                yield Trial(name, note="is not tried: the budget has no room for a call")
                continue
            accounts[name] = _Account(journal, budget, question, reserved)
            # A thread may hang in a look-up of the host's name, which nothing ends: it is not waited for.
            given = name, api, longest, question
            threading.Thread(target=lambda *given: trials.put(_trial(*given)), args=given, daemon=True).start()
        end = time.monotonic() + SECONDS + 1.5  # to open engines on a busy machine
        while accounts:
            try:
                trial, outcome = trials.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                for name, account in accounts.items():
                    account.book(Failure("timeout", Reason.TIMEOUT, f"no answer in {SECONDS:g} s", charged=True))
                    yield Trial(name, fault=_silent(name))
                return
            account = accounts.pop(trial.model)
            if outcome is not None:
                account.book(outcome)
            yield trial


def _silent(name: str) -> str:
    return (
        f"{name}: no answer of any kind in {SECONDS:g} s; expected a server at the address of {variable(name)}_URL. Look whether "
        "its name can be looked up and the network is there."
    )


def _trial(name: str, api: Api, longest: int, question: Question) -> tuple[Trial, Answer | Failure | None]:
    """Try one model; the outcome is None if nothing was asked."""
    try:
        with open_api(name, api) as engine:
            start = time.monotonic()
            models, outcome = engine.try_out(question, SECONDS)
            seconds = time.monotonic() - start
            fault, note = _judged(engine, models, outcome)
            known = next((model for model in models if model["id"] == api.id), {})
            if isinstance(outcome, Answer) or outcome.answer:
                fault = _too_small(name, known, longest)
    except SettingError as error:
        return Trial(name, str(error)), None
    return Trial(name, fault, note, outcome.cost, seconds), outcome


def _judged(engine: ApiEngine, models: Sequence[Mapping[str, Any]], outcome: Answer | Failure) -> tuple[str, str]:
    """The fault, or a note, that an outcome is; both empty for an answer."""
    name = engine.name
    if isinstance(outcome, Answer) or outcome.answer or outcome.kind in ("refused", "too-long"):
        return "", ""
    said = outcome.detail.rstrip(".")
    if not outcome.reached:
        return (
            f"{name}: cannot be reached: {said}; expected a server at the address of {variable(name)}_URL. Start it, or mend "
            "the address."
        ), ""
    if outcome.kind in ("no-use", "forbidden"):
        near = _known(engine.model, models)
        return f"{engine.no_use(outcome).rstrip('.')}.{near}", ""
    if outcome.kind == "bad-request" and TOO_FEW not in said:
        fault = f"{name}: refuses a question of one token: {said}; expected an answer. See to `options`, `omit`, "
        return f"{fault}`protocol`, `max-tokens-field` and `id` of {name}.{_known(engine.model, models)}", ""
    if not outcome.readable:
        return (
            f"{name}: {said}; expected an answer of {engine.model}. See to {variable(name)}_URL (does it end in /v1?).",
            "",
        )
    busy = "is busy" if outcome.reason == Reason.RATE_LIMIT else "has no answer yet"
    return "", f"{busy}: {said}" if outcome.kind != "bad-request" else ""


def _known(model: str, models: Sequence[Mapping[str, Any]]) -> str:
    ids = [known["id"] for known in models]
    return f" Its models: {among(model, ids)}" if ids and model not in ids else ""


def _too_small(name: str, known: Mapping[str, Any], most: int) -> str:
    """The fault of a server whose window of tokens holds no answer as long as may be asked for."""
    windows = [known[word] for word in WINDOWS if isinstance(known.get(word), int) and known[word] > 0]
    if not windows or most < min(windows):
        return ""
    return (
        f"{name}: its server takes {min(windows):,} tokens of prompt and answer together, and is asked for answers of {most:,}; "
        "expected room for the prompt. Lower `max-tokens`, or serve the model with a longer context."
    )
