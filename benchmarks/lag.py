"""Reinforcement learning with and without a lag: steps a minute, where the judge answers after some seconds.

    python benchmarks/lag.py [--steps 24] [--lag 4] [--delays 0 1 5] [--folder DIR]

The training is `grpo/nano` from the cold-started model, with transformers on a CPU. Without a lag, its step samples, waits
for the judge and learns; with one, another process samples meanwhile. Both are alone on the machine, one after the
other. Seconds are those of the training, from its first rollout to its last step.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

ROOT = Path(__file__).parents[1]
RECIPE = """
lag-benchmark:
  with: [nano]
  grpo/{name}: {{like: grpo/nano, model: sft/cold, steps: {steps}, lag: {lag}}}
"""


def run(folder: Path, *command: str, delay: float = 0.0) -> None:
    """Run a command to its end; what it says is shown where it fails."""
    environment = {**os.environ, "PROOFMILL_REFEREE_FAULTS": json.dumps({"delay": delay}), "PROOFMILL_SCREEN": "no"}
    done = subprocess.run(
        (sys.executable, "-m", *command), cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


def trained(folder: Path, steps: int, lag: int, delay: float) -> float:
    """Steps a minute of one training."""
    name, config = f"lag-{lag}-after-{delay:g}", folder / "lag.yaml"
    config.write_text(RECIPE.format(name=name, steps=steps, lag=lag) + f"results: {folder}/results\n")
    run(folder, "snakemake", f"grpo/{name}", "--cores", "2", "--configfile", str(config), delay=delay)
    stamp = json.loads(pl.read_parquet_metadata(folder / f"results/grpo/{name}.parquet")["proofmill"])
    return 60 * steps / stamp["training_seconds"]


def main(steps: int, lag: int, delays: list[float], folder: Path) -> None:
    before = ("sft/cold", "problems/practice", "schemes/practice")
    run(folder, "snakemake", *before, "--cores", "2", "--config", f"results={folder}/results")
    print(f"| judge answers after | steps a minute | with `lag: {lag}` | |\n|---|---|---|---|")
    for delay in delays:
        plain, ahead = (trained(folder, steps, of, delay) for of in (0, lag))
        print(f"| {delay:g} s | {plain:.1f} | {ahead:.1f} | {ahead / plain:.2f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--lag", type=int, default=4)
    parser.add_argument("--delays", type=float, nargs="+", default=[0.0, 1.0, 5.0])
    parser.add_argument("--folder", type=Path, help="where results are kept for another run")
    options = parser.parse_args()
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        main(options.steps, options.lag, options.delays, (options.folder or Path(name)).resolve())
