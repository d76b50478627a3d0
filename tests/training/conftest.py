"""A small model for the tests of trainings."""

import pytest

from mill import SMALL, Mill
from trained import TAUGHT


@pytest.fixture(scope="module")
def taught(small) -> Mill:
    """Build the small chain with a model that is trained to think in tags, answer and end."""
    made = Mill(small.results, **SMALL, **{"sft/taught": TAUGHT})
    made.make("sft/taught")
    return made
