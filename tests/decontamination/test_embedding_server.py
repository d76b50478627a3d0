"""Overlaps by vectors of a server: requests, replies that are not believed unread, costs, plans and kills."""

import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from mill import REFEREE
from proofmill.artifacts.maintenance.invalidation import invalidate
from proofmill.artifacts.tables import Table
from proofmill.calls.model_requests import ModelRequest
from proofmill.decontamination.embeddings import unpack
from proofmill.engines import preflight
from proofmill.engines.replies import UnreadableReply, read
from proofmill.planning.connections import connections
from proofmill.planning.plan import RunPlan
from proofmill.schema.errors import RecipeError, ServiceError
from proofmill.synthetic.congruences import Congruence, statement
from vectors import API, DIMENSIONS, encoded, overlaps_of, tables, vector_server, vectors_reply

WORDS = [
    "harbor",
    "lantern",
    "otter",
    "violin",
    "glacier",
    "pepper",
    "saddle",
    "comet",
    "willow",
    "anchor",
    "marble",
    "thistle",
]
BENCH = [(f"b{n}", " ".join(WORDS[n : n + 4])) for n in range(8)]
TRAIN = [("copy", "violin otter lantern harbor"), ("near", "harbor lantern otter parrot"), ("other", "walrus zebra")]
ENTRY = {"methods": ["embedding"], "embedding": "api/vectors"}


def made(mill, tmp_path, train=TRAIN, bench=BENCH, api=API, **entry):
    return overlaps_of(
        lambda entries: mill({**entries, "api/vectors": api}), tables(tmp_path, train=train, bench=bench), **ENTRY | entry
    )  # fmt: skip


def found(table):
    return [(row["problem"], row["against_problem"], row["similarity"]) for row in table.rows()]


def test_vectors_of_a_server_are_matched_by_their_index(mill, tmp_path, monkeypatch):
    """One request has many inputs and no sampling setting. Vectors in another order belong to their inputs."""
    with vector_server(monkeypatch) as served:
        table = made(mill, tmp_path)
    assert found(table) == [("copy", "b0", 1.0)]
    assert {request["path"] for request in served.requests} == {"/v1/embeddings"}
    assert set(served.requests[0]) == {"input", "model", "path", "key"}
    assert sum(len(request["input"]) for request in served.requests) == 11 and len(served.requests) <= 4
    tokens = sum(sum(map(len, request["input"])) // 3 for request in served.requests)
    assert table.stamp["cost"] == pytest.approx(tokens * 100 / 1e6)


def test_every_vector_is_paid_for_once(mill, tmp_path, monkeypatch):
    """A rebuild makes no call, also with another similarity; a new row costs the request that it is in."""
    with vector_server(monkeypatch) as served:
        first, calls = made(mill, tmp_path), len(served.requests)
        monkeypatch.setenv("PROOFMILL_FORCE", "overlaps")
        assert found(made(mill, tmp_path)) == found(first)
        assert {pair[0] for pair in found(made(mill, tmp_path, embedding_similarity=0.7))} == {"copy", "near"}
        assert len(served.requests) == calls
        made(mill, tmp_path, train=[("new", "parrot parrot"), *TRAIN])
        assert len(served.requests) <= calls + 2


def sent(body, inputs=("a b", "b c")):
    """Return the vectors of a reply to a request with these inputs."""
    request = ModelRequest("vectors-1", tuple(("input", text) for text in inputs))
    return unpack(read(json.dumps(body).encode(), "embeddings", request).text)


def with_vectors(*vectors, start=0):
    return {"data": [{"index": start + n, "embedding": vector} for n, vector in enumerate(vectors)]}


def test_numbers_and_base64_are_the_same_vectors():
    """Both encodings give the same normalized vectors, one for each input."""
    request = {"input": ["a b", "b c"], "model": "m"}
    plain, packed = sent(vectors_reply(request)), sent(vectors_reply(request, encode=encoded))
    assert [vector.tolist() for vector in plain] == [vector.tolist() for vector in packed]
    assert [vector.shape for vector in plain] == [(1, DIMENSIONS)] * 2
    assert float((plain[0] ** 2).sum()) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (with_vectors([1.0]), "1 vectors, with the indices [0], for 2 inputs"),
        (with_vectors([1.0], [1.0], [1.0]), "3 vectors, with the indices [0, 1, 2], for 2 inputs"),
        (with_vectors([1.0], [1.0], start=1), "2 vectors, with the indices [1, 2], for 2 inputs"),
        ({"data": [{"index": 0, "embedding": [1.0]}] * 2}, "2 vectors, with the indices [0, 0], for 2 inputs"),
        ({"data": [{"embedding": [1.0]}] * 2}, "missing required field `index`"),
        ({"data": [{"index": 10**30, "embedding": [1.0]}]}, "1 vectors"),
        (with_vectors([1.0, 2.0], [1.0]), "vectors of 1 and 2 dimensions"),
        (with_vectors([], []), "vectors of 0 dimensions"),
        (with_vectors([1.0], [0.0]), "vector 1 is zero"),
        (with_vectors([1.0], [math.nan]), "vector 1 has values that are not finite"),
        (with_vectors([math.inf], [1.0]), "vector 0 has values that are not finite"),
        (with_vectors([1.0], [10**400]), "Number out of range"),
        (with_vectors([1.0], [None]), "Expected `float`, got `null`"),
        (with_vectors([1.0], ["1"]), "Expected `float`, got `str`"),
        (with_vectors([[1.0]], [[1.0]]), "Expected `float`, got `array`"),
        (with_vectors("no base64!", "AAAA"), "Only base64 data is allowed"),
        (with_vectors("AAA=", "AAA="), "buffer size must be a multiple"),
        (with_vectors(encoded([math.nan]), encoded([1.0])), "vector 0 has values that are not finite"),
        ({"data": {}}, "Expected `array`, got `object`"),
        ({"choices": []}, "missing required field `data`"),
        ([], "Expected `object`, got `array`"),
    ],
)  # fmt: skip
def test_reply_that_is_not_a_vector_for_each_input_is_unreadable(body, said):
    """The message says what is wrong with the vectors."""
    with pytest.raises(UnreadableReply, match=re.escape(said)):
        sent(body)


@pytest.mark.parametrize(
    "reply",
    [
        (429, {"error": {"message": "slow down"}}, {"Retry-After": "0"}),
        (503, {"error": {"message": "loading"}}, {}),
        (200, with_vectors([1.0]), {}),
        (200, b'{"data": [{"index": 0, "embed', {}),
    ],
    ids=["429", "503", "too few", "truncated"],
)
def test_failed_request_is_repeated(mill, tmp_path, monkeypatch, reply):
    """After one failure of the server every statement has its vector."""
    monkeypatch.setattr("proofmill.engines.retries.backoff", lambda failures: 0.0)
    monkeypatch.setattr("proofmill.calls.pacing.backoff", lambda failures: 0.0)
    with vector_server(monkeypatch, lambda request, number: reply if number == 0 else None):
        table = made(mill, tmp_path)
    assert found(table) == [("copy", "b0", 1.0)] and "no-vector" not in table.stamp["counts"]


@pytest.mark.parametrize("status", [400, 413])
def test_text_that_a_server_refuses_costs_no_other_its_vector(mill, tmp_path, monkeypatch, status):
    """The inputs of a refused request are sent alone. The one that is too long has no vector, and is counted."""
    long = "walrus " * 50

    def reply(request, number):
        error = {"error": {"message": "Input validation error: `inputs` must have less than 512 tokens. Given: 534"}}
        return (status, error, {}) if any(len(text) > 300 for text in request["input"]) else None

    with vector_server(monkeypatch, reply) as served:
        table = made(mill, tmp_path, train=[*TRAIN, ("long", long)])
        assert found(table) == [("copy", "b0", 1.0)] and table.stamp["counts"]["no-vector"] == 1
        calls = len(served.requests)
        monkeypatch.setenv("PROOFMILL_FORCE", "overlaps")
        assert found(made(mill, tmp_path, train=[*TRAIN, ("long", long)])) == found(table)
        assert len(served.requests) == calls


def test_vectors_of_two_models_are_not_compared(mill, tmp_path, monkeypatch):
    """Another model, or another number of dimensions, within a table is an error that says how to go on."""
    for change in ({"model": "vectors-2"}, {"data": [{"index": 0, "embedding": [1.0, 2.0]}]}):
        with vector_server(
            monkeypatch,
            lambda request, number, change=change: (
                (200, {**vectors_reply(request), **change}, {}) if request["input"] == ["walrus zebra"] else None
            ),
        ):
            folder = tmp_path / str(len(change["data"]) if "data" in change else 0)
            folder.mkdir()
            bench = [(f"c{n}", f"clover {n}") for n in range(200)]
            with pytest.raises(ServiceError, match=r"expected those of one model.*invalidate overlaps/o --all"):
                made(mill, folder, train=[("alone", "walrus zebra")], bench=bench)


def test_refused_key_stops_with_a_message(mill, tmp_path, monkeypatch):
    """A server that refuses every call stops the stage; no table is written."""
    refuse = lambda request, number: (401, {"error": {"message": "invalid key"}}, {})  # noqa: E731
    with vector_server(monkeypatch, refuse), pytest.raises(SystemExit, match=r"PROOFMILL_VECTORS_KEY"):
        made(mill, tmp_path)


# ------------------------------------------------------------------------------------------------- plans and judges


def test_plan_counts_requests_and_the_budget_holds(mill, tmp_path, monkeypatch):
    """A plan has the exact number of requests, without a table an estimate. A spent budget stops, and a rerun resumes."""
    bench = [(f"c{n}", f"clover {n} of {n * n}") for n in range(400)]
    entries = tables(tmp_path, train=TRAIN, bench=bench) | {"api/vectors": API}
    config = mill({**entries, "overlaps/o": {"problems": ["problems/train"], "against": ["problems/bench"], **ENTRY}})
    stage = RunPlan(config.config, "overlaps/o", config.results).stages["overlaps/o"]
    assert not stage.exact and 10 < stage.calls < 40
    config.make("problems/train", "problems/bench")
    with vector_server(monkeypatch) as served:
        plan = RunPlan(config.config, "overlaps/o", config.results)
        stage = plan.stages["overlaps/o"]
        assert stage.exact and 10 < stage.calls < 40
        monkeypatch.setenv("PROOFMILL_CONCURRENCY", "1")
        config.config = replace(config.config, budget=0.1)
        with pytest.raises(SystemExit, match="budget"):
            config.make("overlaps/o")
        asked = len(served.requests)
        config.config = replace(config.config, budget=None)
        rest = RunPlan(config.config, "overlaps/o", config.results).stages["overlaps/o"]
        assert 0 < asked < stage.calls and rest.calls == stage.calls - asked and rest.dollars.value > 0
        config.make("overlaps/o")
        assert len(served.requests) == stage.calls


JUDGED = [
    ("reworded", statement(Congruence("powers", 5, (2, 3, 4, 2, 1)), 1)),
    ("another", statement(Congruence("powers", 5, (4, 3, 2, 2, 2)), 1)),
]


def test_judge_decides_about_the_nearest_vectors(mill, tmp_path, monkeypatch):
    """With a judge the nearest in vectors are judged, and no similarity decides; the plan says at most how many."""
    bench = [("powers", statement(Congruence("powers", 5, (2, 3, 4, 2, 1))))]
    entry = {"methods": ["embedding", "judge"], "model": "api/referee", "candidates": 1, "embedding_similarity": 0.0}

    def reply(request, number):  # vectors by which only one row is near
        near = [[1.0, 0.1 * ("remainder" in text)] if "2^3" in text else [0.0, 1.0] for text in request["input"]]
        return 200, with_vectors(*near), {}

    entries = tables(tmp_path, train=JUDGED, bench=bench) | {"api/vectors": API, "api/referee": REFEREE}
    with vector_server(monkeypatch, reply) as served:
        table = overlaps_of(mill, entries, **ENTRY | entry)
    (row,) = table.rows()
    assert (row["problem"], row["method"], row["reason"]) == ("reworded", "judge", "ok") and row["similarity"] > 0.9
    assert table.stamp["counts"] == {"searched": 2, "judged": 1, "judge": 1}
    pair = {"problems": ["problems/train"], "against": ["problems/bench"]}
    config = mill(
        {**entries, "overlaps/o": {**pair, **ENTRY, "methods": entry["methods"], "model": "api/referee"}}
    ).config
    assert invalidate(config, table, ["method=judge"]).rows == 1
    stage = RunPlan(config, "overlaps/o", table.results).stages["overlaps/o"]
    assert stage.at_most and (stage.cached, stage.calls) == (len(served.requests), 5)
    assert "no outputs yet" in stage.learned  # those of the vectors say nothing about a judge


def test_preflight_asks_for_a_vector(mill, tmp_path, monkeypatch):
    """The test of a connection sends one input. A server with a short context is not refused: there is no output."""
    entries = tables(tmp_path, train=TRAIN, bench=BENCH) | {"api/vectors": API}
    config = mill(
        {**entries, "overlaps/o": {"problems": ["problems/train"], "against": ["problems/bench"], **ENTRY}}
    ).config
    (connection,) = connections(config, ["overlaps/o"])
    with vector_server(monkeypatch) as served:
        (trial,) = preflight.try_models({"api/vectors": (connection.api, connection.most)}, tmp_path / "results", None)
    assert (trial.fault, connection.most) == ("", 0) and trial.cost > 0
    assert [request["input"] for request in served.requests] == [["Say yes."]]
    with vector_server(monkeypatch, lambda request, number: (400, {"error": {"message": "no such field"}}, {})):
        (trial,) = preflight.try_models({"api/vectors": (connection.api, 0)}, tmp_path / "results", None)
    assert "refuses a request for a vector: " in trial.fault


@pytest.mark.parametrize(
    ("api", "entry", "said"),
    [
        ({"protocol": "chat"}, ENTRY, "`embedding` is `api/vectors` with `protocol: chat`; expected embeddings"),
        ({}, {"methods": ["judge"], "model": "api/vectors"}, "`model` is `api/vectors` with `protocol: embeddings`; expected chat or responses"),
        ({}, {"embedding": "api/vectors"}, "expected `embedding` in `methods`. Add it, or remove `embedding`"),
        ({}, {"embedding": "all-MiniLM", "methods": ["embedding"]}, "`embedding` is `all-MiniLM`; expected"),
        ({"id": None, "program": "referee"}, ENTRY, "`protocol` is embeddings with `program`"),
    ],
)  # fmt: skip
def test_model_of_another_protocol_is_refused_before_a_call(mill, tmp_path, api, entry, said):
    """A judge is no model of vectors, nor the other way round; `embedding` needs its method."""
    entries = tables(tmp_path, train=TRAIN, bench=BENCH)
    entries["api/vectors"] = {key: value for key, value in {**API, **api}.items() if value is not None}
    with pytest.raises(RecipeError, match=re.escape(said)):
        mill({**entries, "overlaps/o": {"problems": ["problems/train"], "against": ["problems/bench"], **entry}})


@pytest.mark.slow
def test_kill_pays_for_no_vector_twice(tmp_path, monkeypatch):
    """After a `kill -9` the next run makes only the remaining requests, and ends with the table of one without it."""
    entries = tables(tmp_path, train=[(f"r{n}", f"parrot {n} {n * n}") for n in range(600)], bench=BENCH)
    entry = {"problems": ["problems/train"], "against": ["problems/bench"], **ENTRY}
    recipe = {"test": {**entries, "api/vectors": API, "overlaps/o": entry}}
    (tmp_path / "config.yaml").write_text(json.dumps(recipe))
    seen, resumed = threading.Event(), []

    def reply(request, number):
        if number == 12:
            seen.set()
        if number >= 12 and not resumed:
            time.sleep(60)

    with vector_server(monkeypatch, reply) as served:
        environment = {**os.environ, "PROOFMILL_CONCURRENCY": "2"}
        for name in entries:
            subprocess.run(
                [sys.executable, "-m", "proofmill.problems", name], cwd=tmp_path, env=environment, check=True
            )
        command = [sys.executable, "-m", "proofmill.overlaps", "overlaps/o"]
        with subprocess.Popen(command, cwd=tmp_path, env=environment) as running:
            assert seen.wait(120)
            time.sleep(0.5)  # for the answers before it to reach the journal
            running.kill()
        resumed.append(True)
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    inputs = [tuple(request["input"]) for request in served.requests]
    in_flight = 2
    assert len(inputs) - len(set(inputs)) <= in_flight
    assert sum(map(len, set(inputs))) == 608
    assert Table("overlaps/o", tmp_path / "results").stamp["counts"] == {"searched": 600}
