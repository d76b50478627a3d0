"""Two models on a benchmark: the numbers are those of `scores`, the problems those of its test, with links to both."""

import re

import pytest

from mill import Mill
from proofmill.analysis.compare import compare as compare_logs
from proofmill.viewer import problem_pages
from proofmill.viewer.tables import compare_page
from viewed import VIEWED, make_viewed, open_viewer, read_page

pytestmark = pytest.mark.slow
ADDRESS = "/compare?a=sft/cold&b=base/tiny&on=problems/bench"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_viewed(tmp_path_factory.mktemp("viewed") / "results")


@pytest.fixture(scope="module")
def client(made):
    return open_viewer(made.results)


def compared(made, a, b, on="problems/bench"):
    return compare_page.compare(made.results, problem_pages.entries(made.results), a, b, on)


def test_differences_are_the_rows_of_the_scores(made, client):
    """A pair that a table of scores compares has exactly its rows, with its adjusted p."""
    rows = [row for row in made.table("scores/small").rows() if row["baseline"]]
    shown = compared(made, "sft/cold", "base/tiny")
    assert list(shown.differences) == rows
    html = read_page(client, ADDRESS)
    for row in rows:
        text = f"{row['value']:+.2f}" if row["metric"].startswith("avg") else f"{100 * row['value']:+.1f} pp"
        assert f"<b>{text}</b>" in html, row["metric"]


def test_other_pairs_are_computed_as_scores_would(made, tmp_path):
    """A pair without rows has those that a `scores` entry with it would have."""
    mill = Mill(
        made.results, **{**VIEWED, "scores/other": {**VIEWED["scores/small"], "compare": [["base/tiny", "sft/cold"]]}}
    )
    shown = compared(made, "base/tiny", "sft/cold")
    expected = [row for row in mill.make("scores/other").rows() if row["baseline"]]
    mill.table("scores/other").path.unlink()
    keys = ("metric", "value", "low", "high", "p_value", "p_adjusted", "n_problems")
    assert [[row[key] for key in keys] for row in shown.differences] == [[row[key] for key in keys] for row in expected]


def test_problems_are_counted_as_by_compare(made):
    """Better, equal and worse are the counts of `proofmill compare`; the bars have all problems, 0 the equal ones."""
    shown = compared(made, "sft/cold", "base/tiny")
    paths = [made.table(name).path for name in ("grades/cold", "grades/base")]
    (pair,) = compare_logs(paths)["pairs"]
    assert shown.counts == {word: pair[word] for word in ("better", "equal", "worse")}
    assert sum(bar.count for bar in shown.bars) == pair["n_problems"]
    assert next(bar.count for bar in shown.bars if bar.label == "0") == pair["equal"]
    assert pair["value"] == pytest.approx(shown.differences[0]["value"])


def test_changed_problems_are_the_extremes_and_lead_to_both_attempts(made, client):
    """At most three in each direction, sorted, with both values; a link shows both tables of grades."""
    shown = compared(made, "sft/cold", "base/tiny")
    values = [row["value"] for row in shown.changed]
    assert values == sorted(values, reverse=True) and 1 <= len(values) <= 6
    assert all(row["value"] == pytest.approx(row["values"][0] - row["values"][1]) for row in shown.changed)
    html = read_page(client, ADDRESS)
    (first, *_) = re.findall(r'href="(/problem/problems/bench/[^"]+)" data-row', html)
    page = read_page(client, first.replace("&amp;", "&"))
    assert "grades/cold, graded by" in page and "grades/base, graded by" in page


def test_sentence_says_when_no_difference_is_shown(client):
    """The sentence has the interval and p; the row of a metric without a difference says so."""
    html = read_page(client, ADDRESS)
    lead = html.partition('<p class="lead">')[2].partition("</p>")[0]
    said = re.search(
        r"earns \d\.\d\d points more than base/tiny, 95% interval (\S+) to (\S+), p (&lt; 0.001|= \d\.\d{3})", lead
    )
    low, high = (float(end.replace("−", "-")) for end in said.groups()[:2])
    assert ("no difference is shown" in lead) == (low <= 0 <= high) and "compared in one seed" in html
    row = html.partition("solve-rate, ")[2].partition("</tr>")[0]
    assert "no difference shown" in row


def test_configuration_lists_fields_that_differ(client):
    """Models of two kinds differ by their kind and by their own fields, not by defaults."""
    fields = dict(re.findall(r"<tr><td>([\w-]+)</td><td class=.new.>(.*?)</td>", read_page(client, ADDRESS)))
    assert (
        fields["kind"] == "sft" and fields["learning-rate"] == "0.003" and "took" in fields and "warmup" not in fields
    )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("?a=sft/cold&b=sft/cold", "expected two models"),
        ("?a=sft/cold&b=none", "expected two models"),
        ("?a=sft/cold&b=base/tiny&on=problems/train", "expected two models"),
        ("?a=sft/cold&b=solutions", "no sampling setting, grader and problem of both"),
    ],
)
def test_models_without_a_shared_benchmark_have_a_message(client, query, message):
    """The page says what is missing, and which models have grades at which problems."""
    html = read_page(client, f"/compare{query}")
    assert message in html and "Which model has grades at which problems" in html and "base/tiny" in html


def test_without_a_choice_models_and_benchmarks_are_listed(client):
    """The page without parameters lists models with their benchmarks."""
    html = read_page(client, "/compare")
    assert 'value="problems/bench"' in html and "solutions" in html
