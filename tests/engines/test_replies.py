"""Replies are read into what was asked for; what is beside it may be anything."""

import json
import math

import pytest

from proofmill.calls.exchange import Question
from proofmill.engines.replies import UnreadableReply, read
from served import good

ASKED = Question("m", (("user", "q"),), logprobs=True)
NOT_ASKED = Question("m", (("user", "q"),))
TOKENS = [{"token": "fi", "logprob": -0.5, "bytes": [1]}, {"token": "ne", "logprob": 0}]


def chat(logprobs) -> bytes:
    return json.dumps(good(logprobs=logprobs)).encode()


def response(logprobs) -> bytes:
    part = {"type": "output_text", "text": "fine", "logprobs": logprobs}
    return json.dumps({"status": "completed", "output": [{"type": "message", "content": [part]}]}).encode()


@pytest.mark.parametrize(("protocol", "raw"), [("chat", chat({"content": TOKENS})), ("responses", response(TOKENS))])
def test_log_probabilities_are_read_where_they_were_asked_for(protocol, raw):
    """Each token has its own; unasked ones are left."""
    assert read(raw, protocol, ASKED).logprobs == [{"token": "fi", "logprob": -0.5}, {"token": "ne", "logprob": 0.0}]
    assert read(raw, protocol, NOT_ASKED).logprobs is None


@pytest.mark.parametrize(
    "odd", [0.5, True, "a", [1], [None], [{"token": 1, "logprob": 0}], [{"token": "a"}], [{"token": "a", "logprob": math.nan}]]
)  # fmt: skip
def test_odd_log_probabilities_are_unreadable_only_where_they_were_asked_for(odd):
    """A value of another shape is no reply to a question that asks for it, and nothing to one that does not."""
    for protocol, raw in (("chat", chat({"content": odd})), ("responses", response(odd))):
        with pytest.raises(UnreadableReply):
            read(raw, protocol, ASKED)
        assert read(raw, protocol, NOT_ASKED).text == "fine"
