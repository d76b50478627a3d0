"""Test that a kind has the same name in results, configuration, rule, module, dataclass, columns and test."""

import ast
import importlib
import subprocess
import sys

import pytest
from jinja2 import Environment, meta

from mill import ROOT
from proofmill.config import manual
from proofmill.prompts import templates
from proofmill.prompts.templates import PROMPTS
from proofmill.schema import kinds
from proofmill.schema.columns import COLUMNS
from proofmill.schema.errors import RecipeError

KINDS = list(kinds.KINDS)


def test_kinds_rules_columns_and_modules_are_the_same_words():
    """Rules, top-level modules and columns exist exactly for the kinds."""
    rules = {path.stem for path in (ROOT / "workflow/rules").glob("*.smk")}
    modules = {path.stem for path in (ROOT / "src/proofmill").glob("[!_]*.py")}
    assert set(KINDS) == rules == modules == set(COLUMNS)


@pytest.mark.parametrize("kind", KINDS)
def test_kind_has_its_rule_module_dataclass_columns_and_page(kind):
    """Every kind has a rule, a module, an entry class, a page and a test."""
    rule = (ROOT / f"workflow/rules/{kind}.smk").read_text()
    assert f"rule {kind}:" in rule and f'f"{{RESULTS}}/{kind}/{{{{name}}}}.parquet"' in rule
    assert callable(importlib.import_module(f"proofmill.{kind}").main)
    assert kind.capitalize() == kinds.KINDS[kind].entry.__name__
    assert isinstance(kinds.KINDS[kind].entry.revision, int)
    assert (ROOT / f"docs/kinds/{kind}.md").exists()
    assert (ROOT / f"tests/test_{kind}.py").exists()


def test_manual_is_in_step_with_the_code():
    """docs/kinds matches the dataclasses, columns and registries; `make docs` regenerates it."""
    for name, text in manual.pages().items():
        assert text == (ROOT / "docs/kinds" / name).read_text(encoding="utf-8"), f"run `make docs` for {name}"


@pytest.mark.parametrize("prompt", templates.names())
def test_prompt_renders_with_every_field_it_names(prompt):
    """A prompt's header lists its fields, all are filled in, and optional fields may be missing."""
    read = templates.prompt(prompt)
    body = (PROMPTS / f"{prompt}.md").read_text()
    assert {*read.needs, *read.optional} == meta.find_undeclared_variables(Environment().parse(body))
    fields = {field: f"[[{field}]] with {{{{braces}}}} and \\frac{{1}}{{2}}" for field in (*read.needs, *read.optional)}
    filled = read.render(fields)
    assert all(f"[[{field}]] with {{{{braces}}}}" in filled for field in fields)
    without = read.render({**fields, **dict.fromkeys(read.optional)})
    assert not [field for field in read.optional if f"[[{field}]]" in without]


def test_prompt_with_an_unknown_field_is_refused(monkeypatch, tmp_path):
    """An unknown field is reported before any call."""
    (tmp_path / "p.md").write_text("---\nneeds: [statement, nonsense]\n---\n{{ statement }} {{ nonsense }}")
    monkeypatch.setattr(templates, "PROMPTS", tmp_path)
    with pytest.raises(RecipeError, match="names nonsense; expected only statement"):
        templates.fill("p", {"statement": "s"})


def test_configuration_is_read_without_heavy_imports():
    """Planning does not import torch, polars or openai."""
    code = "import sys; from proofmill.config import config; sys.exit(bool({'torch', 'polars', 'openai', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_test_says_what_it_shows():
    """Every test has a docstring."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                assert ast.get_docstring(node), f"{path.name}: {node.name}"
