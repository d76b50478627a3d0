"""Token lengths of texts: the published analysis of GSM8K to every digit, and edge cases."""

import numpy as np
import pytest

from proofmill.metrics import text_lengths
from proofmill.metrics.text_lengths import STATISTICS, TEXTS, _variance
from proofmill.rewards import format_checks
from proofmill.schema.errors import RecipeError, TableError

CLASSES = {  # steps: problems, mean, min, max, variance, trimmed max (figures of the study, section 3.1)
    2: (1960, 72.71, 29, 172, 333.36, 112),
    3: (2149, 105.65, 36, 221, 636.69, 163),
    4: (1660, 136.06, 35, 273, 1073.77, 210),
    5: (954, 169.22, 51, 359, 1600.24, 258),
    6: (419, 196.52, 55, 369, 3021.22, 305),
    7: (228, 207.52, 64, 425, 5809.29, 350),
    8: (90, 228.10, 89, 453, 5866.94, 366),
    9: (13, 240.31, 92, 367, 9781.40, 367),
}


def test_published_analysis_of_gsm8k_is_reproduced_to_every_printed_digit(mill, data):
    """Means, extremes, correlations and all eight classes with variance and trimmed maximum, by the Qwen2.5 tokenizer."""
    metrics = [{"text-tokens": {"of": of, "stat": stat}} for of in TEXTS for stat in STATISTICS]
    metrics += ["length-correlation", "steps-correlation"]
    entries = {
        "base/q": {"source": "tokenizer", "path": str(data / "qwen2_tokenizer")},
        "problems/g": {
            "source": "table", "path": str(data / "gsm8k/train.jsonl"), "columns": {"statement": "question", "solution": "answer"},
        },
        "scores/l": {"problems": ["problems/g"], "tokenizer": "base/q", "metrics": metrics},
    }  # fmt: skip
    made = mill(entries)
    made.make(*entries)
    found = {(row["metric"], row["slice"]): row for row in made.table("scores/l").rows()}

    def value(metric, split="all", digits=4):
        return round(found[metric, split]["value"], digits)

    assert [value(f"text-tokens(solution, {s})") for s in ("mean", "min", "max")] == [121.7933, 29, 453]
    assert [value(f"text-tokens(statement, {s})") for s in ("mean", "min", "max")] == [59.6473, 12, 212]
    assert (value("length-correlation"), value("steps-correlation")) == (0.5258, 0.7711)
    for steps, expected in CLASSES.items():
        measured = [value(f"text-tokens(solution, {s})", f"{steps} steps", 2) for s in STATISTICS]
        assert (found["text-tokens(solution, mean)", f"{steps} steps"]["n"], *measured) == expected, steps
    assert found["text-tokens(solution, mean)", "all"]["n"] == 7473 == sum(row[0] for row in CLASSES.values())
    assert sum(CLASSES[steps][0] for steps in (2, 3, 4, 5)) == 6723
    mean = found["text-tokens(solution, mean)", "all"]
    assert mean["low"] < mean["value"] < mean["high"]


@pytest.mark.parametrize(
    ("solution", "steps"), [("a\nb\n#### 3", 2), ("#### 3", 0), ("a\n\nb\n#### 3", 3), ("", 1), ("one line", 1)]
)
def test_logic_steps_are_lines_before_the_answer(solution, steps):
    """Every line counts except that of the final answer, also empty ones."""
    assert format_checks.solution_steps(solution) == steps


@pytest.mark.parametrize(("n", "expected"), [(1, 1), (39, 39), (40, 39), (80, 78), (100, 98)])
def test_trimmed_max_leaves_out_the_longest_fortieth(n, expected):
    """The floor(0.025 n) longest are excluded; below 40 texts none."""
    assert text_lengths.compute_trimmed_max(np.arange(1, n + 1)) == expected


def test_no_spread_has_no_correlation_and_one_text_no_variance():
    """Undefined values are null, not 0."""
    assert text_lengths.correlation(np.array([3, 3, 3]), np.array([1, 2, 3])) is None
    assert text_lengths.correlation(np.array([3]), np.array([1])) is None
    assert _variance(np.array([3])) is None


def test_lengths_need_problems_and_a_tokenizer(mill):
    """Metrics of texts without a tokenizer are refused when the configuration is read."""
    with pytest.raises(
        RecipeError, match="`length-correlation` measures texts of problems; expected `problems` and `tok"
    ):
        mill(
            {
                "problems/p": {"source": "arithmetic", "rows": 4},
                "scores/l": {"problems": ["problems/p"], "metrics": ["length-correlation"]},
            }
        )


def test_folder_without_a_tokenizer_is_refused(mill, tmp_path):
    """The message names the folder and the expected files."""
    made = mill({"base/t": {"source": "tokenizer", "path": str(tmp_path)}})
    with pytest.raises(TableError, match=r"no tokenizer can be read .* expected a folder with tokenizer.json"):
        made.make("base/t")
