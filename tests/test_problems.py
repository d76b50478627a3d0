"""The `problems` kind: ids, filters in order, carried rows, joined labels and grades, decontamination."""

import json
import random
import re
import tracemalloc

import pytest

from proofmill import problems
from proofmill.artifacts.stamps import new_stamp
from proofmill.artifacts.tables import Table
from proofmill.schema.errors import RecipeError, TableError
from proofmill.synthetic.congruences import Congruence, statement


def write(path, *statements: str, **columns) -> str:
    rows = [{"statement": s, **{k: v[n] for k, v in columns.items()}} for n, s in enumerate(statements)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def put(results, name: str, rows: list[dict]) -> None:
    """Write a finished table with these rows, as its kind would."""
    Table(name, results).write(rows, new_stamp(name, '{"entry": {}}', f"of-{name.replace('/', '-')}", {}, {}))


def test_problems_ids_come_from_the_statement(mill, tmp_path):
    """Equal statements have one id with -2, -3; an id does not depend on earlier rows."""
    one = write(tmp_path / "one.jsonl", "Prove $a=b$.", "Find $x$.", "prove  $a = b$", "Prove $a=b$")
    other = write(tmp_path / "other.jsonl", "Find $x$.", "Prove $a=b$.")
    made = mill(
        {"problems/one": {"source": "table", "path": one}, "problems/other": {"source": "table", "path": other}}
    )
    first = [row["problem"] for row in made.make("problems/one").rows()]
    second = [row["problem"] for row in made.make("problems/other").rows()]
    assert first == [second[1], second[0], f"{second[1]}-2", f"{second[1]}-3"]


def test_problems_of_a_benchmark_keep_their_own_ids(mill, data):
    """ProofBench's ids are the ids; it requires proofs; its columns are complete."""
    path = str(data / "imobench/proofbench_v2.csv")
    table = mill({"problems/bench": {"source": "proofbench", "path": path}}).make("problems/bench")
    rows = table.rows()
    assert [row["problem"] for row in rows[:2]] == ["PB-Basic-001", "PB-Basic-002"]
    assert {"proof"} == {row["question_type"] for row in rows}
    assert table.stamp["counts"] == {"kept": 60}


def test_problems_twice_made_are_the_same(mill, tmp_path):
    """The same entry gives the same rows, id for id."""
    entry = {"source": "arithmetic-threads", "rows": 40, "keep": ["has-solution"]}
    made = mill({"problems/a": entry, "problems/b": entry})
    assert made.make("problems/a").rows(kept=False) == made.make("problems/b").rows(kept=False)


def test_problems_dropped_stay_with_filter_evidence_and_match(mill, tmp_path):
    """Every row is in the table; a dropped one has the filter, the reason, and the matching row."""
    path = write(
        tmp_path / "f.jsonl", "Prove $a=b$.", "", "Prove that $a=b$!", "Prove $a = b$", "[img]x[/img] Prove it."
    )
    keep = ["has-statement", "no-image", "not-duplicate"]
    table = mill({"problems/x": {"source": "table", "path": path, "keep": keep}}).make("problems/x")
    rows = table.rows(kept=False)
    assert [row["dropped"] for row in rows] == [None, "has-statement", None, "not-duplicate", "no-image"]
    assert f"problems/x#{rows[0]['problem']}" == rows[3]["matched"]
    assert [rows[0]["evidence"], rows[0]["matched"]] == [None, None]
    assert table.stamp["counts"] == {"kept": 2, "has-statement": 1, "not-duplicate": 1, "no-image": 1}


def _peak(mill, path, rows: int) -> int:
    """Return the peak bytes of Python, its arrays and frames while filters with memory receive this many rows."""
    rng = random.Random(rows)
    with open(path, "w") as file:
        for n in range(rows):
            words = " ".join("".join(rng.choices("bcdfglmnprst", k=4)) for _ in range(8))
            file.write(json.dumps({"statement": f"Prove that {words}: $x_{{{n % 5}}} = {n % 7}$."}) + "\n")
    keep = ["has-statement", "not-duplicate", {"not-near-duplicate": 0.7}]
    made = mill({"problems/x": {"source": "table", "path": str(path), "keep": keep}})
    tracemalloc.start()
    try:
        made.make("problems/x")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_problems_take_few_bytes_for_each_further_row(mill, tmp_path, monkeypatch):
    """From 1,500 to 4,500 rows the peak grows by less than 600 bytes per row, with the index of near duplicates.

    A row and its statement, as they were kept before, take several thousand.
    """
    monkeypatch.setattr(problems, "BATCH", 500)
    few, many = (_peak(mill, tmp_path / f"{rows}.jsonl", rows) for rows in (1_500, 4_500))
    assert many - few < 600 * 3_000


def test_problems_refused_for_another_reason_take_no_duplicate_with_them(mill, tmp_path):
    """A duplicate is compared with kept rows only, whatever the order of the filters."""
    path = write(tmp_path / "f.jsonl", "Prove $a=b$.", "Prove $a = b$", solution=[None, "s"])
    entry = {"source": "table", "path": path, "keep": ["not-duplicate", {"not-near-duplicate": 0.9}, "has-solution"]}
    rows = mill({"problems/x": entry}).make("problems/x").rows(kept=False)
    assert [row["dropped"] for row in rows] == ["has-solution", None]


def test_problems_with_answers_that_cannot_be_read_are_dropped_and_end_nothing(mill, tmp_path):
    """Each reference answer is parsed within the limits of `final-answer`; the evidence has the fault."""
    answers = ["18", r"a\pmod{}", "(" * 400 + "1" + ")" * 400, "x" * 1001, r"\sum_{k=1}^{10^9}\sin(k^2+1)", "x+1"]
    path = write(tmp_path / "f.jsonl", *(f"Find the number ${n}x$." for n in range(6)), answer=answers)
    entry = {"source": "table", "path": path, "keep": ["has-parsable-answer"]}
    rows = mill({"problems/p": entry}).make("problems/p").rows(kept=False)
    evidence = [row["evidence"] for row in rows]
    assert evidence[0] is evidence[5] is None
    assert evidence[2] in ("gold answer: RecursionError", "gold answer: took longer than 2 s")  # on a busy machine
    assert [evidence[1], *evidence[3:5]] == [
        r"gold answer cannot be read: a\pmod{}",
        "gold answer has over 1,000 characters",
        "gold answer: took longer than 2 s",
    ]


TESTS = [
    [{"input": "1 2\n", "output": "3\n"}],
    [{"call": "f()", "result": "1"}, {"call": "f()", "result": "hello"}],
    [{"call": "f()", "result": "0.5"}],
    {"tests": [{"input": "1", "output": "2"}], "checker": "def check(i, o, r): return o == i"},
]


def test_problems_whose_tests_cannot_be_read_stop_their_table(mill, tmp_path):
    """The error names the row, the problem and the test, and nothing is written."""
    path = write(tmp_path / "f.jsonl", *(f"Write f, number {n}." for n in range(4)), answer=TESTS)
    entry = {"source": "table", "path": path, "question-type": "code"}
    made = mill({"problems/p": entry})
    found = r"f\.jsonl:2: problem `\w+`: tests: the result of test 2, `hello`, cannot be read .* `keep: \[has-parsable-answer\]`"
    with pytest.raises(TableError, match=found):
        made.make("problems/p")


def test_problems_whose_tests_cannot_be_read_are_dropped_if_the_entry_says_so(mill, tmp_path):
    """Rows with an unreadable result, or a checker that rejects its expected output, stay with the evidence."""
    path = write(tmp_path / "f.jsonl", *(f"Write f, number {n}." for n in range(4)), answer=TESTS)
    entry = {"source": "table", "path": path, "question-type": "code", "keep": ["has-parsable-answer", {"first": 3}]}
    rows = mill({"problems/p": entry}).make("problems/p").rows(kept=False)
    assert [row["dropped"] for row in rows] == [None, "has-parsable-answer", None, "has-parsable-answer"]
    assert "the result of test 2" in rows[1]["evidence"] and "the checker of test 1 rejects" in rows[3]["evidence"]
    assert json.loads(rows[2]["answer"]) == [{"call": "f()", "result": "0.5", "absolute": 0.0, "relative": 0.0}]


def test_problems_from_problems_carry_dropped_rows_as_they_were(mill, tmp_path):
    """All rows are carried; dropped ones keep their filter, kept ones pass the new filters."""
    path = write(tmp_path / "f.jsonl", "Prove $a=b$.", "Find $x$.", "Prove $c=d$.", solution=["s", "s", None])
    made = mill(
        {
            "problems/a": {"source": "table", "path": path, "keep": ["has-solution"]},
            "problems/b": {"source": "problems/a", "keep": ["is-proof"]},
            "problems/first": {"source": "problems/a", "rows": 1},
        }
    )
    before = made.make("problems/a").rows(kept=False)
    after = made.make("problems/b").rows(kept=False)
    assert [row["dropped"] for row in after] == [None, "is-proof", "has-solution"]
    assert [row["problem"] for row in before] == [row["problem"] for row in after]
    assert before[2] == after[2]
    assert before[:1] == made.make("problems/first").rows(kept=False)


def test_problems_with_labels_drop_what_the_judge_said_and_could_not_say(mill, tmp_path):
    """A label row is found by the problem's id; no row, or one without a verdict, never passes."""
    path = write(tmp_path / "f.jsonl", "Prove $a$.", "Prove $b$.", "Prove $c$.", "Prove $d$.")
    made = mill(
        {
            "problems/a": {"source": "table", "path": path},
            "labels/a": {"problems": "problems/a", "model": "api/referee"},
            "problems/b": {"source": "problems/a", "labels": "labels/a", "keep": ["labeled", "complete"]},
        }
    )
    ids = [row["problem"] for row in made.make("problems/a").rows()]
    good = {"reason": "ok", "incomplete": False}
    put(
        made.results,
        "labels/a",
        [
            {"problem": ids[2], "reason": "no-verdict"},
            {"problem": ids[1], **good, "incomplete": True},
            {"problem": ids[0], **good},
        ],
    )
    table = made.make("problems/b")
    assert [row["dropped"] for row in table.rows(kept=False)] == [None, "complete", "labeled", "labeled"]


def test_problems_with_grades_keep_strictly_between_the_bounds(mill, tmp_path):
    """The pass rate is the mean over graded attempts; ungraded ones do not count, and never pass."""
    path = write(tmp_path / "f.jsonl", *(f"Prove ${name}$." for name in "abcde"))
    made = mill(
        {
            "problems/a": {"source": "table", "path": path},
            "responses/a": {"problems": "problems/a", "model": "api/referee"},
            "grades/a": {"responses": "responses/a", "grader": "arithmetic"},
            "problems/b": {"source": "problems/a", "grades": "grades/a", "keep": [{"pass-rate": [0, 0.5]}]},
        }
    )
    ids = [row["problem"] for row in made.make("problems/a").rows()]
    grades = {0: [0, 7, None, 0], 1: [0, 0], 2: [7, 0], 3: [None, float("nan")]}
    put(
        made.results,
        "grades/a",
        [
            {"response": f"{n}-{attempt}", "problem": ids[n], "attempt": attempt, "grade": grade, "max_points": 7}
            for n, given in grades.items()
            for attempt, grade in enumerate(given)
        ],
    )
    rows = made.make("problems/b").rows(kept=False)
    assert [r["evidence"] for r in rows[:3]] == [
        None,
        "pass rate 0.000, not strictly 0 to 0.5",
        "pass rate 0.500, not strictly 0 to 0.5",
    ]
    assert [row["evidence"] for row in rows[3:]] == ["no graded attempt"] * 2


def test_decontaminated_problems_show_the_matched_text(mill, tmp_path):
    """A statement of a benchmark is dropped, whatever its LaTeX, with the span and the benchmark's row."""
    text = "Alice the architect and Bob the builder play a game. Alice chooses two points $P$ and $Q$ in the plane."
    bench = write(tmp_path / "bench.jsonl", text, "Prove that $3^2+5^3+2$ is a multiple of $7$.", id=["B-1", "B-2"])
    other = text.replace("$P$", "\\(P\\)")
    rows = write(
        tmp_path / "rows.jsonl", f"(USAMO) {other} Why?", "Show that $7$ divides $3^{2}+5^{3}+2$.", "Find $x$."
    )
    columns = {"statement": "statement", "problem": "id"}
    made = mill(
        {
            "problems/bench": {"source": "table", "path": bench, "columns": columns},
            "problems/x": {"source": "table", "path": rows, "decontaminate": ["problems/bench"]},
        }
    )
    found = made.make("problems/bench", "problems/x").rows(kept=False)
    assert [row["dropped"] for row in found] == ["decontaminate", "decontaminate", None]
    assert [row["matched"] for row in found] == ["problems/bench#B-1", "problems/bench#B-2", None]
    assert "tokens in a row: Alice the architect" in found[0]["evidence"]
    assert "formulas 1.00 similar, same numbers" in found[1]["evidence"]


def test_rows_in_a_table_of_overlaps_are_dropped_with_its_evidence(mill, tmp_path):
    """A match of a method or a judge drops a row. A pair that the judge leaves undecided does not, and a notice says so."""
    same = Congruence("powers", 5, (2, 3, 4, 2, 1))
    strange = f"Would you kindly show that {same.formula} leaves nothing when divided by 5?"
    rows = write(tmp_path / "rows.jsonl", statement(same), statement(same, 1), strange, "Find $x$.", id=list("abcd"))
    bench = write(tmp_path / "bench.jsonl", statement(same), id=["B-1"])
    columns = {"statement": "statement", "problem": "id"}
    judge = {"methods": ["exact", "judge"], "model": "api/referee"}
    made = mill(
        {
            "problems/bench": {"source": "table", "path": bench, "columns": columns},
            "problems/raw": {"source": "table", "path": rows, "columns": columns},
            "overlaps/raw": {"problems": ["problems/raw"], "against": ["problems/bench"], **judge},
            "problems/x": {"source": "problems/raw", "decontaminate": ["overlaps/raw"]},
        }
    )
    table = made.make("problems/bench", "problems/raw", "overlaps/raw", "problems/x")
    found = {row["problem"]: row for row in table.rows(kept=False)}
    assert [found[id]["dropped"] for id in "abcd"] == ["decontaminate", "decontaminate", None, None]
    assert [found[id]["matched"] for id in "ab"] == ["problems/bench#B-1"] * 2
    assert found["a"]["evidence"] == f"exact 1.00: {statement(same)}"
    assert re.fullmatch(r"judge 0\.\d\d: .*", found["b"]["evidence"])
    assert table.stamp["notices"] == ["1 pairs that no judge decided (`reason` in overlaps) drop no row"]


@pytest.mark.parametrize(
    ("overlaps", "entry", "said"),
    [
        ({"problems": ["problems/other"]}, {}, "which did not search `problems/raw`"),
        ({}, {"also": ["problems/other"]}, "which did not search `problems/other`"),
        ({}, {"source": "arithmetic", "rows": 2}, "which did not search `arithmetic`"),
        ({"against": ["problems/bench", "problems/raw"]}, {}, "which compares `problems/raw` with itself"),
    ],
)
def test_overlaps_of_other_rows_are_refused(mill, overlaps, entry, said):
    """A table of overlaps must have searched all rows, in other tables than their own."""
    tables = {f"problems/{name}": {"source": "arithmetic", "rows": 2} for name in ("raw", "bench", "other")}
    overlaps = {"problems": ["problems/raw"], "against": ["problems/bench"], **overlaps}
    entry = {"source": "problems/raw", "decontaminate": ["overlaps/o"], **entry}
    with pytest.raises(RecipeError, match=said):
        mill({**tables, "overlaps/o": overlaps, "problems/x": entry})


def test_problems_of_one_split_are_not_in_another(mill):
    """Train and test of the arithmetic family share no problem, and decontamination finds none."""
    made = mill(
        {
            "problems/bench": {"source": "arithmetic", "split": "test", "rows": 200},
            "problems/x": {"source": "arithmetic", "rows": 400, "decontaminate": ["problems/bench"]},
        }
    )
    assert made.make("problems/bench", "problems/x").stamp["counts"] == {"kept": 400}


def test_problems_of_harp_and_proofbench_share_with_benchmarks_what_a_reader_finds(mill, data):
    """HARP has one problem of AnswerBench; ProofBench contains all six of USAMO 2025."""
    made = mill(
        {
            "problems/usamo": {"source": "matharena", "path": str(data / "usamo_2025")},
            "problems/answers": {"source": "answerbench", "path": str(data / "imobench/answerbench_v2.csv")},
            "problems/proofs": {
                "source": "proofbench",
                "path": str(data / "imobench/proofbench_v2.csv"),
                "decontaminate": ["problems/usamo"],
            },
            "problems/harp": {
                "source": "harp",
                "path": str(data / "harp/proof_even.jsonl"),
                "decontaminate": ["problems/answers", "problems/usamo"],
            },
        }
    )
    made.make("problems/usamo", "problems/answers", "problems/proofs", "problems/harp")
    dropped = {
        name: [r for r in made.table(name).rows(kept=False) if r["dropped"]]
        for name in ("problems/proofs", "problems/harp")
    }
    assert {f"problems/usamo#usamo_2025-{n}" for n in range(1, 7)} == {
        row["matched"] for row in dropped["problems/proofs"]
    }
    assert [row["matched"] for row in dropped["problems/harp"]] == ["problems/answers#imo-bench-combinatorics-032"]


def test_problems_of_a_mistaken_file_leave_no_table(mill, tmp_path):
    """An error in the last line stops the stage before any output."""
    path = tmp_path / "f.jsonl"
    path.write_text('{"statement": "Prove it."}\n{"statement": 7}\n')
    made = mill({"problems/x": {"source": "table", "path": str(path)}})
    with pytest.raises(TableError, match=r"f\.jsonl:2: `statement` is a number"):
        made.make("problems/x")
    assert not made.table("problems/x").path.exists()


def test_problems_of_which_where_selects_none_are_refused(mill, tmp_path):
    """The message names `where`, not the path of a file that has rows."""
    path = write(tmp_path / "p.jsonl", "Prove A.")
    entry = {"source": "table", "path": path, "where": {"statement": ["prove a."]}}
    with pytest.raises(TableError, match=r"problems/x: `where` selects no row of source `table`; .* letter case"):
        mill({"problems/x": entry}).make("problems/x")


def test_problems_with_an_own_id_twice_are_refused(mill, tmp_path):
    """A benchmark's ids must be distinct."""
    path = tmp_path / "f.csv"
    path.write_text("Problem ID,Problem,Short Answer\nA-1,p,1\nA-1,q,2\n")
    made = mill({"problems/x": {"source": "answerbench", "path": str(path)}})
    with pytest.raises(TableError, match="the id `A-1` occurs a second time"):
        made.make("problems/x")


def test_problems_of_the_generator_need_a_number_of_rows_and_known_families(mill):
    """Without `rows` the generator would continue until its family is exhausted."""
    with pytest.raises(RecipeError, match="source `arithmetic` needs `rows`"):
        mill({"problems/x": {"source": "arithmetic"}})
    with pytest.raises(RecipeError, match=r"`families` names `power`; .* Did you mean `powers`\?"):
        mill({"problems/x": {"source": "arithmetic", "rows": 3, "families": ["power"]}})


def test_problems_of_several_tables_come_once_and_say_what_they_ask(mill, tmp_path):
    """`also` adds the kept rows of further tables, each problem once; `question_type` fills a missing type."""
    path = tmp_path / "f.jsonl"
    path.write_text(
        '{"statement": "Reverse a word.", "answer": [{"input": "ab", "output": "ba"}]}\n{"statement": "", "answer": "[]"}\n'
    )
    made = mill(
        {
            "problems/code": {"source": "table", "path": str(path), "question-type": "code", "keep": ["has-statement"]},
            "problems/sums": {"source": "arithmetic", "rows": 6},
            "problems/more": {"source": "arithmetic", "rows": 8},
            "problems/all": {"source": "problems/sums", "also": ["problems/more", "problems/code"]},
        }
    )
    rows = made.make("problems/code", "problems/sums", "problems/more", "problems/all").rows()
    assert [row["problem"] for row in rows[:6]] == [row["problem"] for row in made.table("problems/sums").rows()]
    assert len({row["problem"] for row in rows}) == len(rows) == 9
    assert [row["question_type"] for row in rows].count("code") == 1 and rows[-1]["statement"] == "Reverse a word."
    assert {row["question_type"] for row in rows[:-1]} <= {"proof", "answer"}


def test_problems_that_are_said_to_ask_something_do(mill):
    """`question_type` of an entry overrides that of the source in every row."""
    made = mill(
        {
            "problems/x": {"source": "arithmetic", "rows": 4, "question-type": "chat"},
            "problems/y": {"source": "problems/x", "question-type": "answer"},
        }
    )
    made.make("problems/x", "problems/y")
    assert {row["question_type"] for row in made.table("problems/x").rows()} == {"chat"}
    assert {row["question_type"] for row in made.table("problems/y").rows()} == {"answer"}


def test_problems_of_two_tables_with_one_id_are_refused(mill, tmp_path):
    """Another problem with the id of an earlier one would be lost silently."""
    for name, text in (("a", "one"), ("b", "two")):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"problem": "1", "statement": "Prove {text}."}}\n')
    entries = {f"problems/{name}": {"source": "table", "path": str(tmp_path / f"{name}.jsonl")} for name in "ab"}
    made = mill({**entries, "problems/both": {"source": "problems/a", "also": ["problems/b"]}})
    made.make("problems/a", "problems/b")
    with pytest.raises(TableError, match="problems/b: its problem `1` has the id of another problem"):
        made.make("problems/both")


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"power": [4, 5]}, r"`sizes` names `power`; .* Did you mean `powers`\?"),
        ({"digits": [1, 5]}, r"`sizes` of digits are \[1, 5\]; expected minimum and maximum, between 2 and 99"),
        ({"recurrence": [6, 5]}, r"`sizes` of recurrence are \[6, 5\]"),
        ({"products": [4]}, r"`sizes` of products are \[4\]"),
    ],
)
def test_sizes_that_no_problem_has_are_refused(mill, sizes, message):
    """Sizes belong to known families, from the smallest with a line to write to the largest that can be parsed."""
    with pytest.raises(RecipeError, match=message):
        mill({"problems/x": {"source": "arithmetic", "rows": 3, "sizes": sizes}})


def test_problems_of_a_size_have_it(mill):
    """The table has problems of the given size, and default ones of the families that are not named."""
    entry = {"source": "arithmetic", "rows": 40, "families": ["digits", "recurrence"], "sizes": {"digits": [7, 7]}}
    rows = mill({"problems/x": entry}).make("problems/x").rows()
    numbers = [row["statement"].split("$")[1] for row in rows if row["level"] == "digits"]
    assert {len(number) for number in numbers} == {7}
    assert {row["level"] for row in rows} == {"digits", "recurrence"}
