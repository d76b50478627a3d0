"""YAML and JSON of users: faults are named with their line."""

import pytest

from proofmill.schema.errors import RecipeError
from proofmill.text import own_files


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: 1\n? [b, c]\n: 2\n", "x.yaml:2: a key is a list or mapping; expected a name"),
        ("a: 1\na: 2\n", r"x.yaml:2: `a` is declared twice \(first in line 1\)"),
        ("[" * 5000, "x.yaml: (is nested too deeply|cannot be read)"),
        ("a: [1", "x.yaml: cannot be read as YAML"),
    ],
)
def test_fault_of_a_file_has_its_line(text, fault):
    """Keys that are no names, names given twice, and broken YAML are refused."""
    with pytest.raises(RecipeError, match=fault):
        own_files.read_yaml(text, "x.yaml", "a mapping")
