"""Resolve references between entries, the edges of the pipeline, and write an entry as canonical text."""

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
    """Return the names of the entries that this one refers to, `api/...` included, in the order of its fields."""
    named = [name for field in reference_fields(type(entry)) for name in _names_in(getattr(entry, field))]
    return [name for name in dict.fromkeys([*named, *entry.also_asks()]) if "/" in name]


def references_by_word(entry: Any) -> list[tuple[str, str]]:
    """Return (registry, value) of each field that accepts a name from a registry instead of an entry."""
    by_word = [(field, ref.named) for field, ref in reference_fields(type(entry)).items() if ref.named]
    return [(word, name) for field, word in by_word for name in _names_in(getattr(entry, field))]


_FIELDS: dict[type, dict[str, Ref]] = {}  # a cache, because each name is looked up many times


def reference_fields(kind: type) -> dict[str, Ref]:
    """Return the fields of an entry class that refer to other entries."""
    if kind not in _FIELDS:
        hints = get_type_hints(kind, include_extras=True)
        refs = {field.name: ref_of(hints[field.name]) for field in fields(kind)}
        _FIELDS[kind] = {name: ref for name, ref in refs.items() if ref is not None}
    return _FIELDS[kind]


def _names_in(value: str | list[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else value


def parents(entry: Any) -> list[str]:
    """Return the artifacts that an entry reads: the edges of the graph. Remote models and graders are not artifacts."""
    return [name for name in references(entry) if kind_of(name) not in DECLARED]


def list_served(entry: Any, declared: Mapping[str, Any]) -> list[str]:
    """Return the artifacts whose weights act as a remote model that an entry refers to, directly or not."""
    return [name for other in list_used(entry, declared).values() for name in parents(other)]


def list_used(entry: Any, declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the remote models and graders that an entry refers to, directly or not, by name."""
    reached, stack = {}, references(entry)
    while stack:
        if (name := stack.pop()) in declared and name not in reached:
            reached[name] = declared[name]
            stack.extend(references(declared[name]))
    return dict(sorted(reached.items()))


def reads(
    kind: str, entry: Any, entry_of: Callable[[str], Any], declared: Mapping[str, Any] = MappingProxyType({})
) -> list[str]:
    """Return the names of all tables that an artifact reads: its parents, indirect parents, and weights it calls.

    `entry_of` returns the entry of a name, from the configuration or as the mapping in a table's stamp.
    """
    names = [*parents(entry), *list_served(entry, declared)]
    for path in KINDS[kind].indirect_parents:
        some = [entry]
        for step in path.split("."):
            values = [value_of(e, step) for e in some]
            reached = [n for v in values for n in ([v] if isinstance(v, str) else v or [])]
            some = [entry_of(name) for name in reached]
        names += reached
    return list(dict.fromkeys([*names, *_find_given_chain(kind, entry, entry_of)]))


def _find_given_chain(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> list[str]:
    """Return the chain of problems tables that given attempts or human grades came with, or []."""
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
    """Return the problems table whose source has the attempts or human grades of an entry."""
    return next(reversed(_find_given_chain(kind, entry, entry_of)), None)


def value_of(entry: Any, name: str) -> Any:
    """Return a field of an entry, which is an object from the configuration or a mapping from a stamp."""
    return entry.get(name) if isinstance(entry, Mapping) else getattr(entry, name)


def ancestors(entries: Mapping[str, Any], name: str) -> Iterator[str]:
    """Yield the artifacts that `name` depends on, directly or not, each once.

    If `entries` has remote models and graders, this includes the weights that act as them.
    """
    seen, stack = set(), references(entries[name])
    while stack:
        if (other := stack.pop()) not in seen and (kind_of(other) not in DECLARED or other in entries):
            seen.add(other)
            if kind_of(other) not in DECLARED:
                yield other
            stack.extend(references(entries[other]) if other in entries else ())  # `scores` derives it later


def canonical(entry: Any) -> str:
    """Return the entry as JSON with defaults filled in and keys sorted. Equal texts request equal rows."""
    return json.dumps(TypeAdapter(type(entry)).dump_python(entry), sort_keys=True, ensure_ascii=False, default=str)
