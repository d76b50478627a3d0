"""Paths of entries on this machine: variables, users, and names that nothing can hold."""

import os
from pathlib import Path

import pytest

from proofmill.public_data.locations import files_of, local_path
from proofmill.schema.errors import TableError


@pytest.mark.parametrize("text", ["~nosuchuser/a.jsonl", "a\n.jsonl", "\x1b[31m.jsonl", "a\0.jsonl"])
def test_path_that_no_file_can_have_is_refused(text):
    """A user that is not there and characters that no log can show are a message."""
    with pytest.raises(TableError, match=r"^(path )?.+: .+; expected .+\. .+\.$") as error:
        local_path(text)
    assert str(error.value).isprintable()


def test_file_with_a_name_of_other_bytes_is_refused(tmp_path):
    """A name that is not UTF-8 could not be written into a stamp."""
    with open(os.fsencode(tmp_path) + b"/\xff.jsonl", "w"):
        pass
    with pytest.raises(TableError, match="is not UTF-8"):
        files_of(tmp_path)


def test_source_that_is_not_there_is_named_with_the_cause(tmp_path):
    """A missing file and a link that leads nowhere have different messages."""
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for name, fault in (("gone", "no such file or folder"), ("link", "a link to .*gone, which cannot be reached")):
        with pytest.raises(TableError, match=rf"{name}: {fault}"):
            files_of(tmp_path / name)


def test_the_folder_of_the_project_is_no_folder_of_data(tmp_path, monkeypatch):
    """It has results and logs, so its tables would be rebuilt by every run; a folder in it is fine."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.csv").touch()
    (tmp_path / "config.yaml").touch()
    monkeypatch.chdir(tmp_path)
    for path in (".", "..", str(tmp_path)):
        with pytest.raises(TableError, match=r": contains the project, with its results and logs; expected a file, or"):
            files_of(Path(path))
    assert files_of(Path("data")) == [Path("data/a.csv")]
