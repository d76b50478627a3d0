"""Responses until it is known: rules that end the attempts at a problem, or the list of problems."""

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

from mill import SMALL, Mill
from proofmill.artifacts.maintenance.invalidation import invalidate
from proofmill.artifacts.tables import Table
from proofmill.estimation.sequential import Band, looks, p_value
from proofmill.planning.plan import RunPlan
from proofmill.schema.errors import RecipeError, SettingError
from served import good, server


def luck(request) -> float:
    """Return a number from 0 to 1 that depends on a request alone."""
    text = json.dumps([request["messages"], request.get("seed")])
    return zlib.crc32(text.encode()) / 2**32


def solver(request, number):
    """Answer `1 + n` correctly as often as n tenths, `weak` less often, and judge answers by their first word."""
    content = request["messages"][-1]["content"]
    if request["model"] == "judge":
        return 200, good("<points>7</points>" if "Correct" in content else "<points>0</points>"), {}
    rate = int(re.search(r"\$1 \+ (\d+)", content)[1]) % 11 / 10 - (0.3 if request["model"] == "weak" else 0)
    return 200, good(f"{'Correct' if luck(request) < rate else 'Wrong'}, with sample {request.get('seed')}."), {}


def tried(folder, number=11, **fields):
    """Return entries with problems of pass rates 0, 0.1, ... 1, sampled until they are known."""
    rows = [{"statement": f"Compute $1 + {n}$, please.", "answer": str(1 + n)} for n in range(number)]
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


def compared(folder, **fields):
    """Return entries with 120 problems, asked until it is known that a model is better than a weaker one."""
    free = {"price": {"input": 0, "output": 0}, "max-tokens": 64}
    graded = {"grader": "api/judge", "grader-prompt": "grade-imo"}
    rule = {"attempts": 2, "until": "sign", "against": ["grades/weak"], **fields}
    return {
        **tried(folder, 120, **rule),
        "api/weak": {"id": "weak", **free},
        "responses/weak": {"problems": "problems/sums", "model": "api/weak", "attempts": 2},
        "grades/weak": {"responses": "responses/weak", **graded},
        "scores/both": {"grades": ["grades/weak", "grades/tried"], "metrics": ["avg-at-k", {"pass-at-k": 2}],
                        "compare": [["api/solver", "api/weak"]]},
    }  # fmt: skip


@contextmanager
def solving(monkeypatch):
    with server(solver) as (url, served):
        monkeypatch.setenv("PROOFMILL_SOLVER_URL", url)
        monkeypatch.setenv("PROOFMILL_JUDGE_URL", url)
        monkeypatch.setenv("PROOFMILL_WEAK_URL", url)
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
    for where, everything in ((["grade=0.0"], False), ([], True)):
        with pytest.raises(
            SettingError, match=r"are in the journal of responses/tried.*proofmill invalidate responses/tried"
        ):
            invalidate(made.config, grades, where, everything)
    assert grades.path.exists()


def test_later_extension_repeats_no_call(mill, monkeypatch, tmp_path):
    """With a higher maximum only open problems get attempts, and all earlier ones stay."""
    with solving(monkeypatch) as served:
        before = mill(tried(tmp_path, attempts=12)).make("problems/sums", "responses/tried").scan().collect()
        calls = len(served.requests)
        after = mill(tried(tmp_path, attempts=24)).make("responses/tried").scan().collect()
        assert len(served.requests) - calls == 2 * (after.height - before.height)
    assert set(before["response"]) <= set(after["response"])


@pytest.mark.slow
@pytest.mark.parametrize("entries_of", [tried, compared])
def test_kills_and_shards_change_nothing(monkeypatch, tmp_path, entries_of):
    """Killed 20 times, and made by two shards, the table is that of an undisturbed run; no answered call is repeated."""
    entries, in_flight = entries_of(tmp_path), 4
    parents = ["problems/sums", *(["responses/weak", "grades/weak"] if entries_of is compared else [])]
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
            **os.environ, "PROOFMILL_SOLVER_URL": url, "PROOFMILL_JUDGE_URL": url,
            "PROOFMILL_WEAK_URL": url, "PROOFMILL_CONCURRENCY": str(in_flight),
        }  # fmt: skip
        for name in ("plain", "killed", "sharded"):
            folder = tmp_path / name
            folder.mkdir()
            (folder / "config.yaml").write_text(json.dumps({"test": entries}))
            for parent in parents:
                command = [sys.executable, "-m", f"proofmill.{parent.split('/')[0]}", parent]
                subprocess.run(command, cwd=folder, env=environment, check=True)
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


# ------------------------------------------------------------------------------------------------- rules over problems


def by_problem(grades):
    """Return the mean share of the points by problem."""
    return dict(grades.scan().group_by("problem").agg(pl.col("grade").mean() / 7).collect().iter_rows())


MADE = ("problems/sums", "responses/weak", "grades/weak", "responses/tried", "grades/tried")


def test_problems_end_once_the_sign_is_known(mill, monkeypatch, tmp_path):
    """Only as many problems are asked as the comparison needs; its interval and p are those of the rule."""
    with solving(monkeypatch) as served:
        made = mill(compared(tmp_path))
        grades, scores = made.make(*MADE), made.make("scores/both")
        asked = Counter(request["model"] for request in served.requests)
    ours, theirs = by_problem(grades), by_problem(made.table("grades/weak"))
    differences = [share - theirs[problem] for problem, share in ours.items()]
    ends = [number for number in looks(120, 16) if number <= len(ours)]
    assert ends[-1] == len(ours) < 120 and p_value(differences) <= 0.05 and sum(differences) > 0
    assert asked == {"solver": 2 * len(ours), "weak": 240, "judge": 240 + 2 * len(ours)}
    (said,) = made.table("responses/tried").stamp["ended"]
    assert said == (f"{2 * len(ours)} of at most 240 attempts, at {len(ours)} of 120 problems: higher than grades/weak")
    rows = {(row["metric"], bool(row["baseline"])): row for row in scores.scan().collect().iter_rows(named=True)}
    row = rows["avg@2", True]
    assert row["p_value"] == pytest.approx(p_value(differences)) and 0 < row["low"] < row["value"] < row["high"]
    assert rows["pass@2", True]["low"] is not None
    assert f"- responses/tried: {said}; a rule ended the calls" in scores.path.with_suffix(".md").read_text()


def test_a_stricter_rule_repeats_no_call(mill, monkeypatch, tmp_path):
    """With a smaller error more problems are asked, and all earlier ones stay."""
    with solving(monkeypatch) as served:
        before = mill(compared(tmp_path, error=0.2)).make(*MADE[:4]).scan().collect()
        calls = len(served.requests)
        after = mill(compared(tmp_path, error=1e-6)).make("responses/tried").scan().collect()
        assert len(served.requests) - calls == 2 * (after.height - before.height) > 0
    assert set(before["response"]) < set(after["response"])
    assert after["response"][: before.height].to_list() == before["response"].to_list()


def test_problems_end_once_the_interval_is_narrow(mill, monkeypatch, tmp_path):
    """The interval of the scores is the one that ended the calls."""
    entries = compared(tmp_path, until={"width": 0.35}, against=[])
    with solving(monkeypatch):
        made = mill(entries)
        made.make(*MADE)
        scores = made.make("scores/both").scan().collect().filter(model="api/solver", metric="avg@2", slice="all")
    row = scores.filter(pl.col("baseline").is_null()).row(0, named=True)
    assert row["n_problems"] < 120 and row["high"] - row["low"] <= 0.35 * 7
    assert row["low"] < row["value"] < row["high"]


def test_scores_ask_with_a_rule(mill, monkeypatch, tmp_path):
    """A sampling setting with a rule has it in the responses of the models that are compared with others."""
    entries = compared(tmp_path)
    kept = {name: entries[name] for name in ("api/solver", "api/weak", "api/judge", "problems/sums")}
    rule = {"attempts": 2, "until": "sign", "against": ["api/weak"]}
    scores = {
        "models": ["api/solver", "api/weak"], "problems": ["problems/sums"], "sampling": {"rule": rule},
        "grader": "api/judge", "grader-prompt": "grade-imo", "metrics": ["avg-at-k"], "confidence": 0.9,
        "compare": [["api/solver", "api/weak"]],
    }  # fmt: skip
    made = mill({**kept, "scores/all": scores}).config
    ours, theirs = (made.entries[f"responses/api-{model}@sums@rule"] for model in ("solver", "weak"))
    assert (ours.until, ours.against, ours.error, ours.grader) == (
        "sign", ["grades/api-weak@sums@rule"], 0.1, "api/judge",
    )  # fmt: skip
    assert (theirs.until, theirs.against, theirs.grader) == (None, [], None)
    with pytest.raises(RecipeError, match="`against` names `api/other`, which is not in `models`"):
        mill({**kept, "scores/all": {**scores, "sampling": {"rule": {**rule, "against": ["api/other"]}}}})
    with pytest.raises(RecipeError, match="which decides over problems, not over seeds"):
        mill({**kept, "scores/all": scores, "scores/seeds": {"repeat": "scores/all", "seeds": [0, 1]}})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"against": []}, "found one of `until: sign` and `against`; expected both or none"),
        ({"until": {"width": 0.1}}, "found one of `until: sign` and `against`; expected both or none"),
        ({"until": {"width": 0}, "against": []}, "`until.width` is 0; expected a width above 0"),
        ({"grader": "answer", "grader-prompt": None}, "graded by api/judge, and `grader` is answer"),
        ({"problems": "problems/other"}, "about problems/sums, and `problems` is problems/other"),
    ],
)
def test_mistakes_in_a_rule_over_problems_are_found_first(mill, tmp_path, fields, said):
    """A rule compares grades of the same problems by the same grader."""
    entries = compared(tmp_path, **fields)
    entries["problems/other"] = {"source": "table", "path": str(tmp_path / "sums.jsonl"), "rows": 5}
    with pytest.raises(RecipeError, match=said):
        mill(entries)


def test_plan_forecasts_the_problems_of_a_rule(mill, tmp_path):
    """The plan has the maximum of calls, and the problems to expect."""
    made = mill(compared(tmp_path))
    made.make("problems/sums")
    stage = RunPlan(made.config, "responses/tried", made.results).stages["responses/tried"]
    assert stage.calls == 2 * 240 and stage.at_most and "by the difference: 120 at 0.05, " in stage.shows[0]


def test_weights_in_the_job_are_asked_group_by_group(small, mill):
    """A model in this process and a program as the grader: several groups, and an engine that is loaded once."""
    rule = {"attempts": 1, "until": {"width": 0.18}, "grader": "arithmetic", "max-tokens": 24}
    made = Mill(
        small.results, **SMALL, **{"responses/rule": {"problems": "problems/train", "model": "sft/cold", **rule}}
    )
    table = made.make("responses/rule")
    assert table.scan().collect().height in [*looks(48, 16)][1:-1]
    assert "of at most 48 attempts" in table.stamp["ended"][0] and "the mean is between" in table.stamp["ended"][0]
