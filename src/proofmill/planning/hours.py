"""GPU-hours of training and sampling, from tokens, the shape of a model, and assumed rates: a fast and a slow end.

Training: 6 operations per parameter and token (2 forward, 4 backward; Kaplan et al. 2020, section 2.1), a third more with
activation recomputation, 2 for each further forward pass (a reference, a teacher, old probabilities), and attention over
half of the keys. Communication between GPUs, and what offloading copies and computes on the host, take further time.

Sampling with vLLM: prompts are read at the rate of a forward pass. A step generates one token of each sequence that the
cache holds at its mean length. It takes the longer of reading the weights and caches once, and of 2 operations per
parameter and token (Pope et al. 2022, section 2). At the end of a batch the GPUs wait for the longest sequence. Tests of
programs, saving, loading and failures are not included.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proofmill.engines import vllm_memory
from proofmill.planning.machines import Gpu
from proofmill.training import memory

# Of each assumption the fast end and the slow end: the best and the worst that was measured on an H100
# (docs/performance.md#rates-of-a-gpu), and for the last two none and all of it.
LEARNING = np.array([0.61, 0.20])  # share of the GPU's peak rate in training, and of long batches in sampling
READING = np.array([0.78, 0.30])  # share of the GPU's bandwidth in sampling
COPYING = np.array([54e9, 6e9])  # bytes per second between GPU and host, pinned and pageable; also of weights for vLLM
ADAMW = np.array([4.3e9, 0.8e9])  # parameters per second of AdamW on the host, with 16 threads and (by torchrun) one
EXPOSED = np.array([0, 1])  # share of the communication between GPUs that computation does not hide
TAIL = np.array([0, 1])  # share of the tokens from the mean to the maximum length that a batch waits for its longest
# A layout with offloading, or with more GPUs than needed to hold vLLM's weights, is chosen only if it is faster by this
# factor (assumed), since its further communication has no price here.
GAIN = 1.5
NETWORK = 50e9  # bytes per second and GPU between nodes: 400 Gb/s, as of DGX H100
EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")  # field names in model configurations

Ends = NDArray[np.float64]  # the fast and the slow end of a figure


@dataclass(frozen=True)
class Estimate:
    """The GPU-hours in which a stage computes (`busy`), and its hours (`wall`) on its `gpus`, at both ends."""

    busy: Ends
    wall: Ends
    gpus: int

    @property
    def booked(self) -> Ends:
        return self.gpus * self.wall

    @property
    def days(self) -> Ends:
        return self.wall / 24

    def data(self) -> dict[str, list[float]]:
        """Return its figures as JSON data."""
        return {part: getattr(self, part).tolist() for part in ("busy", "booked", "days")}


@dataclass(frozen=True)
class Rollouts:
    """Texts to sample: their number, the tokens of a prompt, the mean tokens of a text, and of the longest one."""

    rows: float
    prompt: float
    written: float
    longest: float = 0


@dataclass(frozen=True)
class Server:
    """A vLLM server."""

    gpu: Gpu
    room: float  # bytes of a GPU that it may use
    parallel: int = 1  # GPUs of a replica
    most: float = vllm_memory.AT_ONCE  # sequences of a replica
    stored: str = ""  # `fp8` or `mxfp4`: weights that vLLM reads in 8 or 4 bits


def learning(network: Any, tokens: float, length: float, gpu: Gpu, precision: str, again: bool, more: float) -> Ends:
    """Return the GPU-hours of training on `tokens` in rows of mean `length`, with `more` further forward passes."""
    forward = 2 * active(network) + attention(network, length)
    return tokens * forward * (3 + again + more) / (getattr(gpu, precision) * LEARNING) / 3600


def sampling(network: Any, texts: Rollouts, server: Server) -> tuple[Ends, Ends]:
    """Return the GPU-hours in which a server reads and writes texts, and those of waiting for the longest of each `most`."""
    length = texts.prompt + texts.written / 2  # mean during generation
    held = vllm_memory.count_cached_tokens(network, server.room, server.parallel, server.stored) / max(length, 1)
    at_once = max(1.0, min(server.most, vllm_memory.AT_ONCE, held))
    read = texts.prompt * (2 * active(network) + attention(network, texts.prompt)) / (server.gpu.bfloat16 * LEARNING)
    wrote = texts.written / at_once * step(network, at_once, length, server)
    left = TAIL * max(0.0, texts.longest - texts.written) / server.most
    waited = left * step(network, 1, texts.prompt + texts.longest, server)
    return texts.rows * (read + wrote) / 3600, texts.rows * waited / 3600


def serving(network: Any, texts: Rollouts, server: Server) -> Estimate:
    """Return the estimate of a stage that only samples, on one replica."""
    busy, waited = sampling(network, texts, server)
    return Estimate(busy, (busy + waited) / server.parallel, server.parallel)


def step(network: Any, at_once: float, length: float, server: Server) -> Ends:
    """Return the seconds of one GPU for the next token of each of `at_once` sequences of `length` tokens."""
    # Each GPU of a replica reads its copy of a cache that several hold.
    caches = at_once * length * server.parallel * vllm_memory.cache_bytes(network, server.parallel)
    read = vllm_memory.weights_on_gpu(network, 1, server.stored) + caches
    calculated = at_once * (2 * active(network) + attention(network, 2 * length))
    return np.maximum(read / (server.gpu.bandwidth * READING), calculated / (server.gpu.bfloat16 * LEARNING))


def exchanging(parameters: int, trained: int, gathered: float, link: float) -> Ends:
    """Return the seconds per step and GPU of communication over `link` that computation does not hide.

    FSDP2 gathers bfloat16 weights twice and reduces float32 gradients in each of `gathered` micro-batches (ZeRO, section
    7.2.2). DDP (`gathered` 0) sends and receives float32 gradients once per step.
    """
    return EXPOSED * (gathered * (4 * parameters + 4 * trained) or 8 * trained) / link


def offloading(parameters: int, trained: int, inputs: float, devices: int, micro_batches: float) -> Ends:
    """Return the seconds per step and GPU that offloading adds, with layer `inputs` in bytes of a micro-batch.

    Each micro-batch copies a shard of float32 weights to the GPU twice, its gradients back, and inputs out and in.
    """
    copied = (8 * parameters + 4 * trained) / devices + 2 * inputs
    return micro_batches * copied / COPYING + trained / devices / ADAMW


@lru_cache(maxsize=64)
def active(network: Any) -> float:
    """Return the active parameters of a token: all, except the experts that it is not routed to."""
    config = network.config.get_text_config()
    experts = next((n for name in EXPERTS if (n := getattr(config, name, None))), None)
    if not experts:
        return memory.parameters(network)
    return memory.parameters(network) - vllm_memory.experts(network) * (1 - config.num_experts_per_tok / experts)


def attention(network: Any, length: float) -> float:
    """Return the forward attention operations of a token: two products with half of a row's keys, in each layer."""
    queries = memory.widths(network)[1]
    return network.config.get_text_config().num_hidden_layers * 2 * 2 * queries * length / 2
