"""GPU-hours of training and sampling, from tokens, the shape of a model, and two assumed utilizations.

Training: 6 operations per parameter and token (2 forward, 4 backward; Kaplan et al. 2020, section 2.1), a third more with
activation recomputation, 2 for each further forward pass (a reference, a teacher, old probabilities), and attention over half of the
keys, at LEARNING of the GPU's peak rate.

Sampling with vLLM: a step generates one token of each concurrent sequence. It takes the longer of reading the weights and
caches once, at READING of the bandwidth, and of 2 operations per parameter and token (Pope et al. 2022, section 2). The
number of concurrent sequences is what the cache holds at their mean length.

Not included: judges, tests of programs, saving, loading, and the end of a rollout batch, when few sequences are left.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from proofmill.engines import vllm_memory
from proofmill.planning.machines import Gpu
from proofmill.training import memory

LEARNING, READING = 0.4, 0.6  # assumed shares of the peak rate and of the bandwidth
EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")  # field names in model configurations


@dataclass(frozen=True)
class Rollouts:
    """Texts to sample: their number, the tokens of a prompt, and the mean tokens of a text."""

    rows: float
    prompt: int
    written: float


def learning(
    network: Any, tokens: float, length: float, gpu: Gpu, precision: str, again: bool, more: float = 0
) -> float:
    """Return the GPU-hours of training on `tokens` in rows of mean `length`, with `more` further forward passes."""
    forward = 2 * active(network) + attention(network, length)
    return tokens * forward * (3 + again + more) / (getattr(gpu, precision) * LEARNING) / 3600


def sampling(
    network: Any, texts: Rollouts, gpu: Gpu, room: float, parallel: int, most: float, stored: str = ""
) -> float:
    """Return the GPU-hours of sampling with replicas of `parallel` GPUs, where vLLM may use `room` bytes of each.

    most: maximum sequences of a replica. stored: `fp8` for weights that vLLM reads in 8 bits.
    """
    length = texts.prompt + texts.written / 2  # mean during generation
    held = vllm_memory.count_cached_tokens(network, room, parallel, stored) / max(length, 1)
    at_once = max(1.0, min(most, vllm_memory.AT_ONCE, held))
    # Sum over the GPUs: each reads its copy of a cache that several hold.
    caches = at_once * length * parallel * vllm_memory.cache_bytes(network, parallel)
    read = vllm_memory.weights_on_gpu(network, 1, stored) + caches
    calculated = at_once * (2 * active(network) + attention(network, 2 * length))
    step = max(read / (gpu.bandwidth * READING), calculated / (gpu.bfloat16 * LEARNING))  # seconds on a single GPU
    return texts.rows * texts.written / at_once * step / 3600


@lru_cache(maxsize=64)
def active(network: Any) -> float:
    """Return the active parameters of a token: all, except the experts that it is not routed to."""
    config = network.config.get_text_config()
    experts = next((n for name in EXPERTS if (n := getattr(config, name, None))), None)
    if not experts:
        return memory.parameters(network)
    inside = sum(weight.numel() for name, weight in network.named_parameters() if ".experts." in name)
    return memory.parameters(network) - inside * (1 - config.num_experts_per_tok / experts)


def attention(network: Any, length: float) -> float:
    """Return the forward attention operations of a token: two products with half of a row's keys, in each layer."""
    queries = memory.widths(network)[1]
    return network.config.get_text_config().num_hidden_layers * 2 * 2 * queries * length / 2
