"""Values of programs in tests: which values are equal, and that no program decides about its own."""

import json

import pytest

from boxed import block, calls
from proofmill.sandbox.sandbox import Sandbox

IMPORTS = """
import array, collections, datetime, decimal, enum, fractions, zoneinfo
from array import array
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
P = namedtuple('P', 'x y')
@dataclass
class Point:
    x: int
    y: object = None
    hidden: int = field(default=0, repr=False)
@dataclass(order=True)
class Point3(Point):
    z: int = 0
class Color(enum.Enum):
    RED = 1
class Level(enum.IntEnum):
    LOW = 1
"""
NUMPY = "import numpy as np\n"


@pytest.fixture(scope="module")
def box():
    """Yield a sandbox for tests that do not damage it; its time limit is long because the machine may be busy."""
    with Sandbox(seconds=60, workers=2) as made:
        yield made


def passes(box, value: str, expected: str, before: str = IMPORTS, **options) -> bool:
    """Return whether a program that returns `value` passes a test that expects `expected`."""
    answer = json.dumps([{"call": "f()", "result": expected, **options}])
    (ran,) = box.check([(block(f"\n{before}\ndef f(): return {value}"), answer)])
    return ran.share == 1


# What is equal to what: a value of a program, expected values that it equals, and others. As in docs/sandbox.md.
EQUAL = [
    ("[1, 2]", ["[1, 2]", "[1.0, 2]"], ["(1, 2)", "deque([1, 2])", "array([1, 2])", "array('i', [1, 2])", "range(1, 3)", "{1, 2}", "[1]"]),
    ("(1, 2)", ["(1, 2)", "P(x=1, y=2)"], ["[1, 2]", "P(x=1, y=3)", "(1, 2, 3)"]),
    ("P(1, 2)", ["(1, 2)", "P(x=1, y=2)"], ["[1, 2]", "P(x=2, y=1)"]),
    ("Point(1, [2])", ["Point(x=1, y=[2])", "(1, [2])"], ["Point(x=1, y=[3])", "Point(y=[2], x=1)", "Other(x=1, y=[2])", "Point(x=1)", "[1, [2]]"]),
    ("Point3(1, 2, 0, 3)", ["Point3(x=1, y=2, z=3)"], ["Point(x=1, y=2)", "Point3(x=1, y=2, z=4)"]),
    ("[Point(1, P(2, 3))]", ["[Point(x=1, y=(2, 3))]", "[Point(x=1, y=P(x=2, y=3))]"], ["[Point(x=1, y=[2, 3])]"]),
    ("deque([1, 2], 5)", ["deque([1, 2])", "deque([1, 2], maxlen=9)", "collections.deque([1, 2])"], ["[1, 2]", "deque([2, 1])", "(1, 2)"]),
    ("Counter('aab')", ["Counter({'a': 2, 'b': 1})", "{'b': 1, 'a': 2}", "Counter('aba')", "Counter(a=2, b=1, c=0)"], ["{'a': 2}", "{'a': 2, 'b': 1, 'c': 0}"]),
    ("OrderedDict(a=1, b=2)", ["{'b': 2, 'a': 1}", "OrderedDict([('a', 1), ('b', 2)])", "OrderedDict({'a': 1, 'b': 2})"], ["OrderedDict([('b', 2), ('a', 1)])", "[('a', 1), ('b', 2)]"]),
    ("defaultdict(list, {1: [2]})", ["{1: [2]}", "defaultdict(list, {1: [2]})", "defaultdict(None, {1: [2]})"], ["{1: (2,)}", "{}"]),
    ("{1: 2}", ["{1: 2}", "OrderedDict({1: 2})", "Counter({1: 2})", "dict(((1, 2),))"], ["{1: 3}", "{2: 1}", "{1}"]),
    ("{1, (2,)}", ["{1, (2,)}", "frozenset({(2,), 1})", "{1.0, (2,)}"], ["[1, (2,)]", "{1}"]),
    ("{1: 2}.keys() & {1}", ["{1}"], ["[1]"]),
    ("range(3)", ["range(3)", "range(0, 3, 1)"], ["[0, 1, 2]", "range(4)"]),
    ("bytearray(b'ab')", ["bytearray(b'ab')", "b'ab'"], ["'ab'", "[97, 98]"]),
    ("array('d', [1, 2])", ["array('d', [1.0, 2.0])", "array('i', [1, 2])", "array.array('d', [1, 2])"], ["[1.0, 2.0]", "array([1.0, 2.0])"]),
    ("Fraction(2, 4)", ["Fraction(1, 2)", "0.5", "Decimal('0.50')", "(0.5+0j)"], ["'1/2'", "(1, 2)", "Fraction(1, 3)"]),
    ("Decimal('1.50')", ["Decimal('1.5')", "1.5", "Fraction(3, 2)"], ["'1.50'", "1.51"]),
    ("Decimal('0.1')", ["Decimal('0.1')", "Fraction(1, 10)"], ["0.1"]),
    ("1", ["1", "True", "1.0", "(1+0j)", "Decimal(1)", "Fraction(1)", "np.int64(1)", "np.float64(1.0)", "np.True_"], ["'1'", "[1]", "None", "1.0000000001"]),
    ("Level.LOW", ["1"], ["'LOW'"]),
    ("-0.0", ["0.0", "0", "-0.0"], ["-1e-300"]),
    ("float('nan')", ["nan", "float('nan')", "math.nan", "Decimal('NaN')"], ["0.0", "None", "inf"]),
    ("[float('inf'), -float('inf')]", ["[inf, -inf]", "[math.inf, -math.inf]", "[1e999, -1e999]", "[Decimal('Infinity'), -inf]"], ["[inf, inf]", "[1e308, -1e308]"]),
    ("10**4299 + 1", ["1" + "0" * 4298 + "1"], ["1" + "0" * 4298 + "2", "1e308", "inf"]),
    ("date(2024, 2, 29)", ["datetime.date(2024, 2, 29)", "date(2024, 2, 29)"], ["datetime.datetime(2024, 2, 29, 0, 0)", "'2024-02-29'", "datetime.date(2024, 3, 1)"]),
    ("datetime.datetime(2024, 1, 2, 3)", ["datetime.datetime(2024, 1, 2, 3, 0)"], ["datetime.datetime(2024, 1, 2, 3, 0, tzinfo=datetime.timezone.utc)"]),
    (
        "datetime.datetime(2024, 1, 2, 3, tzinfo=datetime.timezone(timedelta(hours=2)))",
        ["datetime.datetime(2024, 1, 2, 1, 0, tzinfo=datetime.timezone.utc)", "datetime.datetime(2024, 1, 2, 3, 0, tzinfo=datetime.timezone(datetime.timedelta(seconds=7200)))"],
        ["datetime.datetime(2024, 1, 2, 3, 0)"],
    ),
    ("timedelta(hours=36)", ["datetime.timedelta(days=1, seconds=43200)", "timedelta(hours=36)"], ["129600", "datetime.timedelta(days=1)"]),
    ("datetime.time(1, 2)", ["datetime.time(1, 2)"], ["datetime.timedelta(seconds=3720)"]),
    ("'a'", ["'a'", '"a"'], ["b'a'", "['a']"]),
]  # fmt: skip
ARRAYS = [
    ("np.array([1, 2])", ["array([1, 2])", "np.array([1.0, 2.0])", "array([1, 2], dtype=int32)"], ["[1, 2]", "(1, 2)", "array([[1, 2]])", "array([2, 1])", "array('i', [1, 2])"]),
    ("np.array([[1, 2], [3, 4]])", ["array([[1, 2],\n       [3, 4]])"], ["array([1, 2, 3, 4])", "[[1, 2], [3, 4]]"]),
    ("np.array([0.5, np.nan])", ["array([0.5, nan])"], ["array([0.5, 0.5])"]),
    ("np.zeros((0, 3))", ["array([], shape=(0, 3), dtype=float64)"], ["[]"]),
    ("[np.float32(0.5), np.int8(3), np.bool_(True), np.str_('a'), np.array(7)]", ["[0.5, 3, True, 'a', 7]", "[np.float32(0.5), np.int8(3), np.True_, np.str_('a'), 7]"], ["[0.25, 3, True, 'a', 7]"]),
    ("{'a': np.arange(3)}", ["{'a': array([0, 1, 2])}"], ["{'a': [0, 1, 2]}"]),
    ("np.array([1, 2]).sum()", ["3"], ["array([3])"]),
]  # fmt: skip


@pytest.mark.parametrize(("before", "table"), [(IMPORTS, EQUAL), (NUMPY, ARRAYS)], ids=["python", "numpy"])
def test_values_are_equal_as_the_page_says(box, before, table):
    """Each value passes the tests that expect an equal value, and no other."""
    found = {}
    for value, equal, others in table:
        found[value] = {e for e in equal if not passes(box, value, e, before)} | {
            o for o in others if passes(box, value, o, before)
        }
    assert {value: wrong for value, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    ("value", "expected", "options", "passed"),
    [
        ("0.1 + 0.2", "0.3", {}, False),
        ("0.1 + 0.2", "0.3", {"absolute": 1e-9}, True),
        ("0.1 + 0.2", "0.3", {"relative": 1e-9}, True),
        ("1000.1", "1000.0", {"absolute": 0.05}, False),
        ("1000.1", "1000.0", {"relative": 1e-3}, True),
        ("1000.1", "1000.0", {"absolute": 0.05, "relative": 1e-3}, True),
        ("[{'a': (0.30000001, Point(1, 0.5000001))}]", "[{'a': (0.3, Point(x=1, y=0.5))}]", {"absolute": 1e-6}, True),
        ("[{'a': (0.30000001, Point(1, 0.51))}]", "[{'a': (0.3, Point(x=1, y=0.5))}]", {"absolute": 1e-6}, False),
        ("deque([1.0000001])", "deque([1])", {"absolute": 1e-6}, True),
        ("array('d', [1.0000001])", "array('d', [1])", {"absolute": 1e-6}, True),
        ("deque([1.0000001])", "[1]", {"absolute": 1e-6}, False),
        ("{1.0000001}", "{1.0}", {"absolute": 1e-6}, False),
        ("{1.0000001: 1}", "{1.0: 1}", {"absolute": 1e-6}, False),
        ("[1, 2.0000001]", "[1, 2, 3]", {"absolute": 1e-6}, False),
        ("1 + 1.0000001j", "(1+1j)", {"absolute": 1e-6}, True),
        ("1 + 1.1j", "(1+1j)", {"absolute": 1e-6}, False),
        ("Fraction(1, 3)", "0.333333", {"absolute": 1e-6}, True),
        ("Decimal('0.3333335')", "Fraction(1, 3)", {"absolute": 1e-6}, True),
        ("10**400 + 1", str(10**400), {"relative": 1e-9}, True),
        ("10**400 + 1", str(10**400), {"absolute": 1}, True),
        ("10**400 + 2", str(10**400), {"absolute": 1}, False),
        ("2**53 + 1", str(2**53), {"absolute": 0.5}, False),
        ("10**400", "inf", {"relative": 0.5}, False),
        ("float('inf')", "inf", {"absolute": 1e-6}, True),
        ("float('inf')", "1e308", {"relative": 0.5}, False),
        ("float('nan')", "nan", {"absolute": 1e-6}, True),
        ("float('nan')", "0.0", {"absolute": 1e300}, False),
        ("Decimal('Infinity')", "0.0", {"absolute": 1e300}, False),
        ("-1e-12", "0.0", {"relative": 1e-9}, False),
        ("'0.30000001'", "'0.3'", {"absolute": 1e-6}, False),
        ("None", "0", {"absolute": 1e300}, False),
    ],
)
def test_numbers_may_differ_by_the_tolerance_of_a_test(box, value, expected, options, passed):
    """`absolute` and `relative` hold at any depth, but for members of sets and keys. Only what a test states is tolerated."""
    assert passes(box, value, expected, **options) is passed


# ----------------------------------------------------------------------------------------------------- liars

# For each expected value: the class, with its module, and arguments for a wrong value of it.
LIED = {
    "deque([1, 2])": ("collections", "deque", "[9]"),
    "Counter({1: 2})": ("collections", "Counter", "[9]"),
    "OrderedDict({1: 2})": ("collections", "OrderedDict", "x=9"),
    "defaultdict(int, {1: 2})": ("collections", "defaultdict", "int, x=9"),
    "Fraction(1, 2)": ("fractions", "Fraction", "9"),
    "Decimal('0.5')": ("decimal", "Decimal", "9"),
    "datetime.date(2024, 1, 1)": ("datetime", "date", "2000, 9, 9"),
    "datetime.datetime(2024, 1, 1, 0, 0)": ("datetime", "datetime", "2000, 9, 9"),
    "datetime.timedelta(days=1)": ("datetime", "timedelta", "9"),
    "array('i', [1, 2])": ("array", "array", "'i', [9]"),
    "np.array([1, 2])": ("numpy", "ndarray", "9"),
    "np.float64(0.5)": ("numpy", "float64", "9"),
    "(1+2j)": ("builtins", "complex", "9"),
    "frozenset({1})": ("builtins", "frozenset", "[9]"),
    "b'a'": ("builtins", "bytes", "9"),
    "bytearray(b'a')": ("builtins", "bytearray", "9"),
    "{1: 2}": ("builtins", "dict", "x=9"),
    "[1, 2]": ("builtins", "list", "[9]"),
}
LIAR = """
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def __hash__(self): return 1
    def __bool__(self): return True
    def __repr__(self): return {expected!r}
    __str__ = __repr__
    def __len__(self): return 2
    def __getattr__(self, name): return self
"""
WAYS = {
    "a derived class": "from {module} import {kind}\nclass A({kind}):{liar}def f(): return A.__new__(A, {wrong}) if '{module}' == 'numpy' else A({wrong})",
    "another class": "import {module}\nclass A:\n    __class__ = {module}.{kind}{liar}def f(): return A()",
    "the class replaced": "import {module}\nclass A:\n    def __init__(self, *a, **k): pass{liar}{module}.{kind} = {kind} = A\ndef f(): return A()",
    "all names replaced": "class A:\n    def __init__(self, *a, **k): pass\n    def __call__(self, *a, **k): return self{liar}deque = Counter = OrderedDict = defaultdict = Fraction = Decimal = datetime = array = np = A()\ndef f(): return A()",
    "the methods replaced": "import {module}\ntry: {module}.{kind}.__eq__ = {module}.{kind}.__hash__ = {module}.{kind}.__repr__ = lambda *a: True\nexcept TypeError: pass\ndef f(): return {module}.{kind}({wrong}) if '{kind}' != 'ndarray' else {module}.array([9])",
    "its text": "def f(): return {expected!r}",
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_liars_of_all_kinds_pass_nothing(box, way):
    """A wrong program passes no test of a container or number, neither by its value nor in a condition."""
    pairs = []
    for expected, (module, kind, wrong) in LIED.items():
        liar = LIAR.format(expected=expected)
        program = WAYS[way].format(module=module, kind=kind, wrong=wrong, liar=liar, expected=expected)
        pairs.append((block("\n" + program), calls(("f()", expected), (f"f() == {expected}", "True"))))
    shares = {expected: ran.share for expected, ran in zip(LIED, box.check(pairs), strict=True)}
    assert {expected: share for expected, share in shares.items() if share} == {}


def test_honest_programs_pass_the_same_tests(box):
    """Programs that return the values of these tests pass them, whether the test compares or names the value."""
    pairs = [
        (block(f"\n{IMPORTS}import numpy as np\ndef f(): return {'__import__(chr(97) + chr(114) + chr(114) + chr(97) + chr(121)).' * expected.startswith('array')}{expected}"),
         calls(("f()", expected), (f"f() == {expected}", "True"), (f"f() != {expected}", "False")))
        for expected in LIED
    ]  # fmt: skip
    assert {expected: ran for expected, ran in zip(LIED, box.check(pairs), strict=True) if ran.share != 1} == {}


@pytest.mark.parametrize(
    ("call", "right", "wrong"),
    [
        ("abs(f() - Fraction(1, 3)) < Fraction(1, 100)", "0.33", "0.3"),
        ("f() in (date(2024, 1, 1), None)", "__import__('datetime').date(2024, 1, 1)", "__import__('datetime').date(2024, 1, 2)"),
        ("np.allclose(f(), [0.5, 1])", "[0.5, 1.000000001]", "[0.5, 1.1]"),
        ("(f() == np.array([1, 2])).all()", "__import__('numpy').array([1, 2])", "__import__('numpy').array([1, 3])"),
        ("isinstance(f(), float) and math.isclose(f(), 0.3)", "0.1 + 0.2", "0.31"),
        ("sorted(f()) == [1, 2]", "__import__('collections').deque([2, 1])", "__import__('collections').deque([2, 2])"),
        ("len(f()) == 3", "__import__('collections').Counter('abca')", "__import__('collections').Counter('ab')"),
    ],
)  # fmt: skip
def test_condition_with_constructors_is_decided_outside(box, call, right, wrong):
    """The values of standard classes and of numpy in a condition are those of Python, whatever the program defines."""
    liar = f"class A:\n    def __init__(self, *a): pass\n    def allclose(self, *a): return True\n    def __call__(self, *a): return self\n    def array(self, *a): return self\n    def all(self): return True{LIAR.format(expected='True')}np = numpy = Fraction = date = A()\ndef f(): return A()"
    programs = [f"def f(): return {right}", f"def f(): return {wrong}", liar]
    results = box.check([(block("\n" + program), calls((call, "True"))) for program in programs])
    assert [ran.share for ran in results] == [1, 0, 0]
