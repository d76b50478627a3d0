"""Measure the rates that a plan assumes, on a GPU: training, sampling, copies to host memory, AdamW on the host.

    python benchmarks/gpu_rates.py

Training: forward and backward pass of all layers of Qwen2.5-Math-1.5B and eight of Qwen2.5-7B on random tokens, in
operations as planning/hours.py counts them. Sampling: a step of as many layers in a CUDA graph, in bytes, without vLLM.
AdamW: torch's on the CPU, for 268 million parameters. It needs torch and transformers alone.
"""

import gc
import itertools as it
import json
import sys
import time
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))
from proofmill.planning import hours, machines  # noqa: E402
from proofmill.training import memory  # noqa: E402

GPU = machines.GPUS["H100"]
MODELS = {"Qwen/Qwen2.5-Math-1.5B": 28, "Qwen/Qwen2.5-7B": 8}  # with the number of layers
TILE = 2048  # tokens with logits at once
TRUTH = {True: "yes", False: "no"}
CUDA = {"device": "cuda", "dtype": torch.bfloat16}


def shape(id, layers):
    """Return the configuration of a model in data/shapes.jsonl, with fewer layers."""
    fields = next(f for f in map(json.loads, (ROOT / "data/shapes.jsonl").open()) if f["id"] == id)
    return AutoConfig.for_model(**{**fields, "num_hidden_layers": layers, "layer_types": None})


def seconds(step, repeats=4):
    """Return the mean time of a step after two further ones."""
    step(), step(), torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def train(id, layers, rows, length, autocast, padded, again):
    """Return the share of the peak rate that a forward and backward pass reaches."""
    config = shape(id, layers)
    empty, network = memory.build_empty(config), memory.build_empty(config).to_empty(device="cuda").train()
    network.to(torch.float32 if autocast else torch.bfloat16)
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.02)
    network.model.rotary_emb = type(network.model.rotary_emb)(config).to("cuda")
    if again:
        network.gradient_checkpointing_enable({"use_reentrant": False})
    tokens = torch.randint(config.vocab_size, (rows, length), device="cuda")
    mask = torch.ones_like(tokens)
    mask[:, : length // 8 * padded] = 0

    def loss(hidden, labels):
        return F.cross_entropy(network.lm_head(hidden).float(), labels, reduction="sum")

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            hidden = network.model(input_ids=tokens, attention_mask=mask, use_cache=False).last_hidden_state
            tiles = zip(hidden.flatten(0, 1).split(TILE), tokens.flatten().split(TILE), strict=True)
            sum(checkpoint(loss, *tile, use_reentrant=False) for tile in tiles).backward()
        network.zero_grad(set_to_none=True)

    operations = rows * length * (2 * hours.active(empty) + hours.attention(empty, length)) * (3 + again)
    return operations / seconds(step) / GPU.bfloat16


def sample(id, layers, rows, length):
    """Return the share of the bandwidth at which a step of `rows` sequences reads weights and `length` cached tokens."""
    config = shape(id, layers)
    residual, queries, keys, inside = memory.widths(memory.build_empty(config))
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    sizes = (residual, queries + 2 * keys), (queries, residual), (residual, 2 * inside), (inside, residual)
    weights = [[torch.randn(b, a, **CUDA) / a**0.5 for a, b in sizes] for _ in range(layers)]
    caches = [torch.randn(2, rows, groups, length, keys // groups, **CUDA) for _ in range(layers)]
    head, start = torch.randn(config.vocab_size, residual, **CUDA), torch.randn(rows, residual, **CUDA)

    def step():
        stream = start
        for (into, out, up, down), (k, v) in zip(weights, caches, strict=True):
            query = F.linear(stream, into)[:, :queries].reshape(rows, groups, heads // groups, -1)
            stream = stream + F.linear(F.scaled_dot_product_attention(query, k, v).reshape(rows, queries), out)
            gate, value = F.linear(stream, up).chunk(2, -1)
            stream = F.rms_norm(stream + F.linear(F.silu(gate) * value, down), (residual,))
        return F.linear(stream, head).float().argmax(-1)

    step(), step()
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        step()
    read = head.nbytes + sum(part.nbytes for part in (*caches, *it.chain(*weights)))
    return read / seconds(graph.replay, 20) / GPU.bandwidth


def main():
    """Print tables of all rates."""
    total = torch.cuda.mem_get_info()[1]
    print(f"{torch.cuda.get_device_name()}, {total / 1e9:.1f} GB, torch {torch.__version__}\n")
    there = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    for kind, here in (("pageable", torch.ones_like(there, device="cpu")), ("pinned", there.cpu().pin_memory())):
        rates = (2**30 / 1e9 / seconds(partial(a.copy_, b)) for a, b in ((here, there), (there, here)))
        print("\n" + kind + " copies: {:.0f} GB/s to the host, {:.0f} GB/s back".format(*rates), flush=True)
    weight = torch.nn.Parameter(torch.randn(2**22, 64))
    weight.grad = torch.randn_like(weight)
    for threads in (torch.get_num_threads(), 1):
        torch.set_num_threads(threads)
        rate = 2**28 / 1e9 / seconds(torch.optim.AdamW([weight], lr=1e-5, fused=True).step, 2)
        print(f"\nAdamW, fused, {threads} threads: {rate:.1f} billion parameters per second", flush=True)
    print("\n| sampling | sequences | tokens of each | of the bandwidth |\n|---|---|---|---|")
    for (id, layers), rows, length in it.product(MODELS.items(), (1, 32, 256), (512, 4096)):
        print(f"| {id} | {rows} | {length} | {sample(id, layers, rows, length):.2f} |", flush=True)
        gc.collect(), torch.cuda.empty_cache()
    print("\n| training | tokens | precision | padded | recomputed | of the peak rate |\n|---|---|---|---|---|---|")
    flags = (True, False), (False, True), (False, True)
    for (id, layers), size, *how in it.product(MODELS.items(), ((8, 512), (2, 4096)), *flags):
        share = train(id, layers, *size, *how)
        gc.collect(), torch.cuda.empty_cache()
        words = "autocast" if how[0] else "bfloat16", *map(TRUTH.get, how[1:])
        print("|", " | ".join((id, f"{size[0]} x {size[1]}", *words, f"{share:.2f}")), "|", flush=True)


if __name__ == "__main__":
    main()
