"""What vLLM may take of a CPU's memory: chosen from the model's shape, and from the memory that is free.

vLLM's own defaults are a share of all memory that others may hold already, and a context that may not fit. On a GPU,
which is the engine's alone, they do.

What is chosen is how many tokens are in work at once: an answer is the same, whatever is answered beside it, up to the
rounding of sums. It must not shorten the context in silence, which would make rows `too-long`.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofmill.schema.errors import SettingError
from proofmill.training import memory

AT_ONCE = 256  # answers written at once
HELD = 256  # tokens of each of them, on average, beyond which more room makes nothing faster
LIBRARIES = 1.8e9  # bytes of a process that has loaded torch and vLLM (measured: 1.6 to 1.9 GB)
SHORTEST = 1024  # tokens of a context below which starting is no use
GRAIN = 256  # tokens; a multiple of vLLM's blocks
PREFILL = 2048  # least tokens of prompts that are read in one step
# A seed for each answer and a prompt read in parts end vLLM on a CPU ("CPU Generator does not use offset"), so a prompt
# is read at once. Compiling takes minutes; bfloat16 is no faster and rounds.
ON_CPU = {"enforce_eager": True, "dtype": "float32", "enable_chunked_prefill": False}
# Options of vLLM that say what memory it takes: where a profile has one, nothing is chosen.
MEMORY = ("gpu_memory_utilization", "kv_cache_memory_bytes", "max_num_batched_tokens")


@dataclass(frozen=True)
class Fit:
    """The options of an engine, and what was chosen in a sentence ("" if nothing was)."""

    options: Mapping[str, Any]
    said: str = ""
    shortened: str = ""  # why the context is shorter than the model's, if it is
    whole: int = 0  # tokens of the model's own context


def fit(name: str, weights: Path, asked: Mapping[str, Any], threads: int, cuda: bool) -> Fit:
    """Options of vLLM for a model on this machine; those that a profile asks for win.

    Raises SettingError when the model cannot fit: nothing has been loaded yet.
    """
    always = {"max_num_seqs": AT_ONCE}
    if cuda or any(option in asked for option in MEMORY) or "VLLM_CPU_KVCACHE_SPACE" in os.environ:
        return Fit({**always, **({} if cuda else ON_CPU), **asked})
    there, _ = memory.device_memory()
    network = memory.made(weights)
    context = getattr(network.config.get_text_config(), "max_position_embeddings", None)
    if context is None:  # a model without positions: vLLM knows better
        return Fit({**always, **ON_CPU, **asked})
    wanted = min(asked.get("max_model_len") or context, context)
    seqs = asked.get("max_num_seqs", AT_ONCE)
    each, reading = memory.key_value_cache(network, 1), bytes_to_read(network)
    before = memory.parameters(network) * memory.WIDTH["float32"] + LIBRARIES
    least = before + min(wanted, SHORTEST) * each + PREFILL * reading
    part = memory.TIGHT * memory.part_of_machine(threads)
    room = float("inf") if there is None else there * part - before
    tokens = room_for(room, each, reading, wanted)
    if tokens < min(wanted, SHORTEST):
        raise SettingError(
            f"{name}: vLLM needs at least {memory.size(least)} for it ({memory.size(before)} of that for weights and libraries), "
            f"and this job may plan with {memory.size((there or 0) * part)}, {part:.0%} of the {memory.size(there or 0)} that are "
            "free; expected a model that fits. End what else runs, give the job more of the machine's threads (`threads` of "
            "its rule), or take a smaller model."
        )
    batched = max(tokens, PREFILL, seqs)
    cache = int(min(room - batched * reading, max(tokens, seqs * min(tokens, HELD)) * each))
    chosen = {"max_model_len": tokens, "max_num_batched_tokens": batched, "kv_cache_memory_bytes": cache}
    held = cache / each
    said = (
        f"vLLM may hold {held:,.0f} tokens of answers and prompts in {memory.size(cache)}, beside {memory.size(before)} for "
        f"weights and libraries; a context has up to {tokens:,} tokens"
    )
    shortened = ""
    if tokens < wanted:
        shortened = f"the model's context of {wanted:,} tokens does not fit in {memory.size((there or 0) * part)}, one of {tokens:,} does"
    return Fit({**always, **ON_CPU, **chosen, **asked, "max_model_len": tokens}, said, shortened, wanted)


def gigabytes_for_rollouts(weights: Path, tokens: int) -> int:
    """GiB in which vLLM holds the rollouts of a round beside their training, and at least one whole context."""
    network = memory.made(weights)
    held = max(tokens, network.config.get_text_config().max_position_embeddings)
    return math.ceil(memory.key_value_cache(network, held) / 2**30)


def check_length(fit: Fit, name: str, tokens: int) -> None:
    """SettingError for a question that is too long only for what was chosen, not for the model."""
    if fit.shortened and tokens <= fit.whole:
        raise SettingError(
            f"{name}: a prompt with its answer has {tokens:,} tokens, and {fit.shortened}; expected room for it. Ask for fewer "
            "`max-tokens`, end what else runs, or accept it as `too-long` by `--max-model-len` in `engine_args`."
        )


def room_for(room: float, each: float, reading: float, wanted: int) -> int:
    """The tokens of a context of which one fits, read at once and held, in so many bytes; at most `wanted`."""
    tokens = int(min(wanted, room / (each + reading), (room - PREFILL * reading) / each))
    return tokens if tokens >= wanted else max(0, tokens // GRAIN * GRAIN)


def bytes_to_read(network: Any) -> int:
    """Bytes for each token of the prompts that are read in one step: what a layer holds, a sum and its parts."""
    residual, queries, keys, inside = memory.widths(network)
    return memory.WIDTH["float32"] * (4 * residual + 2 * queries + 2 * keys + 3 * inside)
