"""Small tasks for a small language model: select, sort, count, compare, calculate. A program decides every answer.

    largest    Which number is the largest: 41, 7, 63, 28?                        63
    sort       Sort these numbers in ascending order: 41, 7, 63, 28.              7, 28, 41, 63
    countdown  Write 13 with the numbers 2, 3, 5, each used once, and + - * /.    3+5*2

An answer is a number, a list, a word, a date, a fraction or an expression. `grade` reads the last one of that form in a
response. A response therefore needs no box, and a model before training is graded by the same rule as one after.

Each family has a size: of numbers, fractions, dates, syllables or steps, or the digits of a number of days. The content
of a task, without its wording and the order of what is compared, decides its part.
"""

import ast
import operator
import random
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from proofmill.synthetic.parts import part_of

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
# Sizes of tasks: default ranges, and their bounds.
SIZES = {
    "largest": (4, 4), "smallest": (4, 4), "sort": (4, 4), "letters": (2, 3), "fractions": (2, 2), "dates": (2, 3),
    "weekday": (1, 2), "countdown": (3, 3), "story": (1, 2),
}  # fmt: skip
BOUNDS = {
    "largest": (2, 9), "smallest": (2, 9), "sort": (2, 9), "letters": (1, 9), "fractions": (2, 9), "dates": (2, 9),
    "weekday": (1, 4), "countdown": (3, 5), "story": (1, 2),
}  # fmt: skip
FAMILIES = tuple(SIZES)
_PATIENCE = 1_000  # repeated draws in a row after which a family is exhausted

_WORDINGS = {
    "largest": ("Which number is the largest: {items}?", "Find the largest of these numbers: {items}.",
                "What is the maximum of {items}?", "Here are some numbers: {items}. Which one is the largest?"),
    "smallest": ("Which number is the smallest: {items}?", "Find the smallest of these numbers: {items}.",
                 "What is the minimum of {items}?", "Here are some numbers: {items}. Which one is the smallest?"),
    "sort": ("Sort these numbers in ascending order: {items}.", "Put {items} in order, the smallest first.",
             "Arrange the numbers {items} from the smallest to the largest."),
    "letters": ("How many times does the letter {letter} occur in {word}?", "Count the letter {letter} in {word}.",
                "How often is {letter} written in the word {word}?"),
    "fractions": ("Which fraction is the largest: {items}?", "Find the largest of these fractions: {items}.",
                  "Which of {items} is the greatest?"),
    "dates": ("Which date is the earliest in a year: {items}?", "Find the first of these dates of a year: {items}.",
              "Which of the dates {items} comes first in a year?"),
    "weekday": ("Today is {day}. Which day of the week is it in {n} days?", "Which weekday is {n} days after {day}?",
                "It is {day}. Name the day of the week {n} days from now."),
    "countdown": ("Write {target} with the numbers {items}, each used once, and the signs + - * /.",
                  "Use each of {items} once, with + - * / and brackets, to make {target}.",
                  "Find an expression that equals {target}. Use the numbers {items} once each."),
    "story": ("{story} How many {things} {ask}?", "{story} How many {things} {ask}? Reply with a number."),
}  # fmt: skip
_STORIES = {  # by number of steps: the story, its question, and its value
    1: (("{who} has {a} {things} and gets {b} more.", "does {who} have now", lambda a, b, c: a + b),
        ("{who} has {a} {things} and gives {b} away.", "does {who} have left", lambda a, b, c: a - b),
        ("There are {a} boxes with {b} {things} each.", "are there in all", lambda a, b, c: a * b)),
    2: (("{who} has {a} {things}, gets {b} more and loses {c}.", "does {who} have now", lambda a, b, c: a + b - c),
        ("{who} fills {a} boxes with {b} {things} each and has {c} more.", "are there in all",
         lambda a, b, c: a * b + c),
        ("There are {a} boxes with {b} {things} each. {who} takes {c}.", "are left", lambda a, b, c: a * b - c)),
}  # fmt: skip
_PEOPLE = ("Ana", "Ben", "Chen", "Dora", "Emil", "Fatima", "Goran", "Hana", "Ivan", "Julia")
_THINGS = ("apples", "books", "cards", "coins", "marbles", "pencils", "stamps", "stones")
_SYLLABLES = ("ba", "de", "fi", "go", "lu", "ma", "ne", "pa", "ri", "so", "ta", "an", "es", "ol", "ur")


@dataclass(frozen=True)
class SmallTask:
    """A task: its family, what identifies it, the gaps of its wording, and its answer."""

    family: str
    content: tuple
    gaps: Mapping[str, object]
    answer: str

    @property
    def part(self) -> str:
        """The part of the task: train, dev or test."""
        return part_of(repr((self.family, *self.content)))

    def statement(self, wording: int) -> str:
        """Write the task in one of its family's wordings."""
        wordings = _WORDINGS[self.family]
        return wordings[wording % len(wordings)].format(**self.gaps)


# -------------------------------------------------------------------------------------------------------- the generator


def _numbers(family: str, choose: Callable[[list[int]], Sequence[int]], rng: random.Random, size: int) -> SmallTask:
    numbers = rng.sample(range(1, 100), size)
    answer = ", ".join(map(str, choose(sorted(numbers))))
    return SmallTask(family, tuple(sorted(numbers)), {"items": ", ".join(map(str, numbers))}, answer)


def _letters(rng: random.Random, size: int) -> SmallTask:
    word = "".join(rng.choice(_SYLLABLES) for _ in range(size))
    letter = rng.choice(word)
    return SmallTask("letters", (word, letter), {"word": word, "letter": letter}, str(word.count(letter)))


def _fractions(rng: random.Random, size: int) -> SmallTask:
    values: dict[Fraction, str] = {}
    while len(values) < size:
        below = rng.randint(2, 12)
        above = rng.randint(1, below - 1)
        values[Fraction(above, below)] = f"{above}/{below}"
    items = list(values.values())
    return SmallTask("fractions", tuple(sorted(items)), {"items": ", ".join(items)}, values[max(values)])


def _dates(rng: random.Random, size: int) -> SmallTask:
    dates = rng.sample([(month, day) for month in range(12) for day in range(1, 29)], size)
    items = [f"{day} {MONTHS[month]}" for month, day in dates]
    return SmallTask("dates", tuple(sorted(dates)), {"items": ", ".join(items)}, items[dates.index(min(dates))])


def _weekday(rng: random.Random, size: int) -> SmallTask:
    day, days = rng.randrange(7), rng.randint(10 ** (size - 1) + (size == 1), 10**size - 1)
    return SmallTask("weekday", (day, days), {"day": DAYS[day], "n": days}, DAYS[(day + days) % 7])


def _countdown(rng: random.Random, size: int) -> SmallTask:
    while True:
        numbers = rng.sample(range(1, 10), size)
        text = str(numbers[0])
        for number in numbers[1:]:
            text = f"({text})" if text[-2:-1] in ("+", "-") and rng.random() < 0.5 else text
            text += f"{rng.choice('+-*')}{number}"
        target = _value(text)
        if target is not None and 1 <= target <= 99:
            gaps = {"items": ", ".join(map(str, sorted(numbers))), "target": target}
            return SmallTask("countdown", (*sorted(numbers), str(target)), gaps, text)


def _story(rng: random.Random, size: int) -> SmallTask:
    while True:
        story, ask, value = rng.choice(_STORIES[size])
        a, b, c = (rng.randint(2, 20) for _ in range(3))
        if 1 <= value(a, b, c) <= 99:
            who, things = rng.choice(_PEOPLE), rng.choice(_THINGS)
            text = story.format(who=who, things=things, a=a, b=b, c=c)
            gaps = {"story": text, "things": things, "ask": ask.format(who=who)}
            return SmallTask("story", (story, a, b, c * (size - 1)), gaps, str(value(a, b, c)))


_DRAW: dict[str, Callable[[random.Random, int], SmallTask]] = {
    "largest": lambda rng, size: _numbers("largest", lambda numbers: numbers[-1:], rng, size),
    "smallest": lambda rng, size: _numbers("smallest", lambda numbers: numbers[:1], rng, size),
    "sort": lambda rng, size: _numbers("sort", lambda numbers: numbers, rng, size),
    "letters": _letters, "fractions": _fractions, "dates": _dates, "weekday": _weekday, "countdown": _countdown,
    "story": _story,
}  # fmt: skip


def tasks(
    part: str, seed: int, families: Sequence[str] = (), sizes: Mapping[str, Sequence[int]] | None = None
) -> Iterator[tuple[SmallTask, str]]:
    """Yield distinct tasks of one part with their statements; families in turn, each until it is exhausted."""
    rng, seen = random.Random(f"small-tasks-{part}-{seed}"), set()
    turns = deque(families or FAMILIES)
    while turns:
        family = turns.popleft()
        for _ in range(_PATIENCE):
            task = _DRAW[family](rng, rng.randint(*(sizes or {}).get(family, SIZES[family])))
            if task.part == part and (family, task.content) not in seen:
                seen.add((family, task.content))
                turns.append(family)
                yield task, task.statement(rng.randrange(12))
                break


# ----------------------------------------------------------------------------------------------------------- the grader

# Forms of answers, in this order: an answer has the first form that matches it whole. No match begins inside digits, so
# a long response takes linear time.
_FORMS = {
    "list": re.compile(r"(?<![\d.])-?\d+(?:\s*,\s*-?\d+)+"),
    "fraction": re.compile(r"(?<![\d.])\d+/\d+"),
    "date": re.compile(rf"(?<!\d)\d+ (?:{'|'.join(MONTHS)})", re.IGNORECASE),
    "day": re.compile("|".join(DAYS), re.IGNORECASE),
    "number": re.compile(r"(?<![\d.])-?\d+(?:\.\d+)?"),
    "expression": re.compile(r"[-+*/\d() ]+"),
}
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def grade(answer: str, response: str) -> float | None:
    """Grade a response from 0 to 1 by its last text of the answer's form.

    An expression is correct if it has the numbers and the value of `answer`. The grade of a list with the numbers of
    `answer` is the share of its places that are correct; of any other list 0, because a policy learns soon that one
    number, repeated, is always in one correct place. Everything else is 1 or 0. None if `answer` has no known form: it
    is of another source.
    """
    form = next((form for form, pattern in _FORMS.items() if pattern.fullmatch(answer)), None)
    if form is None:
        return None
    found = [match[0].strip() for match in _FORMS[form].finditer(response)]
    if form == "expression":  # `= 11` and brackets around words do not count
        found = [text for text in (text.strip(" +-*/") for text in found) if re.search("[-+*/]", text)]
    if not found:
        return 0.0
    if form == "list":
        expected, given = ([part.strip() for part in text.split(",")] for text in (answer, found[-1]))
        same = sorted(given) == sorted(expected)
        return sum(map(operator.eq, expected, given)) / len(expected) if same else 0.0
    if form == "expression":
        same = sorted(re.findall(r"\d+", found[-1])) == sorted(re.findall(r"\d+", answer))
        return float(same and _value(found[-1]) == _value(answer))
    return float(found[-1].casefold() == answer.casefold())


def _value(expression: str) -> Fraction | None:
    """Compute an expression of whole numbers; None if it has no value."""

    def value(node: ast.expr) -> Fraction:
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return Fraction(_OPERATORS[type(node.op)](value(node.left), value(node.right)))
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return Fraction(node.value)
        raise ValueError

    try:
        return value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None
