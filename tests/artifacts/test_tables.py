"""Tables: columns, stamps, one rename, and tables that come back."""

import json
import os
import shutil
import zlib

import datasets
import polars as pl
import pytest
from pyarrow import parquet

from mill import MAINS, SMALL
from proofmill.artifacts import jobs
from proofmill.artifacts.archive import link
from proofmill.artifacts.contents import rows_sha256
from proofmill.artifacts.tables import Table
from proofmill.config.entry_values import entry_from
from proofmill.config.identity import identity_of
from proofmill.schema.columns import COLUMNS
from proofmill.schema.errors import TableError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of

STAMP = {"fingerprint": "f1", "name": "labels/x", "entry": {}}


def label(problem="p", **more):
    return {**dict.fromkeys(COLUMNS["labels"]), "problem": problem, "reason": "ok", **more}


def test_every_table_opens_in_polars_and_datasets(small):
    """A table is a Parquet file like any other, with the columns of its kind."""
    for name in SMALL:
        path = small.table(name).path
        wanted = list(COLUMNS[kind_of(name)])
        assert wanted == pl.scan_parquet(path).collect_schema().names()
        assert (
            wanted
            == datasets.load_dataset(
                "parquet", data_files=str(path), split="train", cache_dir=path.parent / ".d"
            ).column_names
        )


def test_stamp_says_where_a_table_comes_from(small):
    """Kind, name, entry, fingerprint, parents, commit, versions, counts and seconds are in the file itself."""
    stamp = small.table("grades/cold").stamp
    assert (stamp["kind"], stamp["name"]) == ("grades", "grades/cold")
    assert {"responses/cold", "schemes/bench", "problems/bench"} == set(stamp["parents"])
    assert small.table("responses/cold").content == stamp["parents"]["responses/cold"]
    assert stamp["entry"]["grader"] == "api/referee" and "api/referee" in stamp["declared"]
    assert sum(stamp["counts"].values()) == 24
    assert {"commit", "versions", "seed", "seconds", "tokens", "cost", "content", "fingerprint", "prompts"} <= set(
        stamp
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([label("p"), label("p")], "problem `p` occurs more than once"),
        (pl.DataFrame({"problem": ["p"]}), "no column incomplete"),
        (pl.DataFrame([label()]).with_columns(pl.lit(1).alias("extra")), "unknown column extra"),
        (pl.DataFrame([label(difficulty="hard")]), "difficulty is String"),
    ],
)
def test_rows_that_are_not_of_the_kind_change_nothing(tmp_path, rows, expected):
    """A wrong row is refused by name, and the table that was there is still there."""
    table = Table("labels/x", tmp_path)
    table.write([label("old")], STAMP)
    before = table.path.read_bytes()
    with pytest.raises(TableError, match=expected):
        table.write(rows, STAMP)
    assert before == table.path.read_bytes()
    assert [p.name for p in table.path.parent.iterdir()] == ["x.parquet"]


def test_missing_table_says_how_to_make_it(tmp_path):
    """A parent that is not there names the command that makes it."""
    with pytest.raises(TableError, match=r"snakemake .*labels/x.parquet"):
        _ = Table("labels/x", tmp_path).stamp


@pytest.mark.parametrize("content", [b"", b"not parquet", b"PAR1 broken PAR1"])
def test_corrupt_table_is_named(tmp_path, content):
    """A broken file is a message with its path."""
    table = Table("labels/x", tmp_path)
    table.path.parent.mkdir(parents=True)
    table.path.write_bytes(content)
    with pytest.raises(TableError, match="cannot be read as Parquet"):
        _ = table.stamp


def test_foreign_parquet_file_is_refused(tmp_path):
    """A file without a stamp is not taken for a table."""
    table = Table("labels/x", tmp_path)
    table.path.parent.mkdir(parents=True)
    pl.DataFrame({"a": [1]}).write_parquet(table.path)
    with pytest.raises(TableError, match="has no stamp"):
        _ = table.stamp


def test_content_depends_on_rows_and_their_order_only():
    """Equal rows have equal content, however they were put together."""
    frame = pl.DataFrame({"a": range(100), "b": [str(n) for n in range(100)]})
    assert rows_sha256([frame]) == rows_sha256([pl.concat([frame[:37], frame[37:]])])
    assert rows_sha256([frame]) != rows_sha256([frame[::-1]])


def test_ids_are_of_the_table_they_are_in():
    """Every kind that has an id has it as a column."""
    assert all(kind.key in COLUMNS[name] for name, kind in KINDS.items() if kind.key)


def test_no_column_has_two_types():
    """A column's word means the same in every table."""
    seen = {}
    for columns in COLUMNS.values():
        for name, (dtype, _) in columns.items():
            assert seen.setdefault(name, dtype) == dtype


# -------------------------------------------------------------------------------------------- rebuilt, or restored


@pytest.fixture
def remake(tmp_path):
    """Make problems/x with some rows; returns the table and whether it was computed or brought back."""
    computed = []

    def main(entry, job):
        computed.append(entry.rows)
        MAINS["problems"](entry, job)

    def make(rows):
        entry = entry_from("problems", {"source": "arithmetic", "rows": rows})
        before = len(computed)
        jobs.make(main, "problems/x", identity_of(entry, {}), tmp_path)
        return Table("problems/x", tmp_path), len(computed) > before

    return make


def test_reverted_entry_brings_the_old_table_back(remake):
    """An edit and its reversal compute once each; the old rows return as they were."""
    table, _ = remake(5)
    old = table.path.read_bytes()
    assert (len(remake(7)[0].rows()), remake(9)[1]) == (7, True)
    table, computed = remake(5)
    assert (old, False) == (table.path.read_bytes(), computed)


def test_deleted_table_is_brought_back(remake):
    """A table that was deleted returns without being computed again."""
    table, _ = remake(5)
    table.path.unlink()
    table, computed = remake(5)
    assert (len(table.rows()), computed) == (5, False)


def test_forced_table_is_made_again(remake, monkeypatch):
    """--forcerun computes a table instead of restoring it, by name, by kind or for all."""
    remake(5)
    for forced in ("problems/x", "problems", "all"):
        monkeypatch.setenv("PROOFMILL_FORCE", f"sft/y {forced}")
        assert remake(5)[1]
    monkeypatch.setenv("PROOFMILL_FORCE", "problems/y sft")
    assert not remake(5)[1]


def test_half_kept_table_is_not_brought_back(remake):
    """A kill while a table was being kept leaves nothing that could come back by halves."""
    table, _ = remake(5)
    for kept in (table.results / "archive").rglob("table.parquet"):
        kept.unlink()
    assert remake(5)[1]


def test_restored_table_is_not_the_kept_file(remake):
    """Damage to a restored table does not reach its archived copy."""
    table, _ = remake(5)
    table.path.unlink()
    table, _ = remake(5)
    table.path.write_bytes(b"damaged")
    table, computed = remake(5)
    assert (len(table.rows()), computed) == (5, False)


def test_weights_of_another_training_are_refused(small, tmp_path):
    """Weights that do not belong to the table next to them are never served."""
    table = small.table("sft/cold")
    mark = table.folder / "proofmill.json"
    old = mark.read_text()
    os.unlink(mark)
    try:
        with pytest.raises(TableError, match="no weights here; expected those of"):
            table.weights()
        mark.write_text(json.dumps({"fingerprint": "other"}))
        with pytest.raises(TableError, match="weights of other"):
            table.weights()
    finally:
        os.unlink(mark)
        mark.write_text(old)
    assert table.folder == table.weights()


def test_model_is_its_weights_alone(small, tmp_path):
    """Other measurements or rollouts of the same weights are the same model, which answers as it did; other weights are not."""

    def write(name, value, rollouts=b"", changed=b""):
        folder, table = tmp_path / "new", Table(f"grpo/{name}", tmp_path / "results")
        shutil.copytree(small.table("sft/cold").folder, folder)
        (folder / "rollouts.parquet").write_bytes(rollouts)
        with open(folder / "config.json", "ab") as file:
            file.write(changed)
        table.write(
            [{"step": 1, "epoch": 0.5, "metric": "loss", "value": value}],
            {"fingerprint": "f", "entry": {}},
            weights=folder,
        )
        return table

    first, again, other = write("a", 1.0), write("b", 2.0, rollouts=b"x"), write("c", 1.0, changed=b"\n")
    assert first.content != again.content
    assert first.model == again.model == small.table("sft/cold").model
    assert other.model != first.model


def test_table_with_failures_is_not_kept(tmp_path):
    """Failures that may pass are not brought back: asking for the table again asks the server again."""
    table = Table("labels/x", tmp_path)
    table.write([label(reason="timeout")], {**STAMP, "counts": {"ok": 0, "timeout": 1}})
    assert not table.restore("f1")
    table.write([label()], {**STAMP, "counts": {"ok": 1}})
    assert table.restore("f1")


# ------------------------------------------------------------------------------------------------- bytes that changed


def flipped(path, place):
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.unlink()  # other links to it stay as they were
    path.write_bytes(content)


@pytest.fixture
def paged(tmp_path):
    """Return a small table with a page and an archived copy."""
    table = Table("labels/x", tmp_path)
    table.write(
        [label()], {**STAMP, "versions": {"polars": "1.0"}, "parents": {"problems/x": "c"}}, page="# x\n\n0.5\n"
    )
    return table


def test_any_changed_byte_of_a_table_is_noticed(paged):
    """The pages, the stamp, the statistics and the schema: `check --deep` refuses each."""
    whole = paged.path.read_bytes()
    start = paged.stamp["pages"]["bytes"]
    for place in [*range(0, start, 7), *range(start, len(whole), 3)]:
        flipped(paged.path, place)
        with pytest.raises(TableError, match=r"x\.parquet"):
            Table("labels/x", paged.results).check(deep=True)
        paged.path.write_bytes(whole)
    Table("labels/x", paged.results).check(deep=True)


def varint(number):
    """Return a 32-bit number as in a page header of Parquet."""
    number = (number ^ 0x80000000) - 0x80000000
    number, digits = (number << 1) ^ (number >> 31), []
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


def test_changed_byte_with_its_own_checksum_is_noticed(paged):
    """Damage that the checksum of a page agrees with is seen by the digest of all pages, which the stamp has."""
    content, column = bytearray(paged.path.read_bytes()), parquet.read_metadata(paged.path).row_group(0).column(0)
    start, end = column.dictionary_page_offset, column.data_page_offset  # the text of the one row, behind a header
    for header in range(start + 8, end - 1):
        data = bytes(content[header:end])
        other = data[:-1] + bytes([data[-1] ^ 1])
        place = content.find(varint(zlib.crc32(data)), start, header)
        if place > 0:
            break
    assert place > 0 and len(varint(zlib.crc32(data))) == len(varint(zlib.crc32(other)))
    content[place : place + len(varint(zlib.crc32(data)))] = varint(zlib.crc32(other))
    content[end - 1] = other[-1]
    paged.path.unlink()
    paged.path.write_bytes(content)
    with pytest.raises(TableError, match="its pages are not those that were written"):
        Table("labels/x", paged.results).check(deep=True)


def test_changed_stamp_is_refused_by_every_reader(paged):
    """Not by the deep check alone: plans and stages decide by stamps."""
    flipped(paged.path, paged.path.read_bytes().index(b'"versions"') + 15)
    with pytest.raises(TableError, match="its footer with the stamp is not the one that was written"):
        _ = Table("labels/x", paged.results).stamp


def test_changed_page_is_not_read(paged):
    """A page with one other byte, or none where one was written, is refused by its reader and by the check."""
    for harm in (lambda: flipped(paged.page, 5), paged.page.unlink):
        harm()
        for read in (paged.read_page, lambda: paged.check(deep=True)):
            with pytest.raises(TableError, match=r"x.md: .*; expected the page of .*x.parquet"):
                read()


def test_changed_page_of_a_kept_copy_is_not_restored(paged):
    """The copy is put aside, as one with other damage is."""
    kept = paged.archive_of("f1")
    flipped(kept.page, 5)
    paged.path.unlink()
    assert not paged.restore("f1")
    assert kept.folder.with_suffix(".damaged").is_dir()


def test_page_without_a_digest_is_read(tmp_path):
    """A table from before pages had digests is readable with its page, and is not rebuilt."""
    table = Table("labels/x", tmp_path)
    table.path.parent.mkdir()
    pl.DataFrame([label()], schema={n: d for n, (d, _) in COLUMNS["labels"].items()}).write_parquet(
        table.path, metadata={"proofmill": json.dumps({**STAMP, "content": "c"})}
    )
    table.page.write_text("# x\n")
    table.check(deep=True)
    assert table.read_page() == "# x\n"


def test_second_page_leaves_the_kept_one_as_it_was(tmp_path):
    """The page in place is a link to the kept one: it is replaced, not written into."""
    table = Table("labels/x", tmp_path)
    table.write([label()], STAMP, page="first\n")
    table.write([label("q")], {**STAMP, "fingerprint": "f2"}, page="second\n")
    assert (table.archive_of("f1").page.read_text(), table.page.read_text()) == ("first\n", "second\n")


def test_table_without_a_page_leaves_none_of_an_older_one(tmp_path):
    """A page that is shown is the page of the table."""
    table = Table("labels/x", tmp_path)
    table.write([label()], STAMP, page="first\n")
    table.write([label()], STAMP)
    assert table.read_page() is None and not table.page.exists()


def test_table_with_failed_calls_alone_is_not_kept(tmp_path):
    """`failures` of the calls count, though every row came out well in the end."""
    table = Table("labels/x", tmp_path)
    table.write([label()], {**STAMP, "counts": {"ok": 1}, "failures": 1})
    assert not table.archive_of("f1").exists() and not table.restore("f1")


def test_kill_while_a_table_is_kept_leaves_no_copy(tmp_path, monkeypatch):
    """Page and weights come first and the table last: without its table there is no copy."""

    def killed(source, target):
        if str(target).endswith("table.parquet"):
            raise KeyboardInterrupt
        link(source, target)

    table = Table("labels/x", tmp_path)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("proofmill.artifacts.archive.link", killed)
        table.write([label()], STAMP, page="# x\n")
    assert table.archive_of("f1").page.exists()
    assert not table.archive_of("f1").exists() and not table.restore("f1")
