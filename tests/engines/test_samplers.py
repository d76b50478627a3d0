"""Samplers that run ahead of a training: servers that are slow, away or unsuitable; a model with its own settings."""

import asyncio
import json
import shutil
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
from aiohttp import web

from proofmill.engines.rollout_servers import samplers, sampling
from proofmill.engines.rollout_servers.samplers import ServerSampler
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.errors import ServiceError, SettingError
from proofmill.training.asynchronous.sampler import RolloutRequest

ENTRY = Grpo(
    model="sft/cold", problems="problems/train", grader="arithmetic", unscored="drop", rewards={"grade": 1}, steps=1,
    group_size=4, problems_per_step=2, max_tokens=24, max_staleness=2,
)  # fmt: skip
CHOICE = {"token_ids": [5, 6], "logprobs": {"token_logprobs": [-1.0, -0.5]}}


@contextmanager
def serving(complete, info=None, status=200):
    """Run a server that answers completions by `complete(body)`, and `/server_info` by `info` or a status."""
    asked, ready, loop = [], threading.Event(), asyncio.new_event_loop()

    async def completions(request):
        asked.append(await request.json())
        return web.json_response({"choices": [await complete(asked[-1])]})

    async def about(request):
        return web.json_response({"vllm_config": info}, status=status)

    async def models(request):
        return web.json_response({"data": [{"id": "tiny"}]})

    async def health(request):
        return web.Response()

    async def serve():
        app = web.Application()
        app.add_routes([web.post("/v1/completions", completions), web.get("/server_info", about)])
        app.add_routes([web.get("/v1/models", models), web.get("/health", health)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port.append(site._server.sockets[0].getsockname()[1])
        ready.set()

    port, runners = [], []
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(serve(), loop)
    assert ready.wait(30)
    try:
        yield f"http://127.0.0.1:{port[0]}", asked
    finally:
        asyncio.run_coroutine_threadsafe(runners[0].cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@contextmanager
def sampling_by(url, **fields):
    """Yield a sampler at this address, the attempts that it reports, and an event for the first of them."""
    found, one = [], threading.Event()
    sampler = ServerSampler("grpo/x", url, replace(ENTRY, **fields))
    sampler.start(lambda attempt: (found.append(attempt), one.set()))
    try:
        yield sampler, found, one
    finally:
        sampler.stop()


def test_attempt_may_take_longer_than_a_server_may_be_away(monkeypatch):
    """It is requested once and waited for while the server responds."""
    monkeypatch.setattr(samplers, "SHORT", 0.2)
    monkeypatch.setenv("PROOFMILL_CALL_STALL_SECONDS", "0.5")

    async def slowly(body):
        await asyncio.sleep(2)
        return CHOICE

    with serving(slowly) as (url, asked), sampling_by(url) as (sampler, found, one):
        sampler.ask([RolloutRequest(3, [1, 2], [0])])
        assert one.wait(30)
        sampler.check()
        assert len(asked) == 1 and found[0].ids_T.tolist() == [5, 6]


def test_every_token_may_be_drawn_unless_the_entry_restricts_it():
    """A request sets all values that a server would fill in from the model's `generation_config.json`."""

    async def at_once(body):
        return CHOICE

    with serving(at_once) as (url, asked), sampling_by(url) as (sampler, _, one):
        sampler.ask([RolloutRequest(3, [1, 2], [0])])
        assert one.wait(30)
    assert (asked[0]["top_p"], asked[0]["top_k"], asked[0]["min_p"], asked[0]["repetition_penalty"]) == (1, 0, 0, 1)
    with serving(at_once) as (url, asked), sampling_by(url, top_p=0.9, top_k=7) as (sampler, _, one):
        sampler.ask([RolloutRequest(3, [1, 2], [0])])
        assert one.wait(30)
    assert (asked[0]["top_p"], asked[0]["top_k"], asked[0]["min_p"], asked[0]["repetition_penalty"]) == (0.9, 7, 0, 1)


def test_server_that_is_lost_ends_the_training(monkeypatch):
    """An unreachable server is detected even if it accepted a request that never ends."""
    monkeypatch.setattr(samplers, "SHORT", 0.1)
    monkeypatch.setenv("PROOFMILL_CALL_STALL_SECONDS", "0.3")

    async def never(body):
        await asyncio.sleep(3600)

    sampler = ServerSampler("grpo/x", "", ENTRY)
    with serving(never) as (sampler.url, asked):
        sampler.start(lambda attempt: None)
        sampler.ask([RolloutRequest(3, [1, 2], [0])])
        while not asked:
            threading.Event().wait(0.05)
    with pytest.raises(ServiceError, match="the rollout server at http"):
        for _ in range(200):
            sampler.check()
            threading.Event().wait(0.1)
    sampler.stop()


@pytest.mark.parametrize(("info", "status"), [({"weight_transfer_config": None}, 200), (None, 404)])
def test_server_that_takes_no_weights_is_refused_before_anything_is_loaded(info, status):
    """If it was started without the flag or the developer mode, the message has both."""
    with (
        serving(None, info, status) as (url, _),
        pytest.raises(ServiceError, match=r"takes no weights; .* Start it with VLLM_SERVER_DEV_MODE=1"),
    ):
        ServerSampler("grpo/x", url, ENTRY).check_settings()


@pytest.mark.parametrize(
    ("fields", "mode", "said"),
    [
        ({}, "processed_logprobs", None),
        ({}, "raw_logprobs", None),
        ({"temperature": 0.7}, "processed_logprobs", None),
        ({"temperature": 0.7}, "raw_logprobs", "expected processed_logprobs, the log-probabilities over all tokens"),
        ({"top_k": 20}, "raw_logprobs", None),
        ({"top_p": 0.9}, "processed_logprobs", "expected raw_logprobs, the log-probabilities over all tokens"),
        ({}, "raw_logits", "expected processed_logprobs or raw_logprobs"),
        ({"min_p": 0.1, "temperature": 0.7}, "raw_logprobs", "expected a temperature of 1 or no restriction"),
    ],
)
def test_server_returns_log_probabilities_over_all_tokens_or_is_refused(fields, mode, said):
    """Raw ones are at temperature 1, and processed ones are renormalized over the tokens that may be drawn."""
    info = {"weight_transfer_config": {"backend": "nccl"}, "model_config": {"logprobs_mode": mode}}
    refused = pytest.raises((ServiceError, SettingError), match=said) if said else nullcontext()
    with serving(None, info) as (url, _), refused:
        ServerSampler("grpo/x", url, replace(ENTRY, **fields)).check_settings()


def test_server_that_is_not_there_is_named(monkeypatch):
    """The message comes after PROOFMILL_CALL_STALL_SECONDS, with the system's error."""
    monkeypatch.setenv("PROOFMILL_CALL_STALL_SECONDS", "0.2")
    with pytest.raises(ServiceError, match=r"at http://127.0.0.1:9 answers `ClientConnectorError"):
        ServerSampler("grpo/x", "http://127.0.0.1:9", ENTRY).check_settings()


def test_sampler_that_never_began_ends_at_once():
    """A training that fails before its first rollout reports why, and does not wait for a thread."""
    ended = threading.Thread(target=ServerSampler("grpo/x", "http://127.0.0.1:9", ENTRY).stop, daemon=True)
    ended.start()
    ended.join(10)
    assert not ended.is_alive()


def test_process_draws_from_all_tokens_whatever_the_model_is_published_with(small, tmp_path):
    """The model's own nucleus and penalty are ignored, because the log-probabilities do not include them."""
    folder = tmp_path / "model"
    shutil.copytree(small.table("sft/cold").weights(), folder)
    path = folder / "generation_config.json"
    known = json.loads(path.read_text())
    path.write_text(json.dumps({**known, "do_sample": True, "top_k": 1, "top_p": 1e-6, "repetition_penalty": 5.0}))
    settings = sampling.Settings(str(folder), 64, 1, 0, 0, ends=[0], max_tokens=4, temperature=1.0)
    found = []
    sampling.sample(
        sampling.load_model(settings), settings, [(0, [5, 6, 7], place, 1.0) for place in range(64)], 0, found.append
    )
    assert len({tuple(attempt.ids_T) for attempt in found}) > 1


def test_noise_of_an_attempt_is_its_own(small):
    """An attempt depends on seed, group and place, not on its batch: a resumed run repeats no noise of other attempts."""
    folder = str(small.table("sft/cold").weights())
    settings = sampling.Settings(folder, 64, 1, 0, 0, ends=[0], max_tokens=12, temperature=1.0)
    model = sampling.load_model(settings)

    def draw(*places):
        found = []
        sampling.sample(model, settings, [(group, [5, 6, 7], place, 1.0) for group, place in places], 0, found.append)
        return {(one.group, one.place): one.ids_T.tolist() for one in found}

    together = draw((0, 0), (0, 1), (1, 0), (1, 1))
    assert draw((1, 1)) == {(1, 1): together[1, 1]}
    assert len({tuple(ids) for ids in together.values()}) == 4


def test_server_gets_a_seed_for_each_attempt():
    """The seeds differ by group and place, and are the same in a resumed run."""

    async def at_once(body):
        return CHOICE

    runs = []
    for _ in range(2):
        with serving(at_once) as (url, asked), sampling_by(url) as (sampler, found, _):
            sampler.ask([RolloutRequest(3, [1, 2], [0, 1]), RolloutRequest(4, [1, 2], [0])])
            while len(found) < 3:
                threading.Event().wait(0.02)
        runs.append({body["seed"] for body in asked})
    assert runs[0] == runs[1] and len(runs[0]) == 3
