"""Dialogues that flow: each goes on for itself, few are under way, several servers are asked side by side."""

import os
import signal
import threading
from collections import Counter

import pytest

from flowing import WAIT, chain, echo, rows, said
from proofmill.calls import flow
from proofmill.calls.dialogues import together
from proofmill.schema.errors import ServiceError


def test_slow_one_holds_up_nobody(desk):
    """The second dialogue makes all of its five calls while the first call of the first is under way."""
    others_ended = threading.Event()

    def reply(request, number):
        if said(request) == "slow":
            assert others_ended.wait(WAIT)
        elif said(request) == "<<<<quick>>>>":
            others_ended.set()
        return echo(request, number)

    with desk(a=reply) as (askers, _):
        results = list(flow.results(rows((chain, "a", 1, "slow"), (chain, "a", 5, "quick")), askers, "plays"))
    assert results == ["<slow>", "<<<<<quick>>>>>"]


def test_two_servers_are_asked_side_by_side(desk):
    """A call to one server waits for a call to the other, which comes from another dialogue."""
    meeting = threading.Barrier(2, timeout=WAIT)

    def reply(request, number):
        meeting.wait()
        return echo(request, number)

    with desk(a=reply, b=reply) as (askers, asked):
        results = list(flow.results(rows((chain, "ab", 2, "x"), (chain, "ba", 2, "y")), askers, "plays"))
    assert results == ["<<x>>", "<<y>>"]
    assert {name: len(one.requests) for name, one in asked.items()} == {"a": 2, "b": 2}


def test_results_come_in_order_and_few_dialogues_are_under_way(desk):
    """Of 500 dialogues that end in any order each has its own result, and no more are begun than the servers need."""
    begun, ended, most = [0], [0], [0]

    def counted(text):
        begun[0] += 1
        most[0] = max(most[0], begun[0] - ended[0])
        result = yield from chain("a", 1 + len(text) % 3, text)
        ended[0] += 1
        return result

    with desk(a=echo) as (askers, asked):
        dialogues = rows(*((counted, "x" * n) for n in range(500)))
        results = list(flow.results(dialogues, askers, "plays"))
    assert [result.strip("<>") for result in results] == ["x" * n for n in range(500)]
    assert len(asked["a"].requests) == sum(1 + n % 3 for n in range(500))
    assert most[0] <= 2 * flow.BLOCK + 8


def test_same_question_is_asked_once(desk):
    """Twice in one step, and by others who come later."""

    def twice(text):
        first, second = yield from together([chain("a", 1, text), chain("a", 2, text)])
        return first, second

    with desk(a=echo) as (askers, asked):
        results = list(flow.results(rows(*((twice, f"q{n % 2}") for n in range(80))), askers, "plays"))
    assert results == [(f"<q{n % 2}>", f"<<q{n % 2}>>") for n in range(80)]
    assert max(Counter(map(said, asked["a"].requests)).values()) == 1 and len(asked["a"].requests) == 4


def test_later_run_asks_only_what_is_missing(desk):
    """Two steps are in the journal: a run of three asks the third alone; one of no new step asks nobody."""
    with desk(a=echo) as (askers, _):
        list(flow.results(rows(*((chain, "a", 2, f"q{n}") for n in range(100))), askers, "plays"))
    with desk(a=echo) as (askers, asked):
        results = list(flow.results(rows(*((chain, "a", 3, f"q{n}") for n in range(100))), askers, "plays"))
        assert len(asked["a"].requests) == 100
        assert results == list(flow.results(rows(*((chain, "a", 3, f"q{n}") for n in range(100))), askers, "plays"))
        assert len(asked["a"].requests) == 100


def test_failed_call_is_a_value_and_asked_again_in_the_next_run(desk):
    """A refused question goes on as a failure in its dialogue and in another that asks the same; later it is answered."""

    def reply(request, number):
        return (400, {"error": {"message": "odd"}}, {}) if said(request) == "bad" else echo(request, number)

    dialogues = rows((chain, "a", 2, "bad"), (chain, "a", 1, "bad"), *((chain, "a", 1, f"q{n}") for n in range(6)))
    with desk(a=reply) as (askers, asked):
        results = list(flow.results(dialogues, askers, "plays"))
        assert results[:2] == ["<provider>", "provider"]
        assert sum(said(request) == "bad" for request in asked["a"].requests) == 1
    with desk(a=echo) as (askers, asked):
        assert list(flow.results(dialogues, askers, "plays"))[:2] == ["<<bad>>", "<bad>"]


def test_too_many_failures_name_rows_and_reasons(desk):
    """A tenth may fail, and all do."""
    with (
        desk(max_parked=0.1, a=lambda *_: (400, {"error": {"message": "odd"}}, {})) as (askers, _),
        pytest.raises(ServiceError, match=r"test/x: \d+ of \d+ calls are parked .*provider(.|\n)*  row \d+: provider, .*odd"),
    ):  # fmt: skip
        flow.results(rows(*((chain, "a", 1, f"q{n}") for n in range(40))), askers, "plays")


def test_signal_ends_it_with_what_is_answered(desk, monkeypatch):
    """After a SIGTERM nothing new is asked; the message counts plays and calls, and the next run asks the rest."""
    monkeypatch.setenv("PROOFMILL_GRACE", str(WAIT))

    def reply(request, number):
        if number == 20:
            os.kill(os.getpid(), signal.SIGTERM)
        return echo(request, number)

    dialogues = rows(*((chain, "a", 3, f"q{n}") for n in range(50)))
    with (
        desk(a=reply) as (askers, asked),
        pytest.raises(SystemExit, match=r"stopped by SIGTERM; \d+ of 50 plays have ended; \d+ calls are answered"),
    ):
        flow.results(dialogues, askers, "plays")
    before = len(asked["a"].requests)
    assert 20 < before < 150
    with desk(a=echo) as (askers, asked):
        assert list(flow.results(dialogues, askers, "plays")) == [f"<<<q{n}>>>" for n in range(50)]
    assert before + len(asked["a"].requests) == 150


def test_error_of_a_dialogue_ends_the_stage(desk):
    """What a dialogue raises is raised, and leaves no task behind."""

    def broken(text):
        yield from chain("a", 1, text)
        raise KeyError("the dialogue's own")

    with desk(a=echo, b=echo) as (askers, _), pytest.raises(KeyError, match="own"):
        flow.results(rows((broken, "x"), (chain, "b", 3, "y")), askers, "plays")


def test_log_counts_plays_and_calls(desk, capsys):
    """The last line of a stage says how many plays ended and how many calls they made."""
    with desk(a=echo) as (askers, _):
        list(flow.results(rows(*((chain, "a", 2, f"q{n}") for n in range(5))), askers, "plays"))
        list(flow.results(rows(*((chain, "a", 2, f"q{n}") for n in range(5))), askers, "plays"))
    assert "test/x  5 of 5 plays (100 %), 0 calls" in capsys.readouterr().err
