"""Run a recipe from scratch in its own folder and print its cost: wall time, peak memory, seconds by rule.

    python benchmarks/nano.py [--cores 2] [--recipe nano] [--folder /tmp/nano] [--configfile workflow/rehearsal.yaml]

`--folder` is a new folder that keeps the results. Unknown arguments are passed to Snakemake. Memory is the sum of the
proportional set sizes of all processes of the run, sampled twice a second; shared pages count once. Seconds by rule
come from the tables' metadata, imports included. Jobs run concurrently, so these add up to more than the wall time.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path

import polars as pl
import psutil

ROOT = Path(__file__).parent.parent


def run(command: list[str], folder: Path) -> tuple[float, float]:
    """Return wall seconds and peak memory in GB of a command and its children."""
    start, peak = time.monotonic(), 0
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, _memory(process.pid))
        time.sleep(0.5)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit code {process.returncode}; run it in {folder} to see the error")
    return time.monotonic() - start, peak / 1e9


def _memory(pid: int) -> int:
    total = 0
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue  # it has ended since it was listed
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", default="2")
    parser.add_argument("--recipe", default="nano")
    parser.add_argument("--folder", type=Path)
    options, further = parser.parse_known_args()
    with tempfile.TemporaryDirectory() if options.folder is None else nullcontext(options.folder) as folder:
        Path(folder).mkdir(exist_ok=True)
        for name in ("Snakefile", "config.yaml", "workflow", "data", "profiles"):
            os.symlink(ROOT / name, Path(folder) / name)
        command = [sys.executable, "-m", "snakemake", options.recipe, "--cores", options.cores, *further]
        wall, peak = run(command, Path(folder))
        again, _ = run(command, Path(folder))
        print(f"wall {wall:.0f} s on {options.cores} cores, peak memory {peak:.2f} GB, second run {again:.1f} s\n")
        stamps = [
            json.loads(pl.read_parquet_metadata(p)["proofmill"]) for p in Path(folder).glob("results/*/*.parquet")
        ]
    by_kind: dict[str, list[float]] = defaultdict(list)
    for stamp in stamps:
        by_kind[stamp["kind"]].append(stamp["seconds"])
    print("| rule | jobs | seconds | longest |\n|---|---|---|---|")
    for kind, seconds in sorted(by_kind.items(), key=lambda item: -sum(item[1])):
        longest = max((s for s in stamps if s["kind"] == kind), key=lambda s: s["seconds"])
        print(f"| {kind} | {len(seconds)} | {sum(seconds):.0f} | {longest['name']} {longest['seconds']:.0f} |")


if __name__ == "__main__":
    main()
