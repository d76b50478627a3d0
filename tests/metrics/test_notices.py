"""Notices about low scores with another cause than wrong answers: in the log, the stamp and the score page."""

import json
from datetime import date

import pytest

from proofmill.metrics.notices import Notices
from served import good, server

PROBLEMS = [{"statement": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(1, 11)]
SCORED = {
    "models": ["api/solver"],
    "problems": ["problems/own"],
    "grader": "final-answer",
    "sampling": {"s": {"attempts": 1}},
    "metrics": ["avg-at-k"],
}


def noticed(*attempts, limit=128, reads="strict"):
    notices = Notices(limit, reads)
    for attempt in attempts:
        notices.add(*attempt)
    return notices.sentences()


def test_cut_off_attempts_say_at_how_many_tokens_and_what_to_raise():
    """The notice has the number, the share, and the field to change."""
    said = noticed(*[("length", "no-answer", 128)] * 10)
    assert said == ["10 of 10 attempts (100.0%) were truncated at 128 tokens: raise `max-tokens`"]


def test_limit_of_the_server_is_told_from_ours():
    """A response truncated long before `max-tokens` met the server's limit; raising `max-tokens` would not help."""
    (said,) = noticed(*[("length", "ok", 2048)] * 4, limit=8192)
    assert "truncated after at most 2,048 tokens, below `max-tokens` (8,192): raise the limit of the server" in said


def test_attempts_without_a_call_have_no_limit_to_raise():
    """For truncated attempts of others the notice has no advice."""
    assert noticed(("length", "empty"), limit=None) == ["1 of 1 attempts (100.0%) were truncated"]


@pytest.mark.parametrize(("few", "said"), [(1, 0), (2, 1)])
def test_small_share_is_not_worth_a_sentence(few, said):
    """One of twenty has no notice, two have one."""
    fine = [("end", "ok", 10, "strict")] * (20 - few)
    assert len(noticed(*fine, *[("length", "ok", 128)] * few)) == said


def test_attempt_counts_once_for_what_came_first():
    """An attempt truncated before its answer counts as truncated only."""
    assert len(noticed(*[("length", "no-answer", 128)] * 5, *[("end", "no-answer", 9, "flexible")] * 5)) == 2
    assert len(noticed(*[("length", "no-answer", 128)] * 5)) == 1


def test_each_sort_says_what_to_change():
    """Empty, unparsable and without an answer have advice of their own."""
    empty, unreadable, without = noticed(
        ("end", "empty"),
        ("end", "no-answer", 9, "flexible"),
        ("end", "no-answer", 9),
        ("end", "unparsable", 9, "strict"),
    )
    assert "`reasoning-end`" in empty and "escalate-to" in unreadable
    assert (
        without.startswith("2 of 4") and "1 of them a value elsewhere: request that form (`prompt: answer`)" in without
    )


def scored(mill, tmp_path, monkeypatch, write, **entries):
    """Score a real server that honors `max_tokens`: `write(n)` has n tokens to answer the problem n + n."""
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(problem) + "\n" for problem in PROBLEMS))

    def reply(request, _):
        words = write(request).split(" ")
        allowed = request["max_tokens"]
        cut = {"finish_reason": "length"} if len(words) > allowed else {}
        said = good(" ".join(words[:allowed]), **cut)
        return 200, {**said, "usage": {**said["usage"], "completion_tokens": min(len(words), allowed)}}, {}

    with server(reply) as (url, served):
        monkeypatch.setenv("PROOFMILL_SOLVER_URL", url)
        made = mill(
            {
                "api/solver": {"id": "solver", "price": "unknown", "max-tokens": 8192},
                "problems/own": {"source": "table", "path": str(path)},
                "scores/own": SCORED,
                **entries,
            }
        )
        names = [name for name in made.config.entries if name.startswith(("problems/", "responses/", "grades/"))]
        return made.make(*names, "scores/own"), made, served.requests


def thinking(request, tokens=1000, end="So \\boxed{{{}}}."):
    n = int(request["messages"][-1]["content"].split()[-1].rstrip("?"))
    return " ".join(["hm"] * tokens + [end.format(2 * n)])


def test_attempts_of_a_remote_model_have_its_own_limit_and_a_prompt_for_it(mill, tmp_path, monkeypatch):
    """With `max-tokens` set only at the model, long responses are complete, boxed and correct."""
    table, _, requests = scored(mill, tmp_path, monkeypatch, thinking)
    assert {request["max_tokens"] for request in requests} == {8192}
    assert all("\\boxed{}" in request["messages"][0]["content"] for request in requests)
    values = {row["metric"]: row["value"] for row in table.rows() if row["slice"] == "all"}
    assert values == {"avg@1": 1.0, "strict-answer-rate": 1.0, "flexible-answer-rate": 1.0}
    assert table.stamp["notices"] == [] and "raise" not in table.page.read_text()


def test_zero_of_a_truncated_attempt_says_so(mill, tmp_path, monkeypatch, capfd):
    """With a limit of 128 tokens in an entry, a score of 0 has a notice in every log, stamp and page."""
    sampling = {"s": {"attempts": 1, "max-tokens": 128}}
    table, made, requests = scored(
        mill, tmp_path, monkeypatch, thinking, **{"scores/own": {**SCORED, "sampling": sampling}}
    )
    says = "10 of 10 attempts (100.0%) were truncated at 128 tokens: raise `max-tokens`"
    assert {request["max_tokens"] for request in requests} == {128}
    page = table.page.read_text()
    assert "| strict-answer-rate | flexible-answer-rate |" in page and "| 0.00 [0.00, 0.2" in page
    assert f"- **api/solver** on problems/own by final-answer: {says}." in page
    assert table.stamp["notices"] == [f"api/solver on problems/own (s) by final-answer: {says}"]
    for name in ("responses/api-solver@own@s", "grades/api-solver@own@s"):
        assert made.table(name).stamp["notices"] == [says]
    log = capfd.readouterr().err  # each thing once: at the attempts, and with the scores
    assert log.count(says) == 1 and "1 of 1 scores have truncated, empty or unparsable attempts" in log


def test_answers_that_stand_in_no_box_are_found_flexibly(mill, tmp_path, monkeypatch):
    """`final-answer` gives 0 and reports where the answers are; `final-answer-flexible` reads the last value."""

    def write(request):
        return thinking(request, 3, "The answer is {}.")

    shares = {"strict-answer-rate": 0.0, "flexible-answer-rate": 1.0}
    for grader, grade, reason in (("final-answer", 0.0, "no-answer"), ("final-answer-flexible", 1.0, "ok")):
        entry = {"scores/own": {**SCORED, "grader": grader}}
        table, made, _ = scored(mill, tmp_path, monkeypatch, write, **entry)
        assert {row["metric"]: row["value"] for row in table.rows()} == {"avg@1": grade, **shares}
        assert ("10 of them a value elsewhere" in table.page.read_text()) == (grade == 0)
        rows = made.table("grades/api-solver@own@s").rows()
        assert {(row["answer_extraction"], row["reason"]) for row in rows} == {("flexible", reason)}
        assert {row["answer"] is None for row in rows} == {grade == 0}


def test_own_problems_with_years_have_no_published_splits(mill, tmp_path, monkeypatch):
    """2024/2025 and Others are splits of ProofBench; other data of those years has one table."""
    monkeypatch.setattr(f"{__name__}.PROBLEMS", [{**p, "year": 2020 + n} for n, p in enumerate(PROBLEMS)])
    table, *_ = scored(mill, tmp_path, monkeypatch, thinking)
    assert {row["slice"] for row in table.rows()} == {"all"}


def test_choices_are_graded_counted_and_split_by_date(mill, tmp_path, monkeypatch):
    """The letter decides, also in votes; a problem without a gold letter is unscored; dates split the scores."""
    problems = [
        {"statement": f"Which is {n}?", "right": None if n == 10 else f"{n} m", "wrong": "0 m"} for n in range(1, 11)
    ]
    monkeypatch.setattr(f"{__name__}.PROBLEMS", problems)

    def write(request):  # the model looks for the option; the sixth problem gets its words instead of its letter
        lines = request["messages"][-1]["content"].split("\n")
        n = next(line for line in lines if line.startswith("Which is"))[9:-1]
        letter = next((line[0] for line in lines if line.endswith(f". {n} m")), "A")
        return f"Option (B)? No, \\boxed{{{n} m}}" if n == "6" else f"So **Answer: ({letter.lower()})**"

    table, made, _ = scored(
        mill,
        tmp_path,
        monkeypatch,
        write,
        **{
            "problems/own": {
                "source": "table",
                "path": str(tmp_path / "own.jsonl"),
                "columns": {"statement": "statement"},
                "choices": ["right", "wrong"],
                "date": date(2025, 2, 15),
            },
            "scores/own": {
                **SCORED,
                "grader": "choice",
                "metrics": ["avg-at-k", {"majority-at-k": 1}],
                "released": {"api/solver": date(2025, 1, 20)},
            },
        },
    )
    found = {(row["metric"], row["slice"]): row for row in table.rows() if row["baseline"] is None}
    for metric in ("avg@1", "majority@1"):
        for part in ("all", "since 2025-01-20"):
            assert found[metric, part]["value"] == pytest.approx(8 / 9)
    assert found["avg@1", "all"]["unscored"] == 0.1
    rows = made.table("grades/api-solver@own@s").rows()
    assert sorted(row["reason"] for row in rows) == ["no-answer", "no-gold"] + ["ok"] * 8
    assert {row["answer"] for row in rows} == {None, "A", "B"}
