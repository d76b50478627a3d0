"""Opening the engine of a model: a server reached over the OpenAI protocol, or weights in this process.

All engines give the same table, apart from sampling noise. The entry says what the model is; the profile and the
environment say which engine serves it and where a server is (runtime/environment.py). Of all servers hold:

    PROOFMILL_CONCURRENCY                         most calls in flight to one server, from the start on; without it we
                                                  begin with 32 and find out
    PROOFMILL_TIMEOUT                             seconds for one call, from its start to its last byte (600)
    PROOFMILL_PATIENCE                            seconds without any answer after which a stage stops (600)
    PROOFMILL_GRACE                               seconds that calls in flight have left after a SIGTERM or Ctrl-C (20)
"""

import asyncio
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from proofmill.artifacts.jobs import Job
from proofmill.artifacts.tables import Table
from proofmill.calls.budget import Budget
from proofmill.calls.calls import Asker, Engine
from proofmill.calls.journal import Journal
from proofmill.calls.pacing import Pace
from proofmill.engines.remote import ApiEngine
from proofmill.engines.servers import Server
from proofmill.graders.graders import Marker
from proofmill.prompts import chat_templates
from proofmill.runtime import environment
from proofmill.runtime.progress import say
from proofmill.schema.declared import Api
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
        if others := job.askers(models):
            yield stack.enter_context(others)
            return
        runner = stack.enter_context(asyncio.Runner())
        engines = {model: stack.enter_context(open_engine(job, model, runner)) for model in models}
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
def open_engine(job: Job, model: str, runner: asyncio.Runner) -> Iterator[Engine]:
    """The engine of a model reference: the server of `api/...`, or the weights of an artifact's table."""
    with ExitStack() as stack:
        model = getattr(job.declared.get(model), "weights", None) or model
        if kind_of(model) == "api":
            yield stack.enter_context(open_api(model, job.declared[model], runner))
        elif job.engine == "vllm-server":
            yield stack.enter_context(serve_weights(job, job.parent(model), runner))
        elif job.engine == "vllm":
            from proofmill.engines.vllm import VllmEngine

            yield VllmEngine(job.parent(model), job.engine_args, job.threads, job.table.scratch / "vllm.log")
        else:
            from proofmill.engines.local import TransformersEngine

            yield TransformersEngine(job.parent(model), job.threads)


@contextmanager
def open_api(name: str, api: Any, runner: asyncio.Runner | None = None) -> Iterator[ApiEngine]:
    """A remote model; a program of this project is started on a loopback port meanwhile. SettingError without a URL."""
    url, key = None, environment.key(name)
    with ExitStack() as stack:
        server = None
        if api.program == "referee" and not environment.has_address(name):
            server = stack.enter_context(
                Server(
                    name,
                    lambda port: [sys.executable, "-m", "proofmill.arithmetic.referee", "--port", str(port)],
                    REFEREE_SECONDS,
                )
            )
            url = server.url
        url = url or environment.address(name)
        pace = Pace(
            environment.number("PROOFMILL_CONCURRENCY", int),
            environment.number(f"{environment.variable(name)}_RPM", float),
            environment.number(f"{environment.variable(name)}_TPM", float),
        )
        engine = ApiEngine(name, api, url, key, pace, server=server, runner=runner)
        stack.callback(engine.close)
        yield engine


@contextmanager
def serve_weights(job: Job, table: Table, runner: asyncio.Runner) -> Iterator[ApiEngine]:
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
    tokenizer = chat_templates.required(AutoTokenizer.from_pretrained(table.weights()), table.name)
    api = Api(id=table.model, price={"input": 0.0, "output": 0.0})
    pace = Pace(environment.number("PROOFMILL_CONCURRENCY", int) or SERVED_AT_ONCE)
    with Server(table.name, command, VLLM_SECONDS, quiet, job.table.scratch / "vllm.log", vllm.reason_in) as server:
        engine = ApiEngine(
            table.name, api, server.url, "none", pace, server, seeds=2**63, tokenizer=tokenizer, runner=runner
        )
        try:
            yield engine
        finally:
            engine.close()
