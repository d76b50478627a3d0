"""Measure the time and memory of `show`, of the viewer's pages and of pandas, on a table of a million rows and 2 GB.

    python benchmarks/analysis.py [--rows 1000000] [--recipes]

With `--recipes`, only the viewer's start page and a recipe's page, with 40 recipes of 77 stages, one of them made. *Cold*
is after a change of every table.

The training has 5,000 steps of 128 rollouts and 34 metrics at every step.

The table has responses with texts that compress badly, 8 attempts at each problem, and comes with its problems and
grades. Files are in the page cache. Commands run in their own processes; their time includes the start of Python. Pages
count from the request to a running viewer. Memory is the peak of the process.
"""

import argparse
import base64
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ATTEMPTS = 8
CHUNK = 2**24  # bytes
RECIPES, STAGES, REPEATS = 40, 77, 5
TEXT_BYTES = 2000  # before base64, which Parquet's compression undoes
STEPS, GROUPS, GROUP, METRICS = 5000, 16, 8, 34  # of the training
BLANK = {"writer": None, "given_grade": None, "max_points": None, "steps": None, "answer_step": None}
CONFIG = f"""\
bench:
  api/bench: {{id: m, price: unknown}}
  problems/x: {{source: table, path: none.jsonl}}
  responses/x: {{problems: problems/x, model: api/bench, prompt: solve, max-tokens: 1000, attempts: {ATTEMPTS}}}
  grades/x: {{responses: responses/x, grader: final-answer}}
  base/x: {{source: scratch, problems: problems/x}}
  grpo/x: {{model: base/x, problems: problems/x, grader: final-answer, rewards: {{grade: 1}}, unscored: drop, steps: {STEPS}}}
"""


def problems(count: int) -> Iterator[dict]:
    blank = {"solution": None, "answer": "1", "candidates": [], "guidelines": None, "question_type": "answer", "origin": None,
             "year": None, "level": None, "tags": [], "dropped": None, "evidence": None, "matched": None}  # fmt: skip
    return ({"problem": f"p{n:07d}", "statement": f"Find $x_{{{n}}}$.", **blank} for n in range(count))


def responses(count: int) -> Iterator[dict]:
    for n in range(count):
        yield {**BLANK, "response": f"r{n:07d}", "problem": f"p{n // ATTEMPTS:07d}", "attempt": n % ATTEMPTS,
               "text": base64.b64encode(os.urandom(TEXT_BYTES)).decode(), "reasoning": None, "stop_reason": "end", "reason": "ok",
               "prompt_tokens": 10, "tokens": n % 1000, "reasoning_tokens": None, "cost": 0.0, "request_messages": []}  # fmt: skip


def grades(count: int) -> Iterator[dict]:
    for n in range(count):
        yield {"response": f"r{n:07d}", "problem": f"p{n // ATTEMPTS:07d}", "attempt": n % ATTEMPTS, "grade": float(n % 2),
               "max_points": 1, "reason": "ok", "well_formed": True, "answer": None, "stop_reason": "end", "verdict": "", "opinions": [],
               "prompt_tokens": 0, "tokens": 0, "cost": 0.0}  # fmt: skip


def write(folder: Path, rows: int) -> None:
    """Write the three tables as their stages would."""
    from proofmill.artifacts.stamps import new_stamp
    from proofmill.artifacts.tables import Table
    from proofmill.config.config import expand
    from proofmill.config.yaml_files import read
    from proofmill.schema import references

    (folder / "config.yaml").write_text(CONFIG)
    config = expand(read(str(folder / "config.yaml")))
    made = {"problems/x": problems(rows // ATTEMPTS), "responses/x": responses(rows), "grades/x": grades(rows)}
    for name, some in made.items():
        entry = json.loads(references.canonical(config.entries[name]))
        Table(name, folder / "results").write(some, new_stamp(name, json.dumps({"entry": entry}), "f", {}, {}))
    write_training(config, folder)


def write_training(config: Any, folder: Path) -> None:
    """Write the table of a long training, with its rollouts."""
    import polars as pl

    from proofmill.artifacts.stamps import new_stamp
    from proofmill.artifacts.tables import Table
    from proofmill.schema import references
    from proofmill.training.rollout_log import columns

    rng, weights, schema = random.Random(0), folder / "weights", columns(["grade"])
    weights.mkdir()
    number = pl.int_range(STEPS * GROUPS * GROUP, eager=True)
    grade = pl.Series([float(rng.randrange(8)) for _ in range(len(number))])
    rollouts = pl.DataFrame({
        "rollout": number.cast(pl.String), "step": 1 + number // (GROUPS * GROUP), "group": number // GROUP % GROUPS,
        "grade": grade, "max_points": 7, "reward_grade": grade / 7, "tokens": number % 176, "use": "trained", "reason": "ok",
        "stop_reason": "end", "unscored": False, "advantage": grade - 3.5, "text": "So it is.", "problem": "p0000000",
    })  # fmt: skip
    missing = {name: pl.lit(None, kind) for name, kind in schema.items() if name not in rollouts.columns}
    rollouts.with_columns(**missing).select(*schema).write_parquet(weights / "rollouts.parquet")
    names = ["loss", "entropy", "grad_norm", "num_tokens", *(f"metric-{n}" for n in range(METRICS - 4))]
    rows = ({"step": n, "epoch": 0.0, "metric": name, "value": rng.random() + n * (name == "num_tokens")}
            for n in range(1, STEPS + 1) for name in names)  # fmt: skip
    entry = json.loads(references.canonical(config.entries["grpo/x"]))
    Table("grpo/x", folder / "results").write(
        rows, new_stamp("grpo/x", json.dumps({"entry": entry}), "f", {}, {}), weights
    )


def recipes() -> dict:
    """Return the configuration of RECIPES recipes, each of one problems table and of responses and grades of it."""

    def recipe(n: int) -> dict:
        of = {"problems": f"problems/r{n}", "model": "api/bench", "prompt": "solve", "max-tokens": 1000}
        entries = {f"problems/r{n}": {"source": "arithmetic", "rows": ATTEMPTS, "seed": n}}
        for m in range(STAGES // 2):
            entries |= {f"responses/r{n}-{m}": {**of, "attempts": m + 1}}
            entries |= {f"grades/r{n}-{m}": {"responses": f"responses/r{n}-{m}", "grader": "final-answer"}}
        return entries

    declared = {"shared": {"models": {"api/bench": {"id": "m", "price": "unknown"}}}}
    return declared | {f"r{n}": {"with": ["models"], **recipe(n)} for n in range(RECIPES)}


def write_recipe(folder: Path) -> None:
    """Write the configuration, and the tables of one recipe as up to date."""
    import yaml

    from proofmill.artifacts.stamps import new_stamp
    from proofmill.artifacts.states import States
    from proofmill.artifacts.tables import Table
    from proofmill.config.config import expand
    from proofmill.config.identity import identity_of

    (folder / "config.yaml").write_text(yaml.safe_dump(recipes()))
    config, rows = expand(recipes()), {"problems": problems, "responses": responses, "grades": grades}
    for name in sorted(config.recipes["r0"], key=lambda name: list(rows).index(name.partition("/")[0])):
        expected = States(config, folder / "results").expect(name)
        identity = identity_of(config.entries[name], config.declared)
        stamp = new_stamp(name, identity, expected.fingerprint, expected.parents, expected.sources)
        made = rows[name.partition("/")[0]](ATTEMPTS)
        Table(name, folder / "results").write(made, {**stamp, "counts": {"ok": ATTEMPTS}, "seconds": 1.0})


def time_recipes(folder: Path) -> Iterator[tuple[str, float, float]]:
    """Yield the start and the recipe's page: name, seconds (of five requests the median), and CPU seconds (their mean)."""
    import httpx

    def cpu() -> float:
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    command = [sys.executable, "-m", "proofmill", "view"]
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    yield "viewer: start to its address", time.monotonic() - start, cpu()
    with httpx.Client(follow_redirects=True, timeout=60) as client:
        client.get(address).raise_for_status()
        yield "viewer: start to its first page", time.monotonic() - start, cpu()
        base = address.partition("/?")[0]
        for what, path in {"start page": "/", "recipe": "/recipe/r0"}.items():
            for state in ("cold", "warm"):
                times, before = [], cpu()
                for _ in range(REPEATS):
                    for file in (folder / "results").glob("*/*.parquet") if state == "cold" else ():
                        os.utime(file)
                    start = time.monotonic()
                    client.get(base + path).raise_for_status()
                    times.append(time.monotonic() - start)
                yield f"viewer: {what}, {state}", sorted(times)[REPEATS // 2], (cpu() - before) / REPEATS
    process.terminate()
    process.wait()


def timed(folder: Path, *command: str) -> tuple[float, float]:
    """Return seconds and peak memory in MB of a command."""
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, f"{' '.join(command)}: {status}"
    return time.monotonic() - start, usage.ru_maxrss / 1024


def time_viewer(folder: Path, rows: int) -> Iterator[tuple[str, float, float]]:
    """Yield the viewer's start and its pages: name, seconds, and its peak memory in MB so far."""
    import httpx

    middle = rows // ATTEMPTS // 2
    start = time.monotonic()
    command = [sys.executable, "-m", "proofmill", "view"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()

    def peak() -> float:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    with httpx.Client(follow_redirects=True, timeout=60) as client:
        client.get(address).raise_for_status()
        yield "viewer: start to its first page", time.monotonic() - start, peak()
        base = address.partition("/?")[0]
        for what, path in {
            "viewer: first page of the table": "/table/responses/x",
            "viewer: a page in the middle": f"/table/responses/x?page={rows // 100}",
            "viewer: filtered, `tokens = 7`": "/table/responses/x?where=tokens+%3D+7",
            "viewer: histogram of tokens": "/table/responses/x?histogram=tokens",
            "viewer: a problem with its attempts": f"/problem/problems/x/p{middle:07d}",
            "viewer: the same page, second time": f"/problem/problems/x/p{middle:07d}",
            "viewer: curves of a training": "/training/grpo/x",
            "viewer: the same curves, second time": "/training/grpo/x",
            "viewer: 150 steps of them": "/curves.json?of=grpo/x&from=1000&to=1149",
            "viewer: rollouts of one step": "/rollouts/grpo/x?step=2500",
        }.items():
            start = time.monotonic()
            client.get(base + path).raise_for_status()
            yield what, time.monotonic() - start, peak()
    process.terminate()
    process.wait()


def main(rows: int) -> None:
    """Print the table of all measurements."""
    show = (sys.executable, "-m", "proofmill", "show")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # In another process, because a child starts with the peak memory of its parent.
        writer = multiprocessing.get_context("spawn").Process(target=write, args=(folder, rows))
        writer.start()
        writer.join()
        assert writer.exitcode == 0, "the tables were not written"
        file = folder / "results/responses/x.parquet"
        print(f"{rows:,} rows, {file.stat().st_size / 1e9:.2f} GB\n\n| | seconds | peak memory, MB |\n|---|---|---|")
        with open(file, "rb") as opened:
            while opened.read(CHUNK):
                pass
        load = "import pandas; pandas.read_parquet('results/responses/x.parquet')"
        for what, command in {
            "`show`": (*show, "responses/x"),
            "`show --row`": (*show, "responses/x", "--row", f"r{rows // 2:07d}"),
            "`show --where 'tokens = 7'`": (*show, "responses/x", "--where", "tokens = 7"),
        }.items():
            print("| {} | {:.2f} | {:,.0f} |".format(what, *timed(folder, *command)), flush=True)
        for what, seconds, memory in time_viewer(folder, rows):
            print(f"| {what} | {seconds:.2f} | {memory:,.0f} |", flush=True)
        print(
            "| pandas.read_parquet | {:.2f} | {:,.0f} |".format(*timed(folder, sys.executable, "-c", load)), flush=True
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--recipes", action="store_true")
    options = parser.parse_args()
    if options.recipes:
        with tempfile.TemporaryDirectory() as name:
            write_recipe(Path(name))
            print("| | ms | CPU, ms |\n|---|---|---|")
            for what, seconds, busy in time_recipes(Path(name)):
                print(f"| {what} | {1000 * seconds:,.0f} | {1000 * busy:,.0f} |", flush=True)
    else:
        main(options.rows)
