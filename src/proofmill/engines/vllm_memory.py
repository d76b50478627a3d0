"""Choose vLLM's memory settings from the model's shape and the free memory.

By default vLLM takes a share of all memory, some of which other processes may hold, and a context that may not fit. If
the engine has the GPU for itself, the default share is right; the context is shortened if the cache cannot hold one.
Next to a training, vLLM gets the memory that the training leaves while sampling, and sleeps during optimization.

These settings only limit how many tokens are processed at once. An output does not depend on the others in its batch,
up to rounding of sums. The context is never shortened silently, because that would make rows `too-long`.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from proofmill.schema.errors import SettingError
from proofmill.training import memory

AT_ONCE = 256  # outputs generated at once
HELD = 256  # tokens of each of them, on average; more cache does not increase the speed
LIBRARIES = 1.8e9  # bytes of a process that has loaded torch and vLLM (measured: 1.6 to 1.9 GB)
SHORTEST = 1024  # tokens of the shortest useful context
GRAIN = 256  # tokens; a multiple of vLLM's blocks
PREFILL = 2048  # minimum tokens of prompts that are read in one step
# On a GPU: the default share of vLLM 0.31, and its share next to a training if it must stay awake.
ALONE, AWAKE = 0.92, 0.3
READ = 16384  # tokens of prompts that vLLM 0.31 reads in one step on a GPU, at most (`max_num_batched_tokens`)
GRAPHS = 1.5e9  # bytes of CUDA, its graphs and communication in addition to what a step needs (assumed)
SAMPLER = 6  # bytes per word of the vocabulary and sequence: logits in bfloat16 and in float32
# On a CPU, vLLM crashes if requests have seeds and prompts are read in chunks ("CPU Generator does not use offset").
# So a prompt is read at once, even if a profile says otherwise.
AT_A_TIME = {"enable_chunked_prefill": False}
# Compiling takes minutes; bfloat16 is not faster, and less exact.
ON_CPU = {"enforce_eager": True, "dtype": "float32"}
# vLLM's memory options: if a profile sets one, nothing is chosen here.
MEMORY = ("gpu_memory_utilization", "kv_cache_memory_bytes", "max_num_batched_tokens")


@dataclass(frozen=True)
class Fit:
    """The options of an engine, and a sentence about the choice ("" if nothing was chosen)."""

    options: Mapping[str, Any]
    notice: str = ""
    shortened: str = ""  # why the context is shorter than the model's, if it is
    model_context: int = 0  # tokens of the model's own context


def fit(name: str, weights: Path, asked: Mapping[str, Any], threads: int, cuda: bool) -> Fit:
    """Return vLLM's options for a model on this machine; those in `asked`, from a profile, take precedence.

    Raises SettingError if the model cannot fit, before anything is loaded.
    """
    always = {"max_num_seqs": AT_ONCE}
    if cuda:
        return _on_gpu(name, weights, {**always, **asked})
    if any(option in asked for option in MEMORY) or "VLLM_CPU_KVCACHE_SPACE" in os.environ:
        return Fit({**always, **ON_CPU, **asked, **AT_A_TIME})
    free, _ = memory.device_memory()
    network = memory.build_empty(weights)
    context = memory.context_of(network)
    if context is None:  # a model without positions: leave the choice to vLLM
        return Fit({**always, **ON_CPU, **asked, **AT_A_TIME})
    wanted = min(asked.get("max_model_len") or context, context)
    seqs = asked.get("max_num_seqs", AT_ONCE)
    each, reading = memory.key_value_cache(network, 1), bytes_to_read(network)
    fixed = memory.parameters(network) * memory.WIDTH["float32"] + LIBRARIES
    minimum = fixed + min(wanted, SHORTEST) * each + PREFILL * reading
    part = memory.TIGHT * memory.part_of_machine(threads)
    room = float("inf") if free is None else free * part - fixed
    tokens = room_for(room, each, reading, wanted)
    if tokens < min(wanted, SHORTEST):
        raise SettingError(
            f"{name}: vLLM needs at least {memory.size(minimum)} for it ({memory.size(fixed)} of that for weights and libraries), "
            f"and this job may use {memory.size((free or 0) * part)}, {part:.0%} of the {memory.size(free or 0)} that are "
            "free; expected a model that fits. Stop other programs, give the job more of the machine's threads (`threads` of "
            "its rule), or use a smaller model."
        )
    batched = max(tokens, PREFILL, seqs)
    cache = int(min(room - batched * reading, max(tokens, seqs * min(tokens, HELD)) * each))
    chosen = {"max_model_len": tokens, "max_num_batched_tokens": batched, "kv_cache_memory_bytes": cache}
    held = cache / each
    notice = (
        f"vLLM may hold {held:,.0f} tokens of answers and prompts in {memory.size(cache)}, next to {memory.size(fixed)} for "
        f"weights and libraries; a context has up to {tokens:,} tokens"
    )
    shortened = ""
    if tokens < wanted:
        shortened = f"the model's context of {wanted:,} tokens does not fit in {memory.size((free or 0) * part)}, one of {tokens:,} does"
    return Fit({**always, **ON_CPU, **chosen, **asked, **AT_A_TIME, "max_model_len": tokens}, notice, shortened, wanted)


def gigabytes_for_rollouts(weights: Path, tokens: int) -> int:
    """Return the GiB of cache that hold `tokens` of a rollout batch, and at least one full context."""
    network = memory.build_empty(weights)
    held = max(tokens, network.config.get_text_config().max_position_embeddings)
    return math.ceil(memory.key_value_cache(network, held) / 2**30)


def _on_gpu(name: str, weights: Path, options: Mapping[str, Any]) -> Fit:
    """Return the options, with a shorter context if the cache requires it. Raises SettingError if none fits."""
    device_bytes, _ = memory.device_memory()
    network = memory.build_empty(weights)
    context = memory.context_of(network)
    quantization = read_quantization(network)
    chosen = options.keys() & {"max_model_len", "kv_cache_memory_bytes"}
    if context is None or device_bytes is None or chosen or quantization not in ("", "fp8", "mxfp4"):
        return Fit(options)
    share, parallel = options.get("gpu_memory_utilization", ALONE), options.get("tensor_parallel_size", 1)
    tokens = count_cached_tokens(network, share * device_bytes, parallel, quantization)
    if tokens >= context:
        return Fit(options)
    if tokens < min(context, SHORTEST):
        raise SettingError(
            f"{name}: vLLM may take {memory.size(share * device_bytes)} of each GPU, and the weights alone take "
            f"{memory.size(weights_on_gpu(network, parallel, quantization))} of it; expected room for a context, too. Distribute "
            "the weights with `--tensor-parallel-size` in `engine_args`, or use a larger GPU."
        )
    tokens = tokens // GRAIN * GRAIN
    room = memory.size(share * device_bytes)
    shortened = f"the model's context of {context:,} tokens does not fit in {room} of a GPU, one of {tokens:,} does"
    return Fit({**options, "max_model_len": tokens}, shortened, shortened, context)


def fit_next_to_training(
    name: str, network: Any, resident: int, device_bytes: int, tokens: int, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """Return vLLM's options for rollouts of at most `tokens` on GPUs that always hold `resident` bytes of the training.

    vLLM sleeps during optimization; while sampling it gets the memory that the resident part leaves. Its context is the
    model's, or as much of it as the cache holds. Options in `asked` take precedence. Raises SettingError if the cache
    holds less than one rollout.
    """
    sleeps = asked.get("enable_sleep_mode", True)
    share = asked.get("gpu_memory_utilization", share_left(resident, device_bytes) if sleeps else AWAKE)
    parallel = asked.get("tensor_parallel_size", 1)
    held = count_cached_tokens(network, share * device_bytes, parallel)
    if held < tokens:
        raise SettingError(
            f"{name}: next to the training, which holds {memory.size(resident)} all the time, vLLM may take "
            f"{memory.size(share * device_bytes)} of each GPU, and its cache would hold {held:,} tokens; expected room for one rollout of "
            f"{tokens:,}. Distribute vLLM's weights with `--tensor-parallel-size`, the training's with FSDP2, or use a vLLM server."
        )
    context = asked.get("max_model_len") or min(memory.context_of(network) or held, held)
    return {**asked, "enable_sleep_mode": sleeps, "gpu_memory_utilization": share, "max_model_len": context}


def share_left(resident: int, device_bytes: int) -> float:
    """Return the share of a GPU's `device_bytes` that is left to vLLM if the training always holds `resident` bytes."""
    return max(0.0, math.floor(100 * (memory.TIGHT - resident / device_bytes)) / 100)


def count_cached_tokens(network: Any, room: float, parallel: int = 1, stored: str = "") -> int:
    """Return the tokens in vLLM's cache with `room` bytes on each of `parallel` GPUs that share the weights."""
    left = room - weights_on_gpu(network, parallel, stored) - working_bytes(network, parallel)
    return max(0, int(left / cache_bytes(network, parallel)))


def shares(network: Any, devices: int) -> list[int]:
    """Return the numbers of GPUs over which vLLM can split a model: powers of two that divide its heads.

    Key-value heads must divide evenly, or be replicated evenly; vLLM refuses other numbers.
    """
    model_config = network.config.get_text_config()
    heads = model_config.num_attention_heads
    groups = getattr(model_config, "num_key_value_heads", None) or heads
    numbers = [p for p in (1, 2, 4, 8) if p <= devices and devices % p == 0 and heads % p == 0]
    return [p for p in numbers if groups % p == 0 or p % groups == 0]


def shares_for(network: Any, devices: int, room: float, tokens: int, stored: str = "") -> list[int]:
    """Return the numbers of GPUs on which vLLM, with `room` bytes of each, holds a model and a row of `tokens`."""
    return [p for p in shares(network, devices) if count_cached_tokens(network, room, p, stored) >= tokens]


def count_server_bytes(network: Any, gpus: int) -> int:
    """Return vLLM's host memory in bytes: one process per GPU and one more, and the files that it reads."""
    return round((gpus + 1) * LIBRARIES) + memory.WIDTH["bfloat16"] * memory.parameters(network)


def working_bytes(network: Any, parallel: int = 1) -> float:
    """Return the bytes of vLLM on a GPU in addition to weights and cache, as its profile at the start allocates them.

    A step over READ tokens holds the residual stream twice, and a layer's factor, gate and product. vLLM reported 1.26 GiB
    for 8,192 tokens of Llama-3-8B (its pull request 10511); the same sum, without GRAPHS, is 1.11 GiB.
    """
    residual, _, _, inside = memory.widths(network)
    layer = READ * memory.WIDTH["bfloat16"] * (2 * residual + 3 * inside / parallel)
    return GRAPHS + layer + AT_ONCE * network.config.get_text_config().vocab_size * SAMPLER


def read_quantization(network: Any) -> str:
    """Return the quantization of a model's files, such as `fp8`; "" without one."""
    return (getattr(network.config, "quantization_config", None) or {}).get("quant_method", "")


def weights_on_gpu(network: Any, parallel: int = 1, stored: str = "") -> float:
    """Return the bytes of weights on each of `parallel` GPUs. vLLM loads float32 as bfloat16, `fp8` and `mxfp4` as they are.

    mxfp4 has 4 bits for each weight of the experts, and 8 for each block of 32; all others are bfloat16.
    """
    total, wide = memory.parameters(network), memory.WIDTH["bfloat16"]
    if stored == "mxfp4":
        return (wide * total - (wide - 17 / 32) * experts(network)) / parallel
    return total * (1 if stored == "fp8" else wide) / parallel


@lru_cache(maxsize=64)
def experts(network: Any) -> int:
    """Return the number of weights in a model's experts; 0 without any."""
    return sum(weight.numel() for name, weight in network.named_parameters() if ".experts." in name)


def cache_bytes(network: Any, parallel: int = 1) -> float:
    """Return the bytes per token in vLLM's cache on each of `parallel` GPUs: keys and values of all layers in bfloat16.

    A GPU holds complete key groups, at least one. It holds all of DeepSeek's latent, which all heads read
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
    """Raise SettingError if a request is too long for the shortened context, but not for the model."""
    if fit.shortened and tokens <= fit.model_context:
        raise SettingError(
            f"{name}: a prompt with its answer has {tokens:,} tokens, and {fit.shortened}; expected room for it. Lower "
            "`max-tokens`, stop other programs, or set `--max-model-len` in `engine_args`, so that such rows become `too-long`."
        )


def room_for(room: float, each: float, reading: float, wanted: int) -> int:
    """Return the tokens of the longest context that can be read and cached in `room` bytes, at most `wanted`."""
    tokens = int(min(wanted, room / (each + reading), (room - PREFILL * reading) / each))
    return tokens if tokens >= wanted else max(0, tokens // GRAIN * GRAIN)


def bytes_to_read(network: Any) -> int:
    """Return the bytes of activations per prompt token in one step: one layer's, a sum and its parts."""
    residual, queries, keys, inside = memory.widths(network)
    return memory.WIDTH["float32"] * (4 * residual + 2 * queries + 2 * keys + 3 * inside)
