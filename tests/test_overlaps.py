"""Overlaps between tables: evidence rows, each reported once."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import islice

import pytest

from mill import REFEREE
from proofmill import overlaps
from proofmill.artifacts.tables import Table
from proofmill.planning.plan import RunPlan
from proofmill.schema.errors import RecipeError
from proofmill.synthetic import referee
from proofmill.synthetic.congruences import Congruence, problems, read, statement
from served import good, server

LONG = (
    "Let $a_1, a_2, \\ldots$ be a sequence of frogs jumping between lily pads numbered by primes; determine the least number of "
    "jumps after which every heron has eaten exactly seven frogs."
)
OTHER = "Find the remainder of $12345$ modulo $7$ when a snail carries it over the mountain called Rigi on a Tuesday in May."


def tables(tmp_path, **files):
    entries = {}
    for name, rows in files.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"problem": id, "statement": text}) + "\n" for id, text in rows))
        entries[f"problems/{name}"] = {"source": "table", "path": str(path)}
    return entries


def find_overlaps(mill, entries, **entry):
    made = mill(entries | {"overlaps/o": entry})
    made.make(*entries, "overlaps/o")
    return made.table("overlaps/o")


def test_evidence_has_both_rows_method_and_span(mill, tmp_path):
    """A verbatim row is an exact match, and a row in a longer post shares a run; both have the matched text."""
    entries = tables(
        tmp_path,
        train=[("a", LONG), ("b", f"My teacher gave us this: {LONG} Any ideas?"), ("c", OTHER)],
        bench=[("x", LONG), ("y", "Prove that there are infinitely many primes.")],
    )
    table = find_overlaps(mill, entries, problems=["problems/train"], against=["problems/bench"], words=8)
    rows = {(r["problem"], r["method"]): r for r in table.rows()}
    assert set(rows) == {("a", "exact"), ("a", "ngram"), ("a", "minhash"), ("b", "ngram"), ("b", "minhash")}
    assert {(r["against"], r["against_problem"], r["problems"]) for r in rows.values()} == {
        ("problems/bench", "x", "problems/train")
    }
    assert "lily pads" in rows["b", "ngram"]["span"] and "teacher" not in rows["b", "ngram"]["span"]
    assert table.stamp["counts"] == {"searched": 3, "exact": 1, "ngram": 2, "minhash": 2}


def test_each_pair_is_reported_once(mill, tmp_path):
    """A table compared with itself reports each pair once, without self-matches; two tables compared both ways too."""
    entries = tables(tmp_path, train=[("a", LONG), ("b", LONG), ("c", OTHER)], test=[("t", OTHER)])
    rows = find_overlaps(
        mill, entries, problems=["problems/train"], against=["problems/train"], methods=["exact"]
    ).rows()
    assert [(r["problem"], r["against_problem"]) for r in rows] == [("a", "b")]
    both = {"problems": ["problems/train", "problems/test"], "against": ["problems/train", "problems/test"]}
    rows = find_overlaps(mill, entries, **both, methods=["exact"]).rows()
    assert sorted((r["problem"], r["against_problem"]) for r in rows) == [("a", "b"), ("c", "t")]


def test_dropped_rows_are_matched_only_in_benchmarks(mill, tmp_path, monkeypatch):
    """Dropped training rows are skipped, since they are not trained on; dropped benchmark rows are searched."""
    monkeypatch.setattr(overlaps, "BATCH", 1)
    entries = tables(tmp_path, train=[("a", LONG), ("short", "Why?")], bench=[("x", LONG), ("y", "Why?")])
    for name in entries:
        entries[name]["keep"] = [{"statement-length": [20, None]}]
    rows = find_overlaps(
        mill, entries, problems=["problems/train"], against=["problems/bench"], methods=["exact"]
    ).rows()
    assert [(r["problem"], r["against_problem"]) for r in rows] == [("a", "x")]
    entries["problems/train"]["keep"] = []
    rows = find_overlaps(
        mill, entries, problems=["problems/train"], against=["problems/bench"], methods=["exact"]
    ).rows()
    assert {r["against_problem"] for r in rows} >= {"x"}


def test_table_without_overlaps_is_empty(mill, tmp_path):
    """Without overlaps the table is empty, which is not an error."""
    entries = tables(tmp_path, train=[("a", LONG)], bench=[("x", OTHER)])
    table = find_overlaps(mill, entries, problems=["problems/train"], against=["problems/bench"])
    assert table.rows() == [] and table.stamp["counts"] == {"searched": 1}


def test_every_row_of_a_cluster_has_evidence(mill, tmp_path):
    """Each of thirty equal rows has a match, and a pair with a dropped row is reported for any ids."""
    entries = tables(tmp_path, train=[(f"r{n:02}", LONG) for n in range(30)], pair=[("a", LONG), ("f", LONG)])
    entries["problems/pair"]["keep"] = ["not-duplicate"]
    rows = find_overlaps(
        mill, entries, problems=["problems/train"], against=["problems/train"], methods=["exact"]
    ).rows()
    assert len({r["problem"] for r in rows} | {r["against_problem"] for r in rows}) == 30
    rows = find_overlaps(mill, entries, problems=["problems/pair"], against=["problems/pair"], methods=["exact"]).rows()
    assert [{r["problem"], r["against_problem"]} for r in rows] == [{"a", "f"}]


# ---------------------------------------------------------------------------------------------------------------- judge

POWERS = Congruence("powers", 5, (2, 3, 4, 2, 1))  # 2^3 + 4^2 + 1
TURNED = Congruence("powers", 5, (4, 2, 2, 3, 1))  # the same sum
ANOTHER = Congruence("powers", 5, (4, 3, 2, 2, 2))
STEPS = Congruence("recurrence", 7, (3, 4, 5, 3))
JUDGED = {
    "problems": ["problems/train"],
    "against": ["problems/bench"],
    "methods": ["exact", "judge"],
    "model": "api/referee",
    "candidates": 4,
}
BENCH = [("powers", statement(POWERS)), ("steps", statement(STEPS))]
TRAIN = [
    ("copy", statement(POWERS)),
    ("reworded", statement(POWERS, 1)),
    ("turned", statement(TURNED, 1)),
    ("another", statement(ANOTHER, 1)),
    ("steps", f"An old one.\n{statement(STEPS, 1)}"),
]


def judged(mill, tmp_path, train=TRAIN, **entry):
    """Return a mill with all tables except `overlaps/o`."""
    entries = tables(tmp_path, train=train, bench=BENCH)
    made = mill(entries | {"overlaps/o": {**JUDGED, **entry}})
    made.make(*entries)
    return made


def by_judge(table):
    return {(row["problem"], row["against_problem"]): row["reason"] for row in table.rows() if row["method"] == "judge"}


def test_judge_finds_only_rewordings_of_the_same_problem(mill, tmp_path):
    """The referee finds rewordings and reordered terms, but not a problem with other numbers."""
    table = judged(mill, tmp_path).make("overlaps/o")
    assert by_judge(table) == {
        ("reworded", "powers"): "ok",
        ("turned", "powers"): "ok",
        ("steps", "steps"): "ok",
    }
    assert [(row["problem"], row["reason"]) for row in table.rows() if row["method"] == "exact"] == [("copy", "ok")]
    (span,) = {row["span"] for row in table.rows() if row["problem"] == "steps"}
    assert span == " ".join(TRAIN[-1][1].split())
    assert table.stamp["counts"] == {"searched": 5, "exact": 1, "judged": table.stamp["counts"]["judged"], "judge": 3}
    assert table.stamp["cost"] == 0 and table.stamp["failures"] == 0


def test_pairs_of_other_methods_are_not_judged(mill, tmp_path):
    """An exact copy costs no call, and does not displace another candidate."""
    alone = judged(mill, tmp_path, methods=["judge"]).make("overlaps/o")
    assert by_judge(alone)["copy", "powers"] == "ok"
    after = judged(mill, tmp_path, candidates=1).make("overlaps/o")
    assert ("copy", "powers") not in by_judge(after) and after.stamp["counts"]["judged"] <= 2


def test_each_pair_of_a_table_is_judged_once(mill, tmp_path):
    """Rows are not compared with themselves, and pairs are compared once."""
    entry = {"problems": ["problems/train"], "against": ["problems/train"], "methods": ["judge"]}
    table = judged(mill, tmp_path, train=TRAIN[1:4], **entry).make("overlaps/o")
    assert [{row["problem"], row["against_problem"]} for row in table.rows()] == [{"reworded", "turned"}]
    assert table.stamp["counts"]["judged"] == 3


def test_pair_outside_the_family_is_undecided(mill, tmp_path):
    """A pair outside the referee's family is a row with the reason, never a missing row."""
    strange = f"Would you kindly show that {POWERS.formula} leaves nothing when divided by 5?"
    table = judged(mill, tmp_path, train=[("strange", strange)], parse_retries=1).make("overlaps/o")
    assert by_judge(table) == {("strange", "powers"): "no-verdict"}
    assert table.stamp["counts"] == {"searched": 1, "judged": 1, "no-verdict": 1}


def saying(texts=None, fault=None):
    """Return replies of the referee that fail on the calls for which `fault(number)` is true."""

    def reply(request, number):
        if fault and fault(number):
            return 400, {"error": {"message": "broken"}}, {}
        return 200, good(referee.verdict(request["messages"][0]["content"])), {}

    return server(reply)


PRICED = {
    **REFEREE,
    "price": {"input": 1.0, "output": 1.0},
    "price-source": "https://example.org/pricing, 2026-11-20",
    "max-failed": 1.0,
}


def test_failed_call_is_undecided_and_retried(mill, tmp_path, monkeypatch):
    """A failed call is a row with its reason; a rerun repeats only this call."""
    with saying(fault=lambda number: number == 1) as (url, served):
        monkeypatch.setenv("PROOFMILL_REFEREE_URL", url)
        monkeypatch.setenv("PROOFMILL_CONCURRENCY", "1")
        made = judged(lambda entries: mill({**entries, "api/referee": PRICED}), tmp_path)
        first = made.make("overlaps/o")
        failed = {pair: reason for pair, reason in by_judge(first).items() if reason != "ok"}
        asked = len(served.requests)
        assert list(failed.values()) == ["provider"] and asked == first.stamp["counts"]["judged"]
        again = made.make("overlaps/o")
    assert len(served.requests) == asked + 1
    assert set(by_judge(again).values()) == {"ok"} and set(by_judge(first)) - set(failed) <= set(by_judge(again))


def test_rebuild_makes_no_calls(mill, tmp_path, monkeypatch):
    """The table is restored from the archive, and a rebuild from its journal is equal."""
    with saying() as (url, served):
        monkeypatch.setenv("PROOFMILL_REFEREE_URL", url)
        made = judged(mill, tmp_path)
        rows, asked = made.make("overlaps/o").rows(), len(served.requests)
        assert made.make("overlaps/o").rows() == rows
        monkeypatch.setenv("PROOFMILL_FORCE", "overlaps")
        assert made.make("overlaps/o").rows() == rows
        assert len(served.requests) == asked > 0


def test_exhausted_budget_stops_and_resumes(mill, tmp_path, monkeypatch):
    """Without budget for a call no table is written; with a higher budget, completed calls are not repeated."""
    with saying() as (url, served):
        monkeypatch.setenv("PROOFMILL_REFEREE_URL", url)
        monkeypatch.setenv("PROOFMILL_CONCURRENCY", "1")
        api = {**PRICED, "max-tokens": 100, "price": {"input": 1.0, "output": 1000.0}}
        made = judged(lambda entries: mill({**entries, "api/referee": api}), tmp_path)
        made.config = replace(made.config, budget=0.105)
        with pytest.raises(SystemExit, match="budget"):
            made.make("overlaps/o")
        asked = len(served.requests)
        assert not made.table("overlaps/o").path.exists() and asked >= 1
        plan = RunPlan(made.config, "overlaps/o", made.results).stages["overlaps/o"]
        assert plan.exact and plan.cached == asked and plan.calls > 0
        made.config = replace(made.config, budget=None)
        table = made.make("overlaps/o")
        assert len(served.requests) == asked + plan.calls == table.stamp["counts"]["judged"]


def test_plan_counts_the_judged_pairs(mill, tmp_path):
    """The count is exact if the tables exist, else estimated from the statements of `against`."""
    made = judged(mill, tmp_path)
    stage = RunPlan(made.config, "overlaps/o", made.results).stages["overlaps/o"]
    assert stage.exact and stage.calls == made.make("overlaps/o").stamp["counts"]["judged"]
    entries = {"problems/bench": {"source": "arithmetic", "split": "test", "rows": 6}}
    far = mill({**entries, "overlaps/o": {**JUDGED, "problems": ["problems/bench"]}})
    stage = RunPlan(far.config, "overlaps/o", tmp_path / "nothing").stages["overlaps/o"]
    assert not stage.exact and stage.calls == 6 * JUDGED["candidates"]


@pytest.mark.slow
def test_kill_loses_no_output(tmp_path):
    """After a `kill -9` the next run makes only the remaining calls, and ends with the table of an undisturbed run."""
    rows = [(f"r{n}", statement(problem, 1)) for n, problem in enumerate(islice(problems("train", 3), 30))]
    entries = tables(tmp_path, train=rows, bench=[(id, statement(read(text))) for id, text in rows])
    entry = {**JUDGED, "methods": ["judge"]}
    recipe = {"test": {**entries, "api/referee": REFEREE, "overlaps/o": entry}}
    (tmp_path / "config.yaml").write_text(json.dumps(recipe))
    seen = threading.Event()

    def reply(request, number):
        if number == 40:
            seen.set()
        if number >= 40 and not resumed:
            time.sleep(60)
        return 200, good(referee.verdict(request["messages"][0]["content"])), {}

    resumed: list[bool] = []
    with server(reply) as (url, served):
        environment = {**os.environ, "PROOFMILL_REFEREE_URL": url, "PROOFMILL_CONCURRENCY": "2"}
        command = [sys.executable, "-m", "proofmill.overlaps", "overlaps/o"]
        for name in entries:
            subprocess.run([*command[:2], "proofmill.problems", name], cwd=tmp_path, env=environment, check=True)
        with subprocess.Popen(command, cwd=tmp_path, env=environment) as running:
            assert seen.wait(120)
            running.kill()
        resumed.append(True)
        before = len(served.requests)
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    table = Table("overlaps/o", tmp_path / "results")
    assert {row["reason"] for row in table.rows()} == {"ok"}
    assert {row["problem"] for row in table.rows() if row["problem"] == row["against_problem"]} == {
        id for id, _ in rows
    }
    in_flight = 2
    assert len(served.requests) <= table.stamp["counts"]["judged"] + in_flight and before >= 40


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": None}, "`model` is not set; expected both `judge` and a `model`"),
        ({"methods": ["exact"]}, "`methods` are exact and `model` is api/referee"),
        (
            {"prompt": "classify"},
            "has the fields comments, origin, solution; expected a prompt with only statement, other",
        ),
        ({"prompt": "solve-any"}, "prompt `solve-any` declares no verdict"),
    ],
)
def test_judge_that_cannot_decide_is_refused_before_a_call(mill, fields, said):
    """A judge without a model, a model without a judge, and prompts with other fields or verdicts are refused."""
    entry = {name: value for name, value in {**JUDGED, **fields}.items() if value is not None}
    entries = {name: {"source": "arithmetic", "rows": 2} for name in ("problems/train", "problems/bench")}
    with pytest.raises(RecipeError, match=re.escape(said)):
        mill({**entries, "overlaps/o": entry})
