"""Our SFT and GRPO steps against a bare TRL script with the same settings, side by side on this machine.

    python benchmarks/training.py [--steps 60] [--repeats 5]

Both train the same small model from the same weights on the same rows, alternately, each in a process of its own; what is
compared is the time of the training loop, from its first step to its last. The ratio of one pair is noisy; what is printed
last is the median of the pairs. For GRPO the bare script marks with the same checker as ours and keeps nothing; ours marks
through the grader, measures, and writes every rollout down.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ENTRIES = {
    "problems/train": {"source": "arithmetic", "rows": 400},
    "base/tiny": {"source": "scratch", "problems": "problems/train"},
    "examples/cold": {"problems": "problems/train"},
    "sft/cold": {"model": "base/tiny", "examples": "examples/cold", "batch": 8, "learning-rate": 3.0e-3, "log-every": 10},
    "grpo/cold": {
        "model": "base/tiny", "problems": "problems/train", "grader": "arithmetic", "rewards": {"grade": 1, "format": 0.1},
        "unscored": "drop", "group": 8, "problems-per-step": 8, "max-tokens": 64, "learning-rate": 1.0e-4,
    },
}  # fmt: skip
DATA = {name: entry for name, entry in ENTRIES.items() if not name.startswith(("sft", "grpo"))}
SHARE = {"sft": 1.0, "grpo": 0.2}  # of the steps: one of GRPO takes longer


def ours(kind: str, folder: Path, steps: int) -> float:
    """Seconds of our training loop, from the stamp."""
    config = {**DATA, f"{kind}/cold": {**ENTRIES[f"{kind}/cold"], "steps": steps}}
    (folder / "config.yaml").write_text(json.dumps({"benchmark": config}))
    command = [sys.executable, "-m", f"proofmill.{kind}", f"{kind}/cold"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=fresh())
    import polars as pl

    stamp = json.loads(pl.read_parquet_metadata(folder / f"results/{kind}/cold.parquet")["proofmill"])
    return stamp["training_seconds"]


def bare(kind: str, folder: Path, steps: int) -> float:
    """Seconds of the same loop in a bare script."""
    command = [sys.executable, __file__, "--bare", kind, "--steps", str(steps)]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return float(done.stdout.splitlines()[-1])


def fresh() -> dict[str, str]:
    import os

    return {**os.environ, "PROOFMILL_FRESH": "all", "PROOFMILL_SAVE_STEPS": "1000000"}


# ---------------------------------------------------------------------------------------------------- the bare scripts


def bare_script(kind: str, steps: int) -> None:
    """What one would write with TRL alone."""
    import time

    import polars as pl
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained("results/base/tiny", dtype="float32")
    tokenizer = AutoTokenizer.from_pretrained("results/base/tiny")
    entry = ENTRIES[f"{kind}/cold"]
    shared = {
        "output_dir": tempfile.mkdtemp(), "max_steps": steps, "learning_rate": entry["learning-rate"], "use_cpu": True,
        "bf16": False, "save_strategy": "no", "report_to": [], "disable_tqdm": True, "gradient_checkpointing": False,
    }  # fmt: skip
    if kind == "sft":
        from trl import SFTConfig, SFTTrainer

        rows = [row["messages"] for row in pl.read_parquet("results/examples/cold.parquet").iter_rows(named=True)]
        data = Dataset.from_list([{"prompt": m[:-1], "completion": m[-1:]} for m in rows])
        config = SFTConfig(
            **shared, per_device_train_batch_size=entry["batch"], max_length=512, logging_steps=10,
            completion_only_loss=True, lr_scheduler_type="cosine", warmup_steps=0.03,
        )  # fmt: skip
        trainer = SFTTrainer(model=model, args=config, train_dataset=data, processing_class=tokenizer)
    else:
        from trl import GRPOConfig, GRPOTrainer

        rows = pl.read_parquet("results/problems/train.parquet").iter_rows(named=True)
        data = Dataset.from_list(
            [{"prompt": [{"role": "user", "content": r["statement"]}], "statement": r["statement"]} for r in rows]
        )
        config = GRPOConfig(
            **shared, per_device_train_batch_size=64, num_generations=8, max_completion_length=64, beta=0.0,
            logging_steps=5, lr_scheduler_type="constant", reward_weights=[1.0, 0.1],
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=model, args=config, train_dataset=data, processing_class=tokenizer, reward_funcs=[marks, well_formed]
        )
    start = time.monotonic()
    trainer.train()
    print(time.monotonic() - start)


def marks(completions, statement, **_):
    from proofmill.arithmetic import congruences
    from proofmill.text.reasoning import after_thought

    texts = [after_thought(c[0]["content"]) if "</think>" in c[0]["content"] else "" for c in completions]
    return [
        congruences.check(congruences.read(asked), text, answer_only=True).marks() / 7 if text else 0.0
        for asked, text in zip(statement, texts, strict=True)
    ]


def well_formed(completions, **_):
    return [
        float(c[0]["content"].startswith("<think>") and c[0]["content"].count("\\boxed{") == 1) for c in completions
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="of SFT; GRPO takes a fifth of them")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--bare", choices=list(SHARE), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        bare_script(options.bare, options.steps)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(json.dumps({"benchmark": DATA}))
        for made in ("problems/train", "base/tiny", "examples/cold"):
            kind = made.partition("/")[0]
            subprocess.run(
                [sys.executable, "-m", f"proofmill.{kind}", made], cwd=folder, check=True, capture_output=True
            )
        for kind, share in SHARE.items():
            steps, ratios = int(options.steps * share), []
            for repeat in range(options.repeats):
                pair = [(bare, "bare"), (ours, "ours")][:: 1 if repeat % 2 else -1]  # neither is always the second
                seconds = {word: run(kind, folder, steps) for run, word in pair}
                ratios.append(seconds["ours"] / seconds["bare"])
                print(
                    f"{kind}: bare {seconds['bare']:.2f} s, ours {seconds['ours']:.2f} s for {steps} steps: {ratios[-1]:.3f}",
                    flush=True,
                )
            print(f"{kind}: median ratio {statistics.median(ratios):.3f} of {len(ratios)} pairs", flush=True)


if __name__ == "__main__":
    main()
