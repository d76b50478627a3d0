"""The way a model is asked: once ever, with failures parked, and stopped without losing anything."""

import errno
import os
import shutil
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from proofmill.calls.budget import Budget
from proofmill.calls.calls import Asker, Spent, split_reasoning
from proofmill.calls.exchange import Answer, Question, Questions
from proofmill.calls.journal import Journal
from proofmill.runtime import locks
from proofmill.runtime.signals import SIGNALS
from proofmill.schema.errors import JournalError, ServiceError


class Echo:
    """An engine that answers with the question's own text, counts what it is asked, and fails where it is told to."""

    model, max_parked = "echo", 0.5
    price = {"input": 0.0, "output": 0.0}  # noqa: RUF012

    def __init__(self, failing=(), during=lambda asking: None):
        self.asked, self.failing, self.during = [], set(failing), during

    def batches(self, questions):
        questions = list(questions)
        for start in range(0, len(questions), 3):
            yield questions[start : start + 3]

    def answer(self, questions, asking):
        for question in reversed(list(questions)):
            text = question.messages[-1][1]
            self.asked.append(text)
            failed = text in self.failing
            asking.take(
                question, Answer("", "error", "provider", detail="bug") if failed else Answer(text, "end", cost=0.0)
            )
            self.during(asking)

    def read(self, answer):
        return answer


def questions(*texts, **sampling):
    made = [(f"row-{text}", Question("echo", (("user", text),), **sampling)) for text in texts]
    return Questions(len(made), lambda: made)


def asker(folder, engine, journal):
    return Asker("test/x", engine, journal, Budget(None, folder, journal))


def answered(folder, engine, *texts, **sampling):
    with Journal(folder) as journal:
        return [a.text for a in asker(folder, engine, journal)(questions(*texts, **sampling))]


def test_answers_come_in_the_order_of_the_questions(tmp_path):
    """Whatever order an engine answers in, rows keep theirs."""
    assert list("abcdefg") == answered(tmp_path, Echo(), *"abcdefg")


def test_answered_questions_are_not_asked_again(tmp_path):
    """Added rows ask only what is new, and an order that changed asks nothing."""
    engine = Echo()
    answered(tmp_path, engine, *"abc")
    assert list("dcba") == answered(tmp_path, engine, *"dcba")
    assert sorted("abcd") == sorted(engine.asked)


def test_equal_questions_are_asked_once(tmp_path):
    """Two rows with the same question share one call."""
    engine = Echo()
    assert answered(tmp_path, engine, "a", "a", "b") == ["a", "a", "b"]
    assert sorted("ab") == sorted(engine.asked)


@pytest.mark.parametrize(
    "change",
    [{"temperature": 0.5}, {"top_p": 0.9}, {"max_tokens": 5}, {"seed": 1}, {"sample": 1}, {"options": "{}"}, {"logprobs": True},
     {"top_k": 3}, {"min_p": 0.1}, {"stop": ("a",)}],
)  # fmt: skip
def test_key_changes_with_everything_that_decides_the_answer(change):
    """Other sampling, another seed or another sample of the same prompt is another question."""
    (one,), (other,) = questions("a"), questions("a", **change)
    assert one.key != other.key


def test_key_of_a_question_from_before_is_what_it_was():
    """Settings that questions were given later count only where they are set: journals of old runs are still found."""
    plain = Question("m", (("user", "x"),))
    full = Question("m", (("user", "x"),), 1.0, 0.9, 10, 3, 2, '{"a":1}', True)
    assert [plain.key, full.key] == ["0e3c56db19160ad33c66b2b2ccd447de", "7e3f5e373f7fc5a9839e0017cf5d3407"]


def test_key_tells_messages_apart():
    """Where one message ends and the next begins is part of a question."""
    keys = {Question("m", messages).key for messages in [
        (("user", "a"), ("assistant", "b")), (("user", "a"), ("user", "b")), (("user", "ab"),), (("user", 'a", "b'),)]}  # fmt: skip
    assert len(keys) == 4


def test_failure_is_parked_and_asked_again(tmp_path):
    """A failed row is an answer with its reason; the next run asks it again, and only it."""
    with Journal(tmp_path) as journal:
        answers = list(asker(tmp_path, Echo(failing="b"), journal)(questions(*"abc")))
    assert [a.reason for a in answers] == ["ok", "provider", "ok"]
    engine = Echo()
    assert answered(tmp_path, engine, *"abc") == list("abc")
    assert engine.asked == ["b"]


def test_stage_fails_when_too_much_is_parked_and_says_which_rows(tmp_path):
    """More than the declared share stops the stage; the message names rows, reasons and the way on; answers are kept."""
    with Journal(tmp_path) as journal, pytest.raises(ServiceError) as error:
        asker(tmp_path, Echo(failing="abef"), journal)(questions(*"abcdef"))
    said = str(error.value)
    assert "4 of 6 calls are parked (4 provider)" in said
    assert "row-a: provider, bug" in said
    assert "`max-parked`" in said
    engine = Echo()
    answered(tmp_path, engine, *"abcdef")
    assert sorted("abef") == sorted(engine.asked)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_after_what_is_in_flight(tmp_path, number):
    """The first SIGTERM or Ctrl-C lets the batch in flight finish, journals it, and says how to go on."""
    engine = Echo(during=lambda asking: os.kill(os.getpid(), number))
    engine.during = lambda asking: (os.kill(os.getpid(), number), setattr(engine, "during", lambda asking: None))
    with pytest.raises(SystemExit) as stop:
        answered(tmp_path, engine, *"abcdefg")
    assert f"stopped by {signal.Signals(number).name}; 3 of 7 calls" in str(stop.value)
    assert "Run the same command to go on" in str(stop.value)
    assert answered(tmp_path, engine, *"abcdefg") == list("abcdefg")
    assert sorted("abcdefg") == sorted(engine.asked)


def test_end_of_the_grace_time_ends_at_once(tmp_path, monkeypatch):
    """An engine that does not stop in the grace time is not waited for; what it answered stays."""
    monkeypatch.setenv("PROOFMILL_GRACE", "0.2")

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
    """A signal during the last call ends the process as outside of the asking, and its answers are kept."""
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        engine = Echo(during=lambda asking: os.kill(os.getpid(), signal.SIGTERM))
        assert answered(tmp_path, engine, "a") == ["a"]
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_engine_that_forgets_a_question_is_an_error(tmp_path):
    """A question that is neither answered nor parked is never a row that is missing."""
    engine = Echo()
    engine.answer = lambda questions, asking: list(questions)
    with pytest.raises(RuntimeError, match="2 calls were neither answered nor parked"):
        answered(tmp_path, engine, *"ab")


def test_signals_are_as_before_afterwards(tmp_path):
    """Asking leaves the handlers of signals as it found them, in the main thread and in others."""
    before = [signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)]
    answered(tmp_path, Echo(), "a")
    assert before == [signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)]
    elsewhere = threading.Thread(target=answered, args=(tmp_path, Echo(), "b"))
    elsewhere.start()
    elsewhere.join()
    assert answered(tmp_path, Echo(failing="b"), "b") == ["b"]


def test_spent_counts_what_passes():
    """Costs and tokens add up; one unknown cost makes the sum unknown; a parked row without a cost adds nothing."""
    spent = Spent()
    given = [Answer("a", "end", cost=1.0, tokens=2), Answer("", "error", "provider", tokens=1)]
    assert list(spent.counted(given)) == given
    assert (spent.cost, spent.tokens) == (1.0, 3)
    list(spent.counted([Answer("b", "end", cost=None)]))
    assert spent.cost is None


@pytest.mark.parametrize(
    ("text", "delimiters", "expected"),
    [
        ("think</think>answer", ["</think>"], ("answer", "think")),
        ("a</think>b</think>c", ["</think>"], ("c", "a</think>b")),
        ("the server took the marks away", ["</think>"], ("the server took the marks away", None)),
        ("plain", [], ("plain", None)),
        ("x</thought>y", ["</think>", "</thought>"], ("y", "x")),
    ],
)
def test_reasoning_is_split_at_the_last_delimiter(text, delimiters, expected):
    """What follows the reasoning is the answer; a text that its writer ended without a delimiter is one."""
    answer = split_reasoning(Answer(text, "end"), delimiters)
    assert expected == (answer.text, answer.reasoning)


def test_text_cut_off_before_its_delimiter_is_all_reasoning():
    """A text that was cut off while thinking answers nothing."""
    answer = split_reasoning(Answer("only thinking", "length"), ["</think>"])
    assert (answer.text, answer.reasoning) == ("", "only thinking")


def test_reasoning_that_was_sent_apart_is_left_alone():
    """A server that separates reasoning itself is believed."""
    answer = Answer("answer", "end", reasoning="thought")
    assert answer == split_reasoning(answer, ["</think>"])


@pytest.fixture
def jobs(tmp_path):
    """Two jobs that share a budget of a dollar, each with its journal locked as a running job has it."""
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
    """A second later: the claims of others are read again."""
    budget._read = -1e9
    return budget


def test_budget_has_room_for_so_much(jobs):
    """A question that the budget has no room for is not asked; the reserve of one that ended is free again."""
    one, _, _ = jobs
    one.journal.spent = 0.4
    assert one.reserve(0.5)
    assert not one.reserve(0.2)
    one.settle(0.5)
    assert one.reserve(0.2)


def test_jobs_never_set_aside_more_than_the_budget_together(jobs):
    """What one job has in flight is no room for another, which waits for it and does not give up."""
    one, other, _ = jobs
    assert one.reserve(0.7)
    assert not other.reserve(0.7)
    assert not other.spent_up(0.7)
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
    assert later(other).spent_up(0.6)
    assert not other.spent_up(0.4)


def test_killed_job_sets_nothing_aside(jobs):
    """The reserve of a job that was killed is free, and what its journal cost counts."""
    one, other, kill = jobs
    with Journal(one.journal.folder.parent.parent / "labels" / "z") as journal:
        (question,) = questions("a")
        journal.add(question, Answer("a", "end", cost=0.25))
    assert one.reserve(0.7)
    assert not other.reserve(0.5)
    kill(0)
    assert later(other).reserve(0.5)
    assert other.others() == (0.25, 0.0)
    assert not other.reserve(0.5)


def test_claim_of_a_killed_job_with_the_time_of_its_tail_is_not_believed(jobs):
    """Where both have one time stamp the journal may have more: it is summed itself."""
    one, other, let_go = jobs
    with Journal(other.journal.folder.with_name("z")) as journal:
        journal.add(Question("m", (("user", "q"),)), Answer("a", "end", cost=0.6))
        copied = journal.tail.read_bytes()
    tail = other.journal.folder / "answers.jsonl"
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
