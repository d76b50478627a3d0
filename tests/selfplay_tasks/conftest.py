"""Shared by the tests of tasks: one sandbox."""

import pytest

from proofmill.sandbox.executor import Executor


@pytest.fixture(scope="module")
def executor():
    """Yield an open executor with short limits."""
    with Executor(seconds=1.0, workers=2) as opened:
        yield opened
