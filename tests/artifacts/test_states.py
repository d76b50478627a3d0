"""States of artifacts depend on stamps alone, wherever the files came from."""

import subprocess

import pytest

from damage import zero
from mill import SMALL
from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.schema.errors import TableError


def test_copied_results_folder_is_done_and_its_damage_is_found(small, tmp_path):
    """A plain copy of finished results counts as built here; a deep check refuses a copy whose bytes were lost."""
    subprocess.run(["cp", "-r", small.results, tmp_path / "copy"], check=True)
    states = States(small.config, tmp_path / "copy")
    assert {states[name].name for name in SMALL} == {"done"}
    for name in SMALL:
        Table(name, tmp_path / "copy").check(deep=True)
    zero(tmp_path / "copy/sft/cold/model.safetensors", 20_000, 400)
    with pytest.raises(TableError, match="is damaged or another file"):
        Table("sft/cold", tmp_path / "copy").check(deep=True)
