"""Generate the manual: a page for each kind, with the fields of an entry, the columns of its table, and usable names.

`python -m proofmill.config.manual` writes docs/kinds/, docs/papers/ (each detail of a published system, from data/papers.csv)
and the schema of configuration files (config_schema.py). A test fails if they differ from the code or the table.
"""

import csv
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from itertools import groupby
from pathlib import Path
from typing import Any, get_type_hints

from pydantic_core import PydanticUndefined

from proofmill.config import config_schema
from proofmill.config.lists import LISTS
from proofmill.filters.scheme_filters import FAULTS
from proofmill.graders.attacks import ATTACKS
from proofmill.graders.program_graders import PROGRAMS
from proofmill.prompts.templates import VERDICT_FORMS
from proofmill.rewards.rewards import Reward
from proofmill.schema.columns import COLUMNS, FILE_COLUMNS
from proofmill.schema.entries.scores_entry import Published, Sampling
from proofmill.schema.fields import info_of
from proofmill.schema.kinds import DECLARED, KINDS, Kind
from proofmill.schema.reasons import Reason, StopReason
from proofmill.schema.registry_items import Named
from proofmill.sources.loaders import SOURCES

FOLDER = Path("docs/kinds")
PAPERS, PAPERS_TABLE = Path("docs/papers"), Path("data/papers.csv")
STATUSES = ("exact", "different", "missing")
SYSTEMS = {  # the systems of the table, with the sources that its rows name
    "qed-nano": "QED-Nano (arXiv 2604.04898; files are of CMU-AIRe/QED-Nano at 4d4051c)",
    "gsm8k-length": "the GSM8K length study",
    "absolute-zero": "Absolute Zero (arXiv 2505.03335; files are of LeapLabTHU/Absolute-Zero-Reasoner at a82124e)",
    "deepseek-r1": "DeepSeek-R1 (arXiv 2501.12948, and Nature 645 with its supplement)",
}
TITLES = {
    "filters": "Filters for `keep`",
    "scheme-filters": "Filters for `keep`",
    "example-filters": "Filters for `keep`",
    "rewards": "Rewards",
    "metrics": "Metrics",
}


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    kinds = {f"{name}.md": _page(name, kind) for name, kind in KINDS.items()}
    declared = {f"{name}.md": _write_declared_page(name, cls) for name, cls in DECLARED.items()}
    return {**kinds, **declared, "reasons.md": _reasons()}


def read_papers(path: Path = PAPERS_TABLE) -> list[dict[str, str]]:
    """Return the rows of the table of the papers' details."""
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def list_settings(row: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (entry, key, value) of each setting in a row; one entry applies to all keys."""
    entries, keys, values = ([part for part in row[name].split("; ") if part] for name in ("entry", "key", "value"))
    return list(zip(entries * (len(keys) if len(entries) == 1 else 1), keys, values, strict=True))


def paper_pages(rows: list[dict[str, str]]) -> dict[str, str]:
    """Return the text of the page of every system by file name."""
    return {f"{name}.md": _paper(name, [row for row in rows if row["system"] == name]) for name in SYSTEMS}


def _paper(name: str, rows: list[dict[str, str]]) -> str:
    about = (
        f"The {len(rows)} details of {SYSTEMS[name]}, and what [our recipe](../recipes.md#the-training-systems) does. "
        "A test compares the settings with the recipe. [CONTRIBUTING.md](../../CONTRIBUTING.md#principles) has the "
        "principles, and [data/papers.csv](../../data/papers.csv) the table of this page (`make docs`)."
    )
    topics = {row["topic"]: [other for other in rows if other["topic"] == row["topic"]] for row in rows}
    groups = {**topics, "**all**": rows}.items()
    counts = [(topic, *(sum(row["status"] == status for row in some) for status in STATUSES)) for topic, some in groups]
    parts = [f"# {name}: each detail of the original", textwrap.fill(about, 120, break_on_hyphens=False)]
    parts += [_table(("topic", *STATUSES), counts)]
    for topic, some in topics.items():
        lines = [(r["id"], r["detail"], r["source"], r["status"], _settings(r), r["reason"]) for r in some]
        parts += [f"## {topic}", _table(("id", "original", "source", "status", "recipe", "note"), lines)]
    return "\n\n".join(parts) + "\n"


def _settings(row: Mapping[str, str]) -> str:
    named = [(f"`{entry}`: ", f"`{key}: {value}`") for entry, key, value in list_settings(row)]
    return "; ".join(entry + ", ".join(s for _, s in some) for entry, some in groupby(named, lambda each: each[0]))


def _write_declared_page(name: str, cls: type) -> str:
    return f"# {name}\n\n{_about(cls)}\n\n## Fields\n\n{_fields(cls)}\n"


def _page(name: str, kind: Kind) -> str:
    cls = kind.entry
    parts = [
        f"# {name}",
        _about(cls),
        f"Revision {cls.revision}. A new revision rebuilds all tables of this kind.",
        "## Fields",
        _fields(cls),
    ]
    if name == "scores":
        parts += ["### `sampling`", "Each sampling setting has these fields:", _fields(Sampling)]
        parts += ["### `published`", "Each model has these fields:", _fields(Published)]
    if name == "problems":
        rows = [(f"`{source}`", _keys(sorted(record.reads)), record.doc) for source, record in SOURCES.items()]
        parts += ["## Sources", _table(("source", "reads", "meaning"), rows)]
    if name == "grades":
        programs = [(f"`{grader}`", str(record.max_points), record.doc) for grader, record in PROGRAMS.items()]
        parts += ["## Program graders", _table(("grader", "max points", "meaning"), programs)]
        forms = [(f"`{form}`", record.grades, record.doc) for form, record in VERDICT_FORMS.items()]
        parts += [
            "## Forms of verdicts",
            "The header of a prompt declares the form of the verdict (`verdict`) and the grades (`scale`).",
        ]
        parts += [_table(("verdict", "possible grades", "what the judge writes"), forms)]
    if name == "grpo":
        attacks = [(f"`{attack}`", record.doc) for attack, record in ATTACKS.items()]
        parts += ["## Attacks of `max-attack`", _table(("attack", "response"), attacks)]
    for _, word in kind.registries:
        rows = [(f"`{item}`", _argument(record), record.doc) for item, record in LISTS[word].items()]
        parts += [f"## {TITLES[word]}", _table(("name", "argument", "meaning"), rows)]
    if name == "schemes":
        faults = [(f"`{fault}`", meaning) for fault, meaning in FAULTS.items()]
        parts += ["## Faults found by the linter", _table(("fault", "meaning"), faults)]
    parts += ["## Columns", _columns(COLUMNS[name])]
    for file, columns in FILE_COLUMNS.get(name, {}).items():
        parts += [f"## Columns of `{file}`", f"One row is {kind.extra_files[file]}.", _columns(columns)]
    return "\n\n".join(parts) + "\n"


def _reasons() -> str:
    """Return the page of `stop` and `reason`."""
    stops = [(f"`{stop}`", stop.meaning) for stop in StopReason]
    reasons = [(f"`{reason}`", reason.meaning, reason.again) for reason in Reason]
    parts = ["# Stop and reason", "Values of the columns `stop_reason` and `reason`, the same in all tables."]
    parts += ["## stop_reason", _about(StopReason), _table(("stop_reason", "meaning"), stops)]
    parts += ["## reason", _about(Reason), _table(("reason", "meaning", "retry"), reasons)]
    return "\n\n".join(parts) + "\n"


def _about(cls: type) -> str:
    return inspect.getdoc(cls) or ""


def _columns(columns: Mapping[str, tuple[Any, str]]) -> str:
    rows = [(f"`{name}`", str(dtype), meaning) for name, (dtype, meaning) in columns.items()]
    return _table(("column", "type", "meaning"), rows)


def _keys(fields: Iterable[str]) -> str:
    return ", ".join(f"`{name.replace('_', '-')}`" for name in fields)


def _argument(named: Named | Reward) -> str:
    if isinstance(named, Reward):
        return ", ".join(f"`{name}`{'' if value is None else f' ({value})'}" for name, value in named.arguments.items())
    options = "; ".join(f"`{name}`: {', '.join(f'`{v}`' for v in values)}" for name, values in named.options.items())
    return {
        "none": "",
        "options": f"{options}; the first is the default",
        "number": "a number",
        "share": "a number above 0, at most 1",
        "count": "a whole number",
        "bounds": "`[min, max]`; null: no limit",
        "texts": "a list of strings",
        "days": "`[first, last]`, as `2025-02-15`",
    }[named.argument]


def _fields(cls: Any) -> str:
    hints = get_type_hints(cls)
    rows = [
        (f"`{f.name.replace('_', '-')}`", _type(hints[f.name]), _default(f), info_of(f).description)
        for f in fields(cls)
    ]
    return _table(("field", "type", "default", "meaning"), rows)


def _type(hint: Any) -> str:
    text = re.sub(r"typing\.|proofmill(\.\w+)+\.", "", str(hint.__name__ if isinstance(hint, type) else hint))
    text = re.sub(r"^Optional\[(.*)\]$|^Union\[(.*), NoneType\]$|(.*) \| None$", r"\1\2\3", text)  # null: the default
    return re.sub(r"Literal\[([^]]*)\]", lambda match: match[1].replace("'", "`"), text)


def _default(field: Any) -> str:
    info = field.default
    if info is MISSING or (info.default in (..., PydanticUndefined) and info.default_factory is None):
        return "required"
    value = info.default_factory() if info.default_factory else info.default
    return "none" if value is None else f"`{value}`"


def _table(head: tuple[str, ...], rows: list[tuple]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def main() -> None:
    """Write all pages and the schema."""
    files = {FOLDER / name: text for name, text in pages().items()} | {config_schema.PATH: config_schema.text()}
    files |= {PAPERS / name: text for name, text in paper_pages(read_papers()).items()}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path, file=sys.stderr)


if __name__ == "__main__":
    main()
