"""The runner of dialogues: each continues by its own outputs, few are open, several servers are called concurrently."""

import asyncio
import os
import signal
import threading
from collections import Counter
from contextlib import ExitStack
from itertools import islice

import pytest

from flowing import WAIT, chain, echo, rows, said
from proofmill.calls import runner
from proofmill.calls.budget import Budget
from proofmill.calls.calls import Asker
from proofmill.calls.dialogues import together
from proofmill.calls.journal import Journal
from proofmill.calls.model_requests import ModelOutput
from proofmill.schema.errors import ServiceError


def test_slow_dialogue_delays_no_other(desk):
    """The second dialogue makes all of its five calls while the first call of the first is in flight."""
    others_ended = threading.Event()

    def reply(request, number):
        if said(request) == "slow":
            assert others_ended.wait(WAIT)
        elif said(request) == "<<<<quick>>>>":
            others_ended.set()
        return echo(request, number)

    with desk(a=reply) as (askers, _):
        results = list(runner.results(rows((chain, "a", 1, "slow"), (chain, "a", 5, "quick")), askers, "plays"))
    assert results == ["<slow>", "<<<<<quick>>>>>"]


def test_two_servers_are_asked_side_by_side(desk):
    """A call to one server waits for a call to the other, which comes from another dialogue."""
    meeting = threading.Barrier(2, timeout=WAIT)

    def reply(request, number):
        meeting.wait()
        return echo(request, number)

    with desk(a=reply, b=reply) as (askers, asked):
        results = list(runner.results(rows((chain, "ab", 2, "x"), (chain, "ba", 2, "y")), askers, "plays"))
    assert results == ["<<x>>", "<<y>>"]
    assert {name: len(one.requests) for name, one in asked.items()} == {"a": 2, "b": 2}


def test_results_come_in_order_and_few_dialogues_are_under_way(desk):
    """Of 500 dialogues that end in any order each has its own result, and no more are open than the servers need."""
    begun, ended, most = [0], [0], [0]

    def counted(text):
        begun[0] += 1
        most[0] = max(most[0], begun[0] - ended[0])
        result = yield from chain("a", 1 + len(text) % 3, text)
        ended[0] += 1
        return result

    with desk(a=echo) as (askers, asked):
        dialogues = rows(*((counted, "x" * n) for n in range(500)))
        results = list(runner.results(dialogues, askers, "plays"))
    assert [result.strip("<>") for result in results] == ["x" * n for n in range(500)]
    assert len(asked["a"].requests) == sum(1 + n % 3 for n in range(500))
    assert most[0] <= 2 * runner.BLOCK + 8


def test_same_question_is_asked_once(desk):
    """Also if it occurs twice in one step, and in later dialogues."""

    def twice(text):
        first, second = yield from together([chain("a", 1, text), chain("a", 2, text)])
        return first, second

    with desk(a=echo) as (askers, asked):
        results = list(runner.results(rows(*((twice, f"q{n % 2}") for n in range(80))), askers, "plays"))
    assert results == [(f"<q{n % 2}>", f"<<q{n % 2}>>") for n in range(80)]
    assert max(Counter(map(said, asked["a"].requests)).values()) == 1 and len(asked["a"].requests) == 4


def test_later_run_asks_only_what_is_missing(desk):
    """With two steps in the journal, a run of three makes the calls of the third alone; a rerun makes none."""
    with desk(a=echo) as (askers, _):
        list(runner.results(rows(*((chain, "a", 2, f"q{n}") for n in range(100))), askers, "plays"))
    with desk(a=echo) as (askers, asked):
        results = list(runner.results(rows(*((chain, "a", 3, f"q{n}") for n in range(100))), askers, "plays"))
        assert len(asked["a"].requests) == 100
        assert results == list(runner.results(rows(*((chain, "a", 3, f"q{n}") for n in range(100))), askers, "plays"))
        assert len(asked["a"].requests) == 100


def test_failed_call_is_a_value_and_asked_again_in_the_next_run(desk):
    """A failed request is a failure in all dialogues that make it; the next run repeats it."""

    def reply(request, number):
        return (400, {"error": {"message": "odd"}}, {}) if said(request) == "bad" else echo(request, number)

    dialogues = rows((chain, "a", 2, "bad"), (chain, "a", 1, "bad"), *((chain, "a", 1, f"q{n}") for n in range(6)))
    with desk(a=reply) as (askers, asked):
        results = list(runner.results(dialogues, askers, "plays"))
        assert results[:2] == ["<provider>", "provider"]
        assert sum(said(request) == "bad" for request in asked["a"].requests) == 1
    with desk(a=echo) as (askers, asked):
        assert list(runner.results(dialogues, askers, "plays"))[:2] == ["<<bad>>", "<bad>"]


def test_too_many_failures_name_rows_and_reasons(desk):
    """The share is a tenth, and all calls fail."""
    with (
        desk(max_failed=0.1, a=lambda *_: (400, {"error": {"message": "odd"}}, {})) as (askers, _),
        pytest.raises(ServiceError, match=r"test/x: \d+ of \d+ calls failed .*provider(.|\n)*  row \d+: provider, .*odd"),
    ):  # fmt: skip
        runner.results(rows(*((chain, "a", 1, f"q{n}") for n in range(40))), askers, "plays")


def test_signal_ends_it_with_what_is_answered(desk, monkeypatch):
    """After a SIGTERM no call starts; the message counts plays and calls, and the next run makes the rest."""
    monkeypatch.setenv("PROOFMILL_GRACE_SECONDS", str(WAIT))

    def reply(request, number):
        if number == 20:
            os.kill(os.getpid(), signal.SIGTERM)
        return echo(request, number)

    dialogues = rows(*((chain, "a", 3, f"q{n}") for n in range(50)))
    with (
        desk(a=reply) as (askers, asked),
        pytest.raises(
            SystemExit, match=r"stopped by SIGTERM; \d+ of 50 plays have ended; \d+ calls are in the journal"
        ),
    ):
        runner.results(dialogues, askers, "plays")
    before = len(asked["a"].requests)
    assert 20 < before < 150
    with desk(a=echo) as (askers, asked):
        assert list(runner.results(dialogues, askers, "plays")) == [f"<<<q{n}>>>" for n in range(50)]
    assert before + len(asked["a"].requests) == 150


def test_error_of_a_dialogue_ends_the_stage(desk):
    """An error that a dialogue raises is raised, and leaves no task behind."""

    def broken(text):
        yield from chain("a", 1, text)
        raise KeyError("the dialogue's own")

    with desk(a=echo, b=echo) as (askers, _), pytest.raises(KeyError, match="own"):
        runner.results(rows((broken, "x"), (chain, "b", 3, "y")), askers, "plays")


def test_log_counts_plays_and_calls(desk, capsys):
    """The last line of a stage says how many plays ended and how many calls they made."""
    with desk(a=echo) as (askers, _):
        list(runner.results(rows(*((chain, "a", 2, f"q{n}") for n in range(5))), askers, "plays"))
        list(runner.results(rows(*((chain, "a", 2, f"q{n}") for n in range(5))), askers, "plays"))
    assert "test/x  5 of 5 plays (100 %), 0 calls" in capsys.readouterr().err


class Paced:
    """An engine in the event loop that answers `at_a_time` requests in each turn of the loop."""

    price, max_failed, flows, pace = "unknown", 0.0, True, None

    def __init__(self, model, runner, at_a_time):
        self.model, self.runner, self.at_a_time = model, runner, at_a_time

    async def hold(self, feed, asking):
        while feed.open:
            for question in list(islice(feed, self.at_a_time)):
                asking.take(question, ModelOutput(f"<{question.messages[-1][1]}>", "end"))
            await asyncio.sleep(0)

    def read(self, answer):
        return answer


class Here:
    """An engine in this process, which records the sizes of its batches."""

    price, max_failed, flows, pace = "unknown", 0.0, False, None

    def __init__(self, model):
        self.model, self.batched = model, []

    def batches(self, questions):
        if questions := sorted(questions, key=lambda question: question.messages):
            self.batched.append(len(questions))
            yield questions

    def answer(self, questions, asking):
        for question in questions:
            asking.take(question, ModelOutput(f"[{question.messages[-1][1]}]", "end"))

    def read(self, answer):
        return answer


def opened(stack, folder, *engines):
    journal = stack.enter_context(Journal(folder / "calls/test/x"))
    return {e.model: Asker("test/x", e, journal, Budget(None, folder / "calls", journal)) for e in engines}


def test_fast_model_does_not_outrun_a_slow_one(tmp_path, monkeypatch):
    """Each of 3,000 dialogues calls a fast model, then a slow one: the number of open ones stays bounded."""
    monkeypatch.setattr(runner, "OPEN", 100)
    begun, ended, most = [0], [0], [0]

    def counted(text):
        begun[0] += 1
        most[0] = max(most[0], begun[0] - ended[0])
        result = yield from chain(["fast", "slow"], 2, text)
        ended[0] += 1
        return result

    with ExitStack() as stack:
        loop = stack.enter_context(asyncio.Runner())
        askers = opened(stack, tmp_path, Paced("fast", loop, 500), Paced("slow", loop, 3))
        dialogues = rows(*((counted, f"q{n}") for n in range(3_000)))
        assert list(runner.results(dialogues, askers, "rows")) == [f"<<q{n}>>" for n in range(3_000)]
    assert 100 <= most[0] <= 2 * 2 * 100 + runner.BLOCK


def test_engine_in_this_process_waits_for_servers_and_gathers(tmp_path, monkeypatch):
    """Its requests come together, whatever the pace of the server that is called in between."""
    monkeypatch.setattr(runner, "OPEN", 100)
    with ExitStack() as stack:
        loop = stack.enter_context(asyncio.Runner())
        askers = opened(stack, tmp_path, here := Here("here"), Paced("there", loop, 3))
        dialogues = rows(*((chain, ["here", "there"], 4, f"q{n}") for n in range(150)))
        assert list(runner.results(dialogues, askers, "rows")) == [f"<[<[q{n}]>]>" for n in range(150)]
    assert here.batched == [150, 150]


def test_question_of_two_dialogues_that_fails_is_asked_once(desk):
    """All receive the failure, whether they wait for it or begin after it."""
    with desk(a=lambda *_: (400, {"error": {"message": "odd"}}, {}), max_failed=1.0) as (askers, asked):
        dialogues = rows((chain, "a", 1, "bad"), *((chain, "a", 1, "bad") for _ in range(2 * runner.BLOCK)))
        assert set(runner.results(dialogues, askers, "rows")) == {"provider"}
        assert len(asked["a"].requests) == 1
