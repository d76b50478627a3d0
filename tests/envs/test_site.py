"""The web site of docs/, its notebook, and the figures of pages that `proofmill plan` computes."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml

import notebooks
from mill import ROOT

NOTEBOOK = ROOT / "docs/notebooks/first-look.ipynb"
SITE = Path(os.environ.get("SITE", Path(sys.executable).parents[1] / "site"), "bin/mkdocs")
PAGES = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}


def navigation() -> list[str]:
    """Return the pages of the navigation in mkdocs.yml."""
    sections = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    entries = [entry for section in sections for listed in section.values() for entry in listed]
    return [entry if isinstance(entry, str) else next(iter(entry.values())) for entry in entries]


def test_navigation_has_every_page_once():
    """A new page of docs/ is in the navigation; the notebook is a page too."""
    pages = navigation()
    assert len(pages) == len(set(pages)) and set(pages) == PAGES | {"notebooks/first-look.md"}


def test_index_leads_to_the_pages_for_tasks():
    """The first page names the pages that answer a newcomer's questions, and README.md leads to it."""
    links = set(re.findall(r"\]\(([\w./-]+\.md)", (ROOT / "docs/index.md").read_text(encoding="utf-8")))
    assert {"one-thread.md", "faq.md", "costs.md", "serving.md", "one-gpu.md", "comparison.md", "tutorial.md"} <= links
    assert "](docs/index.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_reference_has_what_the_library_page_imports():
    """Each module of the examples of docs/library.md is in docs/reference.md, and each name there exists."""
    reference = re.findall(
        r"^::: (\S+)\.(\w+)$", (ROOT / "docs/reference.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    page = (ROOT / "docs/library.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"from (proofmill\S+) import", page)) - {"proofmill.rewards.lengths"}
    assert shown - {module for module, _ in reference} == set()
    for module, name in reference:
        assert hasattr(__import__(module, fromlist=[name]), name), f"{module}.{name}"


def test_workflows_of_the_forge_use_what_exists():
    """Targets, scripts and Pythons of .github/workflows are those of this project."""
    versions = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        text = path.read_text(encoding="utf-8")
        jobs = yaml.safe_load(text)["jobs"]
        steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
        for script in re.findall(r"(?:tests|\.ci|docs)/[\w./]+", "\n".join(steps)):
            assert (ROOT / script).exists(), script
        for target in re.findall(r"make ([a-z-]+)", "\n".join(steps)):
            assert f"\n{target}:" in (ROOT / "Makefile").read_text(encoding="utf-8"), target
        for python in jobs.get("test", {}).get("strategy", {}).get("matrix", {}).get("python", []):
            assert f"Programming Language :: Python :: {python}" in versions


def test_notebook_is_valid_and_has_its_outputs():
    """The committed notebook is valid, was run from top to bottom, and names no path of a machine."""
    notebook = notebooks.read(NOTEBOOK)
    nbformat.validate(nbformat.from_dict(notebook))
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in codes] == list(range(1, len(codes) + 1))
    assert all(cell["outputs"] for cell in codes)
    assert not re.search(r"/(tmp|home|root|work)/", json.dumps(notebook))


@pytest.mark.long
def test_notebook_prints_what_it_shows():
    """Run again, every cell has the committed output."""
    committed = notebooks.read(NOTEBOOK)
    assert notebooks.run(committed) == committed


@pytest.mark.long
@pytest.mark.skipif(not SITE.exists(), reason="no environment of the site; `make site` makes it")
def test_site_builds_without_a_broken_link(tmp_path):
    """Every internal link and anchor exists, llms.txt lists the navigation, and external links are listed."""
    command = [SITE, "build", "--quiet", "--strict", "--site-dir", tmp_path / "site"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", (tmp_path / "site/llms.txt").read_text(), re.MULTILINE)
    assert listed == navigation() and all((tmp_path / "site" / page).is_file() for page in listed)
    assert (tmp_path / "site/search/search_index.json").stat().st_size > 100_000
    assert "https://" in (tmp_path / "external-links.txt").read_text()


def planned(folder: Path, page: str, *options: str) -> str:
    """Return the plan of the first YAML block of a page, with the files that it names."""
    (block,) = re.findall(r"^```yaml\n(?=\S+:\n  problems/mine)(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (folder / "config.yaml").write_text(block.replace("<40 hex digits>", f'"{"0" * 40}"'), encoding="utf-8")
    row = {"statement": "What is 1 + 1?", "answer": "2", "solution": "It is 2."}
    (folder / "problems.jsonl").write_text(f"{json.dumps(row)}\n" * 60, encoding="utf-8")
    messages = [{"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": "2"}]
    (folder / "chat.jsonl").write_text(json.dumps({"messages": messages}) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "proofmill", "plan", block.partition(":")[0], *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


@pytest.mark.long
@pytest.mark.parametrize("name", ["12GB", "RTX-4090", "H100"])
def test_tables_of_one_gpu_are_those_of_the_plan(tmp_path, name):
    """docs/one-gpu.md has, for each training, what `plan --machine` prints."""
    page = (ROOT / "docs/one-gpu.md").read_text(encoding="utf-8")
    text = planned(tmp_path, page, "--machine", name, "--mean-length", "0.33")
    cells = dict(re.findall(r"^\|[^|]*\|[^|(]*\(`(\S+)`\) \|(.*)\|$", page, re.MULTILINE))
    assert len(cells) == 17
    for entry, row in cells.items():
        shown = row.split("|")[["12GB", "RTX-4090", "H100"].index(name)].strip()
        (line,) = [line for line in text.splitlines() if line.split()[:1] == [entry]]
        if shown == "no":
            assert "does not fit" in line, line
        else:
            hours = re.search(r"fits +(\S+ to \S+)", line)
            memory = re.search(r"(\S+ GB) +fits", line)
            assert memory and shown == (f"{hours[1]} h" if hours else f"fits, {memory[1]}"), line


@pytest.mark.long
def test_costs_of_judges_are_those_of_the_plan(tmp_path):
    """docs/costs.md has the dollars that the plan prints for each judge."""
    page = (ROOT / "docs/costs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.-]+)` \| \$([\d.]+) \| \$([\d.]+) \|$", page, re.MULTILINE)
    assert len(rows) == 6
    for judge, grades, total in rows:
        text = planned(tmp_path, page.replace("id: deepseek-v4-pro", f"id: {judge}"))
        assert re.search(rf"^grades/\S+ .*\${re.escape(grades)}\b", text, re.MULTILINE), (judge, text)
        assert re.search(rf"tokens, \${re.escape(total)}$", text, re.MULTILINE), (judge, text)
