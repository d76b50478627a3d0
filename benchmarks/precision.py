"""Count the training tokens per second of CPU time, in float32 and in bfloat16, forward and backward.

    python benchmarks/precision.py results/base/smol [--rows 4] [--tokens 220]

CPU time of one thread, so that other work on the machine has little effect.
"""

import argparse
import time
from pathlib import Path


def main() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=220)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(options.weights, dtype=torch.float32)
    ids = torch.randint(model.config.vocab_size, (options.rows, options.tokens))
    for precision in (torch.float32, torch.bfloat16):
        for _ in range(2):  # the first warms up
            start = time.process_time()
            with torch.autocast("cpu", dtype=precision, enabled=precision != torch.float32):
                loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            seconds = time.process_time() - start
        print(f"{precision}: {ids.numel() / seconds:.0f} tokens per second of CPU time")


if __name__ == "__main__":
    main()
