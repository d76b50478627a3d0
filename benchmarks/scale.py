"""Time and memory of a stage over the number of its rows: problems, overlaps, labels, grades, examples and scores.

    python benchmarks/scale.py [problems ...] [--sizes 10000 100000] [--folder FOLDER]

Each size of each kind is a process of its own that makes one table as its stage does; what the table is made from is made
before, by another process. Seconds are of the wall and of the processor, memory is the peak resident size of the process,
imports included. The exponent is the slope of the processor's seconds over the rows, both as logarithms: 1 is linear. Under
a table stand the bytes that each further row takes.

    problems   raw threads (threads.py) through every filter that needs no model, among them exact and near duplicates, and
               apart from a benchmark. `has-answer` is left out, because a thread has none
    overlaps   the threads that were kept, looked up in a benchmark
    labels     a judge's labels, all of whose answers are in the journal
    grades     attempts, four at each problem, marked by their final answers
    examples   training rows from these, with the full marks, each text once, two for each problem
    scores     mean marks, full marks and pass@2 of the same attempts
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
    *("has-problem", "is-problem", "no-image", "not-spam", {"statement-length": [20, 8000]}, "has-solution"),
    *({"solution-length": [30, 20_000]}, {"logic-steps": [1, None]}, {"year": [1990, 2030]}, {"origin": ["aops"]}),
    *("is-proof", "not-duplicate", {"not-near-duplicate": 0.7}, {"first": 1_000_000_000}),
]


def recipe(folder: Path, rows: int) -> dict[str, dict[str, Any]]:
    """All entries of a size; `x` has short answers, for stages that mark them."""
    return {
        "api/referee": {"id": "referee-1", "program": "referee", "price": {"input": 0, "output": 0}, "temperature": 0},
        "problems/bench": {"source": "arithmetic", "part": "test", "rows": 1_000},
        "problems/threads": {
            "source": "aops-threads",
            "path": str(folder / f"threads-{rows}.jsonl"),
            "keep": KEEP,
            "apart-from": ["problems/bench"],
        },
        "overlaps/threads": {"problems": ["problems/threads"], "against": ["problems/bench"]},
        "problems/judged": {"source": "table", "path": str(folder / f"judged-{rows}.jsonl")},
        "labels/judged": {"problems": "problems/judged", "model": "api/referee", "prompt": "classify"},
        "problems/x": {"source": "table", "path": str(folder / f"x-{rows}.jsonl")},
        "responses/x": {"problems": "problems/x", "model": "api/referee", "attempts": ATTEMPTS, "max-tokens": 1000},
        "grades/x": {"responses": "responses/x", "grader": "final-answer"},
        "examples/x": {"grades": "grades/x", "keep": ["full-marks", "distinct", {"at-most-per-problem": 2}]},
        "scores/x": {"grades": ["grades/x"], "measures": ["avg-at-k", "full-mark-rate", {"pass-at-k": 2}]},
    }


NEEDED = {  # what a kind's table is made from, in order
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
    """The tables of one size, in a folder of their own."""

    def __init__(self, folder: Path, rows: int):
        from proofmill.recipes.book import expand

        self.folder, self.rows, self.results = folder, rows, folder / f"results-{rows}"
        self.book = expand({"scale": recipe(folder, rows)})

    def make(self, name: str) -> None:
        from importlib import import_module

        from proofmill.artifacts import jobs
        from proofmill.recipes.identity import identity_of

        main = import_module(f"proofmill.{name.partition('/')[0]}").main
        identity = identity_of(self.book.entries[name], self.book.declared)
        jobs.make(main, name, identity, self.results, self.book.terms)

    def prepare(self, kind: str) -> None:
        """Make all that the kind's table is made from, where it is not there yet."""
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
        """Attempts of some hundred characters at the problems of `x`, as their stage would leave them."""
        from proofmill.artifacts.stamps import new_stamp
        from proofmill.recipes.identity import identity_of

        ids = (row["problem"] for row in table.other("problems/x").stream("problem"))
        identity = identity_of(self.book.entries[table.name], self.book.declared)
        parents = {"problems/x": table.other("problems/x").content}
        table.write(_responses(ids), new_stamp(table.name, identity, f"made-{self.rows}", parents, {}))


def _short(count: int) -> Iterator[str]:
    for n in range(count):
        yield f"{json.dumps({'statement': f'Find $x$ if $x + {n} = {3 * n + 1}$.', 'answer': str(2 * n + 1)})}\n"


def _responses(ids: Iterator[str]) -> Iterator[Mapping[str, Any]]:
    blank = dict.fromkeys(("writer", "reasoning", "reasoning_tokens", "mark", "out_of", "steps", "answered_by"))
    for n, id in enumerate(ids):
        for attempt in range(ATTEMPTS):
            found = 2 * n + 1 if (n + attempt) % 3 else n
            text = f"We subtract {n} on both sides, as attempt {attempt} does. " * 6 + f"\\boxed{{{found}}}"
            yield {**blank, "response": f"{id}-{attempt}", "problem": id, "attempt": attempt, "text": text, "stop": "end",
                   "reason": "ok", "prompt_tokens": 20, "tokens": 100 + n % 50, "cost": 0.0, "history": []}  # fmt: skip


def measured(folder: Path, kind: str, rows: int) -> None:
    """Make one table, and print what it took as JSON."""
    from proofmill.artifacts.tables import Table

    os.environ["PROOFMILL_FRESH"] = "all"
    size = Size(folder, rows)
    start, before = time.monotonic(), time.process_time()
    size.make(MEASURED[kind])
    used = {"seconds": time.monotonic() - start, "processor": time.process_time() - before}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if kind != "scores":  # a row of theirs is a number
        rows = Table(MEASURED[kind], size.results).height
    print(json.dumps({**used, "memory": peak, "rows": rows}))


def run(*arguments: str) -> str:
    """This file in a process of its own; what it prints."""
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


def table(folder: Path, kind: str, sizes: list[int]) -> None:
    print(f"\n## {kind}\n\n| rows | seconds | of the processor | rows/s | peak memory, MB |\n|---|---|---|---|---|")
    points = []
    for rows in sizes:
        run("--prepare", kind, str(rows), "--folder", str(folder))
        found = json.loads(run("--measure", kind, str(rows), "--folder", str(folder)))
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
    """Of the line with the least squares of its errors."""
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=KINDS, help="all by default")
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 100_000])
    parser.add_argument("--folder", type=Path, help="where files and tables stay; by default they are thrown away")
    parser.add_argument("--prepare", nargs=2, metavar=("KIND", "ROWS"), help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, metavar=("KIND", "ROWS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        kind, rows = options.prepare
        Size(options.folder, int(rows)).prepare(kind)
        return
    if options.measure:
        kind, rows = options.measure
        measured(options.folder, kind, int(rows))
        return
    with tempfile.TemporaryDirectory() as temporary:
        for kind in options.kinds:
            table(options.folder or Path(temporary), kind, options.sizes)


if __name__ == "__main__":
    main()
