"""Opening engines: what the environment says of a server is checked before anything is asked."""

import pytest

from proofmill.engines.opening import open_api
from proofmill.schema.declared import Api
from proofmill.schema.errors import SettingError


@pytest.mark.parametrize(
    ("key", "found"),
    [("", "is empty"), (" \n", "is empty"), ("sk-secret\n", "has a line end"), ("sk-secret\r", "has a line end"),
     ("sk secret", "a blank"), ("sk-sécret", "another character")],
)  # fmt: skip
def test_key_that_no_header_can_carry_is_refused_without_showing_it(monkeypatch, key, found):
    """The message says that it is the key, and of which variable; the key itself is not in it."""
    monkeypatch.setenv("PROOFMILL_FAR_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("PROOFMILL_FAR_KEY", key)
    with pytest.raises(SettingError, match=rf"^PROOFMILL_FAR_KEY: the key .*{found}.*; expected letters") as refused:
        open_api("api/far", Api(id="far-1", price="unknown")).__enter__()
    assert "cret" not in str(refused.value)
