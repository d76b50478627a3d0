"""`proofmill report`: one safe file whose numbers equal those of the tables, also for an unfinished recipe."""

import re
import sys
from html import unescape

import pytest
import yaml

from mill import REFEREE, SMALL, Mill
from proofmill import __main__ as command
from proofmill.config.config import expand
from proofmill.metrics.page import format_cell
from proofmill.schema.errors import SettingError
from proofmill.viewer import report

RECIPE = {
    **SMALL,
    "problems/train": {"source": "arithmetic-threads", "rows": 60, "keep": ["has-statement", "has-solution", "no-image"]},
    "responses/right": {"problems": "problems/bench", "model": "solutions"},
    "grades/right": {"responses": "responses/right", "grader": "arithmetic"},
    "grades/round-2": {"responses": "responses/right", "grader": "final-answer"},
    "examples/one": {"responses": "responses/cold", "keep": [{"at-most-per-problem": 1}]},
    "overlaps/all": {"problems": ["problems/train"], "against": ["problems/bench"]},
    "scores/grades": {
        "grades": ["grades/cold", "grades/right"], "metrics": ["avg-at-k", "solve-rate"], "max-unscored": 1,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Mill:
    mill = Mill(tmp_path_factory.mktemp("reported") / "results", **RECIPE)
    mill.make(*RECIPE)
    return mill


def book(**more):
    return expand({"r": {"api/referee": REFEREE, **RECIPE, **more}})


def text_of(html: str) -> str:
    """Return the visible text of a page, on one line."""
    body = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_report_has_every_score(made):
    """The report has each value of each scores table, with its interval."""
    shown = text_of(report.write(book(), "r", made.results))
    rows = [row for row in made.table("scores/grades").rows() if row["model"] and row["slice"] == "all"]
    assert len(rows) == 4
    for row in rows:
        assert format_cell(row) in shown, row


def test_rows_times_and_drops_are_those_of_the_tables(made):
    """The report has each table's rows, the rows left after each filter, and the kept examples."""
    shown = text_of(report.write(book(), "r", made.results))
    for name in RECIPE:
        table = made.table(name)
        assert f"{name} {table.height:,} " in shown, name
    left = made.table("problems/train").rows()
    assert f"read {made.table('problems/train').height} " in shown
    last = re.search(r"read 60 (?:[\w-]+ \d+ )*?([\w-]+) (\d+) Examples", shown)
    assert last and int(last[2]) == len(left)
    assert f"examples/cold: {made.table('examples/cold').stamp['counts']['kept']} kept" in shown
    assert "examples/one: 12 kept; dropped: 12 at-most-per-problem" in shown


def test_settings_can_be_read_back(made):
    """The entries as YAML, without defaults, expand to the same entries."""
    html = report.write(book(), "r", made.results)
    settings = yaml.safe_load(unescape(re.search(r"<pre>(api/referee:.*?)</pre>", html, re.DOTALL)[1]))
    again = expand({"r": settings})
    assert again.entries == book().entries


def test_samples_are_the_best_and_the_worst(made):
    """Each scored table whose grades differ has a sample with the highest grade and one with the lowest."""
    samples = list(report._samples(list(RECIPE), {name: made.table(name).stamp for name in RECIPE}, made.results))
    assert {sample.grades for sample in samples} == {"grades/cold", "grades/right"}
    for sample in samples:
        grades = [row["grade"] for row in made.table(sample.grades).rows() if row["grade"] is not None]
        if "best" in sample.why:
            assert sample.grade["grade"] == max(grades)
        if "worst" in sample.why:
            assert sample.grade["grade"] == min(grades)
        assert sample.grade["response"] == sample.response["response"]
        assert sample.grade["problem"] == sample.problem["problem"]


def test_unfinished_recipe_says_what_is_missing(made):
    """The report covers the finished tables and names the missing ones."""
    html = report.write(book(**{"problems/later": {"source": "arithmetic", "rows": 2}}), "r", made.results)
    assert "1 not built yet" in text_of(html) and "problems/later" in html


def test_report_is_self_contained(made):
    """It has no addresses except its own sections, no script, and a policy that forbids both."""
    html = report.write(book(), "r", made.results)
    assert "<script" not in html and "default-src 'none'" in html
    addresses = re.findall(r"(?:src|href)=\"([^\"]*)\"", html)
    assert addresses and all(address.startswith("#") for address in addresses)
    assert re.findall(r"url\(", html) == []


@pytest.mark.parametrize(
    ("recipe", "message"), [("s", "s: no recipe; expected one of later, r"), ("later", "has no finished table")]
)
def test_missing_recipe_is_reported(made, recipe, message):
    """An unknown recipe, and one without tables in results, are refused."""
    config = expand(
        {"r": {"api/referee": REFEREE, **RECIPE}, "later": {"problems/later": {"source": "arithmetic", "rows": 1}}}
    )
    with pytest.raises(SettingError, match=message):
        report.write(config, recipe, made.results)


def test_command_writes_the_file(made, monkeypatch, tmp_path):
    """The report is next to the configuration, named after the recipe, or at the path of --out."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"r": {"api/referee": REFEREE, **RECIPE}}))
    monkeypatch.chdir(tmp_path)
    for arguments, file in (([], "r.html"), (["r", "--out", "x.html"], "x.html")):
        monkeypatch.setattr(sys, "argv", ["proofmill", "report", *arguments, "--results", str(made.results)])
        command.main()
        assert (tmp_path / file).read_text().startswith("<!doctype html>")
