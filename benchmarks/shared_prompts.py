"""Compare a training pass that reads each prompt once with one over whole rows, in the same run.

    python benchmarks/shared_prompts.py results/sft/smol-form [--prompt 62] [--completion 8] [--prompts 8] [--copies 4]

Prints the median CPU seconds of a forward and backward pass on random tokens, in turns, and their ratio. The gradients
of both are compared, too.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from proofmill.training.losses import shared_prompts
from proofmill.training.run import logits_of_trained_tokens


def run(model: Any, score: Callable[[], Any], count: int) -> tuple[float, torch.Tensor]:
    """Return the CPU seconds of a pass and its gradient."""
    model.zero_grad()
    start = time.process_time()
    score().log_probs[:, -count:].sum().backward()
    seconds = time.process_time() - start
    return seconds, torch.cat([weight.grad.ravel() for weight in model.parameters()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("weights")
    for name, value in {"prompt": 62, "completion": 8, "prompts": 8, "copies": 4, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    logits_of_trained_tokens()
    model = AutoModelForCausalLM.from_pretrained(options.weights, dtype="float32").train()
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    prompts = torch.randint(3, model.config.vocab_size, (options.prompts, options.prompt))
    rows, count = options.prompts * options.copies, options.completion
    completions = torch.randint(3, model.config.vocab_size, (rows, count))
    ids = torch.cat([prompts.repeat_interleave(options.copies, dim=0), completions], dim=1)
    mask, labels = torch.ones_like(ids), ids.clone()
    labels[:, :-count] = -100
    ways = {
        "whole rows": lambda: model(ids, attention_mask=mask, labels=labels, fused_lm_head=True),
        "prompts once": lambda: shared_prompts.score(model, ids, mask, count),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    gradients = {}
    for _ in range(options.rounds):
        for way, score in ways.items():
            taken, gradients[way] = run(model, score, count)
            seconds[way].append(taken)
    medians = {way: statistics.median(values) for way, values in seconds.items()}
    for way, median in medians.items():
        print(f"{way}: {median:.1f} s")
    whole, once = gradients.values()
    print(f"ratio {medians['prompts once'] / medians['whole rows']:.2f}")
    print(f"difference of the gradients, relative: {float((once - whole).norm() / whole.norm()):.1e}")


if __name__ == "__main__":
    main()
