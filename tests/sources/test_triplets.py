"""Programs with an input and its output as problems: statements, answers, and seeds of self-play."""

import ast
import json

import pytest

from proofmill.config.entry_values import entry_from
from proofmill.schema.columns import COLUMNS
from proofmill.schema.errors import TableError
from proofmill.sources.loaders import SOURCES
from proofmill.sources.triplets import with_imports

CRUX = {"code": "def f(a, b):\n    return a + b", "input": "1, b=[2]", "output": "3", "id": "sample_7"}
LIVE = {
    "id": "q1_0",
    "function_name": "largest",
    "code": "def largest(s: str) -> List[int]:\n    return [max(s)]",
    "input": "largest(s = '0(11)')",
    "output": "['1']",
    "difficulty": "easy",
}
SEED = {"snippet": "def f(x):\n    return math.floor(x)", "input": "1.5", "output": "1", "imports": ["import math"]}


def rows(tmp_path, source: str, *records: dict) -> list[dict]:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return list(SOURCES[source].load(entry_from("problems", {"source": source, "path": str(path)})))


def test_output_prediction_shows_the_call_and_hides_its_value(tmp_path):
    """The statement has program and call; the value is in the solution, as a reply, and in the answer."""
    (row,) = rows(tmp_path, "cruxeval-o", CRUX)
    assert CRUX["code"] in row["statement"] and "f(1, b=[2])" in row["statement"] and "3" not in row["statement"]
    assert (row["problem"], row["solution"], row["question_type"]) == (
        "cruxeval-deduce-sample_7",
        "```output\n3\n```",
        "code",
    )
    task = {"kind": "deduce", "program": CRUX["code"], "input": CRUX["input"], "output": "3"}
    assert json.loads(row["answer"]) == task
    assert set(row) <= set(COLUMNS["problems"])


def test_input_prediction_shows_the_value_and_hides_the_call(tmp_path):
    """The same row gives another problem in the other direction."""
    (row,) = rows(tmp_path, "cruxeval-i", CRUX)
    assert "```python\n3\n```" in row["statement"] and "[2]" not in row["statement"]
    assert (row["problem"], row["solution"]) == ("cruxeval-abduce-sample_7", "```input\n1, b=[2]\n```")
    assert json.loads(row["answer"])["kind"] == "abduce"


@pytest.mark.parametrize(
    ("source", "asked"), [("livecodebench-o", "largest(s = '0(11)')"), ("livecodebench-i", "['1']")]
)
def test_execution_of_livecodebench_is_asked_either_way_and_keeps_its_name(tmp_path, source, asked):
    """The statement has the published name; the program has the alias `f` and its missing imports."""
    (row,) = rows(tmp_path, source, LIVE)
    task = json.loads(row["answer"])
    assert asked in row["statement"] and "largest" in row["statement"] and " = largest" not in row["statement"]
    assert (task["input"], task["output"], row["level"]) == ("s = '0(11)'", "['1']", "easy")
    names = {}
    exec(task["program"], names)
    assert names["f"](s="0(11)") == ["1"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"input": "other(1)"}, "`input` is 'other\\(1\\)'; expected a call of `largest`"),
        ({"input": 3}, "`input` is 3; expected a Python literal"),
        ({"code": ""}, "`code` is empty"),
        ({"function_name": None}, "`function_name` is empty"),
    ],
)
def test_row_that_is_no_execution_is_refused_with_its_place(tmp_path, change, found):
    """The message has the row and the expectation."""
    with pytest.raises(TableError, match=rf"rows.jsonl:1: {found}"):
        rows(tmp_path, "livecodebench-o", {**LIVE, **change})


def test_seeds_of_absolute_zero_are_problems_of_each_task(tmp_path):
    """Imports precede the program once; an induction shows the first half of its pairs and the message."""
    (deduce,) = rows(tmp_path, "azr-deduce", SEED)
    assert json.loads(deduce["answer"])["program"] == f"import math\n{SEED['snippet']}"
    pairs = {"inputs": ["1.5", "2.5", "-1"], "outputs": ["1", "2", "-1"], "message": "Round down."}
    (induce,) = rows(tmp_path, "azr-induce", {**SEED, **pairs, "snippet": f"import math\n{SEED['snippet']}"})
    assert "f(1.5)  # 1" in induce["statement"] and "Round down." in induce["statement"]
    assert "2.5" not in induce["statement"] and "floor" not in induce["statement"]
    task = json.loads(induce["answer"])
    assert (task["kind"], task["inputs"], task["outputs"]) == ("induce", pairs["inputs"], pairs["outputs"])
    assert task["program"].count("import math") == 1
    with pytest.raises(TableError, match="3 inputs and 1 outputs; expected the same number, at least two"):
        rows(tmp_path, "azr-induce", {**SEED, **pairs, "outputs": ["1"]})


@pytest.mark.parametrize(
    ("code", "added"),
    [
        ("def f(a: List[int]): return Counter(a)", ["from collections import Counter", "from typing import List"]),
        ("def f(a): return math.gcd(*a)", ["import math"]),
        ("import math\ndef f(a): return math.gcd(*a)", []),
        ("from math import gcd\ndef f(a, inf): return gcd(a, inf)", []),
        ("def f(a): return bisect.bisect_left(a, 1)", ["import bisect"]),
        ("def f(a): return bisect(a, 1)", ["from bisect import bisect"]),
        ("def count(a): return 1\ndef f(a): return count(a)", []),
        ("def f(a): return sum(x for x in a)", []),
        ("def f(a):\n    return unheard_of(a)", []),
        ("def f(:", []),
    ],
)
def test_missing_imports_are_those_of_names_that_nothing_defines(code, added):
    """Only well-known names that are used and not defined are imported; the program itself stays as it is."""
    assert with_imports(code) == "\n".join([*added, code])


def test_real_triplets_are_read_whole(data, tmp_path):
    """Each of the 400 rows of CRUXEval and the 128 seeds is a problem in both directions with a valid program."""
    for source, file, expected in (
        ("cruxeval-o", "cruxeval/first400.jsonl", 400),
        ("cruxeval-i", "cruxeval/first400.jsonl", 400),
        ("azr-deduce", "azr/seed_io_64.jsonl", 64),
        ("azr-abduce", "azr/seed_io_64.jsonl", 64),
        ("azr-induce", "azr/seed_code_f_64.jsonl", 64),
    ):
        entry = entry_from("problems", {"source": source, "path": str(data / file)})
        found = list(SOURCES[source].load(entry))
        assert len(found) == expected
        for row in found:
            ast.parse(json.loads(row["answer"])["program"])
