"""Attempts of finished seeds, kept as CSV by benchmarks/seeds.py: scores from them, and seeds that are not measured again."""

import runpy
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mill import ROOT, SMALL
from proofmill import scores

REPEATED = {
    **SMALL,
    "scores/once": {
        "grades": ["grades/cold"],
        "metrics": ["avg-at-k", "solve-rate", "format-rate", "tokens"],
    },
    "scores/again": {"repeat": "scores/once", "seeds": [0]},
}


@pytest.fixture
def seeds():
    return SimpleNamespace(**runpy.run_path(str(ROOT / "benchmarks/seeds.py")))


@pytest.fixture
def made(small, mill):
    """Return the small recipe with a `repeat` of one seed, which is built already."""
    mill = mill(REPEATED)
    mill.results = small.results
    mill.make("scores/once")
    return mill


def made_job(made):
    return SimpleNamespace(name="again", parent=made.table)


def test_scores_from_the_files_are_those_of_the_tables(made, seeds, tmp_path):
    """Every number of the scores comes back from grades, form and tokens; writing a seed twice leaves it once."""
    config = SimpleNamespace(entries=made.config.entries, recipes={"again": ["scores/again"]})
    for _ in range(2):
        seeds.write(config, "again", 0, made.results, tmp_path)
    entry = made.config.entries["scores/again"]
    assert list(seeds.repeated(config, "again")) == ["scores/again"] and entry.grades == ["grades/cold"]
    assert len(seeds.read_lines(tmp_path / "again.csv")) == 1
    rows, settled = scores.score_groups(seeds.group(seeds.read("again", tmp_path), entry), entry)
    assert rows == [row for row in made.table("scores/once").rows() if not row["metric"].endswith("answer-rate")]
    assert settled == []
    costs = {(point["name"], point["metric"]): point["value"] for point in seeds.read_trainings("again", tmp_path)}
    assert costs["sft/cold", "training-seconds"] > 0


def test_seeds_of_one_model_come_together(made, seeds, tmp_path, monkeypatch):
    """A second seed is added to the first, and a missing grade, a fraction and a missing level come back as they were."""
    grades = made.table("grades/cold")
    (first,) = scores.group_attempts(made.config.entries["scores/once"], made_job(made)).values()
    second = [{**row, "seed": 1, "grade": 7 / 3 if row["attempt"] else None, "level": None} for row in first]
    entry = replace(made.config.entries["scores/again"], grades=["grades/cold", "grades/cold@seed-1"], seeds=[0, 1])
    config = SimpleNamespace(
        entries={**made.config.entries, "scores/again": entry}, recipes={"again": ["scores/again"]}
    )
    config.entries["grades/cold@seed-1"] = made.config.entries["grades/cold"]
    cell = next(iter(scores.group_attempts(made.config.entries["scores/once"], made_job(made))))
    of_seeds = {"grades/cold": [{**row, "level": None} for row in first], "grades/cold@seed-1": second}
    monkeypatch.setattr(scores, "group_attempts", lambda entry, job: {cell: of_seeds[entry.grades[0]]})
    monkeypatch.setitem(seeds.write.__globals__, "Table", lambda name, results: grades)
    asked = dict.fromkeys((row["problem"], None) for row in first)
    monkeypatch.setitem(seeds.write.__globals__, "list_problems", lambda name, results: [*asked])
    for seed in (0, 1):
        seeds.write(config, "again", seed, made.results, tmp_path)
    (found,) = seeds.group(seeds.read("again", tmp_path), entry).values()
    kept = ("seed", "problem", "attempt", "grade", "max_points", "well_formed", "response_tokens", "level")
    expected = [{field: row[field] for field in kept} for name in entry.grades for row in of_seeds[name]]
    assert [{field: row[field] for field in kept} for row in found] == expected


def test_finished_seeds_are_not_measured_again(made, seeds, tmp_path, monkeypatch):
    """Only the seed that the file lacks is built, and its lines are there before the next one begins."""
    config = SimpleNamespace(
        entries=made.config.entries, recipes={"again": ["scores/again"]}, results=str(made.results)
    )
    built = []
    monkeypatch.setattr("subprocess.run", lambda command, check: built.append(command[-1]))
    for _ in range(2):
        seeds.complete(config, ["again"], None, "1", tmp_path)
    assert built == [str(made.table("grades/cold").path)]
