"""Joins of tables: rows by their ids, in whatever order they are asked for."""

import random

import pytest

from proofmill.artifacts import joins
from proofmill.artifacts.joins import ById
from proofmill.artifacts.shard_view import Share
from proofmill.artifacts.tables import Table
from proofmill.calls.shards import Shard
from proofmill.schema.columns import COLUMNS

COUNT = 5_000  # rows, which are several windows


@pytest.fixture(scope="module")
def labels(tmp_path_factory) -> Table:
    """Return a table of labels, each with its own difficulty."""
    table = Table("labels/x", tmp_path_factory.mktemp("results"))
    blank = dict.fromkeys(COLUMNS["labels"])
    rows = ({**blank, "problem": f"p{n}", "difficulty": n, "reason": "ok"} for n in range(COUNT))
    table.write(rows, {"fingerprint": "f", "name": "labels/x", "entry": {}})
    return table


def test_rows_by_id_are_found_in_any_order(labels):
    """Each id has its row with the named columns, whether ids come in the table's order or in another."""
    rows = ById(labels, "problem", "difficulty")
    assert COUNT > 2 * joins.WINDOW
    for places in (range(COUNT), random.Random(0).sample(range(COUNT), 20)):
        assert all(rows[f"p{n}"] == {"problem": f"p{n}", "difficulty": n} for n in places)


def test_table_in_quite_another_order_is_not_read_again_and_again(labels, monkeypatch):
    """After some jumps back it is copied once; the rows are the same."""
    monkeypatch.setattr(joins, "WINDOW", 100)
    rows, reads = ById(labels, "problem", "difficulty"), []
    monkeypatch.setattr(Table, "at", lambda *of, at=Table.at: reads.append(of) or at(*of))
    for n in random.Random(0).sample(range(COUNT), 1_000):
        assert rows[f"p{n}"] == {"problem": f"p{n}", "difficulty": n}
    assert joins.BACK < len(reads) < 5 * joins.BACK
    reads.clear()
    in_order = ById(labels, "problem", "difficulty")
    assert [in_order[f"p{n}"]["difficulty"] for n in range(COUNT)] == list(range(COUNT)) and len(reads) == COUNT / 100


def test_rows_by_id_that_are_not_there_have_none(labels):
    """An unknown id is a missing key, as in a dictionary; the ids are those of the table."""
    rows = ById(labels, "problem", "difficulty")
    assert rows.get("q") is None and "q" not in rows and "p7" in rows
    assert len(rows) == COUNT and list(rows)[:2] == ["p0", "p1"]


def test_streamed_rows_are_those_of_a_list(small):
    """With or without the dropped ones, and with columns among which `dropped` is not."""
    table = small.table("examples/cold")
    assert list(table.stream()) == table.rows(kept=False)
    assert list(table.stream("example", kept=True)) == table.rows("example")
    assert list(table.stream(kept=True)) == table.rows()


def test_shares_of_streamed_rows_are_the_whole(labels):
    """Each row is in the share of one shard, in the table's order, whichever columns are read and of kept rows alone."""
    shares = [Share(labels.name, labels.results, shard=Shard(number, 3)) for number in (1, 2, 3)]
    streamed = [[row["problem"] for row in share.stream("problem", kept=True)] for share in shares]
    assert streamed == [[row["problem"] for row in share.rows("problem")] for share in shares]
    assert sorted(id for part in streamed for id in part) == sorted(f"p{n}" for n in range(COUNT))
