"""Problems of the `arithmetic` family: congruences to establish, with proofs that a program checks line by line.

The family lets the embedded default run on a machine without weights or a judge. It has thousands of distinct problems,
proofs of a few short lines, and a grading scheme of seven points as at an olympiad (`grading.py`).

A proof is a plan in `<think>` tags, one line for each checkpoint, and a conclusion with a boxed residue:

    <think>4^3, 5^2, sum mod 7</think>
    4^3: 4*4=16≡2, 2*4=8≡1.
    5^2: 5*5=25≡4.
    1+4+2=7≡0.
    So the residue is \\boxed{0}.

The remainder of a number with many digits is computed like a term of a recurrence: times 10, plus the next digit, both
reduced. All families use the same few facts, products and sums of residues, and differ in their order.

Every family has a size, so there are problems longer than any demonstration. A problem's content decides its part.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from proofmill.synthetic.parts import part_of

BRIEF = "In brief: "  # the beginning of a proof whose author omits lines
FAMILIES = ("powers", "digits", "products", "recurrence")
# Sizes of problems are numbers of powers, digits, products or steps: default ranges, and the bounds of statements.
SIZES = {"powers": (1, 3), "digits": (3, 5), "products": (1, 3), "recurrence": (2, 4)}
BOUNDS = {"powers": (1, 9), "digits": (2, 99), "products": (1, 9), "recurrence": (1, 9)}
Sizes = Mapping[str, Sequence[int]]  # minimum and maximum by family; other families use the default


@dataclass(frozen=True)
class Congruence:
    """A problem by its content. The family decides the meaning of `numbers`; all residues are modulo `modulus`.

    - powers: a, k, b, j, ..., c. m divides a^k+b^j+...+c (to prove).
    - products: a, b, c, d, ..., e. m divides a*b+c*d+...+e (to prove).
    - digits: the decimal digits of N. The remainder of N (to find).
    - recurrence: x, b, c, n. The remainder of x_n for x_0=x, x_{i+1}=b*x_i+c (to find).
    """

    family: str
    modulus: int
    numbers: tuple[int, ...]

    @property
    def asks_for_proof(self) -> bool:
        """True for a statement of divisibility, which is to be proved."""
        return self.family in ("powers", "products")

    @property
    def content(self) -> tuple:
        """The identity of the problem, independent of its wording and of the order of its terms."""
        terms: tuple = self.numbers
        if self.asks_for_proof:
            ordered = (pair if self.family == "powers" else tuple(sorted(pair)) for pair in pairs(self.numbers))
            terms = (*sorted(ordered), self.numbers[-1])
        return self.family, self.modulus, terms

    @property
    def part(self) -> str:
        """The part of the problem: train, dev or test; independent of the order of its terms."""
        return part_of(repr(self.content))

    @property
    def residue(self) -> int:
        """The correct residue; 0 for a true statement of divisibility."""
        n, m = self.numbers, self.modulus
        if self.family == "powers":
            return (sum(a**k for a, k in pairs(n)) + n[-1]) % m
        if self.family == "products":
            return (sum(a * b for a, b in pairs(n)) + n[-1]) % m
        if self.family == "digits":
            return int("".join(map(str, n))) % m
        value = n[0]
        for _ in range(n[3]):
            value = n[1] * value + n[2]
        return value % m

    @property
    def formula(self) -> str:
        """The problem's formula as its statement shows it."""
        n = self.numbers
        if self.family == "powers":
            return "+".join([*(f"{a}^{k}" for a, k in pairs(n)), str(n[-1])])
        if self.family == "products":
            return "+".join([*(f"{a}*{b}" for a, b in pairs(n)), str(n[-1])])
        if self.family == "digits":
            return "".join(map(str, n))
        return f"x_{{n+1}}={n[1]}x_n+{n[2]}"


def pairs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield base and exponent of each power, or the factors of each product; the last number is not in a pair."""
    return zip(numbers[:-1:2], numbers[1:-1:2], strict=True)


# Wordings: the first is the default, the second is used for reworded duplicates.
_WORDINGS = {
    "powers": ("Prove that ${m}$ divides ${f}$.", "Show that ${f}$ is divisible by ${m}$."),
    "products": ("Prove that ${m}$ divides ${f}$.", "Show that ${f}$ is divisible by ${m}$."),
    "digits": ("Find the remainder of ${f}$ modulo ${m}$.", "What is the remainder of ${f}$ when divided by ${m}$?"),
    "recurrence": (
        "Let $x_0={x}$ and ${f}$. Find the remainder of $x_{n}$ modulo ${m}$.",
        "A sequence has $x_0={x}$ and ${f}$. What is the remainder of $x_{n}$ modulo ${m}$?",
    ),
}


def statement(problem: Congruence, wording: int = 0) -> str:
    """Write the problem as a forum user would; `wording` selects one of the family's phrasings."""
    x, n = (problem.numbers[0], problem.numbers[3]) if problem.family == "recurrence" else (0, 0)
    return _WORDINGS[problem.family][wording].format(m=problem.modulus, f=problem.formula, x=x, n=n)


_FORMULAS = {
    "powers": r"(?:[0-9]\^[2-9]\+){1,9}[0-9]",
    "products": r"(?:[0-9]\*[0-9]\+){1,9}[0-9]",
    "digits": r"[0-9]{2,99}",
    "recurrence": r"x_\{n\+1\}=[0-9]x_n\+[0-9]",
}


def _reader(family: str, wording: str) -> re.Pattern[str]:
    """Compile a pattern that matches a wording with any values in its gaps."""
    pattern = re.escape(wording)
    for gap, content in {"m": "[1-9]", "f": _FORMULAS[family], "x": "[0-9]", "n": "[1-9]"}.items():
        pattern = pattern.replace(re.escape(f"{{{gap}}}"), f"(?P<{gap}>{content})")
    return re.compile(pattern)


_READERS = [(family, _reader(family, wording)) for family, wordings in _WORDINGS.items() for wording in wordings]


def read(text: str) -> Congruence | None:
    """Parse a statement into its problem; None if it is not one of the family.

    Problems without a line to write (a number of one digit, a first power, the term x_0), modulo 0, or of a hundred
    digits are not in the family.
    """
    for family, pattern in _READERS:
        if match := pattern.fullmatch(text.strip()):
            digits = tuple(map(int, re.findall("[0-9]", match["f"])))
            if family == "recurrence":  # the 1 of `x_{n+1}=4x_n+3` is not a number of the problem
                digits = (int(match["x"]), *digits[1:], int(match["n"]))
            return Congruence(family, int(match["m"]), digits)
    return None


# ----------------------------------------------------------------------------------------------- checkpoints and proofs


def _chain(base: int, exponent: int, modulus: int) -> str:
    """Write the powers of `base`, one factor at a time and reduced at each step: `4*4=16≡2, 2*4=8≡1`."""
    steps, residue = [], base
    for _ in range(exponent - 1):
        product = residue * base
        steps.append(f"{residue}*{base}={product}≡{product % modulus}")
        residue = product % modulus
    return ", ".join(steps)


def checkpoints(problem: Congruence) -> list[str]:
    """Return the lines of a complete proof, in order and without full stops; the last line ends in the residue."""
    n, m = problem.numbers, problem.modulus
    if problem.asks_for_proof:
        if problem.family == "powers":
            lines = [f"{a}^{k}: {_chain(a, k, m)}" for a, k in pairs(n)]
        else:
            lines = [f"{a}*{b}={a * b}≡{a * b % m}" for a, b in pairs(n)]
        parts = [*(int(line[-1]) for line in lines), n[-1]]
        return [*lines, f"{'+'.join(map(str, parts))}={sum(parts)}≡{sum(parts) % m}"]
    lines, residue = [], n[0]
    for factor, added in iterations(problem):  # product and sum are separate steps, so all families use few facts
        product = residue * factor
        total = product % m + added
        lines.append(f"{residue}*{factor}={product}≡{product % m}, {product % m}+{added}={total}≡{total % m}")
        residue = total % m
    return lines


def iterations(problem: Congruence) -> list[tuple[int, int]]:
    """Return factor and summand of each step from a residue to the next; for `digits`, 10 and the next digit."""
    if problem.family == "digits":
        return [(10 % problem.modulus, digit) for digit in problem.numbers[1:]]
    _, factor, added, steps = problem.numbers
    return [(factor, added)] * steps


def plan(problem: Congruence) -> str:
    """Write the plan for the `<think>` tags of a proof."""
    n, m = problem.numbers, problem.modulus
    if problem.asks_for_proof:
        return problem.formula.replace("+", ", ").removesuffix(str(n[-1])) + f"sum mod {m}"
    if problem.family == "digits":
        return f"{10 % m}x+digit mod {m}"
    return f"{n[3]} times {n[1]}x+{n[2]} mod {m}"


def proof(problem: Congruence) -> str:
    """Write a complete proof, worth seven points."""
    return _write(plan(problem), checkpoints(problem), problem.residue)


def _write(thought: str, lines: list[str], residue: int | str, brief: bool = False) -> str:
    body = "".join(f"{line}.\n" for line in lines)
    return f"<think>{thought}</think>\n{BRIEF if brief else ''}{body}So the residue is \\boxed{{{residue}}}."


def sloppy_proof(
    problem: Congruence, rng: random.Random, brief: float = 0.5, drop: float = 0.5, slip: float = 0.04
) -> str:
    """Write a proof like a forum author, with omitted lines and wrong residues.

    A share `brief` of the proofs omits each line with probability `drop`. A line has a wrong residue with probability
    `slip`. Rejection sampling and reinforcement learning can remove these
    imperfections; with clean demonstrations they would have nothing to improve.
    """
    lines = [_slip(line, problem.modulus, rng) if rng.random() < slip else line for line in checkpoints(problem)]
    is_brief = rng.random() < brief
    if is_brief:
        lines = [line for line in lines if rng.random() >= drop]
    return _write(plan(problem), lines, problem.residue, is_brief)


def _slip(line: str, modulus: int, rng: random.Random) -> str:
    """Replace the last residue of a line by a wrong one."""
    head, true = line[:-1], int(line[-1])
    return head + str(rng.choice([r for r in range(modulus) if r != true]))


# -------------------------------------------------------------------------------------------------------- the generator


def draw(rng: random.Random, family: str, true: bool = True, sizes: Sizes | None = None) -> Congruence:
    """Draw a random problem of `family`; with `true=False` a false statement of divisibility."""
    m = rng.randint(3, 7)
    least, most = (sizes or {}).get(family, SIZES[family])
    size = rng.randint(least, most)
    if family == "digits":
        return Congruence(family, m, (rng.randint(1, 9), *(rng.randint(0, 9) for _ in range(size - 1))))
    if family == "recurrence":
        return Congruence(family, m, (rng.randint(2, 9), rng.randint(2, 9), rng.randint(1, 9), size))
    most_second = 4 if family == "powers" else 9
    head = [number for _ in range(size) for number in (rng.randint(2, 9), rng.randint(2, most_second))]
    rest = Congruence(family, m, (*head, 0)).residue
    last = [c for c in range(1, 10) if ((rest + c) % m == 0) == true]
    return Congruence(family, m, (*head, rng.choice(last)))


def problems(
    part: str, seed: int, families: tuple[str, ...] = FAMILIES, sizes: Sizes | None = None
) -> Iterator[Congruence]:
    """Yield distinct true problems of one part, families in turn, until a family is exhausted."""
    rng, seen, misses = random.Random(f"{part}-{seed}"), set(), 0
    while misses < 10_000:
        for family in families:
            problem = draw(rng, family, sizes=sizes)
            while problem.part != part or problem in seen:
                problem = draw(rng, family, sizes=sizes)
                misses += 1
                if misses >= 10_000:
                    return
            misses = 0
            seen.add(problem)
            yield problem
