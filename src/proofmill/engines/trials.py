"""Trials: whether servers answer, take the key and know the model, found out before anything is asked in earnest.

A server is asked for its list of models, which costs nothing, and for an answer of one token, which tries the key, the
model's id, the account's credit and the fields of a request. All servers are tried at once, each in SECONDS.
"""

import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from proofmill.calls.exchange import Answer, Question
from proofmill.engines.conversation import Failure
from proofmill.engines.opening import open_api
from proofmill.engines.remote import ApiEngine
from proofmill.runtime.environment import variable
from proofmill.schema.declared import Api
from proofmill.schema.errors import SettingError
from proofmill.schema.fields import required
from proofmill.schema.reasons import Reason
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


def tried(models: Mapping[str, tuple[Api, int]]) -> Iterator[Trial]:
    """Try models, given with the most tokens that they are asked for; their trials as they end, all within SECONDS."""
    for client in ("aiohttp", "openai"):  # seconds on a busy machine, which are not the servers'
        import_module(client)
    trials: queue.SimpleQueue[Trial] = queue.SimpleQueue()
    for name, (api, most) in models.items():
        # A thread may hang in a look-up of the host's name, which nothing ends: nobody waits for it.
        threading.Thread(target=lambda *given: trials.put(_trial(*given)), args=(name, api, most), daemon=True).start()
    waiting, end = dict.fromkeys(models), time.monotonic() + SECONDS + 1.5  # to open engines on a busy machine
    while waiting:
        try:
            trial = trials.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            yield from (Trial(name, fault=_silent(name)) for name in waiting)
            return
        del waiting[trial.model]
        yield trial


def _silent(name: str) -> str:
    return (
        f"{name}: no answer of any kind in {SECONDS:g} s; expected a server at the address of {variable(name)}_URL. Look whether "
        "its name can be looked up and the network is there."
    )


def _trial(name: str, api: Api, most: int) -> Trial:
    try:
        with open_api(name, api) as engine:
            start = time.monotonic()
            question = Question(
                required(api.id), (("user", "Say yes."),), api.temperature, max_tokens=TOKENS[api.protocol]
            )
            models, outcome = engine.try_out(question, SECONDS)
            seconds = time.monotonic() - start
            fault, note = _judged(engine, models, outcome)
            known = next((model for model in models if model["id"] == api.id), {})
            if isinstance(outcome, Answer) or outcome.answer:
                fault = _too_small(name, known, most)
    except SettingError as error:
        return Trial(name, str(error))
    return Trial(name, fault, note, outcome.cost, seconds)


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
    if outcome.kind == "provider" and outcome.charged:
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
