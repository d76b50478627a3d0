"""Parsed answers: their structure, their numbers, and that no part is dropped."""

from fractions import Fraction

import pytest

from proofmill.answers.extraction import normal
from proofmill.answers.reading.forms import (
    Clock,
    CongruenceAnswer,
    Family,
    Formula,
    InBase,
    Interval,
    Labeled,
    NamedSet,
    Number,
    Operation,
    Quantity,
    Ratio,
    Relation,
    Several,
    Words,
)
from proofmill.answers.reading.parse import read, readings

ONE, TWO, THREE = (Number(Fraction(n)) for n in (1, 2, 3))
MINUS = Number(Fraction(-1))
X = Formula("x")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7), ("-007", -7), ("+5", 5), ("−3", -3), ("1,234", 1234), ("1{,}234", 1234), (r"1\,234\,567", 1234567),
        ("1 000", 1000), (r"32,\! 348", 32348), ("12,34", None), ("1/2", Fraction(1, 2)), (r"\frac12", Fraction(1, 2)),
        (r"\dfrac{12}{5,\!525}", Fraction(12, 5525)), (r"\frac{-1}{2}", Fraction(-1, 2)), ("1 1/2", Fraction(3, 2)),
        (r"2\frac13", Fraction(7, 3)), (r"-2\frac13", Fraction(-7, 3)), (r"2\frac73", None), ("2.50", Fraction(5, 2)),
        (".5", Fraction(1, 2)), (r"0.\overline{3}", Fraction(1, 3)), (r"0.1\overline{6}", Fraction(1, 6)),
        ("0.333...", Fraction(1, 3)), (r"0.\dot{9}", 1), ("1/0", None), ("5.", 5), ("5-", None), ("", None),
        ("forty-two", 42), ("one hundred and one", 101), ("minus five", -5), ("two three", None), (r"\text{Seven}", 7),
        ("3 hundred", 300), ("2.5 million", 2500000),
    ],
)  # fmt: skip
def test_numbers_are_read_exactly(text, value):
    """A plain number, also in words, is an exact fraction; other texts are not parsed as numbers."""
    found = read(normal(text))
    assert (found.value if isinstance(found, Number) else None) == value


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("1,2", Several("list", (ONE, TWO))),
        (r"1\text{ or }2", Several("list", (ONE, TWO))),
        ("1, 2 and 3", Several("list", (ONE, TWO, THREE))),
        ("(1,2)", Several("tuple", (ONE, TWO))),
        (r"\{1,2\}", Several("set", (ONE, TWO))),
        (r"\pm 2", Several("list", (TWO, Number(Fraction(-2))))),
        ("[1,2)", Interval(ONE, TWO, (True, False))),
        ("]1,2[", Several("tuple", (ONE, TWO))),
        (
            r"[1,2]\cup[2,3]",
            Operation("union", (Interval(ONE, TWO, (True, True)), Interval(TWO, THREE, (True, True)))),
        ),
        (r"\mathbb{R}\setminus\{1\}", Operation("difference", (NamedSet("R"), Several("set", (ONE,))))),
        (r"\text{positive integers}", NamedSet("Z", ">0")),
        (r"\{\pm 1,2\}", Several("set", (ONE, Number(Fraction(-1)), TWO))),
        (r"1,2,\ldots,5", Several("list", tuple(Number(Fraction(n)) for n in range(1, 6)))),
        (r"(\pm 1,\mp 1)", Several("list", tuple(Several("tuple", pair) for pair in ((ONE, MINUS), (MINUS, ONE))))),
        (r"2k, k\in\mathbb{Z}", Family(Formula("2k"), ("k",), "Z")),
        (r"\text{the answer is } 3", THREE),
        (r"\text{5th of March}", Words("date 3 5")),
        ("1e3", Number(Fraction(1000))),
        ("x=2", Relation((X, TWO), ("=",), "x")),
        (r"1\le x<2", Relation((ONE, X, TWO), ("<=", "<"))),
        (r"\{x:x>1\}", Relation((X, ONE), (">",), "x")),
        (r"k\equiv1\pmod{3}", CongruenceAnswer("k", ONE, THREE)),
        ("3 cm", Quantity(THREE, "cm", True)),
        (r"3\text{ square inches}", Quantity(THREE, "inche^2", True)),
        (r"\$3", Quantity(THREE, "$", True)),
        (r"3^\circ", Quantity(THREE, "degree", True)),
        (r"3\text{ students}", Quantity(THREE, "student", False)),
        (r"x\text{ odd}", CongruenceAnswer("x", ONE, TWO)),
        ("3m", Formula("3m")),
        (r"\sin 30^\circ", Formula(r"\sin30^\circ")),
        ("101_2", InBase("101", 2)),
        (r"43\text{ (base 5)}", InBase("43", 5)),
        ("49_5", Formula("49_5")),
        ("12:30", Clock((12, 30))),
        ("12:05", Clock((12, 5), "", True)),
        ("3:4", Ratio((THREE, Number(Fraction(4))))),
        (r"3\text{ p.m.}", Clock((3,), "pm", True)),
        ("(B)", Formula("B")),
        (r"\textbf{(B) }3", Labeled("B", THREE)),
        (r"\text{Monday}", Words("monday")),
        (r"17\star\frac12", Formula(r"17\star\frac12")),
        ("2(1,2)", Formula("2(1,2)")),
        ("((1", None),
    ],
)
def test_structure_is_read_whole(text, form):
    """Brackets, signs, units, bases and words are part of the result; a text without structure stays a formula."""
    assert read(normal(text)) == form


def test_grouped_digits_are_a_number_or_several():
    """`60,120` may be one number or two, `60, 120` is two numbers."""
    assert readings("60,120") == [
        Number(Fraction(60120)),
        Several("list", (Number(Fraction(60)), Number(Fraction(120)))),
    ]
    assert readings("60, 120") == [Several("list", (Number(Fraction(60)), Number(Fraction(120))))]
