"""Planning: seconds of `snakemake -n` and of `proofmill plan` over a configuration with a thousand artifacts.

    python benchmarks/planning.py [--artifacts 1000] [--profile]

Beside an empty workflow, in which Snakemake does nothing but start. The artifacts are chains of four (problems, responses,
grades, examples), none of them made. `--profile` adds where the time of the dry run goes, by the function that takes it.
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
  examples/e{n}: {{grades: grades/g{n}, keep: [full-marks]}}
"""
SHOWN = 25  # functions of the profile


def written(folder: Path, artifacts: int) -> None:
    """A project of this many artifacts, all of one recipe."""
    chains = "".join(CHAIN.format(n=n, rows=n + 1) for n in range(artifacts // 4))
    for part in ("Snakefile", "workflow", "profiles", "data"):
        (folder / part).symlink_to(ROOT / part)
    (folder / "config.yaml").write_text(f"many:\n  {API}\n{chains}")
    (folder / "empty").mkdir()
    (folder / "empty/Snakefile").write_text("rule all:\n    input: []\n")


def seconds(*command: str, folder: Path) -> float:
    """Wall time of a command that ends well."""
    start = time.monotonic()
    environment = {**os.environ, "PROOFMILL_JUDGE_URL": "http://127.0.0.1:9/v1"}  # nobody is asked
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    return time.monotonic() - start


def main(artifacts: int, profiled: bool) -> None:
    snakemake, dry = (sys.executable, "-m", "snakemake"), ("-n", "--quiet", "all")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written(folder, artifacts)
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
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    options = parser.parse_args()
    main(options.artifacts, options.profile)
