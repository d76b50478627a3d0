"""A server with every misbehaviour: each stage ends with a message, and loses no rows, money or key."""

import math
import random
import resource

import pytest

from misbehaving import BODIES, HTTP, ODD, echoes, misbehaving, mutated_body, reply
from proofmill.calls import pacing, records
from proofmill.calls.budget import Budget
from proofmill.calls.calls import Asker
from proofmill.calls.journal import Journal
from proofmill.calls.model_requests import ModelRequest, Requests
from proofmill.engines import retries
from proofmill.engines.open_engine import open_api
from proofmill.schema.entries.declared import Api
from proofmill.schema.errors import ServiceError
from served import GOOD

KEY = "sk-very-secret-0123456789"
MOST = (len("question 0") * 1.0 + 100 * 10.0) / 1e6  # dollars that a call may cost
IN_FLIGHT = 4


@pytest.fixture(scope="module")
def server():
    with misbehaving() as running:
        yield running


@pytest.fixture
def stage(server, monkeypatch, tmp_path):
    """Return `stage(does, when, rows)`, which makes a call for every row; None if the stage stops with a message."""
    url, state = server
    for module in (pacing, retries):
        monkeypatch.setattr(module, "backoff", lambda failures: 0.0)
    monkeypatch.setenv("PROOFMILL_JUDGE_URL", url)
    monkeypatch.setenv("PROOFMILL_JUDGE_KEY", KEY)
    monkeypatch.setenv("PROOFMILL_CALL_TIMEOUT", "20")
    monkeypatch.setenv("PROOFMILL_CONCURRENCY", str(IN_FLIGHT))
    calls = tmp_path / "calls"

    def asked(does, when=lambda number: True, rows=6, budget=1.0):
        state.does, state.when, state.asked = does, when, 0
        requests = [(f"row {n}", ModelRequest("m", (("user", f"question {n}"),), max_tokens=100)) for n in range(rows)]
        api = Api(id="m", price={"input": 1.0, "output": 10.0}, max_failed=1.0)
        with open_api("api/judge", api) as engine, Journal(calls / "test/x") as journal:
            asker = Asker("test/x", engine, journal, Budget(budget, calls, journal))
            try:
                return list(asker(Requests(rows, lambda: requests)))
            except (ServiceError, SystemExit) as stopped:
                assert len(str(stopped)) > 20
                return None

    asked.calls, asked.state = calls / "test/x", state
    return asked


BAD = HTTP | BODIES


def test_there_are_enough_misbehaviours():
    """The collection is large, and its names are distinct."""
    assert len(BAD) + len(ODD) + len(echoes(KEY)) >= 145
    assert len(BAD) == len(HTTP) + len(BODIES)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("does", BAD.values(), ids=BAD)
def test_one_bad_reply_costs_its_row_and_no_more(stage, does):
    """After one bad reply all other rows are answered. Its row is answered or failed with a reason; a rerun has all."""
    answers = stage(does, when=lambda number: number == 0)
    others = [answer for answer in answers if answer.text != "fine"]
    assert len(others) <= 1
    assert all(a.detail or a.finish_reason for a in others)
    assert {a.text for a in stage(reply(GOOD))} == {"fine"}
    assert not (stage.calls / "damaged.jsonl").exists()


@pytest.mark.sampled(10)
@pytest.mark.parametrize("does", BAD.values(), ids=BAD)
def test_bad_replies_alone_end_the_stage_within_the_budget(stage, does):
    """A server that only misbehaves ends every stage with a message or failed rows, within the budget."""
    budget = 10 * MOST
    answers = stage(does, budget=budget)
    rows = records.frame(stage.calls)
    assert records.cost(stage.calls) <= budget + 1e-12
    for answer in answers or ():
        assert answer.stop_reason == "error" or answer.text == ""
    assert rows.height == 0 or rows["cost"].min() >= 0
    assert {a.text for a in stage(reply(GOOD))} <= {"fine", ""}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("does", ODD.values(), ids=ODD)
def test_odd_reply_is_the_answer_of_a_good_server(stage, does):
    """Odd fields change no text, and each try costs between 0 and the reserved amount."""
    answers = stage(does)
    assert [(a.text, a.stop_reason, a.reason) for a in answers] == [("fine", "end", "ok")] * 6
    assert all(0 < a.cost <= a.tries * MOST and a.tokens >= 0 and len(a.model) <= 200 for a in answers)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("does", echoes(KEY).values(), ids=echoes(KEY))
def test_key_that_a_server_echoes_is_nowhere_on_disk(stage, tmp_path, does, capsys):
    """No file and no message contains the key, in any form or field; the rest of the text stays."""
    answers = stage(does)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*.jsonl"))
    written += str(records.frame(stage.calls).to_dicts()).encode()
    shown = written.decode(errors="replace") + "".join(capsys.readouterr())
    forms = {
        KEY,
        KEY.encode().hex(),
        KEY[: len(KEY) // 2 + 4],
        KEY[len(KEY) // 2 - 4 :],
        "c2stdmVyeS1zZWNyZXQ",
        "stdmVyeS1zZWNyZX",
    }
    assert not {form for form in forms if form in shown}
    assert all(a.stop_reason == "error" or "fine" in a.text for a in answers)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in HTTP if "bomb" in name or "endless" in name])
def test_endless_reply_takes_little_memory(stage, name):
    """Memory stays far below the size of the reply, even for a small one that unpacks to gigabytes."""
    stage(reply(GOOD), rows=1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stage(HTTP[name], rows=2)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024  # KiB; 2 x 3 replies of 64 MiB


# ------------------------------------------------------------------------------------------------------- generated replies


@pytest.mark.long
def test_two_thousand_generated_replies_cost_at_most_their_rows(stage, monkeypatch):
    """For any mutation of a good reply, each row has a text or a reason, and costs are finite."""
    rng = random.Random(0)
    made = [reply(mutated_body(rng)) for _ in range(2000)]
    monkeypatch.setattr(stage.state, "answers", lambda: next(coming, reply(GOOD)))
    coming = iter(made)
    answers = stage(
        None, rows=1000, budget=5000.0
    )  # enough for each failure to cost as much as the most expensive reply
    for answer in answers:
        assert (
            answer.text
            or answer.reasoning
            or answer.stop_reason in ("error", "length")
            or answer.reason in ("ok", "refused")
        )
        assert answer.cost is not None
        assert 0 <= answer.cost < math.inf
    assert sum(answer.text == "fine" for answer in answers) > 500
    with Journal(stage.calls) as journal:
        assert 0 < journal.spent <= 5000.0
    assert records.frame(stage.calls).height == 1000
    assert not (stage.calls / "damaged.jsonl").exists()
