"""Small tasks: their answers, wordings, parts and grades."""

import itertools
import re
from collections import Counter
from datetime import date, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmill.graders.program_graders import PROGRAMS
from proofmill.graders.submissions import Submission
from proofmill.synthetic.small_tasks import BOUNDS, DAYS, FAMILIES, MONTHS, SIZES, grade, tasks

SOME = list(itertools.islice(tasks("train", 0), 900))


def items(statement: str, pattern: str) -> list[str]:
    """Return what a statement lists."""
    return re.findall(pattern, statement)


def solve(family: str, statement: str) -> str | None:
    """Solve a task from its statement alone, independent of the module; None for Countdown, which has many answers."""
    numbers = list(map(int, items(statement, r"\d+")))
    if family in ("largest", "smallest"):
        return str({"largest": max, "smallest": min}[family](numbers))
    if family == "sort":
        return ", ".join(map(str, sorted(numbers)))
    if family == "letters":
        letter = re.search(r"letter (\w) |often is (\w) ", statement)
        word = re.search(r"(?:word|occur in|in) (\w{2,})[?.]", statement)
        return str(word[1].count(letter[1] or letter[2]))
    if family == "fractions":
        return max(items(statement, r"\d+/\d+"), key=Fraction)
    if family == "dates":
        found = items(statement, rf"(\d+) ({'|'.join(MONTHS)})")
        return " ".join(min(found, key=lambda pair: (MONTHS.index(pair[1]), int(pair[0]))))
    if family == "weekday":
        today = next(day for day in DAYS if day in statement)
        start = date(2024, 1, 1) + timedelta(DAYS.index(today))  # the first was a Monday
        return (start + timedelta(numbers[0])).strftime("%A")
    return None


def test_answers_equal_solutions_from_the_statements():
    """Each answer follows from the statement alone, in every wording."""
    checked = Counter()
    for task, statement in SOME:
        if (expected := solve(task.family, statement)) is not None:
            assert task.answer == expected, statement
            checked[task.family] += 1
    assert set(checked) == {*FAMILIES} - {"countdown", "story"} and min(checked.values()) > 50


def test_countdown_uses_each_number_once():
    """The answer has the numbers and the value of the statement."""
    seen = 0
    for task, statement in SOME:
        if task.family == "countdown":
            numbers = sorted(map(int, items(task.answer, r"\d+")))
            stated = list(map(int, items(statement, r"\d+")))
            target = eval(task.answer)
            assert sorted(stated) == sorted([*numbers, target]) and 1 <= target <= 99
            seen += 1
    assert seen == 100


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        (("{who} has {a} {things} and gives {b} away.", "does {who} have left"), lambda a, b, c: a - b),
        (("There are {a} boxes with {b} {things} each. {who} takes {c}.", "are left"), lambda a, b, c: a * b - c),
    ],
)
def test_stories_have_positive_answers(statement, answer):
    """A story is drawn only with numbers that make sense."""
    drawn = [task for task, _ in itertools.islice(tasks("train", 1, ["story"]), 600) if task.content[0] == statement[0]]
    assert len(drawn) > 40
    for task in drawn:
        _, a, b, c = task.content
        assert task.answer == str(answer(a, b, c)) and int(task.answer) >= 1


def test_parts_share_no_content():
    """No task of a part is in another, in any wording and order, for different seeds."""
    parts = {part: {(t.family, t.content) for t, _ in itertools.islice(tasks(part, seed), 400)}
             for seed, part in enumerate(("train", "dev", "test"))}  # fmt: skip
    assert all(len(drawn) == 400 for drawn in parts.values())
    assert not any(a & b for a, b in itertools.combinations(parts.values(), 2))


def test_more_rows_begin_with_the_same():
    """A part depends on seed, families and sizes alone; families come in turn, with all their wordings."""
    again = list(itertools.islice(tasks("train", 0), 90))
    assert [s for _, s in again] == [s for _, s in SOME[:90]]
    assert [t.family for t, _ in SOME[:9]] == list(FAMILIES)
    largest = {re.sub(r"[\d, ]+", "#", s) for t, s in SOME if t.family == "largest"}
    assert len(largest) == 4


def test_an_exhausted_family_ends():
    """Weekdays in one-digit numbers of days are few; the others continue without them."""
    few = list(tasks("test", 0, ["weekday"], {"weekday": [1, 1]}))
    assert 0 < len(few) < 7 * 8 and len({t.content for t, _ in few}) == len(few)


@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_hold_at_both_bounds(family):
    """Each family can be drawn at its smallest and largest size."""
    for size in BOUNDS[family]:
        drawn = [t for t, _ in itertools.islice(tasks("train", 0, [family], {family: [size, size]}), 5)]
        assert len(drawn) == 5 and all(grade(t.answer, t.answer) == 1 for t in drawn)
    assert BOUNDS[family][0] <= SIZES[family][0] <= SIZES[family][1] <= BOUNDS[family][1]


@pytest.mark.parametrize(
    ("answer", "response", "expected"),
    [
        ("63", "63", 1),
        ("63", "The largest of 41, 7 and 63 is **63**.", 1),
        ("63", "63 is larger than 41.", 0),
        ("63", "163", 0),
        ("3", "The answer is 3.5", 0),
        ("3", "-3", 0),
        ("3", "", 0),
        ("7, 28, 41", "7,28, 41", 1),
        ("7, 28, 41", "Sorted: 7, 28, 41.", 1),
        ("7, 28, 41", "7, 41, 28", 1 / 3),
        ("7, 28, 41", "41, 7, 28", 0),
        ("7, 28, 41", "7, 7, 7", 0),
        ("7, 28, 41", "7, 28, 41, 41", 0),
        ("7, 28, 41", "7, 28", 0),
        ("7, 28, 41", "7 28 41", 0),
        ("7, 28, 41", "9" * 5000 + ", 1", 0),
        ("Friday", "It is friday.", 1),
        ("Friday", "Friday? No, Monday.", 0),
        ("4 July", "the 4 july", 1),
        ("4 July", "14 July", 0),
        ("2/3", "2/3 is larger", 1),
        ("2/3", "12/3", 0),
        ("2/3", "4/6", 0),
        ("3+5*2", "5*2 + 3 = 13", 1),
        ("3+5*2", "Answer: (2*5)+3", 1),
        ("3+5*2", "3+5+2+3", 0),
        ("3+5*2", "13", 0),
        ("3+5*2", "10+3", 0),
        ("3+5*2", "2**5-3", 0),
        ("3+5*2", "3/(5-5)*2", 0),
        ("3+5*2", "(" * 9000 + "3+5*2", 0),
        ("3+5*2", "1+" * 20000 + "1", 0),
    ],
)
def test_last_text_of_the_form_counts(answer, response, expected):
    """The answer decides the form, and the last text of that form is graded."""
    assert grade(answer, response) == pytest.approx(expected)


def test_division_counts_exactly():
    """8/3*3 is 8, also with fractions on the way."""
    assert grade("8+3-3", "8/3*3") == 1


@pytest.mark.parametrize("answer", ["", "three", "x+1", "1, x"])
def test_an_answer_of_no_form_leaves_its_row_unscored(answer):
    """Such an answer comes from another source; its row is unscored, not 0, and others have their grades."""
    assert grade(answer, "3") is None
    rows = [Submission("s", text, None, "3") for text in (answer, "3")]
    with PROGRAMS["small-tasks"].open() as check:
        assert [verdict.grade for verdict in check(rows)] == [None, 1]


@given(st.text("0123456789+-*/(), .aJulyFriday", max_size=60), st.sampled_from(SOME))
def test_any_response_has_a_grade(response, drawn):
    """Whatever a model writes, its grade is in 0 to 1; the answer at the end of it is right."""
    answer = drawn[0].answer
    assert 0 <= grade(answer, response) <= 1
    assert grade(answer, f"{response}\nsaid: {answer}") == 1


@pytest.mark.parametrize("text", ["1" * 200_000, "1," * 100_000, "(" * 200_000, "1/" * 100_000, "1+" * 100_000])
def test_long_responses_take_linear_time(text):
    """A reader whose time grows with the square would need minutes here."""
    for answer in ("63", "7, 28, 41", "2/3", "4 July", "3+5*2"):
        assert grade(answer, text) < 1


def test_no_statement_is_its_own_answer_by_its_form_alone():
    """Repeating the statement is right for at most 60 of 100 tasks of any family, as a guess between two is."""
    repeated = Counter(t.family for t, s in SOME if grade(t.answer, s) == 1)
    assert all(repeated[family] <= 60 for family in FAMILIES), repeated
