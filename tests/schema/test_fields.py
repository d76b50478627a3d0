"""Tests of what the types of fields offer to those who read entries."""

import pytest

from proofmill.schema.fields import required


def test_required_empty_refused():
    """A value passes, also one that is false; a field without a value is refused."""
    assert required("x") == "x"
    assert required(0) == 0
    with pytest.raises(TypeError, match="without a value"):
        required(None)
