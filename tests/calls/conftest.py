"""What tests of calls share."""

import pytest

from flowing import opened_desk


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """`desk(a=reply, b=reply)` opens a server for each model, over one journal; gives the askers and what was asked."""
    return opened_desk(tmp_path, monkeypatch)
