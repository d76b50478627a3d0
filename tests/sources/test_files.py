"""Foreign files: every kind is streamed, and an error has the file, the line and the expectation."""

import json
import os
import shutil
import socket
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from proofmill.config.source_paths import source_names
from proofmill.schema.entries.problem_entries import Problems
from proofmill.schema.errors import HubError, TableError
from proofmill.sources import file_formats, files

HOUSE_FORM = r"^.+: .+; expected .+\.( .+)?$"


def mistake(path: Path) -> str:
    with pytest.raises(TableError, match=HOUSE_FORM) as caught:
        list(map(dict, (record for _, record in files.read(path))))
    return str(caught.value)


def test_read_of_jsonl_csv_tsv_and_parquet_gives_the_same_rows(tmp_path):
    """The four kinds of file hold the same rows, and each row knows its line."""
    rows = [{"a": "x,\ty", "b": "1"}, {"a": 'é "q"', "b": "2"}]
    frame = pl.DataFrame(rows)
    (tmp_path / "f.jsonl").write_text("\n\n".join(json.dumps(row) for row in rows) + "\n")
    frame.write_csv(tmp_path / "f.csv")
    frame.write_csv(tmp_path / "f.tsv", separator="\t")
    frame.write_parquet(tmp_path / "f.parquet")
    for name, line in (("f.jsonl", 3), ("f.csv", 3), ("f.tsv", 3), ("f.parquet", 2)):
        found = list(files.read(tmp_path / name))
        assert rows == [record for _, record in found]
        assert f"{tmp_path / name}:{line}" == found[1][0]


def test_rows_are_counted_without_reading_their_values(tmp_path):
    """JSONL, CSV with lines in a cell, TSV, Parquet and folders of them; nothing else has a number."""
    for name in ("a.jsonl", "b.csv", "c.tsv"):
        (tmp_path / name).write_text('{"a": 1}\n\n{"a": 2}\n' if name == "a.jsonl" else 'a,b\n"1\n2",3\n4,5\n')
    pl.DataFrame({"a": [1, 2]}).write_parquet(tmp_path / "d.parquet")
    names = ["a.jsonl", "b.csv", "d.parquet", "c.tsv", ".", "none.jsonl", "${PROOFMILL_NOT_SET}/a.jsonl"]
    (tmp_path / "c.tsv").write_text('a\tb\n"1\n2"\t3\n4\t5\n')
    assert [files.count_rows(f"{tmp_path}/{name}") for name in names] == [2, 2, 2, 2, 8, None, None]
    (tmp_path / "e.json").write_text("[]")
    assert files.count_rows(str(tmp_path / "e.json")) is None


def test_read_of_a_folder_takes_its_files_in_order(tmp_path):
    """A folder is all of its files by name; other files in it do not count."""
    (tmp_path / "b.jsonl").write_text('{"n": 2}\n')
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n')
    (tmp_path / "README.md").write_text("no rows")
    assert [record["n"] for _, record in files.read(tmp_path)] == [1, 2]


def test_read_of_csv_with_lines_in_a_cell_names_the_line_where_the_row_begins(tmp_path):
    """A cell may have several lines; rows after it still know their line."""
    (tmp_path / "f.csv").write_text('a,b\n"one\ntwo",1\nx,2\n')
    assert [
        (f"{tmp_path}/f.csv:2", {"a": "one\ntwo", "b": "1"}),
        (f"{tmp_path}/f.csv:4", {"a": "x", "b": "2"}),
    ] == list(files.read(tmp_path / "f.csv"))


def test_read_of_a_missing_file_says_so(tmp_path):
    """The message has the missing path."""
    assert "no such file or folder" in mistake(tmp_path / "none.jsonl")


@pytest.mark.parametrize("name", ["f.jsonl", "f.csv", "f.tsv"])
def test_read_of_an_empty_file_says_so(tmp_path, name):
    """A file without rows is an error, not an empty table."""
    (tmp_path / name).write_text("")
    assert "no rows" in mistake(tmp_path / name)


def test_read_of_csv_with_nothing_but_columns_says_so(tmp_path):
    """A CSV file with only a header is an empty file."""
    (tmp_path / "f.csv").write_text("a,b\n")
    assert "no rows" in mistake(tmp_path / "f.csv")


def test_read_of_an_empty_folder_says_so(tmp_path):
    """A folder without a readable file is an error."""
    assert "has no data file" in mistake(tmp_path)


def test_read_of_an_unknown_kind_of_file_names_the_known_ones(tmp_path):
    """The suffix decides how a file is read."""
    (tmp_path / "f.xlsx").write_text("x")
    assert ".jsonl, .ndjson, .csv, .tsv, .parquet" in mistake(tmp_path / "f.xlsx")


@pytest.mark.parametrize("name", ["f.jsonl", "f.csv"])
def test_read_of_broken_utf8_names_line_and_byte(tmp_path, name):
    """The message locates a byte that is not UTF-8 in its line."""
    (tmp_path / name).write_bytes(b'{"a": 1}\n{"a": "\xff"}\n')
    assert f"{name}:2: byte 8 of the line is 0xff" in mistake(tmp_path / name)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"a": 1', "not JSON"),
        ("[1, 2]", "a JSON list"),
        ('"text"', "a JSON text"),
        ("[" * 100_000, "not JSON"),
        ('{"a": ' + "[" * 300 + "]" * 300 + "}", "`a` is nested over 100 levels deep"),
        ('{"a": NaN}', "not JSON (JSON has no number NaN; use null)"),
        ('{"a": {"b": [-Infinity]}}', "not JSON (JSON has no number -Infinity; use null)"),
        ('{"a": 1e400}', "not JSON (1e400 exceeds the largest float)"),
        ('{"a": [' + "7" * 5000 + "]}", "not JSON (a number of 5,000 characters)"),
        ('{"a": 0.' + "7" * 5000 + "}", "not JSON (a number of 5,002 characters)"),
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "not JSON (the key `c` occurs twice in one object)"),
        ('{"\\u001b[31m\\n": 1, "\\u001b[31m\\n": 2}', r"not JSON (the key `\x1b[31m\n` occurs twice"),
    ],
)
def test_read_of_a_malformed_json_line_names_the_line(tmp_path, line, found):
    """A line that is not a JSON object stops the reading there."""
    (tmp_path / "f.jsonl").write_text(f'{{"a": 1}}\n{line}\n')
    assert f"f.jsonl:2: {found}" in mistake(tmp_path / "f.jsonl")


@pytest.mark.parametrize("name", ["f.jsonl", "f.csv", "f.parquet"])
def test_read_of_a_field_of_ten_megabytes_names_its_line(tmp_path, name):
    """A field above the limit is rejected with its line, in every kind of file."""
    frame = pl.DataFrame({"a": ["short", "x" * 10_000_000]})
    writers = {"f.jsonl": frame.write_ndjson, "f.csv": frame.write_csv, "f.parquet": frame.write_parquet}
    writers[name](tmp_path / name)
    assert f"{name}:{3 if name == 'f.csv' else 2}: " in mistake(tmp_path / name)
    assert "1,000,000" in mistake(tmp_path / name)


def test_read_of_an_endless_line_stops(tmp_path, monkeypatch):
    """A file without line ends is not read into memory."""
    monkeypatch.setattr(file_formats, "LINE_LIMIT", 1000)
    (tmp_path / "f.jsonl").write_text('{"a": 1}\n{"a": [' + "1," * 1000 + "1]}\n")
    assert "f.jsonl:2: over 1,000 bytes in one line" in mistake(tmp_path / "f.jsonl")


def test_read_of_half_a_surrogate_pair_names_the_field(tmp_path):
    """A text that cannot be encoded is rejected when it is read."""
    (tmp_path / "f.jsonl").write_text('{"a": {"b": "\\ud800"}}\n')
    assert "`a.b` has half a surrogate pair" in mistake(tmp_path / "f.jsonl")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a,b\n1,2,3\n", "f.csv:2: 3 cells; expected 2"),
        ("a,a\n1,2\n", "f.csv:1: the columns are 'a', 'a'"),
        ("a,\n1,2\n", "f.csv:1: the columns are 'a', ''"),
        ('a,b\nx,y\n1,"2\n3,4\n', "f.csv:3: a quote is not closed"),
    ],
)
def test_read_of_malformed_csv_names_the_line(tmp_path, text, found):
    """A wrong number of cells, unnamed columns and an open quote are errors."""
    (tmp_path / "f.csv").write_text(text)
    assert found in mistake(tmp_path / "f.csv")


def test_read_of_corrupt_parquet_says_so(tmp_path):
    """A Parquet file that is incomplete or overwritten is rejected."""
    pl.DataFrame({"a": ["x"] * 1000}).write_parquet(tmp_path / "f.parquet")
    whole = (tmp_path / "f.parquet").read_bytes()
    for content in (whole[: len(whole) // 2], b"PAR1 nothing PAR1", whole[:20] + b"\0" * 40 + whole[60:]):
        (tmp_path / "f.parquet").write_bytes(content)
        assert "cannot be read as Parquet" in mistake(tmp_path / "f.parquet")


def test_read_of_parquet_ignores_other_columns(tmp_path):
    """A column with unconvertible values fails only when it is read, with a message and its row."""
    times = [
        pa.array([2**62], pa.timestamp("us")),
        pa.array([0], pa.timestamp("s", "Nowhere/Atlantis")),
        pa.array([2**62], pa.duration("s")),
        pa.array([2**62 - 2**62 % 86_400_000], pa.date64()),
    ]
    names = ["far", "zone", "long", "date"]
    parquet.write_table(pa.table([pa.array(["s"]), *times], ["statement", *names]), tmp_path / "f.parquet")
    ((where, record),) = files.read(tmp_path / "f.parquet")
    assert (record["statement"], where, list(record)) == ("s", f"{tmp_path}/f.parquet:1", ["statement", *names])
    for name in names:
        with pytest.raises(
            TableError, match=rf"f.parquet:1: `{name}` cannot be read \(.+\); expected texts or numbers\."
        ):
            record[name]


def test_read_of_parquet_with_two_columns_of_one_name_is_refused(tmp_path):
    """Duplicate column names are rejected at any depth."""
    one = pa.array(["x"])
    inner = pa.StructArray.from_arrays([one, one], names=["b", "b"])
    for table in (pa.table([one, one], ["a", "a"]), pa.table([one, pa.array([["y"]]), inner], ["a", "c", "d"])):
        parquet.write_table(table, tmp_path / "f.parquet")
        assert "two columns have the name `" in mistake(tmp_path / "f.parquet")


# -------------------------------------------------------------------------------------------------------- special files


def test_read_of_a_folder_with_what_is_no_file_is_refused(tmp_path):
    """A pipe, a socket, a broken or circular link and a folder named like a file are reported, not opened."""
    odd = tmp_path / "odd"
    makers = {
        "is a pipe": lambda path: os.mkfifo(path),
        "is a pipe, a socket": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
        "a link to gone, which cannot be reached": lambda path: path.symlink_to("gone"),
        "a link to b.jsonl, which cannot be reached": lambda path: path.symlink_to("b.jsonl"),
        "leads to a folder that was read before": lambda path: path.symlink_to(".."),
        "is a folder; expected a file": lambda path: path.mkdir(),
        "a device": lambda path: path.symlink_to("/dev/zero"),
        "no rows": lambda path: path.symlink_to("/proc/self/mem"),
    }
    for said, make in makers.items():
        (odd / "folder").mkdir(parents=True)
        (odd / "a.jsonl").write_text('{"statement": "s"}\n')
        make(odd / "folder/linked" if "read before" in said else odd / "b.jsonl")
        assert said in mistake(odd)
        shutil.rmtree(odd)


def test_read_of_a_folder_takes_what_the_graph_watches(tmp_path):
    """A linked folder is read like any other, and each file that is read affects the fingerprint."""
    (tmp_path / "far").mkdir()
    (tmp_path / "far/b.jsonl").write_text('{"n": 2}\n')
    (tmp_path / "near").mkdir()
    (tmp_path / "near/a.jsonl").write_text('{"n": 1}\n')
    (tmp_path / "near/linked").symlink_to(tmp_path / "far")
    found = list(files.read(tmp_path / "near"))
    assert [record["n"] for _, record in found] == [1, 2]
    entry = Problems(source="table", path=str(tmp_path / "near"))
    watched = [*source_names("problems", entry, {}.get)]
    assert [where.rpartition(":")[0] for where, _ in found] == list(map(str, watched))


@pytest.mark.parametrize("name", ["/proc/self/mem", "/dev/zero", "/etc/passwd/a.jsonl", "/" + "a/" * 2_500 + "f.jsonl"])
def test_read_of_a_path_that_is_no_file_of_rows_is_refused(name):
    """The message has a path that is not a file, or that no file can have."""
    assert name[:50] in mistake(Path(name))


def test_hub_reads_a_local_folder_as_a_dataset(tmp_path):
    """The loader of hub datasets streams a dataset; a folder with the same files can replace it."""
    (tmp_path / "train.jsonl").write_text('{"a": "x"}\n{"a": "y"}\n')
    found = list(files.hub(str(tmp_path), None, None, "train"))
    assert [record for _, record in found] == [{"a": "x"}, {"a": "y"}]
    with pytest.raises(HubError, match="split `test` cannot be read"):
        list(files.hub(str(tmp_path), None, None, "test"))
