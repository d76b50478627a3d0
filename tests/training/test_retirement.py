"""Problems that the policy solves too often or too seldom: retired, exchanged for others, and back after some steps."""

import shutil

import polars as pl
import pytest

from mill import SMALL, Mill
from proofmill.artifacts import joins
from proofmill.graders.program_graders import PROGRAMS, ProgramGrader, grades
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.errors import RecipeError, TableError
from proofmill.training import grpo_trainer as trainer_module
from proofmill.training.asynchronous.rollout_queue import RolloutQueue
from proofmill.training.rollouts.retirement import Retirement
from trained import TAUGHT

TRAINING = {
    "model": "sft/taught", "problems": "problems/train", "grader": "even", "unscored": "drop", "group-size": 2,
    "rewards": {"grade": 1}, "problems-per-step": 6, "steps": 12, "learning-rate": 1e-3, "max-tokens": 32, "log-every": 1,
    "retire-solved": 1, "retire-unsolved": 0, "return-after": 2,
}  # fmt: skip


@pytest.fixture(autouse=True)
def even(monkeypatch):
    """Register a grader by which many groups are all solved or all unsolved: a point for an even number of digits."""
    check = grades(lambda submission: 1 - sum(map(str.isdigit, submission.text)) % 2)
    monkeypatch.setitem(PROGRAMS, "even", ProgramGrader(1, "a point for an even number of digits", check))


def retirement(count=6, known=(), **fields) -> Retirement:
    entry = Grpo(
        **{"model": "sft/x", "problems": "problems/x", "grader": "arithmetic", "unscored": "drop", "steps": 9},
        **{"rewards": {"grade": 1}, **fields},
    )
    problems = [{"problem": str(n), "known_grade": dict(known).get(str(n))} for n in range(count)]
    return Retirement(entry, problems, ())


def group(problem: str, step: int, *grades: float | None, number: int = 0) -> list[dict]:
    of_group = {"problem": problem, "step": step, "group": number, "max_points": 7}
    return [{**of_group, "grade": grade} for grade in grades]


def test_the_last_group_of_a_problem_decides():
    """At least `solved` or at most `unsolved` of the points retires, a grade between restores, and no grade decides nothing."""
    one = retirement(retire_solved=0.9, retire_unsolved=0.0)
    one.learn([*group("0", 1, 7, 7), *group("1", 1, 0, None, number=1), *group("2", 1, 7, 5, number=2)])
    one.learn(group("3", 2, None, None))
    assert [one.is_retired(str(n), 2) for n in range(6)] == [True, True, False, False, False, False]
    assert one.share(2) == pytest.approx(2 / 6)
    one.learn([*group("0", 3, None, None), *group("1", 3, 7, 0, number=1)])
    assert one.is_retired("0", 4) and not one.is_retired("1", 4)


def test_retired_problem_returns_after_its_steps():
    """With `return_after: 2`, a problem of step 3 is left out in steps 4 and 5."""
    one = retirement(retire_solved=1.0, return_after=2)
    one.learn(group("4", 3, 7, 7))
    assert [one.is_retired("4", step) for step in (4, 5, 6)] == [True, True, False]
    two = retirement(retire_solved=1.0)
    two.learn(group("4", 3, 7, 7))
    assert two.is_retired("4", 10**6)


def test_known_grades_retire_before_the_first_step_and_return_too():
    """They count as of step 0; a problem without grades is not retired."""
    one = retirement(
        known={"1": 1.0, "2": 0.0, "3": 0.5}.items(), retire_solved=1.0, retire_unsolved=0.0, return_after=1
    )
    assert [one.is_retired(str(n), 1) for n in range(5)] == [False, True, True, False, False]
    assert not one.is_retired("1", 2)


def test_retired_problems_are_exchanged_for_others():
    """Those take their places that are neither drawn nor retired, the same again; then those that retired first."""
    one = retirement(retire_solved=1.0)
    one.learn([*group("0", 1, 7, 7), *group("1", 1, 7, 7, number=1)])
    instead = one.exchange(["0", "2", "1", "2"], 5)
    assert set(instead) == {"0", "1"} and {*instead.values()} <= {3, 4, 5} and len({*instead.values()}) == 2
    assert instead == one.exchange(["0", "2", "1", "2"], 5)
    for step, name in ((2, "3"), (3, "4"), (4, "5")):
        one.learn(group(name, step, 7, 7))
    assert set(one.exchange(["5", "2"], 6).values()) <= {0, 1}
    assert set(one.exchange(["5", "2"], 6, others=["0", "1"]).values()) == {3}


def test_drawn_problems_are_fresh_and_the_same_again():
    """Those of the step come only when no others are left."""
    one = retirement()
    drawn = one.draw({"0", "1", "2"}, 3, 1, "seed")
    assert {*drawn} == {3, 4, 5} and drawn == one.draw({"0", "1", "2"}, 3, 1, "seed")
    assert len(one.draw({"0", "1", "2"}, 5, 1, "seed")) == 5


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"idle": "replace"}, {"max-staleness": 1}], ids=["in turn", "replaced", "stale"])
def test_no_retired_problem_is_attempted_while_others_are_left(taught, tmp_path, more):
    """By the log: no problem comes in the two steps after a group of it had equal grades, unless too few are left."""
    shutil.copytree(taught.results, tmp_path / "results")
    entries = {
        "grpo/x": {**TRAINING, **more},
        "grpo/all": {**TRAINING, **more, "retire-solved": None, "retire-unsolved": None, "return-after": None},
    }
    mill = Mill(tmp_path / "results", **SMALL, **{"sft/taught": TAUGHT}, **entries)
    early = {}
    for name in entries:
        table = mill.make(name)
        groups = (
            pl.read_parquet(table.folder / "rollouts.parquet")
            .group_by("step", "group", maintain_order=True)
            .agg(pl.col("problem").first(), pl.col("grade").mean(), pl.col("policy_step").min())
        )
        assert groups.filter(pl.col("step") == 1).height >= 6
        retired, early[name] = {}, 0
        for row in groups.rows(named=True):
            known = row["policy_step"]  # the last step whose grades were known when the problem was drawn
            of = [step for step in retired.get(row["problem"], ()) if step <= known]
            early[name] += bool(of) and row["step"] - of[-1] <= (1 if "max-staleness" in more else 2)
            retired.setdefault(row["problem"], []).extend([row["step"]] * (row["grade"] in (0, 1)))
            if row["grade"] not in (0, 1):
                retired[row["problem"]] = [step for step in retired[row["problem"]] if step > row["step"]]
    assert early["grpo/x"] == 0
    shares = [row["value"] for row in mill.table("grpo/x").rows() if row["metric"] == "retired"]
    assert len(shares) == 12 and shares[0] == 0 and 0 < max(shares) < 1
    assert not [row for row in mill.table("grpo/all").rows() if row["metric"] == "retired"]


@pytest.mark.slow
def test_killed_training_draws_the_same_problems(taught, tmp_path, monkeypatch):
    """The retired problems are read from the log: table and rollouts are those of one piece."""
    monkeypatch.setenv("PROOFMILL_SAVE_STEPS", "2")
    tables = []
    for name in ("whole", "killed"):
        shutil.copytree(taught.results, tmp_path / name)
        mill = Mill(tmp_path / name, **SMALL, **{"sft/taught": TAUGHT, "grpo/x": {**TRAINING, "return-after": None}})
        if name == "killed":
            exchange = trainer_module.GrpoTrainer._replace_retired

            def dying(self, inputs, exchange=exchange):
                if self.made_for == 6:
                    raise ConnectionError("as if it were killed")
                return exchange(self, inputs)

            with monkeypatch.context() as patched, pytest.raises(ConnectionError):
                patched.setattr(trainer_module.GrpoTrainer, "_replace_retired", dying)
                mill.make("grpo/x")
        tables.append(mill.make("grpo/x"))
    whole, killed = tables
    assert whole.content == killed.content


def test_group_that_is_started_again_has_the_same_problem(tmp_path):
    """The queue keeps which problem a group got, until no kill can undo its step."""
    queue = RolloutQueue(tmp_path, 0, 2)
    for group_number, problem in ((0, 7), (1, 3), (2, 5)):
        queue.assign(group_number, problem)
    queue.learn(1, [0])
    assert RolloutQueue(tmp_path, 0, 2).problems == {0: 7, 1: 3, 2: 5}
    queue = RolloutQueue(tmp_path, 0, 2)
    queue.learn(1, [0])
    queue.forget(1)
    assert RolloutQueue(tmp_path, 1, 2).problems == {1: 3, 2: 5}


def test_known_grades_are_those_of_the_same_problems(small):
    """Grades of other problems are refused; the mean of a problem is that of its graded attempts."""
    other = {"problems/other": {**SMALL["problems/train"], "seed": 9}, "responses/other": {"problems": "problems/other", "model": "sft/cold"},
             "grades/other": {"responses": "responses/other", "grader": "arithmetic"}}  # fmt: skip
    fields = {**TRAINING, "model": "sft/cold", "steps": 1, "known-grades": "grades/other"}
    mill = Mill(small.results, **{**SMALL, **other, "grpo/known": fields})
    for name in other:
        mill.make(name)
    graded = pl.DataFrame([*mill.table("grades/other").rows("problem", "grade", "max_points")])
    expected = {
        key[0]: (part["grade"] / part["max_points"]).mean()
        for key, part in graded.drop_nulls("grade").group_by("problem")
    }
    assert dict(joins.mean_grades(mill.table("grades/other"))) == pytest.approx(expected)
    with pytest.raises(TableError, match="has no grade of a problem of problems/train; expected grades of attempts"):
        mill.make("grpo/known")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"retire-solved": None, "retire-unsolved": None}, "found `return-after` or `known-grades` without"),
        ({"rewards": {}, "teacher": "sft/taught"}, "without rewards; expected graded rollouts"),
        (
            {"retire-solved": 0.2, "retire-unsolved": 0.2},
            "`retire-solved` is 0.2 and `retire-unsolved` is 0.2; expected more",
        ),
        ({"retire-unsolved": 1, "retire-solved": None}, "which retires every problem"),
        ({"known-grades": "grades/none"}, "grades/none"),
    ],
)
def test_nonsense_is_refused(changed, message):
    """Each message names the field, when the recipe is read."""
    with pytest.raises(RecipeError, match=message):
        Mill(None, **SMALL, **{"sft/taught": TAUGHT, "grpo/x": {**TRAINING, **changed}})
