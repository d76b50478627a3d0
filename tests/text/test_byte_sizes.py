"""Numbers of bytes as text."""

import pytest

from proofmill.text.byte_sizes import format_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "size ?"), (0, "0.0 kB"), (999_999, "1,000.0 kB"), (10**6, "1.0 MB"), (4_150_000, "4.2 MB"),
        (10**9 - 1, "1,000.0 MB"), (10**9, "1.0 GB"), (10**12, "1.0 TB"), (2_700 * 10**12, "2,700.0 TB"),
    ],
)  # fmt: skip
def test_bytes_are_in_the_largest_unit_that_they_reach(count, text):
    """Each unit begins at its own size; an unknown size is said."""
    assert format_bytes(count) == text
