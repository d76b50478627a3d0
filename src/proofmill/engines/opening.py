"""Opening the engine of a model: a server reached over the OpenAI protocol, or weights in this process.

All engines give the same table, apart from sampling noise. The entry says what the model is; the profile and the
environment say which engine serves it and where a server is:

    PROOFMILL_<NAME>_URL, PROOFMILL_<NAME>_KEY    address of the server of api/<name>, and its key
    PROOFMILL_<NAME>_RPM, PROOFMILL_<NAME>_TPM    requests and tokens a minute that its server allows this job
    PROOFMILL_CONCURRENCY                         most calls in flight to one server, from the start on; without it we
                                                  begin with 32 and find out
    PROOFMILL_TIMEOUT                             seconds for one call, from its start to its last byte (600)
    PROOFMILL_PATIENCE                            seconds without any answer after which a stage stops (600)
    PROOFMILL_GRACE                               seconds that calls in flight have left after a SIGTERM or Ctrl-C (20)
"""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

from proofmill.artifacts.jobs import Job
from proofmill.artifacts.tables import Table
from proofmill.calls.budget import Budget
from proofmill.calls.calls import Asker, Engine
from proofmill.calls.journal import Journal
from proofmill.calls.pacing import Pace
from proofmill.engines.remote import ApiEngine, variable
from proofmill.engines.servers import Server
from proofmill.graders.graders import Marker
from proofmill.runtime.progress import say
from proofmill.schema.declared import Api
from proofmill.schema.errors import SettingError
from proofmill.schema.names import kind_of

REFEREE_SECONDS = 60.0
VLLM_SECONDS = 1800.0  # a model of hundreds of gigabytes loads slowly
SERVED_AT_ONCE = 256  # calls in flight to a vLLM server of our own, which runs as many at once


@contextmanager
def asking(job: Job, model: str) -> Iterator[Asker]:
    """Open a model for the rows of a job: its engine, the job's journal and the budget are open inside."""
    with asking_all(job, [model]) as askers:
        yield askers[model]


@contextmanager
def asking_all(job: Job, models: Iterable[str]) -> Iterator[dict[str, Asker]]:
    """Open several models, which share the job's journal and the budget."""
    with ExitStack() as stack:
        engines = {model: stack.enter_context(open_engine(job, model)) for model in models}
        journal = stack.enter_context(Journal(job.table.calls))
        budget = Budget(job.budget, job.table.results / "calls", journal)
        stack.callback(budget.close)
        yield {model: Asker(job.name, engine, journal, budget) for model, engine in engines.items()}


@contextmanager
def asking_for(job: Job, *markers: Marker, further: Iterable[str] = ()) -> Iterator[dict[str, Asker]]:
    """Open markers, so that they can mark: their programs, and the engines of their models and of `further` ones."""
    models = dict.fromkeys([*(model for marker in markers for model in marker.models), *further])
    with ExitStack() as stack:
        askers = stack.enter_context(asking_all(job, models)) if models else {}
        for marker in markers:
            marker.askers = askers
            stack.enter_context(marker)
        yield askers


@contextmanager
def open_engine(job: Job, model: str) -> Iterator[Engine]:
    """The engine of a model reference: the server of `api/...`, or the weights of an artifact's table."""
    with ExitStack() as stack:
        model = getattr(job.declared.get(model), "weights", None) or model
        if kind_of(model) == "api":
            yield stack.enter_context(open_api(model, job.declared[model]))
        elif job.engine == "vllm-server":
            yield stack.enter_context(serve_weights(job, job.parent(model)))
        elif job.engine == "vllm":
            from proofmill.engines.vllm import VllmEngine

            yield VllmEngine(job.parent(model), job.engine_args, job.threads, job.table.scratch / "vllm.log")
        else:
            from proofmill.engines.local import TransformersEngine

            yield TransformersEngine(job.parent(model), job.threads)


@contextmanager
def open_api(name: str, api: Any) -> Iterator[ApiEngine]:
    """A remote model; a program of this project is started on a loopback port meanwhile. SettingError without a URL."""
    url, key = os.environ.get(f"{variable(name)}_URL"), _key(f"{variable(name)}_KEY")
    with ExitStack() as stack:
        server = None
        if url is None and api.program == "referee":
            server = stack.enter_context(
                Server(
                    name,
                    lambda port: [sys.executable, "-m", "proofmill.arithmetic.referee", "--port", str(port)],
                    REFEREE_SECONDS,
                )
            )
            url = server.url
        if url is None:
            raise SettingError(
                f"{name}: the environment has no {variable(name)}_URL; expected the address of the server, such as "
                f"https://host/v1. Set it, and {variable(name)}_KEY if the server wants a key."
            )
        _check_address(f"{variable(name)}_URL", url)
        pace = Pace(
            _number("PROOFMILL_CONCURRENCY", int),
            _number(f"{variable(name)}_RPM", float),
            _number(f"{variable(name)}_TPM", float),
        )
        engine = ApiEngine(name, api, url, key, pace, server=server)
        stack.callback(engine.close)
        yield engine


@contextmanager
def serve_weights(job: Job, table: Table) -> Iterator[ApiEngine]:
    """An artifact's weights behind vLLM's OpenAI server, started for this job with the flags of its profile."""
    import torch
    from transformers import AutoTokenizer

    from proofmill.engines import fitting, vllm

    asked = vllm.vllm_options(job.engine_args)
    fit = fitting.fit(job.name, table.weights(), asked, job.threads, torch.cuda.is_available())
    fitting.check_length(fit, job.name, fit.whole)  # the server would call the row too long
    if fit.said:
        say(job.name, fit.said)

    def command(port: int) -> list[str]:
        model = ["--model", str(table.weights()), "--served-model-name", table.model, "--port", str(port)]
        ours = vllm.flags({name: value for name, value in fit.options.items() if name not in asked})
        flags = ["--host", "127.0.0.1", *ours, *shlex.split(job.engine_args)]
        return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *model, *flags]

    quiet = {"VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"), "OMP_NUM_THREADS": "1"}
    tokenizer = AutoTokenizer.from_pretrained(table.weights())
    api = Api(id=table.model, price={"input": 0.0, "output": 0.0})
    pace = Pace(_number("PROOFMILL_CONCURRENCY", int) or SERVED_AT_ONCE)
    with Server(table.name, command, VLLM_SECONDS, quiet, job.table.scratch / "vllm.log", vllm.reason_in) as server:
        engine = ApiEngine(table.name, api, server.url, "none", pace, server, seeds=2**63, tokenizer=tokenizer)
        try:
            yield engine
        finally:
            engine.close()


def _check_address(variable: str, url: str) -> None:
    """SettingError for an address that is none, or that holds a password; the message does not show it."""
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        right, parts = False, urlsplit("")
    if not right:
        raise SettingError(f"{variable}: is no address of a server; expected one such as https://host/v1. Mend it.")
    if parts.username is not None or parts.password is not None:
        raise SettingError(
            f"{variable}: holds a user or a password; expected an address without one. Give what the server wants as a key in "
            f"{variable.removesuffix('_URL')}_KEY."
        )


def _key(name: str) -> str:
    """A key from the environment, `none` if unset. Raises SettingError, without the key, for what no header can carry."""
    key = os.environ.get(name, "none")
    if re.fullmatch(r"[!-~]+", key) is None:
        found = "is empty" if not key.strip() else "has a line end, a blank or another character that no key has"
        raise SettingError(
            f"{name}: the key {found} (it is not shown here); expected letters, digits and signs alone. Set it again, or unset "
            "it for a server that wants none."
        )
    return key


def _number(name: str, kind: type) -> Any:
    """A positive number from the environment, None if unset; SettingError for anything else."""
    value = os.environ.get(name)
    if value is None:
        return None
    try:
        number = kind(value)
    except ValueError:
        number = 0
    if number <= 0:
        raise SettingError(
            f"{name}={value}: found no positive number; expected one, such as {name}=60. Set or unset it."
        )
    return number
