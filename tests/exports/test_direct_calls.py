"""Calls of exported graders: retried, read like those of the pipeline, and never a grade when they fail."""

import pytest

from proofmill.calls.model_requests import build_request
from proofmill.exports import direct_calls
from proofmill.schema.entries.declared import Api
from proofmill.schema.errors import SettingError
from proofmill.schema.reasons import Reason, StopReason
from served import good, server

API = Api(id="judge-1", price="unknown", temperature=0.0, max_tokens=64, extra_body={"effort": "low"}, omit=["seed"])
ASKED = build_request(API, (("user", "Is it right?"),))


def asked(monkeypatch, reply, api=API):
    """Return the output of one request to a server with these replies, and the requests that it received."""
    with server(reply) as (url, served):
        monkeypatch.setenv("PROOFMILL_JUDGE_URL", url)
        monkeypatch.setattr(direct_calls.time, "sleep", lambda _: None)
        return direct_calls.ask("api/judge", api, build_request(api, (("user", "Is it right?"),))), served.requests


def test_request_has_the_settings_of_the_model(monkeypatch):
    """Model, limit, temperature and further fields; what the model does not accept is left out."""
    output, (request,) = asked(monkeypatch, lambda *_: (200, good("Yes."), {}))
    assert (output.text, output.stop_reason, output.reason) == ("Yes.", StopReason.END, Reason.OK)
    wanted = {"model": "judge-1", "max_tokens": 64, "temperature": 0.0, "effort": "low", "path": "/v1/chat/completions"}
    assert {key: request[key] for key in wanted} == wanted and "seed" not in request


@pytest.mark.parametrize("first", [(500, {"error": "x"}), (429, {}), (200, b"<html>"), (200, good(""))])
def test_temporary_failure_is_tried_again(monkeypatch, first):
    """Overload, an unreadable reply and an empty one; the next answer counts."""
    output, requests = asked(monkeypatch, lambda _, n: (*first, {}) if n == 0 else (200, good("No."), {}))
    assert output.text == "No." and len(requests) == 2


@pytest.mark.parametrize(("status", "tries"), [(503, direct_calls.TRIES), (401, 1)])
def test_failure_has_a_reason_and_no_text(monkeypatch, status, tries):
    """A call that fails for good is an output without text, from which no verdict can be read."""
    output, requests = asked(monkeypatch, lambda *_: (status, {"error": {"message": "no"}}, {}))
    assert (output.text, output.reason, output.failed) == ("", Reason.PROVIDER, True) and len(requests) == tries


def test_reasoning_is_split_off(monkeypatch):
    """As in the pipeline, by the model's declared delimiters."""
    api = Api(id="j", price="unknown", reasoning_end=["</think>"])
    output, _ = asked(monkeypatch, lambda *_: (200, good("hm <points>7</points></think><points>1</points>"), {}), api)
    assert (output.text, output.reasoning) == ("<points>1</points>", "hm <points>7</points>")


def test_missing_address_says_what_to_set(monkeypatch):
    """The message names the variable."""
    monkeypatch.delenv("PROOFMILL_JUDGE_URL", raising=False)
    with pytest.raises(SettingError, match="PROOFMILL_JUDGE_URL"):
        direct_calls.ask("api/judge", API, ASKED)
