"""Gold answers of data sets, or any other text: each gives a value or a reason, and never ends a batch."""

import json
import random
import time

import pytest

from proofmill.answers.comparison.equality import unread
from proofmill.answers.final_answers import LONGEST, judge
from proofmill.answers.reading import parse
from proofmill.answers.verifier import Verifier
from proofmill.graders import human_grades
from proofmill.graders.code_grading import read_tests
from proofmill.schema.errors import TableError

GOLDS = (
    *("18", "-7", "1,080", "0.5", r"\frac{3}{4}", r"2\sqrt{3}", r"\frac{-1+\sqrt5}{2}", r"3\pm\sqrt{2}", "x^2+3x-4", "50\\%"),
    *("(1,2)", r"[0,\infty)", r"(-\infty,-1)\cup[2,3)", r"\{1,2,3\}", r"\text{Monday}", r"n\equiv 3\pmod{4}", "12:30"),
    *("101_2", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"x=3\text{ or }x=-3", r"90^\circ", r"\$4.50", "3 cm", "forty-two"),
    *(r"\binom{10}{3}", r"\log_2 3", r"\sum_{k=1}^{n}k^2", r"f(x)=2x+1", r"\textbf{(B)} 12", r"0.1\overline{6}"),
)  # fmt: skip
SIGNS = (
    *(r"\pm", r"\pmod", r"\pmb", "±", r"\mp", r"\bmod", r"\equiv", r"\cup", r"\text{", r"\frac", r"\sqrt[", r"\left", r"\in"),
    *(r"\boxed{", r"\begin{cases}", r"\end{cases}", r"\overline{", r"\%", r"^\circ", r"\mid", r"\ldots", "####", "_{", "^{"),
    *(*"{}()[]|,;:=<>!$%&#~^_\\'\" \n\t\0", "\u202e", "\ud800", "五", "٣", "ℝ", "²", "9" * 400, "1" * 5000, "e308", "nan"),
)  # fmt: skip
SEED, CASES = 25, 300


def mutated(rng: random.Random) -> str:
    """Return a gold answer with a few signs inserted, removed, doubled or replaced by another answer's."""
    text = rng.choice(GOLDS)
    for _ in range(rng.choice((1, 2, 4, 12))):
        start, end = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        text = rng.choice((
            text[:start] + rng.choice(SIGNS) + text[start:],
            text[:start] + text[end:],
            text[:end] + text[start:],
            text[:start] + rng.choice(GOLDS) + text[end:],
        ))  # fmt: skip
    return text


def drawn(rng: random.Random) -> str:
    """Draw a text of arbitrary signs or code points."""
    if rng.random() < 0.5:
        return "".join(rng.choice(SIGNS) for _ in range(rng.choice((1, 3, 10, 40))))
    return "".join(chr(rng.randrange(0x11_0000)) for _ in range(rng.choice((1, 8, 200))))


@pytest.fixture(scope="module")
def pool():
    """Open a verifier with a short time limit."""
    with Verifier(2, seconds=0.5) as made:
        yield made


@pytest.mark.parametrize("text", [r"\pmod", r"a\pmod{}", r"5\pmb{3}", r"\pm\pmod", r"\pmod{}\pm1", r"3\pmod(", "2±"])
def test_sign_that_only_begins_like_plus_minus_is_read_once(text):
    """A command whose name begins with `pm` is not plus-minus, and parsing terminates."""
    assert isinstance(parse.readings(text), list)
    assert unread(text)


@pytest.mark.parametrize(
    ("gold", "detail"),
    [
        (r"a\pmod{}", r"gold answer cannot be read: a\pmod{}"),
        ("(" * 400 + "1" + ")" * 400, "gold answer: "),  # too deep, or on a slow processor too long
        ("x" * (LONGEST + 1), "gold answer has over 1,000 characters"),
        (r"\sum_{k=1}^{10^9}\sin(k)", "gold answer: took longer than 0.5 s"),
        (r"\sqrt[3]{2^{2^{36}}}", "gold answer: "),
    ],
)
def test_gold_that_cannot_be_read_is_no_gold_for_its_row(pool, gold, detail):
    """An endless, deep, long or large gold answer has its reason; the rows around it have verdicts."""
    before, found, after = pool.check([("18", r"\boxed{18}"), (gold, r"\boxed{5+x}"), ("x+1", r"\boxed{1+x}")])
    assert (before.status, found.status, after.status) == ("correct", "no-gold", "correct")
    assert found.detail.startswith(detail)
    assert pool.fault(gold).startswith(detail)


def test_gold_that_can_be_read_has_no_fault(pool):
    """Each gold answer of the list is parsed, and equals itself in a box."""
    assert [pool.fault(gold) for gold in GOLDS] == [""] * len(GOLDS)
    assert {check.status for check in pool.check((gold, f"\\boxed{{{gold}}}") for gold in GOLDS)} == {"correct"}


@pytest.mark.parametrize(
    ("gold", "text", "status", "answer"),
    [
        ("5", r"\boxed{4} then \boxed{5}", "correct", "5"),
        ("5", r"\boxed{5} then \boxed{4}", "wrong", "4"),
        ("4,5", r"\boxed{4} then \boxed{5}", "correct", "4,5"),
        ("x+1", r"\boxed{x} then \boxed{1+x}", "correct", "1+x"),
        ("x+1", r"\boxed{1+x} then \boxed{x}", "wrong", "x"),
        (r"a\pmod{}", r"\boxed{1} then \boxed{2}", "no-gold", "2"),
        ("x+1", r"\boxed{1+x} then \boxed{" + "x" * 1001 + "}", "unparsable", "x" * 1001),
        ("x+1", r"\boxed{" + "x" * 1001 + r"} then \boxed{1+x}", "correct", "1+x"),
    ],
)
def test_boxes_that_count_depend_on_the_gold_answer(pool, gold, text, status, answer):
    """All boxes of a line count if several values are asked for, else the last; the same in both processes."""
    (found,) = pool.check([(gold, text)])
    assert (found.status, found.answer) == (status, answer)
    assert judge(gold, text) == found


@pytest.mark.parametrize("make", [mutated, drawn])
def test_any_text_as_gold_and_as_answer_has_a_verdict_in_time(pool, make):
    """Random texts against a good answer, and as the answer to a good gold answer, end no batch."""
    rng = random.Random(f"{SEED}-{make.__name__}")
    texts = [make(rng) for _ in range(CASES)]
    pairs = [
        pair
        for text in texts
        for pair in ((text, r"\boxed{7}"), ("x+7", f"\\boxed{{{text}}}"), (text, f"{text}\n#### 7"))
    ]
    started = time.monotonic()
    checks = list(pool.check(pairs))
    assert len(checks) == len(pairs)
    assert all(check.detail for check in checks if check.status in ("unparsable", "no-gold"))
    assert {"no-gold", "unparsable", "wrong", "no-answer"} <= {check.status for check in checks}
    assert time.monotonic() - started < 240, "each of the pairs has 0.5 s of processor time at most, twice"


# ---------------------------------------------------------------------------------------------- what is no final answer

TASKS = (
    {"kind": "deduce", "program": "def f(a): return a", "input": "1", "output": "1"},
    {"kind": "abduce", "program": "def f(a): return a", "input": "1", "output": "1"},
    {"kind": "induce", "program": "def f(a): return a", "inputs": ["1", "2"], "outputs": ["1", "2"], "message": "m"},
)
CHECKS = {"check": "assert f(1)", "function": "f", "setup": "", "reference": "def f(a): return a"}
JUNK = (None, 5, -1.5, True, "", "x", [], {}, [1], [None], ["x"], {"a": 1}, [["x"]], "\ud800", 10**400)


@pytest.mark.parametrize("row", [*TASKS, CHECKS])
def test_tests_with_junk_in_any_place_are_refused_in_a_sentence_or_read(row):
    """A task or check with a wrong or missing value in any place is parsed, or raises ValueError."""
    for key in row:
        for junk in JUNK:
            for spoilt in ({**row, key: junk}, {**row, "extra": junk}, {k: v for k, v in row.items() if k != key}):
                for text in (json.dumps(spoilt), json.dumps([spoilt]), json.dumps([spoilt, junk])):
                    try:
                        read_tests(text)
                    except ValueError as error:
                        assert str(error)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"[" * 100_000,
        b"5",
        b"null",
        b'{"response": 1}',
        b'{"response": "r", "grade": NaN, "max_points": 7}',
    ],
)
def test_line_that_is_no_grade_of_a_person_is_named(tmp_path, line):
    """Invalid bytes among the grades of humans raise an error that names the line."""
    path = tmp_path / "grades.jsonl"
    path.write_bytes(b'{"response": "r", "grade": 1, "max_points": 7}\n' + line)
    with pytest.raises(TableError, match=r"grades\.jsonl:2: .*expected"):
        human_grades.read(path)
