"""References between entries: the edges of the pipeline, and the canonical text of an entry."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from proofmill.schema.fields import Ref, ref_of
from proofmill.schema.kinds import DECLARED, KINDS
from proofmill.schema.names import kind_of


def references(entry: Any) -> list[str]:
    """Names of the entries that this one is made from, `api/...` included, in the order of its fields."""
    found = [name for field in reference_fields(type(entry)) for name in _named(getattr(entry, field))]
    return [name for name in dict.fromkeys([*found, *entry.also_asks()]) if "/" in name]


def references_by_word(entry: Any) -> list[tuple[str, str]]:
    """(list, value) of each field in which a name of that list may stand in the place of an entry."""
    by_word = [(field, ref.named) for field, ref in reference_fields(type(entry)).items() if ref.named]
    return [(word, name) for field, word in by_word for name in _named(getattr(entry, field))]


_FIELDS: dict[type, dict[str, Ref]] = {}  # each name of a recipe is looked up many times, and a type's fields once


def reference_fields(kind: type) -> dict[str, Ref]:
    """The fields of a type of entry that refer to others."""
    if kind not in _FIELDS:
        hints = get_type_hints(kind, include_extras=True)
        found = {field.name: ref_of(hints[field.name]) for field in fields(kind)}
        _FIELDS[kind] = {name: ref for name, ref in found.items() if ref is not None}
    return _FIELDS[kind]


def _named(value: str | list[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else value


def parents(entry: Any) -> list[str]:
    """Names of the artifacts that this entry reads: edges of the graph (a remote model or a grader is no artifact)."""
    return [name for name in references(entry) if kind_of(name) not in DECLARED]


def served(entry: Any, declared: Mapping[str, Any]) -> list[str]:
    """The artifacts whose weights play a remote model that an entry refers to, at any distance."""
    return [name for other in relied_on(entry, declared).values() for name in parents(other)]


def relied_on(entry: Any, declared: Mapping[str, Any]) -> dict[str, Any]:
    """The remote models and graders that an entry refers to, at any distance, by name."""
    found, stack = {}, references(entry)
    while stack:
        if (name := stack.pop()) in declared and name not in found:
            found[name] = declared[name]
            stack.extend(references(declared[name]))
    return dict(sorted(found.items()))


def reads(
    kind: str, entry: Any, entry_of: Callable[[str], Any], declared: Mapping[str, Any] = MappingProxyType({})
) -> list[str]:
    """Names of all tables that an artifact reads: its parents, what stands behind them, and the weights that it asks.

    `entry_of` gives the entry of a name, from config or as the mapping that a table's stamp has.
    """
    names = [*parents(entry), *served(entry, declared)]
    for path in KINDS[kind].behind:
        some = [entry]
        for step in path.split("."):
            values = [value_of(e, step) for e in some]
            found = [n for v in values for n in ([v] if isinstance(v, str) else v or [])]
            some = [entry_of(name) for name in found]
        names += found
    return list(dict.fromkeys([*names, *_given_through(kind, entry, entry_of)]))


def _given_through(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> list[str]:
    """The problems that attempts or human marks came with, back to those that a source was read for; [] if none came."""
    if kind == "responses" and entry.model == "given":
        names = [entry.problems]
    elif kind == "grades" and entry.grader == "human" and entry.path is None:
        names = [value_of(entry_of(entry.responses), "problems")]
    else:
        return []
    while "/" in (source := value_of(entry_of(names[-1]), "source")):
        names.append(source)
    return names


def origin_of(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> str | None:
    """The problems whose source holds the attempts or human marks that an entry takes."""
    return next(reversed(_given_through(kind, entry, entry_of)), None)


def value_of(entry: Any, name: str) -> Any:
    """A field of an entry, which is an object from config or a mapping from a stamp."""
    return entry.get(name) if isinstance(entry, Mapping) else getattr(entry, name)


def ancestors(entries: Mapping[str, Any], name: str) -> Iterator[str]:
    """The artifacts that `name` is made from, at any distance, each once.

    Where `entries` has remote models and graders, the weights that play them are among them.
    """
    seen, stack = set(), references(entries[name])
    while stack:
        if (other := stack.pop()) not in seen and (kind_of(other) not in DECLARED or other in entries):
            seen.add(other)
            if kind_of(other) not in DECLARED:
                yield other
            stack.extend(references(entries[other]))


def canonical(entry: Any) -> str:
    """The entry as JSON with defaults filled and keys sorted: equal text means equal rows wanted."""
    return json.dumps(TypeAdapter(type(entry)).dump_python(entry), sort_keys=True, ensure_ascii=False)
