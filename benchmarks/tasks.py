"""Check self-play tasks: the time to validate them, dependence on the hash seed, and code complexity.

    python benchmarks/tasks.py validity [--data FOLDER]
    python benchmarks/tasks.py sets
    python benchmarks/tasks.py complexity [--data FOLDER]      needs radon 6.0.1 and complexipy 8.3.0, which no lock has

validity     Validate the rows of CRUXEval in FOLDER as proposals, with one execution, two, and the default.
sets         Count which of 100 programs that list a set of texts pass with two executions and with the default.
complexity   Count the programs of CRUXEval and of the published seed tasks for which our numbers equal those of radon
             and complexipy.
"""

import argparse
import ast
import json
import time
from collections import Counter
from pathlib import Path

from proofmill.sandbox import values
from proofmill.sandbox.executor import Executor
from proofmill.selfplay_tasks.intrinsic import Science, cognitive_complexity, cyclomatic_complexity
from proofmill.selfplay_tasks.proposals import Proposal
from proofmill.selfplay_tasks.tasks import Task
from proofmill.selfplay_tasks.validity import valid


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def validity(data: Path) -> None:
    programs = rows(data / "cruxeval/first400.jsonl")
    proposals = [Proposal("deduce", row["code"], (row["input"],)) for row in programs]
    with Executor(workers=2) as executor:
        for name, runs in (("once", {"runs": 1, "runs_of_sets": 1}), ("twice", {"runs_of_sets": 2}), ("default", {})):
            began = time.perf_counter()
            found = valid(proposals, executor, **runs)
            seconds = time.perf_counter() - began
            same = sum(
                isinstance(task, Task) and values.same(values.parse(task.output), values.parse(row["output"]))
                for task, row in zip(found, programs, strict=True)
            )
            print(f"{name}: {seconds:.1f} s; {same} of {len(found)} valid, with the recorded output")


def sets() -> None:
    with Executor(workers=2) as executor:
        for size in (2, 3, 5):
            texts = [[f"{number}x{place}" for place in range(size)] for number in range(100)]
            programs = [f"def f(a):\n    return list({{{', '.join(map(repr, some))}}})" for some in texts]
            proposals = [Proposal("deduce", program, ("1",)) for program in programs]
            passed = [
                sum(isinstance(each, Task) for each in valid(proposals, executor, **runs))
                for runs in ({"runs_of_sets": 2}, {})
            ]
            print(f"sets of {size}: {passed[0]} of 100 pass with two executions, {passed[1]} with the default")


def complexity(data: Path) -> None:
    import complexipy
    from radon.complexity import cc_visit
    from radon.metrics import h_visit

    files = {
        "cruxeval/first400.jsonl": "code",
        "azr/seed_io_64.jsonl": "snippet",
        "azr/seed_code_f_64.jsonl": "snippet",
    }
    equal: Counter[str] = Counter()
    for program in [row[column] for file, column in files.items() for row in rows(data / file)]:
        tree, theirs = ast.parse(program), h_visit(program).total
        ours = Science.of(tree)
        counts = (ours.operators, ours.operands, ours.all_operators, ours.all_operands)
        equal["programs"] += 1
        equal["halstead"] += counts == (theirs.h1, theirs.h2, theirs.N1, theirs.N2)
        equal["cyclomatic"] += cyclomatic_complexity(tree) == max(
            (block.complexity for block in cc_visit(program)), default=0
        )
        equal["cognitive"] += cognitive_complexity(tree) == complexipy.code_complexity(program).complexity
    print(dict(equal))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["validity", "sets", "complexity"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    asked = parser.parse_args()
    {"validity": lambda: validity(asked.data), "sets": sets, "complexity": lambda: complexity(asked.data)}[asked.what]()


if __name__ == "__main__":
    main()
