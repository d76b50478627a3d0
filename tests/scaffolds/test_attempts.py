"""Attempts by a scaffold: calls to real servers through the journal, roles of other models, plans, and resuming."""

import json

import pytest

from mill import SMALL
from proofmill.planning.plan import RunPlan
from proofmill.schema.errors import RecipeError, ServiceError
from served import good, server

RSA = {"name": "rsa", "population": 3, "rounds": 1, "aggregation-size": 2}
CALLS = 3 + 3 + 2
SOLVER = {"id": "solver", "price": {"input": 1, "output": 2}, "price-source": "test, 2026-11-01", "max-failed": 1.0}
JUDGE = {"id": "judge", "price": {"input": 1, "output": 2}, "price-source": "test, 2026-11-01"}


def entry(**fields):
    return {"problems": "problems/bench", "model": "api/solver", "scaffold": RSA, **fields}


@pytest.fixture
def attempted(small, mill, monkeypatch, request):
    """Return `attempted(reply, **fields)`, which makes attempts with a server that answers `reply(request, number)`."""
    name = "responses/" + request.node.name[5:].replace("_", "-")

    def make(reply, **fields):
        with server(reply) as (url, served):
            for who in ("SOLVER", "JUDGE"):
                monkeypatch.setenv(f"PROOFMILL_{who}_URL", url)
            made = mill({**SMALL, "api/solver": SOLVER, "api/judge": JUDGE, name: entry(**fields)})
            made.results = small.results
            try:
                return made, made.make(name), served
            except ServiceError:
                return made, None, served

    return make


def numbered(request, number):
    return 200, good(f"Reply {number}."), {}


def test_row_has_its_calls_as_steps_and_costs_what_they_cost(attempted):
    """Each of 12 problems takes 8 calls; tokens and dollars of a row are those of its steps, and so are the stage's."""
    _, table, served = attempted(numbered)
    rows = table.rows()
    assert len(served.requests) == 12 * CALLS
    for row in rows:
        assert [step["role"] for step in row["steps"]] == ["solver"] * 3 + ["merger"] * 3 + ["selector"] * 2
        assert row["tokens"] == 2 * CALLS
        assert row["cost"] == pytest.approx((row["prompt_tokens"] * 1 + row["tokens"] * 2) / 1e6)
        assert row["text"] == row["steps"][row["answer_step"]]["text"]
        assert row["steps"][-1]["depth"] == 4
        assert len(row["steps"][-1]["inputs"]) == 2
    assert table.stamp["cost"] == pytest.approx(sum(row["cost"] for row in rows))
    assert len({row["response"] for row in rows}) == 12


def test_roles_are_played_by_the_models_that_they_are_given_to(attempted):
    """A selector of another model has its own settings; the other roles have the solver's."""
    _, table, served = attempted(numbered, scaffold={**RSA, "roles": {"selector": "api/judge"}})
    asked = [request["model"] for request in served.requests]
    assert (asked.count("solver"), asked.count("judge")) == (12 * 6, 12 * 2)
    assert {step["model"] for row in table.rows() for step in row["steps"] if step["role"] == "selector"} == {
        "api/judge"
    }


def test_more_attempts_ask_only_the_further_ones(attempted):
    """The first attempt at each problem stays what it is."""
    _, table, _ = attempted(numbered)
    first = list(table.rows())
    _, second, served = attempted(numbered, attempts=2)
    assert len(served.requests) == 12 * CALLS
    texts = {(row["problem"], row["attempt"]): row["text"] for row in second.rows()}
    assert all(texts[row["problem"], 0] == row["text"] for row in first)


def test_call_that_fails_leaves_its_row_for_the_next_run(attempted):
    """A call that fails permanently gives a row with stop `error`; the next run repeats only it and later calls."""
    broken = []

    def reply(request, number):
        if "merge" in text_of(request) or "better than each" in text_of(request):
            broken.append(text_of(request))
            if broken[0] == text_of(request):
                return 500, {"error": {"message": "burns"}}, {}
        return numbered(request, number)

    _, table, served = attempted(reply)
    failed = [row for row in table.rows() if row["stop_reason"] == "error"]
    assert [(row["reason"], row["text"]) for row in failed] == [("provider", "")]
    before = {json.dumps(request, sort_keys=True) for request in served.requests}
    _, table, served = attempted(numbered)
    assert {row["stop_reason"] for row in table.rows()} == {"end"}
    again = [json.dumps(request, sort_keys=True) for request in served.requests]
    assert len(again) == len(set(again)) <= 3  # the call that failed, and the choice that needs it
    assert len(set(again) - before) == 2


def test_faults_of_a_server_change_no_count_of_answered_calls(attempted):
    """Every third request meets a busy server and is retried: the steps are the same."""
    busy = set()

    def reply(request, number):
        key = json.dumps(request, sort_keys=True)
        if number % 3 == 0 and key not in busy:
            busy.add(key)
            return 429, {"error": {"message": "busy"}}, {"Retry-After": "0.01"}
        return 200, good(f"Reply to {len(text_of(request))}."), {}

    _, table, served = attempted(reply)
    assert {len(row["steps"]) for row in table.rows()} == {CALLS}
    assert len(served.requests) == 12 * CALLS + len(busy)


def test_our_own_model_plays_every_role(small, mill):
    """Weights in this process can play: the prompts of the roles are in the journal like other requests."""
    made = mill({
        **SMALL,
        "responses/own": {
            "problems": "problems/bench", "model": "sft/cold", "max-tokens": 8, "prompt": "solve",
            "scaffold": {"name": "reasoning-cache", "iterations": 2, "prompts": {"continue-from-summary": "solve"}},
        },
    })  # fmt: skip
    made.results = small.results
    rows = made.make("responses/own").rows()
    assert len(rows) == 12
    assert all({step["role"] for step in row["steps"]} <= {"solver", "summarizer"} for row in rows)


def test_plan_says_how_many_calls_of_whom_and_how_deep(small, mill):
    """The plan has the least and the most calls of a row, and the most sequential calls."""
    made = mill({
        **SMALL, "api/solver": SOLVER, "api/judge": JUDGE,
        "responses/deep": entry(scaffold={"name": "deepseek-math", "roles": {"verifier": "api/judge"}}),
    })  # fmt: skip
    stage = RunPlan(made.config, "responses/deep", small.results).stages["responses/deep"]
    assert (stage.rows, stage.least, stage.calls, stage.depth) == (12, 12 * 20, 12 * 60, 6)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"scaffold": "rsaa"}, "`scaffold` names `rsaa`"),
        ({"scaffold": {"name": "rsa", "roles": {"merger": "api/nobody"}}}, "which no recipe declares"),
        ({"scaffold": {"name": "rsa", "roles": {"merger": "problems/bench"}}}, "expected"),
        ({"model": "solutions"}, "`scaffold` is set and the responses exist already"),
    ],
)
def test_mistakes_of_an_entry_are_said(mill, fields, says):
    """The recipe is refused, with the place of the fault."""
    with pytest.raises(RecipeError, match="responses/scaffold") as error:
        mill({**SMALL, "api/solver": SOLVER, "responses/scaffold": entry(**fields)})
    assert says in str(error.value)


def text_of(request) -> str:
    return request["messages"][-1]["content"]
