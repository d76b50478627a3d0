"""A job reads what its entry declares, and nothing else."""

import pytest

from mill import SMALL, Mill
from proofmill.artifacts import jobs
from proofmill.recipes.identity import identity_of
from proofmill.schema.errors import SettingError


def test_table_that_the_entry_does_not_name_is_refused(small: Mill):
    """A table that is in no fingerprint cannot be read, though it is there."""

    def main(entry, job):
        assert job.parent("problems/train").rows()
        job.parent("problems/bench")

    entries = {**SMALL, "examples/other": {"problems": "problems/train", "keep": ["has-text"]}}
    mill = Mill(small.results, **entries)
    identity = identity_of(mill.book.entries["examples/other"], mill.book.declared)
    with pytest.raises(LookupError, match=r"examples/other reads problems/bench, which neither its entry nor `behind`"):
        jobs.make(main, "examples/other", identity, small.results)
    assert not mill.table("examples/other").path.exists()


@pytest.mark.parametrize("identity", ["", "{", "[]", "7", '{"entry": {}}', "[" * 100_000])
def test_entry_of_the_command_line_that_is_none_is_refused(tmp_path, identity):
    """What follows `--entry` is the identity of an entry, or a message says what was found."""
    with pytest.raises(SettingError, match=r"^problems/x: --entry is .+; expected the checked entry as JSON"):
        jobs.make(lambda *_: None, "problems/x", identity, tmp_path)
