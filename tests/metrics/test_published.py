"""Published numbers next to ours on the score page."""

import pytest

from proofmill.metrics import published
from proofmill.metrics.score_rows import Cell, compute_rows
from proofmill.schema.entries.scores_entry import Scores

KEYS = ("level", "year", "writer", "human", "selecting", "answer", "answer_extraction", "reads", "max_tokens")
ATTEMPT = {**dict.fromkeys(KEYS), "loader": "table", "seed": 0, "attempt": 0}
SETTING = {"attempts": 1, "temperature": 0.0, "max_tokens": 512}


def lines(of_model, grades=(7.0, 3.5, 0.0, 7.0), max_points=7, metric=("avg-at-k", None), **settings) -> list[str]:
    """Return the table for one model of ours on one benchmark."""
    group = Cell("sft/m", "problems/a", "greedy", "grader/g")
    graded = enumerate(grades)
    groups = {group: [{**ATTEMPT, "problem": f"p{n}", "grade": grade, "max_points": max_points} for n, grade in graded]}
    entry = Scores(
        models=["sft/m"],
        problems=["problems/a"],
        sampling={"greedy": SETTING},
        grader="grader/g",
        metrics=["avg-at-k"],
        published={"Theirs": {"source": "a paper, table 2", **of_model}},
        **settings,
    )
    rows = [row for each, some in groups.items() for row in compute_rows(each, [metric], some, entry)]
    return list(published.table(entry, rows, groups))


@pytest.mark.parametrize(
    ("metric", "percent"),
    [(("avg-at-k", None), "62.5"), (("solve-rate", None), "50.0")],  # of 7 points, and of all attempts
)
def test_published_number_is_next_to_ours_with_the_difference(metric, percent):
    """Points are compared as a percentage of all points, rates as they are; the difference has our interval."""
    title, rule, line = lines({"percent": {"problems/a": 40.0}, "ours": "sft/m"}, metric=metric)
    assert title.count("|") == rule.count("|") == line.count("|") == 9
    name, benchmark, theirs, ours, value, difference, differing, source = line.strip("| ").split(" | ")
    assert (name, benchmark, theirs, source) == ("Theirs", "problems/a", "40 %", "a paper, table 2")
    assert ours.startswith("sft/m (greedy, ") and value.startswith(f"{percent} [")
    assert difference.startswith(f"{float(percent) - 40:+.1f} [")
    assert differing == "not known"


def test_mean_over_runs_is_in_percent_of_the_points():
    """QED-Nano reports it."""
    *_, line = lines(
        {"percent": {"problems/a": 40.0}, "ours": "sft/m", "metric": "run-mean"}, metric=("run-mean", None)
    )
    assert "| 62.5 | +22.5 |" in line


def test_other_numbers_are_compared_as_they_are():
    """Neither tokens nor a slice's numbers are percentages; the slice and the metric name ours."""
    row = {**dict.fromkeys(("baseline", "p_value", "sampling", "grader", "low", "high")), "problems": "problems/a"}
    rows = [
        {**row, "model": None, "metric": "tokens", "slice": part, "value": value}
        for part, value in (("all", 9.0), ("2 steps", 72.5))
    ]
    of_slice = {"source": "s", "values": {"problems/a": 72.71}, "metric": "tokens", "slice": "2 steps"}
    entry = Scores(problems=["problems/a"], published={"2 steps": of_slice})
    line = list(published.table(entry, rows, {}))[-1]
    assert line == "| 2 steps | problems/a | 72.71 | problems/a (tokens) | 72.5 | -0.21 | not known | s |"


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"attempts": 1, "max_tokens": 512, "grader": "grader/g"}, "none of those known"),
        ({"attempts": 3, "max_tokens": 512}, "attempts 3 (ours 1)"),
        ({"max_tokens": 1024, "grader": "a person"}, "max-tokens 1024 (ours 512), grader a person (ours grader/g)"),
    ],
)
def test_known_settings_are_compared(known, said):
    """Settings that differ are named with both values; those that are unknown are not compared."""
    line = lines({"percent": {"problems/a": 40.0}, "ours": "sft/m", "settings": known})[-1]
    assert f" | {said} | a paper" in line


def test_number_without_a_counterpart_has_dashes():
    """A rival's number, or another metric than ours, is printed alone; without published numbers there is no table."""
    assert lines({"percent": {"problems/a": 40.0}})[-1].endswith("| 40 % | – | – | – | – | a paper, table 2 |")
    assert " – | – " in lines({"percent": {"problems/a": 40.0}, "ours": "sft/m", "metric": "majority@64"})[-1]
    assert list(published.table(Scores(), [], {})) == []


def test_numbers_with_averages_are_in_their_table():
    """Those of models that are compared with none of ours are below the averages, and not twice."""
    averages = {"all": ["problems/a"]}
    assert lines({"percent": {"all": 40.0}}, averages=averages, max_points=1, grades=(1.0, 0.0)) == []


@pytest.mark.parametrize(
    ("reported", "found"),
    [
        ({"percent": {"problems/b": 1}}, "`published` has `problems/b` of Theirs; expected one of problems/a"),
        ({"values": {"problems/b": 1}}, "`published` has `problems/b` of Theirs; expected one of problems/a"),
        ({"percent": {"problems/a": 1}, "ours": "sft/m"}, None),
    ],
)
def test_unknown_names_are_refused(reported, found):
    """Benchmarks are checked when the configuration is read."""
    entry = Scores(models=["sft/m"], problems=["problems/a"], published={"Theirs": {"source": "s", **reported}})
    faults = list(published.faults(entry))
    assert [found in fault for fault in faults] == [True] * len(faults) and bool(faults) == bool(found)
