"""Time the search for benchmark statements in many rows, by a plain n-gram lookup and by our methods.

    python benchmarks/decontamination.py [--data ../shared/data] [--rows 100000] [--share 0.05] [--rounds 5]
                                         [--stream 5000000]

Rows are problems of MATH, GSM8K and HARP, repeated with other numbers, other names or a sentence left out until there
are enough. A known share of them are benchmark statements, each written in one of WAYS. The benchmarks are
IMO-ProofBench, IMO-AnswerBench, AIME 2024, USAMO 2025, a third of the MATH file that gives no rows, and the test rows
of GSM8K. The methods take turns in one process, after a turn that warms up. The plain lookup is open-r1's rule
(`scripts/decontaminate.py`, 8 words) in plain Python.

At the end, two further processes generate and search a tenth of `--stream` rows, and all of them, in batches of 5,000.
They report their peak resident memory.
"""

import argparse
import csv
import json
import random
import re
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from proofmill.decontamination.index import VERIFIED, Index

BATCH = 5_000
WORDS, PLAIN_WORDS = 13, 8

# ----------------------------------------------------------------------------------------------------------------- rows


def _json(path: Path, column: str) -> list[str]:
    return [json.loads(line)[column] for line in path.read_text().splitlines()]


def _csv(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [row["Problem"] for row in csv.DictReader(file)]


def read(data: Path) -> tuple[list[str], list[str]]:
    """Return the benchmark statements, and other problems."""
    maths = _json(data / "math" / "train_every5th.jsonl", "problem")
    benchmarks = [
        *_csv(data / "imobench" / "proofbench_v2.csv"),
        *_csv(data / "imobench" / "answerbench_v2.csv"),
        *_json(data / "aime" / "aime24.jsonl", "problem"),
        *(path.read_text() for path in sorted((data / "usamo_2025" / "problems").glob("*.tex"))),
        *maths[::3],
        *_json(data / "gsm8k" / "test_first660.jsonl", "question"),
    ]
    others = [text for n, text in enumerate(maths) if n % 3]
    others += _json(data / "gsm8k" / "train.jsonl", "question") + _json(data / "harp" / "proof_even.jsonl", "problem")
    return benchmarks, others


NAMES = ("Ana", "Boris", "Chidi", "Dagny", "Emeka", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kim", "Lucia")


def varied(text: str, rng: random.Random) -> str:
    """Return the text with another number, another name, or without a sentence."""
    way = rng.randrange(3)
    if way == 0 and (numbers := list(re.finditer(r"\d+", text))):
        number = rng.choice(numbers)
        return f"{text[: number.start()]}{int(number[0][:9]) + rng.randint(1, 9)}{text[number.end() :]}"
    if way == 1 and (names := re.findall(r"(?<=\. )[A-Z][a-z]+\b|^[A-Z][a-z]+\b", text)):
        return text.replace(rng.choice(names), rng.choice(NAMES))
    parts = re.split(r"(?<=[.?]) ", text)
    left_out = rng.randrange(len(parts))
    return " ".join(part for n, part in enumerate(parts) if n != left_out) or text


def respelled(text: str, rng: random.Random) -> str:
    for old, new in (
        (r"\frac", r"\dfrac"), (r"\le ", r"\leq "), (r"\ge ", r"\geq "), (r"\cdot", r"\times"), (r"\ldots", r"\dots"),
        ("=", " = "), ("+", " + "), (r"\mathbb{R}", r"\mathbb R"), (r"\mid", "|"),
    ):  # fmt: skip
        text = text.replace(old, new)
    return re.sub(r"(?<![\\$])\$([^$]+)\$(?!\$)", r"\\(\1\\)", text)


def shouted(text: str, rng: random.Random) -> str:
    return re.sub(r"[.,;?]", lambda sign: rng.choice((sign[0], " ", "  ", "!")), text.replace("The ", "the "))


def posted(text: str, rng: random.Random) -> str:
    before = ("My teacher gave us this one: ", "I am stuck here. ", "From an old notebook.\n\n")
    return f"{rng.choice(before)}{text} {rng.choice(('Any ideas?', 'Thanks!', 'I only got the first case.'))}"


def truncated(text: str, rng: random.Random) -> str:
    words = text.split(" ")
    return " ".join(words[: max(len(words) * 2 // 3, 8)])


def reworded(text: str, rng: random.Random) -> str:
    """Replace one in twenty words of five or more letters."""
    return re.sub(r"\b[a-z]{5,}\b", lambda word: "something" if rng.random() < 0.05 else word[0], text)


WAYS: dict[str, Callable[[str, random.Random], str]] = {
    "verbatim": lambda text, rng: text,
    "respelled": respelled,
    "shouted": shouted,
    "posted": posted,
    "truncated": truncated,
    "reworded": reworded,
}


def rows(benchmarks: list[str], others: list[str], count: int, share: float) -> Iterator[tuple[str, int | None, str]]:
    """Yield a row, the index of its benchmark statement (None: no copy), and the way it is written."""
    rng = random.Random(0)
    ways = list(WAYS)
    for number in range(count):
        if rng.random() < share:
            source, way = rng.randrange(len(benchmarks)), rng.choice(ways)
            yield WAYS[way](benchmarks[source], rng), source, way
        else:
            text = others[number % len(others)]
            yield text if number < len(others) else varied(text, rng), None, ""


# ----------------------------------------------------------------------------------------------------------------- ways


def ngrams(text: str, n: int) -> list[str]:
    words = re.sub(r"\s+", " ", text.lower().strip()).split(" ")
    return [" ".join(words[start : start + n]) for start in range(len(words) - n + 1)]


def plain_lookup(benchmarks: list[str], n: int) -> dict[str, set[int]]:
    lookup: dict[str, set[int]] = {}
    for number, text in enumerate(benchmarks):
        for ngram in ngrams(text, n):
            lookup.setdefault(ngram, set()).add(number)
    return lookup


def plain(lookup: dict[str, set[int]], texts: list[str], n: int) -> set[int]:
    return {row for row, text in enumerate(texts) if any(ngram in lookup for ngram in ngrams(text, n))}


def index(benchmarks: list[str], methods: tuple[str, ...], words: int) -> Index:
    made = Index(methods, words=words)
    made.add(map(str, range(len(benchmarks))), benchmarks)
    list(made.find(["warm"]))
    return made


def ours(made: Index, texts: list[str]) -> list[tuple[int, int, str]]:
    return [
        (first + one.row, int(one.id), one.method)
        for first in range(0, len(texts), BATCH)
        for one in made.find(texts[first : first + BATCH])
    ]


def timed(run: Callable, *given) -> tuple[float, object]:
    start = time.perf_counter()
    found = run(*given)
    return time.perf_counter() - start, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parent.parent.parent / "shared" / "data")
    for name, kind, default in (
        ("rows", int, 100_000),
        ("share", float, 0.05),
        ("rounds", int, 5),
        ("stream", int, 5_000_000),
    ):
        parser.add_argument(f"--{name}", type=kind, default=default)
    parser.add_argument("--only-stream", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    benchmarks, others = read(options.data)
    if options.only_stream:
        stream(benchmarks, others, options.only_stream, options.share)
        return
    made = list(rows(benchmarks, others, options.rows, options.share))
    texts = [text for text, _, _ in made]
    copies = sum(source is not None for _, source, _ in made)
    print(f"{len(texts):,} rows of {sum(map(len, texts)) / len(texts):.0f} characters, {copies:,} of them copies;")
    print(f"{len(benchmarks):,} benchmark statements\n")
    lookup = plain_lookup(benchmarks, PLAIN_WORDS)
    seconds, plain_index = timed(index, benchmarks, ("plain-ngram",), PLAIN_WORDS)
    all_seconds, all_index = timed(index, benchmarks, VERIFIED, WORDS)
    print(f"indexed in {seconds:.1f} s (plain-ngram) and {all_seconds:.1f} s (exact, ngram, minhash)\n")
    runs = {
        "plain lookup": (plain, lookup, texts, PLAIN_WORDS),
        "plain-ngram": (ours, plain_index, texts),
        "exact, ngram, minhash": (ours, all_index, texts),
    }
    taken: dict[str, list[float]] = {name: [] for name in runs}
    found = {}
    for turn in range(options.rounds + 1):
        for name, run in runs.items():
            seconds, found[name] = timed(*run)
            if turn:
                taken[name].append(seconds)
    report(taken, found, made)
    for count in (options.stream // 10, options.stream):
        if count:
            command = [sys.executable, __file__, "--data", options.data, "--share", str(options.share)]
            subprocess.run([*command, "--only-stream", str(count)], check=True)


def report(taken: dict[str, list[float]], found: dict, made: list[tuple[str, int | None, str]]) -> None:
    flagged = {name: some if isinstance(some, set) else {row for row, _, _ in some} for name, some in found.items()}
    copies = {row for row, (_, source, _) in enumerate(made) if source is not None}
    print("| method | rows/s, median (min to max) | time over the plain lookup's | flagged rows | false ones |")
    print("|---|---|---|---|---|")
    for name, seconds in taken.items():
        speeds = sorted(len(made) / one for one in seconds)
        over = statistics.median(mine / base for mine, base in zip(seconds, taken["plain lookup"], strict=True))
        spread = f"{statistics.median(speeds):,.0f} ({speeds[0]:,.0f} to {speeds[-1]:,.0f})"
        print(f"| {name} | {spread} | {over:.3f} | {len(flagged[name]):,} | {len(flagged[name] - copies):,} |")
    print(
        f"\nplain-ngram flags the same rows as the plain lookup: {flagged['plain lookup'] == flagged['plain-ngram']}\n"
    )
    pairs = {name: {(row, other) for row, other, _ in found[name]} for name in ("plain-ngram", "exact, ngram, minhash")}
    for method in VERIFIED:
        pairs[method] = {(row, other) for row, other, one in found["exact, ngram, minhash"] if one == method}
    total = Counter(way for _, source, way in made if source is not None)
    print(f"| share of copies found with their source | {' | '.join(WAYS)} |\n|---|{'---|' * len(WAYS)}")
    for name, some in pairs.items():
        hits = Counter(way for row, (_, source, way) in enumerate(made) if (row, source) in some)
        print(f"| {name} | {' | '.join(f'{hits[way] / total[way]:.3f}' for way in WAYS)} |")
    print()


def stream(benchmarks: list[str], others: list[str], count: int, share: float) -> None:
    made, batch, found, start = index(benchmarks, VERIFIED, WORDS), [], 0, time.perf_counter()
    for text, _, _ in rows(benchmarks, others, count, share):
        batch.append(text)
        if len(batch) == BATCH:
            found += sum(1 for _ in made.find(batch))
            batch = []
    found += sum(1 for _ in made.find(batch))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{count:,} rows streamed: peak {peak:,.0f} MB, {found:,} findings, {time.perf_counter() - start:,.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
