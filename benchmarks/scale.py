"""Measure the time and memory of a stage by rows: problems, overlaps, labels, grades, examples and scores.

    python benchmarks/scale.py [problems ...] [--sizes 10000 100000] [--folder FOLDER]

A process builds one table, of one kind and size, as its stage does. Another process has built its parents. The table
has wall and CPU seconds, and the peak resident size of the process, imports included. The exponent is the slope of the
CPU seconds over the rows, both as logarithms: 1 is linear. Below each table are the bytes per further row.

    problems   raw threads (threads.py) through every filter that needs no model, including exact and near duplicates,
               and decontaminated against a benchmark; without `has-answer`, because threads have no answers
    overlaps   the kept threads, looked up in a benchmark
    labels     a judge's labels, with all outputs in the journal
    grades     attempts, four per problem, graded by their final answers
    examples   solved attempts of these, each text once, at most two per problem
    scores     mean grade, solve rate and pass@2 of the same attempts
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

KINDS = ("problems", "overlaps", "labels", "grades", "examples", "scores")
ATTEMPTS = 4
KEEP = [
    *("has-statement", "is-problem", "no-image", "not-spam", {"statement-length": [20, 8000]}, "has-solution"),
    *({"solution-length": [30, 20_000]}, {"solution-steps": [1, None]}, {"year": [1990, 2030]}, {"origin": ["aops"]}),
    *("is-proof", "not-duplicate", {"not-near-duplicate": 0.7}, {"first": 1_000_000_000}),
]


def recipe(folder: Path, rows: int) -> dict[str, dict[str, Any]]:
    """Return all entries of a size; `x` has short answers, for stages that grade them."""
    return {
        "api/referee": {"id": "referee-1", "program": "referee", "price": {"input": 0, "output": 0}, "temperature": 0},
        "problems/bench": {"source": "arithmetic", "split": "test", "rows": 1_000},
        "problems/threads": {
            "source": "aops-threads",
            "path": str(folder / f"threads-{rows}.jsonl"),
            "keep": KEEP,
            "decontaminate": ["problems/bench"],
        },
        "overlaps/threads": {"problems": ["problems/threads"], "against": ["problems/bench"]},
        "problems/judged": {"source": "table", "path": str(folder / f"judged-{rows}.jsonl")},
        "labels/judged": {"problems": "problems/judged", "model": "api/referee", "prompt": "classify"},
        "problems/x": {"source": "table", "path": str(folder / f"x-{rows}.jsonl")},
        "responses/x": {"problems": "problems/x", "model": "api/referee", "attempts": ATTEMPTS, "max-tokens": 1000},
        "grades/x": {"responses": "responses/x", "grader": "final-answer"},
        "examples/x": {"grades": "grades/x", "keep": ["solved", "distinct", {"at-most-per-problem": 2}]},
        "scores/x": {"grades": ["grades/x"], "metrics": ["avg-at-k", "solve-rate", {"pass-at-k": 2}]},
    }


NEEDED = {  # the tables from which a kind's table is built, in order
    "problems": ("problems/bench",),
    "overlaps": ("problems/bench", "problems/threads"),
    "labels": ("problems/judged", "labels/judged"),
    "grades": ("problems/x", "responses/x"),
    "examples": ("problems/x", "responses/x", "grades/x"),
    "scores": ("problems/x", "responses/x", "grades/x"),
}
MEASURED = {
    "problems": "problems/threads",
    "overlaps": "overlaps/threads",
    "labels": "labels/judged",
    "grades": "grades/x",
    "examples": "examples/x",
    "scores": "scores/x",
}


class Size:
    """The tables of one size, in their own folder."""

    def __init__(self, folder: Path, rows: int):
        from proofmill.config.config import expand

        self.folder, self.rows, self.results = folder, rows, folder / f"results-{rows}"
        self.config = expand({"scale": recipe(folder, rows)})

    def make(self, name: str) -> None:
        from importlib import import_module

        from proofmill.artifacts import jobs
        from proofmill.config.identity import identity_of

        main = import_module(f"proofmill.{name.partition('/')[0]}").main
        identity = identity_of(self.config.entries[name], self.config.declared)
        jobs.make(main, name, identity, self.results, self.config.terms)

    def prepare(self, kind: str) -> None:
        """Build the missing parents of the kind's table."""
        from proofmill.artifacts.tables import Table

        self.folder.mkdir(parents=True, exist_ok=True)
        self._file("threads", kind in ("problems", "overlaps"))
        self._file("x", kind in ("grades", "examples", "scores"))
        self._file("judged", kind == "labels")
        for name in NEEDED[kind]:
            if Table(name, self.results).path.exists():
                continue
            if name == "responses/x":
                self._attempts(Table(name, self.results))
            else:
                self.make(name)

    def _file(self, what: str, needed: bool) -> None:
        import threads

        path = self.folder / f"{what}-{self.rows}.jsonl"
        if needed and not path.exists():
            count = self.rows // ATTEMPTS if what == "x" else self.rows
            lines = threads.lines(count) if what == "threads" else _short(count)
            with open(path.with_suffix(".new"), "w", encoding="utf-8") as file:
                file.writelines(lines)
            path.with_suffix(".new").replace(path)

    def _attempts(self, table: Any) -> None:
        """Write attempts of some hundred characters at the problems of `x`, as their stage would."""
        from proofmill.artifacts.stamps import new_stamp
        from proofmill.config.identity import identity_of

        ids = (row["problem"] for row in table.other("problems/x").stream("problem"))
        identity = identity_of(self.config.entries[table.name], self.config.declared)
        parents = {"problems/x": table.other("problems/x").content}
        table.write(_responses(ids), new_stamp(table.name, identity, f"made-{self.rows}", parents, {}))


def _short(count: int) -> Iterator[str]:
    for n in range(count):
        yield f"{json.dumps({'statement': f'Find $x$ if $x + {n} = {3 * n + 1}$.', 'answer': str(2 * n + 1)})}\n"


def _responses(ids: Iterator[str]) -> Iterator[Mapping[str, Any]]:
    blank = dict.fromkeys(
        ("writer", "reasoning", "reasoning_tokens", "given_grade", "max_points", "steps", "answer_step")
    )
    for n, id in enumerate(ids):
        for attempt in range(ATTEMPTS):
            found = 2 * n + 1 if (n + attempt) % 3 else n
            text = f"We subtract {n} on both sides, as attempt {attempt} does. " * 6 + f"\\boxed{{{found}}}"
            yield {**blank, "response": f"{id}-{attempt}", "problem": id, "attempt": attempt, "text": text, "stop_reason": "end",
                   "reason": "ok", "prompt_tokens": 20, "tokens": 100 + n % 50, "cost": 0.0, "request_messages": []}  # fmt: skip


def evaluate(folder: Path, kind: str, rows: int) -> None:
    """Build one table, and print its time, memory and rows as JSON."""
    from proofmill.artifacts.tables import Table

    os.environ["PROOFMILL_FORCE"] = "all"
    size = Size(folder, rows)
    start, before = time.monotonic(), time.process_time()
    size.make(MEASURED[kind])
    used = {"seconds": time.monotonic() - start, "processor": time.process_time() - before}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if kind != "scores":  # its rows are numbers, not attempts
        rows = Table(MEASURED[kind], size.results).height
    print(json.dumps({**used, "memory": peak, "rows": rows}))


def run(*arguments: str) -> str:
    """Run this file in another process and return its output."""
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


def table(folder: Path, kind: str, sizes: list[int]) -> None:
    print(f"\n## {kind}\n\n| rows | seconds | CPU seconds | rows/s | peak memory, MB |\n|---|---|---|---|---|")
    points = []
    for rows in sizes:
        run("--prepare", kind, str(rows), "--folder", str(folder))
        found = json.loads(run("--build", kind, str(rows), "--folder", str(folder)))
        points.append((found["rows"], found["processor"], found["memory"]))
        speed = f"{found['rows'] / found['seconds']:,.0f}"
        print(
            f"| {found['rows']:,} | {found['seconds']:.1f} | {found['processor']:.1f} | {speed} | {found['memory']:,.0f} |",
            flush=True,
        )
    if len(points) > 1:
        print(f"\nExponent {slope([(math.log(rows), math.log(used)) for rows, used, _ in points]):.2f}", end="; ")
        print(f"{2**20 * slope([(rows, memory) for rows, _, memory in points]):,.0f} bytes a row", flush=True)


def slope(points: list[tuple[float, float]]) -> float:
    """Return the slope of the least-squares line."""
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=KINDS, help="kinds to measure (default: all)")
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 100_000])
    parser.add_argument("--folder", type=Path, help="folder for files and tables (default: a temporary one)")
    parser.add_argument("--prepare", nargs=2, metavar=("KIND", "ROWS"), help=argparse.SUPPRESS)
    parser.add_argument("--build", nargs=2, metavar=("KIND", "ROWS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        kind, rows = options.prepare
        Size(options.folder, int(rows)).prepare(kind)
        return
    if options.build:
        kind, rows = options.build
        evaluate(options.folder, kind, int(rows))
        return
    with tempfile.TemporaryDirectory() as temporary:
        for kind in options.kinds:
            table(options.folder or Path(temporary), kind, options.sizes)


if __name__ == "__main__":
    main()
