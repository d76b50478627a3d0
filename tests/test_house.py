"""The house: which folder may import which, what a folder keeps to itself, how large a room may be."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from mill import ROOT

PACKAGE = ROOT / "src/proofmill"

# A folder may import those before it. `kinds` are the modules at the top of the package, `__main__` is the command line.
ORDER = [
    *(
        "schema",
        "text",
        "runtime",
        "public_data",
        "foreign",
        "answers",
        "rewards",
        "synthetic",
        "decontamination",
        "sandbox",
        "estimation",
    ),
    *("metrics", "prompts", "selfplay_tasks", "filters", "sources", "calls", "graders", "scaffolds"),
    *("config", "artifacts", "training", "engines", "kinds"),
    *("publishing", "planning", "exports", "analysis", "viewer", "cli", "__main__"),
]
MOST_FILES = {"cli": 26}  # one module a command; 15 in other folders
MOST_LINES = 400
WIDTH = 120


def modules() -> dict[str, Path]:
    """Return dotted name and file of every module and folder of the package."""
    names = {path: ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in PACKAGE.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


MODULES = modules()
RULES = [*(ROOT / "workflow").rglob("*.smk"), *(ROOT / "workflow").glob("Snakefile"), ROOT / "Snakefile"]


def imports(path: Path) -> Iterator[str]:
    """Yield the modules of this package that a file imports, anywhere in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("proofmill"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("proofmill"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module


IMPORTS = {name: set(imports(path)) - {name} for name, path in MODULES.items()}


def folder(module: str) -> str:
    """Return the folder of a module."""
    parts = module.split(".")
    return parts[1] if len(parts) > 2 or parts[-1] == "__main__" else "kinds"


def test_every_folder_has_its_place_in_the_order():
    """A new folder has a place in the order, and each says what is in it."""
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(ORDER) - {"kinds", "__main__"}
    for name in folders:
        assert ast.get_docstring(ast.parse((PACKAGE / name / "__init__.py").read_text())), name


@pytest.mark.parametrize("module", [name for name, path in MODULES.items() if path.name != "__init__.py"])
def test_no_module_imports_from_a_higher_folder(module):
    """Arrows go down."""
    place = ORDER.index(folder(module))
    upward = [other for other in IMPORTS[module] if other != "proofmill" and ORDER.index(folder(other)) > place]
    assert not upward, f"{module} imports {', '.join(upward)}"


def test_no_circle_among_the_modules():
    """Modules can be put in an order in which each imports only those before it; a circle is an error that names it."""
    assert list(TopologicalSorter(IMPORTS).static_order())


@pytest.mark.parametrize("module", [name for name in MODULES if name.split(".")[-1].startswith("_")])
def test_what_has_an_underscore_stays_in_its_folder(module):
    """`folder/_module.py` is imported by its own folder only; inside it has no tests of its own to keep it from that."""
    if not module.endswith("__main__"):
        users = [name for name, imported in IMPORTS.items() if module in imported]
        assert users and {folder(name) for name in users} == {folder(module)}


@pytest.mark.parametrize("module", list(MODULES))
def test_private_names_are_not_imported(module):
    """A name with an underscore belongs to its module."""
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("proofmill"):
            private = [alias.name for alias in node.names if alias.name.startswith("_")]
            assert all(f"{node.module}.{name}" in MODULES for name in private), f"{module}: {private}"


@pytest.mark.parametrize("folder", ["benchmarks", "docs", "envs", "workflow"])
def test_scripts_outside_the_package_import_what_exists(folder):
    """Names that benchmarks and the scripts of the docs import from proofmill are there; most of them run rarely."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("proofmill"):
                found += [(path, node.module, alias.name) for alias in node.names]
    for path, module, name in found:
        known = hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}")
        assert known, f"{path}: {module}.{name}"
    assert found or folder == "envs"


def test_rooms_are_not_crowded():
    """No folder at any depth has more than 15 modules, and no module or rule file more than 400 lines."""
    for place in {path.parent for path in MODULES.values()}:
        assert len(list(place.glob("*.py"))) <= MOST_FILES.get(place.name, 15), place
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in [*MODULES.values(), *RULES]}
    assert not {str(path.relative_to(ROOT)): length for path, length in lengths.items() if length > MOST_LINES}


def test_names_the_house_avoids_are_absent():
    """No module is called utils, helpers, common, misc, or carries a version or age in its name."""
    assert not [name for name in MODULES if re.search(r"util|helper|common|misc|legacy|\bnew_|_v\d", name)]


@pytest.mark.parametrize("module", list(MODULES))
def test_no_broad_except_and_nothing_left_open(module):
    """Errors propagate, and no promise is left in the code."""
    text = MODULES[module].read_text(encoding="utf-8")
    assert not re.search(r"except( Exception| BaseException)?:", text)
    assert not re.search(r"TODO|FIXME|XXX|raise NotImplementedError\b(?!\()", text)


def test_lines_of_yaml_and_markdown_have_one_width():
    """Like those of the code. A table's row is one line; prompts and cards are sent unchanged."""
    for path in [*ROOT.glob("*.md"), *ROOT.glob("*.yaml"), *folders("docs", "data", "skills", "workflow", "tests")]:
        if path.suffix in (".md", ".yaml", ".smk"):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                short = len(line) <= WIDTH or line.startswith("|") or " " not in line.strip()
                assert short, f"{path.relative_to(ROOT)}:{number} has {len(line)} characters; expected at most {WIDTH}"


def folders(*names: str) -> Iterator[Path]:
    """Yield all files of some folders of the project."""
    for name in names:
        yield from (path for path in (ROOT / name).rglob("*") if path.is_file())
