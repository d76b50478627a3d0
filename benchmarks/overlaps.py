"""Measure the precision and recall of every method of `overlaps`, including the judge, on pairs with known truth.

    python benchmarks/overlaps.py [--problems 200] [--results FOLDER]

Three sets:

    written    The pairs of tests/decontamination/: copies in other spelling, order, words and languages, and hard
               negatives. No judge is called, because the referee cannot read them. For `judge` the table has the share
               of copies that are found or would be asked about, which is the best that any judge could do.
    arithmetic Problems of the synthetic family as a benchmark. Each occurs once more in other wording, with its terms
               in another order, or within a post, together with as many other problems of the same families: the same
               templates with other numbers. The referee decides, called over HTTP like a remote judge.
    spoiled    The same, but the referee cannot read the wording of one post in ten; those pairs are undecided.

A row counts as found with its own benchmark statement. A match with any other statement is false.
"""

import argparse
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from proofmill import overlaps, problems
from proofmill.artifacts import jobs
from proofmill.artifacts.tables import Table
from proofmill.config.config import expand
from proofmill.config.identity import identity_of
from proofmill.decontamination.index import LOOKED_UP
from proofmill.synthetic import congruences
from proofmill.synthetic.congruences import Congruence

PAIRS = Path(__file__).parent.parent / "tests" / "decontamination"
REFEREE = {"id": "referee-1", "program": "referee", "price": {"input": 0, "output": 0}, "temperature": 0}
DEFAULT = ("exact", "ngram", "minhash")


class Case(NamedTuple):
    """A row, the index of the benchmark statement that it copies, if any, and the way it is written."""

    row: str
    copy_of: int | None
    way: str


# ------------------------------------------------------------------------------------------------------------- the sets


def written() -> tuple[list[str], list[Case]]:
    pairs = [
        json.loads(line)
        for name in ("same", "different")
        for line in (PAIRS / f"{name}.jsonl").read_text().splitlines()
    ]
    benchmark = sorted({pair["benchmark"] for pair in pairs})
    places = {text: place for place, text in enumerate(benchmark)}
    return benchmark, [
        Case(pair["statement"], places[pair["benchmark"]] if pair["contaminated"] else None, pair["kind"])
        for pair in pairs
    ]


def turned(problem: Congruence, rng: random.Random) -> Congruence:
    """Return the same problem with its terms in another order."""
    if not problem.asks_for_proof:
        return problem
    terms = list(congruences.pairs(problem.numbers))
    rng.shuffle(terms)
    numbers = (*(number for term in terms for number in term), problem.numbers[-1])
    return Congruence(problem.family, problem.modulus, numbers)


def posted(problem: Congruence, rng: random.Random) -> str:
    before = ("My teacher gave us this one.", "I am stuck here.", "From an old notebook.")
    return f"{rng.choice(before)}\n{congruences.statement(problem, 1)}\nAny ideas?"


def unknown_words(problem: Congruence, rng: random.Random) -> str:
    return f"A friend divides by {problem.modulus}: what is left of {problem.formula}, and why?"


WAYS: dict[str, Callable[[Congruence, random.Random], str]] = {
    "other wording": lambda problem, rng: congruences.statement(problem, 1),
    "terms in another order": lambda problem, rng: congruences.statement(turned(problem, rng), 1),
    "within a post": posted,
}


def arithmetic(count: int, spoiled: float) -> tuple[list[str], list[Case]]:
    """Return `count` benchmark statements, a copy of each in one of WAYS, and as many problems with other numbers."""
    rng, known = random.Random(0), {}
    for problem in congruences.problems("train", 17):
        known.setdefault(problem.content, problem)
        if len(known) == 2 * count:
            break
    made = list(known.values())
    cases = []
    for place, problem in enumerate(made[:count]):
        way = list(WAYS)[place % len(WAYS)]
        strange = rng.random() < spoiled
        text = unknown_words(problem, rng) if strange else WAYS[way](problem, rng)
        cases.append(Case(text, place, "unknown words" if strange else way))
    cases += [
        Case(congruences.statement(problem, rng.randint(0, 1)), None, "other numbers") for problem in made[count:]
    ]
    rng.shuffle(cases)
    return [congruences.statement(problem) for problem in made[:count]], cases


# -------------------------------------------------------------------------------------------------------------- measured


def made(folder: Path, benchmark: Sequence[str], rows: Sequence[str], **entry) -> Table:
    """Build the table of an `overlaps` entry."""
    folder.mkdir(parents=True, exist_ok=True)
    entries: dict[str, dict] = {"api/referee": REFEREE}
    for name, texts in (("bench", benchmark), ("rows", rows)):
        path = folder / f"{name}.jsonl"
        path.write_text(
            "".join(json.dumps({"problem": str(n), "statement": text}) + "\n" for n, text in enumerate(texts))
        )
        entries[f"problems/{name}"] = {"source": "table", "path": str(path)}
    entries["overlaps/o"] = {"problems": ["problems/rows"], "against": ["problems/bench"], **entry}
    config = expand({"measured": entries})
    mains = {"problems/bench": problems.main, "problems/rows": problems.main, "overlaps/o": overlaps.main}
    for name, main in mains.items():
        jobs.make(main, name, identity_of(config.entries[name], config.declared), folder / "results", config.terms)
    return Table("overlaps/o", folder / "results")


def shares(pairs: Iterable[tuple[int, int]], cases: Sequence[Case]) -> str:
    """Return precision and recall of pairs (row, statement), as cells of a table."""
    found = set(pairs)
    right = sum((row, case.copy_of) in found for row, case in enumerate(cases))
    copies = sum(case.copy_of is not None for case in cases)
    precision = f"{right / len(found):.3f}" if found else "none found"
    return f"{precision} | {right / copies:.3f} |"


def pairs_of(table: Table, *methods: str) -> list[tuple[int, int]]:
    rows = [row for row in table.rows() if row["method"] in methods and row["reason"] == "ok"]
    return [(int(row["problem"]), int(row["against_problem"])) for row in rows]


def evaluate(name: str, folder: Path, benchmark: list[str], cases: list[Case], judge: bool) -> None:
    rows = [case.row for case in cases]
    copies = sum(case.copy_of is not None for case in cases)
    print(f"\n## {name}: {len(benchmark):,} statements, {len(cases):,} rows, {copies:,} of them copies\n")
    print("| method | precision | recall |\n|---|---|---|")
    for method in LOOKED_UP:
        words = 8 if method == "plain-ngram" else 13
        table = made(folder / method, benchmark, rows, methods=[method], words=words)
        print(f"| {method} | {shares(pairs_of(table, method), cases)}")
    table = made(folder / "default", benchmark, rows)
    cheap = pairs_of(table, *DEFAULT)
    print(f"| {', '.join(DEFAULT)} | {shares(cheap, cases)}")
    if not judge:
        said = reach(folder, cases, cheap)
        print(f"\n{said}")
        return
    both = made(folder / "judge", benchmark, rows, methods=[*DEFAULT, "judge"], model="api/referee")
    print(f"| judge, on its own pairs | {shares(pairs_of(both, 'judge'), cases)}")
    print(f"| {', '.join(DEFAULT)}, judge | {shares(pairs_of(both, *DEFAULT, 'judge'), cases)}")
    print(f"\nCounts: {json.dumps(both.stamp['counts'])}")
    found = set(pairs_of(both, *DEFAULT, "judge"))
    undecided = {int(row["problem"]) for row in both.rows() if row["reason"] != "ok"}
    missed = [
        (row, case) for row, case in enumerate(cases) if case.copy_of is not None and (row, case.copy_of) not in found
    ]
    open_ = Counter(case.way for row, case in missed if row in undecided)
    never = Counter(case.way for row, case in missed if row not in undecided)
    print(f"Missed copies: without a call {dict(never)}; undecided {dict(open_)}")


def reach(folder: Path, cases: Sequence[Case], cheap: Sequence[tuple[int, int]]) -> str:
    """Print the share of copies that the default methods or a judge could find; return a sentence about the rest."""
    tables = {
        name: {"source": "table", "path": str(folder / "default" / f"{name}.jsonl")} for name in ("rows", "bench")
    }
    entries = {f"problems/{name}": table for name, table in tables.items()}
    judged = {"problems": ["problems/rows"], "against": ["problems/bench"], "model": "api/referee"}
    judged["methods"] = [*DEFAULT, "judge"]
    config = expand({"measured": {**entries, "api/referee": REFEREE, "overlaps/asked": judged}})
    stamp = {"parents": dict.fromkeys(entries)}
    job = jobs.Job(Table("overlaps/asked", folder / "default" / "results"), config.declared, "", stamp)
    pairs = overlaps.candidate_pairs(config.entries["overlaps/asked"], job)
    asked = {(int(pair.problem), int(pair.other)) for pair in pairs}
    copies = {(row, case.copy_of) for row, case in enumerate(cases) if case.copy_of is not None}
    missed = copies - asked - set(cheap)
    print(f"| found, or a pair for the judge | - | {1 - len(missed) / len(copies):.3f} |")
    return f"{len(asked):,} pairs for the judge; missed {dict(Counter(cases[row].way for row, _ in missed))}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200, help="benchmark statements of the arithmetic sets")
    parser.add_argument("--results", type=Path, help="folder for tables (default: a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.results or Path(temporary)
        evaluate("written", folder / "written", *written(), judge=False)
        evaluate("arithmetic", folder / "arithmetic", *arithmetic(options.problems, 0.0), judge=True)
        evaluate("spoiled", folder / "spoiled", *arithmetic(options.problems, 0.1), judge=True)


if __name__ == "__main__":
    main()
