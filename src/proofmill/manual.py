"""One page of the manual is one kind: what a row is, the fields of an entry, the columns of the table, the named things.

`python -m proofmill.manual` writes docs/kinds/; a test fails when they are not in step with the code.
"""

import inspect
import re
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

from pydantic_core import PydanticUndefined

from proofmill import kinds
from proofmill.columns import COLUMNS
from proofmill.filters import FILTERS
from proofmill.measures import MEASURES
from proofmill.named import Named
from proofmill.rewards import REWARDS, Reward
from proofmill.rubrics import DEMANDS, FAULTS
from proofmill.selectors import SELECTORS

FOLDER = Path("docs/kinds")
LISTS = {
    "problems": ("Filters for `keep`", FILTERS),
    "schemes": ("Demands for `keep`", DEMANDS),
    "examples": ("Selectors for `keep`", SELECTORS),
    "grpo": ("Rewards", REWARDS),
    "scores": ("Measures", MEASURES),
}


def pages() -> dict[str, str]:
    """File name and text of every page."""
    made = {f"{kind}.md": _page(kind, cls) for kind, cls in kinds.KINDS.items()}
    for name, cls in kinds.DECLARED.items():
        made[f"{name}.md"] = f"# {name}\n\n{inspect.getdoc(cls)}\n\n{_fields(cls)}\n"
    return made


def _page(kind: str, cls: type) -> str:
    parts = [f"# {kind}", inspect.getdoc(cls), f"Revision {cls.revision}.", "## Fields of an entry", _fields(cls)]
    if kind == "scores":
        parts += ["Each way of sampling under `sampling` has:", _fields(kinds.Sampling)]
    if kind == "problems":
        rows = [
            (f"`{name}`", ", ".join(f"`{f.replace('_', '-')}`" for f in sorted(read)))
            for name, read in kinds.SOURCES.items()
        ]
        parts += ["## Sources", _table(("source", "reads"), rows)]
    if kind in LISTS:
        title, names = LISTS[kind]
        rows = [(f"`{name}`", _argument(named), named.doc) for name, named in names.items()]
        parts += [f"## {title}", _table(("name", "argument", "meaning"), rows)]
    if kind == "schemes":
        parts += [
            "## What the linter finds",
            _table(("fault", "meaning"), [(f"`{f}`", what) for f, what in FAULTS.items()]),
        ]
    columns = [(f"`{name}`", str(dtype), meaning) for name, (dtype, meaning) in COLUMNS[kind].items()]
    parts += ["## Columns of the table", _table(("column", "type", "meaning"), columns)]
    return "\n\n".join(parts) + "\n"


def _argument(named: Named | Reward) -> str:
    if isinstance(named, Reward):
        return ", ".join(f"`{name}`{'' if value is None else f' ({value})'}" for name, value in named.arguments.items())
    return {
        "none": "",
        "number": "a number",
        "count": "a whole number",
        "bounds": "`[least, most]`, null for none",
        "texts": "a list of texts",
    }[named.argument]


def _fields(cls: type) -> str:
    hints = get_type_hints(cls)
    rows = [
        (f"`{f.name.replace('_', '-')}`", _type(hints[f.name]), _default(f), f.default.description) for f in fields(cls)
    ]
    return _table(("field", "type", "default", "meaning"), rows)


def _type(hint: Any) -> str:
    text = (
        str(hint if not isinstance(hint, type) else hint.__name__)
        .replace("typing.", "")
        .replace("proofmill.kinds.", "")
    )
    return re.sub(r"^Optional\[(.*)\]$", r"\1 | None", text)


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
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(FOLDER / name, file=sys.stderr)


if __name__ == "__main__":
    main()
