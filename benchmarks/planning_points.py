"""Compare `proofmill plan --machine` with published memory and GPU-hours.

    python benchmarks/planning_points.py

Each published figure has its source, which was read. Memory is comparable from 0.8 to 1.3 of the published figure, else
the last column says how the method differs. A published time outside the planned range is an error.
"""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from proofmill.config.config import expand
from proofmill.engines import vllm_memory
from proofmill.planning import hours
from proofmill.planning.machines import GPUS, machine
from proofmill.planning.plan import RunPlan
from proofmill.planning.shapes import Shapes
from proofmill.planning.trainings import Training
from proofmill.training import memory

ZERO = "ZeRO (Rajbhandari et al. 2020), figure 1"
TITAN = "pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"
RL = "NVIDIA-NeMo/RL, docs/about/performance-summary.md, v0.4"
VERL = "verl-project/verl, docs/perf/device_tuning.rst"
GIB = 2**30
LLAMA_2_7B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "vocab_size": 32000,
    "intermediate_size": 11008,
}
QWEN_3_32B = {  # config.json of Qwen/Qwen3-32B
    "model_type": "qwen3", "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 128, "intermediate_size": 25600, "vocab_size": 151936, "max_position_embeddings": 40960,
}  # fmt: skip
# Model, steps off policy, GPUs, mean tokens of a prompt with its response (of 4,096), seconds of a step.
NEMO = [
    ("meta-llama/Llama-3.1-8B", 0, 16, 1060, 97.7),
    ("meta-llama/Llama-3.1-8B", 1, 16, 1129, 74.6),
    ("Qwen/Qwen3-32B", 0, 32, 3206, 393),
    ("Qwen/Qwen3-32B", 1, 64, 3207, 215),
]
PROMPT, LONGEST, BATCH, STEPS = 100, 4096, 512, 4  # tokens (the prompt's: assumed), rows of a step, steps of a batch
# The smallest machines of verl (H800 and H20 have 80 and 96 GB), with the model of data/shapes.jsonl that is nearest.
LEAST = [
    ("Qwen2.5-7B", "2xH100"),
    ("Qwen2.5-14B", "4xH100"),
    ("Qwen2.5-32B", "8x96GB"),
    ("Llama-3.3-70B-Instruct", "4x8xH100"),
]


def main() -> None:
    """Print a table of all points."""
    rows = [*memory_points(), *hour_points(), *least_machines()]
    print("| point | planned | published | ratio | source | remark |\n|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |".replace("  ", " "))


def memory_points():
    """Yield points of memory, in GB or thousand tokens."""

    def row(what: str, planned: float, published: float, source: str, remark: str = "", unit: str = "GB"):
        ratio = planned / published
        assert remark or 0.8 <= ratio <= 1.3, (what, ratio)
        return what, f"{planned:,.1f} {unit}", f"{published:,.1f} {unit}", f"{ratio:.2f}", source, remark

    for sharded, published in (("zero3", 1.9), ("zero2", 16.6)):
        each = sum(memory.bytes_per_parameter(sharded, 64, "bfloat16"))
        yield row(f"weights, gradients, AdamW of 7.5 B on 64 GPUs, {sharded}", 7.5 * each, published, ZERO)
    plain = 7.5 * sum(memory.bytes_per_parameter("none", 64, "bfloat16"))
    yield row("the same, data parallel", plain, 120, ZERO, "here float32 weights, and DDP's second gradient")
    yield row(
        "a parameter, ZeRO-3 on one GPU", sum(memory.bytes_per_parameter("zero3", 1, "bfloat16")), 18,
        "deepspeedai/DeepSpeed, estimate_zero3_model_states_mem_needs", unit="bytes",
    )  # fmt: skip
    seven = memory.plan(config(LLAMA_2_7B), rows=1, tokens_per_row=1)
    yield row("Llama-2-7B, AdamW in float32", seven.fixed_bytes / 1e9, 107.8, "huggingface/accelerate, estimate-memory")
    eight = Shapes(book({}), Path()).build_published("meta-llama/Llama-3.1-8B")
    published = 53.29 * GIB / vllm_memory.cache_bytes(eight) / 1e3
    for what, total in (("of 79.22 GiB, as torch reports", 79.22 * GIB), ("of nominal 80 GB", GPUS["H100"].bytes)):
        planned = vllm_memory.count_cached_tokens(eight, 0.9 * total) / 1e3
        yield row(
            f"vLLM's cache, Llama-3-8B, 0.9 of an H100 {what}", planned, published,
            "vllm-project/vllm, pull request 10511", unit="k tokens",
        )  # fmt: skip
    place = memory.Placement(8, "fsdp2", device_bytes=GPUS["H100"].bytes, cuda=True)
    for again in (False, True):
        planned = memory.plan(
            eight, rows=2, tokens_per_row=8192, precision="bfloat16", checkpointing=again, masked=False, place=place
        ).needed
        how = "everything" if again else "nothing"
        yield row(
            f"Llama-3.1-8B, FSDP on 8, 2 x 8,192, {how} recomputed", planned / 1e9, 82.4 * GIB / 1e9, TITAN,
            "there some operations are recomputed, here all or none",
        )  # fmt: skip
    planned = memory.plan(
        eight, rows=1, tokens_per_row=32768, precision="bfloat16", checkpointing=True, masked=False, place=place
    ).needed
    yield row(
        "Llama-3.1-8B, FSDP on 8, 1 x 32,768, everything recomputed", planned / 1e9, 83.9 * GIB / 1e9, TITAN,
        "there float32 logits of the full row, here of one tile",
    )  # fmt: skip


def hour_points():
    """Yield points of GPU-hours with the planned range."""

    def row(what: str, ends: hours.Ends, published: float, source: str, remark: str = ""):
        low, high = ends
        assert low <= published <= high, (what, ends, published)
        ratio = f"{low / published:.2f} to {high / published:.2f}"
        return what, f"{low:.2f} to {high:.2f} GPU-h", f"{published:.2f} GPU-h", ratio, source, remark

    eight, tokens = Shapes(book({}), Path()).build_published("meta-llama/Llama-3.1-8B"), 5762 * 3600
    # Selective recomputation lies between none and all.
    none, all_again = (
        hours.learning(eight, tokens, 8192, GPUS["H100"], "bfloat16", again, 0) for again in (False, True)
    )
    yield row("training of Llama-3.1-8B on 20.7 M tokens, rows of 8,192", np.array([none[0], all_again[1]]), 1, TITAN)
    for id, off, gpus, mean, seconds in NEMO:
        training, place = (
            make(id, {"max-staleness": STEPS} if off else {"mini-batches": STEPS}),
            machine(f"{gpus // 8}x8xH100"),
        )
        training.tokens, training.longest = LONGEST, LONGEST - PROMPT
        fill = (mean - PROMPT) / training.longest
        ways = [way for way in training.ways(place, fill=fill) if not way.fault]
        way = ways[0]
        if off:  # half of the GPUs sample (assumed); a launch here would give one node
            ways = [replace(way, devices=gpus // 2, apart=gpus // 2) for way in ways]
            way = min(ways, key=lambda way: training.estimate(way, place, fill).wall.mean())
        ends = training.estimate(way, place, fill).booked
        split = f"{way.layout} x {way.devices}" + f", server {way.apart}" * bool(off) + f", vLLM by {way.parallel}"
        what = f"GRPO, {id.partition('/')[2]}, {'one step off' if off else 'on-policy'}, {gpus} H100, 2,048 rollouts"
        yield row(what, ends, gpus * seconds / 3600, RL, split)


def least_machines():
    """Yield whether GRPO fits the smallest machines on which verl ran it."""
    for name, place in LEAST:
        owner = "meta-llama" if "Llama" in name else "Qwen"
        way = make(f"{owner}/{name}", {}).ways(machine(place))[0]
        assert not way.fault, (name, way.fault)
        yield (
            f"GRPO, {name}, {place}",
            f"fits, {way.layout}",
            "runs",
            "",
            VERL,
            "1,024 tokens of prompt and of response here",
        )


def config(fields: dict[str, Any]):
    """Return a configuration of transformers."""
    from transformers import AutoConfig

    return AutoConfig.for_model(**fields)


def book(entries: dict[str, Any]):
    """Return a configuration with one recipe."""
    return expand({"points": entries})


def make(id: str, more: dict[str, Any]) -> Training:
    """Return a GRPO training of a model."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(QWEN_3_32B))
        base = {"source": "hub", "id": id, "commit": "a" * 40}
        base = {"source": "folder", "path": folder} if id == "Qwen/Qwen3-32B" else base
        entries = {
            "problems/x": {"source": "arithmetic", "rows": 512},
            "base/x": base,
            "grpo/x": {
                "model": "base/x", "problems": "problems/x", "grader": "final-answer", "rewards": {"grade": 1},
                "unscored": "drop", "steps": STEPS, "group-size": 8, "problems-per-step": BATCH // 8, "max-tokens": 1024,
                "precision": "bfloat16", **more,
            },
        }  # fmt: skip
        found, results = book(entries), Path(folder, "results")
        return Training("grpo/x", found.entries["grpo/x"], RunPlan(found, "grpo/x", results), Shapes(found, results))


if __name__ == "__main__":
    main()
