"""Test the helpers of field types."""

import pytest

from proofmill.schema.fields import require


def test_required_empty_refused():
    """`required` returns any value, also a false one, and raises for None."""
    assert require("x") == "x"
    assert require(0) == 0
    with pytest.raises(TypeError, match="without a value"):
        require(None)
