"""Reading other people's files: every kind is streamed, a mistake names the file, the line and what was expected."""

import json
from pathlib import Path

import polars as pl
import pytest

from proofmill.schema.errors import HubError, TableError
from proofmill.sources import files

HOUSE_FORM = r"^.+: .+; expected .+\.( .+)?$"


def mistake(path: Path) -> str:
    with pytest.raises(TableError, match=HOUSE_FORM) as caught:
        list(files.read(path))
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
    """A path that is not there is named."""
    assert "no such file or folder" in mistake(tmp_path / "none.jsonl")


@pytest.mark.parametrize("name", ["f.jsonl", "f.csv", "f.tsv"])
def test_read_of_an_empty_file_says_so(tmp_path, name):
    """No rows at all is a mistake, not an empty table."""
    (tmp_path / name).write_text("")
    assert "no rows" in mistake(tmp_path / name)


def test_read_of_csv_with_nothing_but_columns_says_so(tmp_path):
    """A header alone is an empty file."""
    (tmp_path / "f.csv").write_text("a,b\n")
    assert "no rows" in mistake(tmp_path / "f.csv")


def test_read_of_an_empty_folder_says_so(tmp_path):
    """A folder without a file that can be read is a mistake."""
    assert "without any such file" in mistake(tmp_path)


def test_read_of_an_unknown_kind_of_file_names_the_known_ones(tmp_path):
    """The suffix decides how a file is read."""
    (tmp_path / "f.xlsx").write_text("x")
    assert ".jsonl, .ndjson, .csv, .tsv, .parquet" in mistake(tmp_path / "f.xlsx")


@pytest.mark.parametrize("name", ["f.jsonl", "f.csv"])
def test_read_of_broken_utf8_names_line_and_byte(tmp_path, name):
    """A byte that is no UTF-8 is found in its line."""
    (tmp_path / name).write_bytes(b'{"a": 1}\n{"a": "\xff"}\n')
    assert f"{name}:2: byte 8 of the line is 0xff" in mistake(tmp_path / name)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"a": 1', "no JSON"),
        ("[1, 2]", "found a JSON list"),
        ('"text"', "found a JSON text"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_read_of_a_malformed_json_line_names_the_line(tmp_path, line, found):
    """A line that is no JSON object stops the reading there."""
    (tmp_path / "f.jsonl").write_text(f'{{"a": 1}}\n{line}\n')
    assert f"f.jsonl:2: {found}" in mistake(tmp_path / "f.jsonl")


@pytest.mark.parametrize("name", ["f.jsonl", "f.csv", "f.parquet"])
def test_read_of_a_field_of_ten_megabytes_names_its_line(tmp_path, name):
    """One field above the limit is refused with its line, whatever the kind of file."""
    frame = pl.DataFrame({"a": ["short", "x" * 10_000_000]})
    writers = {"f.jsonl": frame.write_ndjson, "f.csv": frame.write_csv, "f.parquet": frame.write_parquet}
    writers[name](tmp_path / name)
    assert f"{name}:{3 if name == 'f.csv' else 2}: " in mistake(tmp_path / name)
    assert "1,000,000" in mistake(tmp_path / name)


def test_read_of_an_endless_line_stops(tmp_path, monkeypatch):
    """A file without line ends is not read into memory."""
    monkeypatch.setattr(files, "LINE_LIMIT", 1000)
    (tmp_path / "f.jsonl").write_text('{"a": 1}\n{"a": [' + "1," * 1000 + "1]}\n")
    assert "f.jsonl:2: over 1,000 bytes in one line" in mistake(tmp_path / "f.jsonl")


def test_read_of_half_a_surrogate_pair_names_the_field(tmp_path):
    """A text that cannot be written again is refused when it is read."""
    (tmp_path / "f.jsonl").write_text('{"a": {"b": "\\ud800"}}\n')
    assert "`a.b` has half a surrogate pair" in mistake(tmp_path / "f.jsonl")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a,b\n1,2,3\n", "f.csv:2: 3 cells; expected 2"),
        ("a,a\n1,2\n", "f.csv:1: the columns are ['a', 'a']"),
        ("a,\n1,2\n", "f.csv:1: the columns are ['a', '']"),
        ('a,b\nx,y\n1,"2\n3,4\n', "f.csv:3: a quote is never closed"),
    ],
)
def test_read_of_malformed_csv_names_the_line(tmp_path, text, found):
    """A row with other cells than columns, unnamed columns and an open quote are mistakes."""
    (tmp_path / "f.csv").write_text(text)
    assert found in mistake(tmp_path / "f.csv")


def test_read_of_corrupt_parquet_says_so(tmp_path):
    """A Parquet file cut in half or overwritten is refused."""
    pl.DataFrame({"a": ["x"] * 1000}).write_parquet(tmp_path / "f.parquet")
    whole = (tmp_path / "f.parquet").read_bytes()
    for content in (whole[: len(whole) // 2], b"PAR1 nothing PAR1", whole[:20] + b"\0" * 40 + whole[60:]):
        (tmp_path / "f.parquet").write_bytes(content)
        assert "cannot be read as Parquet" in mistake(tmp_path / "f.parquet")


def test_field_that_is_missing_names_the_nearest_column():
    """Of the columns there, the one with the most similar name is offered."""
    with pytest.raises(TableError, match=r"f:1: no column `problem` among Problme, x; expected .* `Problme`\?"):
        files.field("f:1", {"Problme": "", "x": ""}, "problem")


def test_field_of_a_nested_column_is_found_by_its_path():
    """`metadata.path` is the field of a field; a column with a dot in its own name comes first."""
    assert files.field("f:1", {"metadata": {"path": "p"}}, "metadata.path") == "p"
    assert files.field("f:1", {"metadata.path": "q", "metadata": {"path": "p"}}, "metadata.path") == "q"


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (files.text, 7),
        (files.text, ["x"]),
        (files.text, True),
        (files.word, ["7"]),
        (files.word, True),
        (files.year, "last year"),
        (files.year, 99),
        (files.texts, "x"),
        (files.texts, [1]),
    ],
)
def test_field_of_a_wrong_type_is_refused(read, value):
    """A number is no statement, a text is no list, and 99 is no year."""
    with pytest.raises(TableError, match=r"^f:1: `a` is .+; expected .+\.$"):
        read("f:1", {"a": value}, "a")


def test_field_of_numbers_as_words_is_their_text():
    """An answer 204, 204.0 or "204" is the same answer; null stays null."""
    assert [files.word("f:1", {"a": v}, "a") for v in (204, 204.0, "204", 0.5, None)] == [
        "204",
        "204",
        "204",
        "0.5",
        None,
    ]
    assert [files.year("f:1", {"a": v}, "a") for v in (2024, "2024", 2024.0, "", None)] == [
        2024,
        2024,
        2024,
        None,
        None,
    ]


def test_hub_reads_a_local_folder_as_a_dataset(tmp_path):
    """The loader of hub datasets streams a dataset; a folder with the same files stands for one."""
    (tmp_path / "train.jsonl").write_text('{"a": "x"}\n{"a": "y"}\n')
    found = list(files.hub(str(tmp_path), None, None, "train"))
    assert [record for _, record in found] == [{"a": "x"}, {"a": "y"}]
    with pytest.raises(HubError, match="split `test` cannot be read"):
        list(files.hub(str(tmp_path), None, None, "test"))
