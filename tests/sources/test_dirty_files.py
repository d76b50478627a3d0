"""Dirty files of others: whatever stands in one, there are rows or one message that names the file."""

import json
from collections import Counter

import pytest

from dirty import RECORDS, SUFFIXES, dirty_files, dirty_records
from proofmill import problems
from proofmill.artifacts.fingerprints import sources_of
from proofmill.artifacts.jobs import Job
from proofmill.artifacts.tables import Table
from proofmill.schema.entries import Problems
from proofmill.schema.errors import ProofmillError
from proofmill.sources.loaders import SOURCES

COUNT = 1_000


def test_dirty_file_gives_rows_or_one_message_that_names_it(tmp_path):
    """A thousand spoilt files through the stage `problems`: no other error, and a message that a terminal can show."""
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


@pytest.mark.parametrize("source", RECORDS)
def test_dirty_record_of_a_source_gives_a_row_or_one_message_that_names_it(tmp_path, source):
    """Whatever stands in any place of a record, or is missing there, its loader has a row for it or says where it is."""
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
