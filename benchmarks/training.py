"""Compare our SFT and GRPO steps with a bare TRL script with the same settings, on the same machine.

    python benchmarks/training.py [--steps 20] [--pairs 10] [--kinds grpo sft]
    python benchmarks/training.py --model results/sft/smol-form --steps 3 --pairs 3

Both train the same model from the same weights on the same rows in the same order, in turns, each in its own process.
The result is the median ratio of the training loops, from the first step to the last, in CPU seconds of the process.
Wall time is printed too, but other work on the machine changes it more.

GRPO starts from a model that was trained for some steps, with the settings of `nano`, so that rewards vary and some
groups are idle. The bare script has the same seed and the same checker. Ours grades through the grader, computes
metrics and writes the rollout log. With `--model`, both train the model in this folder on small tasks, with the settings
of `smol`. Rollouts are compared token by token, and the number of identical steps is printed.
Gradients are equal up to the rounding of sums, so after some steps a token on the edge between two others may differ.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GROUP, PROBLEMS, TOKENS = 8, 16, 128
BATCH, RATE, GRPO_RATE = 8, 3.0e-3, 3.0e-4
ENTRIES = {
    "problems/train": {"source": "arithmetic", "rows": 400},
    "base/tiny": {"source": "scratch", "problems": "problems/train"},
    "examples/cold": {"problems": "problems/train"},
    "sft/taught": {"model": "base/tiny", "examples": "examples/cold", "batch-size": BATCH, "learning-rate": RATE, "steps": 800},
    "sft/timed": {"model": "base/tiny", "examples": "examples/cold", "batch-size": BATCH, "learning-rate": RATE},
    "grpo/timed": {
        "model": "sft/taught", "problems": "problems/train", "grader": "arithmetic", "rewards": {"grade": 1, "format": 0.1},
        "unscored": "drop", "group-size": GROUP, "problems-per-step": PROBLEMS, "max-tokens": TOKENS,
        "learning-rate": GRPO_RATE,
    },
}  # fmt: skip
LONGER = {"grpo": 1, "sft": 15}  # SFT steps per step of GRPO


def use(model: str) -> None:
    """Replace the settings by those of `smol` with the model in a folder."""
    global GROUP, PROBLEMS, TOKENS, BATCH, RATE, GRPO_RATE
    GROUP, PROBLEMS, TOKENS, BATCH, RATE, GRPO_RATE = 8, 8, 20, 16, 5.0e-5, 5.0e-5
    ENTRIES["problems/train"] = {
        "source": "small-tasks",
        "families": ["largest", "sort"],
        "sizes": {"sort": [3, 3]},
        "rows": 192,
    }
    ENTRIES["base/tiny"] = {"source": "folder", "path": model}
    del ENTRIES["sft/taught"]
    sizes = {"learning-rate": RATE, "batch-size": BATCH}
    ENTRIES["sft/timed"] |= sizes
    ENTRIES["grpo/timed"] |= {
        "model": "base/tiny", "grader": "small-tasks", "rewards": {"grade": 1}, "group-size": GROUP,
        "problems-per-step": PROBLEMS, "max-tokens": TOKENS, "learning-rate": GRPO_RATE,
    }  # fmt: skip
    LONGER["sft"] = 1


def data() -> dict[str, Any]:
    """Return the entries that both need."""
    return {name: entry for name, entry in ENTRIES.items() if not name.endswith("timed")}


def configure(entries: dict[str, Any], folder: Path = Path()) -> None:
    """Write the configuration of a folder."""
    (folder / "config.yaml").write_text(json.dumps({"benchmark": entries}))


def make(name: str, folder: Path = Path()) -> None:
    """Make an artifact in a process of its own."""
    command = [sys.executable, "-m", f"proofmill.{name.partition('/')[0]}", name]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


Found = dict[str, Any]  # processor and wall seconds of the loop, and the tokens and the digest of each step's rollouts


class Rollouts:
    """Collects the number of tokens and a digest of the rollouts of each step."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.digests: list[str] = []

    def add(self, ids: list[list[int]]) -> None:
        self.tokens.append(sum(map(len, ids)))
        self.digests.append(hashlib.sha256(json.dumps(ids).encode()).hexdigest())


def timed(train: Any) -> Found:
    """Return CPU and wall seconds of a training loop."""
    cpu, wall = time.process_time(), time.monotonic()
    train()
    return {"cpu": time.process_time() - cpu, "wall": time.monotonic() - wall}


# --------------------------------------------------------------------------------------------------------------- ours


def ours(kind: str, steps: int) -> Found:
    """Run `python -m proofmill.<kind> <kind>/timed`; return the time of its loop and its rollouts."""
    import importlib

    from proofmill.artifacts import jobs
    from proofmill.training import run

    configure({**data(), f"{kind}/timed": {**ENTRIES[f"{kind}/timed"], "steps": steps}})
    found, rollouts, train = {}, Rollouts(), run.train

    def clocked(trainer: Any, *more: Any, **named: Any) -> float:
        if kind == "grpo":
            rewards = trainer._calculate_rewards
            trainer._calculate_rewards = lambda *a: rollouts.add(a[3]) or rewards(*a)
        found.update(timed(lambda: train(trainer, *more, **named)))
        return found["wall"]

    run.train = clocked
    sys.argv = [f"{kind}.py", f"{kind}/timed"]
    jobs.run(importlib.import_module(f"proofmill.{kind}").main)
    return {**found, **vars(rollouts)}


# ---------------------------------------------------------------------------------------------------- the bare scripts


def bare(kind: str, steps: int) -> Found:
    """Train with TRL alone; return the time of its loop and its rollouts."""
    import polars as pl
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    folder = "results/" + ENTRIES[f"{kind}/timed"]["model"]
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder, dtype="float32"),
        AutoTokenizer.from_pretrained(folder),
    )
    shared = {
        "output_dir": tempfile.mkdtemp(), "max_steps": steps, "use_cpu": True, "bf16": False, "save_strategy": "no",
        "report_to": [], "disable_tqdm": True, "gradient_checkpointing": False, "seed": 0,
    }  # fmt: skip
    rollouts = Rollouts()
    if kind == "sft":
        from trl import SFTConfig, SFTTrainer

        rows = [row["messages"] for row in pl.read_parquet("results/examples/cold.parquet").iter_rows(named=True)]
        data = Dataset.from_list([{"prompt": m[:-1], "completion": m[-1:]} for m in rows])
        config = SFTConfig(
            **shared, learning_rate=RATE, per_device_train_batch_size=BATCH, max_length=512, logging_steps=10,
            completion_only_loss=True, lr_scheduler_type="cosine", warmup_steps=0.03,
        )  # fmt: skip
        trainer = SFTTrainer(model=model, args=config, train_dataset=data, processing_class=tokenizer)
    else:
        from trl import GRPOConfig, GRPOTrainer

        def grades(completions, completion_ids, statement, answer, **_):
            rollouts.add(completion_ids)
            return checked([completion[0]["content"] for completion in completions], statement, answer)

        rows = pl.read_parquet("results/problems/train.parquet").iter_rows(named=True)
        data = Dataset.from_list(
            [
                {
                    "prompt": [{"role": "user", "content": r["statement"]}],
                    "statement": r["statement"],
                    "answer": r["answer"],
                }
                for r in rows
            ]
        )
        config = GRPOConfig(
            **shared, learning_rate=GRPO_RATE, per_device_train_batch_size=GROUP * PROBLEMS, num_generations=GROUP,
            max_completion_length=TOKENS, beta=0.0, logging_steps=5, lr_scheduler_type="constant", reward_weights=[1.0, 0.1][: len(ENTRIES["grpo/timed"]["rewards"])],
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=model,
            args=config,
            train_dataset=data,
            processing_class=tokenizer,
            reward_funcs=[grades, well_formed][: len(ENTRIES["grpo/timed"]["rewards"])],
        )
    return {**timed(trainer.train), **vars(rollouts)}


def checked(texts: list[str], statements: list[str], answers: list[str]) -> list[float]:
    from proofmill.graders.program_graders import PROGRAMS
    from proofmill.graders.submissions import Submission

    program = PROGRAMS[ENTRIES["grpo/timed"]["grader"]]
    with program.open() as check:
        verdicts = check([Submission(s, a, None, t) for s, a, t in zip(statements, answers, texts, strict=True)])
        return [verdict.grade / program.max_points for verdict in verdicts]


def well_formed(completions, completion_ids, trainer_state=None, **_):
    from proofmill.graders.submissions import Submission
    from proofmill.schema.reasons import StopReason

    return [
        float(
            Submission(
                "", None, None, c[0]["content"], stop_reason=StopReason.END if ids[-1] <= 1 else StopReason.LENGTH
            ).well_formed
        )
        for c, ids in zip(completions, completion_ids, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------------- the pairs


def in_a_process(who: str, kind: str, steps: int, folder: Path) -> Found:
    command = [sys.executable, __file__, "--child", who, "--kinds", kind, "--steps", str(steps)]
    if ENTRIES["base/tiny"]["source"] == "folder":
        command += ["--model", ENTRIES["base/tiny"]["path"]]
    environment = {
        **os.environ, "PROOFMILL_FORCE": "all", "PROOFMILL_SAVE_STEPS": "1000000", "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }  # fmt: skip
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def same_steps(one: Found, other: Found) -> int:
    """Return the number of steps before the first with different rollouts."""
    pairs = enumerate(zip(one["digests"], other["digests"], strict=True))
    return next((step for step, (a, b) in pairs if a != b), len(one["digests"]))


def summary(values: list[float]) -> str:
    return f"median {statistics.median(values):.3f}, {min(values):.3f} to {max(values):.3f}"


def compare(kind: str, steps: int, pairs: int, folder: Path) -> None:
    ratios: dict[str, list[float]] = {"cpu": [], "wall": []}
    for number in range(pairs):
        order = ("ours", "bare") if number % 2 else ("bare", "ours")  # neither is always the second
        found = {who: in_a_process(who, kind, steps, folder) for who in order}
        for clock, values in ratios.items():
            values.append(found["ours"][clock] / found["bare"][clock])
        line = ", ".join(
            f"{clock} {found['bare'][clock]:.2f} s bare, {found['ours'][clock]:.2f} s ours: {ratios[clock][-1]:.3f}"
            for clock in ratios
        )
        if kind == "grpo":
            tokens = {who: sum(each["tokens"]) for who, each in found.items()}
            same = same_steps(found["bare"], found["ours"])
            line += (
                f"; rollouts identical in {same} of {steps} steps ({tokens['bare']:,} and {tokens['ours']:,} tokens)"
            )
        print(f"{kind}, {steps} steps: {line}", flush=True)
    print(f"{kind}, ours over bare in {pairs} pairs: CPU {summary(ratios['cpu'])}; wall {summary(ratios['wall'])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="steps of GRPO; SFT takes 15 times as many")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--kinds", nargs="+", choices=list(LONGER), default=list(LONGER))
    parser.add_argument("--child", choices=["ours", "bare"], help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help="folder with a language model's weights, e.g. results/sft/smol-form")
    options = parser.parse_args()
    if options.model:
        use(str(options.model.absolute()))
    if options.child:
        found = {"ours": ours, "bare": bare}[options.child](options.kinds[0], options.steps)
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        configure(data(), folder)
        for name in data():
            make(name, folder)
        for kind in options.kinds:
            compare(kind, options.steps * LONGER[kind], options.pairs, folder)


if __name__ == "__main__":
    main()
