"""The journal and the way a model is asked."""

import json
import os
import subprocess
import sys
import time

import pytest

from proofmill.calls import Answer, Journal, JournalError, Question, ask, split_reasoning


class Echo:
    """An engine that answers with the question's own text, counts what it is asked, and fails where it is told to."""

    model = "echo"

    def __init__(self, failing=()):
        self.asked, self.failing = [], set(failing)

    def batches(self, questions):
        for start in range(0, len(questions), 3):
            yield questions[start : start + 3]

    def answers(self, questions):
        for question in reversed(questions):
            text = question.messages[-1][1]
            self.asked.append(text)
            yield question, Answer("", "error", "provider") if text in self.failing else Answer(text, "end", cost=0.0)

    def read(self, answer):
        return answer


def questions(*texts, **sampling):
    return [Question("echo", (("user", text),), **sampling) for text in texts]


def answered(folder, engine, *texts, **sampling):
    with Journal(folder) as journal:
        return [a.text for a in ask(journal, engine, questions(*texts, **sampling), "test", quiet=True)]


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
    "change", [{"temperature": 0.5}, {"top_p": 0.9}, {"max_tokens": 5}, {"seed": 1}, {"sample": 1}]
)
def test_key_changes_with_everything_that_decides_the_answer(change):
    """Other sampling, another seed or another sample of the same prompt is another question."""
    assert questions("a")[0].key != questions("a", **change)[0].key


def test_failure_is_an_answer_that_is_not_kept(tmp_path):
    """A failed call is a value with its reason, and is asked again by the next run."""
    engine = Echo(failing="b")
    with Journal(tmp_path) as journal:
        answers = ask(journal, engine, questions(*"abc"), "test", quiet=True)
    assert [(a.text, a.reason) for a in answers] == [("a", "ok"), ("", "provider"), ("c", "ok")]
    engine.failing = set()
    assert list("abc") == answered(tmp_path, engine, *"abc")
    assert sorted("abbc") == sorted(engine.asked)


@pytest.mark.parametrize("text", ["", "Zeile\nzwei", "≡ \u2028 \x00 \U0001f600", 'quote " and \\ slash', "x" * 200_000])
def test_any_text_survives_the_journal(tmp_path, text):
    """Line breaks, separators, control characters and long answers come back as they were."""
    answered(tmp_path, Echo(), text)
    with Journal(tmp_path) as journal:
        assert text == journal[questions(text)[0]].text


def test_torn_last_line_is_asked_again(tmp_path):
    """A line that a kill cut off is one call to repeat; what stands before it stays."""
    answered(tmp_path, Echo(), *"abc")
    path = tmp_path / "answers.jsonl"
    path.write_bytes(path.read_bytes()[:-7])
    engine = Echo()
    assert list("abc") == answered(tmp_path, engine, *"abc")
    assert len(engine.asked) == 1
    assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize("damage", [b"\xff\xfe garbage\n", b"{}\n", b'{"key": "0000000000000000", "text": \n'])
def test_damaged_line_is_passed_over(tmp_path, damage):
    """A line that is no answer costs its own question, not the journal."""
    answered(tmp_path, Echo(), *"abc")
    path = tmp_path / "answers.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + damage + lines[2])
    engine = Echo()
    assert list("abc") == answered(tmp_path, engine, *"abc")
    assert len(engine.asked) == 1


HOLD = """
import sys, time
from pathlib import Path
from proofmill.calls import Journal
with Journal(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the journal."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "held"
    yield process
    process.kill()


def test_second_writer_stops_with_a_message(tmp_path, holder, monkeypatch):
    """Two processes never write one journal: the second waits, then says who is in the way."""
    monkeypatch.setattr("proofmill.calls.WAIT_SECONDS", 0.3)
    with pytest.raises(JournalError, match="expected one writer"):
        Journal(tmp_path).__enter__()


def test_lock_of_a_killed_process_is_free(tmp_path, holder):
    """A killed job leaves no lock behind."""
    holder.kill()
    holder.wait()
    assert answered(tmp_path, Echo(), "a") == ["a"]


def test_answer_is_on_disk_before_the_next_is_asked(tmp_path):
    """What was answered survives a process that ends without closing anything."""
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom proofmill.calls import *\n"
        "j = Journal(Path(sys.argv[1])).__enter__()\n"
        "j.add(Question('m', (('user', 'q'),)), Answer('kept', 'end'))\nos.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    with Journal(tmp_path) as journal:
        assert journal[Question("m", (("user", "q"),))].text == "kept"


def test_journal_that_cannot_be_written_says_so(tmp_path):
    """A file in the place of the folder is a message, not a traceback of the operating system."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(JournalError, match="expected a journal that can be written"):
        Journal(tmp_path / "taken").__enter__()


def test_journal_is_readable_while_it_is_written(tmp_path):
    """polars reads the answers of an open journal."""
    import polars as pl

    with Journal(tmp_path) as journal:
        ask(journal, Echo(), questions(*"abc"), "test", quiet=True)
        assert sorted(pl.read_ndjson(tmp_path / "answers.jsonl")["text"]) == ["a", "b", "c"]


def test_sync_happens_at_most_a_second_late(tmp_path, monkeypatch):
    """Answers are synced to disk in groups, each at most a second after the first of it."""
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(time.monotonic()), real(file)))
    with Journal(tmp_path) as journal:
        for number, question in enumerate(questions(*"abcdefgh")):
            journal.add(question, Answer(str(number), "end"))
            time.sleep(0.3)
    assert len(synced) >= 2


@pytest.mark.parametrize(
    ("text", "delimiters", "expected"),
    [
        ("think</think>answer", ["</think>"], ("answer", "think")),
        ("a</think>b</think>c", ["</think>"], ("c", "a</think>b")),
        ("only thinking", ["</think>"], ("", "only thinking")),
        ("plain", [], ("plain", None)),
        ("x</thought>y", ["</think>", "</thought>"], ("y", "x")),
    ],
)
def test_reasoning_is_split_at_the_last_delimiter(text, delimiters, expected):
    """What follows the reasoning is the answer; without a delimiter nothing was answered."""
    answer = split_reasoning(Answer(text, "end"), delimiters)
    assert expected == (answer.text, answer.reasoning)


def test_reasoning_that_was_sent_apart_is_left_alone():
    """A server that separates reasoning itself is believed."""
    answer = Answer("answer", "end", reasoning="thought")
    assert answer == split_reasoning(answer, ["</think>"])
