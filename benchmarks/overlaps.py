"""Measure the precision and recall of every method of `overlaps`, including the judge, on pairs with known truth.

    python benchmarks/overlaps.py [--problems 200] [--results FOLDER] [--data ../shared/data] [--threads 1] [--only SET]

Four sets:

    written    The pairs of tests/decontamination/: copies in other spelling, order, words and languages, and hard
               negatives. No judge is called, because the referee cannot read them. For `judge` the table has the share
               of copies that are found or would be asked about, which is the best that any judge could do.
    arithmetic Problems of the synthetic family as a benchmark. Each occurs once more in other wording, with its terms
               in another order, or within a post, together with as many other problems of the same families: the same
               templates with other numbers. The referee decides, called over HTTP like a remote judge.
    spoiled    The same, but the referee cannot read the wording of one post in ten; those pairs are undecided.
    rewritten  Copies of problems of GSM8K (test) and MATH among 7,473 problems of GSM8K (train) and other problems of
               MATH, for the method `embedding` at several similarities. Copies are rephrased or translated by hand
               (tests/decontamination/rewritten.jsonl), or have other names, or other numbers. Other numbers make
               another problem for some uses and a copy for others, so these rows count neither as true nor as false.
               The default similarity was chosen on the first half of the rows; the second half tests it.

A row counts as found with its own benchmark statement. A match with any other statement is false.
"""

import argparse
import json
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from decontamination import NAMES

from proofmill import overlaps, problems
from proofmill.artifacts import jobs
from proofmill.artifacts.tables import Table
from proofmill.calls.calls import Spent
from proofmill.config.config import expand
from proofmill.config.identity import identity_of
from proofmill.decontamination.index import LOOKED_UP
from proofmill.engines.open_engine import asking
from proofmill.schema.entries.problem_entries import MINILM, Overlaps
from proofmill.schema.fields import defaults_of
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


def made(folder: Path, benchmark: Sequence[str], rows: Sequence[str], threads: int = 1, **entry) -> Table:
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
        identity = identity_of(config.entries[name], config.declared)
        jobs.make(main, name, identity, folder / "results", config.terms, threads=threads)
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
    for method in (*LOOKED_UP, "embedding"):
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
    asked = candidates(folder / "default", methods=[*DEFAULT, "judge"])
    copies = {(row, case.copy_of) for row, case in enumerate(cases) if case.copy_of is not None}
    missed = copies - asked - set(cheap)
    print(f"| found, or a pair for the judge | - | {1 - len(missed) / len(copies):.3f} |")
    return f"{len(asked):,} pairs for the judge; missed {dict(Counter(cases[row].way for row, _ in missed))}"


def candidates(folder: Path, **entry) -> set[tuple[int, int]]:
    """Return the pairs (row, statement) that a judge would compare, by the tables of `made` in this folder."""
    tables = {name: {"source": "table", "path": str(folder / f"{name}.jsonl")} for name in ("rows", "bench")}
    entries = {f"problems/{name}": table for name, table in tables.items()}
    judged = {"problems": ["problems/rows"], "against": ["problems/bench"], "model": "api/referee", **entry}
    config = expand({"measured": {**entries, "api/referee": REFEREE, "overlaps/o": judged}})
    job = jobs.Job(Table("overlaps/o", folder / "results"), config.declared, "", {"parents": dict.fromkeys(entries)})
    chosen = config.entries["overlaps/o"]
    if not chosen.embeds:
        pairs = overlaps.candidate_pairs(chosen, job)
    else:
        with asking(job, MINILM) as asker:
            pairs = overlaps.candidate_pairs(
                chosen, job, overlaps.compute_vectors(chosen, job, asker, Spent(), Counter())
            )
    return {(int(pair.problem), int(pair.other)) for pair in pairs}


# ------------------------------------------------------------------------------------------------------------- rewritten

SOURCES = {"gsm8k/test_first660.jsonl": "question", "math/train_every5th.jsonl": "problem"}
OTHERS = "gsm8k/train.jsonl"
LOWEST, SIMILARITIES = 0.7, (0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
(DEFAULT_SIMILARITY,) = defaults_of(Overlaps, "embedding_similarity")


def read(path: Path, column: str) -> list[str]:
    return [json.loads(line)[column] for line in path.read_text(encoding="utf-8").splitlines()]


def renamed(text: str, rng: random.Random) -> str:
    """Return a statement with other names of persons and of unknowns."""
    persons = dict.fromkeys(re.findall(r"(?<=[a-z,;] )[A-Z][a-z]{2,}\b", text))
    others = rng.sample([name for name in NAMES if name not in text], min(len(persons), 8))
    for person, other in zip(persons, others, strict=False):
        text = re.sub(rf"\b{person}\b", other, text)
    letters = dict(zip("abckmnpqrxyz", "uvwjtshgdbca", strict=True))
    return re.sub(
        r"\$[^$]+\$",
        lambda formula: re.sub(r"(?<![\\A-Za-z])[a-z](?![A-Za-z])", lambda x: letters.get(x[0], x[0]), formula[0]),
        text,
    )


def renumbered(text: str, rng: random.Random) -> str:
    """Return a statement with another number of as many digits for each of two digits or more, or above 1."""
    return re.sub(
        r"\d+",
        lambda n: n[0] if n[0] in "01" else str(rng.randint(10 ** (len(n[0]) - 1) + 1, 10 ** len(n[0]) - 1)),
        text,
    )


def rewritten(data: Path) -> tuple[list[str], list[Case]]:
    """Return benchmark statements, and rows: copies by hand, copies with other names or numbers, other problems."""
    rng, texts = random.Random(0), {path: read(data / path, column) for path, column in SOURCES.items()}
    hand = [json.loads(line) for line in (PAIRS / "rewritten.jsonl").read_text(encoding="utf-8").splitlines()]
    gsm8k, math = SOURCES
    chosen = {row["row"] for row in hand if row["source"] == math} | set(range(0, len(texts[math]), 3))
    keys = [(gsm8k, row) for row in range(len(texts[gsm8k]))] + [(math, row) for row in sorted(chosen)]
    benchmark, places = [texts[path][row] for path, row in keys], {key: place for place, key in enumerate(keys)}
    cases = [Case(row["statement"], places[row["source"], row["row"]], row["kind"].partition("-")[0]) for row in hand]
    for way, change in (("renamed", renamed), ("renumbered", renumbered)):
        changed = ((place, text, change(text, rng)) for place, text in enumerate(benchmark))
        cases += [Case(new, place, way) for place, text, new in changed if new != text]
    cases += [Case(text, None, "GSM8K") for text in read(data / OTHERS, "question")]
    cases += [Case(text, None, "MATH") for row, text in enumerate(texts[math]) if row not in chosen]
    return benchmark, cases


def curve(folder: Path, benchmark: list[str], cases: list[Case], threads: int) -> None:
    """Print precision and recall of `embedding` by similarity in both halves, and the recall of other methods."""
    rows, ways = [case.row for case in cases], list(dict.fromkeys(case.way for case in cases))
    number = Counter[str]()
    halves: list[list[int]] = [[], []]
    for row, case in enumerate(cases):
        halves[number[case.way] % 2].append(row)
        number[case.way] += 1
    print(f"\n## rewritten: {len(benchmark):,} statements, {len(cases):,} rows: {dict(number)}\n")
    start, used = time.perf_counter(), time.process_time()
    least = {"embedding-similarity": LOWEST}
    table = made(folder / "vectors", benchmark, rows, threads, methods=["embedding"], **least)
    seconds = time.perf_counter() - start, time.process_time() - used
    print(f"`embedding` took {seconds[0]:.0f} s, {seconds[1]:.0f} s of CPU\n")
    similar = [(int(r["problem"]), int(r["against_problem"]), r["similarity"]) for r in table.rows()]
    cells = [f"{way} ({number[way]})" for way in ways]
    print(f"| method | half | precision | {' | '.join(cells)} |\n|---|---|---|{'---|' * len(ways)}")
    for least in SIMILARITIES:
        found = {(row, other) for row, other, similarity in similar if similarity >= least}
        for half in (0, 1):
            print(f"| `embedding`, {least} | {half + 1} | {_by_way(found, cases, ways, halves[half])} |")
    others = {
        methods: set(pairs_of(made(folder / methods[-1], benchmark, rows, methods=[*methods]), *methods))
        for methods in (DEFAULT, ("number-free",))
    }
    found = {(row, other) for row, other, similarity in similar if similarity >= DEFAULT_SIMILARITY}
    others[*DEFAULT, f"embedding at {DEFAULT_SIMILARITY}"] = others[DEFAULT] | found
    for name, methods in (("words", ["judge"]), ("vectors", ["embedding", "judge"])):
        others[f"pairs for a judge by {name}",] = candidates(folder / "vectors", methods=methods)
    for methods, found in others.items():
        print(f"| {', '.join(methods)} | both | {_by_way(found, cases, ways, range(len(cases)))} |")


def _by_way(found: set[tuple[int, int]], cases: Sequence[Case], ways: Sequence[str], rows: Iterable[int]) -> str:
    """Return the precision, the recall of each way of copying, and the number of other problems found, as cells."""
    chosen = set(rows)
    hits = [(row, other) for row, other in found if row in chosen and cases[row].way != "renumbered"]
    right = sum(cases[row].copy_of == other for row, other in hits)
    cells = [f"{right / len(hits):.3f}" if hits else "none found"]
    for way in ways:
        own = [row for row in chosen if cases[row].way == way]
        if cases[own[0]].copy_of is None:
            cells.append(f"{len({row for row, _ in hits} & {*own})} of {len(own):,}")
        else:
            cells.append(f"{sum((row, cases[row].copy_of) in found for row in own) / len(own):.2f}")
    return " | ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200, help="benchmark statements of the arithmetic sets")
    parser.add_argument("--results", type=Path, help="folder for tables (default: a temporary one)")
    parser.add_argument("--data", type=Path, default=Path(__file__).parent.parent.parent / "shared" / "data")
    sets: dict[str, Callable[[Path, argparse.Namespace], None]] = {
        "written": lambda folder, _: evaluate("written", folder, *written(), judge=False),
        "arithmetic": lambda folder, of: evaluate("arithmetic", folder, *arithmetic(of.problems, 0.0), judge=True),
        "spoiled": lambda folder, of: evaluate("spoiled", folder, *arithmetic(of.problems, 0.1), judge=True),
        "rewritten": lambda folder, of: curve(folder, *rewritten(of.data), of.threads),
    }
    parser.add_argument("--threads", type=int, default=1, help="threads for vectors of the set `rewritten`")
    parser.add_argument("--only", choices=sets, help="one of the sets (default: all)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for name, evaluation in sets.items():
            if options.only in (None, name):
                evaluation((options.results or Path(temporary)) / name, options)


if __name__ == "__main__":
    main()
