"""Small proofs for a small language model, with 0 to 3 points from a program, and their grading as a task.

    proof     Which number is the largest: 41, 7, 63? Prove it.        63
                                                                       63 > 41, 63 > 7
    points    the prompt `grade-small` with a proof or a faulty one    \\boxed{2}

A policy trains on `proof`, a judge on `points`, whose grades are equally frequent. The numbers decide the part of both.
"""

import random
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from proofmill.synthetic.parts import part_of

GUIDELINES = (
    "1 point: the largest number is first.\n"
    "1 point: then only true comparisons of given numbers.\n"
    "1 point: the largest is compared with all others."
)
MAX_POINTS = 3
BOUNDS = {"proof": (2, 9), "points": (2, 9)}  # how many numbers
_SIZE = (3, 3)
_WORDINGS = (
    "Which number is the largest: {items}? Prove it.",
    "Find the largest of these numbers, with a proof: {items}.",
    "What is the maximum of {items}? Add a proof.",
)
_PATIENCE = 1_000  # repeated draws in a row after which a family is exhausted
_COMPARISONS = re.compile(r"\d{1,9} > \d{1,9}(?:, \d{1,9} > \d{1,9})*")


def check(statement: str, proof: str) -> tuple[int, str]:
    """Return the points of a proof, one for each sentence of GUIDELINES that holds, and the sentences that do not."""
    numbers = {int(number) for number in re.findall(r"\d{1,9}", statement)}
    first, _, rest = proof.strip().partition("\n")
    written = rest if _COMPARISONS.fullmatch(rest) else ""
    pairs = [tuple(map(int, pair)) for pair in re.findall(r"(\d+) > (\d+)", written)]
    true = bool(pairs) and all(a > b and {a, b} <= numbers for a, b in pairs)
    complete = true and {b for a, b in pairs if a == max(numbers)} == numbers - {max(numbers)}
    met = (first.strip() == str(max(numbers)), true, complete)
    lost = [sentence for sentence, holds in zip(GUIDELINES.split("\n"), met, strict=True) if not holds]
    return sum(met), " ".join(f"Lost: {sentence}" for sentence in lost)


def write(name: int, pairs: Sequence[tuple[int, int]]) -> str:
    """Write a proof with the number that it names and its comparisons."""
    return f"{name}\n{', '.join(f'{a} > {b}' for a, b in pairs)}".strip()


def solve(numbers: Sequence[int]) -> str:
    """Write the proof that gets all points."""
    return write(max(numbers), [(max(numbers), number) for number in numbers if number != max(numbers)])


def _faulty(statement: str, numbers: Sequence[int], points: int, rng: random.Random) -> str:
    """Write a proof that earns these points: with another number, or comparisons that are false, missing or absent."""
    largest = max(numbers)
    while True:
        pairs = [(largest, number) for number in numbers if number != largest]
        place = rng.randrange(len(pairs))
        match rng.choice(("complete", "false", "missing", "absent")):
            case "false":
                pairs[place] = pairs[place][::-1]
            case "missing":
                del pairs[place]
            case "absent":
                pairs = []
        proof = write(rng.choice((largest, rng.choice(numbers))), pairs)
        if check(statement, proof)[0] == points:
            return proof


def tasks(
    part: str, seed: int, families: Sequence[str] = (), sizes: Mapping[str, Sequence[int]] | None = None
) -> Iterator[tuple[str, str, str | None]]:
    """Yield statement, correct proof, and for `points` the proof to grade, of distinct tasks of one part."""
    rng, seen = random.Random(f"small-proofs-{part}-{seed}"), set[tuple[str, str | None]]()
    turns = deque(families or BOUNDS)
    while turns:
        family = turns.popleft()
        for _ in range(_PATIENCE):
            numbers = rng.sample(range(1, 100), rng.randint(*(sizes or {}).get(family, _SIZE)))
            statement = rng.choice(_WORDINGS).format(items=", ".join(map(str, numbers)))
            proof = solve(numbers)
            graded = _faulty(statement, numbers, rng.randint(0, MAX_POINTS), rng) if family == "points" else None
            if part_of(repr(sorted(numbers))) == part and (statement, graded) not in seen:
                seen.add((statement, graded))
                turns.append(family)
                yield statement, proof, graded
                break
