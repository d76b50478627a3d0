"""Compare our verifier of final answers (two workers) with math-verify in a plain loop and in a plain pool, on MATH.

    python benchmarks/grading.py [--rows 3000] [--data ../shared/data] [--verdicts | --forms]

Half of the rows are solutions of MATH with their own gold answer, half with that of another row. No two rows have the
same gold answer and solution; in the second half, no two have the same gold and final answer. One row in 1,000 has an
answer that SymPy would compute for hours. The plain function reads the two answers as ours does, and calls `parse` and
`verify` with their own timeouts of 5 s. The pool is `multiprocessing.Pool(2).imap` of it. The three run sequentially,
each in a new process. Verdicts are compared row by row, and also with those of math-verify out of the box (its default
extraction, answers as written), from which ours differ on purpose.

A third as many rows have long formulas on both sides, which only a parser can compare.

Then gold answers of MATH and IMO-AnswerBench are changed in value, or written differently
(tests/fixtures/rewriting.py). Counted are changed answers that a verifier accepts, and equal ones that it does not
accept. `--verdicts` runs only this, and adds the pairs of tests/answers/pairs.csv.

`--forms` prints the table of docs/final-answers.md: a few of these pairs for each topic, with both verdicts.
"""

import argparse
import csv
import json
import logging
import multiprocessing
import os
import random
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path
from typing import NamedTuple

from proofmill.answers.extraction import extract, normal, of_gold
from proofmill.answers.final_answers import LONGEST
from proofmill.answers.verifier import Verifier

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fixtures"))
from rewriting import changes, rewritings

Row = tuple[str, str]  # gold answer, text
EVERY = 1000


def rows(data: Path, number: int) -> list[Row]:
    """Return rows of both kinds in a random order, without those that hang."""
    path = data / "math" / "train_every5th.jsonl"
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    chance = random.Random(0)
    own = [(record["answer"], record["solution"]) for record in records]
    made = chance.sample(own, min(number // 2, len(own)))
    seen = set()
    while len(made) < number:
        (gold, _), (_, text) = chance.choices(own, k=2)
        if (gold, extract(text)) not in seen:
            seen.add((gold, extract(text)))
            made.append((gold, text))
    chance.shuffle(made)
    return made


def hanging(number: int) -> list[Row]:
    """Return answers that take very long to compute: binomial coefficients of huge numbers."""
    return [("2^{2024}", f"In $\\boxed{{\\binom{{{10**9 + n}}}{{5 \\cdot 10^8}}}}$ ways.") for n in range(number)]


def heavy(data: Path, number: int) -> list[Row]:
    """Return gold answers that are formulas, half with an equal and half with another formula, without repetitions."""
    chance = random.Random(0)
    every = [gold for gold in golds(data) if len(gold) > 15 and re.search(r"\\[a-z]{3}|\^", gold)]
    kinds = [
        [(gold, f"\\boxed{{{text}}}") for gold in every for _, text in ways(gold)] for ways in (rewritings, changes)
    ]
    made = [row for some in kinds for row in chance.sample(some, min(number // 2, len(some)))]
    chance.shuffle(made)
    return made


def plain(row: Row) -> str:
    """Return the status from math-verify with its own timeouts."""
    import math_verify
    from math_verify.errors import TimeoutException

    gold, text = row
    answer = extract(text)
    if answer is None:
        return "no-answer"
    if len(answer) > LONGEST:
        return "unparsable"
    try:
        parsed = [
            math_verify.parse(f"\\boxed{{{form}}}", [math_verify.LatexExtractionConfig()], raise_on_error=True)
            for form in (normal(of_gold(gold)), normal(answer))
        ]
        if math_verify.verify(*parsed, strict=True, raise_on_error=True):
            return "correct"
    except (TimeoutException, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return "unparsable"
    return "unparsable" if any(all(isinstance(one, str) for one in some) for some in parsed) else "wrong"


def out_of_the_box(row: Row) -> str:
    import math_verify

    answer = extract(row[1])
    if answer is None:
        return "no-answer"
    parsed = [math_verify.parse(f"\\boxed{{{text}}}") for text in (row[0], answer)]
    return "correct" if math_verify.verify(*parsed) else "wrong"


Way = Callable[[list[Row]], tuple[float, list[str]]]  # time when it was ready, and the statuses


def ours(some: list[Row]) -> tuple[float, list[str]]:
    with Verifier(2) as verifier:
        return time.monotonic(), [check.status for check in verifier.check(some)]


def loop(some: list[Row]) -> tuple[float, list[str]]:
    import math_verify  # noqa: F401

    return time.monotonic(), [plain(row) for row in some]


def pool(some: list[Row]) -> tuple[float, list[str]]:
    with multiprocessing.Pool(2) as workers:
        return time.monotonic(), list(workers.imap(plain, some, chunksize=32))


class Run(NamedTuple):
    starting: float  # seconds
    seconds: float  # from the beginning to the last verdict
    processors: float  # seconds
    statuses: list[str]


def run(way: Way, some: list[Row]) -> Run:
    """Run a verifier in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(_run, way, some).result()


def _run(way: Way, some: list[Row]) -> Run:
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    start, used = time.monotonic(), sum(os.times()[:4])
    ready, statuses = way(some)
    return Run(ready - start, time.monotonic() - start, sum(os.times()[:4]) - used, statuses)


def compare(title: str, some: list[Row]) -> dict[str, list[str]]:
    """Run all verifiers on some rows and print their times."""
    print(f"\n{title}, load {os.getloadavg()[0]:.1f}\n")
    print("| verifier | seconds | of which starting | rows/s | time over ours | once started | CPU seconds |")
    print("|---|---|---|---|---|---|---|", flush=True)
    runs: dict[str, Run] = {}
    for name, way in (("ours, 2 workers", ours), ("plain loop", loop), ("plain pool of 2", pool)):
        made = runs[name] = run(way, some)
        first = runs["ours, 2 workers"]
        started = (made.seconds - made.starting) / (first.seconds - first.starting)
        print(
            f"| {name} | {made.seconds:.1f} | {made.starting:.1f} | {len(some) / made.seconds:,.0f} | "
            f"{made.seconds / first.seconds:.1f} | {started:.1f} | {made.processors:.1f} |",
            flush=True,
        )
    return {name: made.statuses for name, made in runs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3000)
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("PROOFMILL_DATA", shared)))
    parser.add_argument("--verdicts", action="store_true")
    parser.add_argument("--forms", action="store_true")
    options = parser.parse_args()
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    if options.forms:
        return forms()
    verdicts(options.data)
    if options.verdicts:
        return own_pairs()
    easy = rows(options.data, options.rows)
    hard = hanging(max(1, len(easy) // EVERY))
    mixed = list(easy)
    for n, row in zip(count(), hard):
        mixed.insert(n * EVERY + EVERY // 2, row)
    compare(f"{len(easy):,} rows", easy)
    formulas = heavy(options.data, options.rows // 3)
    compare(f"{len(formulas):,} rows of long formulas", formulas)
    results = compare(f"{len(easy):,} rows and {len(hard)} that hang", mixed)
    mine = results["ours, 2 workers"]
    print("\n" + ", ".join(f"{mine.count(status):,} {status}" for status in sorted(set(mine))))
    for name in ("plain loop", "plain pool of 2"):
        differ("of the " + name, mixed, mine, results[name])
    print("rows that hang: " + ", ".join(mine[mixed.index(row)] for row in hard))
    differ(
        "of math-verify out of the box (unparsable counted as wrong)",
        easy,
        [status.replace("unparsable", "wrong") for row, status in zip(mixed, mine, strict=True) if row not in hard],
        [out_of_the_box(row) for row in easy],
    )


def golds(data: Path) -> list[str]:
    """Return the distinct gold answers of both corpora."""
    lines = (data / "math" / "train_every5th.jsonl").read_text(encoding="utf-8").splitlines()
    with open(data / "imobench" / "answerbench_v2.csv", encoding="utf-8", newline="") as file:
        olympiad = [row["Short Answer"].strip("$ ") for row in csv.DictReader(file)]
    found = dict.fromkeys([*(json.loads(line)["answer"] for line in lines), *olympiad])
    return [gold for gold in found if gold and len(gold) < 200]


def verdicts(data: Path) -> None:
    """Print false positives and false negatives of our verifier and of math-verify out of the box."""
    every = golds(data)
    changed = [(gold, f"\\boxed{{{text}}}") for gold in every for _, text in changes(gold)]
    same = [(gold, f"\\boxed{{{text}}}") for gold in every for _, text in rewritings(gold)]
    print(f"{len(every):,} gold answers, {len(changed):,} changed in value, {len(same):,} written differently\n")
    print("| verifier | changed but accepted | equal but not accepted | of these unscored |")
    print("|---|---|---|---|")
    with Verifier(2) as verifier:
        mine = [[check.status for check in verifier.check(some)] for some in (changed, same)]
    theirs = [[out_of_the_box(row) for row in some] for some in (changed, same)]
    for name, (wrong, right) in (("ours", mine), ("math-verify", theirs)):
        unscored = sum(status in ("unparsable", "no-gold") for status in right)
        print(f"| {name} | {wrong.count('correct')} | {len(right) - right.count('correct')} | {unscored} |", flush=True)


PAIRS = Path(__file__).parents[1] / "tests" / "answers" / "pairs.csv"
SHOWN = {"right": 3, "wrong": 2, "unscored": 1}  # rows of the table, of each topic


def pairs() -> list[dict[str, str]]:
    """Return the pairs of tests/answers/pairs.csv: topic, gold, answer, verdict, and the text with a box."""
    with PAIRS.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    return [
        {**row, "text": row["answer"] if "\\box" in row["answer"] else f"\\boxed{{{row['answer']}}}"} for row in found
    ]


def own_pairs() -> None:
    """Print false positives and false negatives on our own pairs, of both verifiers."""
    found = pairs()
    rows = [(row["gold"], row["text"]) for row in found]
    with Verifier(2) as verifier:
        mine = [check.status for check in verifier.check(rows)]
    theirs = [out_of_the_box(row) for row in rows]
    counts = {verdict: sum(row["verdict"] == verdict for row in found) for verdict in SHOWN}
    print(
        f"\n{len(found):,} own pairs: {counts['right']} right, {counts['wrong']} wrong, {counts['unscored']} unclear\n"
    )
    print("| verifier | not right, but accepted | right, but refused | right, but unscored |\n|---|---|---|---|")
    for name, statuses in (("ours", mine), ("math-verify", theirs)):
        right = [status for row, status in zip(found, statuses, strict=True) if row["verdict"] == "right"]
        others = [status for row, status in zip(found, statuses, strict=True) if row["verdict"] != "right"]
        unscored = sum(status in ("unparsable", "no-gold") for status in right)
        print(f"| {name} | {others.count('correct')} | {right.count('wrong')} | {unscored} |")


def forms() -> None:
    """Print a Markdown table of some pairs of each topic, with our verdicts and those of math-verify."""
    print("| reference | answer | verdict | math-verify |\n|---|---|---|---|")
    found = pairs()
    for topic in dict.fromkeys(row["topic"] for row in found):
        for verdict, number in SHOWN.items():
            some = [row for row in found if (row["topic"], row["verdict"]) == (topic, verdict)]
            for row in some[:number]:
                cells = [f"`{row[side]}`".replace("|", "\\|") for side in ("gold", "answer")]
                theirs = {"correct": "right"}.get(status := out_of_the_box((row["gold"], row["text"])), status)
                print(f"| {cells[0]} | {cells[1]} | {verdict} | {theirs} |")


def differ(whose: str, some: list[Row], mine: list[str], theirs: list[str]) -> None:
    unlike = [(row, a, b) for row, a, b in zip(some, mine, theirs, strict=True) if a != b]
    print(f"{len(unlike)} of {len(some):,} verdicts differ from those {whose}")
    for (gold, text), a, b in unlike:
        print(f"    gold {gold!r}, answer {extract(text)!r}: ours {a}, theirs {b}")


if __name__ == "__main__":
    main()
