"""Test the helpers of field types."""

import pytest

from proofmill.schema.fields import required


def test_required_empty_refused():
    """`required` returns any value, also a false one, and raises for None."""
    assert required("x") == "x"
    assert required(0) == 0
    with pytest.raises(TypeError, match="without a value"):
        required(None)
