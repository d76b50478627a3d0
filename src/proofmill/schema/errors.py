"""Define the errors with a message for the user. The command line catches their root, ProofmillError.

    ProofmillError
    ├── RecipeError        a mistake in the configuration; all mistakes are collected and reported at once
    ├── TableError         a table, journal or input file cannot be used
    │   ├── JournalError   a journal cannot be written or read: locked by another job, disk full, or damaged
    │   └── MissingData    public data of an entry are not on this machine
    ├── SettingError       a mistake in the environment, the profile or the command line
    └── ServiceError       a server or a tool fails
        ├── HubError       the hub refused an upload, or has other content there
        ├── GraderError    a grader can be exploited, or its robustness is unknown
        ├── VerifierError  the verifier of final answers does not work on this machine
        └── SandboxError   the sandbox for programs does not work on this machine

A message has the form `<where>: <found>; expected <what>. <What to do>.` Quoted values are short, on one line, and without
control characters.
"""

import unicodedata
from collections.abc import Iterable
from itertools import islice
from typing import Any

LONGEST_VALUE = 60  # characters
LONGEST_LINE = 2_000  # characters in one line of a message
LISTED = 20  # names shown of a longer list


class ProofmillError(Exception):
    """An error with a message for the user. Any other exception is a bug and ends in a traceback."""

    def __init__(self, message: str):
        super().__init__(legible(message))


class RecipeError(ProofmillError):
    """A mistake in the configuration."""


class TableError(ProofmillError):
    """A table, journal or input file that cannot be used."""


class JournalError(TableError):
    """A journal that cannot be written or read."""


class MissingData(TableError):
    """Public data that are not on this machine, by address."""

    def __init__(self, addresses: list[str], found: str):
        super().__init__(f"{found}. Fetch it: proofmill fetch TARGET")
        self.addresses = addresses


class SettingError(ProofmillError):
    """A mistake in the environment, the profile or the command line."""


class ServiceError(ProofmillError):
    """A failure of a server or a tool."""


class HubError(ServiceError):
    """The hub refused an upload, or has other content there."""


class GraderError(ServiceError):
    """A grader that can be exploited, or whose robustness is unknown."""


class VerifierError(ServiceError):
    """The verifier does not work on this machine."""


class SandboxError(ServiceError):
    """The sandbox does not work on this machine."""


# ----------------------------------------------------------------------------------------------------- quoting values


def escape(text: str) -> str:
    """Escape all characters that cannot be printed, including line ends, as Python does."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def escape_controls(text: str) -> str:
    """Escape the characters that a terminal would not print but obey, which move, color or reorder text."""
    kept = (c.isprintable() or c in "\n\t" or unicodedata.category(c) == "Zs" for c in text)
    return "".join(c if keep else escape(c) for c, keep in zip(text, kept, strict=True))


def short(text: str) -> str:
    """Return the beginning of a text, escaped."""
    return escape(text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}...")


def shorten(value: Any) -> str:
    """Return the beginning of a value's `repr`, escaped."""
    return short(repr(value))


def list_names(names: Iterable[Any]) -> str:
    """Return the first names and the number of further ones."""
    names = iter(names)
    first = [short(str(name)) for name in islice(names, LISTED)]
    more = sum(1 for _ in names)
    return ", ".join(first) + (f" and {more:,} more" if more else "")


def legible(message: str) -> str:
    """Escape each line of a message, and shorten lines that are too long in the middle."""
    half = LONGEST_LINE // 2
    lines = (line if len(line) <= LONGEST_LINE else f"{line[:half]} ... {line[-half:]}" for line in message.split("\n"))
    return "\n".join(map(escape, lines))
