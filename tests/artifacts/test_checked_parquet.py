"""Damage in a table: never other rows, always one message that names the file; and tables from before there were checksums."""

import json
import random
import struct

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from damage import copied, truncate, zero
from mill import SMALL
from proofmill.artifacts.checked_parquet import CheckedParquet, writer
from proofmill.artifacts.tables import Table
from proofmill.schema.columns import COLUMNS
from proofmill.schema.errors import TableError

READERS = {
    "scan": lambda table: table.scan().collect().to_dicts(),
    "rows": lambda table: table.rows(kept=False),
    "stream": lambda table: list(table.stream()),
}


@pytest.fixture
def own(small, tmp_path):
    """Return a copy of the small chain's results, to be damaged."""
    results = copied(small.results, tmp_path)
    return lambda name: Table(name, results)


def pages_end(path) -> int:
    """Return the place where the pages of a Parquet file end and its footer begins."""
    data = path.read_bytes()
    return len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("reader", READERS)
def test_zeroed_bytes_never_give_other_rows(own, name, reader):
    """Four zeroed bytes anywhere in the pages of a table of any kind: its own rows, or a TableError that names it."""
    table, refused = own(name), 0
    rows, whole = READERS[reader](table), table.path.read_bytes()
    for place in random.Random(name).sample(range(4, pages_end(table.path)), 40):
        table.path.write_bytes(whole)
        zero(table.path, place)
        try:
            assert READERS[reader](own(name)) == rows
        except TableError as error:
            refused += 1
            assert str(error).startswith(f"{table.path}: ") and f"rm {table.path}; snakemake {table.path}" in str(error)
    assert refused > 10


def test_whole_table_is_read_when_it_is_checked(own):
    """Damage in a column that a stage does not read is left to the check of the full table."""
    table = own("problems/train")
    place = parquet.read_metadata(table.path).row_group(0).column(2)
    assert place.path_in_schema == "solution"
    zero(table.path, place.data_page_offset + place.total_compressed_size // 2, 16)
    assert len(own("problems/train").rows("problem", "statement")) == 48
    with pytest.raises(TableError, match=r"problems/train.parquet: is damaged, and cannot be read as Parquet"):
        own("problems/train").check()


@pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.9, 0.999])
def test_truncated_table_is_refused(own, share):
    """A table that is truncated anywhere is named before a row is read."""
    table = own("responses/cold")
    truncate(table.path, int(table.path.stat().st_size * share))
    for read in (lambda: table.stamp, table.scan, table.check, table.rows, lambda: next(table.stream())):
        with pytest.raises(TableError, match=r"responses/cold.parquet: is damaged, and cannot be read as Parquet"):
            read()


@pytest.mark.parametrize(
    ("stamp", "said"),
    [
        ("{", "its stamp is damaged"),
        ("\x00\x00", "its stamp is damaged"),
        ("", "its stamp is damaged"),
        ("null", "its stamp lacks"),
        ("[1]", "its stamp lacks"),
        ('{"entry": {}, "fingerprint": "f"}', "its stamp lacks content"),
        ('{"entry": {}, "fingerprint": "f", "content": "c", "name": "labels/other"}', "is the table of labels/other"),
    ],
)
def test_garbage_of_a_stamp_is_refused(tmp_path, stamp, said):
    """A stamp that is no JSON, lacks what others rely on, or names another table, is a message."""
    table = Table("labels/x", tmp_path)
    table.path.parent.mkdir()
    schema = {name: dtype for name, (dtype, _) in COLUMNS["labels"].items()}
    pl.DataFrame(schema=schema).write_parquet(table.path, metadata={"proofmill": stamp})
    with pytest.raises(TableError, match=rf"labels/x.parquet: {said}.*; expected"):
        table.scan()


def test_stamp_of_weights_without_their_digest_is_refused(tmp_path):
    """A model is named by the digest of its weights, so a stamp without it is damaged."""
    table = Table("sft/x", tmp_path)
    table.write([], {"entry": {}, "fingerprint": "f"})
    with pytest.raises(TableError, match="its stamp lacks model"):
        _ = table.stamp


def test_folder_in_the_place_of_a_table_is_refused(tmp_path):
    """A folder that has the name of a table is named, and is not deleted."""
    table = Table("labels/x", tmp_path)
    table.path.mkdir(parents=True)
    with pytest.raises(TableError, match=r"labels/x.parquet: is a folder; expected the rows of labels/x. Move it away"):
        _ = table.stamp


def test_lazy_reading_gives_what_polars_reads(tmp_path):
    """Columns, filters, slices, counts and sums over several row groups are those of the file."""
    table = Table("problems/x", tmp_path)
    rows = [
        {**dict.fromkeys(COLUMNS["problems"]), "problem": f"p{n}", "year": n % 7 or None, "tags": ["a"] * (n % 3)}
        for n in range(5000)
    ]
    table.write(rows, {"entry": {}, "fingerprint": "f"})
    year = pl.col("year")
    for ask in (
        lambda frame: frame,
        lambda frame: frame.select("tags", "problem"),
        lambda frame: frame.filter(year > 3).select("problem"),
        lambda frame: frame.filter(year.is_null()).head(100),
        lambda frame: frame.head(0),
        lambda frame: frame.head(4321),
        lambda frame: frame.slice(2040, 20),
        lambda frame: frame.select(pl.len()),
        lambda frame: frame.group_by("year").agg(pl.len()).sort("year"),
    ):
        assert ask(table.scan()).collect().equals(ask(pl.scan_parquet(table.path)).collect())


def test_table_without_rows_reads_as_none(tmp_path):
    """A table of no rows has its columns, and no row."""
    table = Table("labels/x", tmp_path)
    table.write([], {"entry": {}, "fingerprint": "f"})
    assert (table.rows(), list(table.stream()), table.scan().collect().columns) == ([], [], list(COLUMNS["labels"]))
    table.check(deep=True)


# ---------------------------------------------------------------------------------------------- from before checksums


def without_checksums(table: Table) -> Table:
    """Write a table without checksums, as older versions did; return it unopened."""
    frame, stamp = (
        table.scan().collect(),
        {key: value for key, value in table.stamp.items() if key not in ("pages", "page")},
    )
    frame.write_parquet(table.path, metadata={"proofmill": json.dumps(stamp)})
    return Table(table.name, table.results)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SMALL)
def test_table_without_checksums_opens(own, name):
    """Tables from before are read as they are, with their content, and nothing of them is damaged."""
    rows, content = own(name).rows(), own(name).content
    old = without_checksums(own(name))
    assert (old.rows(), old.content) == (rows, content)
    old.check(deep=True)


@pytest.mark.parametrize("name", SMALL)
def test_pages_of_a_stamp_are_all_that_is_before_the_footer(own, name):
    """The deep check compares the full file except its footer, for a table of any kind."""
    table = own(name)
    table.check(deep=True)
    whole = table.path.read_bytes()
    assert table.stamp["pages"]["bytes"] == pages_end(table.path)
    for place in random.Random(name).sample(range(4, pages_end(table.path)), 20):
        table.path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(TableError, match=f"{name}.parquet: .*; expected the rows of {name}"):
            own(name).check(deep=True)


def test_rows_are_found_and_taken_by_number(tmp_path):
    """`places` counts over all row groups; `at` gives rows in the order that is asked for, twice if asked twice, or none."""
    path = tmp_path / "x.parquet"
    rows = pa.table({"a": list(range(100)), "text": [f"t{n}" for n in range(100)]})
    with writer(path, rows.schema) as file:
        file.write_table(rows, row_group_size=7)
    checked = CheckedParquet(path, "rows", "")
    assert checked.places(pl.col("a") % 30 == 5) == [5, 35, 65, 95]
    assert checked.places(pl.col("text") == "none") == []
    assert checked.at([99, 0, 50, 0], ["text"]).to_dicts() == [{"text": t} for t in ("t99", "t0", "t50", "t0")]
    assert checked.at([6, 7]).to_dicts() == [{"a": 6, "text": "t6"}, {"a": 7, "text": "t7"}]
    assert checked.at([]).schema == {"a": pl.Int64, "text": pl.String} and checked.at([]).is_empty()


def test_damage_is_seen_where_it_is_read(tmp_path):
    """A row group that was changed is refused when one of its rows is taken; the others are not asked."""
    path = tmp_path / "x.parquet"
    rows = pa.table({"text": [f"{n:0200d}" for n in range(100)]})
    with writer(path, rows.schema) as file:
        file.write_table(rows, row_group_size=50)
    second = parquet.read_metadata(path).row_group(1).column(0)
    zero(path, (second.dictionary_page_offset + second.data_page_offset) // 2, 16)
    checked = CheckedParquet(path, "rows", "Make it again.")
    assert checked.at([49])["text"].to_list() == [f"{49:0200d}"]
    with pytest.raises(TableError, match="Make it again"):
        checked.at([50])
