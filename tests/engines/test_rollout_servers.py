"""Sampling ahead of a training, and rollouts that are reported while vLLM samples others, with a real vLLM."""

import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from proofmill.engines.rollout_servers.samplers import ServerSampler
from proofmill.engines.servers import Server
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.errors import ServiceError
from proofmill.training.asynchronous.sampler import RolloutRequest

pytestmark = [pytest.mark.vllm, pytest.mark.long]
FIXTURES = Path(__file__).parents[1] / "fixtures"
SECONDS = 240.0
FLAGS = [
    *("--enforce-eager", "--dtype", "float32", "--max-model-len", "256", "--gpu-memory-utilization", "0.1"),
    *("--max-num-seqs", "64", "--max-num-batched-tokens", "16384"),
    *("--weight-transfer-config", '{"backend":"nccl"}'),
]
ENTRY = Grpo(
    model="sft/cold", problems="problems/train", grader="arithmetic", unscored="drop", rewards={"grade": 1}, steps=1,
    group_size=4, problems_per_step=2, max_tokens=24, temperature=0.7, max_staleness=2,
)  # fmt: skip


@contextmanager
def serving(small, mode):
    """Yield the URL of vLLM's server with the small model, which returns log-probabilities in this mode."""

    def command(port):
        model = ["--model", str(small.table("sft/cold").weights()), "--served-model-name", "tiny", "--port", str(port)]
        return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *model, *FLAGS, "--logprobs-mode", mode]

    environment = {"OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_SERVER_DEV_MODE": "1"}
    with Server("sft/cold", command, SECONDS, environment) as server:
        server.start()
        yield server.url.removesuffix("/v1")


@pytest.fixture(scope="module")
def server(small):
    """Yield the URL of a server that returns log-probabilities at the sampling temperature."""
    with serving(small, "processed_logprobs") as url:
        yield url


def test_attempts_of_a_server_have_the_probabilities_of_their_draw(server, small):
    """Each attempt arrives once, and they differ. The served model gives their tokens the same log-probabilities."""
    _check_attempts(server, small, ENTRY)


def test_probabilities_of_a_restricted_draw_are_over_all_tokens(small):
    """At temperature 1, in the mode that `check_settings` accepts, they are not renormalized over the three tokens."""
    with serving(small, "raw_logprobs") as url:
        _check_attempts(url, small, replace(ENTRY, temperature=1.0, top_k=3))


def _check_attempts(server, small, entry):
    found, all_there = [], threading.Event()

    def tell(attempt):
        found.append(attempt)
        if len(found) == 6:
            all_there.set()

    sampler = ServerSampler("grpo/x", server, entry)
    sampler.check_settings()
    sampler.start(tell)
    sampler.report_weights(3)
    prompts = {7: [5, 6, 7, 8], 8: [9, 10, 11]}
    sampler.ask([RolloutRequest(7, prompts[7], [0, 1, 2, 3]), RolloutRequest(8, prompts[8], [1, 3])])
    assert all_there.wait(SECONDS)
    sampler.check()
    sampler.stop()
    assert sorted((a.group, a.place) for a in found) == [(7, 0), (7, 1), (7, 2), (7, 3), (8, 1), (8, 3)]
    assert {a.policy_step for a in found} == {3} and len({tuple(a.ids_T) for a in found}) > 3
    model = AutoModelForCausalLM.from_pretrained(small.table("sft/cold").weights(), dtype="float32")
    for a in found:
        prompt = prompts[a.group]
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *a.ids_T.tolist()]])).logits[0, len(prompt) - 1 : -1]
        logprobs = (logits / entry.temperature).log_softmax(-1)
        wanted = logprobs.gather(1, torch.tensor(a.ids_T).long()[:, None]).squeeze(1)
        assert entry.top_k is None or (logprobs > wanted[:, None] + 1e-4).sum(-1).max() < entry.top_k
        assert torch.allclose(torch.tensor(a.logprobs_T), wanted, atol=1e-3)


def test_server_that_refuses_is_named_with_its_message(server):
    """A prompt that the server refuses ends the training with the server's message."""
    sampler = ServerSampler("grpo/x", server, ENTRY)
    sampler.start(lambda attempt: None)
    sampler.ask([RolloutRequest(0, [5] * 1000, [0])])
    for _ in range(100):
        if sampler._fault:
            break
        threading.Event().wait(0.2)
    with pytest.raises(ServiceError, match=rf"grpo/x: the rollout server at {server} answers `400 "):
        sampler.check()
    sampler.stop()


def test_judge_is_asked_while_vllm_writes_other_rollouts(small, tmp_path):
    """Also with vLLM in the process of the training: sampling continues only after a call to the judge."""
    command = [sys.executable, str(FIXTURES / "received_rollouts.py"), str(small.results), "sft/cold"]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    received, of = map(int, re.search(r"received (\d+) of (\d+)", done.stdout).groups())
    assert received == of > 0
