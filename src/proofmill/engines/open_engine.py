"""Open the engine of a model: a server reached over the OpenAI protocol, or weights in this process.

All engines give the same table, except for sampling noise. The entry says what the model is; the profile and the
environment say which engine serves it and where a server is (runtime/environment.py). For all servers:

    PROOFMILL_CONCURRENCY                         maximum calls in flight to one server; by default it starts at 32 and
                                                  adapts
    PROOFMILL_CALL_TIMEOUT                             seconds for one call, from its start to its last byte (600)
    PROOFMILL_CALL_STALL_SECONDS                            seconds without any answer after which a stage stops (600)
    PROOFMILL_GRACE_SECONDS                               seconds that calls in flight may still take after a SIGTERM or Ctrl-C (20)
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from proofmill.artifacts.jobs import Job
from proofmill.artifacts.tables import Table
from proofmill.calls import prices, sampling
from proofmill.calls.budget import Budget
from proofmill.calls.calls import Asker, Engine
from proofmill.calls.pacing import Pace
from proofmill.calls.rates import SharedBucket
from proofmill.engines.batches.batch_engine import MOST, BatchEngine
from proofmill.engines.remote import ApiEngine, Endpoint
from proofmill.engines.services import server_job
from proofmill.engines.services.balancing import Balance
from proofmill.engines.services.directory import Service
from proofmill.graders.graders import SubmissionGrader
from proofmill.prompts import chat_templates
from proofmill.runtime import environment
from proofmill.schema.entries.declared import Api
from proofmill.schema.entries.problem_entries import MINILM
from proofmill.schema.errors import SettingError
from proofmill.schema.fields import require
from proofmill.schema.names import kind_of

NOWHERE = "http://127.0.0.1/v1"  # a placeholder: each call to a service has its own address
VLLM_SEEDS = 2**63  # upper bound of a vLLM server's seeds
SERVED_AT_ONCE = 256  # calls in flight to the job's own vLLM server, which processes as many at once


@contextmanager
def asking(job: Job, model: str) -> Iterator[Asker]:
    """Open a model for the rows of a job, with its engine, the job's journal and the budget."""
    with asking_all(job, [model]) as askers:
        yield askers[model]


@contextmanager
def asking_all(job: Job, models: Iterable[str]) -> Iterator[dict[str, Asker]]:
    """Open several models, which share the job's journal and the budget."""
    with ExitStack() as stack:
        if others := job.askers(models):
            yield stack.enter_context(others)
            return
        runner, models = stack.enter_context(asyncio.Runner()), list(models)
        taken = {model: prices.list_price(job.declared[model]) for model in models if model in job.declared}
        if listed := {model: str(price) for model, price in taken.items() if price}:
            job.stamp["prices"] = job.stamp.get("prices", {}) | listed
        engines = {model: stack.enter_context(open_engine(job, model, runner)) for model in models}
        journal = stack.enter_context(job.open_journal())
        budget = Budget(job.budget, job.table.results / "calls", journal)
        stack.callback(budget.close)
        yield {model: Asker(job.name, engine, journal, budget, job.odd_calls) for model, engine in engines.items()}


@contextmanager
def asking_for(
    job: Job, *submission_graders: SubmissionGrader, further: Iterable[str] = ()
) -> Iterator[dict[str, Asker]]:
    """Open graders: their programs, and the engines of their models and of `further` models."""
    models = dict.fromkeys(
        [*(model for submission_grader in submission_graders for model in submission_grader.models), *further]
    )
    with ExitStack() as stack:
        askers = stack.enter_context(asking_all(job, models)) if models else {}
        for submission_grader in submission_graders:
            submission_grader.askers = askers
            stack.enter_context(submission_grader)
        yield askers


@contextmanager
def open_engine(job: Job, model: str, runner: asyncio.Runner) -> Iterator[Engine]:
    """Open the engine of a model reference: the server of `api/...`, or the weights of an artifact."""
    with ExitStack() as stack:
        model = getattr(job.declared.get(model), "weights", None) or model
        if model == MINILM:
            from proofmill.engines.local import EmbeddingEngine

            yield EmbeddingEngine(job.threads)
        elif kind_of(model) == "api":
            engine = stack.enter_context(open_api(model, job.declared[model], runner, job.table.results))
            stack.callback(lambda: job.notices.extend(engine.fields.notices))
            yield engine
        elif job.engine == "vllm-server":
            yield stack.enter_context(serve_weights(job, job.parent(model), runner))
        elif job.engine == "service":
            yield stack.enter_context(ask_service(job, job.parent(model), runner))
        elif job.engine == "vllm":
            from proofmill.engines.vllm import VllmEngine

            yield VllmEngine(job.parent(model), job.engine_args, job.threads, job.engine_log)
        else:
            from proofmill.engines.local import TransformersEngine

            yield TransformersEngine(job.parent(model), job.threads)


@contextmanager
def open_api(
    name: str, api: Any, runner: asyncio.Runner | None = None, results: Path | None = None
) -> Iterator[ApiEngine]:
    """Open a remote model. The referee's server is started on a loopback port if it has no URL.

    `results` is the results folder, whose jobs share rate limits and services. Raises SettingError if another model has
    no URL.
    """
    full, batched = prices.price_of(api), environment.is_batched(name)
    url, key, api = None, environment.key(name), replace(api, price=prices.price_of(api, name))
    with ExitStack() as stack:
        server = balance = None
        if environment.is_service(name) and results is not None:
            service = Service(name, results)
            stack.enter_context(service.keep_alive())
            url, key, balance = NOWHERE, service.key(), Balance(service)
        elif api.program == "referee" and not environment.has_address(name):
            server = stack.enter_context(server_job.server_of(name, server_job.referee()))
            server.start()
            url, key = server.url, require(server.key)
        url = url or environment.address(name)
        rates = results / "calls" / "rates" / name.partition("/")[2] if results else None
        pace = Pace(
            MOST if batched else environment.number("PROOFMILL_CONCURRENCY", int),
            environment.number(f"{environment.variable(name)}_RPM", float),
            environment.number(f"{environment.variable(name)}_TPM", float),
            bucket=partial(SharedBucket, rates) if rates else None,
        )
        stack.callback(pace.close)
        endpoint = Endpoint(url, key, pace, server, balance)
        if batched and (server or balance or api.protocol == "embeddings"):
            raise SettingError(
                f"{environment.variable(name)}_BATCH: is set for a service, a program or embeddings; expected a provider's model with an "
                "address. Unset it."
            )
        engine = (
            BatchEngine(name, api, endpoint, full, runner) if batched else ApiEngine(name, api, endpoint, runner=runner)
        )
        stack.callback(engine.close)
        yield engine


@contextmanager
def serve_weights(job: Job, table: Table, runner: asyncio.Runner) -> Iterator[ApiEngine]:
    """Serve an artifact's weights with vLLM's OpenAI server, started for this job with the flags of its profile."""
    program = server_job.weights_of(table, job.engine_args, job.threads)
    pace = Pace(environment.number("PROOFMILL_CONCURRENCY", int) or SERVED_AT_ONCE)
    with server_job.server_of(table.name, program, job.engine_log) as server:
        endpoint = Endpoint(server.url, require(server.key), pace, server, seeds=VLLM_SEEDS)
        yield from _of_weights(table, endpoint, runner)


@contextmanager
def ask_service(job: Job, table: Table, runner: asyncio.Runner) -> Iterator[ApiEngine]:
    """Open an artifact's weights behind a service (`proofmill serve`), and keep the service running meanwhile."""
    service = Service(table.name, job.table.results)
    pace = Pace(environment.number("PROOFMILL_CONCURRENCY", int))
    with service.keep_alive():
        endpoint = Endpoint(NOWHERE, service.key(), pace, balance=Balance(service), seeds=VLLM_SEEDS)
        yield from _of_weights(table, endpoint, runner)


def _of_weights(table: Table, endpoint: Endpoint, runner: asyncio.Runner) -> Iterator[ApiEngine]:
    """Yield the engine of an artifact's weights behind a vLLM server."""
    from transformers import AutoTokenizer

    tokenizer = chat_templates.require_template(AutoTokenizer.from_pretrained(table.weights()), table.name)
    api = Api(id=table.model, price={"input": 0.0, "output": 0.0})
    ends = sampling.ends(table.folder, tokenizer)
    engine = ApiEngine(table.name, api, endpoint, tokenizer, ends, runner)
    try:
        yield engine
    finally:
        engine.close()
