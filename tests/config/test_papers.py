"""Test that data/papers.csv has every detail of the published systems, and agrees with the recipes."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
import yaml

from mill import ROOT
from proofmill.config import manual, yaml_files
from proofmill.config.config import expand

# The numbers of the rows of each system, and the letter of its ids.
IDS = {
    "qed-nano": ("Q", range(1, 84)),
    "gsm8k-length": ("G", range(84, 117)),
    "absolute-zero": ("A", range(117, 160)),
    "deepseek-r1": ("R", range(160, 212)),
}


def look_up(value: Any, key: str) -> Any:
    """Return what a dotted key holds; an item of a list is its argument, or true. Raises KeyError without one."""
    if not key:
        return value
    items: dict[str, Any] = {}
    if is_dataclass(value):
        items = {field.name.replace("_", "-"): getattr(value, field.name) for field in fields(value)}
    elif isinstance(value, Mapping):
        items = {str(name): inner for name, inner in value.items()}
    elif isinstance(value, list):
        for item in value:
            items = {**(item if isinstance(item, Mapping) else {str(item): True}), **items}  # the first of a name
    for name in sorted(items, key=len, reverse=True):  # names may have dots
        if key == name or key.startswith(f"{name}."):
            return look_up(items[name], key[len(name) + 1 :])
    raise KeyError(key)


def faults(rows: list[dict[str, str]], known: Mapping[str, Any]) -> Iterator[str]:
    """Yield each fault of the table: its ids, texts and reasons, and settings that differ from the recipes."""
    ids = [f"{letter}{number}" for letter, numbers in IDS.values() for number in numbers]
    present = [row["id"] for row in rows]
    yield from (f"{name}: no row" for name in ids if name not in present)
    yield from (f"{name}: {present.count(name)} rows" for name in ids if present.count(name) > 1)
    for row in rows:
        where, status = row["id"], row["status"]
        if where not in ids or where[0] != IDS.get(row["system"], "?")[0]:
            yield f"{where}: not an id of {row['system']}"
        if not all(row[name].strip() for name in ("topic", "source", "detail")):
            yield f"{where}: no topic, source or detail"
        if status not in manual.STATUSES:
            yield f"{where}: unknown status {status!r}"
        if status != "exact" and not row["reason"]:
            yield f"{where}: {status} without a reason"
        if not row["key"] and not row["reason"]:
            yield f"{where}: neither a setting nor a reason that says where it is"
        try:
            settings = manual.list_settings(row)
        except ValueError:
            yield f"{where}: unequal numbers of entries, keys and values"
            continue
        for entry, key, text in settings:
            if entry not in known:
                yield f"{where}: no entry {entry}"
                continue
            try:
                found = look_up(known[entry], key)
            except KeyError:
                yield f"{where}: {entry} has no key {key}"
                continue
            if found != (expected := yaml.safe_load(text)):
                yield f"{where}: {entry} has {key} {found!r}; the table has {expected!r}"


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    """Return every entry of the shipped configuration by name."""
    config = expand(yaml_files.read(ROOT / "config.yaml"))
    return {**config.entries, **config.declared}


@pytest.fixture
def rows() -> list[dict[str, str]]:
    """Return the rows of the table."""
    return manual.read_papers(ROOT / manual.PAPERS_TABLE)


def test_table_agrees_with_the_recipes(rows, known):
    """Each id has one row, each difference its reason, and each setting the value that the recipe has."""
    assert list(faults(rows, known)) == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"value": "17; 64"}, "Q56: grpo/qed-rl has group-size 16; the table has 17"),
        ({"entry": "grpo/qed-none"}, "Q56: no entry grpo/qed-none"),
        ({"key": "group-size; no.such"}, "Q56: grpo/qed-rl has no key no.such"),
        ({"value": "16"}, "Q56: unequal numbers of entries, keys and values"),
        ({"status": "missing"}, "Q56: missing without a reason"),
        ({"status": "different"}, "Q56: different without a reason"),
        ({"status": "similar"}, "Q56: unknown status 'similar'"),
        ({"entry": "", "key": "", "value": ""}, "Q56: neither a setting nor a reason that says where it is"),
        ({"source": ""}, "Q56: no topic, source or detail"),
        ({"system": "deepseek-r1"}, "Q56: not an id of deepseek-r1"),
        ({"id": "Q57"}, "Q56: no row"),
        ({"id": "Q57"}, "Q57: 2 rows"),
        ({"id": "Q84"}, "Q84: not an id of qed-nano"),
    ],
)
def test_faulty_row_is_found(rows, known, changes, fault):
    """A row that is wrong in one cell is reported with its id."""
    row = next(row for row in rows if row["id"] == "Q56")
    row.update(changes)
    assert fault in list(faults(rows, known))


def test_removed_or_changed_entry_is_found(rows, known):
    """The table is compared with the recipes that exist: without an entry, its rows are faults."""
    fewer = {name: entry for name, entry in known.items() if name != "selfplay/azr-7b"}
    assert "A117: no entry selfplay/azr-7b" in list(faults(rows, fewer))
    other = {**known, "grpo/qed-rl": known["grpo/gsm8k-baseline"]}
    assert "Q56: grpo/qed-rl has problems-per-step 8; the table has 64" in list(faults(rows, other))


def test_pages_are_those_of_the_table(rows):
    """docs/papers matches the table and has each id once; `make docs` regenerates it."""
    pages = manual.paper_pages(rows)
    assert set(pages) == {path.name for path in (ROOT / manual.PAPERS).iterdir()}
    for name, text in pages.items():
        assert text == (ROOT / manual.PAPERS / name).read_text(encoding="utf-8"), f"run `make docs` for {name}"
    shown = [name for text in pages.values() for name in re.findall(r"^\| ([A-Z]\d+) \|", text, re.MULTILINE)]
    assert sorted(shown) == sorted(row["id"] for row in rows)


def test_files_and_entries_of_the_reasons_exist(rows, known):
    """A path or an entry in backticks is one of this project."""
    kinds = {name.partition("/")[0] for name in known}
    for row in rows:
        for word in re.findall(r"`([\w./-]+/[\w./-]+)`", row["reason"]):
            folder = word.partition("/")[0]
            assert folder not in kinds or word in known, f"{row['id']}: {word}"
            assert not (ROOT / folder).is_dir() or (ROOT / word).is_file(), f"{row['id']}: {word}"


def test_principles_of_the_reasons_are_those_of_the_contributors(rows):
    """A difference that is kept for a principle names one of CONTRIBUTING.md by its number and words."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    principles = {
        f"{number}: {words[0].lower()}{words[1:]}"
        for number, words in re.findall(r"^(\d)\. \*\*(.+?)\.\*\*", text, re.M)
    }
    named = {words for row in rows for words in re.findall(r"Principle (\d: [^.]+)", row["reason"])}
    assert len(principles) == 8 and named and named <= principles
