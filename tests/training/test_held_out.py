"""Evaluations on held-out problems while a policy trains, and the weights that are kept by them."""

import math
import shutil

import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from mill import REFEREE, SMALL, Mill
from proofmill.config.config import expand
from proofmill.graders.program_graders import PROGRAMS, ProgramGrader, grades
from proofmill.metrics.uncertainty import intervals
from proofmill.planning.plan import RunPlan
from proofmill.schema.errors import RecipeError, ServiceError, TableError
from proofmill.training.rollouts import held_out
from proofmill.training.rollouts.held_out import HeldOut, best_step, compute_metrics
from trained import TAUGHT

pytestmark = pytest.mark.slow

TRAINING = {
    "model": "sft/taught", "problems": "problems/train", "grader": "digits", "unscored": "drop", "group-size": 4,
    "rewards": {"grade": 1}, "problems-per-step": 2, "steps": 4, "learning-rate": 1e-3, "max-tokens": 64, "log-every": 1,
}  # fmt: skip
EVALUATED = {"evaluate": "problems/bench", "evaluate-every": 2, "evaluate-attempts": 3}
ENGINES = [{}, {"max-staleness": 1}]


def test_program_that_evaluates_needs_no_schemes():
    """A program grades evaluations without the schemes of the trained problems; a judge has those, or its own."""
    like = {**TRAINING, "grader": "api/referee", "schemes": "schemes/train", "evaluate": "problems/bench"}
    config = {"api/referee": REFEREE, **SMALL, "grpo/a": {**like, "evaluate-grader": "arithmetic"}, "grpo/b": like}
    config |= {"grpo/c": {**like, "evaluate-schemes": "schemes/bench"}, "sft/taught": SMALL["sft/cold"]}
    entries = expand({"test": config}).entries
    assert [entries[f"grpo/{name}"].evaluated_by[2] for name in "abc"] == [None, "schemes/train", "schemes/bench"]


@pytest.fixture(autouse=True)
def digits(monkeypatch):
    """Register a grader that a tiny model earns points from: one for each other digit."""
    check = grades(lambda submission: min(7, len({*submission.text} & {*"0123456789"})))
    monkeypatch.setitem(PROGRAMS, "digits", ProgramGrader(7, "a point for each other digit", check))


def curve(table, metric: str = "evaluate/grade") -> dict[int, float]:
    return {row["step"]: row["value"] for row in table.rows() if row["metric"] == metric}


@pytest.mark.parametrize("more", ENGINES, ids=["in turn", "asynchronous"])
def test_curve_is_that_of_the_attempts_that_are_kept(taught, tmp_path, more):
    """The first, the last and every second weights are evaluated; each metric is recomputed from evaluations.parquet."""
    shutil.copytree(taught.results, tmp_path / "results")
    table = Mill(
        tmp_path / "results", **SMALL, **{"sft/taught": TAUGHT}, **{"grpo/x": {**TRAINING, **EVALUATED, **more}}
    ).make("grpo/x")
    kept = pl.read_parquet(table.folder / "evaluations.parquet")
    problems = table.other("problems/bench").rows("problem")
    assert kept["step"].unique().to_list() == [0, 2, 4]
    assert kept.height == 3 * 3 * len(problems) and kept["rollout"].n_unique() == kept.height
    for step, value in curve(table).items():
        attempts = kept.filter(step=step)
        assert attempts.group_by("problem").len()["len"].to_list() == [3] * len(problems)
        means = attempts.group_by("problem", maintain_order=True).agg((pl.col("grade") / pl.col("max_points")).mean())
        assert value == pytest.approx(means["grade"].mean())
        low, high = intervals.of_mean(means["grade"].to_numpy(), (0, 1), seed=step)
        assert (curve(table, "evaluate/grade/low")[step], curve(table, "evaluate/grade/high")[step]) == (low, high)
        assert curve(table, "evaluate/tokens")[step] == pytest.approx(attempts["tokens"].mean())
    assert set(curve(table)) == {0, 2, 4} and len(set(curve(table).values())) > 1


def test_evaluation_changes_no_weight(taught, tmp_path):
    """With and without `evaluate`, also at another temperature, a training has the same rows and weights."""
    shutil.copytree(taught.results, tmp_path / "results")
    entries = {
        "grpo/without": TRAINING,
        "grpo/with": {**TRAINING, **EVALUATED},
        "grpo/greedy": {**TRAINING, **EVALUATED, "evaluate-temperature": 0, "evaluate-attempts": 2},
    }
    mill = Mill(tmp_path / "results", **SMALL, **{"sft/taught": TAUGHT}, **entries)
    without, *others = (mill.make(name) for name in entries)
    rows = [(row["step"], row["metric"], row["value"]) for row in without.rows()]
    weights = load_file(without.folder / "model.safetensors")
    for table in others:
        own = [row for row in table.rows() if not row["metric"].startswith("evaluate/")]
        assert [(row["step"], row["metric"], row["value"]) for row in own] == rows
        assert all(
            torch.equal(value, weights[name]) for name, value in load_file(table.folder / "model.safetensors").items()
        )
    greedy = pl.read_parquet(others[1].folder / "evaluations.parquet")
    assert (greedy.group_by("step", "problem").agg(pl.col("text").n_unique())["text"] == 1).all()
    warm = pl.read_parquet(others[0].folder / "evaluations.parquet")
    assert (warm.group_by("step", "problem").agg(pl.col("text").n_unique())["text"] > 1).any()


def test_keeping_the_weights_of_steps_changes_no_weight(taught, tmp_path):
    """An adapter is merged for each kept step; the rollouts and the last adapter are those of a training that keeps none."""
    shutil.copytree(taught.results, tmp_path / "results")
    plain = {**TRAINING, "lora": {"rank": 4, "alpha": 8}}
    entries = {"grpo/plain": plain, "grpo/kept": {**plain, "save-every": 1}}
    mill = Mill(tmp_path / "results", **SMALL, **{"sft/taught": TAUGHT}, **entries)
    folders = [mill.make(name).folder for name in entries]
    texts = [pl.read_parquet(folder / "rollouts.parquet")["text"].to_list() for folder in folders]
    assert texts[0] == texts[1]
    last, kept = (load_file(folder / "adapter/adapter_model.safetensors") for folder in folders)
    assert all(torch.equal(value, kept[name]) for name, value in last.items())


def test_killed_training_ends_with_the_same_curve_and_the_same_kept_weights(taught, tmp_path, monkeypatch):
    """Killed within its second evaluation: the table, the attempts and the weights of each step are those of one piece."""
    monkeypatch.setenv("PROOFMILL_SAVE_STEPS", "1")
    entry = {**TRAINING, **EVALUATED, "keep-best": True, "save-every": 2}
    made = {}
    for name in ("whole", "killed"):
        shutil.copytree(taught.results, tmp_path / name)
        mill = Mill(tmp_path / name, **SMALL, **{"sft/taught": TAUGHT}, **{"grpo/x": entry})
        if name == "killed":
            grade = HeldOut._grade

            def dying(self, step, rows, grade=grade):
                if step == 2:
                    grade(self, step, rows)  # its attempts are in the log, and no checkpoint knows
                    raise ConnectionError("as if it were killed")
                return grade(self, step, rows)

            with monkeypatch.context() as patched, pytest.raises(ConnectionError):
                patched.setattr(HeldOut, "_grade", dying)
                mill.make("grpo/x")
        made[name] = mill.make("grpo/x")
    whole, killed = made.values()
    assert whole.content == killed.content
    evaluations = [pl.read_parquet(table.folder / "evaluations.parquet") for table in (whole, killed)]
    assert evaluations[0].equals(evaluations[1])
    assert sorted(path.name for path in (killed.folder / "steps").iterdir()) == ["step-2", "step-4"]
    best = max(sorted(curve(killed)), key=curve(killed).get)
    assert killed.stamp["weights_of_step"] == best
    final = load_file(killed.folder / "model.safetensors")
    of_best = killed.other("sft/taught").folder if best == 0 else killed.folder / "steps" / f"step-{best}"
    assert all(torch.equal(final[name], value) for name, value in load_file(of_best / "model.safetensors").items())


def test_later_stage_takes_the_weights_of_a_step(taught, tmp_path):
    """`base` with `step` has the weights of that step alone, which attempt problems; the last step's are the final ones."""
    shutil.copytree(taught.results, tmp_path / "results")
    entries = {
        "grpo/x": {**TRAINING, "save-every": 2},
        "base/at-2": {"source": "grpo/x", "step": 2},
        "base/at-4": {"source": "grpo/x", "step": 4},
        "base/last": {"source": "grpo/x"},
        "responses/at-2": {"model": "base/at-2", "problems": "problems/bench", "max-tokens": 8},
    }
    mill = Mill(tmp_path / "results", **SMALL, **{"sft/taught": TAUGHT}, **entries)
    table = mill.make("grpo/x")
    at_2, at_4, last = (mill.make(f"base/{name}") for name in ("at-2", "at-4", "last"))
    assert [path.name for path in last.folder.rglob("step*")] == []
    assert at_4.model == last.model == table.model != at_2.model
    assert {row["reason"] for row in mill.make("responses/at-2").rows()} == {"ok"}
    for fields, words in (
        ({"step": 3}, "`step` is 3 and grpo/x keeps the weights of every 2 of its 4 steps"),
        ({"step": 6}, "keeps the weights of every 2 of its 4 steps"),
        ({"step": 2, "source": "sft/taught"}, "keeps no weights of steps"),
    ):
        with pytest.raises(RecipeError, match=words):
            Mill(
                tmp_path / "results",
                **SMALL,
                **{"sft/taught": TAUGHT},
                **entries,
                **{"base/y": {"source": "grpo/x", **fields}},
            )


def test_too_many_unscored_attempts_stop_the_training_and_no_problem_is_refused(taught, tmp_path, monkeypatch):
    """Unscored is never zero: an evaluation without verdicts has no grade, and more than `max-unscored` of them end it."""
    assert "evaluate/grade" not in compute_metrics([row(None), row(None)], 1)
    assert compute_metrics([row(None), row(7.0)], 1)["evaluate/grade"] == 1.0
    assert compute_metrics([row(None), row(7.0)], 1)["evaluate/unscored"] == 0.5
    shutil.copytree(taught.results, tmp_path / "results")
    mill = Mill(
        tmp_path / "results",
        **SMALL,
        **{"sft/taught": TAUGHT},
        **{"grpo/x": {**TRAINING, **EVALUATED, "max-unscored": 0.1}},
    )
    undecided = ProgramGrader(7, "never decides", grades(lambda submission: None))
    monkeypatch.setitem(PROGRAMS, "digits", undecided)
    monkeypatch.setattr(held_out, "decide", lambda verdict: verdict)
    with pytest.raises(ServiceError, match=r"at step 0; expected at most 10% .*max-unscored"):
        mill.make("grpo/x")
    none = {**TRAINING, **EVALUATED, "evaluate": "problems/none"}
    more = {
        "problems/none": {"source": "problems/bench", "keep": [{"statement-length": [100000, 100001]}]},
        "grpo/y": none,
    }
    mill = Mill(tmp_path / "results", **SMALL, **{"sft/taught": TAUGHT}, **more)
    mill.make("problems/none")
    with pytest.raises(TableError, match="problems/none: no problem that the grader of the evaluation can grade"):
        mill.make("grpo/y")


def row(grade: float | None) -> dict:
    reason = "ok" if grade is not None else "no-verdict"
    return {
        "step": 1,
        "problem": str(grade),
        "tokens": 3,
        "stop_reason": "end",
        "grade": grade,
        "max_points": 7,
        "reason": reason,
    }


def test_best_step_is_the_first_of_equal_ones():
    """A later evaluation must be better to be kept; without evaluations nothing is kept."""
    history = [
        {"step": 0, "loss": 1.0},
        *({"step": s, "evaluate/grade": g} for s, g in ((0, 0.1), (2, 0.5), (4, 0.5), (6, math.nan))),
    ]
    assert best_step(history[:1]) is None
    assert best_step(history[:4]) == 2


def test_plan_counts_the_calls_of_evaluations(mill):
    """First, second, fourth and last weights of five steps: problems times attempts each, for the grader that is named."""
    training = {
        **TRAINING,
        **EVALUATED,
        "steps": 5,
        "evaluate-grader": "api/referee",
        "evaluate-schemes": "schemes/bench",
    }
    made = mill({**SMALL, "sft/taught": TAUGHT, "grpo/x": training})
    made.make("problems/train", "problems/bench")
    stage = RunPlan(made.config, "grpo/x", made.results).stages["grpo/x"]
    problems = len(made.table("problems/bench").rows("problem"))
    assert stage.calls == 4 * 3 * problems
