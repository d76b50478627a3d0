"""Responses: one row per attempt, sampled from a model or taken from existing attempts."""

import polars as pl
import pytest

from mill import REFEREE, SMALL
from proofmill.artifacts.states import States
from proofmill.calls.model_requests import ModelOutput, why_none
from proofmill.responses import is_attempt
from proofmill.schema.errors import RecipeError
from proofmill.schema.kinds import ROLLOUTS
from served import GOOD, good, server


def test_each_problem_has_its_attempts(small):
    """Attempts are numbered from 0, and have ids and the messages of their request."""
    table = small.table("responses/cold").scan().collect()
    assert table.height == 2 * 12 and table["response"].n_unique() == table.height
    assert table.group_by("problem").agg(pl.col("attempt").sort())["attempt"].to_list() == [[0, 1]] * 12
    assert all(history[0]["role"] == "user" for history in table["request_messages"].to_list())
    assert set(table["stop_reason"]) <= {"end", "length"} and set(table["reason"]) == {"ok"}
    assert small.table("responses/cold").stamp["engine"] == "transformers"


def test_more_attempts_make_only_new_calls(small, mill, tmp_path):
    """With more attempts, the first ones stay the same: same prompt and seed, other samples."""
    fewer, more = (
        mill({**SMALL, "responses/numbered": {**SMALL["responses/cold"], "attempts": attempts}}) for attempts in (1, 2)
    )
    fewer.results = more.results = small.results
    first = {row["problem"]: row["text"] for row in fewer.make("responses/numbered").rows()}
    journal = small.results / "calls/responses/numbered"
    asked = pl.concat([pl.read_parquet(path) for path in sorted(journal.glob("*.parquet"))])
    rows = more.make("responses/numbered").rows()
    assert {row["problem"]: row["text"] for row in rows if row["attempt"] == 0} == first
    again = pl.concat([pl.read_parquet(path) for path in sorted(journal.glob("*.parquet"))])
    assert (asked.height, again.height) == (12, 24)


def test_solutions_are_attempts(small, mill):
    """`model: solutions` makes no calls: each solution is an attempt, word for word."""
    made = mill({**SMALL, "responses/official": {"problems": "problems/bench", "model": "solutions"}})
    made.results = small.results
    rows = made.make("responses/official").rows()
    solutions = {row["problem"]: row["solution"] for row in small.table("problems/bench").rows()}
    assert {row["problem"]: row["text"] for row in rows} == solutions
    assert {(row["writer"], row["attempt"], row["cost"]) for row in rows} == {("official", 0, 0.0)}
    assert not (small.results / "calls/responses/official").exists()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ModelOutput("", "end"), "no-output"),
        (ModelOutput(" \n", "end"), "no-output"),
        (ModelOutput("", "length"), "ok"),
        (ModelOutput("", "end", reasoning="hm"), "reasoning-only"),
        (ModelOutput("", "length", reasoning="hm"), "ok"),
        (ModelOutput("<think>hm", "end"), "reasoning-only"),
        (ModelOutput("<think>hm", "length"), "ok"),
        (ModelOutput("<think>hm</think>x", "end"), "ok"),
        (ModelOutput("it opens <think> and continues", "end"), "ok"),
        (ModelOutput("", "end", "refused"), "refused"),
        (ModelOutput("x", "end"), "ok"),
    ],
)
def test_failure_of_a_server_has_a_reason(answer, reason):
    """An empty output or reasoning alone is a failure of the server; a truncated, refused or complete output is not."""
    assert why_none(answer) == reason


@pytest.mark.parametrize(
    ("text", "says"),
    [("", False), ("## Solution Sketch", False), ("**Proof.**", False), ("Answer:", False), ("Proof. 1=1.", True)],
)
def test_heading_alone_is_not_an_attempt(text, says):
    """An attempt has text in addition to its heading."""
    assert is_attempt(text) is says


def test_refusal_is_a_row_with_its_reason(small, mill, monkeypatch):
    """A refused prompt is a row without text, with stop `end` and the reason; other prompts are answered."""

    def reply(request, number):
        if number == 0:
            return 400, {"error": {"code": "content_filter", "message": "content_filter"}}, {}
        return 200, good("So."), {}

    with server(reply) as (url, _):
        monkeypatch.setenv("PROOFMILL_SOLVER_URL", url)
        solver = {"id": "solver", "price": "unknown"}
        made = mill(
            {**SMALL, "api/solver": solver, "responses/x": {"problems": "problems/bench", "model": "api/solver"}}
        )
        made.results = small.results
        rows = made.make("responses/x").rows()
    assert sorted(row["reason"] for row in rows) == ["ok"] * 11 + ["refused"]
    assert [(row["text"], row["stop_reason"]) for row in rows if row["reason"] == "refused"] == [("", "end")]


def test_rollouts_require_a_training_with_rewards(mill):
    """Only trainings with rewards have `rollouts`."""
    with pytest.raises(RecipeError, match=r"`rollouts` is set and `model` is `sft/cold`; expected a grpo/<name>"):
        mill({**SMALL, "responses/x": {"problems": "problems/bench", "model": "sft/cold", "rollouts": True}})


def test_rollouts_of_a_training_are_its_attempts(small, mill, tmp_path):
    """Rollouts of kept problems become responses, with the ids and texts of the training."""
    entries = {
        **SMALL,
        "api/referee": REFEREE,
        "grpo/x": {
            "model": "sft/cold", "problems": "problems/train", "schemes": "schemes/train", "grader": "api/referee",
            "rewards": {"grade": 1}, "unscored": "drop", "group-size": 2, "problems-per-step": 2, "steps": 2, "max-tokens": 8,
        },
        "responses/x": {"problems": "problems/train", "model": "grpo/x", "rollouts": True},
    }  # fmt: skip
    made = mill(entries)
    made.results = small.results
    rows = made.make("grpo/x", "responses/x").rows()
    kept = pl.read_parquet(small.results / "grpo/x" / ROLLOUTS)
    assert {(row["response"], row["text"]) for row in rows} == set(kept.select("rollout", "text").iter_rows())


def test_refused_field_is_noted_and_does_not_affect_the_fingerprint(mill, monkeypatch):
    """The stamp has the notice; a later `omit` of the field does not change the table."""

    def refuses(request, number):
        refused = (400, {"error": {"message": "Unsupported parameter: 'seed'"}}, {})
        return refused if "seed" in request else (200, GOOD, {})

    api = {"id": "m", "price": {"input": 0, "output": 0}}
    entries = {
        "problems/few": {"source": "arithmetic", "rows": 3},
        "responses/x": {"problems": "problems/few", "model": "api/judge"},
    }
    with server(refuses) as (url, _):
        monkeypatch.setenv("PROOFMILL_JUDGE_URL", url)
        table = mill({**entries, "api/judge": api}).make("problems/few", "responses/x")
    assert {row["reason"] for row in table.rows()} == {"ok"}
    assert table.stamp["notices"] == ["api/judge does not accept `seed`; its requests omit them"]
    later = mill({**entries, "api/judge": {**api, "omit": ["seed"]}})
    assert States(later.config, later.results)["responses/x"].name == "done"
