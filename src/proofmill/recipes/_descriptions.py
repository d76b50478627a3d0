"""Descriptions of fields, as in the manual, for error messages."""

from dataclasses import fields
from typing import Any

from proofmill.schema.fields import info_of


def description(cls: Any, key: str) -> str:
    """The description of a field by its key in the configuration; empty for an unknown key."""
    docs = {f.name.replace("_", "-"): info_of(f).description or "" for f in fields(cls)}
    return docs.get(key.split(".")[0], "")
