"""Problems of the `arithmetic` family: congruences to establish, with proofs that a program checks line by line.

The family makes the embedded default possible on a machine without weights or a judge: thousands of distinct problems,
proofs of a few short lines, a rubric of seven points like an olympiad's.

A proof is a plan in `<think>` tags, one line for each checkpoint, and a conclusion with a boxed residue:

    <think>4^3, 5^2, sum mod 7</think>
    4^3: 4*4=16≡2, 2*4=8≡1.
    5^2: 5*5=25≡4.
    1+4+2=7≡0.
    So the residue is \\boxed{0}.

How we differ from checkers of final answers:
1. Every line is evaluated. A true line counts only if the problem needs it; a false line caps the mark.
2. A line that looks like a calculation and cannot be read is a false line, so noise earns nothing.
3. The part (train, dev or test) is a hash of the problem's content: parts are disjoint by construction, whatever the
   wording, seed or size of a sample.
"""

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

FULL_MARKS = 7
FALSE_LINE_CAP = 4
PARTS = {"train": range(0, 80), "dev": range(80, 90), "test": range(90, 100)}  # of 100 buckets of the content hash
FAMILIES = ("powers", "digits", "products", "recurrence")


@dataclass(frozen=True)
class Congruence:
    """A problem by its content: `numbers` mean what the family says, all residues are taken modulo `modulus`.

    - powers: a, k, b, j, c. m divides a^k+b^j+c (to prove).
    - products: a, b, c, d, e. m divides a*b+c*d+e (to prove).
    - digits: the decimal digits of N. The remainder of N (to find).
    - recurrence: x, b, c, n. The remainder of x_n for x_0=x, x_{i+1}=b*x_i+c (to find).
    """

    family: str
    modulus: int
    numbers: tuple[int, ...]

    @property
    def asks_for_proof(self) -> bool:
        return self.family in ("powers", "products")

    @property
    def part(self) -> str:
        """The part that the problem belongs to: train, dev or test."""
        bucket = int(hashlib.sha256(repr(self).encode()).hexdigest(), 16) % 100
        return next(part for part, buckets in PARTS.items() if bucket in buckets)

    @property
    def residue(self) -> int:
        """The true residue that the problem is about; 0 for a true statement of divisibility."""
        n, m = self.numbers, self.modulus
        if self.family == "powers":
            return (n[0] ** n[1] + n[2] ** n[3] + n[4]) % m
        if self.family == "products":
            return (n[0] * n[1] + n[2] * n[3] + n[4]) % m
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
            return f"{n[0]}^{n[1]}+{n[2]}^{n[3]}+{n[4]}"
        if self.family == "products":
            return f"{n[0]}*{n[1]}+{n[2]}*{n[3]}+{n[4]}"
        if self.family == "digits":
            return "".join(map(str, n))
        return f"x_{{n+1}}={n[1]}x_n+{n[2]}"


# Wordings: the first is the usual one, the second words a duplicate "in other words".
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
    """The problem as a forum user words it; `wording` picks one of the family's phrasings."""
    x, n = (problem.numbers[0], problem.numbers[3]) if problem.family == "recurrence" else (0, 0)
    return _WORDINGS[problem.family][wording].format(m=problem.modulus, f=problem.formula, x=x, n=n)


_READERS = [
    ("powers", re.compile(r"^(?:Prove that \$(?P<m>[1-9])\$ divides \$F\$\.|Show that \$F\$ is divisible by \$(?P<m2>[1-9])\$\.)$"
                          .replace("F", r"(\d)\^(\d)\+(\d)\^(\d)\+(\d)"))),
    ("products", re.compile(r"^(?:Prove that \$(?P<m>[1-9])\$ divides \$F\$\.|Show that \$F\$ is divisible by \$(?P<m2>[1-9])\$\.)$"
                            .replace("F", r"(\d)\*(\d)\+(\d)\*(\d)\+(\d)"))),
    ("digits", re.compile(r"^(?:Find the remainder of \$(\d{2,99})\$ modulo \$(?P<m>[1-9])\$\."
                          r"|What is the remainder of \$(\d{2,99})\$ when divided by \$(?P<m2>[1-9])\$\?)$")),
    ("recurrence", re.compile(r"^(?:Let|A sequence has) \$x_0=(\d)\$ and \$x_\{n\+1\}=(\d)x_n\+(\d)\$\. "
                              r"(?:Find|What is) the remainder of \$x_([1-9])\$ modulo \$(?P<m>[1-9])\$[.?]$")),
]  # fmt: skip


def read(text: str) -> Congruence | None:
    """The problem that a statement states, or None when it is not one of the family.

    Nor is one without a line to write (a number of one digit, the term x_0), modulo 0, or of a hundred digits.
    """
    for family, pattern in _READERS:
        if match := pattern.match(text.strip()):
            modulus = match["m"] or match["m2"]
            named = set(pattern.groupindex.values())
            values = [g for i, g in enumerate(match.groups(), 1) if g is not None and i not in named]
            numbers = tuple(map(int, values[0] if family == "digits" else values))
            return Congruence(family, int(modulus), numbers)
    return None


# ----------------------------------------------------------------------------------------------- checkpoints and proofs


def _chain(base: int, exponent: int, modulus: int) -> str:
    """`4*4=16≡2, 2*4=8≡1`: powers of `base` one factor at a time, reduced at each step."""
    steps, residue = [], base
    for _ in range(exponent - 1):
        product = residue * base
        steps.append(f"{residue}*{base}={product}≡{product % modulus}")
        residue = product % modulus
    return ", ".join(steps)


def checkpoints(problem: Congruence) -> list[str]:
    """The lines of a complete proof, in order and without full stops; the last line ends in the residue asked for."""
    n, m = problem.numbers, problem.modulus
    if problem.family == "powers":
        first, second = pow(n[0], n[1], m), pow(n[2], n[3], m)
        total = first + second + n[4]
        lines = [f"{n[0]}^{n[1]}: {_chain(n[0], n[1], m)}", f"{n[2]}^{n[3]}: {_chain(n[2], n[3], m)}"]
        return [*lines, f"{first}+{second}+{n[4]}={total}≡{total % m}"]
    if problem.family == "products":
        first, second = n[0] * n[1], n[2] * n[3]
        total = first % m + second % m + n[4]
        lines = [f"{n[0]}*{n[1]}={first}≡{first % m}", f"{n[2]}*{n[3]}={second}≡{second % m}"]
        return [*lines, f"{first % m}+{second % m}+{n[4]}={total}≡{total % m}"]
    lines, residue = [], n[0]
    if problem.family == "digits":
        for digit in n[1:]:
            lines.append(f"{residue}{digit}≡{(10 * residue + digit) % m}")
            residue = (10 * residue + digit) % m
        return lines
    for _ in range(n[3]):  # product and sum are separate steps: few facts, which the other families need too
        product = n[1] * residue
        total = product % m + n[2]
        lines.append(f"{n[1]}*{residue}={product}≡{product % m}, {product % m}+{n[2]}={total}≡{total % m}")
        residue = total % m
    return lines


def plan(problem: Congruence) -> str:
    """The plan that stands in the `<think>` tags of a proof."""
    n, m = problem.numbers, problem.modulus
    if problem.family == "powers":
        return f"{n[0]}^{n[1]}, {n[2]}^{n[3]}, sum mod {m}"
    if problem.family == "products":
        return f"{n[0]}*{n[1]}, {n[2]}*{n[3]}, sum mod {m}"
    if problem.family == "digits":
        return f"{len(n) - 1} steps mod {m}"
    return f"{n[3]} times {n[1]}x+{n[2]} mod {m}"


def proof(problem: Congruence) -> str:
    """A complete proof: seven marks."""
    return _write(plan(problem), checkpoints(problem), problem.residue)


def _write(thought: str, lines: list[str], residue: int | str, brief: bool = False) -> str:
    body = "".join(f"{line}.\n" for line in lines)
    return f"<think>{thought}</think>\n{'In brief: ' if brief else ''}{body}So the residue is \\boxed{{{residue}}}."


def sloppy_proof(
    problem: Congruence, rng: random.Random, brief: float = 0.5, drop: float = 0.5, slip: float = 0.04
) -> str:
    """A proof as forum authors write it: `brief` of them leave out each line with chance `drop`; residues slip.

    The imperfections are what rejection sampling and reinforcement learning can remove: with clean demonstrations
    neither would have anything to improve.
    """
    lines = [_slip(line, problem.modulus, rng) if rng.random() < slip else line for line in checkpoints(problem)]
    is_brief = rng.random() < brief
    if is_brief:
        lines = [line for line in lines if rng.random() >= drop]
    return _write(plan(problem), lines, problem.residue, is_brief)


def _slip(line: str, modulus: int, rng: random.Random) -> str:
    """`line` with a wrong last residue."""
    head, true = line[:-1], int(line[-1])
    return head + str(rng.choice([r for r in range(modulus) if r != true]))


# ---------------------------------------------------------------------------------------------------------- the checker

_FORMAT = re.compile(r"^<think>[^<>]*</think>\n(?P<body>.*\\boxed\{(?P<box>[^{}]*)\}\.?)\s*$", re.DOTALL)
_NUMBER = r"\d{1,99}"
_STEP = re.compile(
    rf"^(?:(?P<sum>{_NUMBER}(?:[*+]{_NUMBER}){{1,99}})=(?P<value>{_NUMBER})|(?P<plain>{_NUMBER}))≡(?P<residue>\d)$"
)


@dataclass(frozen=True)
class Marking:
    """What the checker found: how many of the `needed` checkpoints are `valid`, the `false` lines, and two facts."""

    needed: int
    valid: int
    false: tuple[str, ...]
    well_formed: bool
    right_conclusion: bool

    def marks(
        self, checkpoint_points: int = 5, complete: int = 1, conclusion: int = 1, cap: int = FALSE_LINE_CAP
    ) -> int:
        """Marks out of 7: points for checkpoints in proportion, one for a complete proof, one for its conclusion."""
        if not self.well_formed:
            return 0
        full = self.valid == self.needed and not self.false
        marks = checkpoint_points * self.valid // self.needed + complete * full + conclusion * self.right_conclusion
        return min(marks, cap) if self.false else marks


def check(problem: Congruence, text: str, answer_only: bool = False) -> Marking:
    """Check a response line by line; `answer_only` when the caller has already removed its `<think>` part."""
    needed = checkpoints(problem)
    form = _FORMAT.match(text if not answer_only else f"<think></think>\n{text}")
    if form is None:
        return Marking(len(needed), 0, (), False, False)
    lines = [line.strip().removeprefix("In brief:").strip().rstrip(".") for line in form["body"].split("\n")]
    false = tuple(line for line in lines if "≡" in line and not _line_is_true(line, problem.modulus))
    valid = (Counter(lines) & Counter(needed)).total()
    right = form["box"].strip() == str(problem.residue)
    if problem.asks_for_proof:  # the statement gives the conclusion away, so without the proof it is worth nothing
        right = right and valid == len(needed)
    return Marking(len(needed), valid, false, True, right)


def _line_is_true(line: str, modulus: int) -> bool:
    """Whether every step of a line is true, and its label (such as `4^3`) has the residue of the last step."""
    label, separator, steps = line.rpartition(": ")
    try:
        residues = [_step_residue(step, modulus) for step in steps.split(", ")]
    except ValueError:
        return False
    if not separator:
        return True
    power = re.fullmatch(r"(\d)\^(\d)", label)
    return power is not None and pow(int(power[1]), int(power[2]), modulus) == residues[-1]


def _step_residue(step: str, modulus: int) -> int:
    """The residue of a true step `4*4=16≡2` or `47≡5`. Raises ValueError for a step that is false or unreadable.

    A number of a hundred digits, or a sum of a hundred terms, is unreadable: the family has two digits and three terms.
    """
    match = _STEP.match(step)
    if match is None:
        raise ValueError(step)
    if match["plain"]:
        value = int(match["plain"])
    else:
        value = sum(_product(term) for term in match["sum"].split("+"))
        if value != int(match["value"]):
            raise ValueError(step)
    residue = int(match["residue"])
    if residue >= modulus or value % modulus != residue:
        raise ValueError(step)
    return residue


def _product(term: str) -> int:
    result = 1
    for factor in term.split("*"):
        result *= int(factor)
    return result


# -------------------------------------------------------------------------------------------------------- the generator


def draw(rng: random.Random, family: str, true: bool = True) -> Congruence:
    """A random problem of `family`; with `true=False` a statement of divisibility that does not hold."""
    m = rng.randint(3, 7)
    if family == "digits":
        digits = [rng.randint(1, 9), *(rng.randint(0, 9) for _ in range(rng.randint(2, 4)))]
        return Congruence(family, m, tuple(digits))
    if family == "recurrence":
        return Congruence(family, m, (rng.randint(2, 9), rng.randint(2, 9), rng.randint(1, 9), rng.randint(2, 4)))
    if family == "powers":
        head = (rng.randint(2, 9), rng.randint(2, 4), rng.randint(2, 9), rng.randint(2, 4))
    else:
        head = (rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 9))
    rest = Congruence(family, m, (*head, 0)).residue
    last = [c for c in range(1, 10) if ((rest + c) % m == 0) == true]
    return Congruence(family, m, (*head, rng.choice(last)))


def problems(part: str, seed: int, families: tuple[str, ...] = FAMILIES) -> Iterator[Congruence]:
    """Distinct true problems of one part, families in turn, for ever (until a family is exhausted)."""
    rng, seen, misses = random.Random(f"{part}-{seed}"), set(), 0
    while misses < 10_000:
        for family in families:
            problem = draw(rng, family)
            while problem.part != part or problem in seen:
                problem = draw(rng, family)
                misses += 1
                if misses >= 10_000:
                    return
            misses = 0
            seen.add(problem)
            yield problem
