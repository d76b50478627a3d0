"""Samplers that run ahead of a training: a process with a copy of the weights, or a vLLM server on separate GPUs.

A sampler receives prompts and reports each attempt as it ends, with the log-probability of each drawn token. New
weights arrive after each step. The process takes them between two batches. The server takes them over NCCL between two
tokens (TRL's WeightTransferClient), so weights of several steps may contribute to one attempt.
"""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import numpy as np

from proofmill.artifacts.jobs import Job
from proofmill.calls.pacing import backoff
from proofmill.calls.sampling import NEUTRAL
from proofmill.engines.remote import AWAY
from proofmill.engines.rollout_engines import server
from proofmill.engines.rollout_servers.sampling import Settings, serve
from proofmill.runtime import environment, processes
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.errors import ServiceError, SettingError
from proofmill.training.asynchronous.sampler import RolloutRequest, SampledRollout, Tell, derive_seed

SHORT = 10.0  # seconds for a reply that needs no sampling, and between two checks of the server


def sampler(entry: Grpo, job: Job, tokenizer: Any) -> "ProcessSampler | ServerSampler":
    """Return the sampler for the engine of a job. Raises SettingError if it cannot run next to the training."""
    import torch

    cuda = torch.cuda.is_available()
    if job.engine == "transformers" and not cuda:
        settings = Settings.of(entry, job.parent(entry.model).weights(), job.threads, tokenizer)
        return ProcessSampler(job.name, settings)
    if job.engine != "vllm-server" or not cuda:
        raise SettingError(
            f"{job.name}: `max-staleness` is {entry.max_staleness} and the engine is {job.engine} on {'a GPU' if cuda else 'a CPU'}; expected an engine "
            "that samples next to the training: vllm-server on separate GPUs, or transformers on a CPU. Set it in the profile, "
            "or set `max-staleness: 0`."
        )
    served = ServerSampler(job.name, server(job), entry)
    if processes.rank() == 0:
        served.check_settings()
    return served


def logprobs_modes(entry: Grpo) -> list[str]:
    """Return the modes in which vLLM returns log-probabilities over all tokens at the sampling temperature.

    Raw ones are those at temperature 1. Processed ones are at the sampling temperature, and renormalized over the tokens
    that may be drawn.
    """
    restricted = entry.top_p < 1 or entry.top_k or entry.min_p
    return ["processed_logprobs"] * (not restricted) + ["raw_logprobs"] * (entry.temperature == 1)


class ProcessSampler:
    """A process with a copy of the model, which samples batch after batch with transformers.

    It implements TRL's `WeightTransferProtocol` through shared memory.
    """

    def __init__(self, name: str, settings: Settings):
        import torch

        self.name, self.settings, self._context = name, settings, torch.multiprocessing.get_context("spawn")
        self._shared: dict[str, Any] = {}
        # The step of the weights, and a counter that is odd while they are being changed.
        self._step, self._changes = self._context.RawArray("q", 1), self._context.RawArray("q", 1)
        self._ours, self._theirs = self._context.Pipe()
        self._process: Any = None
        self._coming = 0

    def start(self, tell: Tell) -> None:
        place = (self._shared, self._step, self._changes, self._theirs)
        self._process = self._context.Process(target=serve, args=(self.settings, *place), daemon=True)
        self._process.start()
        self._theirs.close()
        threading.Thread(target=self._listen, args=(tell,), name="sampled", daemon=True).start()

    def _listen(self, tell: Tell) -> None:
        with suppress(EOFError, OSError):  # the process has ended
            while True:
                tell(self._ours.recv())

    def ask(self, requests: Sequence[RolloutRequest]) -> None:
        with suppress(OSError):  # `check` reports that it has ended
            self._ours.send(requests)

    def check(self) -> None:
        if self._process is not None and not self._process.is_alive():
            raise ServiceError(
                f"{self.name}: the process that samples has ended (exit {self._process.exitcode}); expected it to run as long as "
                "the training. Its last output is above. Rerun the same command to resume."
            )

    def coming(self, step: int) -> None:
        self._coming = step

    def report_weights(self, step: int) -> None:
        """Do nothing: the step comes with the weights."""

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join()

    # ------------------------------------------------------------------------------------------- TRL's weight transfer

    def init_weight_transfer(self) -> None:
        """Do nothing: `send_weights` allocates the memory with the first weights."""

    def pause(self) -> None:
        self._changes[0] += 1

    def send_weights(self, iterator: Iterator[tuple[str, Any]]) -> None:
        for name, weight in iterator:
            if name in self._shared:
                self._shared[name].copy_(weight)
            else:
                self._shared[name] = weight.float().cpu().clone().share_memory_()
        self._step[0] = self._coming

    def resume(self) -> None:
        self._changes[0] += 1

    def destroy(self) -> None:
        """Do nothing: the memory is freed when the processes end."""


class ServerSampler:
    """A vLLM server that samples as many requests as fit, and returns log-probabilities over all tokens.

    An attempt has no time limit. A separate health check detects a server that is gone.
    """

    def __init__(self, name: str, url: str, entry: Grpo):
        self.name, self.url, self.entry, self._policy = name, url.rstrip("/"), entry, 0
        self._loop, self._fault = asyncio.new_event_loop(), ""
        self._thread: threading.Thread | None = None
        self._patience = environment.seconds("PROOFMILL_CALL_STALL_SECONDS", 600.0)

    def check_settings(self) -> None:
        """Wait until the server is up.

        Raises ServiceError if it is late, was started without weight transfer, or returns other log-probabilities than
        those that a ratio needs; SettingError if no server can return these.
        """

        async def ask_server() -> Any:
            async with _session() as self._session:
                return await self._answer("GET", "/server_info?config_format=json", SHORT)

        if not (modes := logprobs_modes(self.entry)):
            raise SettingError(
                f"{self.name}: `temperature` is {self.entry.temperature:g}, with `top-p`, `top-k` or `min-p`; expected a temperature of 1 "
                "or no restriction, because no vLLM server returns log-probabilities over all tokens otherwise. Remove one of "
                "them, or set `max-staleness: 0`."
            )
        config: dict[str, Any] = {}
        try:
            config = asyncio.run(ask_server())["vllm_config"]
        except ServiceError as error:
            if not str(error).startswith("404 "):
                self.check()
        if not config.get("weight_transfer_config"):
            raise ServiceError(
                f"{self.name}: the rollout server at {self.url} takes no weights; expected weight transfer. Start it with "
                'VLLM_SERVER_DEV_MODE=1 in its environment and --weight-transfer-config \'{"backend":"nccl"}\' (docs/training.md).'
            )
        if (mode := (config.get("model_config") or {}).get("logprobs_mode")) not in modes:
            raise ServiceError(
                f"{self.name}: the rollout server at {self.url} has --logprobs-mode {mode}; expected {' or '.join(modes)}, the "
                "log-probabilities over all tokens at this temperature. Start it with that (docs/training.md)."
            )

    def start(self, tell: Tell) -> None:
        self._tell = tell
        self._thread = threading.Thread(target=self._loop.run_forever, name="sampled", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()

    async def _open(self) -> None:
        self._session = _session()
        reply = await self._answer("GET", "/v1/models", SHORT)
        self._model = reply["data"][0]["id"]
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """Check the server regularly: requests to a lost machine neither get a reply nor end."""
        while True:
            await asyncio.sleep(SHORT)
            with suppress(ServiceError):  # `check` reports it
                await self._answer("GET", "/health", SHORT)

    def ask(self, requests: Sequence[RolloutRequest]) -> None:
        for request in requests:
            for place in request.places:
                asked = asyncio.run_coroutine_threadsafe(self._attempt(request, place), self._loop)
                asked.add_done_callback(self._receive_end)

    def _receive_end(self, asked: Future) -> None:
        if not asked.cancelled() and (error := asked.exception()):
            self._fault = self._fault or f"{type(error).__name__}: {error}"

    async def _attempt(self, request: RolloutRequest, place: int) -> None:
        entry, policy = self.entry, self._policy
        body = {
            "model": self._model,
            "prompt": [*request.prompt],
            "max_tokens": entry.max_tokens,
            **NEUTRAL,  # otherwise the server fills in values from the `generation_config.json` of its model
            "temperature": entry.temperature if request.temperature is None else request.temperature,
            "top_p": entry.top_p,
            "top_k": entry.top_k or 0,
            "min_p": entry.min_p or 0.0,
            "logprobs": 0,
            "return_token_ids": True,
            "seed": derive_seed(entry.seed, request.group, place),
        }
        choice = (await self._answer("POST", "/v1/completions", body=body))["choices"][0]
        ids, drawn = np.array(choice["token_ids"], "i4"), np.array(choice["logprobs"]["token_logprobs"], "f4")
        self._tell(SampledRollout(request.group, place, policy, ids, drawn))

    async def _answer(self, method: str, path: str, seconds: float | None = None, body: Any = None) -> Any:
        """Return the server's reply, waiting at most `seconds` if set. The server may be away for PROOFMILL_CALL_STALL_SECONDS.

        Keeps the message of a refused request for `check`.
        """
        import aiohttp

        limit = aiohttp.ClientTimeout(total=seconds, sock_connect=SHORT)
        failures, since = 0, 0.0
        while True:
            begun = time.monotonic()
            try:
                async with self._session.request(method, f"{self.url}{path}", json=body, timeout=limit) as reply:
                    if reply.status == 200:
                        return await reply.json(content_type=None)
                    message, passing = f"{reply.status} {(await reply.text())[:300]}", reply.status in AWAY
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                message, passing = f"{type(error).__name__} {error}", True
            now = time.monotonic()
            if not failures or now - begun > 2 * SHORT:  # it was reachable until now
                since = now
            if not passing or now - since > self._patience:
                self._fault = message  # `check` reports it in full
                raise ServiceError(message)
            failures += 1
            await asyncio.sleep(backoff(failures))

    def check(self) -> None:
        if self._fault:
            raise ServiceError(
                f"{self.name}: the rollout server at {self.url} answers `{self._fault}`; expected completions of the "
                "model that is trained. Fix the server and rerun the same command to resume."
            )

    def coming(self, step: int) -> None:
        """Do nothing: until the weights have arrived, attempts start with the previous ones."""

    def report_weights(self, step: int) -> None:
        self._policy = step

    def stop(self) -> None:
        async def close() -> None:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await self._session.close()

        if self._thread is not None:  # None if the training ended before its first rollout
            asyncio.run_coroutine_threadsafe(close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()


def _session() -> Any:
    import aiohttp

    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
