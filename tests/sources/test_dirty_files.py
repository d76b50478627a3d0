"""Damaged foreign files: any content gives rows, or one message with the file."""

import base64
import json
import pickle
import random
import zipfile
import zlib
from collections import Counter

import pytest

from dirty import BYTES, RECORDS, SUFFIXES, TEXT, dirty_files, dirty_records
from eval_logs import members, sample, write_eval, write_json
from proofmill import examples, problems
from proofmill.artifacts.fingerprints import sources_of
from proofmill.artifacts.jobs import Job
from proofmill.artifacts.tables import Table
from proofmill.schema.entries.problem_entries import Problems
from proofmill.schema.entries.response_entries import Examples
from proofmill.schema.errors import ProofmillError, TableError
from proofmill.sources import coding, inspect_files
from proofmill.sources.coding import _read_tests
from proofmill.sources.loaders import SOURCES

COUNT = 1_000


def test_dirty_file_gives_rows_or_one_message_that_names_it(tmp_path):
    """A thousand damaged files through the stage `problems`: no other error, and a printable message."""
    outcomes: Counter = Counter()
    for number, (suffix, content) in enumerate(dirty_files(seed=1, count=COUNT)):
        path = tmp_path / f"dirty-{number}{suffix}"
        path.write_bytes(content)
        entry = Problems(source="table", path=str(path))
        table = Table("problems/x", tmp_path / "results")
        stamp = {"entry": {}, "fingerprint": f"{number}", "sources": sources_of("problems", entry, {}.get)}
        job = Job(table, {}, f"{number}", stamp)
        try:
            problems.main(entry, job)
        except ProofmillError as error:
            message = str(error)
            assert path.name in message and "; expected " in message, (number, message)
            assert len(message) < 2_100 and message.isprintable(), (number, message)
            outcomes[suffix, "refused"] += 1
        else:
            assert table.rows(kept=False), number
            outcomes[suffix, "read"] += 1
        path.unlink()
    assert sum(outcomes.values()) == COUNT
    # Of each kind of file many are refused and some read: spoiling is neither fatal every time nor without effect.
    assert all(
        outcomes[suffix, "refused"] > COUNT / 20 and outcomes[suffix, "read"] > COUNT / 100 for suffix in SUFFIXES
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("source", RECORDS)
def test_dirty_record_of_a_source_gives_a_row_or_one_message_that_names_it(tmp_path, source):
    """Any value in any place of a record, or a missing one, gives a row or an error with its place."""
    path, loader = tmp_path / "dirty.jsonl", SOURCES[source]
    entry = Problems(source=source, path=str(path))
    path.write_text(json.dumps(RECORDS[source]))
    assert len(list(loader.load(entry))) == 1
    refused = 0
    for record in dirty_records(RECORDS[source]):
        path.write_text(json.dumps(record))
        try:
            assert len(list(loader.load(entry))) == 1
            assert loader.attempts is None or len(list(loader.attempts(entry))) == 1
        except ProofmillError as error:
            refused += 1
            assert str(error).startswith(f"{path}:1: ") and "; expected " in str(error), record
    assert refused > 20


# --------------------------------------------------------------------------------------------- chats, graded proofs, logs

CALL = {"type": "function", "function": {"name": "add", "arguments": '{"a": 0.125, "b": ["easy"]}'}}
CHATS = (
    {
        "messages": [
            {"role": "user", "content": "2000 easy?"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "content": "easy", "name": "add"},
            {"role": "assistant", "content": "0.0"},
        ],
        "tools": [{"type": "function", "function": {"name": "add"}}],
    },
    {
        "conversations": [{"from": "human", "value": "easy"}, {"from": "function_call", "value": '{"name": "p0"}'}],
        "tools": '[{"name": "easy", "parameters": {"a": 2000}}]',
    },
)
LOGS = {"log.json": None, "stored.eval": zipfile.ZIP_STORED, "deflated.eval": zipfile.ZIP_DEFLATED, "zstd.eval": 93}


def spoilt(content, spoils, rng):
    """Return the content with one to three kinds of damage, or sometimes random bytes."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.choice((1, 30, 3_000)))
    for spoil in rng.sample(spoils, rng.choice((1, 1, 2, 3))):
        content = spoil(content, ".jsonl", rng)
    return content


def outcome(path, read) -> str:
    """Return whether a file is read or rejected; a rejection is one printable sentence with its name."""
    try:
        read()
    except ProofmillError as error:
        message = str(error)
        assert path.name in message and "expected " in message, message
        assert len(message) < 2_100 and message.isprintable(), message
        return "refused"
    return "read"


def test_dirty_chat_gives_examples_or_one_message_that_names_it(tmp_path):
    """Two hundred damaged files through the stage `examples`: a complete table or none."""
    outcomes: Counter = Counter()
    before = 0
    for number in range(200):
        rng = random.Random(f"chat-{number}")
        path = tmp_path / f"chat-{number}.jsonl"
        lines = [json.dumps(rng.choice(CHATS)) for _ in range(3)]
        path.write_bytes(spoilt("\n".join(lines).encode(), TEXT, rng))
        entry = Examples(source="table", path=str(path))
        table = Table(f"examples/x{number}", tmp_path / "results")
        stamp = {"entry": {}, "fingerprint": "f", "sources": sources_of("examples", entry, {}.get)}

        def make(entry=entry, table=table, stamp=stamp):
            try:
                examples.main(entry, Job(table, {}, "f", stamp))
            except ProofmillError as error:
                if "rows is kept" not in str(error):
                    raise
                raise TableError(f"{entry.path}: {error}") from error

        outcomes[outcome(path, make)] += 1
        assert table.path.exists() == (outcomes["read"] > before)
        before = outcomes["read"]
    assert outcomes["read"] > 10 and outcomes["refused"] > 50


@pytest.mark.sampled(4)
@pytest.mark.parametrize("key", ["messages", "conversations", "tools", "arguments"])
@pytest.mark.parametrize("inside", ["deep", "key", "half", "number"])
def test_json_inside_a_text_of_a_chat_is_read_as_strictly_as_the_file(tmp_path, key, inside):
    """Depth, half surrogate pairs and endless numbers are rejected in JSON inside a text, too."""
    junk = {
        "deep": "[" * 400 + "]" * 400,
        "key": '{"\\ud800": 1}',
        "half": '"\\ud800"',
        "number": "1" * 5_000,
    }[inside]
    own = {
        "messages": {"messages": f'[{{"role": "user", "content": "q", "extra": {junk}}}]'},
        "conversations": {"conversations": f'[{{"from": "human", "value": "q", "extra": {junk}}}]'},
        "tools": {**CHATS[0], "tools": f'[{{"name": "f", "extra": {junk}}}]'},
        "arguments": {
            "messages": [{"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": junk}]}]
        },
    }[key]
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps(own))
    entry = Examples(source="table", path=str(path))
    with pytest.raises(TableError, match=r"chat\.jsonl:1: .*(nested over|surrogate|a number of 5,000)"):
        list(examples._conversations(entry, None))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("source", ["graded-proofs", "qed-nano"])
def test_dirty_file_of_graded_proofs_gives_attempts_or_one_message_that_names_it(tmp_path, source):
    """A hundred damaged files: problems and attempts, or a sentence."""
    outcomes: Counter = Counter()
    for number in range(100):
        rng = random.Random(f"{source}-{number}")
        path = tmp_path / f"graded-{number}.jsonl"
        line = json.dumps(RECORDS[source]).replace('"x"', '"easy"') + "\n"
        path.write_bytes(spoilt((line * 2).encode(), TEXT, rng))
        entry = Problems(source=source, path=str(path))
        loader = SOURCES[source]
        outcomes[outcome(path, lambda: [*loader.load(entry), *loader.attempts(entry)])] += 1  # noqa: B023
    assert min(outcomes.values()) > 10 and len(outcomes) == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LOGS)
def test_dirty_log_gives_attempts_or_one_message_that_names_it(tmp_path, name):
    """A hundred damaged logs of each kind: attempts, or a sentence."""
    outcomes: Counter = Counter()
    loader = SOURCES["inspect-logs"]
    for number in range(100):
        rng = random.Random(f"{name}-{number}")
        path = tmp_path / f"{number}-{name}"
        samples = [sample(id, completion="easy 2000") for id in range(2)]
        inside = members(*samples)
        if (within := number % 2) and name != "log.json":  # a member is damaged and the archive is not
            member = rng.choice([*inside])
            inside[member] = spoilt(inside[member], TEXT, rng)
        whole = write_json(path, *samples) if name == "log.json" else write_eval(path, inside, LOGS[name])
        if name == "log.json" or not within:
            path.write_bytes(spoilt(whole.read_bytes(), TEXT if name == "log.json" else BYTES, rng))
        entry = Problems(source="inspect-logs", path=str(path))
        outcomes[outcome(path, lambda: [*loader.load(entry), *loader.attempts(entry)])] += 1  # noqa: B023
        path.unlink()
    assert min(outcomes.values()) > 3 and len(outcomes) == 2


def test_archive_that_unpacks_to_far_more_than_it_holds_is_refused_unread(tmp_path, monkeypatch):
    """A zip bomb is detected by its directory without unpacking, whatever the size of a single member."""
    path = tmp_path / "bomb.eval"
    inside = members(sample())
    inside |= {f"samples/{n}_epoch_1.json": b" " * 30_000_000 for n in range(3)}
    write_eval(path, inside, 93)
    monkeypatch.setattr(inspect_files, "_read_member", lambda *_: pytest.fail("a member was unpacked"))
    with pytest.raises(TableError, match=r"bomb\.eval: .*unpacks to more than 5,000 times its size.*; expected"):
        list(SOURCES["inspect-logs"].load(Problems(source="inspect-logs", path=str(path))))


# ------------------------------------------------------------------------------------------------- tests that are pickled

TESTS = json.dumps([{"input": "1\n", "output": "2\n"}])


def hidden(content: bytes) -> dict:
    return {"tests": base64.b64encode(zlib.compress(content)).decode()}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_tests_of_livecodebench_are_read_from_any_pickle_of_a_text(protocol):
    """Tests are read from a pickle of any protocol."""
    assert _read_tests("f:1", hidden(pickle.dumps(TESTS, protocol)), "tests") == json.loads(TESTS)


class Runs:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_pickle_that_is_more_than_a_text_is_refused_and_runs_nothing(tmp_path, monkeypatch):
    """Programs, several texts, other values, bombs and incomplete streams are each rejected in a sentence."""
    ran = tmp_path / "ran"
    monkeypatch.setattr(coding, "VALUE_LIMIT", 1_000_000)
    huge = b"\x80\x04r\xff\xff\xff\xff."  # a place in the memo that would take 32 GB
    packed = zlib.compress(pickle.dumps(TESTS))
    bombs = [
        hidden(c) for c in (pickle.dumps(Runs(str(ran))), pickle.dumps([TESTS, TESTS]), pickle.dumps(5), huge, b"")
    ]
    bombs += [{"tests": base64.b64encode(c).decode()} for c in (packed[:-6], zlib.compress(b" " * 3_000_000), b"x")]
    for record in (*bombs, {"tests": "x"}, {"tests": "é"}, hidden(pickle.dumps("[" * 400 + "]" * 400))):
        with pytest.raises(TableError, match=r"f:1: `tests` cannot be read .*; expected"):
            _read_tests("f:1", record, "tests")
    assert not ran.exists()


def test_dirty_pickle_of_tests_gives_tests_or_one_message():
    """A thousand mutated pickles: tests, or a sentence with the place."""
    read = 0
    for number in range(1_000):
        rng = random.Random(f"pickle-{number}")
        content = spoilt(pickle.dumps(TESTS, rng.randrange(6)), BYTES, rng)
        record = hidden(content) if rng.random() < 0.9 else {"tests": base64.b64encode(content).decode() or "x"}
        try:
            read += bool(_read_tests("f:1", record, "tests"))
        except TableError as error:
            assert str(error).startswith("f:1: ") and "; expected " in str(error)
    assert 10 < read < 900
