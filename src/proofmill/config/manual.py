"""Generate the manual: a page for each kind, with the fields of an entry, the columns of its table, and usable names.

`python -m proofmill.config.manual` writes docs/kinds/ and the schema of configuration files (config_schema.py). A test fails
if they differ from the code.
"""

import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
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
        "count": "a whole number",
        "bounds": "`[min, max]`; null: no limit",
        "texts": "a list of strings",
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
    FOLDER.mkdir(parents=True, exist_ok=True)
    files = {FOLDER / name: text for name, text in pages().items()} | {config_schema.PATH: config_schema.text()}
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
        print(path, file=sys.stderr)


if __name__ == "__main__":
    main()
