"""Remote servers that fail in every way, called through the real client over real HTTP."""

import errno
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from mill import REFEREE
from proofmill.base import train_tokenizer
from proofmill.calls import calls, pacing, records
from proofmill.calls.budget import Budget
from proofmill.calls.calls import Asker
from proofmill.calls.journal import Journal
from proofmill.calls.model_requests import ModelOutput, ModelRequest, Requests
from proofmill.calls.pacing import Pace
from proofmill.config.entry_values import entry_from
from proofmill.engines import remote, retries
from proofmill.engines.open_engine import open_api
from proofmill.engines.remote import ApiEngine, Endpoint
from proofmill.engines.retries import SAME_FAILURES
from proofmill.schema.entries.declared import Api
from proofmill.schema.errors import ServiceError, SettingError, TableError
from served import GOOD, good, server

KEY = "sk-very-secret-0123456789"
RESPONSE = {
    "id": "r", "object": "response", "created_at": 1, "model": "served", "status": "completed", "error": None,
    "incomplete_details": None, "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
    "output": [
        {"id": "a", "type": "reasoning", "summary": [{"type": "summary_text", "text": "I think"}]},
        {"id": "b", "type": "message", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "fine", "annotations": []}]},
    ],
    "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 6,
              "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 16},
}  # fmt: skip


@pytest.fixture
def hasty(monkeypatch):
    """Make retries wait for no time."""
    for module in (pacing, retries):
        monkeypatch.setattr(module, "backoff", lambda failures: 0.0)


@pytest.fixture
def ask(monkeypatch, tmp_path):
    """Return `ask(reply, count, **api)`, which gives a real server's answers and its requests; the journal is kept."""

    def asked(reply, count=1, budget=None, model="m", **api):
        reply = reply if callable(reply) else (lambda replies: lambda _, n: replies[min(n, len(replies) - 1)])(reply)
        sampling = {
            name: api.pop(name) for name in ("top_k", "min_p", "stop", "temperature", "logprobs") if name in api
        }
        declared = Api(**{"id": "m", "price": {"input": 1.0, "output": 10.0}, "max_failed": 1.0, **api})
        talks = [(("user", f"question {n}"),) for n in range(count)]
        made = [(f"row-{n}", ModelRequest(model, talk, max_tokens=100, **sampling)) for n, talk in enumerate(talks)]
        with server(reply) as (url, served):
            monkeypatch.setenv("PROOFMILL_JUDGE_URL", url)
            monkeypatch.setenv("PROOFMILL_JUDGE_KEY", KEY)
            with open_api("api/judge", declared) as engine, Journal(tmp_path / "calls/test/x") as journal:
                asker = Asker("test/x", engine, journal, Budget(budget, tmp_path / "calls", journal))
                answers = list(asker(Requests(count, lambda: made)))
        return (answers if count > 1 else answers[0]), served

    return asked


BUSY = {"error": {"message": "busy"}}
FINE = (200, GOOD, {})


def test_answer_has_text_tokens_and_cost(ask):
    """An answer carries its cost by the declared price: (10 x 1 + 2 x 10) / 1e6 dollars."""
    answer, served = ask([FINE])
    assert (
        answer.text, answer.stop_reason, answer.reason, answer.prompt_tokens, answer.tokens, answer.model, answer.finish_reason) == ("fine", "end", "ok", 10, 2, served.requests[0]["model"], "stop")  # fmt: skip
    assert answer.cost == pytest.approx(30e-6)
    assert served.requests[0]["key"] == f"Bearer {KEY}"


def test_cached_and_reasoning_tokens_have_their_price(ask):
    """10 read, 4 of them cached; 6 written, 5 of them reasoning: (6 x 1 + 4 x 0.1 + 1 x 10 + 5 x 20) / 1e6 dollars."""
    usage = {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens": 6, "total_tokens": 16,
             "completion_tokens_details": {"reasoning_tokens": 5}}  # fmt: skip
    price = {"input": 1.0, "cached_input": 0.1, "output": 10.0, "reasoning": 20.0}
    answer, _ = ask([(200, {**GOOD, "usage": usage}, {})], price=price)
    assert (answer.cached_tokens, answer.reasoning_tokens) == (4, 5)
    assert answer.cost == pytest.approx(116.4e-6)


def test_responses_protocol_gives_the_same_answer(ask):
    """The Responses API gives the same text, separate reasoning, usage and stop."""
    answer, served = ask([(200, RESPONSE, {})], protocol="responses", extra_body={"reasoning": {"effort": "low"}})
    assert (
        answer.text, answer.reasoning, answer.stop_reason, answer.prompt_tokens, answer.cached_tokens, answer.tokens, answer.reasoning_tokens) == ("fine", "I think", "end", 10, 4, 6, 5)  # fmt: skip
    assert served.requests[0]["path"] == "/v1/responses"
    assert served.requests[0]["reasoning"] == {"effort": "low"}
    assert served.requests[0]["max_output_tokens"] == 100


@pytest.mark.parametrize(
    ("why", "expected"), [("max_output_tokens", ("length", "ok")), ("content_filter", ("end", "refused"))]
)
def test_incomplete_response_says_why(ask, why, expected):
    """A truncated or filtered response is read as in Chat Completions."""
    cut = {**RESPONSE, "status": "incomplete", "incomplete_details": {"reason": why}}
    answer, _ = ask([(200, cut, {})], protocol="responses")
    assert expected == (answer.stop_reason, answer.reason)


@pytest.mark.parametrize(("protocol", "field"), [("chat", "messages"), ("responses", "input")])
def test_artifact_weights_get_no_control_token_in_a_message(protocol, field):
    """If the tokenizer behind a server is known, its control tokens are escaped in messages."""
    tokenizer = train_tokenizer(["a user"], 300)
    tokenizer.add_tokens(["<turn of the judge>"])
    api = Api(id="m", price={"input": 0.0, "output": 0.0}, protocol=protocol)
    talk = (("user", "a<turn of the judge>b"), ("assistant", "<think>c</think><|end|>"))
    sent = {}
    for known in (None, tokenizer):
        engine = ApiEngine("m", api, Endpoint("http://127.0.0.1:9/v1", "none", Pace()), tokenizer=known)
        sent[known is None] = [message["content"] for message in engine._request(ModelRequest("m", talk))[field]]
        engine.close()
    assert sent[True] == [content for _, content in talk]
    assert sent[False] == ["a&lt;turn of the judge>b", "<think>c</think>&lt;|end|>"]


def test_request_has_what_the_entry_says(ask):
    """Options are sent unchanged, fields of `omit` are left out, and the limit has the server's name."""
    _, served = ask(
        [FINE], extra_body={"reasoning_effort": "low"}, omit=["seed"], max_tokens_field="max_completion_tokens"
    )
    sent = served.requests[0]
    assert (sent["reasoning_effort"], sent["max_completion_tokens"]) == ("low", 100)
    assert not {"seed", "temperature", "max_tokens"} & set(sent)


@pytest.mark.parametrize(
    ("protocol", "reply", "said"),
    [
        ("chat", FINE, {"top_p": 1, "presence_penalty": 0, "frequency_penalty": 0}),
        ("responses", (200, RESPONSE, {}), {"top_p": 1}),
    ],
)
def test_request_names_every_setting_of_its_protocol(ask, protocol, reply, said):
    """Neutral settings are sent, too, so no server default applies; only a judge's temperature may be the server's."""
    _, served = ask([reply], protocol=protocol)
    sent = served.requests[0]
    assert said.items() <= sent.items() and "temperature" not in sent and "repetition_penalty" not in sent


def test_request_to_weights_of_ours_names_every_setting_of_vllm():
    """It has all settings that vLLM would take from the model's own files, and the end tokens."""
    api = Api(id="m", price={"input": 0.0, "output": 0.0})
    tokenizer = train_tokenizer(["a user"], 300)
    engine = ApiEngine("m", api, Endpoint("http://127.0.0.1:9/v1", "none", Pace()), tokenizer=tokenizer, ends=[1, 7])
    sent = engine._request(ModelRequest("m", (("user", "a"),), temperature=0.6, top_k=20))
    engine.close()
    neutral = {"top_p": 1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
    asked = {"temperature": 0.6, "top_k": 20, "stop_token_ids": [1, 7], "skip_special_tokens": False}
    assert (neutral | asked).items() <= sent.items()


def refusing(*fields, status=400):
    """Return a server that refuses requests with one of these fields, and names the first that it sees."""

    def reply(request, number):
        found = [field for field in fields if field in request]
        message = f"Unsupported parameter: '{found[0]}' is not supported with this model." if found else ""
        return (status, {"error": {"message": message, "param": found[0]}}, {}) if found else FINE

    return reply


@pytest.mark.parametrize("status", [400, 422])
def test_field_that_a_server_refuses_is_left_out_and_reported_once(ask, capsys, status):
    """One call finds each field and is repeated at once; no row fails, and later calls leave the fields out."""
    monkey = {"PROOFMILL_CONCURRENCY": "1"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(*monkey.popitem())
        answers, served = ask(refusing("seed", "top_p", "presence_penalty", status=status), 4)
    assert [(a.text, a.tries) for a in answers] == [("fine", 1)] * 4
    assert len(served.requests) == 4 + 3 and not {"seed", "top_p"} & served.requests[-1].keys()
    assert served.requests[-1]["frequency_penalty"] == 0
    said = capsys.readouterr().err
    assert said.count("does not accept `presence_penalty`, `seed`, `top_p`") == 1


def test_calls_in_flight_are_all_repeated_without_a_field(ask):
    """Calls that are refused at the same time are all repeated; none fails."""
    answers, _ = ask(refusing("seed", "top_p"), 40)
    assert {(a.text, a.tries) for a in answers} == {("fine", 1)}


@pytest.mark.parametrize(
    ("asked", "setting"),
    [({"top_k": 20}, "top-k: 20"), ({"temperature": 0.6}, "temperature: 0.6"), ({"logprobs": True}, "logprobs: True")],
)
def test_setting_that_an_entry_asks_for_is_never_left_out(ask, asked, setting):
    """The row fails with a message that says what to remove; every request had the setting."""
    (field,) = asked
    answer, served = ask(refusing(field), **asked)
    assert answer.failed and answer.detail.startswith(f"remove `{setting}` from the entry that asks for it: ")
    assert all(field in request for request in served.requests)


def test_neutral_field_is_left_out_if_two_cannot_be_sent_together(ask):
    """A server that accepts either `temperature` or `top_p` gets the one in the entry."""

    def reply(request, number):
        both = "temperature and top_p cannot both be specified for this model"
        return (400, {"error": {"message": both}}, {}) if {"temperature", "top_p"} <= set(request) else FINE

    answer, served = ask(reply, temperature=0.6)
    assert answer.text == "fine" and served.requests[-1]["temperature"] == 0.6 and "top_p" not in served.requests[-1]


def test_field_that_is_named_for_another_reason_stays(ask):
    """If a refusal only quotes the prompt, which mentions a seed, other rows keep their seed."""

    def reply(request, number):
        echo = request["messages"][0]["content"]
        return (400, {"error": {"message": f"invalid: {echo}, about a seed"}}, {}) if echo.endswith(" 0") else FINE

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PROOFMILL_CONCURRENCY", "1")
        answers, served = ask(reply, 3)
    assert [a.failed for a in answers] == [True, False, False]
    assert all("seed" in request for request in served.requests[-2:])


@pytest.mark.parametrize(("protocol", "reply"), [("chat", FINE), ("responses", (200, RESPONSE, {}))])
def test_request_has_the_sampling_of_the_question_and_no_more(ask, protocol, reply):
    """`top_k` and `min_p` are request fields if they are set; otherwise they are not sent."""
    _, served = ask([reply], protocol=protocol, top_k=20, min_p=0.05)
    assert (served.requests[0]["top_k"], served.requests[0]["min_p"]) == (20, 0.05)
    _, served = ask([reply], protocol=protocol)
    assert not {"top_k", "min_p", "stop"} & set(served.requests[0])


def test_stop_texts_are_sent(ask):
    """Chat Completions has a field for them."""
    _, served = ask([FINE], stop=("\n\n", "Q:"))
    assert served.requests[0]["stop"] == ["\n\n", "Q:"]


def test_unknown_price_is_an_unknown_cost(ask):
    """A price declared unknown gives no cost, not 0."""
    answer, _ = ask([FINE], price="unknown")
    assert answer.cost is None


def test_answer_without_usage_has_an_unknown_cost(ask):
    """If a server does not count tokens, the cost is unknown, not 0."""
    answer, _ = ask([(200, {k: v for k, v in GOOD.items() if k != "usage"}, {})])
    assert answer.cost is None


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
def test_temporary_failure_is_retried(ask, hasty, status):
    """A short overload of a server costs a try, not the row."""
    answer, served = ask([(status, BUSY, {}), FINE])
    assert (answer.text, answer.tries, len(served.requests)) == ("fine", 2, 2)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'{"id": "x", "choi', {}),
        (b"<html>Bad gateway</html>", {"Content-Type": "text/html"}),
        (b'{"id": "x"}', {}),
        (b'{"id": "x", "choices": []}', {}),
        (b"[]", {}),
        (b"null", {}),
        (json.dumps(good({"nested": 1})).encode(), {}),
        (b"", {}),
        (b"[" * 100_000 + b"]" * 100_000, {}),
        (json.dumps(good(finish_reason=["stop"])).encode(), {}),
        (json.dumps(good(message={"role": "assistant", "content": "a", "reasoning": ["b"]})).encode(), {}),
        (b'{"error": {"message": "overloaded", "code": 503}}', {}),
        (json.dumps(good(finish_reason="error")).encode(), {}),
    ],
)
def test_unreadable_reply_is_retried(ask, hasty, body, headers):
    """A truncated body, or one that is not a completion, is a failure of the server, not an empty answer."""
    answer, _ = ask([(200, body, headers), FINE])
    assert (answer.text, answer.tries) == ("fine", 2)


def test_incomplete_reply_is_retried(ask, hasty):
    """A reply that is shorter than its declared length is a failure."""
    answer, _ = ask([(200, b'{"id":', {"Content-Length": 500, "Connection": "close"}), FINE])
    assert (answer.text, answer.tries) == ("fine", 2)


def test_repeatedly_empty_answer_is_accepted(ask, hasty):
    """An empty answer was paid for and may be a fault, so it is retried; three of them are the answer, all paid."""
    answer, served = ask([(200, good(""), {})])
    assert (answer.text, answer.stop_reason, answer.reason, len(served.requests)) == ("", "end", "ok", 3)
    assert answer.cost == pytest.approx(90e-6)
    answer, _ = ask([(200, good(None), {}), FINE])
    assert answer.text == ""  # asked once ever
    answer, _ = ask([(200, good(""), {}), FINE], count=2)
    assert answer[1].text == "fine"


def test_failed_response_is_no_answer(ask, hasty):
    """A failed Response is a failure of the server, never an empty answer; if it repeats, the row fails."""
    failed = {**RESPONSE, "status": "failed", "output": []}
    answer, served = ask([(200, failed, {})], protocol="responses")
    assert (answer.stop_reason, answer.reason, len(served.requests)) == ("error", "provider", 3)


def test_attempts_are_counted_by_class(ask, hasty):
    """A row after five overloads still has its six tries for other failures."""
    replies = [(503, BUSY, {})] * 5 + [
        (500, {"error": {"message": "a"}}, {}),
        (500, {"error": {"message": "b"}}, {}),
        FINE,
    ]
    answer, _ = ask(replies)
    assert (answer.text, answer.tries) == ("fine", 8)


def test_rate_limit_that_speaks_of_billing_is_waited_for(ask):
    """A reply with Retry-After is a temporary limit, whatever its message."""
    limit = {"error": {"message": "You exceeded your current quota, see billing", "code": "insufficient_quota"}}
    answer, _ = ask([(429, limit, {"Retry-After": "0"}), (429, {"error": {"message": "see billing"}}, {}), FINE])
    assert answer.text == "fine"


def test_error_with_half_a_character_is_kept(ask, hasty):
    """An error that a server truncated inside a character fails its row, but does not stop the stage."""
    answer, _ = ask([(400, b'{"error": {"message": "bad \\ud83d"}}', {})])
    assert (answer.stop_reason, answer.reason) == ("error", "provider")


def test_cost_of_rows_that_wait_is_not_forgotten(ask, monkeypatch, tmp_path):
    """When the stage stops, the cost of empty answers is in the journal, although their rows have no answer yet."""
    monkeypatch.setenv("PROOFMILL_CALL_STALL_SECONDS", "2")
    monkeypatch.setenv("PROOFMILL_CALL_TIMEOUT", "2")
    with pytest.raises(SystemExit):
        ask(lambda _, number: (200, good(""), {}) if number < 3 else (503, BUSY, {}), count=3)
    assert records.cost(tmp_path / "calls/test/x") == pytest.approx(3 * 30e-6)


KILLED = """
import os, sys, threading, time
from pathlib import Path
from proofmill.calls import pacing
from proofmill.calls.budget import Budget
from proofmill.calls.calls import Asker
from proofmill.calls.model_requests import ModelRequest, Requests
from proofmill.calls.journal import Journal
from proofmill.engines.open_engine import open_api
from proofmill.schema.entries.declared import Api

folder, made = Path(sys.argv[1]), [("row", ModelRequest("m", (("user", "question 0"),), max_tokens=100))]
api = Api(id="m", price={"input": 1.0, "output": 10.0})
with open_api("api/judge", api) as engine, Journal(folder) as journal:
    threading.Thread(target=lambda: (time.sleep(1.5), os.kill(os.getpid(), 9)), daemon=True).start()
    Asker("x", engine, journal, Budget(1.0, folder.parents[1], journal))(Requests(1, lambda: made))
"""


def test_cost_of_a_row_that_waits_survives_a_kill(tmp_path):
    """The possible cost of a failed try is on disk before the next try, so a kill -9 between them loses nothing."""
    with server(lambda _, number: (200, b"{", {}) if number == 0 else (429, BUSY, {"Retry-After": "60"})) as (url, _):
        environment = {**os.environ, "PROOFMILL_JUDGE_URL": url}
        folder = tmp_path / "calls/test/x"
        done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert records.cost(folder) == pytest.approx((len("question 0") * 1.0 + 100 * 10.0) / 1e6)


def test_answer_costs_what_its_failures_cost_too(ask, hasty, tmp_path):
    """In one run or over several, a row's answer carries the cost of all tries; the journal counts each once."""
    failed = good(finish_reason="error")
    answer, _ = ask([(200, failed, {}), (200, failed, {}), (200, failed, {})])
    assert (answer.stop_reason, answer.cost) == ("error", pytest.approx(90e-6))
    answer, _ = ask([(200, failed, {}), FINE])
    assert (answer.text, answer.cost) == ("fine", pytest.approx(5 * 30e-6))
    assert records.cost(tmp_path / "calls/test/x") == pytest.approx(5 * 30e-6)
    answer, _ = ask([FINE])
    assert answer.cost == pytest.approx(5 * 30e-6)


def test_unknown_price_stays_unknown_after_retries(ask, hasty):
    """A repeatedly empty answer has no known cost if the price is unknown, with a budget too."""
    answer, _ = ask([(200, good(""), {})], price="unknown", budget=1.0)
    assert (answer.text, answer.cost) == ("", None)


def test_repeated_failure_fails_the_row(ask, hasty):
    """A server that always fails the same way gets a few tries; the row fails with the reason."""
    answer, served = ask([(500, {"error": {"message": "bug"}}, {})])
    assert (answer.stop_reason, answer.reason, len(served.requests)) == ("error", "provider", SAME_FAILURES)
    assert "bug" in answer.detail


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"message": "maximum context length exceeded"}}, ("end", "too-long")),
        ({"error": {"message": "blocked", "code": "content_filter"}}, ("end", "refused")),
        ({"error": {"message": "no such parameter"}}, ("error", "provider")),
        ({"error": {"message": "'max_tokens' is not supported in this context"}}, ("error", "provider")),
    ],
)
def test_permanent_failure_of_a_row_is_not_retried(ask, body, expected):
    """A prompt that does not fit and a refusal are outcomes, a bad request fails its row; none is retried."""
    answer, served = ask([(400, body, {})])
    assert expected == (answer.stop_reason, answer.reason)
    assert len(served.requests) == 1


@pytest.mark.parametrize("reply", [good(finish_reason="content_filter"), good(None, message={"role": "assistant", "content": None, "refusal": "no"})])  # fmt: skip
def test_refusal_in_an_answer_is_refused(ask, reply):
    """A filtered answer, and one with the field `refusal`, have the reason `refused`."""
    answer, _ = ask([(200, reply, {})])
    assert answer.reason == "refused"


@pytest.mark.parametrize(
    ("status", "message"), [(401, "bad key"), (402, "no credit"), (429, "insufficient_quota: you exceeded your current quota")]
)  # fmt: skip
def test_permanent_failure_stops_the_stage(ask, tmp_path, status, message):
    """A refused key, an unknown model and an empty account stop at once, name the setting, and fail no rows."""
    with pytest.raises((SystemExit, TableError)) as stop:
        ask([FINE] * 20 + [(status, {"error": {"message": message}}, {})], count=500)
    assert "PROOFMILL_JUDGE_KEY" in str(stop.value)
    rows = records.frame(tmp_path / "calls/test/x")
    assert rows.filter(stop_reason="end").height == 20


@pytest.mark.parametrize("status", [403, 404, 307])
def test_refusal_of_every_row_stops_the_stage(ask, tmp_path, status):
    """A few rows detect an unknown model or a redirecting address: the rest get no call, and none fails."""
    with pytest.raises(SystemExit) as stop:
        ask(
            [(status, {"error": {"message": "no such model"}}, {"Location": "http://127.0.0.1:9/elsewhere"})], count=500
        )
    assert "PROOFMILL_JUDGE_URL" in str(stop.value)
    assert records.frame(tmp_path / "calls/test/x").height == 0


@pytest.mark.sampled(4)
@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("first", [0, 7])
def test_row_refused_by_moderation_fails(ask, monkeypatch, status, first):
    """If others are answered, a forbidden row fails with the server's message, and the stage continues."""
    monkeypatch.setenv("PROOFMILL_CONCURRENCY", "1")
    flagged = {"error": {"message": "flagged by moderation"}}
    answers, served = ask(lambda _, number: (status, flagged, {}) if number == first else FINE, count=20)
    assert [answer.stop_reason for answer in answers] == ["end"] * first + ["error"] + ["end"] * (19 - first)
    assert "flagged by moderation" in answers[first].detail
    assert len(served.requests) == 20
    again, served = ask(lambda _, number: FINE, count=20)
    assert ({answer.text for answer in again}, len(served.requests)) == ({"fine"}, 1)


@pytest.mark.parametrize("status", [403, 404])
def test_refusals_after_one_answer_do_not_stop_the_stage(ask, monkeypatch, status):
    """One answer proves that the server takes the key and the model: then even nine refused rows only fail."""
    monkeypatch.setenv("PROOFMILL_CONCURRENCY", "1")
    answers, served = ask(lambda _, number: FINE if number == 0 else (status, BUSY, {}), count=10)
    assert retries.REFUSED_ROWS < 9
    assert [answer.stop_reason for answer in answers] == ["end"] + ["error"] * 9
    assert len(served.requests) == 10


def test_server_that_is_not_there_stops_the_stage(monkeypatch, tmp_path, hasty):
    """A refused connection fails the row after its tries; the stage reports it without a traceback."""
    monkeypatch.setenv("PROOFMILL_JUDGE_URL", "http://127.0.0.1:9/v1")
    made = [("row", ModelRequest("m", (("user", "q"),)))]
    with (
        open_api("api/judge", Api(id="m", price="unknown")) as engine,
        Journal(tmp_path / "x") as journal,
        pytest.raises(ServiceError, match=r"row: provider, no connection: .*Connect call failed"),
    ):
        Asker("test/x", engine, journal, Budget(None, tmp_path, journal))(Requests(1, lambda: made))


def test_silent_server_stops_the_stage_and_fails_no_row(ask, monkeypatch, tmp_path):
    """If no call is answered for PROOFMILL_CALL_STALL_SECONDS, the stage ends, and no row fails."""
    monkeypatch.setenv("PROOFMILL_CALL_STALL_SECONDS", "1")
    monkeypatch.setenv("PROOFMILL_CALL_TIMEOUT", "1")
    with pytest.raises(SystemExit, match="answered nothing for 0:0"):
        ask([(503, BUSY, {})], count=50)
    assert records.frame(tmp_path / "calls/test/x").height == 0


def test_waiting_for_a_rate_limit_is_not_silence_of_the_server(ask, hasty, monkeypatch):
    """Waiting for a rate limit, here longer than PROOFMILL_CALL_STALL_SECONDS, does not count as the server's silence."""
    monkeypatch.setenv("PROOFMILL_CALL_STALL_SECONDS", "1")
    monkeypatch.setenv("PROOFMILL_CALL_TIMEOUT", "1")
    monkeypatch.setenv("PROOFMILL_JUDGE_RPM", "30")
    answers, served = ask([(500, BUSY, {}), FINE], count=2)
    assert ([answer.text for answer in answers], len(served.requests)) == (["fine"] * 2, 3)


def test_time_limit_runs_from_the_start_of_a_call(ask, monkeypatch, hasty):
    """A call that exceeds the limit is ended, even if bytes still arrive, and retried."""
    monkeypatch.setenv("PROOFMILL_CALL_TIMEOUT", "2")

    def dawdle(_, number):
        time.sleep(4.0 if number == 0 else 0)
        return FINE

    answer, served = ask(dawdle)
    assert (answer.text, answer.tries, len(served.requests)) == ("fine", 2, 2)


STOPPED = """
import sys
from pathlib import Path
from proofmill.calls.budget import Budget
from proofmill.calls.calls import Asker
from proofmill.calls.model_requests import ModelRequest, Requests
from proofmill.calls.journal import Journal
from proofmill.engines.open_engine import open_api
from proofmill.schema.entries.declared import Api

made = [(f"row-{n}", ModelRequest("m", (("user", f"question {n}"),))) for n in range(8)]
with open_api("api/judge", Api(id="m", price="unknown")) as engine, Journal(Path(sys.argv[1])) as journal:
    answers = Asker("x", engine, journal, Budget(None, Path(sys.argv[1]).parent, journal))(Requests(8, lambda: made))
    print(sum(answer.text == "fine" for answer in answers), {answer.tries for answer in answers})
"""


@pytest.mark.long
def test_time_in_which_a_process_is_suspended_is_not_counted(tmp_path):
    """A process that was suspended takes the answers that arrived meanwhile; no call is repeated."""

    def slow(_, number):
        time.sleep(0.5)
        return FINE

    with server(slow) as (url, served):
        environment = {
            **os.environ, "PROOFMILL_JUDGE_URL": url, "PROOFMILL_CONCURRENCY": "4", "PROOFMILL_CALL_TIMEOUT": "3",
            "PROOFMILL_CALL_STALL_SECONDS": "3",
        }  # fmt: skip
        command = [sys.executable, "-c", STOPPED, str(tmp_path / "calls" / "x")]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        while len(served.requests) < 4:
            time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)
        time.sleep(5.0)
        process.send_signal(signal.SIGCONT)
        said, _ = process.communicate(timeout=60)
    assert (process.returncode, len(served.requests)) == (0, 8)
    assert said.splitlines()[-1] == "8 {1}"


@pytest.mark.parametrize("value", ["1795000000000", "1e30", "inf", "nan", "-5", "Sat, 01 Jan 9999 00:00:00 GMT"])
@pytest.mark.parametrize("header", ["Retry-After", "retry-after-ms"])
def test_absurd_retry_after_holds_nothing_up(ask, hasty, header, value):
    """A time stamp in milliseconds, an eternity and a non-number are ignored."""
    start = time.monotonic()
    answer, _ = ask([(429, BUSY, {header: value if header != "retry-after-ms" else value + "000"}), FINE])
    assert answer.text == "fine" and time.monotonic() - start < 10


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry-After": "1"},
        {"retry-after-ms": "1000"},
        {"Retry-After": format_datetime(datetime.now(UTC) + timedelta(days=9))},
    ],
)
def test_retry_after_is_waited_for(ask, monkeypatch, headers):
    """No call is made before the time that the server named: in seconds, milliseconds or as a date."""
    if "GMT" in str(headers) or "+0000" in str(headers):
        headers = {"Retry-After": format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)}
    _, served = ask([(429, BUSY, headers), FINE])
    assert served.times[1] - served.times[0] >= 0.9


def test_concurrency_follows_what_the_server_allows(ask, hasty):
    """A server that refuses more than ten calls at once soon gets about ten, and no row is lost."""
    state, lock = {"now": 0, "refused": 0}, threading.Lock()

    def guarded(_, number):
        with lock:
            state["now"] += 1
            allowed = state["now"] <= 10
            state["refused"] += not allowed
        time.sleep(0.02)
        with lock:
            state["now"] -= 1
        return FINE if allowed else (429, BUSY, {})

    answers, served = ask(guarded, count=600)
    assert {a.text for a in answers} == {"fine"}
    # refused per answer: 0.2 to 0.7 on idle and very busy machines; 2.2 with 32 calls in flight all the time
    assert state["refused"] < 600
    assert len(served.requests) == 600 + state["refused"]


def test_concurrency_of_the_environment_is_never_exceeded(ask, monkeypatch):
    """PROOFMILL_CONCURRENCY is the initial and the maximum concurrency."""
    monkeypatch.setenv("PROOFMILL_CONCURRENCY", "7")
    together = threading.Barrier(7, timeout=30)

    def slow(_, number):
        if number < 7:
            together.wait()
        return FINE

    _, served = ask(slow, count=60)
    assert served.most == 7


def test_requests_per_minute_are_kept(ask, monkeypatch):
    """With 600 a minute, 12 calls take more than a second, although 32 could be in flight."""
    monkeypatch.setenv("PROOFMILL_JUDGE_RPM", "600")
    _, served = ask([FINE], count=12)
    assert served.times[-1] - served.times[0] >= 0.5  # as received on a busy machine; without the limit it is about 0


def test_answer_is_journaled_before_its_place_is_taken(ask, monkeypatch, tmp_path):
    """When a request arrives, all answers except those in flight are in the journal."""
    monkeypatch.setenv("PROOFMILL_CONCURRENCY", "3")
    tail = tmp_path / "calls/test/x/calls.jsonl"
    behind = []

    def count(_, number):
        behind.append(number - len(tail.read_bytes().splitlines()))
        return FINE

    ask(count, count=100)
    assert max(behind) <= 3


def test_spent_budget_stops_the_stage(ask, tmp_path):
    """Calls are made while the budget has room for the most expensive one; then the stage reports the spending."""
    most = (len("question 10") * 1.0 + 100 * 10.0) / 1e6
    with pytest.raises(SystemExit, match=r"the budget of \$0.01 is spent; \d+ of 300 calls"):
        ask([FINE], count=300, budget=5 * most)
    spent = records.frame(tmp_path / "calls/test/x")["cost"].sum()
    assert 4 * most - 30e-6 <= spent <= 5 * most
    answers, _ = ask([FINE], count=300, budget=1.0)
    assert len(answers) == 300


ODD_USAGE = {
    "missing": None,
    "zero": {"prompt_tokens": 0, "completion_tokens": 0},
    "negative": {"prompt_tokens": -5, "completion_tokens": -300_000},
    "cached above prompt": {
        "prompt_tokens": 10,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 10**6},
    },
    "nan": {"prompt_tokens": math.nan, "completion_tokens": 2},
    "infinite": {"prompt_tokens": 10, "completion_tokens": math.inf},
    "absurd": {"prompt_tokens": 10, "completion_tokens": 2**60},
    "beyond a column": {"prompt_tokens": 2**63, "completion_tokens": 2},
    "words": {"prompt_tokens": "many", "completion_tokens": [2]},
    "true": {"prompt_tokens": True, "completion_tokens": 2},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("usage", ODD_USAGE.values(), ids=ODD_USAGE)
def test_implausible_usage_costs_the_reserved_amount(ask, tmp_path, usage):
    """With a budget every answer has a plausible cost: the budget holds, and no answer is lost."""
    most = (len("question 10") * 1.0 + 100 * 10.0) / 1e6
    with pytest.raises(SystemExit, match="the budget of"):
        ask([(200, {**GOOD, "usage": usage}, {})], count=300, budget=20 * most)
    rows = records.frame(tmp_path / "calls/test/x")
    assert 18 * most <= rows["cost"].sum() <= 20 * most
    assert set(rows["text"]) == {"fine"}
    assert rows["tokens"].max() == 0


@pytest.mark.parametrize("usage", ODD_USAGE.values(), ids=ODD_USAGE)
def test_implausible_usage_is_an_unknown_cost(ask, usage):
    """Without a budget the answer is kept, and its cost is unknown."""
    answer, _ = ask([(200, {**GOOD, "usage": usage}, {})])
    assert (answer.text, answer.cost, answer.prompt_tokens, answer.tokens) == ("fine", None, 0, 0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "body",
    [b'{"id": "x", "choices": [], "usage": {"prompt_tokens": 10}}', b"{", json.dumps(good([1])).encode()],
)
def test_unreadable_replies_count_against_the_budget(ask, hasty, tmp_path, body):
    """An unreadable reply may have been charged: each try counts the reserved amount before the next try."""
    most = (len("question 10") * 1.0 + 100 * 10.0) / 1e6
    with pytest.raises(SystemExit, match="the budget of"):
        ask([(200, body, {})], count=300, budget=20 * most)
    assert 18 * most <= records.cost(tmp_path / "calls/test/x") <= 20 * most


def test_reasoning_counted_separately_is_paid(ask):
    """If a server counts reasoning separately, both counts are paid: (10 x 1 + (2 + 30) x 10) / 1e6."""
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 30}}
    answer, _ = ask([(200, {**GOOD, "usage": usage}, {})])
    assert (answer.tokens, answer.reasoning_tokens) == (32, 30)
    assert answer.cost == pytest.approx(330e-6)


@pytest.mark.parametrize("word", ["length", "max_tokens", "MAX_TOKENS", "model_length", "max_output_tokens"])
def test_text_is_truncated_in_every_servers_word(ask, word):
    """A truncated text is never read as ended."""
    assert ask([(200, good(finish_reason=word), {})])[0].stop_reason == "length"


@pytest.mark.parametrize("word", ["STOP", "end_turn", "eos token", "eosFound", " stop", "stop-sequence", "COMPLETE"])
def test_text_has_ended_in_every_servers_word(ask, word):
    """Case, blanks, `-` and `_` do not matter."""
    assert ask([(200, good(finish_reason=word), {})])[0].stop_reason == "end"


IMPROPER = [
    *(None, "", "tool_calls", "function_call", "timeout", "time_limit", "insufficient_system_resource", "network_error"),
    *("server_error", "engine_overloaded", "abort", "error", "cancelled", "pause_turn", "tool_use", "unknown", "other"),
    *("userStopped", "modelUnloaded", "malformed_function_call", "language", "stopped", "because"),
]  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("word", IMPROPER)
def test_text_that_ends_in_any_other_word_is_a_failure(ask, hasty, word):
    """An unknown finish reason, null or none is a provider failure: half a proof is never an answer."""
    answer, served = ask([(200, good("half a pr", finish_reason=word), {})])
    assert (answer.stop_reason, answer.reason, answer.text, len(served.requests)) == (
        "error",
        "provider",
        "",
        SAME_FAILURES,
    )
    assert answer.detail == (f"finished with `{word}`" if word else "finished without a finish reason")


def test_improper_end_in_a_journal_is_retried(ask, tmp_path):
    """An answer stored by an earlier version counts as a failure, in the tail and in a segment; its cost stays."""
    for folded in (False, True):
        folder = tmp_path / "calls/test/x"
        made = ModelRequest("m", (("user", "question 0"),), max_tokens=100, sample=0)
        shutil.rmtree(folder, ignore_errors=True)
        with Journal(folder) as journal:
            journal.add(made, ModelOutput("half a pr", "end", finish_reason="tool_calls", model="m", cost=0.5))
            if not folded:
                journal.compact = lambda: None
        assert (folder / "00001.parquet").exists() == folded
        assert records.frame(folder)["stop_reason"].to_list() == ["error"]
        answer, served = ask([FINE])
        assert (answer.text, answer.cost, len(served.requests)) == ("fine", pytest.approx(0.5 + 30e-6), 1)
        again, served = ask([FINE])
        assert (again, len(served.requests)) == (answer, 0)


def test_answer_of_another_model_is_noticed_once(ask, capsys):
    """The log has one line, not one for each call; a dated version is the requested model."""
    other, dated = {**GOOD, "model": "cheap-1"}, {**GOOD, "model": "org/M-2026-01-01"}
    ask([(200, dated, {})], count=3)
    assert "answers as" not in capsys.readouterr().err
    ask([(200, other, {})], count=3, model="m-again")
    assert capsys.readouterr().err.count("is asked for the model m and answers as cheap-1") == 1


def test_content_in_parts_is_one_text(ask):
    """Some servers send the text in parts."""
    parts = [{"type": "text", "text": "fi"}, {"type": "text", "text": "ne"}]
    assert ask([(200, good(parts), {})])[0].text == "fine"


def test_free_calls_need_no_budget(ask):
    """A free model is called also when the budget is spent."""
    answer, _ = ask([FINE], budget=0.0, price={"input": 0, "output": 0})
    assert answer.text == "fine"


def test_key_is_in_no_answer_and_no_message(ask, hasty, tmp_path, capsys):
    """A key that a server repeats in its errors does not reach journal, message or log."""
    leak = {"error": {"message": f"incorrect key {KEY}", "key": KEY}}
    ask([(500, leak, {}), (400, leak, {})], count=3)
    with pytest.raises(SystemExit) as stop:
        ask([(401, leak, {})], count=5)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY not in str(stop.value) + "".join(capsys.readouterr())
    assert KEY.encode() not in written
    assert "***" in str(stop.value)
    assert all(KEY not in str(row) for row in records.frame(tmp_path / "calls/test/x").to_dicts())


def test_remote_model_without_an_address_says_what_to_set(monkeypatch):
    """The message about a missing address names the variable."""
    monkeypatch.delenv("PROOFMILL_JUDGE_URL", raising=False)
    with (
        pytest.raises(SettingError, match="PROOFMILL_JUDGE_URL"),
        open_api("api/judge", Api(id="m", price="unknown")),
    ):
        pass


@pytest.mark.parametrize(
    "url",
    ["http://user:pass-word-123@127.0.0.1:9/v1", "http://:pass-word-123@host", "http://user:pass-word-123@host:99999",
     "ftp://pass-word-123/", "pass-word-123", "http://[pass-word-123", "http://", ""],
)  # fmt: skip
def test_address_that_is_none_or_holds_a_password_is_refused_unseen(monkeypatch, url):
    """The message names the variable, and shows neither password nor address."""
    monkeypatch.setenv("PROOFMILL_JUDGE_URL", url)
    with (
        pytest.raises(SettingError, match="PROOFMILL_JUDGE_URL") as stop,
        open_api("api/judge", Api(id="m", price="unknown")),
    ):
        pass
    assert "pass-word" not in str(stop.value)


def test_nothing_of_the_environment_goes_to_the_server(ask, monkeypatch):
    """Organization ids for another provider are not sent, under any name."""
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_WEBHOOK_SECRET"):
        monkeypatch.setenv(name, "from-the-environment")
    _, served = ask([FINE])
    assert "from-the-environment" not in str(served.headers)


def test_prompt_is_not_sent_on_to_another_address(ask):
    """A redirect is not followed: the user did not configure the other address."""
    with server(lambda *_: FINE) as (elsewhere, reached), pytest.raises(SystemExit, match="no redirect is followed"):
        ask([(307, b"", {"Location": f"{elsewhere}/chat/completions"})])
    assert reached.requests == []


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_limit_that_is_no_number_says_so(monkeypatch, value):
    """The message about an invalid value names the variable."""
    monkeypatch.setenv("PROOFMILL_JUDGE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("PROOFMILL_JUDGE_RPM", value)
    with pytest.raises(SettingError, match=f"PROOFMILL_JUDGE_RPM={value}"), open_api("api/judge", Api(id="m", price="unknown")):  # fmt: skip
        pass


def test_referee_starts_answers_and_stops():
    """The referee runs while it is needed, on its own port, and not afterwards."""
    import socket

    declared = entry_from("api", REFEREE)
    with open_api("api/referee", declared) as one, open_api("api/referee", declared) as two:
        urls = [str(e._client.base_url) for e in (one, two)]
        assert urls[0] != urls[1]
        answer = one.runner.run(one.attempt(ModelRequest("referee-1", (("user", "hello"),)), 1))
        assert "no verdict" in answer.text
    with pytest.raises(ConnectionError):
        socket.create_connection(("127.0.0.1", one._client.base_url.port), timeout=2)


def test_referee_is_reached_past_a_proxy(monkeypatch):
    """A proxy in a node's environment is not used for a server that the job started."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with open_api("api/referee", entry_from("api", REFEREE)) as engine:
        answer = engine.runner.run(engine.attempt(ModelRequest("referee-1", (("user", "hello"),)), 1))
    assert "no verdict" in answer.text


def test_answer_truncated_inside_a_character_is_kept(ask):
    """A lone surrogate does not stop the stage or lose the answer."""
    answer, _ = ask([(200, good("fine \ud83d"), {})])
    assert answer.text == "fine ?"


def test_unreachable_server_is_logged_at_growing_intervals(monkeypatch, tmp_path, capsys):
    """Reason and tries are logged before it gives up, then at growing intervals; the last message has them too."""
    monkeypatch.setenv("PROOFMILL_JUDGE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("PROOFMILL_CALL_STALL_SECONDS", "3")
    monkeypatch.setenv("PROOFMILL_CALL_TIMEOUT", "1")
    made = [(f"row-{n}", ModelRequest("m", (("user", f"question {n}"),))) for n in range(48)]
    start, lines = time.monotonic(), []
    monkeypatch.setattr(calls, "log", lambda name, text: lines.append((time.monotonic() - start, f"{name}  {text}")))
    with (
        open_api("api/judge", Api(id="m", price="unknown")) as engine,
        Journal(tmp_path / "calls/test/x") as journal,
        pytest.raises(SystemExit, match=r"answered nothing for 0:0.*no connection: .*Connect call failed"),
    ):
        Asker("test/x", engine, journal, Budget(None, tmp_path / "calls", journal))(Requests(48, lambda: made))
    assert lines[0][0] < 3 and 1 <= len(lines) <= 4
    assert re.fullmatch(
        r"test/x  0 of 48 calls \(0 %\); api/judge cannot be reached \(1 try\): no connection: Cannot connect to host "
        r"127.0.0.1:9 \[Connect call failed \('127.0.0.1', 9\)\]",
        lines[0][1],
    )


def test_host_that_never_takes_a_connection_fails_within_seconds(monkeypatch, tmp_path):
    """A lost packet does not make a call last ten minutes."""
    monkeypatch.setattr(remote, "CONNECT", 0.5)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as held:
        for _ in range(3):  # fills the queue, so later connections get no reply
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        monkeypatch.setenv("PROOFMILL_JUDGE_URL", f"http://127.0.0.1:{full.getsockname()[1]}/v1")
        with open_api("api/judge", Api(id="m", price="unknown")) as engine:
            _, failure = engine.try_out(ModelRequest("m", (("user", "?"),)), 5.0)
    assert (failure.kind, failure.reached) == ("away", False) and "timeout" in failure.detail


@pytest.mark.long
def test_signal_says_what_the_last_try_failed_with(tmp_path):
    """After SIGTERM the stage ends at once, and its message has the reason of the last failure."""
    environment = {**os.environ, "PROOFMILL_JUDGE_URL": "http://127.0.0.1:9/v1"}
    command = [sys.executable, "-c", STOPPED, str(tmp_path / "calls" / "x")]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    said = process.stderr.readline()
    process.terminate()
    said += process.communicate(timeout=30)[1]
    assert "cannot be reached (1 try)" in said.splitlines()[0]
    assert re.search(
        r"stopped by SIGTERM; 0 of 8 calls .* The last try failed: no connection: .*Connect call failed", said
    )


def test_broken_claim_cancels_no_call_in_flight(ask, monkeypatch, tmp_path):
    """If the disk fails at the claim, no call starts, those in flight are journaled, and the stage ends."""
    monkeypatch.setenv("PROOFMILL_CONCURRENCY", "4")
    replace, broken = os.replace, threading.Event()

    def fails(source, target):
        if broken.is_set() and str(target).endswith("claim"):
            raise OSError(errno.EIO, "Input/output error")
        replace(source, target)

    def slow(_, number):
        if number == 4:
            broken.set()
        time.sleep(0.2)
        return FINE

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(
        (SystemExit, TableError), match="claim: Input/output error; expected a file that can be written"
    ):
        ask(slow, count=300, budget=0.4)
    frame = records.frame(tmp_path / "calls/test/x")
    assert frame.height >= 5 and set(frame["text"]) == {"fine"}


def test_password_of_a_proxy_is_in_no_file_and_no_message(ask, hasty, monkeypatch, tmp_path, capsys):
    """A failing proxy that repeats its request does not bring its password into journal or log."""
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    echo = {"error": {"message": "for http://me:pass%20word-123@proxy and pass word-123"}}
    monkeypatch.setenv("http_proxy", "http://me:pass%20word-123@127.0.0.1:9")
    with pytest.raises((SystemExit, ServiceError)) as stop:
        ask([(500, echo, {})], max_failed=0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    ask([(500, echo, {})])
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()).decode(errors="replace")
    said = (
        written
        + str(stop.value)
        + "".join(capsys.readouterr())
        + str(records.frame(tmp_path / "calls/test/x").to_dicts())
    )
    assert "word-123" not in said and "***" in said


def test_first_call_goes_alone_under_a_budget(ask, monkeypatch, tmp_path):
    """The model's other calls wait for its end and reserve its cost; without a budget none waits."""
    monkeypatch.setenv("PROOFMILL_CONCURRENCY", "8")
    expensive = {
        **good("fine " * 1000),
        "usage": {"prompt_tokens": 10, "completion_tokens": 1000},
    }  # 10 times `max_tokens`

    def slow(_, number):
        time.sleep(0.2)
        return 200, expensive, {}

    with pytest.raises(SystemExit, match="the budget of"):
        ask(slow, count=40, budget=0.025)  # room for two such calls, or for 24 that keep the limit
    assert records.cost(tmp_path / "calls/test/x") == pytest.approx(2 * 0.01001)
    together = threading.Barrier(8)

    def met(_, number):
        together.wait(timeout=30)
        return 200, expensive, {}

    _, served = ask(met, count=8, model="other")
    assert served.most == 8
