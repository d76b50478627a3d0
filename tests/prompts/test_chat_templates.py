"""Chat templates of foreign models: today's date is replaced when the model is imported."""

import pytest

from proofmill.prompts import chat_templates
from proofmill.schema.errors import TableError


def test_formats_become_the_fixed_date_and_other_calls_are_refused(tmp_path):
    """Formats in quotes of both kinds are replaced. A template with another call stays as it is."""
    path = tmp_path / "chat_template.jinja"
    path.write_text("{{ strftime_now( '%d.%m.' ) + strftime_now(\"%Y\") }}")
    chat_templates.fix_date(tmp_path)
    assert path.read_text() == "{{ '26.07.' + \"2024\" }}"
    path.write_text(asked := "{{ strftime_now('%d') + strftime_now(format) }}")
    with pytest.raises(TableError, match=r"chat_template.jinja: .*Set `chat-template` to a copy with the date"):
        chat_templates.fix_date(tmp_path)
    assert path.read_text() == asked
