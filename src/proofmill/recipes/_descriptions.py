"""The manual's sentence of a field, for messages about it."""

from dataclasses import fields


def description(cls: type, key: str) -> str:
    """What the manual says of a field, by its key in config."""
    docs = {f.name.replace("_", "-"): f.default.description for f in fields(cls)}
    return docs.get(key.split(".")[0], "a value")
