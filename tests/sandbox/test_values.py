"""Values as text: parsed, written in one way, compared."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmill.sandbox.values import parse, same, write

KEYS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text() | st.binary(),
    lambda inner: st.tuples(inner) | st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
VALUES = st.recursive(
    KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4) | st.sets(KEYS, max_size=4),
)


@given(VALUES)
def test_value_that_is_written_is_read_again(value):
    """A written value is parsed as the same value, of the same type, and written the same."""
    text = write(value)
    assert same(parse(text), value) and type(parse(text)) is type(value)
    assert write(parse(text)) == text


@given(VALUES, VALUES)
def test_same_is_equality_but_for_nan(value, other):
    """Values that are equal in Python are the same, and each value is the same as itself."""
    assert same(value, value)
    if value == other:
        assert same(value, other)
    elif "nan" not in repr(value) + repr(other):
        assert not same(value, other)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nan", math.nan), ("-inf", -math.inf), ("float('inf')", math.inf), ("float('-inf')", -math.inf), ("math.inf", math.inf),
        ("[nan, {'a': (nan,)}]", [math.nan, {"a": (math.nan,)}]), ("set()", set()), ("frozenset({1})", frozenset({1})),
        ("dict(a=1, b=[2])", {"a": 1, "b": [2]}), ("set([1, 2])", {1, 2}), ("  7 ", 7), ("'a' 'b'", "ab"), ("1_000", 1000),
        ("1 - 2j", 1 - 2j), ("complex(nan, 1)", complex(math.nan, 1)), ("0x1f", 31), ("{1: 2, 1: 3}", {1: 3}), ("1, 2", (1, 2)),
    ],
)  # fmt: skip
def test_parse_reads_what_python_writes(text, value):
    """Literals, and the forms of NaN, infinity and empty sets."""
    assert same(parse(text), value)


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "f(x)", "1 + 1", "'a' * 3", "-'a'", "-True", "...", "[*[1]]", "{**{}}", "f'{1}'", "lambda: 1", "[x for x in []]",
        "{[]: 1}", "{{}}", "1 if 2 else 3", "(1", "1)", "a.b", "open('x')", "dict([[]])", "float('x')", "float(1, 2)", "set(5)", "1" * 5000,
        "[" * 102 + "]" * 102, "(" * 10_000, "-" * 50_000 + "1", "\0", "'\n'", "\ud800", "frozenset(**{})", "dict(**{})", "1; 2", "x = 1",
    ],
)  # fmt: skip
def test_parse_of_other_than_plain_data_raises_value_error(text):
    """Every fault of a text, however deep or long it is, raises ValueError."""
    with pytest.raises(ValueError):
        parse(text)


def test_parse_of_a_text_that_is_too_long_is_refused():
    """The caller sets the maximal length."""
    with pytest.raises(ValueError, match="over 10 characters"):
        parse("'a' * 100_000_000", 10)


@pytest.mark.parametrize(
    "value",
    [object(), [print], {"a": iter(())}, type("A", (), {})(), [10**5000], {(int,): 1}],
    ids=lambda value: type(value).__name__,
)
def test_write_of_other_than_plain_data_raises_value_error(value):
    """Objects of other types are refused, and integers that Python does not write."""
    with pytest.raises(ValueError):
        write(value)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True), (True, 1, True), (1, "1", False), ("1", 1, False), ([1], (1,), False), (math.nan, math.nan, True), (math.nan, 0, False),
        ({1, math.nan}, {math.nan, 1}, True), ({1: 2, 3: 4}, {3: 4, 1: 2}, True), ({math.nan: 1}, {float("nan"): 1}, True), ({1}, frozenset({1}), True),
        (None, False, False), (0, False, True), ("", b"", False), (0.1 + 0.2, 0.3, False), ({1: [math.nan]}, {1: [0.0]}, False),
    ],
)  # fmt: skip
def test_same_compares_numbers_and_texts(one, other, equal):
    """Numbers are compared as numbers, and a text never equals a number."""
    assert same(one, other) == equal and same(other, one) == equal
