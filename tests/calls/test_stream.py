"""Dialogues that begin one by one: a thread runs them while the caller does other work."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from flowing import WAIT, ask, chain, echo, said
from proofmill.calls.dialogues import Ask
from proofmill.calls.stream import Stream
from proofmill.schema.errors import ServiceError


def test_dialogue_is_asked_before_the_next_begins(desk):
    """The first one's calls are answered before the caller begins another, without any wait."""
    answered = threading.Event()

    def reply(request, number):
        if said(request) == "<<first>>":
            answered.set()
        return echo(request, number)

    with desk(a=reply) as (askers, _), Stream("test/x", askers) as stream:
        first = stream.begin("first", chain("a", 3, "first"))
        assert answered.wait(WAIT)
        later = stream.begin("later", chain("a", 1, "later"))
        assert (first.result(WAIT), later.result(WAIT)) == ("<<<first>>>", "<later>")


def test_what_the_journal_has_is_not_asked_again(desk):
    """A second stream gives the same results without calls; a request in flight is made once."""
    with desk(a=echo) as (askers, asked):
        for _ in range(2):
            with Stream("test/x", askers) as stream:
                assert stream.results(lambda: ((f"row {n}", chain("a", 2, f"q{n % 3}")) for n in range(9))) == [
                    f"<<q{n % 3}>>" for n in range(9)
                ]
            assert len(asked["a"].requests) == 6


def test_dialogue_may_ask_a_program_between_two_models(desk):
    """The output of a program goes into the next request of the same dialogue."""

    def measured(text):
        (answer,) = yield [ask("a", text)]
        (length,) = yield [Ask("length", answer.text)]
        (last,) = yield [ask("b", f"{length}")]
        return last.text

    with desk(a=echo, b=echo) as (askers, _), Stream("test/x", askers) as stream:
        begun = [stream.begin("row", measured("x" * n), {"length": lambda texts: map(len, texts)}) for n in range(40)]
        assert [future.result(WAIT) for future in begun] == [f"<{n + 2}>" for n in range(40)]


def test_two_threads_that_begin_dialogues_get_the_results_of_their_own(desk):
    """With thousands at once, and a thread switch between any two steps, each future gets its own result."""

    def says(text):
        return text
        yield

    def begun_by(name):
        return [(f"{name} {n}", stream.begin("row", says(f"{name} {n}"))) for n in range(5_000)]

    interval = sys.getswitchinterval()
    with desk(a=echo) as (askers, _), Stream("test/x", askers) as stream, ThreadPoolExecutor(2) as threads:
        sys.setswitchinterval(1e-6)
        try:
            begun = [pair for found in threads.map(begun_by, ("listener", "trainer")) for pair in found]
        finally:
            sys.setswitchinterval(interval)
        assert [future.result(WAIT) for _, future in begun] == [text for text, _ in begun]


def test_too_many_failures_reach_everyone_who_waits_or_begins(desk):
    """All open dialogues end with the error that names the rows, later ones do not begin, and the stream raises it."""
    with desk(a=lambda request, number: (400, {"error": {"message": "no"}}, {}), max_failed=0.0) as (askers, _):
        stream = Stream("test/x", askers)
        with pytest.raises(ServiceError, match="1 of 1 calls failed"), stream:
            stream.begin("row 7", chain("a", 2, "x")).result(WAIT)
        with pytest.raises(ServiceError, match="row 7"):
            stream.begin("row 8", chain("a", 1, "y"))


def test_mistake_in_a_dialogue_ends_the_stream_and_not_the_program(desk):
    """An error that a dialogue raises ends all that wait, so that none waits forever."""

    def broken():
        yield [ask("a", "x")]
        raise ZeroDivisionError

    with desk(a=echo) as (askers, _):
        stream = Stream("test/x", askers)
        with pytest.raises(ZeroDivisionError), stream:
            stream.begin("row", broken()).result(WAIT)


def test_error_of_the_training_does_not_wait_for_a_silent_judge(desk, monkeypatch):
    """After an error the stream ends within seconds, however long a call in flight may take; outputs are kept."""
    monkeypatch.setattr("proofmill.calls.stream.LAST_CALLS", 0.2)
    asked, goes_on = threading.Event(), threading.Event()

    def reply(request, number):
        if said(request) == "silent":
            asked.set()
            goes_on.wait(WAIT)
        return echo(request, number)

    with desk(a=reply) as (askers, _):
        start = time.monotonic()
        with pytest.raises(KeyError), Stream("test/x", askers) as stream:
            assert stream.begin("quick", chain("a", 1, "quick")).result(WAIT) == "<quick>"
            stream.begin("silent", chain("a", 1, "silent"))
            assert asked.wait(WAIT)
            raise KeyError
        assert time.monotonic() - start < WAIT
        goes_on.set()
        assert len(askers["a"].journal) == 1
