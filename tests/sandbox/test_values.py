"""Values as text: parsed, written in one way, compared."""

import math
import random
from collections import Counter, OrderedDict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmill.sandbox import values
from proofmill.sandbox.values import parse, same, source, write

KEYS = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), st.text(), st.binary()),
        *(
            st.fractions(),
            st.decimals(allow_nan=False),
            st.dates(),
            st.datetimes(),
            st.timedeltas(),
            st.builds(range, st.integers(0, 9)),
        ),
    ),
    lambda inner: st.tuples(inner) | st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
VALUES = st.recursive(
    KEYS,
    lambda inner: st.one_of(
        *(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4), st.sets(KEYS, max_size=4)),
        *(st.lists(inner, max_size=4).map(deque), st.dictionaries(KEYS, inner, max_size=4).map(OrderedDict)),
        *(st.lists(KEYS, max_size=4).map(Counter), st.binary().map(bytearray)),
    ),
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
        "range(10**9)", "set(range(9))", "deque(range(10**18))", "deque(iterable=range(9))", "set([0] * 9)", "0x" + "f" * 4000,
        f"set([{', '.join(map(str, range(1001)))}])", f"dict([{'(1, 1), ' * 1001}])", "bytearray(10**12)", "Fraction('1e999999999')", "Fraction(1, 0)", "Fraction(0.5)",
        "Decimal('1E+99999')", "Decimal('x')", "array('i', ['a'])", "array('i', 10**9)", "array(5)", "np.array(range(9))", "np.zeros(3)", "date(2024, 2, 30)",
        "datetime.date(0, 1, 1)", "timedelta(days=10**400)", "int('9')", "Point(1, 2)", "Point()", "Color.RED", "point(x=1)", "Point(x=y)", "(1).real", "deque.x",
        "datetime.datetime.now()", "__import__('os')", "collections.deque.__init__([1])", "os.deque([1])", "defaultdict(int, x)", "Decimal(x=1)", "Fraction(x=1)",
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


@pytest.mark.parametrize("kind", ["set", "dict"])
def test_parse_of_members_with_one_hash_takes_no_squared_time(kind):
    """Tens of thousands of integers with the hash 0 are refused at once; as many others are read."""
    texts = [", ".join(f"{step * n}{': 1' * (kind == 'dict')}" for n in range(30_000)) for step in (2**61 - 1, 2**61)]
    with pytest.raises(ValueError, match="over 1,000 members with one hash"):
        parse(f"{{{texts[0]}}}")
    assert len(parse(f"{{{texts[1]}}}")) == 30_000


@pytest.mark.parametrize("text", ["P(x=1)", "[(P(x=1),)]", "{1: P(x=1)}", "deque([P(x=1)])", "array([P(x=1)])"])
def test_source_has_no_name_of_another_class(text):
    """A class that a program names could be a function of the code that reads its value."""
    with pytest.raises(ValueError, match="an instance of the class P"):
        source(text)


@pytest.mark.parametrize(
    "text",
    [
        "[nan, set(), frozenset({1}), range(3)]",
        "deque([Counter({'a': 1})])",
        "OrderedDict({1: Fraction(1, 2)})",
        "Decimal('NaN')",
        "datetime.datetime(2024, 1, 2, 3, 0, tzinfo=datetime.timezone.utc)",
        "array('i', [1])",
        "numpy.array([[1.5]])",
        "'numpy.array(['",
    ],
)
def test_source_gives_the_same_value_wherever_it_is_evaluated(text):
    """The text needs no imports, and shadowed names of the standard library do not change it."""
    shadowed = dict.fromkeys(
        ("deque", "Counter", "OrderedDict", "Fraction", "Decimal", "datetime", "array", "numpy", "nan")
    )
    assert same(parse(write(eval(source(text), shadowed))), parse(text))


ATOMS = [
    *("1", "-1", "0.5", "'a'", "b'a'", "None", "True", "...", "1j", "'1e9'", "10**3", "''", "'i'", "'d'", "'nan'", "'sNaN'"),
    *("[]", "()", "{}", "1e400", "2024", "0xffffffffffffffff", "range(3)"),
]  # fmt: skip
NAMES = [
    "Point",
    "foo",
    "nan",
    "np.array",
    "datetime.datetime",
    "datetime.timezone.utc",
    "Color.RED",
    "defaultdict",
    "x",
]
KEYWORDS = ("a", "days", "tzinfo", "maxlen", "iterable", "dtype", "fold", "encoding")


def call(draw: random.Random, deep: int) -> str:
    """Draw a text of nested displays and calls, most of which are no values."""
    if deep == 0 or draw.random() < 0.3:
        return draw.choice(ATOMS)
    items = [call(draw, deep - 1) for _ in range(draw.randrange(4))]
    form = draw.choice(["[{}]", "({},)", "{{{}}}", "-{}", "dict", *["call"] * 5])
    if form == "dict":
        return f"{{{', '.join(f'{item}: {call(draw, deep - 1)}' for item in items)}}}"
    if form != "call":
        return form.format(", ".join(items))
    named = [f"{draw.choice(KEYWORDS)}={call(draw, deep - 1)}" for _ in range(draw.choice([0, 0, 0, 1]))]
    return f"{draw.choice([*values._MAKERS, *NAMES])}({', '.join(items + named)})"


def test_calls_with_any_arguments_are_values_or_raise_value_error():
    """Of 20,000 random texts each is refused, or has a value that is written, read and compared."""
    draw, read = random.Random(1), [None]
    for _ in range(20_000):
        text = call(draw, draw.randint(1, 3))
        try:
            value = parse(text)
        except ValueError:
            continue
        assert same(parse(write(value)), value) and same(value, value, (1, 0.5)), text
        other = draw.choice(read)
        assert same(value, other) == same(other, value), text
        read.append(value)
    assert len(read) > 2000
