"""Check entries beyond field types: unknown references, names and prompts, conflicting fields, and cycles."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from graphlib import CycleError, TopologicalSorter
from typing import Any

from proofmill.calls import prices
from proofmill.config.lists import LISTS
from proofmill.config.source_paths import lacks_column, row_fault
from proofmill.graders import escalation
from proofmill.metrics import averages, budgets, claims, kernels, published
from proofmill.metrics.metrics import kernel_of
from proofmill.prompts import templates
from proofmill.public_data import registry
from proofmill.scaffolds import scaffolds
from proofmill.schema import registry_items
from proofmill.schema.context import Context
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.fields import Ref
from proofmill.schema.kinds import ENTRY_TYPES, KINDS, list_accepted
from proofmill.schema.names import kind_of, parse_seed, without_seed
from proofmill.schema.references import reference_fields, references
from proofmill.schema.registry_items import models_in
from proofmill.sources import conversations
from proofmill.synthetic import referee
from proofmill.text.suggestions import FEW, MANY, among, list_known, nearest


def check(where: str, entry: Any, entries: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[str]:
    """Yield mistakes in one entry beyond types: unknown references, names and prompts, and conflicting fields.

    `declared` has all names of the configuration, `entries` those whose entry could be read.
    """
    kind = next(k for k, cls in ENTRY_TYPES.items() if cls is type(entry))
    lists = dict(KINDS[kind].registries) if kind in KINDS else {}
    refs = reference_fields(type(entry))
    for f in fields(entry):
        value, ref = getattr(entry, f.name), refs.get(f.name)
        key = f.name.replace("_", "-")
        if value is not None and ref is not None:
            for name in [value] if isinstance(value, str) else value:
                if fault := _reference_fault(name, ref, declared):
                    yield f"{where}: `{key}` {fault}"
                protocol = getattr(entries.get(name), "protocol", None)
                if protocol and (protocol == "embeddings") != (f.name == "embedding"):
                    yield f"{where}: `{key}` is `{name}` with `protocol: {protocol}`; expected {'embeddings' if f.name == 'embedding' else 'chat or responses'}."
        if f.name in lists:
            yield from (f"{where}: `{key}`{fault}" for fault in _item_faults(value, LISTS[lists[f.name]]))
        if f.name.endswith("prompt") and value is not None and (fault := templates.fault(value)):
            yield f"{where}: `{key}` {fault}"
        if f.name == "system" and value is not None and (fault := templates.plain_fault(value)):
            yield f"{where}: `{key}` {fault}"
    for key, config in entry.scaffolds().items():
        if fault := scaffolds.fault(config):
            yield f"{where}: `{key}` {fault}"
        roles = f"`{key}.roles`" if isinstance(config, Mapping) else ""
        for name in models_in(config):
            if fault := _reference_fault(name, Ref("api", "weights"), declared):
                yield f"{where}: {roles} {fault}"
    yield from (f"{where}: {fault}" for fault in entry.faults(_context(entries)))
    if fault := row_fault(entry):
        yield f"{where}: {fault}"
    yield from (f"{where}: {fault}" for fault in _solution_faults(entry, entries))


def _solution_faults(entry: Any, entries: Mapping[str, Any]) -> Iterator[str]:
    """Yield each table of problems without solutions whose attempts a grader with `show-reference` would grade."""
    attempted = entries.get(getattr(entry, "responses", None) or "", entry)
    tables = getattr(attempted, "problems", None) or []
    graders = [*entry.graders(), *[(getattr(entry, "grader", None), None)] * isinstance(entry, Scores)]
    shown = any(
        entries[name].show_reference for name, _ in graders if kind_of(str(name)) == "grader" and name in entries
    )
    for name in ([tables] if isinstance(tables, str) else tables) if shown else ():
        while "/" in str(getattr(entries.get(name), "source", "")):
            name = entries[name].source
        if lacks_column(entries.get(name), "solution"):
            yield (
                f"its grader has `show-reference: true`, and {entries[name].path} has no column for the solution of {name}; "
                "expected one. Set `columns: {solution: <your column>}` there, or remove `show-reference`."
            )


def _context(entries: Mapping[str, Any]) -> Context:
    """Return what the checks of entries may use."""
    return Context(
        entries=entries,
        lists=LISTS,
        among=among,
        prompt=templates.prompt,
        prompt_fault=templates.fault,
        text_fault=templates.plain_fault,
        graders_of=escalation.graders_of,
        then_of=escalation.then_of,
        max_points=escalation.max_points,
        address_fault=lambda path: registry.fault_of(path) if registry.is_public(path) else None,
        referee_fault=referee.option_fault,
        price_of=prices.price_of,
        conversation_columns=conversations.COLUMNS,
        kernels=kernels,
        kernel_of=kernel_of,
        score_faults=(averages.faults, budgets.faults, claims.faults, published.faults),
    )


def _reference_fault(name: str, ref: Ref, declared: Mapping[str, Any]) -> str | None:
    """Return the fault in a reference, or None."""
    kinds, words = list_accepted(ref), LISTS[ref.named] if ref.named else {}
    if "/" not in name and (name in kinds or name in words):
        return None
    if "/" not in name or kind_of(name) not in kinds:
        forms = [f"{kind}/<name>" if kind in ENTRY_TYPES else kind for kind in kinds]
        complete = [n for n in declared if kind_of(n) in kinds and n.endswith(f"/{name}")]
        meant = f"{', '.join(forms)}. Did you mean `{complete[0]}`?" if complete else among(name, [*forms, *words])
        return f"is `{name}`; expected {meant}"
    if name in declared:
        return None
    if seed := parse_seed(name):
        return (
            f"refers to `{name}`, which `repeat` makes once all entries are read; expected a declared entry. Declare one with "
            f"this seed: `{name.replace('@', '-')}: {{like: {without_seed(name)}, seed: {seed}}}`"
        )
    alike = [n for n in declared if kind_of(n) == kind_of(name)]
    return f"refers to `{name}`, which no recipe declares; expected one of {among(name, alike)} Declare it, or fix the name."


def _item_faults(items: list | Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[str]:
    """Yield faults in a list of registry items, or in a mapping of names to arguments. Lists the known names once."""
    unknown: dict[str, str] = {}
    for item in items:
        name = registry_items.name_of(item)
        if not isinstance(item, str) and len(item) != 1:
            yield f" has an item with {len(item)} names: {', '.join(item)}; expected one name in each item. Split it."
        elif name not in known:
            unknown[name] = _suggest(name, known)
        elif fault := known[name].fault(*((name, items[name]) if isinstance(items, Mapping) else (item,))):
            yield f": {fault}"

    if unknown:
        names = " and ".join(f"`{name}`" for name in unknown)
        meant = ", ".join(f"`{name}`" for name in dict.fromkeys(unknown.values()) if name)
        listed = list_known(known, FEW if meant else MANY)
        yield f" names {names}; expected one of {listed}." + (f" Did you mean {meant}?" if meant else "")


def _suggest(name: str, known: Mapping[str, Any]) -> str:
    """Return the nearest known name as written in the configuration (`{pass-at-k: 4}` for `pass@4`); empty if none is near."""
    word, _, count = str(name).partition("@")
    of_k = [other for other in known if other.startswith(word) and other.endswith("-at-k")]
    near = next(iter(of_k or nearest(f"{word}-at-k" if count else word, known)), "")
    return f"{{{near}: {count}}}" if near and count.isdigit() and known[near].argument == "count" else near


def cycles(entries: Mapping[str, Any]) -> Iterator[str]:
    """Yield one sentence if the references among entries form a cycle."""
    try:
        TopologicalSorter({name: references(entry) for name, entry in entries.items()}).prepare()
    except CycleError as error:
        yield f"references form a cycle: {' <- '.join(error.args[1])}; expected none. Remove one of these references."
