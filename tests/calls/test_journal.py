"""The journal loses no output, whatever happens to the process, the disk or the files."""

import json
import os
import random
import subprocess
import sys
import threading
import time
import zlib
from dataclasses import dataclass, replace

import polars as pl
import pytest
from pyarrow import parquet

from proofmill.calls import journal as module
from proofmill.calls import records
from proofmill.calls.journal import Journal
from proofmill.calls.model_requests import ModelOutput
from proofmill.calls.records import frame
from proofmill.schema.errors import JournalError


@dataclass(frozen=True)
class Asked:
    """The part of a request that a journal uses."""

    key: str


def asked(*names):
    return [Asked(f"{name:0>32}") for name in names]


def write(folder, *names, **answer):
    with Journal(folder) as journal:
        for request in asked(*names):
            journal.add(
                request, ModelOutput(**{"text": request.key.lstrip("0"), "stop_reason": "end", "cost": 0.5, **answer})
            )


def unfinished(folder, *names):
    """Write outputs in a process that is killed: all are in the tail, none compacted."""
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom types import SimpleNamespace\nfrom proofmill.calls.journal import *\n"
        "j = Journal(Path(sys.argv[1])).__enter__()\n"
        "for name in sys.argv[2:]: j.add(SimpleNamespace(key=f'{name:0>32}'), ModelOutput(name, 'end', cost=0.5))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(folder), *names], check=False)


def texts(folder, *names):
    with Journal(folder) as journal:
        return [answer.text for answer in journal.answers(asked(*names))]


@pytest.mark.parametrize("text", ["", "a\nb\r\n", '\u2028 \x00 \\ "', "π ≡ 𝔽", "x" * 200_000])
def test_any_text_comes_back(tmp_path, text):
    """Texts of any length and any characters are read unchanged, from the tail and from a segment."""
    full = ModelOutput(
        text,
        "length",
        "ok",
        text,
        9,
        3,
        5,
        2,
        0.25,
        1.5,
        2,
        "m",
        text[:50],
        "length",
        [{"token": "a", "logprob": -0.5}],
    )
    with Journal(tmp_path) as journal:
        journal.add(*asked("a"), full)
        assert journal[asked("a")[0]] == full
    with Journal(tmp_path) as journal:
        assert journal[asked("a")[0]] == full


def test_what_no_file_can_hold_is_replaced(tmp_path):
    """Half of a surrogate pair anywhere in an output, and an integer log-probability, are stored as far as possible."""
    odd = ModelOutput("a \ud83d", "end", detail="\ud83d", model="\udc00", logprobs=[{"token": "\ud83d", "logprob": 0}])
    with Journal(tmp_path) as journal:
        journal.add(*asked("a"), odd)
        assert journal[asked("a")[0]].text == "a ?"
    assert frame(tmp_path)["logprobs"].to_list() == [[{"token": "?", "logprob": 0.0}]]


def test_answer_is_kept_by_a_process_that_is_killed(tmp_path):
    """Outputs survive a process that ends without closing the journal."""
    unfinished(tmp_path, "a", "b")
    assert texts(tmp_path, "b", "a") == ["b", "a"]


def test_torn_last_line_is_cut_off(tmp_path):
    """A line that a kill truncated is one call to repeat; earlier lines are kept."""
    unfinished(tmp_path, *"abc")
    tail = tmp_path / "calls.jsonl"
    tail.write_bytes(tail.read_bytes()[:-7])
    with Journal(tmp_path) as journal:
        assert [q in journal for q in asked(*"abc")] == [True, True, False]
    assert texts(tmp_path, "a", "b") == ["a", "b"]


@pytest.mark.parametrize(
    "damage", [lambda line: b"\xff\xfe garbage\n", lambda line: b"{}\n", lambda line: line.replace(b'"text": "b"', b'"text": "B"')]
)  # fmt: skip
def test_damaged_line_is_put_aside(tmp_path, damage):
    """A damaged line makes only its own call repeat, and is not deleted."""
    unfinished(tmp_path, *"abc")
    tail = tmp_path / "calls.jsonl"
    lines = tail.read_bytes().splitlines(keepends=True)
    tail.write_bytes(lines[0] + damage(lines[1]) + lines[2])
    for _ in range(2):
        with Journal(tmp_path) as journal:
            assert [q in journal for q in asked(*"abc")] == [True, False, True]
    assert (tmp_path / "damaged.jsonl").read_bytes() == damage(lines[1])


ODD_VALUES = {
    "count beyond a column": {"prompt_tokens": 2**63},
    "negative count": {"tokens": -1},
    "negative cost": {"cost": -0.25},
    "cost that is no number": {"cost": float("nan")},
    "reasoning in parts": {"reasoning": [{"text": "a"}]},
    "finish in parts": {"finish_reason": {"word": "stop"}},
    "no text": {"text": None},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("odd", ODD_VALUES.values(), ids=ODD_VALUES)
def test_row_that_holds_no_answer_is_put_aside(tmp_path, odd):
    """A row of an older version with invalid values is repeated; the journal opens, adds up and is compacted."""
    unfinished(tmp_path, *"abc")
    tail = tmp_path / "calls.jsonl"
    lines = tail.read_bytes().splitlines(keepends=True)
    values = {name: value for name, value in json.loads(lines[1]).items() if name != "crc"} | odd
    body = json.dumps(values)[:-1].encode()
    bad = body + b', "crc": "%08x"}\n' % zlib.crc32(body)
    tail.write_bytes(lines[0] + bad + lines[2])
    assert frame(tmp_path).height == 2
    assert records.cost(tmp_path) >= 0
    with Journal(tmp_path) as journal:
        assert [q in journal for q in asked(*"abc")] == [True, False, True]
        journal.add(*asked("b"), ModelOutput("again", "end"))
    assert texts(tmp_path, *"abc") == ["a", "again", "c"]
    assert (tmp_path / "damaged.jsonl").read_bytes() == bad


def test_line_of_an_older_version_has_defaults(tmp_path):
    """A line with fewer fields is an output if it has a text and a stop."""
    unfinished(tmp_path, "a")
    tail = tmp_path / "calls.jsonl"
    row = json.loads(tail.read_bytes())
    body = json.dumps({name: row[name] for name in ("key", "text", "stop_reason")})[:-1].encode()
    tail.write_bytes(body + b', "crc": "%08x"}\n' % zlib.crc32(body))
    with Journal(tmp_path) as journal:
        assert journal[asked("a")[0]] == ModelOutput("a", "end")


def test_zeroed_bytes_of_a_segment_stop_with_a_message(tmp_path):
    """A checksum detects a changed page: no wrong output is read from it."""
    write(tmp_path, *(f"{n:04}" * 50 for n in range(1, 201)))
    segment = tmp_path / "00001.parquet"
    content = bytearray(segment.read_bytes())
    columns = parquet.ParquetFile(segment).metadata.row_group(0)
    place = next(columns.column(n) for n in range(columns.num_columns) if columns.column(n).path_in_schema == "text")
    start = (place.dictionary_page_offset or place.data_page_offset) + place.total_compressed_size // 2
    content[start : start + 4] = bytes(4)
    segment.write_bytes(content)
    with pytest.raises(JournalError, match=r"00001.parquet: cannot be read as Parquet .* Restore it from a backup"):
        frame(tmp_path)


@pytest.mark.parametrize("meddle", [lambda tail: tail.unlink(), lambda tail: tail.write_bytes(b""), lambda tail: tail.write_bytes(tail.read_bytes() + b"#\n"), lambda tail: (tail.rename(tail.with_suffix(".bak")), tail.write_bytes(tail.with_suffix(".bak").read_bytes()))])  # fmt: skip
def test_tail_changed_by_another_program_stops_with_a_message(tmp_path, meddle):
    """A tail that is deleted, emptied, added to or saved by an editor while a job writes ends the job with a message."""
    with pytest.raises(JournalError, match=r"calls.jsonl: another program changed it"), Journal(tmp_path) as journal:
        for request in asked(*"ab"):
            journal.add(request, ModelOutput("a", "end"))
        meddle(tmp_path / "calls.jsonl")
    with Journal(tmp_path) as journal:
        journal.add(*asked("c"), ModelOutput("c", "end"))
    assert texts(tmp_path, "c") == ["c"]


def test_truncated_segment_stops_with_a_message(tmp_path):
    """Unreadable paid outputs stop the stage; no call is repeated and no file deleted without a request."""
    write(tmp_path, *"abc")
    segment = tmp_path / "00001.parquet"
    content = segment.read_bytes()[:-20]
    segment.write_bytes(content)
    with pytest.raises(JournalError, match=r"00001.parquet: cannot be read as Parquet .* Restore it from a backup"):
        Journal(tmp_path).__enter__()
    assert segment.read_bytes() == content
    assert not (tmp_path / "reserve").exists()
    segment.rename(tmp_path / "bad")
    write(tmp_path, "a")
    assert texts(tmp_path, "a") == ["a"]


def test_segments_and_tail_are_one_journal(tmp_path, monkeypatch):
    """However often the tail moves into segments, every output is found by its key, in the order of the request."""
    monkeypatch.setattr(module, "SEGMENT_BYTES", 2000)
    monkeypatch.setattr(records, "ROW_GROUP", 4)
    monkeypatch.setattr(module, "AT_ONCE", 7)
    names = [f"n{i}" for i in range(100)]
    with Journal(tmp_path) as journal:
        for request in asked(*names):
            journal.add(request, ModelOutput(request.key.lstrip("0"), "end", detail="x" * 100))
        assert len(list(tmp_path.glob("*.parquet"))) > 2
        assert [a.text for a in journal.answers(asked(*names[::-1]))] == names[::-1]
        assert len(journal) == 100
    assert texts(tmp_path, *names[50:], *names[:50]) == names[50:] + names[:50]
    assert sorted(frame(tmp_path)["text"]) == sorted(names)


def test_small_segments_are_joined(tmp_path):
    """A stage that reruns often for a few more rows does not leave a file for each run."""
    for name in "abcdef":
        write(tmp_path, name)
    assert [path.name for path in records.segments(tmp_path)] == ["00001.parquet"]
    assert texts(tmp_path, *"fedcba") == list("fedcba")


def test_kill_between_segment_and_tail_loses_and_counts_nothing_twice(tmp_path):
    """Rows that are in a segment and still in the tail are one output each, paid once."""
    unfinished(tmp_path, *"abc")
    tail = (tmp_path / "calls.jsonl").read_bytes()
    with Journal(tmp_path):
        pass
    (tmp_path / "calls.jsonl").write_bytes(tail)
    for _ in range(3):
        with Journal(tmp_path) as journal:
            assert (len(journal), journal.spent) == (3, 1.5)
    assert frame(tmp_path).height == pl.read_parquet(tmp_path / "*.parquet").height == 3


def test_answers_to_what_failed_last_are_not_taken_for_those_of_the_segment(tmp_path):
    """The tail's keys may be the segment's last ones: a killed run had just repeated those calls."""
    write(tmp_path, "a")
    write(tmp_path, "b", text="", stop_reason="error", reason="timeout", cost=None)
    unfinished(tmp_path, "b")
    with Journal(tmp_path) as journal:
        assert asked("b")[0] in journal and journal.failure_of(asked("b")[0]) is None and journal.spent == 1.0
    assert texts(tmp_path, *"ab") == ["a", "b"]


def test_journal_is_readable_while_it_is_written(tmp_path):
    """polars reads an open journal: by our function, and its files as they are."""
    write(tmp_path, "a")
    with Journal(tmp_path) as journal:
        journal.add(*asked("b"), ModelOutput("b", "end"))
        assert sorted(frame(tmp_path)["text"]) == ["a", "b"]
        assert pl.read_ndjson(tmp_path / "calls.jsonl")["text"].to_list() == ["b"]
        assert pl.read_parquet(tmp_path / "*.parquet")["text"].to_list() == ["a"]


def test_concurrent_reader_sees_complete_outputs_only(tmp_path, monkeypatch):
    """A reader sees only complete outputs at any time, and never fewer than before."""
    monkeypatch.setattr(module, "SEGMENT_BYTES", 20_000)
    seen, done = [], threading.Event()

    def look():
        while not done.is_set():
            rows = frame(tmp_path)
            assert rows["text"].str.len_chars().eq(500).all()
            seen.append(rows.height)

    with Journal(tmp_path) as journal:
        looking = threading.Thread(target=look)
        looking.start()
        for request in asked(*map(str, range(400))):
            journal.add(request, ModelOutput("x" * 500, "end"))
        done.set()
        looking.join()
    assert seen == sorted(seen)
    assert len(seen) > 1


def test_failed_row_is_retried_and_replaced(tmp_path):
    """A failure is stored with its reason and is not an output. An output replaces it; its cost still counts."""
    write(tmp_path, "a", stop_reason="error", reason="provider")
    with Journal(tmp_path) as journal:
        request = asked("a")[0]
        assert (request in journal, journal.failure_of(request), len(journal)) == (False, "provider", 0)
        journal.add(request, ModelOutput("fine", "end", cost=0.25))
        assert (request in journal, journal.failure_of(request)) == (True, None)
    with Journal(tmp_path) as journal:
        assert (journal[request].text, journal.failure_of(request), journal.spent) == ("fine", None, 0.75)
    assert frame(tmp_path)["text"].to_list() == ["fine"]


HOLD = """
import sys, time
from pathlib import Path
from proofmill.calls.journal import Journal
with Journal(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Start another process that holds the journal."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "held"
    yield process
    process.kill()


def test_second_writer_waits_then_says_who_writes(tmp_path, holder, monkeypatch):
    """Two processes never write one journal: the second waits, then names the other process."""
    monkeypatch.setenv("PROOFMILL_LOCK_SECONDS", "0.3")
    with pytest.raises(JournalError, match=rf"process {holder.pid} on .* expected one writer"):
        Journal(tmp_path).__enter__()


def test_second_writer_goes_on_when_the_first_ends(tmp_path, holder):
    """A job that was requeued waits for the one it replaces."""
    threading.Timer(0.5, holder.kill).start()
    write(tmp_path, "a")
    assert texts(tmp_path, "a") == ["a"]


def test_answers_are_synced_in_groups_and_the_last_one_too(tmp_path, monkeypatch):
    """The last output before a long pause is synced without a next one, and outputs are synced in groups."""
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(time.monotonic()), real(file)))
    with Journal(tmp_path) as journal:
        synced.clear()  # of the names of its files
        for request in asked(*map(str, range(50))):
            last = time.monotonic()
            journal.add(request, ModelOutput("a", "end"))
        while not synced or synced[-1] < last:
            assert time.monotonic() - last < 30
            time.sleep(0.05)
        assert len(synced) <= 10


def test_tail_goes_once_the_disk_has_the_segment_and_its_name(tmp_path, monkeypatch):
    """The tail is synced, then the segment, and after its rename the folder; only then is the tail cut."""
    events = []

    def noted(name, what):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given: (events.append(what(*given)), real(*given)))

    journal = Journal(tmp_path / "calls")
    with journal:
        journal.add(*asked("a"), ModelOutput("a", "end"))
        noted("fsync", lambda file: f"sync {os.path.basename(os.readlink(f'/proc/self/fd/{file}'))}")
        noted("replace", lambda _, new: f"name {os.path.basename(new)}")
        noted("ftruncate", lambda *_: "cut")
        journal.compact()
        done = [*events]
    assert done[:4] == ["sync calls.jsonl", "sync 00001.new", "name 00001.parquet", "sync calls"] and done[-1] == "cut"


def test_damaged_lines_are_kept_on_the_disk_before_the_tail_goes(tmp_path, monkeypatch):
    """They are synced when they are moved: a power cut after the next compaction loses none of them."""
    unfinished(tmp_path, "a", "b")
    tail = tmp_path / "calls.jsonl"
    tail.write_bytes(tail.read_bytes().replace(b'"text": "a"', b'"text": "x"'))
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), real(file)))
    with Journal(tmp_path):
        assert str(tmp_path / "damaged.jsonl") in synced


def test_folder_that_cannot_be_made_says_so(tmp_path):
    """A file instead of the folder gives a message, not a traceback."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(JournalError, match="expected a journal that can be written"):
        Journal(tmp_path / "taken").__enter__()


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True, check=False
    ).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_full_disk_takes_the_answers_under_way_and_says_so(small_disk):
    """On a full disk outputs still find reserved space, and the journal says that no call should start."""
    with Journal(small_disk / "j") as journal:
        requests = asked(*map(str, range(5000)))
        for number, request in enumerate(requests):  # noqa: B007
            journal.add(request, ModelOutput("x" * 4000, "end"))
            if journal.full:
                break
        for request in requests[number + 1 : number + 500]:
            journal.add(request, ModelOutput("y" * 4000, "end"))
        kept = number + 500
    with pytest.raises(JournalError, match="expected room for 4 MiB"):
        Journal(small_disk / "j").__enter__()
    rows = frame(small_disk / "j")
    assert rows.height == kept > 1000


def test_compaction_without_room_leaves_the_tail_as_it_is(small_disk, monkeypatch):
    """A disk too full for a segment stops the calls, not the journal: the outputs stay in the tail."""
    monkeypatch.setattr(module, "SEGMENT_BYTES", 1_000_000)
    noise = random.Random(1)
    with Journal(small_disk / "j") as journal:
        for request in asked(*map(str, range(5000))):
            journal.add(request, ModelOutput(noise.randbytes(1500).hex(), "end"))
            if journal.full:
                break
    rows = frame(small_disk / "j")
    assert rows["text"].str.len_chars().eq(3000).all()
    assert rows.height > 300
    assert not list((small_disk / "j").glob("*.new"))


def test_journal_without_any_room_refuses_the_answer(small_disk):
    """When the reserve is used up, adding an output raises an error, and earlier ones are kept."""
    with pytest.raises(JournalError, match="expected room for one more output"), Journal(small_disk / "j") as journal:
        for number, request in enumerate(asked(*map(str, range(5000)))):  # noqa: B007
            journal.add(request, ModelOutput("x" * 4000, "end"))
    assert frame(small_disk / "j").height == number


def test_read_only_journal_says_so(small_disk):
    """A journal on a read-only file system gives a message with its name."""
    write(small_disk / "j", "a")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(JournalError, match=r"Read-only file system; expected a journal that can be written"):
        Journal(small_disk / "j").__enter__()
    assert frame(small_disk / "j")["text"].to_list() == ["a"]


def test_costs_add_up_over_segments_and_tail(tmp_path):
    """The cost of a journal is the sum over all its rows; an unknown price adds nothing."""
    write(tmp_path, "a", "b")
    write(tmp_path, "c", cost=None)
    unfinished(tmp_path, "d")
    with Journal(tmp_path) as journal:
        assert journal.spent == 1.5


def test_every_line_is_json_for_others(tmp_path):
    """The tail is JSON with the fields of an output under their names."""
    unfinished(tmp_path, "a")
    row = json.loads((tmp_path / "calls.jsonl").read_text())
    assert {*row} == {*records.ANSWER_COLUMNS, "crc"}
    assert replace(ModelOutput("a", "end", cost=0.5)) == ModelOutput(
        **{k: v for k, v in row.items() if k not in ("key", "crc")}
    )
