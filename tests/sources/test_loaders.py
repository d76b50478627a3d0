"""Loaders: the rows of each source, among them threads and real benchmarks."""

import base64
import json
import pickle
import zlib
from pathlib import Path

import polars as pl
import pytest

from proofmill.config.entry_values import entry_from
from proofmill.schema.columns import COLUMNS
from proofmill.schema.errors import TableError
from proofmill.sources.loaders import SOURCES
from proofmill.sources.threads import like_a_solution, plain, thread
from proofmill.synthetic import congruences, grading


def load(**values) -> list[dict]:
    entry = entry_from("problems", values)
    return list(SOURCES[entry.source].load(entry))


def post(number: int, text: str, thanks: int = 0, **fields) -> dict:
    return {
        "post_number": number,
        "post_canonical": text,
        "thanks_received": thanks,
        "post_time": 1_575_383_634,
        **fields,
    }


def record(*posts: dict) -> dict:
    return {"topic_id": 7, "response": {"response": {"posts": list(posts), "tags": [{"tag_text": "algebra"}]}}}


PROOF = "Since $a+b=c$ we have $a^2+2ab+b^2=c^2$, and so the claim follows at once."


def test_loaders_yield_only_columns_of_problems(data):
    """Every column of a loader is a column of `problems`."""
    rows = load(source="harp", path=str(data / "harp/proof_even.jsonl"))
    rows += load(source="proofbench", path=str(data / "imobench/proofbench_v2.csv"))
    rows += load(source="matharena", path=str(data / "usamo_2025"))
    rows += load(source="arithmetic-threads", rows=20)
    assert {key for row in rows for key in row} <= set(COLUMNS["problems"])


def test_arithmetic_rows_are_proved_problems_in_both_wordings():
    """Every row is a problem of its part with a complete proof and its residue; both wordings occur."""
    entry = entry_from(
        "problems", {"source": "arithmetic", "split": "dev", "rows": 60, "families": ["powers", "digits"]}
    )
    rows = [row for row, _ in zip(SOURCES["arithmetic"].load(entry), range(60), strict=False)]
    read = [congruences.read(row["statement"]) for row in rows]
    assert {"dev"} == {problem.part for problem in read}
    assert {row["level"]: row["question_type"] for row in rows} == {"powers": "proof", "digits": "answer"}
    assert [grading.check(p, row["solution"]).points() for p, row in zip(read, rows, strict=True)] == [7] * 60
    assert [str(p.residue) for p in read] == [row["answer"] for row in rows]
    assert {0, 1} == {int(row["statement"] != congruences.statement(p)) for p, row in zip(read, rows, strict=True)}


# -------------------------------------------------------------------------------------------------------------- threads


def test_thread_takes_the_most_thanked_solution_and_keeps_all_other_posts():
    """Thanks decide among solution-like posts; all others are candidates, also the starter's."""
    row = thread(
        "x",
        record(
            post(1, "Prove that $c>0$."),
            post(2, "Any solution?", 9),
            post(3, PROOF, 1),
            post(4, f"Other way. {PROOF}", 3),
            post(5, "Thanks!", 8),
        ),
    )
    assert row["statement"] == "Prove that $c>0$."
    assert row["solution"] == f"Other way. {PROOF}"
    assert row["candidates"] == ["Any solution?", PROOF, "Thanks!"]
    assert (row["year"], row["tags"], row["question_type"]) == (2019, ["algebra"], "proof")


def test_thread_with_equal_thanks_prefers_a_finished_proof_then_the_earliest():
    """A box or an end-of-proof sign breaks a tie; otherwise the first is selected."""
    finished = f"{PROOF} $\\blacksquare$"
    assert thread("x", record(post(1, "P"), post(2, PROOF), post(3, finished)))["solution"] == finished
    assert (
        thread("x", record(post(1, "P"), post(2, f"A: {PROOF}"), post(3, f"B: {PROOF}")))["solution"] == f"A: {PROOF}"
    )


def test_thread_is_read_in_the_order_of_post_numbers_without_deleted_posts():
    """The first post is the one with the lowest number; deleted posts do not count."""
    row = thread("x", record(post(3, PROOF), post(2, "spam", deleted=True), post(1, "Prove it.")))
    assert (row["statement"], row["solution"], row["candidates"]) == ("Prove it.", PROOF, [])


def test_thread_without_a_solution_or_posts_has_none():
    """Other posts are not solutions, and a thread without posts has no statement."""
    assert thread("x", record(post(1, "Prove it."), post(2, "Any ideas?")))["solution"] is None
    assert thread("x", record())["statement"] is None


def test_thread_of_another_schema_is_refused():
    """The message has the fault of a record without the forum's posts, or with invalid ones."""
    for odd in (
        {"topic_id": 1},
        {"response": {"response": {"posts": 3}}},
        record(post("one", "x")),
        record(post(1, 5)),
    ):
        with pytest.raises(TableError, match=r"^f:1: .+; expected"):
            thread("f:1", odd)


@pytest.mark.parametrize(
    "text",
    [
        "Thanks, that $a=b$ is great to know for the rest of us!",
        "Any ideas? I only have $a=b$ and nothing else so far.",
        "Nice problem!",
        "Maybe one can prove that $2a>b^2$ or something like that?",
        "see [here] for $a=b$ and its long proof",
        "I think this is wrong: $4*4=16≡3$, the residue of 16 is 2.",
        "We can show that one of them is a prime number",
        "Your solution is not correct, since $a=b$ fails for $a=1$.",
        "Can someone explain why $a=b$ follows in line three?",
    ],
)
def test_post_that_talks_about_the_problem_is_no_solution(text):
    """Thanks, questions, hedges, objections and links are not solutions, even with formulas."""
    assert not like_a_solution(text)


@pytest.mark.parametrize(
    "text",
    [
        PROOF,
        "$2(a^2b^2+b^2c^2+c^2a^2)-a^4-b^4-c^4=(a+b+c)(b+c-a)(c+a-b)(a+b-c)$",
        "The answer is $\\boxed{3}$.",
        "So the statement is false: for $a=1$ we get $2=3$.",
        "It is trivial by Muirhead. QED",
        "Nice! " + PROOF * 5,
        "<think>5^2, 5^2, sum mod 3</think>\nIn brief: So the residue is \\boxed{0}.",
    ],
)
def test_post_that_argues_is_like_a_solution(text):
    """A terse identity, a boxed answer, a refutation and a long proof after praise are like solutions."""
    assert like_a_solution(text)


@pytest.mark.parametrize(
    ("post", "said"),
    [
        ("[quote=a]x [quote]y[/quote] z[/quote] w", "w"),
        ("[hide=Solution]$a=b$[/hide]", "$a=b$"),
        ("[hide = Motivation: old ]$a$ [b]Case 1.[/b][/hide]", "$a$ Case 1."),
        ("[url=https://x.y/z]here[/url] and [url]https://x.y[/url]", "here and https://x.y"),
        ("[color=red][i]Proof[/i][/color] of $A[i]$ and $[b]$", "Proof of $A[i]$ and $[b]$"),
        ("[img]http://x.y/a.png[/img]", "[img]http://x.y/a.png[/img]"),
        ("a[/b] [quote]never closed", "a[/b] [quote]never closed"),
        ("$x \\in [a,b]$, $[0,1]$", "$x \\in [a,b]$, $[0,1]$"),
        ("[b]" * 20_000, "[b]" * 20_000),
        ("[quote]" * 50_000 + "[/b]" * 50_000, "[quote]" * 50_000 + "[/b]" * 50_000),
        ("[b]a[i]b[/b]c[/i]", "a[i]bc[/i]"),  # what was opened within is not closed outside
    ],
)
def test_plain_opens_wrappers_and_leaves_out_quotes(post, said):
    """Markup is removed, words stay; text that only resembles markup stays, too."""
    assert plain(post) == said


def test_thread_with_an_attachment_shows_it():
    """An attached picture appears in the text, so that the image filter detects it."""
    row = thread("x", record(post(1, "See it.", attachments=[{"name": "a.png"}])))
    assert row["statement"] == "See it.\n[attachment=a.png]"


# ------------------------------------------------------------------------------------------------------------ real data


def test_aops_threads_of_the_forum_have_the_solutions_a_reader_would_pick(data):
    """Of four real threads two are solved, at length and in one line; a link and guesses are not solutions."""
    rows = load(source="aops-threads", path=str(data / "aops_threads/threads_first4.jsonl"))
    assert [row["origin"] for row in rows] == ["aops/1962978", "aops/1842160", "aops/267204", "aops/2971922"]
    assert rows[0]["solution"].startswith("$\\boxed{\\text{Answer = }3^k.}$")
    assert "[hide" not in rows[0]["solution"]
    assert [rows[1]["solution"], len(rows[1]["candidates"])] == [None, 4]
    assert rows[3]["solution"] == "$2(a^2b^2+b^2c^2+c^2a^2)-a^4-b^4-c^4=(a+b+c)(b+c-a)(c+a-b)(a+b-c)$"
    assert rows[3]["candidates"] == ["[attachment=Jichen.png]"]
    assert [row["year"] for row in rows] == [2019, 2019, 2009, 2022]


def test_proofbench_and_answerbench_keep_their_ids(data):
    """The 60 and 400 rows have their ids, guidelines and answers, also the row with a missing quote."""
    proofs = load(source="proofbench", path=str(data / "imobench/proofbench_v2.csv"))
    answers = load(source="answerbench", path=str(data / "imobench/answerbench_v2.csv"))
    assert (len(proofs), proofs[0]["problem"], len(answers)) == (60, "PB-Basic-001", 400)
    assert all(row["guidelines"] and row["solution"] for row in proofs)
    fixed = next(row for row in answers if row["problem"] == "imo-bench-algebra-036")
    assert fixed["answer"] == "$Y(x)=A+\\frac{B}{x}-x$"
    assert fixed["statement"].endswith("\\]")
    assert all(row["answer"] for row in answers)


def test_harp_has_other_solutions_as_candidates(data):
    """155 proof problems of known years; the second and later solutions are candidates."""
    rows = load(source="harp", path=str(data / "harp/proof_even.jsonl"))
    assert len(rows) == 155
    assert (rows[0]["year"], len(rows[0]["candidates"]), rows[0]["origin"]) == (1972, 3, "harp/USAMO 1972 1")


def test_gsm8k_answers_are_numbers_and_solutions_have_no_calculator_notes(data):
    """The answer follows ####, without thousands separators; its line stays in the solution for grading."""
    rows = load(source="gsm8k", path=str(data / "gsm8k/test_first660.jsonl"))
    assert len(rows) == 660
    assert not any("<<" in row["solution"] for row in rows)
    assert all(float(row["answer"]) == float(row["answer"]) for row in rows)


def test_math_answer_is_the_last_box(data, tmp_path):
    """Every solution has a last box, also with nested braces; the answer column equals it up to spelling."""
    lines = (data / "math/train_every5th.jsonl").read_text(encoding="utf-8").splitlines()
    plain = [{k: v for k, v in json.loads(line).items() if k != "answer"} for line in lines]
    rows = load(source="math", path=str(data / "math/train_every5th.jsonl"))
    boxes = [row["answer"] for row in load(source="math", path=written(tmp_path / "plain.jsonl", *plain))]
    assert len(rows) == 1500
    assert None not in boxes
    assert (
        sum(box.replace(" ", "") == row["answer"].replace(" ", "") for box, row in zip(boxes, rows, strict=True)) > 1300
    )
    texts = ("so \\boxed{1} or \\boxed{\\frac{1}{2}}.", "none", "\\boxed{open")
    some = written(tmp_path / "some.jsonl", *({**plain[0], "solution": text} for text in texts))
    assert [row["answer"] for row in load(source="math", path=some)] == ["\\frac{1}{2}", None, None]


def test_math_answer_of_a_column_comes_before_the_last_box(tmp_path):
    """A file with an answer column is believed; one without has the last box of each solution."""
    record = {"problem": "What is 1/2?", "solution": "So \\boxed{\\frac12}.", "level": "Level 1", "type": "Algebra"}
    for name, fields, answer in (("with", {"answer": "1/2"}, "1/2"), ("without", {}, "\\frac12")):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps({**record, **fields}) + "\n")
        (row,) = load(source="math", path=str(path))
        assert (row["answer"], row["tags"]) == (answer, ["Algebra"])


def test_aime_and_usamo_know_their_year(data):
    """Years come from the address and from the contest's date; schemes are rendered with two lines per item."""
    aime = load(source="aime", path=str(data / "aime/aime24.jsonl"))
    usamo = load(source="matharena", path=str(data / "usamo_2025"))
    assert ({2024}, {2025}) == ({row["year"] for row in aime}, {row["year"] for row in usamo})
    assert [row["problem"] for row in usamo] == [f"usamo_2025-{n}" for n in range(1, 7)]
    first, second = usamo[0]["guidelines"].split("\n\n")[:2]
    assert first.startswith("# Initial closed form expression for each digit (1 points)\nDescription: Uses the base-2n")
    assert second.startswith("# Interchanging the floor and mod (3 points)\nDescription: ")


# ----------------------------------------------------------------------------------------------------- foreign files


def write(path, *rows: dict) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_aops_record_has_its_path_at_top_level_or_below_metadata(tmp_path):
    """Both published forms are read, and a year in the path is the year."""
    path = write(
        tmp_path / "f.jsonl",
        {"problem": "Find $x$.", "solution": "s", "path": "Contests/2011 ISL/A1", "candidates": ["c"]},
        {
            "problem": "Find $y$.",
            "solution": "s",
            "candidates": [],
            "tags": ["t"],
            "metadata": {"path": "Forum", "end_of_proof": True},
        },
    )
    rows = load(source="aops", path=path)
    assert [(r["origin"], r["year"], r["question_type"]) for r in rows] == [
        ("Contests/2011 ISL/A1", 2011, "answer"),
        ("Forum", None, "proof"),
    ]
    assert [row["candidates"] for row in rows] == [["c"], []]


def test_proofbench_of_the_hub_has_its_scheme_as_guidelines(tmp_path):
    """Columns in small letters and `grading_scheme` are read as the CSV's columns are."""
    path = write(
        tmp_path / "f.jsonl", {"problem_id": "USAMO-2024-1", "problem": "p", "solution": "s", "grading_scheme": "g"}
    )
    (row,) = load(source="proofbench", path=path)
    assert (row["problem"], row["statement"], row["guidelines"], row["year"]) == ("USAMO-2024-1", "p", "g", 2024)


@pytest.mark.parametrize("source", ["aops", "gsm8k"])
def test_loader_of_a_dataset_streams_a_local_folder_as_a_hub_id(tmp_path, source):
    """With an id, a loader reads a dataset instead of a path."""
    write(
        tmp_path / "train.jsonl",
        {"problem": "p", "question": "p", "solution": "s", "answer": "a #### 1,200", "path": "x", "candidates": []},
    )
    (row,) = load(source=source, id=str(tmp_path), commit="local")
    assert row["statement"] == "p"
    assert row.get("answer") in (None, "1200")


def test_hub_maps_columns(tmp_path):
    """Foreign columns, also nested ones, are mapped to ours."""
    write(tmp_path / "train.jsonl", {"q": "Prove it.", "meta": {"year": "2001"}, "n": 4})
    columns = {"statement": "q", "year": "meta.year", "problem": "n"}
    (row,) = load(source="hub", id=str(tmp_path), commit="local", columns=columns)
    assert (row["statement"], row["year"], row["problem"]) == ("Prove it.", 2001, "4")


@pytest.mark.parametrize("name", ["f.jsonl", "f.csv", "f.parquet"])
def test_table_without_a_map_takes_our_own_names(tmp_path, name):
    """Columns with our names are read, others are ignored."""
    frame = pl.DataFrame({"statement": ["s"], "answer": ["7"], "other": ["x"]})
    {"f.jsonl": frame.write_ndjson, "f.csv": frame.write_csv, "f.parquet": frame.write_parquet}[name](tmp_path / name)
    (row,) = load(source="table", path=str(tmp_path / name))
    assert {key: value for key, value in row.items() if key != "origin"} == {"statement": "s", "answer": "7"}


@pytest.mark.parametrize(
    ("rows", "columns", "found"),
    [
        (
            [{"statment": "s"}],
            {},
            r"no column `statement` among statment; expected `statement`\. Did you mean `statment`\?",
        ),
        ([{"Q": "s"}], {"statement": "q"}, r"no column `q` among Q; expected `q`\. Did you mean `Q`\?"),
        ([{"statement": 7}], {}, "`statement` is a number"),
        ([{"statement": ["s"]}], {}, "`statement` is a list"),
        ([{"statement": "s", "candidates": 3}], {}, r"`candidates` is a number \(3\); expected a list of texts"),
        (
            [{"statement": "s", "question_type": "both"}],
            {},
            "`question_type` is 'both'; expected `proof`, `answer` or `code`",
        ),
        (
            [{"statement": "s", "n": 1}, {"statement": "t", "n": 1}],
            {"problem": "n"},
            r"f.jsonl:2: `n` is '1' as in .*f.jsonl:1",
        ),
        ([{"statement": "s"}], {"stament": "statement"}, "`columns` names `stament`, .*Did you mean `statement`"),
    ],
)
def test_table_with_other_columns_is_refused(tmp_path, rows, columns, found):
    """A missing column, a wrong type and a duplicate id stop with the line and the nearest name."""
    with pytest.raises(TableError, match=found):
        load(source="table", path=write(tmp_path / "f.jsonl", *rows), columns=columns)


def test_gsm8k_without_its_answer_grade_is_refused(tmp_path):
    """A row without #### is not GSM8K."""
    with pytest.raises(TableError, match=r"f\.jsonl:1: `answer` has no `####`"):
        load(source="gsm8k", path=write(tmp_path / "f.jsonl", {"question": "q", "answer": "7"}))


def test_usamo_folder_without_its_files_is_refused(tmp_path):
    """The message has the missing file of a contest folder."""
    with pytest.raises(TableError, match=r"config\.yaml: cannot be read"):
        load(source="matharena", path=str(tmp_path))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("grading_scheme.json", "5"),
        ("grading_scheme.json", "[1]"),
        ("grading_scheme.json", '[{"id": ["1"], "scheme": []}]'),
        ("grading_scheme.json", '[{"id": 1, "scheme": [{"title": "t", "points": NaN, "desc": "d"}]}]'),
        ("grading_scheme.json", '[{"id": 1, "id": 2, "scheme": []}]'),
        ("grading_scheme.json", '[{"id": 1, "scheme": [5]}]'),
        ("grading_scheme.json", '[{"id": 2, "scheme": []}]'),
        ("grading_scheme.json", "[" * 100_000),
        ("config.yaml", "date: 2025-99-99"),
        ("config.yaml", "date: [" * 1_000),
        ("config.yaml", f"date: {'9' * 5_000}"),
        ("config.yaml", "date: *nothing"),
    ],
)
def test_usamo_folder_with_a_faulty_file_names_it(tmp_path, file, content):
    """A contest's date and schemes are valid, or the message has the file."""
    (tmp_path / "problems").mkdir()
    files = {"problems/1.tex": "Prove it.", "config.yaml": "date: 2025-03-19", "grading_scheme.json": "[]"}
    for name, good in files.items():
        (tmp_path / name).write_text(content if name == file else good)
    with pytest.raises(TableError, match=rf"(?s)^{tmp_path}/{file}: .+; expected "):
        load(source="matharena", path=str(tmp_path))


# ----------------------------------------------------------------------------------------- as public tables have them


def written(path, *records) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def test_rows_are_selected_before_they_are_read(tmp_path):
    """`every` takes each n-th row from the first, then `where` those with one of the values; numbers may be texts."""
    rows = [{"statement": f"Problem {n}.", "kind": "ab"[n % 2], "year": 2000 + n // 4} for n in range(12)]
    path = written(tmp_path / "x.jsonl", *rows)
    found = load(source="table", path=path, every=3)
    assert [row["statement"] for row in found] == ["Problem 0.", "Problem 3.", "Problem 6.", "Problem 9."]
    found = load(source="table", path=path, every=3, where={"kind": ["b"], "year": [2000, 2002]})
    assert [row["statement"] for row in found] == ["Problem 3.", "Problem 9."]
    with pytest.raises(TableError, match="no column `sort` among"):
        load(source="table", path=path, where={"sort": ["b"]})


def test_rows_are_selected_by_booleans(tmp_path):
    """A boolean in a JSON file is no number, and a row without a value is not selected."""
    rows = [{"statement": f"Problem {n}.", "hard": hard} for n, hard in enumerate((True, False, None, 1))]
    path = written(tmp_path / "x.jsonl", *rows)
    for value, place in ((True, 0), (False, 1)):
        (row,) = load(source="table", path=path, where={"hard": [value]})
        assert row["statement"] == f"Problem {place}."


def test_contest_of_matharena_is_read_as_its_table_too(tmp_path):
    """Ids and year equal those of the contest's folder; a structured scheme becomes a text."""
    scheme = [{"title": "Idea", "points": 7, "desc": "the idea"}]
    row = {"problem_idx": 1, "problem": "Prove it.", "grading_scheme": scheme, "sample_solution": "So."}
    (found,) = load(source="matharena", path=written(tmp_path / "usamo_2025.jsonl", row))
    assert (found["problem"], found["year"], found["solution"]) == ("usamo_2025-1", 2025, "So.")
    assert found["guidelines"] == "# Idea (7 points)\nDescription: the idea"


VERIFIED = {"problem_statement": "Add.", "gold_standard_solution": "print(2)", "problem_id": "p-1", "source": "apps"}


def test_programming_problems_have_their_tests_as_the_answer(tmp_path):
    """Tests on standard input and output are the answer, from JSON or an object; function calls are dropped."""
    reads = {"input": "1 1", "output": "2", "type": "stdin_stdout", "fn_name": None}
    calls = {"input": "[1]", "output": "[2]", "type": "function_call", "fn_name": "f"}
    info = {"language": "python", "test_cases": [reads, calls]}
    path = written(
        tmp_path / "code.jsonl",
        {**VERIFIED, "verification_info": info},
        {**VERIFIED, "verification_info": json.dumps({"test_cases": [calls]})},
    )
    one, none = load(source="code", path=path)
    assert json.loads(one["answer"]) == [{"input": "1 1", "output": "2"}]
    assert (one["question_type"], one["solution"], one["origin"], one["tags"]) == ("code", "print(2)", "p-1", ["apps"])
    assert none["answer"] is None


@pytest.mark.parametrize("info", ["{", 3, {"test_cases": [1]}])
def test_programming_problem_with_unreadable_tests_is_refused(tmp_path, info):
    """The message has the row of the invalid tests."""
    path = written(tmp_path / "code.jsonl", {**VERIFIED, "verification_info": info})
    with pytest.raises(TableError, match=r"code.jsonl:1: "):
        load(source="code", path=path)


HUMAN = {
    "task_id": "HumanEval/0",
    "prompt": 'from typing import List\n\ndef half(n):\n    return n / 2\n\ndef mean(a: List[int]) -> float:\n    """The mean."""\n',
    "entry_point": "mean",
    "canonical_solution": "    return sum(a) / len(a)\n",
    "test": "\ndef check(candidate):\n    assert candidate([1, 3]) == 2\n",
}
MBPP = {
    "task_id": 2,
    "text": "Write a function to double.",
    "code": "def helper(x):\r\n  return x\r\ndef twice(x):\r\n  return 2 * helper(x)",
    "test_list": ["assert set([twice(1)]) == {2}", "assert twice(2) == 4"],
}


def test_function_of_humaneval_has_its_asserts_as_a_check(tmp_path):
    """The answer has the check, the code before the function, and the published solution, which is also a reply."""
    (row,) = load(source="humaneval", path=written(tmp_path / "h.jsonl", HUMAN))
    (test,) = json.loads(row["answer"])
    assert (row["problem"], row["question_type"], test["function"]) == ("HumanEval/0", "code", "mean")
    assert test["setup"] == "from typing import List\n\ndef half(n):\n    return n / 2"
    assert (
        test["check"].endswith("check(mean)\n") and test["reference"] == HUMAN["prompt"] + HUMAN["canonical_solution"]
    )
    assert HUMAN["prompt"].strip() in row["statement"] and "assert" not in row["statement"]
    assert row["solution"] == f"```python\n{test['reference'].strip()}\n```"


def test_function_of_mbpp_shows_its_asserts_and_with_more_tests_only_the_first(tmp_path):
    """MBPP shows all its asserts; MBPP+ shows one and tests many. The setup precedes both."""
    plus = {**MBPP, "task_id": 3, "prompt": "Double.", "test": "for i in range(9): assert twice(i) == 2 * i"}
    plain, more = load(
        source="mbpp",
        path=written(
            tmp_path / "m.jsonl", {**MBPP, "test_setup_code": "import math"}, {**plus, "test_imports": ["import re"]}
        ),
    )
    (test,), (further,) = json.loads(plain["answer"]), json.loads(more["answer"])
    assert (plain["problem"], test["function"], test["setup"]) == ("mbpp-2", "twice", "import math")
    assert all(each in plain["statement"] and each in test["check"] for each in MBPP["test_list"])
    assert MBPP["test_list"][0] in more["statement"] and MBPP["test_list"][1] not in more["statement"]
    assert (further["check"], further["setup"]) == (f"{plus['test']}\n", "import re")


@pytest.mark.parametrize(
    ("source", "row", "found"),
    [
        ("humaneval", {**HUMAN, "entry_point": "other"}, "`prompt` does not define `other`"),
        ("humaneval", {**HUMAN, "prompt": "def mean("}, "`prompt` is not Python"),
        ("humaneval", {**HUMAN, "test": None}, "`test` is empty"),
        ("mbpp", {**MBPP, "test_list": ["assert other(1) == 2"]}, "`test_list` calls no function of `code`"),
        ("mbpp", {**MBPP, "test_list": []}, "`test_list` calls no function"),
    ],
)
def test_function_without_sound_asserts_is_refused(tmp_path, source, row, found):
    """The message has the row and the column."""
    with pytest.raises(TableError, match=rf"f.jsonl:1: {found}"):
        load(source=source, path=written(tmp_path / "f.jsonl", row))


LIVE = {
    "question_id": "1873_A",
    "question_content": "Double it.",
    "starter_code": "",
    "public_test_cases": '[{"input": "1", "output": "2", "testtype": "stdin"}]',
    "metadata": "{}",
    "platform": "codeforces",
    "difficulty": "easy",
}


def hidden(tests: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(tests))).decode()


def test_program_of_livecodebench_has_its_public_and_its_hidden_tests(tmp_path):
    """Tests of output stay; those of a method become calls. Hidden ones are unpacked."""
    printing = json.dumps([{"input": "3", "output": "6", "testtype": "stdin"}])
    method = {
        **LIVE,
        "starter_code": "class Solution:\n    def twice(self, a: List[int], s: str) -> bool:",
        "metadata": '{"func_name": "twice"}',
        "public_test_cases": '[{"input": "[1, null]\\n\\"x\\"", "output": "true", "testtype": "functional"}]',
    }
    path = written(
        tmp_path / "l.jsonl", {**LIVE, "private_test_cases": hidden(printing)}, {**method, "private_test_cases": "[]"}
    )
    prints, calls = load(source="livecodebench", path=path)
    assert json.loads(prints["answer"]) == [{"input": "1", "output": "2"}, {"input": "3", "output": "6"}]
    assert json.loads(calls["answer"]) == [{"call": "Solution().twice([1, None], 'x')", "result": "True"}]
    assert "class Solution" in calls["statement"] and "standard input" in prints["statement"]
    assert (prints["problem"], prints["level"], prints["question_type"]) == ("livecodebench-1873_A", "easy", "code")
    for problem in load(source="livecodebench", path=path, setup="leetcode", megabytes=1024.0):
        tests = json.loads(problem["answer"])
        assert tests and all((test["setup"], test["megabytes"]) == ("leetcode", 1024) for test in tests)


@pytest.mark.parametrize("packed", ["x", hidden(3), hidden("no json"), hidden(Path("/")), ""])
def test_hidden_tests_that_are_none_are_refused(tmp_path, packed):
    """A pickle with an import is rejected like a broken one: the message has the row, and nothing is executed."""
    path = written(tmp_path / "l.jsonl", {**LIVE, "private_test_cases": packed})
    with pytest.raises(TableError, match=r"l.jsonl:1: `private_test_cases` (cannot be read|is empty|is a)"):
        load(source="livecodebench", path=path)


# ------------------------------------------------------------------------------------------- choices and dates

GPQA = {
    "Question": "Which is a metal? ",
    "Correct Answer": "Iron\n",
    **{f"Incorrect Answer {n}": gas for n, gas in enumerate(("Neon", "Argon", "Xenon"), 1)},
    "Record ID": "rec1",
}
CHOICES = {
    "source": "table",
    "columns": {"problem": "Record ID", "statement": "Question"},
    "choices": ["Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"],
}


def test_options_are_lettered_in_an_order_of_the_seed_and_the_problem(tmp_path):
    """The letter is that of the correct option; the order is the same wherever the row is, and another for each id."""
    rows = [{**GPQA, "Record ID": f"rec{n}"} for n in range(60)]
    found = load(**CHOICES, path=written(tmp_path / "a.jsonl", *rows))
    for row in found:
        question, *options, asked = row["statement"].replace("\n\n", "\n").split("\n")
        assert question == "Which is a metal?" and asked == "Answer with the letter of the correct option."
        assert sorted(option[:2] for option in options) == ["A.", "B.", "C.", "D."]
        assert f"{row['answer']}. Iron" in options and row["question_type"] == "answer"
    assert {row["answer"] for row in found} == set("ABCD")
    again = load(**CHOICES, path=written(tmp_path / "b.jsonl", *rows[::-1]))
    assert {row["problem"]: row["statement"] for row in again} == {row["problem"]: row["statement"] for row in found}
    other = load(**CHOICES, seed=1, path=str(tmp_path / "a.jsonl"))
    assert 10 < sum(one["answer"] != two["answer"] for one, two in zip(found, other, strict=True)) < 60


def test_problem_without_its_correct_option_has_no_answer(tmp_path):
    """Without the correct option no letter is gold, and the row will be unscored; a missing column is an error."""
    (row,) = load(**CHOICES, path=written(tmp_path / "a.jsonl", {**GPQA, "Correct Answer": None}))
    assert row["answer"] is None
    with pytest.raises(TableError, match="no column `Correct Answer`"):
        load(**CHOICES, path=written(tmp_path / "b.jsonl", {"Record ID": "r", "Question": "q"}))


def test_empty_wrong_options_are_left_out(tmp_path):
    """The other options keep their order, and their letters have no gap."""
    (full,) = load(**CHOICES, path=written(tmp_path / "a.jsonl", GPQA))
    (row,) = load(**CHOICES, path=written(tmp_path / "b.jsonl", {**GPQA, "Incorrect Answer 2": " "}))
    listed = [[line[3:] for line in found["statement"].split("\n")[2:-2]] for found in (full, row)]
    assert listed[1] == [option for option in listed[0] if option != "Argon"]
    assert f"{row['answer']}. Iron" in row["statement"]


@pytest.mark.parametrize(
    "options",
    [
        {"Incorrect Answer 2": "Iron "},
        dict.fromkeys(("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")),
    ],
)
def test_problem_in_which_no_letter_alone_is_correct_has_no_answer(tmp_path, options):
    """A wrong option equal to the correct one would make a correct letter wrong; one option asks nothing."""
    (row,) = load(**CHOICES, path=written(tmp_path / "a.jsonl", {**GPQA, **options}))
    assert row["answer"] is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [("2025-02-15", "2025-02-15"), ("2024-08-17T00:00:00", "2024-08-17"), ("", None), (None, None)],
)
def test_date_of_a_row_is_its_day(tmp_path, value, expected):
    """A time is cut to its day, and a blank is unknown."""
    (row,) = load(
        source="table",
        path=written(tmp_path / "a.jsonl", {"s": "x", "when": value}),
        columns={"statement": "s", "date": "when"},
    )
    assert row["date"] == expected


@pytest.mark.parametrize("value", ["15.2.2025", "2025", 7, "2025-02-30", "2025-02-1", "2025-13-01T00:00"])
def test_date_in_another_form_is_refused(tmp_path, value):
    """The message has the place and an example."""
    with pytest.raises(TableError, match=r"a\.jsonl:1: `when` is '?.*; expected a date such as 2025-02-15"):
        load(
            source="table",
            path=written(tmp_path / "a.jsonl", {"s": "x", "when": value}),
            columns={"statement": "s", "date": "when"},
        )
