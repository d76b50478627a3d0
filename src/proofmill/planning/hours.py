"""GPU-hours of learning and of sampling, from tokens, the shape of a model, and two assumed utilisations.

Learning: 6 operations a parameter and token (2 forwards, 4 backwards; Kaplan et al. 2020, section 2.1), a third more
where activations are computed again, 2 for each further forward pass (a reference, old probabilities), and attention
over half of the keys, at LEARNING of the GPU's rate.

Sampling by vLLM: a step writes one token of each sequence in work, and reads the weights and the caches once, at READING
of the bandwidth, or calculates 2 operations a parameter and token, whichever takes longer (Pope et al. 2022, section 2).
As many sequences are in work as the cache holds at their mean length.

Judges, programs that are tested, saving, loading, and the end of a round, when few sequences are left, are not in it.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from proofmill.engines import fitting
from proofmill.planning.machines import Gpu
from proofmill.training import memory

LEARNING, READING = 0.4, 0.6  # assumed shares of the rate and of the bandwidth
EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")  # what configurations call their number


@dataclass(frozen=True)
class Rollouts:
    """Texts to be sampled: their number, the tokens of a prompt, and the mean tokens of a text."""

    rows: float
    prompt: int
    written: float


def learning(network: Any, tokens: float, length: float, gpu: Gpu, precision: str, again: bool, more: int = 0) -> float:
    """Return the GPU-hours of learning so many tokens in rows of this mean length, with `more` further passes."""
    forward = 2 * active(network) + attention(network, length)
    return tokens * forward * (3 + again + more) / (getattr(gpu, precision) * LEARNING) / 3600


def sampling(
    network: Any, texts: Rollouts, gpu: Gpu, room: float, parallel: int, most: float, stored: str = ""
) -> float:
    """Return the GPU-hours of sampling by replicas of `parallel` GPUs, of which vLLM may take `room` bytes each.

    most: sequences that a replica has at all. stored: `fp8` for weights that vLLM reads in 8 bits.
    """
    length = texts.prompt + texts.written / 2  # on average while it is written
    held = fitting.held_on_gpu(network, room, parallel, stored) / max(length, 1)
    at_once = max(1.0, min(most, fitting.AT_ONCE, held))
    # Of the GPUs together: what several of them keep of a cache, each of them reads.
    caches = at_once * length * parallel * fitting.cache_bytes(network, parallel)
    read = fitting.weights_on_gpu(network, 1, stored) + caches
    calculated = at_once * (2 * active(network) + attention(network, 2 * length))
    step = max(read / (gpu.bandwidth * READING), calculated / (gpu.bfloat16 * LEARNING))  # seconds of one GPU alone
    return texts.rows * texts.written / at_once * step / 3600


@lru_cache(maxsize=64)
def active(network: Any) -> float:
    """Return the parameters that a token meets: all, but of experts those that it is sent to."""
    config = network.config.get_text_config()
    experts = next((n for name in EXPERTS if (n := getattr(config, name, None))), None)
    if not experts:
        return memory.parameters(network)
    inside = sum(weight.numel() for name, weight in network.named_parameters() if ".experts." in name)
    return memory.parameters(network) - inside * (1 - config.num_experts_per_tok / experts)


def attention(network: Any, length: float) -> float:
    """Return the operations of a token on keys and values, forwards: two products with half of a row's keys, in every layer."""
    queries = memory.widths(network)[1]
    return network.config.get_text_config().num_hidden_layers * 2 * 2 * queries * length / 2
