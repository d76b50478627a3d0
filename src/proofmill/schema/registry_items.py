"""Define registry items, such as filters: a function with its sentence in the manual and its argument.

In the configuration, an item is its name, `has-statement`, or its name with an argument, `{length: [20, 4000]}`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal, get_args

Argument = Literal["none", "number", "share", "count", "bounds", "texts", "days", "options"]


@dataclass(frozen=True)
class Named:
    """An item of a registry. `apply` takes what its registry documents, and last the argument, if it has one."""

    apply: Any  # a function, or another object that the registry documents
    doc: str
    argument: Argument = "none"
    needs: str | None = None  # a field of the entry that must be set
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of `options`: the values, the default first

    def __post_init__(self) -> None:
        if self.argument not in get_args(Argument):
            forms = ", ".join(f"`{form}`" for form in get_args(Argument))
            raise ValueError(
                f"`argument` is {self.argument!r}, which is not the form of an argument in a recipe ({forms})"
            )

    def fault(self, item: str | Mapping[str, Any]) -> str | None:
        """Return the fault in how the configuration writes this item, or None."""
        name, argument = split(item)
        right = {
            "none": argument is None,
            "options": argument is None or self._has_options(argument),
            "number": _is_number(argument),
            "share": _is_number(argument) and 0 < argument <= 1,
            "count": type(argument) is int and argument >= 1,
            "bounds": _is_bounds(argument),
            "texts": isinstance(argument, list) and bool(argument) and all(isinstance(t, str) and t for t in argument),
            "days": isinstance(argument, list)
            and len(argument) == 2
            and all(map(is_day, argument))
            and argument[0] <= argument[1],
        }[self.argument]
        options = ", ".join(f"{key}: {' / '.join(values)}" for key, values in self.options.items())
        shape = {
            "none": f"`{name}` alone, without an argument",
            "options": f"`{name}` or `{{{name}: {{{options}}}}}`",
            "number": f"`{{{name}: <number>}}`",
            "share": f"`{{{name}: <above 0, at most 1>}}`",
            "count": f"`{{{name}: <1, 2, ...>}}`",
            "bounds": f"`{{{name}: [<min or null>, <max or null>]}}`",
            "texts": f"`{{{name}: [<text>, ...]}}`",
            "days": f"""`{{{name}: ["<first day, as 2025-02-15>", "<last day>"]}}`""",
        }[self.argument]
        return None if right else f"`{name}` has the argument {argument!r}; expected {shape}. Write it in this form."

    def _has_options(self, argument: Any) -> bool:
        if not isinstance(argument, Mapping):
            return False
        return all(value in self.options.get(key, ()) for key, value in argument.items())

    def chosen(self, argument: Mapping[str, str] | None) -> dict[str, str]:
        """Return the value of each option: the given one, or the default."""
        return {**{key: values[0] for key, values in self.options.items()}, **(argument or {})}


def split(item: str | Mapping[str, Any]) -> tuple[str, Any]:
    """Return the name and the argument of an item in the configuration."""
    return (item, None) if isinstance(item, str) else next(iter(item.items()), ("", None))


def name_of(item: str | Mapping[str, Any]) -> str:
    """Return the name of an item in the configuration."""
    return split(item)[0]


def models_in(config: Any) -> list[str]:
    """Return the models that a scaffold names. Works for scaffolds with mistakes too."""
    if not isinstance(config, Mapping) or not isinstance(config.get("roles"), Mapping):
        return []
    models = []
    for role in config["roles"].values():
        models += (
            models_in(role) if isinstance(role, Mapping) else [role] if isinstance(role, str) and "/" in role else []
        )
    return list(dict.fromkeys(models))


def within(value: float, bounds: list[float | None]) -> bool:
    """Return whether a value is within inclusive bounds; None is no bound."""
    low, high = bounds
    return (low is None or value >= low) and (high is None or value <= high)


def is_day(value: Any) -> bool:
    """Return whether a value is a day of the calendar, as a text such as `2025-02-15`."""
    try:
        return isinstance(value, str) and date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def _is_bounds(value: Any) -> bool:
    if not (isinstance(value, list) and len(value) == 2 and all(b is None or _is_number(b) for b in value)):
        return False
    return None in value or value[0] <= value[1]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
