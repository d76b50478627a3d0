"""Calls to models: each request once, failures recorded, and stops that lose nothing."""

import errno
import os
import shutil
import signal
import threading
import time
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest

from proofmill.calls.batches.batch_log import Batch, BatchLog
from proofmill.calls.budget import Budget, sum_costs
from proofmill.calls.calls import Asker, Spent
from proofmill.calls.journal import Journal
from proofmill.calls.model_requests import ModelOutput, ModelRequest, Requests, build_request, split_reasoning
from proofmill.runtime import locks
from proofmill.runtime.signals import SIGNALS
from proofmill.schema.errors import JournalError, ServiceError


class Echo:
    """An engine that outputs the request's own text, records the requests, and fails for the texts in `failing`."""

    model, max_failed = "echo", 0.5
    price = {"input": 0.0, "output": 0.0}  # noqa: RUF012

    def __init__(self, failing=(), during=lambda asking: None):
        self.asked, self.failing, self.during = [], set(failing), during

    def batches(self, requests):
        requests = list(requests)
        for start in range(0, len(requests), 3):
            yield requests[start : start + 3]

    def answer(self, requests, asking):
        for request in reversed(list(requests)):
            text = request.messages[-1][1]
            self.asked.append(text)
            failed = text in self.failing
            asking.take(
                request,
                ModelOutput("", "error", "provider", detail="bug") if failed else ModelOutput(text, "end", cost=0.0),
            )
            self.during(asking)

    def read(self, answer):
        return answer


def requests(*texts, **sampling):
    made = [(f"row-{text}", ModelRequest("echo", (("user", text),), **sampling)) for text in texts]
    return Requests(len(made), lambda: made)


def asker(folder, engine, journal):
    return Asker("test/x", engine, journal, Budget(None, folder, journal))


def answered(folder, engine, *texts, **sampling):
    with Journal(folder) as journal:
        return [a.text for a in asker(folder, engine, journal)(requests(*texts, **sampling))]


def test_answers_come_in_the_order_of_the_questions(tmp_path):
    """Rows keep their order, whatever the order of an engine's outputs."""
    assert list("abcdefg") == answered(tmp_path, Echo(), *"abcdefg")


def test_answered_questions_are_not_asked_again(tmp_path):
    """Added rows make only new calls, and a changed order makes none."""
    engine = Echo()
    answered(tmp_path, engine, *"abc")
    assert list("dcba") == answered(tmp_path, engine, *"dcba")
    assert sorted("abcd") == sorted(engine.asked)


def test_equal_questions_are_asked_once(tmp_path):
    """Two rows with the same request share one call."""
    engine = Echo()
    assert answered(tmp_path, engine, "a", "a", "b") == ["a", "a", "b"]
    assert sorted("ab") == sorted(engine.asked)


CHANGES = {
    "model": "other", "messages": (("user", "b"),), "temperature": 0.5, "top_p": 0.9, "max_tokens": 5, "seed": 1, "sample": 1,
    "options": "{}", "logprobs": True, "top_k": 3, "min_p": 0.1, "stop": ("a",),
}  # fmt: skip


@pytest.mark.parametrize("name", [each.name for each in fields(ModelRequest)])
def test_key_changes_with_each_field(name):
    """Another model, prompt, sampling setting, seed or sample is another request."""
    (request,) = requests("a")
    assert request.key != replace(request, **{name: CHANGES[name]}).key


def test_key_of_a_question_from_before_is_what_it_was():
    """Settings that were added later count only if they are set, so that old journals stay valid."""
    plain = ModelRequest("m", (("user", "x"),))
    full = ModelRequest("m", (("user", "x"),), 1.0, 0.9, 10, 3, 2, '{"a":1}', True)
    assert [plain.key, full.key] == ["0e3c56db19160ad33c66b2b2ccd447de", "7e3f5e373f7fc5a9839e0017cf5d3407"]


def test_key_changes_with_the_commit_of_a_server():
    """Another commit of open weights is another model; without one, the key is as before."""
    server = {"id": "m", "temperature": 1.0, "max_tokens": 10, "extra_body": {"a": 1}}
    plain, one, other = (
        build_request(SimpleNamespace(**server, commit=commit), (("user", "x"),)) for commit in (None, "c1", "c2")
    )
    assert plain.options == '{"a": 1}' and len({plain.key, one.key, other.key}) == 3


def test_key_tells_messages_apart():
    """The boundary between two messages is part of a request."""
    keys = {ModelRequest("m", messages).key for messages in [
        (("user", "a"), ("assistant", "b")), (("user", "a"), ("user", "b")), (("user", "ab"),), (("user", 'a", "b'),)]}  # fmt: skip
    assert len(keys) == 4


def test_failed_row_is_recorded_and_retried(tmp_path):
    """A failed call is an output with its reason; the next run repeats it, and no other call."""
    with Journal(tmp_path) as journal:
        answers = list(asker(tmp_path, Echo(failing="b"), journal)(requests(*"abc")))
    assert [a.reason for a in answers] == ["ok", "provider", "ok"]
    engine = Echo()
    assert answered(tmp_path, engine, *"abc") == list("abc")
    assert engine.asked == ["b"]


def test_stage_fails_with_too_many_failed_rows_and_names_them(tmp_path):
    """More than the declared share stops the stage; the message names rows, reasons and the fix; outputs are kept."""
    with Journal(tmp_path) as journal, pytest.raises(ServiceError) as error:
        asker(tmp_path, Echo(failing="abef"), journal)(requests(*"abcdef"))
    said = str(error.value)
    assert "4 of 6 calls failed (4 provider)" in said
    assert "row-a: provider, bug" in said
    assert "`max-failed`" in said
    engine = Echo()
    answered(tmp_path, engine, *"abcdef")
    assert sorted("abef") == sorted(engine.asked)


@pytest.mark.parametrize(("failing", "passes"), [("abc", True), ("abcd", False)])
def test_share_of_failures_is_allowed_to_the_last_one(tmp_path, failing, passes):
    """Exactly `max-failed` of the calls may fail; one more stops the stage."""
    with Journal(tmp_path) as journal:
        if passes:
            answers = list(asker(tmp_path, Echo(failing=failing), journal)(requests(*"abcdef")))
            assert [answer.failed for answer in answers] == [True] * 3 + [False] * 3
        else:
            with pytest.raises(ServiceError, match="4 of 6 calls failed"):
                asker(tmp_path, Echo(failing=failing), journal)(requests(*"abcdef"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_after_what_is_in_flight(tmp_path, number):
    """The first SIGTERM or Ctrl-C lets the batch in flight finish, journals it, and says how to resume."""
    engine = Echo(during=lambda asking: os.kill(os.getpid(), number))
    engine.during = lambda asking: (os.kill(os.getpid(), number), setattr(engine, "during", lambda asking: None))
    with pytest.raises(SystemExit) as stop:
        answered(tmp_path, engine, *"abcdefg")
    assert f"stopped by {signal.Signals(number).name}; 3 of 7 calls" in str(stop.value)
    assert "Rerun the same command to resume" in str(stop.value)
    assert answered(tmp_path, engine, *"abcdefg") == list("abcdefg")
    assert sorted("abcdefg") == sorted(engine.asked)


def test_end_of_the_grace_time_ends_at_once(tmp_path, monkeypatch):
    """The process does not wait for an engine that exceeds the grace time; its outputs are kept."""
    monkeypatch.setenv("PROOFMILL_GRACE_SECONDS", "0.2")

    def hang(asking):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)

    start = time.monotonic()
    with pytest.raises(SystemExit, match="stopped at once"):
        answered(tmp_path, Echo(during=hang), *"abc")
    assert time.monotonic() - start < 10
    engine = Echo()
    answered(tmp_path, engine, *"abc")
    assert len(engine.asked) == 2


def test_signal_at_the_end_of_the_asking_is_not_swallowed(tmp_path):
    """A signal during the last call ends the process as it would outside of calls, and the outputs are kept."""
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        engine = Echo(during=lambda asking: os.kill(os.getpid(), signal.SIGTERM))
        assert answered(tmp_path, engine, "a") == ["a"]
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_engine_that_forgets_a_question_is_an_error(tmp_path):
    """A request that neither succeeds nor fails is an error, not a missing row."""
    engine = Echo()
    engine.answer = lambda requests, asking: list(requests)
    with pytest.raises(RuntimeError, match="2 calls neither succeeded nor failed"):
        answered(tmp_path, engine, *"ab")


def test_signals_are_as_before_afterwards(tmp_path):
    """Calls leave the signal handlers unchanged, in the main thread and in others."""
    before = [signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)]
    answered(tmp_path, Echo(), "a")
    assert before == [signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)]
    elsewhere = threading.Thread(target=answered, args=(tmp_path, Echo(), "b"))
    elsewhere.start()
    elsewhere.join()
    assert answered(tmp_path, Echo(failing="b"), "b") == ["b"]


def test_spent_counts_what_passes():
    """Costs and tokens add up; one unknown cost makes the sum unknown; a failed row without a cost adds nothing."""
    spent = Spent()
    given = [ModelOutput("a", "end", cost=1.0, tokens=2), ModelOutput("", "error", "provider", tokens=1)]
    assert list(spent.count(given)) == given
    assert (spent.cost, spent.tokens) == (1.0, 3)
    list(spent.count([ModelOutput("b", "end", cost=None)]))
    assert spent.cost is None


@pytest.mark.parametrize(
    ("text", "delimiters", "expected"),
    [
        ("think</think>answer", ["</think>"], ("answer", "think")),
        ("a</think>b</think>c", ["</think>"], ("c", "a</think>b")),
        ("the server removed the delimiters", ["</think>"], ("the server removed the delimiters", None)),
        ("plain", [], ("plain", None)),
        ("x</thought>y", ["</think>", "</thought>"], ("y", "x")),
    ],
)
def test_reasoning_is_split_at_the_last_delimiter(text, delimiters, expected):
    """The text after the reasoning is the answer; a text that ended normally without a delimiter is one."""
    answer = split_reasoning(ModelOutput(text, "end"), delimiters)
    assert expected == (answer.text, answer.reasoning)


def test_text_cut_off_before_its_delimiter_is_all_reasoning():
    """A text that was truncated inside the reasoning has no answer."""
    answer = split_reasoning(ModelOutput("only thinking", "length"), ["</think>"])
    assert (answer.text, answer.reasoning) == ("", "only thinking")


def test_reasoning_that_was_sent_apart_is_left_alone():
    """Reasoning that the server sent separately is left alone."""
    answer = ModelOutput("answer", "end", reasoning="thought")
    assert answer == split_reasoning(answer, ["</think>"])


@pytest.fixture
def jobs(tmp_path):
    """Yield two jobs that share a budget of a dollar, each with its journal locked as by a running job."""
    made, files = [], []
    for name in "xy":
        folder = tmp_path / "responses" / name
        folder.mkdir(parents=True)
        files.append(os.open(folder / "lock", os.O_RDWR | os.O_CREAT))
        assert locks.take(files[-1], name, 0)
        made.append(Budget(1.0, tmp_path, SimpleNamespace(spent=0.0, folder=folder)))
    yield *made, lambda place: os.close(files.pop(place))
    for file in files:
        os.close(file)


def later(budget):
    """Expire the claims that a budget has read, as a second later."""
    budget._read = -1e9
    return budget


def test_budget_has_room_for_so_much(jobs):
    """A call that the budget has no room for is not made; the reserve of an ended call is free."""
    one, _, _ = jobs
    one.journal.spent = 0.4
    assert one.reserve(0.5)
    assert not one.reserve(0.2)
    one.settle(0.5)
    assert one.reserve(0.2)


def test_jobs_never_set_aside_more_than_the_budget_together(jobs):
    """The calls in flight of one job leave no room for another, which waits and does not give up."""
    one, other, _ = jobs
    assert one.reserve(0.7)
    assert not other.reserve(0.7)
    assert not other.is_spent(0.7)
    one.settle(0.7)
    one.journal.spent = 0.1
    one.close()
    assert later(other).reserve(0.7)
    assert not later(one).reserve(0.3)


def test_budget_that_is_spent_is_spent_up(jobs):
    """When the others' cost leaves no room for a call, waiting cannot help."""
    one, other, _ = jobs
    one.journal.spent = 0.5
    one.close()
    assert later(other).is_spent(0.6)
    assert not other.is_spent(0.4)


def test_killed_job_sets_nothing_aside(jobs):
    """The reserve of a killed job is free, and the cost of its journal counts."""
    one, other, kill = jobs
    with Journal(one.journal.folder.parent.parent / "labels" / "z") as journal:
        (request,) = requests("a")
        journal.add(request, ModelOutput("a", "end", cost=0.25))
    assert one.reserve(0.7)
    assert not other.reserve(0.5)
    kill(0)
    assert later(other).reserve(0.5)
    assert other.others() == (0.25, 0.0)
    assert not other.reserve(0.5)


def test_batch_of_a_killed_job_keeps_its_dollars(jobs):
    """The server continues it and charges it; another job does not wait for them. They are free once it is merged."""
    one, other, kill = jobs
    log, batch = BatchLog(one.journal.folder, "m"), Batch("d", frozenset("k"), None, 0.7)
    log.add("intended", batch)
    kill(0)
    assert not other.reserve(0.5) and other.is_spent(0.5) and sum_costs(other.calls) == 0
    again = Budget(1.0, other.calls, one.journal)
    assert not again.reserve(0.5) and again.is_spent(0.5) and again.reserve(0.3)
    log.add("merged", batch)
    again.settle(0.3)
    again.settle_batch(batch)
    again.close()
    assert later(other).reserve(0.5)


def test_claim_of_a_killed_job_with_the_time_of_its_tail_is_not_believed(jobs):
    """If both have the same modification time, the journal may have more rows, and is summed."""
    one, other, let_go = jobs
    with Journal(other.journal.folder.with_name("z")) as journal:
        journal.add(ModelRequest("m", (("user", "q"),)), ModelOutput("a", "end", cost=0.6))
        copied = journal.tail.read_bytes()
    tail = other.journal.folder / "calls.jsonl"
    tail.write_bytes(copied)
    (other.journal.folder / "claim").write_text("0.0 0.0\n")
    for path in (tail, other.journal.folder / "claim"):
        os.utime(path, ns=(10**18, 10**18))
    shutil.rmtree(other.journal.folder.with_name("z"))
    let_go(1)
    assert later(one).others(fresh=True)[0] == pytest.approx(0.6)


def test_claim_that_cannot_be_written_is_one_sentence(jobs, monkeypatch):
    """An error of the disk names the file; nothing more is reserved."""
    one, _, _ = jobs

    def fails(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(JournalError, match="claim: Input/output error; expected a file that can be written"):
        one.reserve(0.5)
    assert one.reserved == 0.0
