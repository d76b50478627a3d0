"""Servers of a target are known before a run, tried all at once, and what is wrong with them is said in one go."""

import re
import socket
import sys
import time
from datetime import date

import pytest

from mill import REFEREE, Mill
from proofmill import __main__ as command
from proofmill.artifacts.states import States
from proofmill.calls import budget, records
from proofmill.engines import remote
from proofmill.planning.connections import connections, faults_of, find_due, require_answers, require_set
from proofmill.planning.plan import RunPlan
from proofmill.schema.errors import SettingError
from served import GOOD, server

ENTRIES = {
    "api/judge": {"id": "j", "price": {"input": 1, "output": 10}, "price-source": "x, 2026-01-01", "max-tokens": 512},
    "api/second": {"id": "s", "price": "unknown"},
    "api/solver": {"id": "v", "price": "unknown"},
    "api/unused": {"id": "u", "price": "unknown"},
    "grader/pair": {"judges": ["api/judge", "api/referee"], "escalate-to": "api/second"},
    "problems/p": {"source": "arithmetic", "rows": 4},
    "schemes/p": {"problems": "problems/p", "model": "api/judge"},
    "responses/r": {"problems": "problems/p", "model": "api/solver", "attempts": 2, "max-tokens": 100},
    "responses/own": {"problems": "problems/p", "model": "solutions"},
    "grades/g": {"responses": "responses/r", "schemes": "schemes/p", "grader": "grader/pair"},
}
FINE = (200, GOOD, {})


def asked(config, results, *names):
    return connections(config, find_due(config, States(config, results), names))


@pytest.fixture
def config(tmp_path):
    return Mill(tmp_path / "results", **ENTRIES).config


@pytest.fixture
def tried(config, tmp_path, monkeypatch):
    """Return `tried(reply, models, **api)`, which returns the faults of one model's server, and its requests."""

    def run(reply, models=None, dollars=None, **api):
        changed = {**ENTRIES, "api/judge": {**ENTRIES["api/judge"], **api}}
        with server(lambda *_: reply, models) as (url, served):
            monkeypatch.setenv("PROOFMILL_JUDGE_URL", url)
            monkeypatch.setenv("PROOFMILL_JUDGE_KEY", "sk-very-secret-0123456789")
            config = Mill(tmp_path / "results", **changed).config
            return list(
                faults_of(asked(config, tmp_path / "results", "schemes/p"), tmp_path / "results", dollars)
            ), served

    return run


def test_models_of_due_stages_are_known_at_any_distance(config, tmp_path):
    """Those of graders and of their escalation are; our own programs, and models that no stage calls, are not."""
    found = {each.model: each.stages for each in asked(config, tmp_path / "results", "grades/g", "responses/own")}
    assert found == {
        "api/judge": ("grades/g", "schemes/p"),
        "api/second": ("grades/g",),
        "api/solver": ("responses/r",),
    }


def test_stage_that_is_done_needs_no_server(tmp_path):
    """A finished table makes no calls, nor do its ancestors."""
    mill = Mill(tmp_path / "results", **{**ENTRIES, "api/judge": REFEREE})
    mill.make("problems/p", "schemes/p", "responses/own")
    assert asked(mill.config, mill.results, "schemes/p", "responses/own") == []


def test_model_that_is_shut_down_is_named_with_its_successor(tmp_path, capsys, tried):
    """The plan says it before anything is paid, and so does the test of the servers; a future day is one."""
    gone = {"retired": date(2026, 3, 9), "replaced-by": "k", "checked": "x, 2026-11-23"}
    soon = {"id": "s", "price": "unknown", "retired": date(2999, 1, 1), "checked": "y, 2026-11-23"}
    config = Mill(
        tmp_path / "results", **{**ENTRIES, "api/second": soon, "api/judge": {**ENTRIES["api/judge"], **gone}}
    ).config
    plan = "\n".join(RunPlan(config, "grades/g", tmp_path / "results").lines(verbose=False))
    sentence = "j was shut down on 2026-03-09; its provider names k instead (x, 2026-11-23)"
    assert f"api/judge: {sentence}" in plan
    assert "api/second: s will be shut down on 2999-01-01 (y, 2026-11-23)" in plan
    faults, _ = tried(FINE, **gone)
    assert faults == [] and sentence in capsys.readouterr().err


def test_every_unset_or_wrong_variable_is_said_at_once(config, tmp_path, monkeypatch):
    """A missing address, a malformed one and an empty key are one message, and the plan has them too."""
    monkeypatch.setenv("PROOFMILL_SECOND_URL", "htp://127.0.0.1/v1")
    monkeypatch.setenv("PROOFMILL_SOLVER_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("PROOFMILL_SOLVER_KEY", "")
    with pytest.raises(SettingError) as refused:
        require_set(asked(config, tmp_path / "results", "grades/g"))
    said = str(refused.value)
    assert len(said.splitlines()) == 3
    for part in (
        "no PROOFMILL_JUDGE_URL",
        "PROOFMILL_SECOND_URL: is not the address",
        "PROOFMILL_SOLVER_KEY: the key is empty",
    ):
        assert part in said
    plan = RunPlan(config, "grades/g", tmp_path / "results")
    assert [line for line in plan.lines(verbose=True) if "no PROOFMILL_JUDGE_URL" in line and "grades/g" in line]
    assert {each["model"]: bool(each["fault"]) for each in plan.data()["connections"]} == {
        "api/judge": True,
        "api/second": True,
        "api/solver": True,
    }


def test_trials_are_in_the_budget_and_in_a_journal(tried, tmp_path, config, capsys):
    """The cost of a test is in a journal of the model; a failure costs its reserve; without budget no call is made."""
    calls = tmp_path / "results/calls"
    tried(FINE)
    assert records.frame(calls / "api/judge")["cost"].to_list() == [pytest.approx(30e-6)]
    assert budget.sum_costs(calls) == pytest.approx(30e-6)
    most = (len("Say yes.") * 1 + 10) / 1e6
    tried((500, {"error": {"message": "oops"}}, {}), dollars=1.0)
    assert budget.sum_costs(calls) == pytest.approx(30e-6 + most)
    faults, served = tried(FINE, dollars=30e-6 + most)
    assert (faults, served.requests) == ([], [])
    assert "was not tested: the budget has no room" in capsys.readouterr().err


def test_server_that_answers_has_no_fault_and_its_cost_is_said(tried, capsys):
    """One question of one token, with the key; (10 x 1 + 2 x 10) / 1e6 dollars."""
    faults, served = tried(FINE, [{"id": "j", "max_model_len": 4096}])
    assert faults == [] and re.search(r"api/judge  answers after \d\.\d s, for \$0.000030", capsys.readouterr().err)
    assert [(r["max_tokens"], r["model"], r["key"]) for r in served.requests] == [
        (1, "j", "Bearer sk-very-secret-0123456789")
    ]


@pytest.mark.parametrize(
    ("reply", "models", "said"),
    [
        ((401, {"error": {"message": "bad key sk-very-secret-0123456789"}}, {}), None, r"refuses every call: .*401.*PROOFMILL_JUDGE_KEY"),
        ((429, {"error": {"message": "no credit", "code": "insufficient_quota"}}, {}), None, "refuses every call: .*insufficient_quota"),
        ((404, {"error": {"message": "no such model"}}, {}), [{"id": "j-2"}, {"id": "other"}], "the model j .*Its models: j-2, other"),
        ((404, b"no route", {}), None, r"refuses every call: .*404.*PROOFMILL_JUDGE_URL"),
        ((400, {"error": {"message": "unknown field max_tokens"}}, {}), None, "unknown field max_tokens.*; expected .*`max-tokens-field`"),
        ((200, b"<html>welcome</html>", {}), None, r"unreadable reply.*<html>.*/v1\?"),
        (FINE, [{"id": "j", "max_model_len": 512}], "takes 512 tokens of prompt and answer .* answers of 512; .*Lower"),
    ],
)  # fmt: skip
def test_what_would_refuse_every_call_is_a_fault(tried, reply, models, said):
    """A refused key, no credit, an unknown model, a wrong path, a refused field, no API at all, too small a window."""
    faults, served = tried(reply, models)
    assert len(faults) == len(served.requests) == 1 and re.search(said, faults[0]), faults
    assert "secret" not in faults[0]


@pytest.mark.parametrize(
    "reply",
    [
        (429, {"error": {"message": "slow down"}}, {"Retry-After": "5"}),
        (503, {"error": {"message": "loading"}}, {}),
        (400, {"error": {"message": "Could not finish: max_tokens or model output limit was reached."}}, {}),
        (200, {**GOOD, "choices": [{**GOOD["choices"][0], "message": {"content": ""}, "finish_reason": "length"}]}, {}),
    ],
)
def test_what_passes_is_no_fault(tried, reply):
    """A busy server, and one that thinks longer than one token, were reached and refused nothing."""
    assert tried(reply)[0] == []


def test_all_servers_are_tried_at_once(config, tmp_path, monkeypatch):
    """A dead port, a host without a name and one that takes no connection are all said when the slowest is."""
    monkeypatch.setattr(remote, "CONNECT", 1.0)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        monkeypatch.setenv("PROOFMILL_JUDGE_URL", "http://127.0.0.1:9/v1")
        monkeypatch.setenv("PROOFMILL_SECOND_URL", "http://no-such-host.invalid/v1")
        monkeypatch.setenv("PROOFMILL_SOLVER_URL", f"http://127.0.0.1:{full.getsockname()[1]}/v1")
        start = time.monotonic()
        faults = sorted(faults_of(asked(config, tmp_path / "results", "grades/g"), tmp_path / "results", None))
        assert time.monotonic() - start < 5
        for one in waiting:
            one.close()
    assert [fault.partition(":")[0] for fault in faults] == ["api/judge", "api/second", "api/solver"]
    assert all("cannot be reached" in fault for fault in faults)


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Return `check(*words)`, which runs the command in a folder with the recipe `mine`; it returns exit code and
    output."""
    monkeypatch.chdir(tmp_path)
    entries = {name: entry for name, entry in ENTRIES.items() if name not in ("api/second", "grader/pair", "grades/g")}
    (tmp_path / "config.yaml").write_text(str({"mine": entries}).replace("'", '"'))

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["proofmill", "check", *words])
        code = 0
        try:
            command.main()
        except SystemExit as stop:
            code = stop.code
        return code, capsys.readouterr().out.splitlines()

    return run


def test_check_of_a_target_tries_its_servers(check, monkeypatch):
    """A recipe that nothing was made of, and an artifact by its path, have their servers tried; exit code 1 at a fault."""
    with server(lambda *_: FINE) as (url, served):
        monkeypatch.setenv("PROOFMILL_SOLVER_URL", url)
        assert check("results/responses/r.parquet") == (0, [])
        code, lines = check("mine")
    assert (code, len(lines), len(served.requests)) == (1, 1, 2) and "no PROOFMILL_JUDGE_URL" in lines[0]


def test_check_of_an_unknown_target_names_those_there_are(check):
    """Neither the recipes nor the results know it."""
    code, _ = check("mime")
    assert str(code).startswith("SettingError: mime: is in no recipe") and "Did you mean `mine`?" in code


def test_preflight_can_be_skipped(config, tmp_path, monkeypatch):
    """With PROOFMILL_PREFLIGHT=no, servers are not called; their settings are checked all the same."""
    for name in ("JUDGE", "SECOND", "SOLVER"):
        monkeypatch.setenv(f"PROOFMILL_{name}_URL", "http://127.0.0.1:9/v1")
    models = asked(config, tmp_path / "results", "grades/g")
    monkeypatch.setenv("PROOFMILL_PREFLIGHT", "no")
    require_answers(models, tmp_path / "results", None)
    monkeypatch.delenv("PROOFMILL_JUDGE_URL")
    with pytest.raises(SettingError, match="no PROOFMILL_JUDGE_URL"):
        require_answers(asked(config, tmp_path / "results", "grades/g"), tmp_path / "results", None)
