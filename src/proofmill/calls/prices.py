"""Prices of common providers' models (data/prices.csv), for entries that declare none; and names of models.

A price from this file does not affect the fingerprint: a newer file makes no finished table stale.
"""

import csv
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from proofmill.runtime import environment
from proofmill.runtime.project import project_folder

KINDS = ("input", "cached_input", "output")
# Suffixes that name a version of a model: a date, a number of three digits or more, v2, latest.
VERSION = re.compile(r"(?:[-@:._](?:\d{4}-\d{2}-\d{2}|\d{2}-\d{2,4}|\d{3,8}|v\d+|latest|preview|exp))*")


@dataclass(frozen=True)
class Listed:
    """A row of the file: dollars per million tokens, the day on which they were read, and where."""

    id: str
    price: dict[str, float]
    date: str
    source: str

    def __str__(self) -> str:
        amounts = ", ".join(f"${value:g} {name.replace('_', ' ')}" for name, value in self.price.items())
        return f"{self.id}: {amounts} per million tokens ({self.source}, {self.date})"


def price_of(api: Any, name: str | None = None) -> Any:
    """Return the price that an entry declares, else the listed price of its model; None if there is neither.

    With the name of a model that is called by batches, half of it.
    """
    price = row.price if (row := list_price(api)) else api.price
    if name and environment.is_batched(name) and isinstance(price, dict):
        return {kind: amount / 2 for kind, amount in price.items()}
    return price


def list_price(api: Any) -> Listed | None:
    """Return the listed price of an entry's model or version by its `id`; None if the entry declares its own price."""
    rows = [row for row in _rows() if _is_version(row.id, api.id or "")] if api.price is None else []
    return max(rows, key=lambda row: len(row.id), default=None)


@lru_cache(maxsize=1)
def _rows() -> list[Listed]:
    file = project_folder() / "data/prices.csv"
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [
        Listed(row["id"], {kind: float(row[kind]) for kind in KINDS if row[kind]}, row["date"], row["source"])
        for row in csv.DictReader(lines)
    ]


def is_same_model(asked: str, said: str) -> bool:
    """Return whether a server's name for its model is the requested one, a version of it, or an alias of a version.

    Ignores case and everything before the last `/`: `gpt-4o` is `openai/gpt-4o-2024-08-06`, but not `gpt-4o-mini`.
    """
    asked, said = (name.casefold().rstrip("/").rpartition("/")[2].removesuffix("-latest") for name in (asked, said))
    return _is_version(asked, said) or _is_version(said, asked)


def _is_version(model: str, name: str) -> bool:
    return name.startswith(model) and VERSION.fullmatch(name, len(model)) is not None
