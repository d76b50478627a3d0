"""What vLLM may take of a machine's memory: chosen from the model's shape, and from the memory that is free.

vLLM's own defaults are a share of all memory that others may hold already, and a context that may not fit. On a GPU
that is the engine's alone the share is right, and the context is shortened where the cache would not hold one. Beside
a training vLLM gets what the training leaves while it samples, and sleeps while it learns.

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
# On a GPU: the share that vLLM 0.31 takes by itself, and the share beside a training that it must not sleep for.
ALONE, AWAKE = 0.92, 0.3
WORKING = 4e9  # bytes of vLLM on a GPU besides weights and cache: CUDA, its graphs, the reading of prompts (assumed)
# A seed for each answer and a prompt read in parts end vLLM on a CPU ("CPU Generator does not use offset"), so a prompt
# is read at once, whatever a profile says.
AT_A_TIME = {"enable_chunked_prefill": False}
# Compiling takes minutes; bfloat16 is no faster and rounds.
ON_CPU = {"enforce_eager": True, "dtype": "float32"}
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
    if cuda:
        return _on_gpu(name, weights, {**always, **asked})
    if any(option in asked for option in MEMORY) or "VLLM_CPU_KVCACHE_SPACE" in os.environ:
        return Fit({**always, **ON_CPU, **asked, **AT_A_TIME})
    there, _ = memory.device_memory()
    network = memory.made(weights)
    context = memory.context_of(network)
    if context is None:  # a model without positions: vLLM knows better
        return Fit({**always, **ON_CPU, **asked, **AT_A_TIME})
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
    return Fit({**always, **ON_CPU, **chosen, **asked, **AT_A_TIME, "max_model_len": tokens}, said, shortened, wanted)


def gigabytes_for_rollouts(weights: Path, tokens: int) -> int:
    """GiB in which vLLM holds the rollouts of a round beside their training, and at least one whole context."""
    network = memory.made(weights)
    held = max(tokens, network.config.get_text_config().max_position_embeddings)
    return math.ceil(memory.key_value_cache(network, held) / 2**30)


def _on_gpu(name: str, weights: Path, options: Mapping[str, Any]) -> Fit:
    """The options as they are, with a shorter context where vLLM would hold no whole one; SettingError if none at all."""
    there, _ = memory.device_memory()
    network = memory.made(weights)
    context = memory.context_of(network)
    quantization = stored(network)
    told = options.keys() & {"max_model_len", "kv_cache_memory_bytes"}
    if context is None or there is None or told or quantization not in ("", "fp8"):
        return Fit(options)
    share, parallel = options.get("gpu_memory_utilization", ALONE), options.get("tensor_parallel_size", 1)
    tokens = held_on_gpu(network, share * there, parallel, quantization)
    if tokens >= context:
        return Fit(options)
    if tokens < min(context, SHORTEST):
        raise SettingError(
            f"{name}: vLLM may take {memory.size(share * there)} of each GPU, and the weights alone take "
            f"{memory.size(weights_on_gpu(network, parallel, quantization))} of it; expected room for a context beside them. Share the "
            "weights out by `--tensor-parallel-size` in `engine_args`, or take a larger GPU."
        )
    tokens = tokens // GRAIN * GRAIN
    room = memory.size(share * there)
    shortened = f"the model's context of {context:,} tokens does not fit in {room} of a GPU, one of {tokens:,} does"
    return Fit({**options, "max_model_len": tokens}, shortened, shortened, context)


def beside_training(
    name: str, network: Any, resident: int, there: int, tokens: int, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """Options of vLLM for rollouts of at most `tokens` on GPUs that hold `resident` bytes of the training all the time.

    vLLM sleeps while the training learns, and while it samples it gets what the resident part leaves. Its context is the
    model's, or what its cache holds of it. What `asked` says wins. Raises SettingError when the cache holds no rollout.
    """
    sleeps = asked.get("enable_sleep_mode", True)
    share = asked.get("gpu_memory_utilization", share_left(resident, there) if sleeps else AWAKE)
    parallel = asked.get("tensor_parallel_size", 1)
    held = held_on_gpu(network, share * there, parallel)
    if held < tokens:
        raise SettingError(
            f"{name}: beside the training, which holds {memory.size(resident)} all the time, vLLM may take "
            f"{memory.size(share * there)} of each GPU, and its cache would hold {held:,} tokens; expected room for one rollout of "
            f"{tokens:,}. Share vLLM's weights out by `--tensor-parallel-size`, the training's by FSDP2, or ask a vLLM server."
        )
    context = asked.get("max_model_len") or min(memory.context_of(network) or held, held)
    return {**asked, "enable_sleep_mode": sleeps, "gpu_memory_utilization": share, "max_model_len": context}


def share_left(resident: int, there: int) -> float:
    """Return the share of a GPU that a training leaves to vLLM, if it holds so many bytes all the time."""
    return max(0.0, math.floor(100 * (memory.TIGHT - resident / there)) / 100)


def held_on_gpu(network: Any, room: float, parallel: int = 1, stored: str = "") -> int:
    """The tokens that vLLM's cache holds on GPUs of which it may take `room` bytes each, and which share the weights."""
    left = room - weights_on_gpu(network, parallel, stored) - WORKING
    return max(0, int(left / cache_bytes(network, parallel)))


def stored(network: Any) -> str:
    """Return how a model's files are quantized, such as `fp8`; "" for whole numbers."""
    return (getattr(network.config, "quantization_config", None) or {}).get("quant_method", "")


def weights_on_gpu(network: Any, parallel: int = 1, stored: str = "") -> float:
    """Bytes of the weights on each of the GPUs that share them; vLLM reads float32 ones as bfloat16, `fp8` as they are."""
    return memory.parameters(network) * (1 if stored == "fp8" else memory.WIDTH["bfloat16"]) / parallel


def cache_bytes(network: Any, parallel: int = 1) -> float:
    """Bytes of a token in vLLM's cache on each of the GPUs that share a model: keys and values of each layer in bfloat16.

    A GPU keeps whole groups of keys, at least one, and of DeepSeek's latent, which all heads read, all of it
    (`get_num_kv_heads` of vLLM's ModelConfig).
    """
    config = network.config.get_text_config()
    if latent := getattr(config, "kv_lora_rank", None):
        numbers, groups = latent + config.qk_rope_head_dim, 1
    else:
        groups = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        numbers = 2 * memory.widths(network)[2]
    return config.num_hidden_layers * numbers * memory.WIDTH["bfloat16"] / min(parallel, groups)


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
