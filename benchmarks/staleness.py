"""Count GRPO steps a minute with and without stale rollouts, for judges that answer after some seconds.

    python benchmarks/staleness.py [--steps 24] [--max-staleness 4] [--delays 0 1 5] [--threads 1] [--folder DIR]

The training is `grpo/nano` from the cold-started model, with transformers on a CPU. Without stale rollouts, a step
samples, waits for the judge and trains. With them, a second process samples meanwhile, and each process has one thread.
With `--threads 2` the training without stale rollouts has two, so that both can use two cores. All processes and the
judge share two cores. The trainings run sequentially. Seconds are those of the training, from its first rollout to its
last step.
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
staleness-benchmark:
  with: [nano]
  grpo/{name}: {{like: grpo/nano, model: sft/cold, steps: {steps}, max-staleness: {staleness}}}
"""


def run(folder: Path, *command: str, delay: float = 0.0) -> None:
    """Run a command; if it fails, raise AssertionError with its output."""
    environment = {**os.environ, "PROOFMILL_REFEREE_FAULTS": json.dumps({"delay": delay}), "PROOFMILL_DISPLAY": "plain"}
    done = subprocess.run(
        (sys.executable, "-m", *command), cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


def train(folder: Path, steps: int, staleness: int, delay: float, threads: int) -> float:
    """Run one training, with this number of threads in each process, and return its steps a minute."""
    name, config = f"staleness-{staleness}-after-{delay:g}", folder / "staleness.yaml"
    config.write_text(RECIPE.format(name=name, steps=steps, staleness=staleness) + f"results: {folder}/results\n")
    command = ("snakemake", f"grpo/{name}", "--cores", "2", "--set-threads", f"grpo={threads}")
    run(folder, *command, "--configfile", str(config), delay=delay)
    stamp = json.loads(pl.read_parquet_metadata(folder / f"results/grpo/{name}.parquet")["proofmill"])
    return 60 * steps / stamp["training_seconds"]


def main(steps: int, staleness: int, delays: list[float], threads: int, folder: Path) -> None:
    """Print steps a minute by delay of the judge."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    before = ("sft/cold", "problems/practice", "schemes/practice")
    run(folder, "snakemake", *before, "--cores", "2", "--config", f"results={folder}/results")
    print(f"| judge answers after | steps a minute | with `max-staleness: {staleness}` | ratio |\n|---|---|---|---|")
    for delay in delays:
        plain, ahead = (train(folder, steps, *each) for each in ((0, delay, threads), (staleness, delay, 1)))
        print(f"| {delay:g} s | {plain:.1f} | {ahead:.1f} | {ahead / plain:.2f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--max-staleness", type=int, default=4)
    parser.add_argument("--delays", type=float, nargs="+", default=[0.0, 1.0, 5.0])
    parser.add_argument("--threads", type=int, default=1, help="threads of the training without stale rollouts")
    parser.add_argument("--folder", type=Path, help="folder for results (default: a temporary one)")
    options = parser.parse_args()
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).resolve()
        main(options.steps, options.max_staleness, options.delays, options.threads, folder)
