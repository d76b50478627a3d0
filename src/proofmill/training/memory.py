"""One plan is the memory that a training takes on each of its devices, by part, told before anything is allocated.

From: the activations of a layer (Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models, section
4), shares of devices (ZeRO, Rajbhandari et al. 2020, sections 3.1 and 5), 4-bit weights (QLoRA, Dettmers et al. 2023, section 3).

How it differs:
1. Parameters are counted on the model itself, made without memory on torch's meta device; tied ones count once.
2. A layer is that of transformers' Llama, Mistral and Qwen: gated, with grouped keys, root mean squares and no dropout, its
   operations not fused. In bfloat16 the arithmetic is autocast's: weights, gradients, moments and what runs between the
   layers stay in float32, and each linear layer keeps copies of its input and its weights.
3. TRL 1.16 never holds the logits of a batch (`add_fused_lm_head`): they pass through one tile, forwards and backwards.
4. Rollouts made by the same weights do not meet gradients or activations, and have a sum of their own.

How far off (tests/test_memory.py, on a CPU): weights, gradients and moments not at all, activations by 1.5 %, with adapters up
to half too much. The sum is 3 % too small to a quarter too large, most with checkpointing, as not all parts stand at once. Not
in it: what an operation takes while it runs, CUDA itself (0.5 to 1 GB), holes between blocks, what is on its way between
devices. Nothing was measured on a GPU; 4 bits, ZeRO and FSDP2 are counted after papers and code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIDTH = {"float32": 4, "bfloat16": 2}  # bytes of a number
TILE_TOKENS, TILE_WORDS = 4096, 32768  # trl.kernels.chunked_logprob, trl.trainer.utils
TILE_ON_CPU = 29  # bytes beside each logit of a tile: seven float32 and a mask in `_backward_tile`; with Triton none
FOUR_BITS = 0.5 + 1 / 64 + 4 / (64 * 256)  # bytes of a weight: 8 bits for each block of 64, and 32 for each 256 blocks
TIGHT = 0.9  # of what there is; above it, what is not in the plan may be too much


@dataclass(frozen=True)
class Plan:
    """Bytes on each device by part, while a step learns and, where the same device makes rollouts, while they are made."""

    parameters: int
    trained: int
    learning: Mapping[str, int]
    sampling: Mapping[str, int]
    there: int | None  # bytes of a device, None where they cannot be known
    devices: int
    changes: Mapping[str, str]  # by part, what makes it smaller

    @property
    def needed(self) -> int:
        return sum(self._larger.values())

    @property
    def largest(self) -> str:
        return max(self._larger, key=lambda part: self._larger[part])

    @property
    def share(self) -> float | None:
        """Of what there is; None where that cannot be known."""
        return None if self.there is None else self.needed / max(self.there, 1)

    @property
    def _larger(self) -> Mapping[str, int]:
        return max(self.learning, self.sampling, key=lambda parts: sum(parts.values()))

    def lines(self) -> list[str]:
        """For people; the last one is a warning if the plan does not fit, or only just."""
        shown = [f"memory planned for {self.parameters:,} parameters, {self.trained:,} of them trained"]
        shown += [f"a step: {self._sum(self.learning)}"]
        shown += [f"its rollouts: {self._sum(self.sampling)}"] * bool(self.sampling)
        if self.share is not None and self.share > TIGHT:
            verdict = "does not fit" if self.share > 1 else "leaves little room"
            part = f"{self.largest} ({size(self._larger[self.largest])})"
            shown += [f"warning: this {verdict}; the largest part is {part}. What helps: {self.changes[self.largest]}."]
        return shown

    def _sum(self, parts: Mapping[str, int]) -> str:
        listed = ", ".join(f"{part} {size(number)}" for part, number in parts.items() if number)
        there = f" of {size(self.there)}" if self.there is not None else ""
        each = f" on each of {self.devices} devices" if self.devices > 1 else ""
        return f"{listed}: {size(sum(parts.values()))}{there}{each}"


def size(number: float) -> str:
    """`22.0 GB` (10^9 bytes), below a tenth of one `35.2 MB`."""
    return f"{number / 1e9:,.1f} GB" if number >= 1e8 else f"{number / 1e6:.1f} MB"


def plan(
    model: Path | Any,
    *,
    rows: int,
    tokens_per_row: int,
    learned_tokens: int | None = None,
    precision: str = "float32",
    adapter: Mapping[str, Any] | None = None,
    checkpointing: bool = False,
    masked: bool = True,
    reference: bool = False,
    reward_models: Sequence[Path | Any] = (),
    sampled: int = 0,
    vllm_share: float = 0.0,
    vllm_sleeps: bool = False,
    devices: int = 1,
    sharded: str = "none",
    there: int | None = None,
    cuda: bool = False,
) -> Plan:
    """The plan of a training by AdamW of `model`, a folder with config.json or a configuration of transformers.

    rows: go through the model at once on one device, each of `tokens_per_row`, of which `learned_tokens` (all without it)
    have a loss. adapter: as in an entry (kinds.Adapter). masked: rows are padded or packed, so that attention is given a
    mask; with flash_attention_2 it is not. reference: of the divergence. reward_models: on the same
    device. sampled: rollouts that transformers' `generate` makes at once on one device, of tokens_per_row at most. vllm_share: of the
    device, taken by vLLM beside the training, while it learns too unless it sleeps. devices: of the whole training. sharded:
    `none`, `zero2`, `zero3` or `fsdp2`. there, cuda: as `device_memory` tells.
    """
    network = made(model)
    counted, linear = parameters(network), sum(a * b for a, b in linear_layers(network).values())
    adapted = adapted_layers(network, adapter) if adapter else {}
    trained = adapter["rank"] * sum(a + b for a, b in adapted.values()) if adapter else counted
    quantized = bool(adapter and adapter.get("quantized"))
    weight, gradient, moments = bytes_per_parameter(sharded, devices, precision, quantized)
    frozen_weight, _, _ = bytes_per_parameter(sharded, devices, precision)
    frozen = counted * frozen_weight if adapter else 0
    if quantized:  # what stands in 4 bits is not shared out
        frozen = linear * FOUR_BITS + (counted - linear) * WIDTH["float32"]
    copied = precision == "bfloat16" and sharded == "none" and not quantized
    held = {
        "weights": trained * weight + frozen + (0 if quantized else gathered(network, sharded, precision)),
        "bfloat16 copies": linear * WIDTH["bfloat16"] if copied else 0,
        "optimizer": trained * moments,
        "reference": (trained * weight if adapter else counted * frozen_weight) if reference else 0,
        "reward models": sum(parameters(made(other)) for other in reward_models) * WIDTH["float32"],
    }
    vllm = {"vLLM": vllm_share * (there or 0)}
    dropped = sum(a for a, _ in adapted.values()) if adapter and adapter.get("dropout") else 0
    learned = rows * ((cuda and learned_tokens) or tokens_per_row)  # without Triton, TRL takes every position
    learning = {
        **held,
        "gradients": trained * gradient,
        "activations": activations(network, rows, tokens_per_row, precision, checkpointing, masked, dropped),
        "logits": logits(network, learned, precision, cuda, head_trained=not adapter),
        **({} if vllm_sleeps else vllm),
    }
    sampling = {**held, **vllm} if vllm_share else {}
    if sampled:
        sampling = {
            **held,
            "gathered weights": counted * WIDTH[precision] if sharded == "zero3" else 0,
            "key-value cache": key_value_cache(network, sampled * tokens_per_row),
        }
    learning, sampling = ({part: round(number) for part, number in parts.items()} for parts in (learning, sampling))
    return Plan(counted, trained, learning, sampling, there, devices, changes(rows, checkpointing, adapter, sharded))


def changes(rows: int, checkpointing: bool, adapter: Mapping[str, Any] | None, sharded: str) -> dict[str, str]:
    """What makes each part smaller and is not done yet."""
    fewer = ["a smaller PROOFMILL_ROWS_PER_DEVICE"] * (rows > 1)
    kept = ["PROOFMILL_GRADIENT_CHECKPOINTING=1"] * (not checkpointing) + ["a shorter `max-length` or `max-tokens`"]
    states = ["more devices" if sharded in ("zero3", "fsdp2") else "ZeRO-3 or FSDP2 over more devices"]
    states += [] if adapter and adapter.get("quantized") else ["`quantized: true`" if adapter else "an `adapter`"]
    rollouts = ["fewer `problems-per-step`", "a shorter `max-tokens`", "rollouts by vLLM"]
    vllm = ["a smaller --gpu-memory-utilization", "--enable-sleep-mode", "a vLLM server on other devices"]
    ways = {
        **dict.fromkeys(("weights", "bfloat16 copies", "gradients", "optimizer"), states),
        **{"reference": ["`kl: 0`", *states], "reward models": ["smaller ones"], "vLLM": vllm},
        **{"activations": fewer + kept, "logits": [*fewer, "`precision: bfloat16`"]},
        **dict.fromkeys(("gathered weights", "key-value cache"), rollouts),
    }
    return {part: " or ".join(some) for part, some in ways.items()}


# -------------------------------------------------------------------------------------------------------------- weights


def made(model: Path | Any) -> Any:
    """The model without its numbers."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(model) if isinstance(model, str | Path) else model
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def parameters(network: Any) -> int:
    return sum(weight.numel() for weight in network.parameters())


def linear_layers(network: Any) -> dict[str, tuple[int, int]]:
    """How many numbers enter and leave each linear layer, without the last one, whose output is the logits."""
    import torch

    head = network.get_output_embeddings()
    return {
        name: (layer.in_features, layer.out_features)
        for name, layer in network.named_modules()
        if isinstance(layer, torch.nn.Linear) and layer is not head
    }


def adapted_layers(network: Any, adapter: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """The linear layers whose name ends as the adapter says (peft's `target_modules`); all where it says nothing."""
    ends = adapter.get("layers")
    found = linear_layers(network)
    return {n: found[n] for n in found if not ends or any(f".{n}".endswith(f".{end}") for end in ends)}


def bytes_per_parameter(sharded: str, devices: int, precision: str, quantized: bool = False) -> tuple[float, ...]:
    """Bytes on one device of a trained parameter: the weight, its gradient, its two moments.

    DistributedDataParallel holds each gradient a second time, in what it sends. DeepSpeed has weights and gradients in the
    precision of the arithmetic, and a float32 copy beside the moments. TRL makes adapters over 4-bit weights bfloat16.
    """
    deepspeed = sharded in ("zero2", "zero3")
    width = WIDTH["bfloat16" if quantized else precision if deepspeed else "float32"]
    moments = 12 if deepspeed else 2 * width
    if sharded == "none":
        return width, width * (2 if devices > 1 else 1), moments
    return width / (1 if sharded == "zero2" else devices), width / devices, moments / devices


def gathered(network: Any, sharded: str, precision: str) -> int:
    """Bytes of shared-out weights that a device holds whole at a time: those of two layers, and those of no layer."""
    if sharded not in ("zero3", "fsdp2"):
        return 0
    ends = (network.get_input_embeddings(), network.get_output_embeddings())
    outside = sum({id(end.weight): end.weight.numel() for end in ends if end}.values())
    in_layer = (parameters(network) - outside) // network.config.get_text_config().num_hidden_layers
    return WIDTH[precision] * (outside + 2 * in_layer)


# ----------------------------------------------------------------------------------------------------------- activations


def widths(network: Any) -> tuple[int, int, int, int]:
    """Numbers of a token between layers, in all queries, in all keys, and inside the feed-forward part."""
    config = network.config.get_text_config()
    heads = getattr(config, "num_attention_heads", None) or 1
    one = getattr(config, "head_dim", None) or config.hidden_size // heads
    keys = (getattr(config, "num_key_value_heads", None) or heads) * one
    inside = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    if experts := getattr(config, "num_experts_per_tok", None):
        inside = experts * (getattr(config, "moe_intermediate_size", None) or inside)
    return config.hidden_size, heads * one, keys, inside


def activations(
    network: Any, rows: int, tokens: int, precision: str, checkpointing: bool, masked: bool, dropped: int = 0
) -> int:
    """Bytes that the forward pass keeps for the backward pass, without weights and logits.

    A number between layers is kept by each of the two norms, before and after it is divided, and by the linear layers, which
    share it in float32 (24 bytes in a layer) and copy it five times in bfloat16 (26 bytes); a query by attention and by the
    layer after it, and twice more where queries and keys have norms; a key and a value by attention, which has as many of
    them as of queries if it is given a mask, and the mask; a number inside the feed-forward part before and after the
    activation function, as the factor, as the product. With checkpointing, layers keep their input, and one is whole at a
    time. `dropped` numbers of a token enter adapters through a dropout, which keeps its noise and its product.
    """
    between, queries, keys, inside = widths(network)
    layers = network.config.get_text_config().num_hidden_layers
    wide = WIDTH[precision]
    normed = any(name.endswith("q_norm.weight") for name, _ in network.named_parameters())
    layer = (
        {4: 24, 2: 26}[wide] * between
        + 2 * wide * (queries + (queries if masked else keys))
        + (4 + wide) * (queries + keys) * normed
        + wide * tokens * masked
        + 4 * wide * inside
        + (4 + wide) * dropped // layers
    )
    kept = layers * 4 * between + layer if checkpointing else layers * layer
    return rows * tokens * (kept + 12 * between)  # the last norm, and what the head takes


def logits(network: Any, learned: int, precision: str, cuda: bool, head_trained: bool = True) -> int:
    """Bytes of one tile of logits and of the gradients that the head makes in float32, for so many tokens with a loss."""
    config = network.config.get_text_config()
    at_once, words = min(learned, TILE_TOKENS), min(config.vocab_size, TILE_WORDS)
    tile = at_once * TILE_WORDS * WIDTH[precision]
    copied = words * config.hidden_size * WIDTH[precision] if precision == "bfloat16" else 0  # the head's weights
    beside = 0 if cuda else at_once * words * TILE_ON_CPU
    gradients = WIDTH["float32"] * config.hidden_size * (learned + config.vocab_size * head_trained)
    return tile + copied + beside + gradients


def key_value_cache(network: Any, tokens: int) -> int:
    """Bytes of all rollouts' keys and values, and of one layer's keys twice, which grow.

    They are float32 in both precisions: keys leave the rotation so, and the cache takes values in the precision of keys.
    """
    layers, keys = network.config.get_text_config().num_hidden_layers, widths(network)[2]
    return tokens * keys * (2 * layers + 1) * WIDTH["float32"]


# --------------------------------------------------------------------------------------------------------- what there is

# Files of a control group and the line of its statistics on cached pages, which give way: versions 2 and 1.
GROUPS = {
    "": ("", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def device_memory() -> tuple[int | None, bool]:
    """Bytes of a device, and whether it is a GPU; on a CPU those that are free and allowed, None where nobody tells."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory, True
    return min([*free_memory(), *allowed_memory()], default=None), False


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> list[int]:
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    return [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]


def allowed_memory(membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """What is left of each limit that this process is under: of its control group and of those around it."""
    left = []
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers in GROUPS:
            folder, limit, used, cached = GROUPS[controllers]
            group = root / folder / path.lstrip("/")
            for place in (group, *group.parents):
                if place.is_relative_to(root / folder) and (place / limit).is_file():
                    most = (place / limit).read_text().strip()
                    stat = dict(entry.split() for entry in (place / "memory.stat").read_text().splitlines())
                    taken = int((place / used).read_text()) - int(stat.get(cached, 0))
                    left += [int(most) - taken] if most != "max" else []
    return left
