"""Pictures: one SVG file of several trainings, or of scores, with the curves of the viewer's pages."""

from xml.etree import ElementTree

import pytest

from proofmill.artifacts.tables import Table
from proofmill.schema.columns import COLUMNS
from proofmill.schema.errors import SettingError
from proofmill.viewer.curves import pictures

SVG = "{http://www.w3.org/2000/svg}"


def drawn(names, results, **options):
    """Draw a picture and return its elements."""
    pictures.draw(names, results, results / "x.svg", **options)
    return ElementTree.parse(results / "x.svg").getroot()


def words(picture):
    """Return the texts of a picture."""
    return [text.text for text in picture.iter(f"{SVG}text")]


def write_training(results, name="grpo/x", **metrics):
    """Write the table of a training with these values by step."""
    rows = [
        {"step": step, "epoch": 0.0, "metric": metric.replace("__", "/"), "value": value}
        for metric, values in metrics.items()
        for step, value in enumerate(values)
        if value is not None
    ]
    Table(name, results).write(rows, {"entry": {}, "fingerprint": "f", "model": "m"})


def write_scores(results, *rows):
    """Write a table of scores of one model and benchmark."""
    blank = dict.fromkeys(COLUMNS["scores"]) | {"model": "m", "problems": "problems/p", "grader": "g", "sampling": "s"}
    known = {"slice": "all", "value": 0.5, "low": 0.4, "high": 0.6}
    Table("scores/x", results).write([blank | known | row for row in rows], {"entry": {}, "fingerprint": "f"})


def test_usual_metrics_have_a_panel_and_equal_tables_an_equal_file(small):
    """A training is drawn in a panel for each usual metric that it logged, with a line that a legend names."""
    one, other = small.results / "a.svg", small.results / "b.svg"
    for path in (one, other):
        pictures.draw(["sft/cold"], small.results, path)
    assert one.read_bytes() == other.read_bytes()
    said = words(ElementTree.parse(one).getroot())
    assert [text for text in said if text.endswith(", by step")] == [
        f"{metric}, by step" for metric in ("entropy", "loss", "mean_token_accuracy", "grad_norm")
    ]
    assert said.count("sft/cold") == 4


def test_trainings_share_panels_and_differ_without_colors(tmp_path):
    """Five trainings have a line each; the fifth has the color of the first, and other dashes."""
    names = [f"grpo/{letter}" for letter in "abcde"]
    for height, name in enumerate(names):
        write_training(tmp_path, name, reward=[height, height + 1], loss=[1, 0])
    picture = drawn(names, tmp_path, metrics=["reward"], smooth=0)
    found = [path.get("class") for path in picture.iter(f"{SVG}path")]
    assert len(found) == len(set(found)) == 5
    assert {look.split()[1] for look in found} == {"c1", "c2", "c3", "c4"}
    assert [text for text in words(picture) if text in names] == names, "only the panel that was named"


def test_panel_ends_with_its_own_lines(tmp_path):
    """A short training next to a long one fills the panel of a metric that it alone has."""
    write_training(tmp_path, "grpo/short", reward=[0, 1, 2], loss=[0, 1, 2])
    write_training(tmp_path, "sft/long", loss=range(301))
    picture = drawn(["grpo/short", "sft/long"], tmp_path)
    ends = [path.get("d").split(" ")[-2] for path in picture.iter(f"{SVG}path") if path.get("class") == "line c1"]
    assert sorted(map(float, ends)) == [46.3, 394]


def test_evaluations_have_whiskers(tmp_path):
    """A value with logged ends of its interval has a whisker; one without has none."""
    ends = {"evaluate__grade__low": [0.0, 0.2, None], "evaluate__grade__high": [0.3, 0.6, None]}
    write_training(tmp_path, evaluate__grade=[0.1, 0.4, 0.5], **ends)
    picture = drawn(["grpo/x"], tmp_path)
    assert len([path for path in picture.iter(f"{SVG}path") if path.get("class").startswith("whisker")]) == 2
    assert len(list(picture.iter(f"{SVG}circle"))) == 3


def test_scores_are_drawn_by_attempts(tmp_path):
    """The ticks of a metric by attempts are numbers of attempts, evenly spaced by factors of two."""
    write_scores(tmp_path, *({"metric": f"pass@{k}"} for k in (2, 4, 16)))
    said = words(drawn(["scores/x"], tmp_path))
    assert "pass@k on problems/p" in said and "s, by g, by attempts k" in said and "m" in said
    assert {"2", "4", "8", "16"} <= set(said)


def test_names_are_escaped(tmp_path):
    """A name with markup is text in the file."""
    write_scores(tmp_path, *({"metric": f"pass@{k}", "model": "<script>&"} for k in (2, 4)))
    assert "<script>&" in words(drawn(["scores/x"], tmp_path))


def test_picture_without_a_panel_is_refused(tmp_path):
    """The message names what would be a curve; no file is written."""
    write_scores(tmp_path, {"metric": "avg@2"})
    with pytest.raises(SettingError, match=r"`pass-at-k`.*`at-equal-budget`"):
        drawn(["scores/x"], tmp_path)
    assert not (tmp_path / "x.svg").exists()


@pytest.mark.parametrize(
    ("names", "metrics", "said"),
    [(["problems/x"], [], "has no steps"), (["sft/cold"], ["los"], "`metric` is `los`.*Did you mean `loss`")],
)
def test_what_was_not_measured_is_refused(small, names, metrics, said):
    """A table without steps and a metric that was never logged are named, with the alternatives."""
    with pytest.raises(SettingError, match=said):
        pictures.draw(names, small.results, small.results / "x.svg", metrics)
