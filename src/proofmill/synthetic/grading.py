"""The checker of the `arithmetic` family: points from 0 to 7 for a proof, by the facts that its lines establish.

A program can grade only text that it can parse. So an answer must be lines of calculation, in order, and a conclusion
with one box. An answer with a sentence, an unknown sign, a second box or too many lines gets 0 points.

Differences from checkers of final answers:
1. A line counts by the fact that it establishes, not by its form: `4^3=64≡1`, `4^3: 4*4=16≡2, 4*2=8≡1` and the same in
   LaTeX are equivalent.
2. Lines must be in the order of the argument, each once, and no more than it needs. Otherwise all true lines of a
   modulus, or the correct ones in any order, would be worth as much as an argument.
3. A line may be missing, which loses its points, or false, which caps the points, as in proofs by people.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proofmill.synthetic.congruences import BRIEF, Congruence, iterations, pairs

MAX_POINTS = 7
FALSE_LINE_CAP = 4


@dataclass(frozen=True)
class Grading:
    """The result of a check: the number of `valid` checkpoints of those `needed`, the `false` lines, the conclusion.

    `fault` is a sentence that explains why the answer gets 0 points; empty if it counts.
    """

    needed: int
    valid: int
    false: tuple[str, ...]
    right_conclusion: bool
    fault: str = ""

    def points(
        self, checkpoint_points: int = 5, complete: int = 1, conclusion: int = 1, cap: int = FALSE_LINE_CAP
    ) -> int:
        """Compute the points, 0 to 7: in proportion to checkpoints, one for a complete proof, one for its conclusion."""
        if self.fault:
            return 0
        full = self.valid == self.needed and not self.false
        points = checkpoint_points * self.valid // self.needed + complete * full + conclusion * self.right_conclusion
        return min(points, cap) if self.false else points

    def faults(self) -> list[str]:
        """Return the reasons for lost points, a sentence each."""
        if self.fault:
            return [self.fault]
        reasons = [f"The line {line} is false or cannot be read." for line in self.false]
        reasons += [f"{self.needed - self.valid} of {self.needed} lines are missing."] * (self.valid < self.needed)
        return reasons + ["The conclusion is missing, wrong or not established."] * (not self.right_conclusion)


_THOUGHT = re.compile(r"<think>[^<>]*</think>\n")
_CONCLUSION = re.compile(
    r"(?:(?:So|Hence|Thus|Therefore),? )?(?:the (?:residue|remainder) is )?\$?\\boxed\{ *(?P<box>[0-9]+) *\}\$?\.?"
)


def check(problem: Congruence, text: str, answer_only: bool = False) -> Grading:
    """Check a response line by line; `answer_only` if the caller has already removed its `<think>` part."""
    establish = _checkpoints(problem)
    needed = len(establish)

    def worthless(fault: str) -> Grading:
        return Grading(needed, 0, (), False, fault)

    if not answer_only:
        thought = _THOUGHT.match(text)
        if thought is None:
            return worthless("It does not begin with one closed thought.")
        text = text[thought.end() :]
    *body, last = split_lines(text) or [""]
    conclusion = _CONCLUSION.fullmatch(last.strip(" "))
    if conclusion is None:
        return worthless("It does not end in a conclusion with the residue in a box.")
    if other := next((line for line in body if not is_calculation(line)), None):
        return worthless(f"A line is no calculation: {other[:80]!r}.")
    if len(body) > needed:
        return worthless(f"It has {len(body)} lines; the argument needs {needed}.")
    lines = [_read(line, problem.modulus) for line in body]
    established_LC = [[line is not None and establishes(line) for establishes in establish] for line in lines]
    valid = _longest_in_order(established_LC)
    if valid < sum(map(any, established_LC)):
        return worthless("Its lines are out of order, or one of them occurs twice.")
    false = tuple(text.strip(" ").rstrip(".") for text, line in zip(body, lines, strict=True) if line is None)
    # A conclusion needs a line that leads to it; one that the statement reveals needs all lines.
    right = conclusion["box"] == str(problem.residue) and valid >= (needed if problem.asks_for_proof else 1)
    return Grading(needed, valid, false, right)


def _longest_in_order(established_LC: Sequence[Sequence[bool]]) -> int:
    """Return the most lines that establish different checkpoints in order (longest common subsequence).

    Shape: L lines, C checkpoints.
    """
    best = [0] * (len(established_LC[0]) + 1) if established_LC else [0]
    for established_C in established_LC:
        before, best = best, [0]
        for index, established in enumerate(established_C):
            best.append(max(before[index] + 1 if established else 0, before[index + 1], best[index]))
    return best[-1]


# ------------------------------------------------------------------------------------------------------------- parsing

_LATEX = {r"\\equiv": "≡", r"\\(?:cdot|times)": "*", r"\^\{([0-9])\}": r"^\1", r" *(\\?[*+^=≡:,]) *": r"\1"}
_MODULUS = re.compile(r" *(?:\\pmod *\{([0-9])\}|\(mod ([0-9])\))(?=,|$)")
_CALCULATION = re.compile(r"[0-9*+^=≡:,]+")
_FACTOR = r"[0-9]{1,9}(?:\^[0-9])?"
_SUM = re.compile(rf"{_FACTOR}(?:[*+]{_FACTOR})*")
_LONGEST = 200  # maximal characters of a line; the longest of the family has under 80


@dataclass(frozen=True)
class _Step:
    """A true step `4*4=16≡2`: the terms of its left side with their factors, and its residue.

    `number` is the left side if it is one number (`47≡5`). `worked_out` is true if the step shows the value.
    """

    terms: tuple[tuple[int, ...], ...]
    residue: int
    number: int | None
    worked_out: bool

    def values(self, modulus: int) -> Counter[int]:
        """Count the residues of the terms."""
        return Counter(_product(term) % modulus for term in self.terms)


@dataclass(frozen=True)
class _Line:
    """A true line: its steps, and the power of its label, `(4, 3)` for `4^3:`."""

    label: tuple[int, int] | None
    steps: tuple[_Step, ...]


def split_lines(answer: str) -> list[str]:
    """Return the lines of an answer that are not blank, without the first words of a brief proof."""
    return [line for line in answer.strip(" \n").removeprefix(BRIEF).split("\n") if line.strip(" ")]


def is_calculation(line: str) -> bool:
    """Return whether a line has only signs of calculations, true or not."""
    return _CALCULATION.fullmatch(_MODULUS.sub("", _plain(line))) is not None


def is_true(problem: Congruence, line: str) -> bool:
    """Return whether every step of a line is true, and its label (such as `4^3`) has the residue of the last step."""
    return _read(line, problem.modulus) is not None


def _plain(line: str) -> str:
    """Remove a line's full stop and the spaces around signs, and replace LaTeX's commands for signs."""
    # Runs of spaces are merged first, because a pattern that begins with ` *` takes quadratic time on them.
    line = re.sub(" {2,}", " ", line).strip(" ").removesuffix(".").strip(" $")
    for theirs, ours in _LATEX.items():
        line = re.sub(theirs, ours, line)
    return line


def _read(line: str, modulus: int) -> _Line | None:
    """Parse a line of calculation; None if it is false or cannot be parsed."""
    plain = _plain(line)
    moduli = ["".join(named) for named in _MODULUS.findall(plain)]
    label, separator, steps = _MODULUS.sub("", plain).rpartition(":")
    if len(line) > _LONGEST or not all(int(named) == modulus for named in moduli):
        return None
    read = [_read_step(step, modulus) for step in steps.split(",")]
    true = tuple(step for step in read if step is not None)
    if len(true) < len(read):
        return None
    if not separator:
        return _Line(None, true)
    power = re.fullmatch(r"([0-9])\^([0-9])", label)
    if power is None or pow(int(power[1]), int(power[2]), modulus) != true[-1].residue:
        return None
    return _Line((int(power[1]), int(power[2])), true)


def _read_step(step: str, modulus: int) -> _Step | None:
    """Parse a step `4*4=16≡2`, `4^3=4*4*4=64≡1` or `47≡5`; None if it is false or cannot be parsed."""
    left, _, residue = step.partition("≡")
    sides = left.split("=")
    if not re.fullmatch("[0-9]", residue) or not all(map(_SUM.fullmatch, sides)):
        return None
    terms = [tuple(tuple(_factors(term)) for term in side.split("+")) for side in sides]
    values = {sum(map(_product, side)) for side in terms}
    if len(values) > 1 or int(residue) >= modulus or values.pop() % modulus != int(residue):
        return None
    number = int(sides[0]) if sides[0].isdigit() else None
    return _Step(terms[0], int(residue), number, sides[-1].isdigit())


def _factors(term: str) -> list[int]:
    """Return the factors of a term; a power is expanded."""
    powers = [factor.partition("^") for factor in term.split("*")]
    return [int(base) for base, _, exponent in powers for _ in range(int(exponent or 1))]


def _product(factors: Sequence[int]) -> int:
    result = 1
    for factor in factors:
        result *= factor
    return result


# --------------------------------------------------------------------------------------------- facts of a line

_Establishes = Callable[[_Line], bool]


def _checkpoints(problem: Congruence) -> list[_Establishes]:
    """Return the test of each line of a complete proof, in order (`congruences.checkpoints` writes the lines)."""
    n, m = problem.numbers, problem.modulus
    if problem.family == "powers":
        return [*(_power(*pair, m) for pair in pairs(n)), _total([*(a**k for a, k in pairs(n)), n[-1]], m)]
    if problem.family == "products":
        return [*(_of_two(*pair, m) for pair in pairs(n)), _total([*(a * b for a, b in pairs(n)), n[-1]], m)]
    establish, residue = [], n[0]
    for factor, added in iterations(problem):
        written = 10 * residue + added if problem.family == "digits" else None
        establish.append(_iteration(residue, factor, added, m, written))
        residue = (residue * factor + added) % m
    return establish


def _power(base: int, exponent: int, m: int) -> _Establishes:
    """Build the test for products of known powers, up to the required one: `4*4=16≡2, 2*2=4≡4` is 4^4."""

    def establishes(line: _Line) -> bool:
        known, reached = {1}, set()
        if len(line.steps) >= exponent:  # more products than needed
            return False
        for step in line.steps:
            if len(step.terms) > 1 or not step.worked_out:
                return False
            reached = {0}
            for factor in step.terms[0]:
                reached = {e + k for e in reached for k in known if e + k <= exponent and pow(base, k, m) == factor % m}
            known |= reached
        return exponent in reached and line.label in (None, (base, exponent))

    return establishes


def _of_two(a: int, b: int, m: int) -> _Establishes:
    return lambda line: line.label is None and len(line.steps) == 1 and _is_product(line.steps[0], a, b, m)


def _is_product(step: _Step, a: int, b: int, m: int) -> bool:
    factors = sorted(factor % m for factor in step.terms[0])
    return len(step.terms) == 1 and step.worked_out and factors == sorted((a % m, b % m))


def _total(parts: Sequence[int], m: int) -> _Establishes:
    """Build the test for the sum of all parts, in one or several steps."""

    def establishes(line: _Line) -> bool:
        open_parts = Counter(part % m for part in parts)
        for step in line.steps:
            if len(step.terms) < 2 or not step.worked_out or not step.values(m) <= open_parts:
                return False
            open_parts = open_parts - step.values(m) + Counter([step.residue])
        return open_parts.total() == 1 and line.label is None

    return establishes


def _iteration(residue: int, factor: int, added: int, m: int, written: int | None) -> _Establishes:
    """Build the test for a product and then a sum, in one or two steps, or for the residue of the number `written`."""

    def establishes(line: _Line) -> bool:
        if line.label is not None or not all(step.worked_out for step in line.steps):
            return False
        if len(line.steps) == 1:
            step, both = line.steps[0], sorted([sorted((residue % m, factor % m)), [added % m]])
            reduced = sorted(sorted(f % m for f in term) for term in step.terms)
            return reduced == both or (written is not None and step.number == written)
        product, *rest = line.steps
        sum_of = Counter([product.residue]) + Counter([added % m])
        return _is_product(product, residue, factor, m) and len(rest) == 1 and rest[0].values(m) == sum_of

    return establishes
