"""`proofmill report`: one file whose numbers are those of the tables, from whatever is made, with nothing hostile in it."""

import re
import sys
from html import unescape

import pytest
import yaml

from mill import REFEREE, SMALL, Mill
from proofmill import __main__ as command
from proofmill.measures.page import _cell
from proofmill.recipes.book import expand
from proofmill.schema.errors import SettingError
from proofmill.viewer import report

RECIPE = {
    **SMALL,
    "problems/train": {"source": "arithmetic-threads", "rows": 60, "keep": ["has-problem", "has-solution", "no-image"]},
    "responses/right": {"problems": "problems/bench", "model": "solutions"},
    "grades/right": {"responses": "responses/right", "grader": "arithmetic"},
    "grades/again": {"responses": "responses/right", "grader": "final-answer"},
    "overlaps/all": {"problems": ["problems/train"], "against": ["problems/bench"]},
    "scores/marks": {
        "grades": ["grades/cold", "grades/right"], "measures": ["avg-at-k", "full-mark-rate"], "max-unscored": 1,
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
    """What a reader sees, on one line."""
    body = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_every_mark_stands_in_the_report(made):
    """Each number of each scores table that its page shows, with its interval, read back from the file."""
    shown = text_of(report.written(book(), "r", made.results))
    rows = [row for row in made.table("scores/marks").rows() if row["model"] and row["split"] == "all"]
    assert len(rows) == 4
    for row in rows:
        assert _cell(row) in shown, row


def test_rows_times_and_drops_are_those_of_the_tables(made):
    """The stages' rows and outcomes, what each filter left, the kept examples, the sum of seconds."""
    shown = text_of(report.written(book(), "r", made.results))
    for name in RECIPE:
        table = made.table(name)
        assert f"{name} {table.height:,} " in shown, name
    left = made.table("problems/train").rows()
    assert f"read {made.table('problems/train').height} " in shown
    last = re.search(r"read 60 (?:[\w-]+ \d+ )*?([\w-]+) (\d+) Examples", shown)
    assert last and int(last[2]) == len(left)
    assert f"examples/cold: {made.table('examples/cold').stamp['counts']['kept']} kept" in shown


def test_settings_can_be_read_back(made):
    """The entries as YAML, without defaults, give the same entries again."""
    html = report.written(book(), "r", made.results)
    settings = yaml.safe_load(unescape(re.search(r"<pre>(api/referee:.*?)</pre>", html, re.DOTALL)[1]))
    again = expand({"r": settings})
    assert again.entries == book().entries


def test_samples_are_the_best_and_the_worst(made):
    """Of each measured table whose marks differ an attempt with the most and one with the least; and a dispute."""
    samples = list(report._samples(list(RECIPE), {name: made.table(name).stamp for name in RECIPE}, made.results))
    assert {sample.grades for sample in samples} == {"grades/cold", "grades/right"}
    for sample in samples:
        marks = [row["grade"] for row in made.table(sample.grades).rows() if row["grade"] is not None]
        if "best" in sample.why:
            assert sample.grade["grade"] == max(marks)
        if "worst" in sample.why:
            assert sample.grade["grade"] == min(marks)
        assert sample.grade["response"] == sample.response["response"]
        assert sample.grade["problem"] == sample.problem["problem"]


def test_unfinished_recipe_says_what_is_missing(made):
    """There is a report of what there is, and a name for each artifact that is not."""
    html = report.written(book(**{"problems/later": {"source": "arithmetic", "rows": 2}}), "r", made.results)
    assert "1 are not made yet" in text_of(html) and "problems/later" in html


def test_nothing_in_it_comes_from_elsewhere(made):
    """No address but data, no script, and a policy that forbids both."""
    html = report.written(book(), "r", made.results)
    assert "<script" not in html and "default-src 'none'" in html
    addresses = re.findall(r"(?:src|href)=\"([^\"]*)\"", html)
    assert addresses and all(address.startswith(("data:image/svg+xml;base64,", "#")) for address in addresses)
    assert re.findall(r"url\(", html) == []


@pytest.mark.parametrize(
    ("recipe", "said"), [("s", "s: no recipe; expected one of later, r"), ("later", "nothing was made yet")]
)
def test_what_has_no_report_is_a_sentence(made, recipe, said):
    """No recipe of that name, or nothing of it in results."""
    whole = expand(
        {"r": {"api/referee": REFEREE, **RECIPE}, "later": {"problems/later": {"source": "arithmetic", "rows": 1}}}
    )
    with pytest.raises(SettingError, match=said):
        report.written(whole, recipe, made.results)


def test_command_writes_the_file(made, monkeypatch, tmp_path):
    """Beside the configuration, by the recipe's name, or where --out says."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"r": {"api/referee": REFEREE, **RECIPE}}))
    monkeypatch.chdir(tmp_path)
    for arguments, file in (([], "r.html"), (["r", "--out", "x.html"], "x.html")):
        monkeypatch.setattr(sys, "argv", ["proofmill", "report", *arguments, "--results", str(made.results)])
        command.main()
        assert (tmp_path / file).read_text().startswith("<!doctype html>")
