"""Responses: one row per attempt, sampled from a model or taken from existing attempts."""

import json
import os
import re
import subprocess
import sys
import time
import zlib
from collections import Counter
from contextlib import contextmanager, suppress

import polars as pl
import pytest

from mill import REFEREE, SMALL
from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.calls.model_requests import ModelOutput
from proofmill.estimation.sequential import Band, looks
from proofmill.planning.plan import RunPlan
from proofmill.responses import is_attempt, why_none
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


# ------------------------------------------------------------------------------------------------- until it is known


def luck(request) -> float:
    """Return a number from 0 to 1 that depends on a request alone."""
    text = json.dumps([request["messages"], request.get("seed")])
    return zlib.crc32(text.encode()) / 2**32


def solver(request, number):
    """Answer `1 + n` right as often as n tenths, and judge answers by their first word."""
    content = request["messages"][-1]["content"]
    if request["model"] == "judge":
        return 200, good("<points>7</points>" if "Correct" in content else "<points>0</points>"), {}
    rate = int(re.search(r"\$1 \+ (\d+)", content)[1]) / 10
    return 200, good(f"{'Correct' if luck(request) < rate else 'Wrong'}, with sample {request.get('seed')}."), {}


def tried(folder, **fields):
    """Return entries with 11 problems of pass rates 0, 0.1, ... 1, sampled until they are known."""
    rows = [{"statement": f"Compute $1 + {n}$, please.", "answer": str(1 + n)} for n in range(11)]
    (folder / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    free = {"price": {"input": 0, "output": 0}, "max-tokens": 64}
    return {
        "api/solver": {"id": "solver", **free},
        "api/judge": {"id": "judge", **free},
        "problems/sums": {"source": "table", "path": str(folder / "sums.jsonl")},
        "responses/tried": {
            "problems": "problems/sums", "model": "api/solver", "attempts": 30, "until": {"pass-rate": [0, 0.9]},
            "grader": "api/judge", "grader-prompt": "grade-imo", **fields,
        },
        "grades/tried": {"responses": "responses/tried", "grader": "api/judge", "grader-prompt": "grade-imo"},
    }  # fmt: skip


@contextmanager
def solving(monkeypatch):
    with server(solver) as (url, served):
        monkeypatch.setenv("PROOFMILL_SOLVER_URL", url)
        monkeypatch.setenv("PROOFMILL_JUDGE_URL", url)
        yield served


def test_attempts_end_once_the_pass_rate_is_known(mill, monkeypatch, tmp_path):
    """Each problem has as many attempts as its rule needs; grading the table calls no judge again."""
    with solving(monkeypatch) as served:
        made = mill(tried(tmp_path))
        grades = made.make("problems/sums", "responses/tried", "grades/tried")
        asked = Counter(request["model"] for request in served.requests)
    rows = made.table("responses/tried").scan().collect()
    shares = grades.scan().collect().group_by("problem").agg(pl.col("grade").sort() / 7)
    band = Band(0, 0.9)
    for problem, some in shares.iter_rows():
        ends = [number for number in looks(30) if number <= len(some)]
        assert ends[-1] == len(some) and (len(some) == 30 or band.decide(some)), problem
    assert asked["solver"] == asked["judge"] == rows.height == grades.scan().collect().height < 0.8 * 11 * 30
    assert grades.stamp["cost"] == 0 and not list(grades.calls.glob("*.parquet"))
    counts = made.table("responses/tried").stamp["counts"]
    assert sum(n for key, n in counts.items() if key.startswith("pass rate")) == 11 and counts["pass rate inside"] >= 5


def test_later_extension_repeats_no_call(mill, monkeypatch, tmp_path):
    """With a higher maximum only open problems get attempts, and all earlier ones stay."""
    with solving(monkeypatch) as served:
        before = mill(tried(tmp_path, attempts=12)).make("problems/sums", "responses/tried").scan().collect()
        calls = len(served.requests)
        after = mill(tried(tmp_path, attempts=24)).make("responses/tried").scan().collect()
        assert len(served.requests) - calls == 2 * (after.height - before.height)
    assert set(before["response"]) <= set(after["response"])


@pytest.mark.slow
def test_kills_and_shards_change_nothing(monkeypatch, tmp_path):
    """Killed 20 times, and made by two shards, the table is that of an undisturbed run; no answered call is repeated."""
    entries, in_flight = tried(tmp_path), 4
    answered: list[str] = []

    def reply(request, number):
        time.sleep(0.01)
        answered.append(json.dumps([request["model"], request["messages"], request.get("seed")]))
        return solver(request, number)

    def run(folder, *options, limit=None):
        command = [sys.executable, "-m", "proofmill.responses", "responses/tried", *options]
        with subprocess.Popen(command, cwd=folder, env=environment) as running:
            with suppress(subprocess.TimeoutExpired):
                return running.wait(limit)
            running.kill()
        return None

    tables = []
    with server(reply) as (url, _):
        environment = {
            **os.environ, "PROOFMILL_SOLVER_URL": url, "PROOFMILL_JUDGE_URL": url, "PROOFMILL_CONCURRENCY": str(in_flight),
        }  # fmt: skip
        for name in ("plain", "killed", "sharded"):
            folder = tmp_path / name
            folder.mkdir()
            (folder / "config.yaml").write_text(json.dumps({"test": entries}))
            subprocess.run(
                [sys.executable, "-m", "proofmill.problems", "problems/sums"], cwd=folder, env=environment, check=True
            )
            answered.clear()
            kills = 0
            if name == "killed":
                start = time.monotonic()
                assert run(tmp_path / "plain", limit=60) == 0  # nothing to do: the time of a start
                begun = time.monotonic() - start
                while kills < 20 and run(folder, limit=begun + 0.1 * kills) is None:
                    kills += 1
            if name == "sharded":
                assert [run(folder, "--shard", f"{n}/2") for n in (1, 2)] == [0, 0]
            assert run(folder) == 0
            repeats = len(answered) - len(set(answered))
            assert repeats <= kills * 2 * in_flight, (name, kills, repeats)
            assert name != "killed" or kills >= 3
            tables.append(Table("responses/tried", folder / "results").scan().collect().drop("cost"))
    assert tables[0].equals(tables[1]) and tables[0].equals(tables[2])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"grader": None}, "found one of `until` and `grader`; expected both or none"),
        ({"until": None}, "found one of `until` and `grader`; expected both or none"),
        (
            {"until": {"pass-rate": [0.9, 0.1]}},
            r"`until.pass-rate` is \[0.9, 0.1\]; expected a lower and a higher share",
        ),
        ({"until": {"pass-rate": [None, None]}}, "expected a lower and a higher share"),
        ({"until": {"width": [0, 1]}}, "until"),
        ({"model": "solutions"}, "`until` is set and no attempts are sampled one by one"),
    ],
)
def test_mistakes_in_a_rule_are_found_first(mill, tmp_path, fields, said):
    """A rule needs a model, a grader and two ordered bounds."""
    with pytest.raises(RecipeError, match=said):
        mill(tried(tmp_path, **fields))


def test_plan_forecasts_what_a_rule_needs(mill, tmp_path):
    """The plan has the maximum of calls, and the attempts to expect by pass rate."""
    made = mill(tried(tmp_path))
    made.make("problems/sums")
    stage = RunPlan(made.config, "responses/tried", made.results).stages["responses/tried"]
    assert (
        stage.calls == 2 * 11 * 30
        and stage.at_most
        and "30 at 0," in stage.shows[0]
        and "(at most 30)" in stage.shows[0]
    )
