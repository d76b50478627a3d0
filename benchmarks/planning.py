"""Time `snakemake -n` and of `proofmill plan` on a configuration with a thousand artifacts.

    python benchmarks/planning.py [--artifacts 1000] [--profile]

An empty workflow shows the time of Snakemake's start. The artifacts are chains of four (problems, responses, grades,
examples) without tables. `--profile` prints the functions that take most of the dry run.
"""

import argparse
import os
import pstats
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
API = "api/judge: {id: judge, price: {input: 1, output: 1}, price-source: 'a benchmark, 2026-11-01'}"
CHAIN = """\
  problems/p{n}: {{source: arithmetic, rows: {rows}}}
  responses/r{n}: {{problems: problems/p{n}, model: api/judge, prompt: solve, max-tokens: 1024}}
  grades/g{n}: {{responses: responses/r{n}, grader: arithmetic}}
  examples/e{n}: {{grades: grades/g{n}, keep: [solved]}}
"""
SHOWN = 25  # functions of the profile


def write(folder: Path, artifacts: int) -> None:
    """Write a project with this many artifacts in one recipe."""
    chains = "".join(CHAIN.format(n=n, rows=n + 1) for n in range(artifacts // 4))
    for part in ("Snakefile", "workflow", "profiles", "data"):
        (folder / part).symlink_to(ROOT / part)
    (folder / "config.yaml").write_text(f"many:\n  {API}\n{chains}")
    (folder / "empty").mkdir()
    (folder / "empty/Snakefile").write_text("rule all:\n    input: []\n")


def seconds(*command: str, folder: Path) -> float:
    """Return the wall time of a command. Raises AssertionError if it fails."""
    start = time.monotonic()
    environment = {**os.environ, "PROOFMILL_JUDGE_URL": "http://127.0.0.1:9/v1"}  # no calls are made
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    return time.monotonic() - start


def main(artifacts: int, profiled: bool) -> None:
    snakemake, dry = (sys.executable, "-m", "snakemake"), ("-n", "--quiet", "all")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, artifacts)
        print("| | seconds |\n|---|---|")
        for what, command, where in (
            ("`snakemake -n`, an empty workflow", (*snakemake, "--cores", "1", *dry), folder / "empty"),
            (f"`snakemake -n`, {artifacts:,} artifacts", (*snakemake, "many", *dry), folder),
            (f"`proofmill plan`, {artifacts:,} artifacts", (sys.executable, "-m", "proofmill", "plan", "many"), folder),
        ):
            print(f"| {what} | {seconds(*command, folder=where):.1f} |", flush=True)
        if profiled:
            found = folder / "profile"
            run = (sys.executable, "-m", "cProfile", "-o", found, "-m", "snakemake", "many", *dry)
            subprocess.run(run, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            pstats.Stats(str(found)).sort_stats("tottime").print_stats(SHOWN)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifacts", type=int, default=1000)
    parser.add_argument("--profile", action="store_true", help="print the slowest functions of the dry run")
    options = parser.parse_args()
    main(options.artifacts, options.profile)
