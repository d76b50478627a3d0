"""Replies are read into typed records; unused fields may hold anything."""

import json
import math
import random
import zlib

import pytest

from misbehaving import mutated_body
from proofmill.calls.model_requests import ModelRequest
from proofmill.calls.prices import is_same_model
from proofmill.engines.replies import TOKEN_BYTES, ErrorReply, ServerReply, UnreadableReply, Usage, read, usage_of
from served import GOOD, good

ASKED = ModelRequest("m", (("user", "q"),), logprobs=True)
NOT_ASKED = ModelRequest("m", (("user", "q"),))
TOKENS = [{"token": "fi", "logprob": -0.5, "bytes": [1]}, {"token": "ne", "logprob": 0}]


def chat(logprobs) -> bytes:
    return json.dumps(good(logprobs=logprobs)).encode()


def response(logprobs) -> bytes:
    part = {"type": "output_text", "text": "fine", "logprobs": logprobs}
    return json.dumps({"status": "completed", "output": [{"type": "message", "content": [part]}]}).encode()


@pytest.mark.parametrize(("protocol", "raw"), [("chat", chat({"content": TOKENS})), ("responses", response(TOKENS))])
def test_log_probabilities_are_read_if_requested(protocol, raw):
    """Each token has its own; without a request for them they are ignored."""
    assert read(raw, protocol, ASKED).logprobs == [{"token": "fi", "logprob": -0.5}, {"token": "ne", "logprob": 0.0}]
    assert read(raw, protocol, NOT_ASKED).logprobs is None


@pytest.mark.parametrize(
    "odd", [0.5, True, "a", [1], [None], [{"token": 1, "logprob": 0}], [{"token": "a"}], [{"token": "a", "logprob": math.nan}]]
)  # fmt: skip
def test_odd_log_probabilities_are_unreadable_only_if_requested(odd):
    """Values of another type make a reply unreadable only if the request asks for log-probabilities."""
    for protocol, raw in (("chat", chat({"content": odd})), ("responses", response(odd))):
        with pytest.raises(UnreadableReply):
            read(raw, protocol, ASKED)
        assert read(raw, protocol, NOT_ASKED).text == "fine"


def answered(content=None, **fields):
    return read(json.dumps({**good(content or "fine"), **fields}).encode(), "chat", NOT_ASKED)


@pytest.mark.parametrize(
    ("parts", "text", "reasoning"),
    [
        ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "so"}], "so", "hm"),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]}], "", "hm"),
        ([{"type": "reasoning", "text": "hm"}, {"type": "output_text", "text": "so"}], "so", "hm"),
        ([{"type": "reasoning", "reasoning": "hm"}, {"text": "s"}, {"type": "text", "text": "o"}], "so", "hm"),
        ([{"type": "redacted_thinking"}, {"type": "text", "text": "so"}], "so", None),
    ],
)
def test_thoughts_among_parts_are_reasoning(parts, text, reasoning):
    """Thought parts of Anthropic's and Mistral's gateways are not in the answer."""
    reply = answered(parts)
    assert (reply.text, reply.reasoning) == (text, reasoning)


def test_error_next_to_choices_is_an_error():
    """The server's message counts, and its usage is priced."""
    body = json.dumps({**GOOD, "error": {"message": "out of memory", "code": 507}}).encode()
    with pytest.raises(ErrorReply, match="out of memory") as error:
        read(body, "chat", NOT_ASKED)
    assert error.value.status == 507
    assert usage_of(body, NOT_ASKED) == Usage(10, 0, 2, 0)


def test_choice_is_taken_by_its_index():
    """Only the choice of index 0 counts, in any position; without one the reply is unreadable."""
    first, second = (good(text)["choices"][0] | {"index": index} for index, text in enumerate(("a", "b")))
    assert answered(choices=[second, first]).text == "a"
    with pytest.raises(UnreadableReply, match="index 0"):
        answered(choices=[second])


@pytest.mark.parametrize(("prompt", "written"), [(1, 1), (120, 1), (1, 100), (10**6, 100), (120, 10**6)])
def test_implausible_usage_is_discarded(prompt, written):
    """A prompt and a text of 400 bytes each take more than one token, and less than a million."""
    rng = random.Random(0)
    prose = " ".join(rng.choice(["lemma", "proof", "integer", "divides", "hence", "n", "p"]) for _ in range(80))
    request = ModelRequest("m", (("user", prose),), max_tokens=200)
    usage = {"prompt_tokens": prompt, "completion_tokens": written}
    assert read(json.dumps({**good(prose), "usage": usage}).encode(), "chat", request).usage is None
    honest = {"prompt_tokens": 120, "completion_tokens": 100}
    assert read(json.dumps({**good(prose), "usage": honest}).encode(), "chat", request).usage == (120, 0, 100, 0)


@pytest.mark.parametrize(
    ("counts", "written"),
    [
        ((40, 300, 200, 340), 300),  # OpenAI: reasoning is part of the output
        ((40, 100, 200, 340), 300),  # xAI: it is counted separately
        ((40, 300, 200, 540), 500),  # so, too, if it is shorter than the answer
        ((40, 30, 0, 2070), 2030),  # it is in the total only
        ((40, 30, 0, 70), 30),
        ((40, 30, 0, None), 30),
        ((40, 30, 0, "many"), 30),
        ((40, 30, 0, 12), 30),
        ((40, 30, 0, 10**9), 30),  # the total is implausible
    ],
)
def test_reasoning_counts_wherever_a_server_reports_it(counts, written):
    """All tokens that were written are output, and priced."""
    prompt, output, thought, total = counts
    usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": total}
    usage["completion_tokens_details"] = {"reasoning_tokens": thought}
    assert answered("4", usage=usage).usage == (prompt, 0, written, thought)


@pytest.mark.parametrize("text", ["=" * 8192, " " * 8192, "the same again. " * 500, "", "a", "ответ " * 300])
def test_text_that_repeats_itself_needs_few_tokens(text):
    """A server may count a run of equal characters as few tokens, so the usage of a loop is accepted."""
    usage = {"prompt_tokens": 10, "completion_tokens": max(1, len(text) // 128)}
    assert answered(text, usage=usage).usage
    assert len(zlib.compress(text.encode(), 1)) < TOKEN_BYTES * (len(text) // 128 + 2)


@pytest.mark.parametrize(
    ("asked", "said", "same"),
    [
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("openai/gpt-4o", "GPT-4o", True),
        ("mistral-large-latest", "mistral-large-2411", True),
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", True),
        ("gemini-2.5-flash", "models/gemini-2.5-flash-preview-05-20", True),
        ("gpt-4-0613", "gpt-4", True),
        ("Qwen/Qwen3-8B", "qwen3-8b", True),
        ("gpt-4o", "gpt-4o-mini", False),
        ("gpt-4", "gpt-4o", False),
        ("claude-3", "claude-3-5", False),
        ("glm-45", "glm-46", False),
        ("deepseek-reasoner", "deepseek-chat", False),
    ],
)
def test_name_of_a_model_is_known_with_its_versions(asked, said, same):
    """A date, a version number or a provider's prefix does not make it another model."""
    assert is_same_model(asked, said) is same


def test_two_thousand_random_or_mutated_replies_are_read_or_refused():
    """Any bytes give a reply, an error or an unreadable reply, in both protocols, and no other exception."""
    rng = random.Random(0)
    for number in range(2000):
        raw = rng.randbytes(rng.randrange(300)) if number % 4 == 0 else mutated_body(rng)
        for protocol in ("chat", "responses"):
            try:
                reply = read(raw, protocol, ASKED if number % 2 else NOT_ASKED)
            except (UnreadableReply, ErrorReply) as error:
                str(error).encode()
            else:
                assert isinstance(reply, ServerReply) and (reply.stop_reason != "end" or reply.finish_reason)
                f"{reply.text}{reply.reasoning}{reply.finish_reason}{reply.model}".encode()
        assert usage_of(raw, ASKED) is None or usage_of(raw, ASKED).prompt > 0
