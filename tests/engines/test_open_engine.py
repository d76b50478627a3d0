"""Opening engines: the environment's values for a server are checked before any call."""

import pytest

from proofmill.engines.open_engine import open_api
from proofmill.schema.entries.declared import Api
from proofmill.schema.errors import SettingError


@pytest.mark.parametrize(
    ("key", "found"),
    [("", "is empty"), (" \n", "is empty"), ("sk-secret\n", "a line break"), ("sk-secret\r", "a line break"),
     ("sk secret", "a space"), ("sk-sécret", "another invalid character")],
)  # fmt: skip
def test_key_that_no_header_can_carry_is_refused_without_showing_it(monkeypatch, key, found):
    """The message names the variable of the key, and does not contain the key."""
    monkeypatch.setenv("PROOFMILL_FAR_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("PROOFMILL_FAR_KEY", key)
    with pytest.raises(
        SettingError, match=rf"^PROOFMILL_FAR_KEY: the key .*{found}.*; expected only printable ASCII"
    ) as refused:
        open_api("api/far", Api(id="far-1", price="unknown")).__enter__()
    assert "cret" not in str(refused.value)
