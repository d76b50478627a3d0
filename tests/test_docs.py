"""Test that the commands of the pages can be typed, with options and targets that exist."""

import re
import runpy
import shlex
from itertools import pairwise

import pytest

from mill import ROOT
from pages import NOT_RUN, PAGES
from pages import commands as shown
from proofmill.__main__ import parser
from proofmill.config import yaml_files
from proofmill.config.config import expand

PLACEHOLDERS = {
    "TARGET",
    "mine",
    "first-look",
    "my-recipe",
    "seeds",
    "own",
    "...",
    "NAME",
    "RECIPE",
    "scores/judged",
}  # recipes of the reader's own
WITH_VALUE = ("--configfile", "--set-resources", "--workflow-profile", "--profile", "--cores", "--quiet", "--until")
WITH_VALUE += ("--snakefile", "-s", "--reporter", "--config", "--directory")


def commands(page) -> list[list[str]]:
    """Return the words of each of our commands in blocks of shell and in inline code."""
    text = page.read_text(encoding="utf-8")
    found = shown(page)
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    found += [re.sub(r"\s+", " ", code) for code in re.findall(r"`([^`]+)`", prose)]
    single = [part.strip() for line in found for part in re.split(r"&&|;|\|", line.partition(" #")[0])]
    ours = [part for part in single if re.match(r"(\w+=\S+ )*(proofmill|snakemake|make) ", part)]
    return [[word for word in shlex.split(part) if not re.match(r"[A-Z_]+=", word)] for part in ours]


ALL = [(page.relative_to(ROOT), words) for page in PAGES for words in commands(page)]


@pytest.fixture(scope="module")
def known() -> set[str]:
    """Return every target: recipes, artifacts and tables of the shipped configuration."""
    config = expand(yaml_files.read(ROOT / "config.yaml"))
    return {*config.recipes, *config.entries, *(f"results/{name}.parquet" for name in config.entries)}


def test_pages_have_commands():
    """The pages show enough of them for this test to mean something."""
    assert len(ALL) > 40 and {words[0] for _, words in ALL} == {"proofmill", "snakemake", "make"}


def test_every_exception_is_one():
    """Each command named as not run is on some page, and the test that runs it instead exists."""
    lines = [line for page in PAGES for line in shown(page)]
    for command, reason in NOT_RUN.items():
        assert any(re.match(command, line) for line in lines), command
        assert all((ROOT / path).exists() for path in re.findall(r"tests/\S+\.py", reason)), reason


@pytest.mark.parametrize(("page", "words"), [(p, w) for p, w in ALL if w[0] == "proofmill"], ids=str)
def test_command_is_understood(page, words):
    """Its subcommand and options exist."""
    if len(words) > 1 and "COMMAND" not in words:
        words = [word.strip("[]") for word in words[1:] if word not in ("...", "[NAMES...]")]
        if words[0] not in ("--version", "--print-completion"):
            alone = len(words) == 1 and words[0] not in ("gc", "view")  # named without what it needs
            assert parser().parse_args(words + ["x"] * alone).command == words[0]


@pytest.mark.parametrize(("page", "words"), [(p, w) for p, w in ALL if w[0] == "snakemake"], ids=str)
def test_target_is_one(page, words, known):
    """Each target of Snakemake is a recipe, an artifact or a table, or the reader's own."""
    targets = [w for before, w in pairwise(words) if w[0] != "-" and before not in WITH_VALUE]
    after = words.index("--configfile") if "--configfile" in words else len(words)
    own = {target for target in targets if "/own" in target or "/mine" in target or target in PLACEHOLDERS}
    own |= {target for target in targets if "=" in target or words.index(target) > after}
    assert {target for target in targets if target not in known} - own == set()


@pytest.mark.parametrize(("page", "words"), [(p, w) for p, w in ALL if w[0] == "make"], ids=str)
def test_make_knows_it(page, words):
    """Each target of make is in the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    asked = [word for word in words[1:] if "=" not in word and word[0] not in "-$/."]
    assert [target for target in asked if not re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize(("name", "rows"), [("smol-scores.svg", 8), ("nano-scores.svg", 9)])
def test_picture_is_that_of_the_table(name, rows):
    """Each picture of docs/images/scores.py shows the scores that README.md has."""
    made = runpy.run_path(str(ROOT / "docs/images/scores.py"))
    assert len(list(made["PICTURES"][name].rows())) == rows
    assert made["picture"](name) == (ROOT / "docs/images" / name).read_text(encoding="utf-8")


def test_scores_of_the_pages_are_those_of_the_kept_attempts(monkeypatch):
    """README.md and docs/performance.md have the numbers that benchmarks/stages.py computes from docs/measurements."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    stages = runpy.run_path(str(ROOT / "benchmarks/stages.py"))
    rows = [stages["score"](ROOT / "docs/measurements", recipe) for recipe in ("nano-seeds", "smol-seeds")]
    for page in stages["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert stages["seeds"].BLOCK.search(text) and stages["fill"](text, *rows) == text


@pytest.mark.slow
def test_claims_of_the_page_are_those_of_the_kept_attempts(monkeypatch):
    """docs/claims.md has the numbers that benchmarks/claims.py computes from docs/measurements."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    claims, page = runpy.run_path(str(ROOT / "benchmarks/claims.py")), ROOT / "docs/claims.md"
    results = claims["Results"](expand(yaml_files.read("config.yaml")), ROOT / "docs/measurements")
    assert claims["fill"](page.read_text(encoding="utf-8"), results) == page.read_text(encoding="utf-8")
