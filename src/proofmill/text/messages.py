"""Messages of a conversation: as chat templates take them, and as the tables hold them.

A message has a role and a text. What else it may have (calls of tools, the name of a tool, reasoning apart from the
text) differs from model to model, so a table holds it as JSON in `more`.
"""

import json
from collections.abc import Mapping
from typing import Any


def to_row(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as a table holds it."""
    more = {key: value for key, value in message.items() if key not in ("role", "content")}
    text = json.dumps(more, ensure_ascii=False, default=str) if more else None
    return {"role": message["role"], "content": message["content"], "more": text}


def from_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A message as a chat template takes it."""
    more = json.loads(row["more"]) if row.get("more") else {}
    return {"role": row["role"], "content": row["content"], **more}


def tools_from(text: str | None) -> list[dict[str, Any]] | None:
    """The functions that an assistant may call, from the JSON of a table; None without any."""
    return json.loads(text) if text else None
