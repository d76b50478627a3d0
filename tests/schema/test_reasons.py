"""Reasons and stops: each has its sentence, and tables take no others."""

import pytest

from proofmill.artifacts.tables import Table
from proofmill.schema.columns import COLUMNS, ENUMS
from proofmill.schema.errors import TableError
from proofmill.schema.reasons import ABSENT, PASSING, UNREAD, Reason, Stop


@pytest.mark.parametrize("value", [*Stop, *Reason])
def test_each_has_a_sentence(value):
    """The manual prints what each means."""
    assert value.meaning.endswith(".") and value.meaning[0].isupper()


def test_asking_again_is_said_of_every_reason():
    """What may pass, what can be asked again at once, and what is final have nothing in common."""
    assert {reason.again for reason in Reason} == {"later", "now", "no"}
    assert not PASSING & UNREAD and not (PASSING | UNREAD) & set(ABSENT.values())
    assert Reason.OK.again == "no"


@pytest.mark.parametrize("column", ENUMS)
def test_table_refuses_a_value_that_is_none(tmp_path, column):
    """A misspelt reason ends the stage; nothing is written."""
    row = {**dict.fromkeys(COLUMNS["responses"]), "response": "a", "stop": Stop.END, "reason": Reason.OK}
    table = Table("responses/x", tmp_path)
    with pytest.raises(TableError, match=rf"responses/x: `{column}` is `okay`; expected one of "):
        table.write([{**row, column: "okay"}], {"fingerprint": "f", "entry": {}})
    assert not table.path.exists()
    table.write([row], {"fingerprint": "f", "entry": {}})
    assert table.rows()[0]["reason"] == "ok"
