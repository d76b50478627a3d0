"""The page of a training: what its panels have, long trainings, other runs, axes, the script's data, and hostile input."""

import json
import math
import re
from html.parser import HTMLParser
from itertools import pairwise

import polars as pl
import pytest
from starlette.datastructures import QueryParams
from starlette.testclient import TestClient

from logged_training import train
from proofmill.analysis import training_series
from proofmill.analysis.curves import Measured
from proofmill.artifacts.tables import Table
from proofmill.config.config import expand
from proofmill.runtime import locks
from proofmill.schema.columns import COLUMNS
from proofmill.schema.errors import SettingError
from proofmill.viewer.app import application
from proofmill.viewer.curves import plots, training_page

TOKEN = "a-token"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Write a short and a long training, one of another seed, and one without rollouts."""
    folder = tmp_path_factory.mktemp("trained") / "results"
    train(folder, "grpo/short", 20, learning_rate=1e-3)
    train(folder, "grpo/short@seed-1", 20, learning_rate=1e-3, seed=1)
    train(folder, "grpo/long", 5000, learning_rate=1e-4)
    train(folder, "grpo/bare", 30, rollouts=False, evaluate=False)
    return folder


@pytest.fixture
def client(results):
    client = TestClient(application(lambda: expand({}), results, TOKEN), base_url="http://127.0.0.1:8000")
    client.get(f"/assets/page.js?token={TOKEN}")
    return client


def page(client, address, status=200):
    answer = client.get(address)
    assert answer.status_code == status, answer.text[:1000]
    return answer.text


def data_of(html) -> dict:
    """Return the data for the script."""
    return json.loads(re.search(r'<script type="application/json" id="curves">(.*?)</script>', html, re.DOTALL)[1])


def panel_of(data, metric):
    (panel,) = [panel for panel in data["panels"] if panel["id"] == metric]
    return panel


def test_table_of_a_training_leads_to_its_page(client):
    """Without settings the address of the table is the page with curves; with some it is the rows."""
    assert client.get("/table/grpo/short", follow_redirects=False).headers["location"] == "/training/grpo/short"
    html = page(client, "/table/grpo/short")
    assert "20 of 20 steps" in html and "/table/grpo/short?page=0" in html
    assert "clip_ratio/low_mean" in page(client, "/table/grpo/short?page=0")


def test_every_panel_has_its_lines_without_a_script(client):
    """Each metric has a picture with a path per run, in the order of what is looked at first."""
    html = page(client, "/training/grpo/short?with=grpo/bare")
    figures = re.findall(r'<figure class="panel" data-metric="([^"]+)".*?</figure>', html, re.DOTALL)
    assert figures[:3] == ["grade", "solved", "reward"] and {"loss", "grad_norm", "evaluate/grade"} <= {*figures}
    for metric, body in re.findall(r'data-metric="([^"]+)"(.*?)</figure>', html, re.DOTALL):
        runs = len(panel_of(data_of(html), metric)["lines"])
        assert len(re.findall(r'<path class="line c', body)) == runs > 0, metric
    loss = re.search(r'data-metric="loss"(.*?)</figure>', html, re.DOTALL)[1]
    assert 'class="line c2 dash"' in loss, "a second run differs by more than its color"


def test_values_are_those_of_the_training(results, client):
    """The data of the script are the series, by step."""
    grade = training_series.read("grpo/short", results).series["grade"]
    (line,) = panel_of(data_of(page(client, "/training/grpo/short")), "grade")["lines"]
    assert line["step"] == grade["step"].to_list() == list(range(1, 21))
    assert line["value"] == pytest.approx(grade["value"].to_list(), rel=1e-4)


def test_long_training_is_thinned_and_a_part_of_it_is_finer(client, results):
    """5,000 steps are 100 points whose means, least and most are those of their steps; 150 steps are all there."""
    series = training_series.read("grpo/long", results).series["grade"]
    html = page(client, "/training/grpo/long")
    (line,) = panel_of(data_of(html), "grade")["lines"]
    values = series["value"].to_list()
    assert len(line["step"]) == 100 and line["value"][3] == pytest.approx(sum(values[150:200]) / 50, rel=1e-4)
    part = client.get("/curves.json?of=grpo/long&from=1001&to=1150").json()
    assert panel_of(part, "grade")["lines"][0]["step"] == list(range(1001, 1151))
    assert len(html.encode()) < 300_000


def test_spike_of_a_thinned_line_stays_in_the_picture():
    """The pale line has the least and the most of each point's steps."""
    points = pl.DataFrame({"step": range(1000), "value": [9.0 if n == 505 else 1.0 for n in range(1000)]})
    points = points.with_columns(
        place=pl.col("step").cast(pl.Float64), low=pl.lit(None, pl.Float64), high=pl.lit(None, pl.Float64)
    )
    line = plots.thin(0, "x", points)
    drawn = plots.draw([line], 0, 999)
    ys = [float(y) for y in re.findall(r" ([\d.]+)", drawn["drawn"][0]["raw"])]
    assert max(line["most"]) == 9 and len(line["value"]) == 100 and min(ys) < 30 < max(ys)


def test_band_is_as_wide_as_the_interval_where_it_is_known():
    """Where groups do not differ, the band is as narrow as the line, and does not reach from one interval to the next."""
    line = {
        "run": 0,
        "name": "x",
        "step": [0, 1, 2],
        "place": [0.0, 1.0, 2.0],
        "value": [1.0] * 3,
        "low": [0.0, None, 0.0],
        "high": [2.0, None, 2.0],
    }
    (drawn,) = plots.draw([line], 0, 2)["drawn"]
    band, middle = drawn["band"].strip("MZ").split(), drawn["line"].split()[2:4]
    assert band[2:4] == band[8:10] == middle and band[:2] != drawn["line"].strip("M").split()[:2]
    (bare,) = plots.draw([{**line, "low": [None] * 3, "high": [None] * 3}], 0, 2)["drawn"]
    assert bare["band"] == ""


def test_smoothing_and_axis_change_the_picture(client):
    """Without smoothing the line is the values; the axis of tokens has the places of `num_tokens`."""
    address = "/curves.json?of=grpo/long"
    rough, even = (client.get(f"{address}&smooth={smooth}").json() for smooth in (0, 0.9))
    assert panel_of(rough, "loss")["svg"] != panel_of(even, "loss")["svg"]
    tokens = client.get(f"{address}&x=tokens").json()
    line = panel_of(tokens, "loss")["lines"][0]
    assert tokens["to"] == pytest.approx(5000 * 100) and line["place"][-1] == pytest.approx(100 * line["step"][-1])


def test_hidden_run_has_no_line_and_keeps_its_panels(client):
    """The panels stay, so that the run can return."""
    shown = client.get("/curves.json?of=grpo/short&of=grpo/bare&off=grpo/short").json()
    assert {line["run"] for panel in shown["panels"] for line in panel["lines"]} == {1}
    assert panel_of(shown, "grade")["lines"] == [] and "<svg" in panel_of(shown, "grade")["svg"]


def test_more_metrics_are_added_and_removed(client):
    """Metrics without a panel are in a list by prefix; an added one has a panel and a link that removes it."""
    html = page(client, "/training/grpo/short")
    assert '<optgroup label="clip_ratio"><option>clip_ratio/low_mean' in html
    assert "clip_ratio/a&lt;b" in html and "a<b" not in html
    html = page(client, "/training/grpo/short?with=grpo/bare&metric=clip_ratio/low_mean")
    assert panel_of(data_of(html), "clip_ratio/low_mean")
    assert '<a href="?with=grpo%2Fbare">Remove clip_ratio/low_mean</a>' in html
    assert '<a href="?metric=clip_ratio%2Flow_mean">Remove grpo/bare</a>' in html


def test_other_seeds_are_offered_first_and_differences_are_listed(client):
    """The list has the same training of other seeds before other trainings; fields that differ have both values."""
    html = page(client, "/training/grpo/short")
    seeds, others = re.findall(r'<optgroup label="other (?:seeds|trainings)">(.*?)</optgroup>', html)
    assert seeds == "<option>grpo/short@seed-1</option>" and "grpo/long" in others and "grpo/short<" not in others
    assert "What differs" not in html
    table = page(client, "/training/grpo/short?with=grpo/long").partition("What differs")[2].partition("</table>")[0]
    assert re.findall(r"<code>(.*?)</code></td><td>(.*?)</td><td>(.*?)</td>", table) == [
        ("steps", "20", "5000"), ("learning-rate", "0.001", "0.0001"),
    ]  # fmt: skip


def test_numbers_have_a_row_for_a_step_and_a_column_for_a_metric(client):
    """At most fifty steps, the last one among them; a step leads to its rollouts."""
    for name, last in (("short", 20), ("long", 5000)):
        table = page(client, f"/training/grpo/{name}").partition("<summary>Numbers")[2].partition("</table>")[0]
        steps = [int(step) for step in re.findall(rf'href="/rollouts/grpo/{name}\?step=(\d+)"', table)]
        assert steps[-1] == last and len(steps) <= 51 and all(a < b for a, b in pairwise(steps))
        assert "gradient norm" in table and "groups without a gradient" in table


def test_running_training_says_so_far(results, client):
    """While a job holds the lock, the page has the points of its log, and the script asks for more."""
    config = expand({"r": {"problems/x": {"source": "arithmetic", "rows": 4}, "base/x": {"source": "scratch", "problems": "problems/x"},
        "grpo/new": {"model": "base/x", "problems": "problems/x", "grader": "arithmetic", "rewards": {"grade": 1}, "unscored": "drop", "steps": 40}}})  # fmt: skip
    client = TestClient(application(lambda: config, results, TOKEN), base_url="http://127.0.0.1:8000")
    client.get(f"/assets/page.js?token={TOKEN}")
    assert "no such table" in page(client, "/training/grpo/new", 404)
    table = Table("grpo/new", results)
    table.log.write_text(
        "\n2026-11-22 10:00:00 UTC on vm\n10:01:00  grpo/new  step 3 of 40, loss 0.5, 3 steps/min, 12:00 left\n"
    )
    table.scratch.mkdir(parents=True)
    with locks.alone(table.lock, table.name):
        html = page(client, "/training/grpo/new")
        assert client.get("/curves.json?of=grpo/new").json()["soFar"]
    assert "so far: step 3 of 40" in html and data_of(html)["soFar"] and "/rollouts/grpo/new" not in html
    assert '<a href="/recipe/r">r</a>' in html


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("with=grpo/none", "no such table"),
        ("with=grades/x", "has no steps"),
        ("with=../../etc/x", "no artifact"),
        ("with=grpo/long&with=grpo/bare&with=grpo/short@seed-1&with=grpo/a", "5 trainings; expected 1 to 4"),
        ("metric=los", "expected one of"),
        ("x=hours", "`x` is `hours`; expected one of"),
        ("smooth=2", "expected 0 to 0.95"),
        ("smooth=x", "expected numbers"),
        ("from=9&to=3", "a range"),
        ("from=nan", "a range"),
        (f"from={'9' * 400}", "a range"),
    ],
)
def test_invalid_settings_are_reported(client, query, message):
    """The page has the message, with 404; the data have it, too."""
    assert message in page(client, f"/training/grpo/short?{query}", 404).replace("&#39;", "'")
    assert client.get(f"/curves.json?of=grpo/short&{query.replace('with=', 'of=')}").status_code == 404


def test_broken_configuration_does_not_hide_a_training(results):
    """Curves of finished trainings need no configuration."""

    def broken():
        raise SettingError("config.yaml: is broken")

    client = TestClient(application(broken, results, TOKEN), base_url="http://127.0.0.1:8000")
    client.get(f"/assets/page.js?token={TOKEN}")
    assert "20 of 20 steps" in page(client, "/training/grpo/short")


class Inline(HTMLParser):
    """Collects attributes that the policy refuses."""

    def __init__(self):
        super().__init__()
        self.refused = []

    def handle_starttag(self, tag, attributes):
        self.refused += [(tag, name) for name, _ in attributes if name == "style" or name.startswith("on")]


@pytest.mark.parametrize(
    "address", ["/training/grpo/short?with=grpo/long&metric=clip_ratio/a<b", "/rollouts/grpo/short"]
)
def test_pages_have_no_inline_styles_or_handlers(client, address):
    """Everything is in the style sheet and the scripts; the data cannot end their element."""
    html = page(client, address)
    parser = Inline()
    parser.feed(html)
    assert parser.refused == []
    if "training" in address:
        assert "<" not in re.search(r'id="curves">(.*?)</script>', html, re.DOTALL)[1]


def test_step_of_rollouts_is_in_a_small_curve(client):
    """The page of a step has the curve of the grade, with a line at the step."""
    html = page(client, "/rollouts/grpo/short?step=10")
    figure = re.search(r'<figure class="panel small">(.*?)</figure>', html, re.DOTALL)[1]
    assert 'class="hair" x1="219.0"' in figure and '<path class="line c1"' in figure
    assert "<script>x" not in html and 'rel="next" href="/rollouts/grpo/short?step=11"' in html


# --------------------------------------------------------------------------------------------------------------- plots


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.5, 1]), (0, 48, [0, 20, 40]), (-0.03, 0.01, [-0.03, -0.02, -0.01, 0, 0.01]), (0, 5e-7, [0, 2e-7, 4e-7])],
)  # fmt: skip
def test_ticks_are_round_numbers(low, high, expected):
    """They are multiples of 1, 2 or 5 times a power of ten."""
    assert [*plots.ticks(low, high, 4)] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [(0, 1, "0"), (0.5, 0.5, "0.5"), (-0.02, 0.01, "−0.02"), (20, 20, "20"), (12000, 2000, "12,000"), (3e-7, 1e-7, "3e-7"), (2e6, 1e6, "2e6")],
)  # fmt: skip
def test_ticks_have_as_many_digits_as_they_need(value, step, text):
    """Very small and very large ones have an exponent."""
    assert plots.format_ticks([value, value + step])[0] == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.5469, "0.547"), (95.43, "95.4"), (-0.0011, "−0.0011"), (-3e-5, "−3.0e-5"), (4321.0, "4,321")]
)  # fmt: skip
def test_values_are_short(value, text):
    """Three or four digits are enough next to a curve."""
    assert plots.short(value) == text


@pytest.mark.parametrize("values", [[0.0], [1.0, 1.0], [-1e-9, 1e9], [0.0, 0.0, 0.0], [1e-300, 2e-300]])
def test_any_values_have_a_picture(values):
    """All places are numbers within the box, whatever the values are."""
    line = {
        "run": 0,
        "name": "x",
        "step": [*range(len(values))],
        "place": [*map(float, range(len(values)))],
        "value": values,
    }
    drawn = plots.draw([line], 0, len(values) - 1)
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", drawn["drawn"][0]["line"])]
    assert len(numbers) == 2 * len(values) and all(0 <= n <= 400 for n in numbers) and drawn["grid"]


def test_runs_differ_by_color_or_dashes():
    """Sixteen runs of a report have looks of their own, and the first two differ by both."""
    looks = [plots.look(run) for run in range(16)]
    assert len({*looks}) == 16 and looks[0] == "c1" and looks[1] == "c2 dash"


def test_scores_are_drawn_on_a_logarithmic_axis():
    """Points at 1, 4 and 16 attempts are equally far apart, with their intervals; ticks are powers of two."""
    rows = [{"metric": f"pass@{k}", "value": k / 20, "low": 0.0, "high": None if k == 4 else 0.9} for k in (1, 4, 16)]
    panel = plots.of_scores(
        Measured("pass@k on p\nby g", "attempts k", 2, lambda row: int(row["metric"][5:]), {"m": rows})
    )
    (line,) = panel["drawn"]
    assert [x for x, _ in line["circles"]] == [44, 219, 394] and [x for x, *_ in line["whiskers"]] == [44, 394]
    assert [text for _, text in panel["ticks"]] == ["1", "2", "4", "8", "16"]


def test_scores_by_attempts_are_on_their_page_with_their_numbers(results, client):
    """The page of a table of scores has the panel, a key for each model, and a table with the intervals."""
    blank = {
        **dict.fromkeys(COLUMNS["scores"]),
        "problems": "problems/p",
        "grader": "g",
        "sampling": "s",
        "slice": "all",
    }
    rows = [
        {**blank, "model": model, "metric": f"pass@{k}", "value": k / 9, "low": 0.1, "high": 0.912}
        for model in ("sft/m", "sft/n")
        for k in (1, 8)
    ]
    stamp = {"entry": {}, "fingerprint": "f", "parents": {}, "counts": {}}
    Table("scores/x", results).write(rows, stamp)
    (figure,) = re.findall(r'<figure class="panel">.*?</figure>', page(client, "/table/scores/x"), re.DOTALL)
    assert "pass@k on problems/p" in figure and figure.count('<path class="line') == 2
    assert figure.count('<span class="key') == 2 and figure.count("[0.100, 0.912]") == 4 and "by attempts k" in figure


def test_address_is_read_with_defaults():
    """Empty settings of a form are left out."""
    view = training_page.View.of(QueryParams("metric=&metric=loss&off=grpo/x&smooth=0.3"))
    assert (view.smooth, view.metrics, view.off, view.end) == (0.3, ("loss",), ("grpo/x",), math.inf)
