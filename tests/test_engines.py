"""Engines: sampling that depends on the question alone, and servers that fail in every way."""

import asyncio
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from conftest import REFEREE
from proofmill import engines, kinds, recipes
from proofmill.calls import Question
from proofmill.engines import SeededNoise, TransformersEngine, open_api
from proofmill.recipes import RecipeError


@pytest.fixture(scope="module")
def engine(small):
    return TransformersEngine(small.table("sft/cold"))


def some(engine, count=12, **sampling):
    return [
        Question(engine.model, (("user", f"Find ${n}$."),), max_tokens=16, sample=n, **{"temperature": 1.0, **sampling})
        for n in range(count)
    ]


def texts(engine, questions):
    found = {q.key: a.text for q, a in engine.answers(questions)}
    return [found[q.key] for q in questions]


def test_sample_does_not_depend_on_its_batch(engine):
    """A question gets the same sample alone, in another order and in other company."""
    questions = some(engine)
    together = texts(engine, questions)
    assert together == list(reversed(texts(engine, questions[::-1])))
    assert together[3:7] == texts(engine, questions[3:7])


def test_sample_index_gives_other_samples(engine):
    """Several attempts at one problem are different attempts."""
    same = [
        Question(engine.model, (("user", "Find $5$."),), temperature=1.0, max_tokens=16, sample=n) for n in range(8)
    ]
    assert len(set(texts(engine, same))) > 4


def test_greedy_does_not_depend_on_the_seed(engine):
    """At temperature 0 the seed decides nothing."""
    assert texts(engine, some(engine, temperature=0.0)) == texts(engine, some(engine, temperature=0.0, seed=9))


def test_noise_samples_the_softmax():
    """The arg-max with Gumbel noise is distributed as softmax(logits / T): frequencies within four standard errors."""
    logits, temperature, draws = torch.tensor([2.0, 1.0, 0.0, -1.0]), 0.7, 4000
    noise = SeededNoise(range(draws), temperature)
    chosen = noise(None, logits.expand(draws, -1)).argmax(dim=1)
    found = torch.bincount(chosen, minlength=4) / draws
    expected = torch.softmax(logits / temperature, dim=0)
    error = (expected * (1 - expected) / draws).sqrt()
    assert bool(((found - expected).abs() < 4 * error).all())


def test_nucleus_leaves_out_the_tail():
    """With top_p no token outside the nucleus is ever sampled."""
    logits = torch.tensor([3.0, 2.9, -4.0, -5.0])
    chosen = SeededNoise(range(500), 1.0, top_p=0.9)(None, logits.expand(500, -1)).argmax(dim=1)
    assert {0, 1} == set(chosen.tolist())


def test_answer_that_was_cut_off_says_so(engine):
    """An answer of `max-tokens` tokens without an end has stop `length`."""
    answers = [a for _, a in engine.answers(some(engine, count=4))]
    assert all((a.stop == "length") == (a.tokens == 16) for a in answers)
    assert any(a.stop == "length" for a in answers)


def test_question_longer_than_the_context_is_an_outcome(engine):
    """A prompt that does not fit is a row with a reason, not a crash."""
    long = Question(engine.model, (("user", "7" * 2000),), temperature=1.0, max_tokens=16)
    (_, answer), *_ = list(engine.answers([long, *some(engine, 2)]))
    assert (answer.reason, answer.text) == ("too-long", "")


# ------------------------------------------------------------------------------------------------------- remote servers

GOOD = {
    "id": "x", "object": "chat.completion", "created": 1, "model": "served",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "fine"}}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
}  # fmt: skip


@contextmanager
def server(*replies):
    """A real HTTP server that gives these (status, body, headers) in turn, the last one for ever."""
    given = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body, headers = replies[min(len(given), len(replies) - 1)]
            given.append(status)
            payload = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": len(payload), **headers}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_):
            pass

    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{served.server_port}/v1", given
    finally:
        served.shutdown()
        served.server_close()


@pytest.fixture
def hasty(monkeypatch):
    """Waiting between attempts takes no time."""

    async def at_once(_, real=asyncio.sleep):
        await real(0)

    monkeypatch.setattr(engines.asyncio, "sleep", at_once)


def answer_from(monkeypatch, *replies, **api):
    with server(*replies) as (url, given):
        monkeypatch.setenv("PROOFMILL_JUDGE_URL", url)
        declared = kinds.Api(**{"id": "m", "price": {"input": 1.0, "output": 10.0}, **api})
        with open_api("api/judge", declared) as engine:
            (_, answer), *_ = list(engine.answers([Question("m", (("user", "q"),))]))
    return answer, given


def test_remote_answer_has_text_tokens_and_cost(monkeypatch):
    """An answer carries what it cost by the declared price: (10 x 1 + 2 x 10) / 1e6 dollars."""
    answer, _ = answer_from(monkeypatch, (200, GOOD, {}))
    assert (
        answer.text, answer.stop, answer.reason, answer.prompt_tokens, answer.tokens, answer.model) == ("fine", "end", "ok", 10, 2, "served")  # fmt: skip
    assert answer.cost == pytest.approx(30e-6)


def test_unknown_price_is_an_unknown_cost(monkeypatch):
    """A price declared unknown gives no cost; it is not 0."""
    answer, _ = answer_from(monkeypatch, (200, GOOD, {}), price="unknown")
    assert answer.cost is None


@pytest.mark.parametrize("status", [429, 500, 503])
def test_passing_failure_is_tried_again(monkeypatch, hasty, status):
    """A server that is overloaded for a moment costs an attempt, not the row."""
    answer, given = answer_from(monkeypatch, (status, {"error": {"message": "busy"}}, {}), (200, GOOD, {}))
    assert (answer.text, answer.attempts) == ("fine", 2)
    assert [status, 200] == given


def test_truncated_json_is_tried_again(monkeypatch, hasty):
    """A body that is cut off is a failure of the server, not an empty answer."""
    answer, _ = answer_from(monkeypatch, (200, b'{"id": "x", "choi', {}), (200, GOOD, {}))
    assert (answer.text, answer.attempts) == ("fine", 2)


def test_same_failure_again_and_again_is_parked(monkeypatch, hasty):
    """A server that fails the same way each time is asked a few times, not for ever; the row has the reason."""
    answer, given = answer_from(monkeypatch, (500, {"error": {"message": "bug"}}, {}))
    assert (answer.stop, answer.reason, len(given)) == ("error", "provider", engines.SAME_FAILURES)
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
def test_refusal_is_an_outcome_and_asked_once(monkeypatch, body, expected):
    """What will not change by asking again is asked once."""
    answer, given = answer_from(monkeypatch, (400, body, {}))
    assert expected == (answer.stop, answer.reason)
    assert len(given) == 1


def test_content_filter_finish_is_refused(monkeypatch):
    """A filtered answer is marked as such, whatever text came with it."""
    filtered = {**GOOD, "choices": [{**GOOD["choices"][0], "finish_reason": "content_filter"}]}
    answer, _ = answer_from(monkeypatch, (200, filtered, {}))
    assert answer.reason == "refused"


def test_server_that_is_not_there_is_a_failure_of_the_row(monkeypatch, hasty):
    """A refused connection does not crash the stage."""
    monkeypatch.setenv("PROOFMILL_JUDGE_URL", "http://127.0.0.1:9/v1")
    with open_api("api/judge", kinds.Api(id="m", price="unknown")) as engine:
        (_, answer), *_ = list(engine.answers([Question("m", (("user", "q"),))]))
    assert (answer.stop, answer.reason) == ("error", "provider")


def test_remote_model_without_an_address_says_what_to_set(monkeypatch):
    """An address that is missing is a message that names the variable."""
    monkeypatch.delenv("PROOFMILL_JUDGE_URL", raising=False)
    with (
        pytest.raises(RecipeError, match="PROOFMILL_JUDGE_URL"),
        open_api("api/judge", kinds.Api(id="m", price="unknown")),
    ):
        pass


def test_referee_starts_answers_and_stops():
    """The referee is there while it is needed, on a port of its own, and gone afterwards."""
    import socket

    declared = recipes.entry_from("api", REFEREE)
    with open_api("api/referee", declared) as one, open_api("api/referee", declared) as two:
        urls = [str(e._client.base_url) for e in (one, two)]
        assert urls[0] != urls[1]
        (_, answer), *_ = list(one.answers([Question("referee-1", (("user", "hello"),))]))
        assert "no verdict" in answer.text
    with pytest.raises(ConnectionError):
        socket.create_connection(("127.0.0.1", one._client.base_url.port), timeout=2)


def test_referee_is_reached_past_a_proxy(monkeypatch):
    """A proxy in a node's environment does not stand between a job and the program it started."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with open_api("api/referee", recipes.entry_from("api", REFEREE)) as engine:
        (_, answer), *_ = list(engine.answers([Question("referee-1", (("user", "hello"),))]))
    assert "no verdict" in answer.text


def test_answer_cut_inside_a_character_is_kept(monkeypatch):
    """Half of a surrogate pair does not stop the stage or lose the answer."""
    cut = {**GOOD, "choices": [{**GOOD["choices"][0], "message": {"role": "assistant", "content": "fine \ud83d"}}]}
    answer, _ = answer_from(monkeypatch, (200, cut, {}))
    assert answer.text == "fine ?"


def test_answer_without_usage_has_an_unknown_cost(monkeypatch):
    """A server that does not count tokens leaves the cost unknown, not 0."""
    answer, _ = answer_from(monkeypatch, (200, {k: v for k, v in GOOD.items() if k != "usage"}, {}))
    assert answer.cost is None
