"""Attempts of others with human grades: read by column, graded by ours, compared."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mill import ROOT, SMALL
from proofmill import responses
from proofmill.config import yaml_files
from proofmill.config.config import expand
from proofmill.schema.entries.problem_entries import Problems
from proofmill.schema.errors import TableError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of
from proofmill.sources import graded_proofs

OPC = {
    "problem_id": "p1",
    "problem": "Prove that $1+1=2$.",
    "proof": "By counting.",
    "human_label": "correct",
    "model_id": "m",
}
MATHARENA = {
    "problem_idx": 3,
    "problem": "Show that $2>1$.",
    "answer": "Clearly.",
    "points": 3,
    "details": [
        {"title": "Idea", "max_points": 4, "grading_scheme_desc": "the idea"},
        {"title": "Rest", "max_points": 3, "grading_scheme_desc": "the rest"},
    ],
    "cost_run": {"output_tokens": 120, "input_tokens": 10, "cost": 0.1, "time": 1},
}
IN_DISTRIBUTION = {
    "problem_id": "q", "text": "Prove it for all $n$.", "model_solution": "Induction.", "solution": "Official.",
    "schema_0": "7 points", "points": 6, "cost_run": {"output_tokens": 5},
}  # fmt: skip
RUN = {"question_id": "PB-Basic-001", "problem": "Prove $x^2\\ge 0$.", "model_solution": "", "score": None, "grade": []}


def made(mill, tmp_path, *records, keep=(), grader=None):
    path = tmp_path / "graded.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    entries = {
        "problems/g": {"source": "graded-proofs", "path": str(path), "keep": list(keep)},
        "responses/g": {"problems": "problems/g", "model": "given"},
        "grades/human": {"responses": "responses/g", "grader": "human"},
        **(grader or {}),
    }
    found = mill(entries)
    found.make(*[name for name in entries if "/" in name and kind_of(name) in KINDS])
    return found


@pytest.mark.parametrize(
    ("record", "statement", "text", "given_grade", "max_points", "tokens", "guidelines"),
    [
        (OPC, "Prove that $1+1=2$.", "By counting.", 1, 1, None, None),
        (
            MATHARENA,
            "Show that $2>1$.",
            "Clearly.",
            3,
            7,
            120,
            "# Idea (4 points)\nDescription: the idea\n\n# Rest (3 points)\nDescription: the rest",
        ),
        (IN_DISTRIBUTION, "Prove it for all $n$.", "Induction.", 6, 7, 5, "7 points"),
        (RUN, "Prove $x^2\\ge 0$.", "", None, None, None, None),
    ],
)
def test_published_sets_are_read_by_their_columns(
    mill, tmp_path, record, statement, text, given_grade, max_points, tokens, guidelines
):
    """Open Proof Corpus, MathArena's graded proofs, QED-Nano's in-distribution set and run records: one loader."""
    found = made(mill, tmp_path, record)
    (problem,) = found.table("problems/g").rows()
    (attempt,) = found.table("responses/g").rows()
    assert (problem["statement"], problem["guidelines"]) == (statement, guidelines)
    assert (attempt["text"], attempt["given_grade"], attempt["max_points"], attempt["tokens"]) == (
        text,
        given_grade,
        max_points,
        tokens,
    )


GRADINGBENCH = {  # the columns as published (docs of the recipe `verifier`); other values
    "Grading ID": "GB-0001", "Problem ID": "PB-1", "Problem": "Prove it.", "Solution": "Official.",
    "Grading guidelines": "(Partial) 1 point", "Response": "Attempt.", "Points": 6, "Reward": "Almost",
    "Problem Source": "made up",
}  # fmt: skip
EXPERTS = {
    "problem_id": "IMO-1", "problem": "Prove it.", "generator": "o3", "model_solution": "Attempt.", "expert_rating": 6.0,
    "reference_solution": "Official.", "marking_scheme": "(Partial) 1 point", "response_number": 1,
}  # fmt: skip
CORPUS = {"problem_id": "x", "problem": "Prove it.", "model_id": "openai/o3", "solution": "Attempt.", "score": [1, 0]}


@pytest.mark.parametrize(
    ("name", "record", "grade", "scheme", "solution"),
    [
        ("problems/gradingbench", GRADINGBENCH, (6, 7), "(Partial) 1 point", "Official."),
        ("problems/expert-test", EXPERTS, (6, 7), "(Partial) 1 point", "Official."),
        ("problems/opc-test", CORPUS, (0.5, 1), None, None),
    ],
)
def test_sets_of_the_recipe_verifier_are_read_as_it_names_their_columns(
    tmp_path, name, record, grade, scheme, solution
):
    """The statement, the attempt, its writer, the scheme and the official solution have their own places."""
    entry = replace(expand(yaml_files.read(ROOT / "config.yaml")).entries[name], path=str(tmp_path / "set.jsonl"))
    Path(entry.path).write_text(json.dumps(record) + "\n", encoding="utf-8")
    (problem,) = graded_proofs.problems(entry)
    ((_, attempt),) = graded_proofs.attempts(entry)
    assert (problem["statement"], problem["guidelines"], problem["solution"]) == ("Prove it.", scheme, solution)
    assert (attempt.text, (attempt.grade, attempt.max_points)) == ("Attempt.", grade)
    assert attempt.writer == (None if name.endswith("bench") else record.get("generator") or record["model_id"])


def test_truncated_run_is_empty_and_has_no_grades(mill, tmp_path):
    """An empty solution of a run record was truncated: 0 points by any grader, and counted as empty."""
    entry = {"grades/answers": {"responses": "responses/g", "grader": "final-answer"}}
    found = made(mill, tmp_path, RUN, {**RUN, "model_solution": "$x^2$ is a square.", "score": 7}, grader=entry)
    rows = found.table("grades/answers").rows()
    assert [(r["grade"], r["reason"], r["stop_reason"]) for r in rows] == [
        (0, "empty", "length"),
        (None, "no-gold", "end"),
    ]
    assert {r["reason"] for r in found.table("grades/human").rows()} == {"no-grade"}  # a score is a judge's


def test_ungraded_attempt_has_no_human_grade(mill, tmp_path):
    """An attempt without a human grade, or without text, has no grade; it is not 0."""
    ungraded = {**OPC, "human_label": None}
    heading = {**OPC, "proof": "Solution Sketch", "human_label": "incorrect"}
    rows = made(mill, tmp_path, OPC, ungraded, heading).table("grades/human").rows()
    assert [(row["grade"], row["reason"]) for row in rows] == [(1, "ok"), (None, "no-grade"), (None, "no-proof")]


@pytest.mark.parametrize("text", ["", "  ", "Solution Sketch", "## Solution Outline", "**Proof.**", "Answer:", "..."])
def test_heading_is_no_attempt(text):
    """A text with only a heading counts as empty."""
    assert not responses.is_attempt(text)


@pytest.mark.parametrize(
    "text", ["Solution. Trivial.", "$1=1$", "7", "I am sorry, I could not find a proof.", "Proof by induction"]
)
def test_short_text_is_an_attempt(text):
    """A short answer, an apology and a hint are attempts, and are graded."""
    assert responses.is_attempt(text)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"id": 1, "proof": "x"}, "no column for the problem .* expected one of problem, text"),
        ({"problem": "x", "points": 3}, "no column for the proof .* expected one of model_solution, proof"),
        ({**MATHARENA, "points": 8}, "`points` is 8; expected a grade from 0 to 7"),
        ({**MATHARENA, "points": "many"}, "`points` is 'many'; expected a grade from 0 to 7"),
        ({**MATHARENA, "details": [{"points": 3}]}, "no column `title`"),
    ],
)
def test_record_that_cannot_be_read_is_refused(mill, tmp_path, record, message):
    """A missing column or an impossible grade stops before any output, with file and line."""
    with pytest.raises(TableError, match=rf"graded.jsonl:2: .*{message}"):
        made(mill, tmp_path, OPC, record)


def test_problem_with_two_statements_is_refused(mill, tmp_path):
    """Attempts at two problems with one id would be graded against the wrong one."""
    with pytest.raises(TableError, match="problem `p1` has another statement than before"):
        made(mill, tmp_path, OPC, {**OPC, "problem": "Prove that $1+1=3$."})


def test_attempts_of_dropped_problems_are_left_out(mill, tmp_path):
    """A dropped problem has no attempts."""
    found = made(mill, tmp_path, OPC, {**OPC, "problem_id": "p2", "problem": "First solution."}, keep=["is-problem"])
    assert [row["dropped"] for row in found.table("problems/g").rows(kept=False)] == [None, "is-problem"]
    assert {row["problem"] for row in found.table("responses/g").rows()} == {"p1"}


def test_edited_file_of_attempts_makes_them_again(mill, tmp_path):
    """The responses depend on the file even if its problems stay the same."""
    found = made(mill, tmp_path, OPC)
    before = found.table("responses/g").stamp["fingerprint"]
    found = made(mill, tmp_path, {**OPC, "proof": "By induction."})
    table = found.table("responses/g")
    assert table.stamp["fingerprint"] != before
    assert [row["text"] for row in table.rows()] == ["By induction."]


def test_given_needs_a_source_with_attempts(mill):
    """A source without attempts is rejected when the configuration is read."""
    from proofmill.schema.errors import RecipeError

    with pytest.raises(RecipeError, match="source `arithmetic` has no attempts; expected one of the sources graded"):
        mill(SMALL | {"responses/g": {"problems": "problems/bench", "model": "given"}})
    with pytest.raises(RecipeError, match="responses/cold is sampled from a model"):
        mill(SMALL | {"grades/h": {"responses": "responses/cold", "grader": "human"}})


def test_solutions_are_graded_as_attempts(mill):
    """The problems' solutions get all points by the checker: a known result for the complete chain."""
    entries = {
        "problems/p": {"source": "arithmetic", "rows": 20},
        "responses/s": {"problems": "problems/p", "model": "solutions"},
        "grades/lines": {"responses": "responses/s", "grader": "arithmetic"},
        "grades/answers": {"responses": "responses/s", "grader": "final-answer"},
    }
    found = mill(entries)
    found.make(*entries)
    assert {(r["grade"], r["max_points"]) for r in found.table("grades/lines").rows()} == {(7, 7)}
    assert {(r["grade"], r["max_points"]) for r in found.table("grades/answers").rows()} == {(1, 1)}


# ------------------------------------------------------------------------------------------------------ runs of QED-Nano

# As `run.py` writes them: the columns of the benchmark, and those of the run.
PROOF_RUN = {
    "problem_id": "PB-Basic-001", "problem": "Prove $x^2\\ge 0$.", "solution": "Squares.", "grading_guidelines": "Partial: 1",
    "schema_0": [{"title": "Proof Grade", "desc": "Partial: 1", "points": 7}], "model_solution": "$x^2$ is a square.",
    "history": [
        {"role": "user", "content": "Prove it.", "type": None},
        {"role": "assistant", "content": "Well, squares.", "type": "cot"},
    ],
    "cost_run": {"cost": 0.1, "input_tokens": 30, "output_tokens": 900, "time": 5.0},
}  # fmt: skip
# As `eval.py` writes them over the run: the scheme is replaced by one of all problems.
JUDGED_RUN = {
    **PROOF_RUN, "schema_0": [{"title": "Proof Grade", "desc": "Points awarded for the proof.", "points": 7}],
    "grade": [{"points": 6, "desc": "<points>6 out of 7</points>"}], "grade_cost": {"cost": 0.2}, "score": 6.0,
}  # fmt: skip
ANSWER_RUN = {
    "problem_id": "a1", "problem": "Find $x$.", "answer": "3", "model_solution": "So \\boxed{3}.", "score": 1,
    "schema_0": [{"title": "Answer Correctness", "desc": "Whether the answer is correct.", "points": 1}],
    "cost_run": {"input_tokens": 30, "output_tokens": 90},
}  # fmt: skip


def runs(folder, *records, name="gemini"):
    """Return the problems and the attempts of a file of runs."""
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    entry = Problems(source="qed-nano", path=str(path))
    return list(graded_proofs.problems(entry)), [attempt for _, attempt in graded_proofs.attempts(entry)]


def test_runs_of_qed_nano_have_their_reasoning_and_the_grades_of_their_judge(mill, tmp_path):
    """Two runs at a problem, one truncated in its reasoning, and one failed call are in the tables as in the file."""
    cut = {**JUDGED_RUN, "model_solution": "", "score": 0}
    failed = {**cut, "history": [], "cost_run": {"input_tokens": 0, "output_tokens": 0}}
    path = tmp_path / "nano.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in (JUDGED_RUN, ANSWER_RUN, cut, failed)))
    entries = {
        "problems/q": {"source": "qed-nano", "path": str(path)},
        "responses/q": {"problems": "problems/q", "model": "given"},
        "grades/judge": {"responses": "responses/q", "grader": "human"},
        "grades/answers": {"responses": "responses/q", "grader": "final-answer"},
    }
    found = mill(entries)
    found.make(*entries)
    proof, answer = found.table("problems/q").rows()
    assert (proof["question_type"], proof["guidelines"], proof["solution"], proof["answer"]) == (
        "proof", "Partial: 1", "Squares.", None,
    )  # fmt: skip
    assert (answer["question_type"], answer["guidelines"], answer["answer"]) == ("answer", None, "3")
    rows = found.table("responses/q").rows()
    assert [(row["writer"], row["attempt"], row["stop_reason"], row["reason"], row["reasoning"]) for row in rows] == [
        ("nano", 0, "end", "ok", "Well, squares."),
        ("nano", 0, "end", "ok", None),
        ("nano", 1, "length", "ok", "Well, squares."),
        ("nano", 2, "error", "no-output", ""),
    ]
    assert [(row["prompt_tokens"], row["tokens"]) for row in rows] == [(30, 900), (30, 90), (30, 900), (0, 0)]
    all_points = [(row["grade"], row["max_points"]) for row in found.table("grades/judge").rows()]
    assert all_points == [(6, 7), (1, 1), (0, 7), (None, 0)]
    assert [row["grade"] for row in found.table("grades/answers").rows()] == [None, 1, 0, None]


def test_run_without_a_judge_has_no_grade(tmp_path):
    """Output of `run.py` alone, and a verdict that its judge's parser could not read, have no grade."""
    (problem,), attempts = runs(tmp_path, PROOF_RUN, {**JUDGED_RUN, "score": None})
    assert problem["guidelines"] == "Partial: 1"
    assert [(attempt.grade, attempt.max_points) for attempt in attempts] == [(None, None), (None, None)]


def test_guidelines_of_a_run_are_its_own_scheme(tmp_path):
    """A scheme of the problem is kept, also structured; the sentence common to all records is not a scheme."""
    scheme = {"title": "Idea", "desc": "the idea", "points": 7}
    bare = {name: value for name, value in JUDGED_RUN.items() if name != "grading_guidelines"}
    assert runs(tmp_path, bare)[0][0]["guidelines"] is None
    assert (
        runs(tmp_path, {**bare, "schema_0": [scheme]})[0][0]["guidelines"] == "# Idea (7 points)\nDescription: the idea"
    )
    assert runs(tmp_path, {**bare, "grading_scheme": "1. Idea"})[0][0]["guidelines"] == "1. Idea"


def test_grades_of_a_grader_study_are_read_with_those_of_humans(tmp_path):
    """`grading.py` adds `graded_score` to the human `points`; `qed-nano` reads the former, `graded` the latter."""
    judged = {**MATHARENA, "graded_score": 5}
    _, (attempt,) = runs(tmp_path, judged)
    assert (attempt.text, attempt.grade, attempt.max_points) == ("Clearly.", 5, 7)
    entry = Problems(source="graded-proofs", path=str(tmp_path / "gemini.jsonl"))
    assert [found.grade for _, found in graded_proofs.attempts(entry)] == [3]


def test_history_of_an_agent_is_no_reasoning(tmp_path):
    """Its steps are separate conversations; the final text is the attempt."""
    steps = [{"step": "init", "timestep": 1, "messages": [{"role": "assistant", "type": "cot", "content": "hm"}]}]
    _, (attempt,) = runs(tmp_path, {**PROOF_RUN, "history": steps})
    assert (attempt.reasoning, attempt.text) == (None, "$x^2$ is a square.")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"problem": "x", "answer": "3"}, "no column for the attempt .* expected one of model_solution"),
        ({**JUDGED_RUN, "score": 8}, "`score` is 8; expected a grade from 0 to 7"),
        ({**ANSWER_RUN, "score": 2}, "`score` is 2; expected a grade from 0 to 1"),
        ({**PROOF_RUN, "history": "x"}, "`history` is a text .*; expected a list of records"),
        ({**PROOF_RUN, "model_solution": 5}, "`model_solution` is a number .*; expected text"),
    ],
)
def test_run_that_cannot_be_read_is_refused(tmp_path, record, message):
    """The message has the file and the line."""
    with pytest.raises(TableError, match=rf"gemini.jsonl:2: {message}"):
        runs(tmp_path, PROOF_RUN, record)


# ------------------------------------------------------------------------------------------------------------ real data


def test_open_proof_corpus_loads_and_its_degenerate_rows_are_named(mill, data):
    """155 proofs at 36 problems; two headings are no problem and no proof; the rest has human verdicts."""
    entries = {
        "problems/opc": {
            "source": "graded-proofs",
            "path": str(data / "opc/graded_proofs.jsonl"),
            "keep": ["has-statement", "is-problem"],
        },
        "responses/opc": {"problems": "problems/opc", "model": "given"},
        "grades/opc": {"responses": "responses/opc", "grader": "human"},
    }
    found = mill(entries)
    found.make(*entries)
    problems = found.table("problems/opc").rows(kept=False)
    assert len(problems) == 36
    assert [p["evidence"] for p in problems if p["dropped"]] == ["states no problem: First solution."]
    attempts = found.table("responses/opc").rows()
    assert [a["text"] for a in attempts if a["reason"] == "no-proof"] == ["Solution Outline"]
    grades = found.table("grades/opc").rows()
    assert len(grades) == len(attempts) > 150
    assert {g["grade"] for g in grades if g["reason"] == "ok"} == {0, 1}


def test_every_benchmark_here_loads(mill, data):
    """Each published set has its rows, and `is-problem` keeps all statements."""
    sets = {
        "proofbench": ("proofbench", "imobench/proofbench_v2.csv", 60),
        "answerbench": ("answerbench", "imobench/answerbench_v2.csv", 400),
        "usamo": ("matharena", "usamo_2025", 6),
        "harp": ("harp", "harp/proof_even.jsonl", 155),
        "math": ("math", "math/train_every5th.jsonl", 1500),
        "gsm8k": ("gsm8k", "gsm8k/test_first660.jsonl", 660),
        "aime": ("aime", "aime/aime24.jsonl", 30),
    }
    for name, (source, path, count) in sets.items():
        entry = {"source": source, "path": str(data / path), "keep": ["has-statement", "is-problem"]}
        rows = mill({f"problems/{name}": entry}).make(f"problems/{name}").rows(kept=False)
        assert (name, len(rows), []) == (name, count, [r["statement"] for r in rows if r["dropped"] == "is-problem"])


def test_olympiadbench_is_read(mill, tmp_path):
    """Several answers are one, proofs have none, further solutions are candidates."""
    rows = [
        {"id": 1, "question": "Find $x$.", "solution": ["a", "b"], "final_answer": ["2", "3"], "subfield": "Algebra"},
        {"id": 2, "question": "Prove it.", "solution": ["c"], "final_answer": None},
    ]
    (tmp_path / "o.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    entry = {"source": "olympiadbench", "path": str(tmp_path / "o.jsonl")}
    one, two = mill({"problems/o": entry}).make("problems/o").rows()
    assert (one["answer"], one["question_type"], one["solution"], one["candidates"], one["tags"]) == (
        "2, 3",
        "answer",
        "a",
        ["b"],
        ["Algebra"],
    )
    assert (two["answer"], two["question_type"], two["problem"]) == (None, "proof", "olympiadbench-2")


def test_graded_attempts_of_the_family_agree_with_the_checker(mill):
    """Flawed proofs for rehearsals have the checker's grades, some below all points."""
    entry = Problems(source="arithmetic-graded", rows=10)
    found = list(graded_proofs.attempts(entry))
    assert len(found) == 40 and len(list(graded_proofs.problems(entry))) == 10
    assert len({attempt.grade for _, attempt in found}) > 2


def test_columns_may_be_named_and_verdicts_of_several_people_are_their_mean(tmp_path):
    """`columns` names the proof and the grades; these columns are not read as anything else, such as the solution."""
    record = {"problem_id": "p1", "problem": "Prove it.", "solution": "So it is.", "score": [1, 0], "model_id": "m"}
    path = tmp_path / "opc.jsonl"
    path.write_text(json.dumps(record) + "\n")
    entry = Problems(source="graded-proofs", path=str(path), columns={"proof": "solution", "human_label": "score"})
    ((_, attempt),) = graded_proofs.attempts(entry)
    assert (attempt.text, attempt.grade, attempt.max_points) == ("So it is.", 0.5, 1)
    assert [row["solution"] for row in graded_proofs.problems(entry)] == [None]
