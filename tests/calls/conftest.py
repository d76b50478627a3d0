"""Fixtures of the tests of calls."""

import pytest

from flowing import opened_desk


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Return `desk(a=reply, b=reply)`, which opens a server per model over one journal; it returns askers and requests."""
    return opened_desk(tmp_path, monkeypatch)
