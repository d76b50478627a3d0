"""A teacher behind a service (`proofmill serve`): vLLM scores rollouts as prompts, so no weights are loaded here.

The service has the weights' digest as its name, and refuses calls for others. Its log-probabilities are at
temperature 1, and differ from those of loaded weights by rounding. Each process of a training asks for its own rollouts.
"""

import asyncio
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from proofmill.artifacts.jobs import Job
from proofmill.calls.pacing import FIRST, backoff
from proofmill.engines.remote import AWAY
from proofmill.engines.services.balancing import Balance
from proofmill.engines.services.directory import Service
from proofmill.runtime import environment
from proofmill.runtime.progress import ProgressRate, log
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.errors import ServiceError, SettingError

CONNECT = 10.0  # seconds


class ServedTeacher:
    """The teacher of an entry, as long as it is a service; the service does not end meanwhile."""

    def __init__(self, entry: Grpo, job: Job):
        """Find the service. Raises SettingError for another temperature than 1."""
        assert entry.teacher is not None, "there is a teacher"
        if entry.temperature != 1:
            raise SettingError(
                f"{job.name}: `temperature` is {entry.temperature:g} and {environment.variable(entry.teacher)}_URL={environment.SERVICE}; expected a "
                "temperature of 1, because a service returns no other log-probabilities. Unset the variable, so that the "
                "teacher is loaded, or set `temperature: 1`."
            )
        service = Service(entry.teacher, job.table.results)
        self.job, self.name, self.model = job.name, entry.teacher, job.parent(entry.teacher).model
        self._kept = service.keep_alive()
        self._kept.__enter__()  # until this process ends
        self._balance, self._key = Balance(service), service.key()
        self._patience = environment.seconds("PROOFMILL_CALL_STALL_SECONDS", 600.0)
        self._at_once = environment.number("PROOFMILL_CONCURRENCY", int) or FIRST

    def score_rollouts(self, outputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the log-probabilities of the tokens of a rollout batch, shape (N, T); 0 for padding.

        Raises ServiceError if the service is away for PROOFMILL_CALL_STALL_SECONDS, or replies otherwise than expected.
        """
        rows = [
            tuple(
                outputs[f"{side}_ids"][row][outputs[f"{side}_mask"][row].bool()].tolist()
                for side in ("prompt", "completion")
            )
            for row in range(len(outputs["completion_ids"]))
        ]
        logprobs = torch.zeros(outputs["completion_ids"].shape)
        for row, values in enumerate(asyncio.run(self._score_all(rows))):
            logprobs[row, : len(values)] = torch.tensor(values)
        return logprobs.to(outputs["completion_ids"].device)

    async def _score_all(self, rows: Sequence[Sequence[list[int]]]) -> list[list[float]]:
        import aiohttp

        limit = aiohttp.ClientTimeout(environment.seconds("PROOFMILL_CALL_TIMEOUT", 600.0), sock_connect=CONNECT)
        in_turn, self._heard = asyncio.Semaphore(self._at_once), time.monotonic()
        self._waiting = ProgressRate()
        async with aiohttp.ClientSession(timeout=limit, headers={"Authorization": f"Bearer {self._key}"}) as session:

            async def score(prompt: list[int], ids: list[int]) -> list[float]:
                async with in_turn:
                    return await self._score(session, prompt, ids) if ids else []

            return await asyncio.gather(*(score(prompt, ids) for prompt, ids in rows))

    async def _score(self, session: Any, prompt: list[int], ids: list[int]) -> list[float]:
        """Ask a replica for one rollout, again while the service is away."""
        import aiohttp

        body = {"model": self.model, "prompt": [*prompt, *ids], "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        failures = 0
        while True:
            if (replica := await self._balance.choose()) is None:
                message = self._balance.absent()
            else:
                try:
                    with self._balance.asking(replica):
                        async with session.post(f"{replica.url}/completions", json=body) as reply:
                            if reply.status == 200:
                                self._heard = time.monotonic()
                                return self._read(await reply.read(), prompt, ids)
                            message, passing = f"{reply.status} {(await reply.text())[:300]}", reply.status in AWAY
                            if not passing:
                                raise self._error(message, "a vLLM server of these weights")
                except (TimeoutError, aiohttp.ClientError, OSError) as error:
                    message = f"{type(error).__name__} {error}"
                self._balance.avoid(replica)
                failures += 1
                await asyncio.sleep(min(backoff(failures), self._patience / 4))
            if time.monotonic() - self._heard > self._patience:
                raise self._error(message, f"an answer within {self._patience:g} s (PROOFMILL_CALL_STALL_SECONDS)")
            if self._waiting.is_due():
                log(self.job, f"waits for its teacher {self.name}: {message}")

    def _read(self, reply: bytes, prompt: list[int], ids: list[int]) -> list[float]:
        """Return the log-probability of each of the rollout's tokens from a reply, which must be about just these."""
        try:
            found = json.loads(reply)["choices"][0]["prompt_logprobs"]
            if len(found) != len(prompt) + len(ids):
                raise ValueError(f"{len(found)} tokens")
            values = [float(at[str(token)]["logprob"]) for at, token in zip(found[len(prompt) :], ids, strict=True)]
            if not all(map(math.isfinite, values)):
                raise ValueError("a value that is no number")
            return values
        except (KeyError, IndexError, TypeError, ValueError) as error:
            fault = f"a reply without the log-probabilities of {len(prompt)} + {len(ids)} tokens ({type(error).__name__}: {error})"
            raise self._error(fault, "`prompt_logprobs` of vLLM") from error

    def _error(self, found: str, expected: str) -> ServiceError:
        return ServiceError(
            f"{self.job}: its teacher, the service of {self.name}, answered: {found}; expected {expected}. Serve it: proofmill serve "
            f"{self.name}. Rerun the same command to resume."
        )
