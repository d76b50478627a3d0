"""Descriptions of fields, as in the manual, for error messages."""

from dataclasses import fields


def description(cls: type, key: str) -> str:
    """The description of a field by its key in the configuration; empty for an unknown key."""
    docs = {f.name.replace("_", "-"): f.default.description for f in fields(cls)}
    return docs.get(key.split(".")[0], "")
