"""What was found, as a message quotes it: short, on one line, and without characters that a terminal would obey."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

LONGEST_VALUE = 60  # characters
LONGEST_LINE = 2_000  # characters of one line of a message
LISTED = 20  # names of a longer list


def escaped(text: str) -> str:
    """A text with every character that cannot be printed, line ends among them, written as Python writes it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def short(text: str) -> str:
    """The beginning of a text, escaped."""
    return escaped(text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}...")


def shown(value: Any) -> str:
    """The beginning of a value as Python writes it."""
    return short(repr(value))


def listed(names: Iterable[Any]) -> str:
    """The first of some names, and how many more there are."""
    names = iter(names)
    first = [short(str(name)) for name in islice(names, LISTED)]
    more = sum(1 for _ in names)
    return ", ".join(first) + (f" and {more:,} more" if more else "")


def legible(message: str) -> str:
    """A message of one or more lines, each escaped, and without its middle if it is too long to be read."""
    half = LONGEST_LINE // 2
    lines = (line if len(line) <= LONGEST_LINE else f"{line[:half]} ... {line[-half:]}" for line in message.split("\n"))
    return "\n".join(map(escaped, lines))
