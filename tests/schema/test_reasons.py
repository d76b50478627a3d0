"""Test reasons and stop reasons: each has a meaning, and tables refuse others."""

import pytest

from proofmill.artifacts.tables import Table
from proofmill.schema.columns import COLUMNS, ENUMS
from proofmill.schema.errors import TableError
from proofmill.schema.reasons import ABSENT, TRANSIENT, UNPARSED, Reason, StopReason


@pytest.mark.parametrize("value", [*StopReason, *Reason])
def test_each_has_a_sentence(value):
    """Each value has a meaning in the manual."""
    assert value.meaning.endswith(".") and value.meaning[0].isupper()


def test_asking_again_is_said_of_every_reason():
    """Temporary failures, retried outputs and final reasons are disjoint."""
    assert {reason.again for reason in Reason} == {"later", "now", "no"}
    assert not TRANSIENT & UNPARSED and not (TRANSIENT | UNPARSED) & set(ABSENT.values())
    assert Reason.OK.again == "no"


@pytest.mark.parametrize("column", ENUMS)
def test_table_refuses_a_value_that_is_none(tmp_path, column):
    """A misspelled reason stops the stage before the table is written."""
    row = {**dict.fromkeys(COLUMNS["responses"]), "response": "a", "stop_reason": StopReason.END, "reason": Reason.OK}
    table = Table("responses/x", tmp_path)
    with pytest.raises(TableError, match=rf"responses/x: `{column}` is `okay`; expected one of "):
        table.write([{**row, column: "okay"}], {"fingerprint": "f", "entry": {}})
    assert not table.path.exists()
    table.write([row], {"fingerprint": "f", "entry": {}})
    assert table.rows()[0]["reason"] == "ok"
