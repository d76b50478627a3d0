"""Plan the memory of a training on each of its devices, by part, before anything is allocated.

From: the activations of a layer (Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer
Models, section 4), sharding (ZeRO, Rajbhandari et al. 2020, sections 3.1 and 5), 4-bit weights (QLoRA, Dettmers et al.
2023, section 3).

Differences from the originals:
1. Parameters are counted on the model itself, built without memory on torch's meta device; tied ones count once.
2. A layer is that of transformers' Llama, Mistral and Qwen: a gated feed-forward part, grouped keys, RMSNorm, no
   dropout, unfused operations. In bfloat16 (autocast), weights, gradients, moments and the residual stream stay in
   float32, and each linear layer keeps bfloat16 copies of its input and its weights. Where FSDP2 gathers weights in
   bfloat16, or an adapter leaves bfloat16 weights as they are, the residual stream is bfloat16 too.
3. TRL 1.16 never holds the logits of a batch (`add_fused_lm_head`): it computes them in one tile, forward and backward.
4. While rollouts are generated there are no gradients or activations, so rollouts have a sum of their own.

Accuracy (tests/training/test_memory.py, on a CPU): weights, gradients and moments are exact; activations are within
1.5 %, or up to 50 % too large with adapters. The sum is between 3 % too small and 25 % too large, most with
checkpointing, because the parts do not all peak at once. Not included: temporary memory of operations, CUDA itself (0.5
to 1 GB), fragmentation, and buffers of communication. All figures are from a CPU, FSDP2's activations too; 4 bits, ZeRO,
shares of FSDP2 and what is kept on the host follow papers and code.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from proofmill.runtime import free_memory

WIDTH = {"float32": 4, "bfloat16": 2}  # bytes of a number
TILE_TOKENS, TILE_WORDS = 4096, 32768  # trl.kernels.chunked_logprob, trl.trainer.utils
TILE_ON_CPU = 29  # temporary bytes per logit of a tile: seven float32 and a mask (`_backward_tile`); none with Triton
FOUR_BITS = 0.5 + 1 / 64 + 4 / (64 * 256)  # bytes of a weight: 8 bits for each block of 64, and 32 for each 256 blocks
RESIDENT = ("weights", "bfloat16 copies", "optimizer", "reference", "teacher", "reward models")
TIGHT = 0.9  # share of a device's memory above which the parts outside the plan may not fit


@dataclass(frozen=True)
class Placement:
    """The devices of a training, and how its weights are placed on them."""

    devices: int = 1
    sharded: str = "none"  # `none`, `zero2`, `zero3` or `fsdp2`
    offloaded: bool = False  # FSDP2 keeps its shards and checkpointed activations in host memory (fsdp2-offload.yaml)
    device_bytes: int | None = None  # as `device_memory` returns it
    cuda: bool = False


ONE_DEVICE = Placement()


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes on each device by part: in a training step, and while the same device generates rollouts, if it does."""

    parameters: int
    trained: int
    learning: Mapping[str, int]
    sampling: Mapping[str, int]
    device_bytes: int | None  # None if unknown
    devices: int
    remedies: Mapping[str, str]  # by part, the settings that would make it smaller
    host: int = 0  # bytes of the host's memory for each device: what is kept there instead (`offloaded`)

    @property
    def needed(self) -> int:
        return sum(self._larger.values())

    @property
    def step(self) -> int:
        """Bytes of a training step, which grow with the rows of a micro-batch."""
        return sum(self.learning.values())

    @property
    def fixed_bytes(self) -> int:
        """Bytes that do not depend on rows, tokens or rollouts. Exact."""
        return sum(self.learning[part] for part in {*RESIDENT, "gradients"} - {"bfloat16 copies"})

    @property
    def resident(self) -> int:
        """Bytes in use all the time, also while rollouts are sampled."""
        return sum(self.learning[part] for part in RESIDENT)

    @property
    def largest(self) -> str:
        return max(self._larger, key=lambda part: self._larger[part])

    @property
    def share(self) -> float | None:
        """Share of the device's memory that is needed; None if its size is unknown."""
        return None if self.device_bytes is None else self.needed / max(self.device_bytes, 1)

    @property
    def _larger(self) -> Mapping[str, int]:
        return max(self.learning, self.sampling, key=lambda parts: sum(parts.values()))

    def lines(self) -> list[str]:
        """Return the plan as one line of text; a second line is a warning if it does not fit, or barely."""
        some = f", {self.trained:,} of them trained" if self.trained < self.parameters else ""
        rollouts = f"; rollouts: {self._sum(self.sampling)}" if self.sampling else ""
        available = f"; available: {size(self.device_bytes)}" if self.device_bytes is not None else ""
        each = f" on each of {self.devices} devices" if self.devices > 1 else ""
        lines = [
            f"{self.parameters:,} parameters{some}; training step: {self._sum(self.learning)}{rollouts}{available}{each}"
        ]
        if self.share is not None and self.share > TIGHT:
            limit = "the available" if self.share > 1 else "90 % of the available"
            part = f"{self.largest} ({size(self._larger[self.largest])})"
            lines += [
                f"warning: more than {limit} memory is needed; the largest part is {part}. To reduce it: "
                f"{self.remedies[self.largest]}."
            ]
        return lines

    def _sum(self, parts: Mapping[str, int]) -> str:
        listed = ", ".join(f"{part} {size(number)}" for part, number in parts.items() if number)
        return f"{size(sum(parts.values()))} ({listed})"


def size(number: float) -> str:
    """Format bytes, as in `22.0 GB` (10^9 bytes) or, below 0.1 GB, `35.2 MB`."""
    return f"{number / 1e9:,.1f} GB" if number >= 1e8 else f"{number / 1e6:.1f} MB"


def plan(
    model: Path | Any, *, rows: int, tokens_per_row: int, trained_tokens: int | None = None, precision: str = "float32",
    adapter: Mapping[str, Any] | None = None, checkpointing: bool = False, masked: bool = True, reference: bool = False,
    teacher: Path | Any | None = None, reward_models: Sequence[Path | Any] = (), sampled: int = 0, vllm_share: float = 0.0, vllm_sleeps: bool = False,
    place: Placement = ONE_DEVICE,
) -> MemoryPlan:  # fmt: skip
    """Plan a training by AdamW of `model`: a folder with config.json, a configuration of transformers, or the result of `build_empty`.

    rows: rows of one forward pass on one device, each of `tokens_per_row`, of which `trained_tokens` (default: all)
    have a loss. adapter: as in an entry (schema/entries/model_entries.py). masked: attention gets a mask, because rows are
    padded or packed; flash_attention_2 gets none. reference: whether the divergence needs a reference model. teacher: that
    of on-policy distillation, in the precision of the training. reward_models: those on the same device. sampled: rollouts
    that transformers' `generate` makes at once on one device, of at most tokens_per_row. vllm_share: share of the device
    that vLLM takes in addition, also in training steps unless it sleeps.
    """
    network, sharded, devices = build_empty(model), place.sharded, place.devices
    total, linear = parameters(network), sum(a * b for a, b in linear_layers(network).values())
    adapted = find_adapted_layers(network, adapter) if adapter else {}
    trained = adapter["rank"] * sum(a + b for a, b in adapted.values()) if adapter else total
    quantized = bool(adapter and adapter.get("quantized"))
    weight, gradient, moments = bytes_per_parameter(sharded, devices, precision, quantized)
    held = precision_in_memory(network.config, precision, adapter)
    frozen_weight, _, _ = bytes_per_parameter(sharded, devices, precision, held == "bfloat16")
    frozen = total * frozen_weight if adapter else 0
    stream = precision if sharded == "fsdp2" else held
    if quantized:  # 4-bit weights are not sharded
        frozen = linear * FOUR_BITS + (total - linear) * WIDTH["float32"]
    copied = (trained if held == "bfloat16" else linear) * (precision == "bfloat16" and sharded == "none")
    reference_bytes = (trained * weight if adapter else total * frozen_weight) if reference else 0
    teacher_weight, _, _ = bytes_per_parameter(sharded, devices, precision, precision == "bfloat16")
    teacher_bytes = parameters(build_empty(teacher)) * teacher_weight if teacher else 0
    here = 0 if place.offloaded else 1
    checkpointing = checkpointing or place.offloaded
    resident = {
        "weights": here * (trained * weight + frozen)
        + (0 if quantized else count_gathered_bytes(network, sharded, precision)),
        "bfloat16 copies": 0 if quantized else copied * WIDTH["bfloat16"],
        "optimizer": here * trained * moments,
        "reference": here * reference_bytes,
        "teacher": here * teacher_bytes,
        "reward models": sum(parameters(build_empty(other)) for other in reward_models) * WIDTH["float32"],
    }
    vllm = {"vLLM": vllm_share * (place.device_bytes or 0)}
    dropped = sum(a for a, _ in adapted.values()) if adapter and adapter.get("dropout") else 0
    learned = rows * (trained_tokens or tokens_per_row)
    kept_activations = activations(
        network, rows, tokens_per_row, precision, checkpointing, masked, dropped, stream, inputs_kept=bool(here)
    )
    learning = {
        **resident,
        "gradients": here * trained * gradient,
        "activations": kept_activations,
        "logits": logits(network, learned, precision, place.cuda, head_trained=not adapter),
        **({} if vllm_sleeps else vllm),
    }
    sampling = {**resident, **vllm} if vllm_share else {}
    if sampled:
        sampling = {
            **resident,
            "gathered weights": total * WIDTH[precision] if sharded == "zero3" else 0,
            "key-value cache": key_value_cache(network, sampled * tokens_per_row, held),
        }
    host = trained * (weight + gradient + moments) + frozen + reference_bytes + teacher_bytes
    host += layer_inputs(network, rows * tokens_per_row, stream)
    kept, smaller = round(host) if place.offloaded else 0, remedies(rows, checkpointing, adapter, sharded)
    return MemoryPlan(total, trained, _round(learning), _round(sampling), place.device_bytes, devices, smaller, kept)


def _round(parts: Mapping[str, float]) -> dict[str, int]:
    return {part: round(number) for part, number in parts.items()}


def remedies(rows: int, checkpointing: bool, adapter: Mapping[str, Any] | None, sharded: str) -> dict[str, str]:
    """Return for each part the settings that would make it smaller and are not in use yet."""
    fewer = ["a smaller PROOFMILL_MICRO_BATCH_SIZE"] * (rows > 1)
    kept = ["PROOFMILL_GRADIENT_CHECKPOINTING=1"] * (not checkpointing) + ["a shorter `max-length` or `max-tokens`"]
    states = ["more devices" if sharded in ("zero3", "fsdp2") else "ZeRO-3 or FSDP2 over more devices"]
    states += ["workflow/accelerate/fsdp2-offload.yaml"] * (sharded == "fsdp2")
    states += [] if adapter and adapter.get("quantized") else ["`quantized: true`" if adapter else "`lora`"]
    rollouts = ["fewer `problems-per-step`", "a shorter `max-tokens`", "rollouts by vLLM"]
    vllm = ["a smaller --gpu-memory-utilization", "--enable-sleep-mode", "a vLLM server on other devices"]
    ways = {
        **dict.fromkeys(("weights", "bfloat16 copies", "gradients", "optimizer"), states),
        **{
            "reference": ["`kl: 0`", *states],
            "teacher": ["a smaller `teacher`", *states],
            "reward models": ["smaller ones"],
            "vLLM": vllm,
        },
        **{"activations": fewer + kept, "logits": [*fewer, "`precision: bfloat16`"]},
        **dict.fromkeys(("gathered weights", "key-value cache"), rollouts),
    }
    return {part: " or ".join(some) for part, some in ways.items()}


# -------------------------------------------------------------------------------------------------------------- weights


def build_empty(model: Path | Any) -> Any:
    """Build the model without its weights: shapes on torch's meta device."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if isinstance(model, torch.nn.Module):
        return model
    config = AutoConfig.from_pretrained(model) if isinstance(model, str | Path) else model
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


@lru_cache(maxsize=64)  # of networks without weights, which are never changed; a choice plans one many times
def parameters(network: Any) -> int:
    """Return the number of parameters; tied ones count once."""
    return sum(weight.numel() for weight in network.parameters())


@lru_cache(maxsize=64)
def linear_layers(network: Any) -> dict[str, tuple[int, int]]:
    """Return input and output size of each linear layer, by name, without the head, whose output is the logits."""
    import torch

    head = network.get_output_embeddings()
    return {
        name: (layer.in_features, layer.out_features)
        for name, layer in network.named_modules()
        if isinstance(layer, torch.nn.Linear) and layer is not head
    }


def find_adapted_layers(network: Any, adapter: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the linear layers whose names end with one in the adapter (peft's `target_modules`); all if it has none."""
    ends = adapter.get("target_modules")
    linear = linear_layers(network)
    return {n: linear[n] for n in linear if not ends or any(f".{n}".endswith(f".{end}") for end in ends)}


def precision_in_memory(config: Any, precision: str, adapter: Mapping[str, Any] | None) -> str:
    """Return the precision of a model's weights in memory: bfloat16 if an adapter leaves files of bfloat16 unchanged."""
    stored = str(getattr(config, "dtype", None)).removeprefix("torch.")
    unchanged = adapter and not adapter.get("quantized") and getattr(config, "quantization_config", None) is None
    return "bfloat16" if unchanged and precision == stored == "bfloat16" else "float32"


def bytes_per_parameter(sharded: str, devices: int, precision: str, halved: bool = False) -> tuple[float, ...]:
    """Return the bytes on one device of a parameter: the weight, its gradient, its two moments; `halved`: in bfloat16.

    DistributedDataParallel holds each gradient a second time, in its send buffers. DeepSpeed keeps weights and
    gradients in the precision of the arithmetic, and a float32 copy with the moments. TRL casts adapters over 4-bit
    weights to bfloat16.
    """
    deepspeed = sharded in ("zero2", "zero3")
    width = WIDTH["bfloat16" if halved else precision if deepspeed else "float32"]
    moments = 12 if deepspeed else 2 * width
    if sharded == "none":
        return width, width * (2 if devices > 1 else 1), moments
    return width / (1 if sharded == "zero2" else devices), width / devices, moments / devices


def count_gathered_bytes(network: Any, sharded: str, precision: str) -> int:
    """Return the bytes of sharded weights gathered at once: two layers plus embeddings and head."""
    if sharded not in ("zero3", "fsdp2"):
        return 0
    ends = (network.get_input_embeddings(), network.get_output_embeddings())
    outside = sum({id(end.weight): end.weight.numel() for end in ends if end}.values())
    in_layer = (parameters(network) - outside) // network.config.get_text_config().num_hidden_layers
    return WIDTH[precision] * (outside + 2 * in_layer)


def context_of(network: Any) -> int | None:
    """Return the longest sequence of a model in tokens; None for one without positions."""
    return getattr(network.config.get_text_config(), "max_position_embeddings", None)


# ---------------------------------------------------------------------------------------------------------- activations


def widths(network: Any) -> tuple[int, int, int, int]:
    """Return numbers per token: in the residual stream, in all queries, in all keys, and inside the feed-forward part."""
    config = network.config.get_text_config()
    heads = getattr(config, "num_attention_heads", None) or 1
    head_width = getattr(config, "head_dim", None) or config.hidden_size // heads
    keys = (getattr(config, "num_key_value_heads", None) or heads) * head_width
    inside = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    if experts := getattr(config, "num_experts_per_tok", None):
        inside = experts * (getattr(config, "moe_intermediate_size", None) or inside)
    return config.hidden_size, heads * head_width, keys, inside


def activations(
    network: Any,
    rows: int,
    tokens: int,
    precision: str,
    checkpointing: bool,
    masked: bool,
    dropped: int = 0,
    stream: str = "float32",
    inputs_kept: bool = True,
) -> int:
    """Return the bytes that the forward pass keeps for the backward pass, without weights and logits.

    Each layer keeps these. Residual stream: both norms keep a number before and after the division; the linear layers
    share it in float32 (24 bytes in all) and copy it five times in bfloat16 (26 bytes); where the `stream` itself is bfloat16,
    each norm keeps it in float32, divided, and multiplied (16 bytes). Queries: attention and the
    layer after it keep them, and twice more if queries and keys have norms. Keys and values: attention keeps them,
    repeated to the number of queries if it gets a mask, and the mask. Feed-forward part: it keeps a number before and
    after the activation function, as the factor, and as the product. With checkpointing, layers keep only their input (on
    the host if not `inputs_kept`), except one layer at a time. `dropped` numbers of a token enter adapters through a dropout, which keeps its noise and
    its product.
    """
    residual, queries, keys, inside = widths(network)
    layers = network.config.get_text_config().num_hidden_layers
    width, stream_width = WIDTH[precision], WIDTH[stream]
    normed = has_normed_queries(network)
    layer = (
        {(4, 4): 24, (2, 4): 26, (2, 2): 16}[width, stream_width] * residual
        + 2 * width * (queries + (queries if masked else keys))
        + (4 + width) * (queries + keys) * normed
        + width * tokens * masked
        + 4 * width * inside
        + (4 + width) * dropped // layers
    )
    kept = layers * stream_width * residual * inputs_kept + layer if checkpointing else layers * layer
    return rows * tokens * (kept + 12 * residual)  # the last norm, and the head's input


@lru_cache(maxsize=64)
def has_normed_queries(network: Any) -> bool:
    """Return whether queries and keys have norms, as in Qwen3."""
    return any(name.endswith("q_norm.weight") for name, _ in network.named_parameters())


def layer_inputs(network: Any, tokens: int, stream: str) -> int:
    """Return the bytes of the input of every layer, which is all that checkpointing keeps."""
    config = network.config.get_text_config()
    return tokens * config.num_hidden_layers * config.hidden_size * WIDTH[stream]


def logits(network: Any, learned: int, precision: str, cuda: bool, head_trained: bool = True) -> int:
    """Return the bytes of one tile of logits, and of the head's float32 gradients for `learned` tokens with a loss."""
    config = network.config.get_text_config()
    tokens, vocabulary = min(learned, TILE_TOKENS), min(config.vocab_size, TILE_WORDS)
    tile = tokens * TILE_WORDS * WIDTH[precision]
    head_copy = vocabulary * config.hidden_size * WIDTH[precision] if precision == "bfloat16" else 0
    temporary = 0 if cuda else tokens * vocabulary * TILE_ON_CPU
    gradients = WIDTH["float32"] * config.hidden_size * (learned + config.vocab_size * head_trained)
    return tile + head_copy + temporary + gradients


def key_value_cache(network: Any, tokens: int, held: str = "float32") -> int:
    """Return the bytes of the keys and values of all rollouts, and of one layer's keys a second time, while they grow.

    They have the precision of the weights in memory, whatever that of the arithmetic: the rotation returns keys in it,
    and the cache takes values in the precision of keys.
    """
    layers, keys = network.config.get_text_config().num_hidden_layers, widths(network)[2]
    return tokens * keys * (2 * layers + 1) * WIDTH[held]


# ----------------------------------------------------------------------------------------------------- available memory


def device_memory() -> tuple[int | None, bool]:
    """Return a device's bytes and whether it is a GPU; on a CPU the free and allowed bytes, None if unknown."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory, True
    return free_memory.least(), False


def part_of_machine(threads: int) -> float:
    """Return the share of host memory this job may use, in proportion to its threads; other jobs run concurrently."""
    return min(1.0, threads / len(os.sched_getaffinity(0)))
