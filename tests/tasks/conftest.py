"""What the tests of tasks share: one sandbox for all."""

import pytest

from proofmill.sandbox.executor import Executor


@pytest.fixture(scope="module")
def executor():
    """An open executor with short limits."""
    with Executor(seconds=1.0, workers=2) as opened:
        yield opened
