"""Replaying a finished run's rollouts: against slow exact arithmetic, against runs that were really trained, and by hand."""

import json
import re
import shutil
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mill import SMALL, Mill
from proofmill import __main__ as command
from proofmill.analysis import _comparison, replay
from proofmill.artifacts.tables import Table
from proofmill.artifacts.weights import MANIFEST
from proofmill.config import plugins
from proofmill.config.entry_values import entry_from
from proofmill.graders.graders import SubmissionGrader
from proofmill.graders.verdicts import Verdict
from proofmill.schema import references
from proofmill.schema.errors import SettingError, TableError
from proofmill.schema.kinds import ROLLOUTS

FEW = settings(deadline=None, max_examples=30)
ENTRY = {
    "model": "sft/cold", "problems": "problems/train", "grader": "arithmetic", "rewards": {"grade": 1, "format": 0.5},
    "unscored": "drop", "group-size": 3, "problems-per-step": 1, "steps": 1, "max-tokens": 100,
}  # fmt: skip
WELL_FORMED, PLAIN = "<think>a thought</think>\n\\boxed{1}", "no thought at all"


def deviation(rewards):
    """Compute the sample deviation, in float32; NaN for one reward."""
    return np.std(np.array(rewards, dtype=np.float32), ddof=1) if len(rewards) > 1 else np.float32("nan")


def learned(groups, scale):
    """Yield the advantages of one step's groups in float32, group by group; None is an unscored attempt."""
    everything = deviation([reward for group in groups for reward in group if reward is not None])
    for group in groups:
        some = [np.float32(reward) for reward in group if reward is not None]
        divisor = {"none": np.float32(1), "group": deviation(some) + 1e-4, "batch": everything + 1e-4}[scale]
        for reward in group:
            known = reward is not None and divisor == divisor
            yield float((np.float32(reward) - np.mean(some)) / divisor) if known else 0.0


def attempt(grade, tokens=10, well_formed=True, **more):
    return {
        "text": WELL_FORMED if well_formed else PLAIN, "stop_reason": "end", "tokens": tokens, "reference_tokens": 20, "grade": grade,
        "max_points": 7, "reason": "ok" if grade is not None else "no-verdict", "rewards_defined": ["grade", "format"], **more,
    }  # fmt: skip


def reward(made, unscored="drop"):
    """Return 7 points and half for the format, exactly; None for an unscored attempt."""
    if made["grade"] is None and unscored == "drop":
        return None
    return Fraction(made["grade"] or 0, 7) + Fraction(made["text"] == WELL_FORMED, 2)


def stored(results, steps, name="grpo/x", without=(), written=pl.DataFrame.clone, **entry):
    """Write a run's table and rollouts as a training does: `steps` are lists of groups of attempts.

    `written` changes the rollouts before they are written.
    """
    made = entry_from("grpo", {**ENTRY, **{key.replace("_", "-"): value for key, value in entry.items()}})
    rows = []
    for step, groups in enumerate(steps, 1):
        rewards = [[None if (r := reward(a, made.unscored)) is None else float(r) for a in group] for group in groups]
        advantages = learned(rewards, made.scale_rewards)
        for number, group in enumerate(groups):
            for one in group:
                grade = one["grade"] if one["grade"] is not None or made.unscored == "drop" else 0.0
                given = {f"reward_{key[7:]}": one[key] for key in one if key.startswith("reward_")}
                row = {
                    "rollout": f"r{len(rows)}", "step": step, "group": number, "problem": f"p{number}",
                    **{key: value for key, value in one.items() if key not in given},
                    "reward_grade": None if grade is None else float(np.float32(grade / 7)),
                    "reward_format": None if grade is None else float(one["text"] == WELL_FORMED),
                    "advantage": next(advantages), **given,
                }  # fmt: skip
                rows.append({key: value for key, value in row.items() if key not in without})
    folder = results / "made"
    folder.mkdir(parents=True)
    written(pl.DataFrame(rows, infer_schema_length=None)).write_parquet(folder / ROLLOUTS)
    stamp = {"entry": json.loads(references.canonical(made)), "fingerprint": "f", "counts": {}}
    Table(name, results).write([{"step": 1, "epoch": 0.0, "metric": "reward", "value": 0.0}], stamp, folder)
    return results


def graded(results, grades, reasons=None, responses="responses/round-2"):
    """Write a grades table: grades by response, None without a verdict; `reasons` replaces the derived ones."""
    rows = [
        {
            "response": response, "problem": "p", "attempt": 0, "grade": grade, "max_points": 7, "reason": (reasons or {}).get(
                response, "ok" if grade is not None else "no-verdict"), "well_formed": True, "answer": None, "stop_reason": "end", "verdict": "", "opinions": [], "prompt_tokens": 0,
            "tokens": 0, "cost": 0.0,
        } for response, grade in grades.items()
    ]  # fmt: skip
    Table("grades/y", results).write(rows, {"entry": {"responses": responses}, "fingerprint": "g", "counts": {}})


def shown(made):
    return "\n".join(made.lines())


ATTEMPT = st.builds(attempt, st.one_of(st.none(), st.integers(0, 7)), st.integers(1, 100), st.booleans())
STEPS = st.integers(2, 4).flatmap(
    lambda size: st.lists(
        st.lists(st.lists(ATTEMPT, min_size=size, max_size=size), min_size=1, max_size=3), min_size=1, max_size=4
    )
)
SCALE, UNSCORED = st.sampled_from(["group", "batch", "none"]), st.sampled_from(["drop", "zero"])


# ------------------------------------------------------------------------------------------------------- its own terms


@FEW
@given(STEPS, SCALE, UNSCORED)
def test_replay_of_own_terms_changes_nothing(steps, scale, unscored):
    """Under its own rewards and grades every reward and advantage is the recorded one, to float32, and no group changes."""
    with tempfile.TemporaryDirectory() as folder:
        results = stored(Path(folder), steps, scale_rewards=scale, unscored=unscored, group_size=len(steps[0][0]))
        made = replay.replay_run("grpo/x", results)
        rollouts = sum(len(group) for groups in steps for group in groups)
        assert made.as_recorded() == (rollouts, rollouts)
        assert not (made.changed_PG.any() or made.other_best_P.any() or made.reversed_P.any())
        assert made.now.advantages_PG == pytest.approx(made.recorded_PG, rel=1e-3, abs=5e-3)
        assert f"0 of {sum(map(len, steps))} groups change" in shown(made)


def test_rounding_of_rewards_that_cancel_is_no_advantage(tmp_path):
    """6 of 7 points minus 6/7 for the format are 0, and in float32 nearly; what a run made of that is no sign to change."""
    noise = pl.Series("advantage", [4e-4, -4e-4])
    rewards = [pl.Series("reward_grade", [0.8571429252624512, 0.0]), pl.Series("reward_format", [1.0, 0.0])]
    results = stored(
        tmp_path,
        [[[attempt(6), attempt(0, well_formed=False)]]],
        written=lambda frame: frame.with_columns(noise, *rewards),
        group_size=2,
        rewards={"grade": 1, "format": -6 / 7},
    )
    found = replay.replay_run("grpo/x", results)
    assert found.as_recorded() == (2, 2)
    assert not found.before_PG.any() and not found.changed_PG.any()


def test_shown_rewards_are_those_that_were_counted(tmp_path):
    """The mean of a reward leaves out what was left out of training, before and after, and so does the file written."""
    results = stored(tmp_path, [[[attempt(7), attempt(None, well_formed=False), attempt(0)]]])
    found = replay.replay_run("grpo/x", results)
    assert np.array_equal(found.now.values["format"], [[1, np.nan, 1]], equal_nan=True)
    assert np.array_equal(found.was.values["format"], found.now.values["format"], equal_nan=True)


class GradesByPlace(SubmissionGrader):
    """Grades 0, 1 and 2 in turn, and no verdict on every fifth submission."""

    def __call__(self, submissions, quiet=False):
        all_points = (None if place % 5 == 0 else float(place % 3) for place in range(len(submissions)))
        return [Verdict(points, 7, "no-verdict" if points is None else "ok") for points in all_points]


@pytest.mark.parametrize(
    ("name", "rewards", "more"),
    [
        ("grpo/replayed", {"grade": 1, "repetition": {"weight": 0.5, "n": 1}, "language": 0.2}, {}),
        (
            "grpo/replayed-rounds",
            {"grade": 1, "length-kimi": 0.3},
            {"scale-rewards": "batch", "unscored": "zero", "mini-batches": 3},
        ),
    ],
)
def test_replay_of_a_trained_run_is_the_run(small, monkeypatch, name, rewards, more):
    """A replay computes what TRL computed while training, in every rollout; and some advantages are not 0."""
    monkeypatch.setattr("proofmill.grpo.SubmissionGrader", GradesByPlace)
    grpo = {
        "model": "sft/cold", "problems": "problems/train", "schemes": "schemes/train", "grader": "api/referee", "group-size": 4,
        "problems-per-step": 2, "steps": 3, "learning-rate": 1e-3, "max-tokens": 24, "unscored": "drop", "max-unscored": 1.0, "rewards": rewards,
        **more,
    }  # fmt: skip
    made = Mill(small.results, **SMALL, **{name: grpo})
    made.make(name)
    found = replay.replay_run(name, small.results)
    assert found.as_recorded() == (24, 24)
    assert "0 of 6 groups change" in shown(found)
    assert found.again.unscored_PG.any() and np.count_nonzero(found.recorded_PG) > 12
    assert found.now.advantages_PG == pytest.approx(found.recorded_PG, abs=1e-5)
    asked = {row["statement"]: row["solution"] for row in made.table("problems/train").rows("statement", "solution")}
    submissions = [
        each.submission for group in replay.RescoredRun(name, small.results).groups() for each in group.rollouts
    ]
    assert submissions and all(asked[each.statement] == each.reference for each in submissions)


def test_replay_by_grades_of_a_trained_runs_rollouts_finds_them_all(small):
    """Rollouts taken as responses and graded by the grader that rewarded them change nothing; each has its grades."""
    grpo = {**ENTRY, "schemes": "schemes/train", "grader": "api/referee", "steps": 2, "group-size": 4, "max-tokens": 16,
            "problems-per-step": 2, "rewards": {"grade": 1, "repetition": 0.5}}  # fmt: skip
    made = Mill(
        small.results,
        **SMALL,
        **{
            "grpo/regraded": grpo,
            "responses/regraded": {"problems": "problems/train", "model": "grpo/regraded", "rollouts": True},
            "grades/regraded": {"responses": "responses/regraded", "schemes": "schemes/train", "grader": "api/referee"},
        },
    )
    made.make("grpo/regraded", "responses/regraded", "grades/regraded")
    found = replay.replay_run("grpo/regraded", small.results, grades="grades/regraded")
    assert found.covered_P.tolist() == [True] * 4
    assert np.array_equal(found.now.values["grade"], found.again.values["grade"], equal_nan=True)
    assert "0 of 4 groups change" in shown(found)


def test_replay_says_when_the_code_is_no_longer_that_of_the_run(tmp_path):
    """A recorded reward that its text and grades no longer give is counted, and the difference is not blamed on the terms."""
    results = stored(tmp_path, [[[attempt(7), attempt(0, reward_format=0.25), attempt(3)]]])
    found = replay.replay_run("grpo/x", results)
    assert found.as_recorded()[0] == 2
    assert "2 of 3 rewards" in shown(found)
    assert "has changed since the run" in shown(found)


def test_replay_says_when_recorded_advantages_are_not_those_of_the_rewards(tmp_path):
    """An advantage that does not follow from the recorded rewards is counted too, and stays what was before."""
    other = pl.col("advantage") * pl.Series([1.0, 1.0, 1.5])
    steps = [[[attempt(7), attempt(0), attempt(3)]]]
    results = stored(tmp_path, steps, written=lambda frame: frame.with_columns(other), scale_rewards="none")
    path = results / "grpo/x" / ROLLOUTS
    found = replay.replay_run("grpo/x", results)
    assert found.as_recorded() == (3, 2)
    assert found.before_PG.tolist() == found.recorded_PG.tolist() == [pl.read_parquet(path)["advantage"].to_list()]


# ------------------------------------------------------------------------------------------------------- other rewards

OTHER = "{solved: 1, overlong: {weight: 0.5, buffer: 50}}"


def other_reward(made, unscored):
    """Return 1 for all points, and half of 0 down to -1 over the last 50 of 100 tokens, exactly."""
    if made["grade"] is None and unscored == "drop":
        return None
    return Fraction(made["grade"] == 7) + Fraction(min(0, 50 - made["tokens"]), 100)


def signs(rewards):
    """Return the signs of an exact group's rewards less their mean; 0 for an unscored attempt."""
    some = [r for r in rewards if r is not None]
    apart = [Fraction(0) if r is None else r - sum(some) / len(some) for r in rewards]
    return apart, [(a > 0) - (a < 0) for a in apart]


@FEW
@given(STEPS, UNSCORED)
def test_replay_counts_are_those_of_exact_arithmetic(steps, unscored):
    """Signs, changes, best attempts and reversals equal a slow count with fractions, for rewards that are fractions."""
    kinds_of_change = {"+ to -": 0, "- to +": 0, "0 to + or -": 0, "+ or - to 0": 0}
    changed = turned = other_best = backwards = 0
    for group in (group for groups in steps for group in groups):
        old, new = [reward(a, unscored) for a in group], [other_reward(a, unscored) for a in group]
        (apart_old, before), (apart_new, after) = signs(old), signs(new)
        for b, a in zip(before, after, strict=True):
            if b != a:
                key = "0 to + or -" if b == 0 else "+ or - to 0" if a == 0 else "+ to -" if b > 0 else "- to +"
                kinds_of_change[key] += 1
        changed += before != after
        turned += any(b * a < 0 for b, a in zip(before, after, strict=True))
        best_old, best_new = (
            {
                place
                for place, r in enumerate(rewards)
                if r is not None and r == max(s for s in rewards if s is not None)
            }
            for rewards in (old, new)
        )
        other_best += bool(best_old | best_new) and not best_old & best_new
        backwards += sum(b * a for b, a in zip(apart_old, apart_new, strict=True)) < 0
    with tempfile.TemporaryDirectory() as folder:
        results = stored(Path(folder), steps, unscored=unscored, group_size=len(steps[0][0]))
        found = replay.replay_run("grpo/x", results, rewards=OTHER)
    assert {key: int(hits_PG.sum()) for key, hits_PG in found.changes.items()} == kinds_of_change
    assert found.changed_PG.any(axis=1).sum() == changed
    assert found.turned_PG.any(axis=1).sum() == turned
    assert found.other_best_P.sum() == other_best
    assert found.reversed_P.sum() == backwards


TURNED = [attempt(7, tokens=90), attempt(0, tokens=10), attempt(0, tokens=50)]
ALIKE = [attempt(7, tokens=20), attempt(7, tokens=20), attempt(7, tokens=20)]


def test_replay_by_hand_is_shown_with_its_intervals(tmp_path):
    """Of two groups one is reversed by a length reward: its only right attempt is the longest; the other has no deviation."""
    results = stored(tmp_path, [[TURNED], [ALIKE]])
    found = replay.replay_run("grpo/x", results, rewards="{length-kimi: 1}")
    lines = shown(found).splitlines()
    assert lines[1] == "before: {format: 0.5, grade: 1.0}, scale group, unscored drop"
    assert lines[2] == "after:  {length-kimi: 1}, scale group, unscored drop"
    assert "1 of 2 groups change: the advantage of a rollout changes its sign" in lines
    table = {line[:34].strip(): line[34:].split("  ") for line in lines[lines.index("") + 1 :]}
    cells = {label: [cell.strip() for cell in row if cell.strip()] for label, row in table.items()}
    assert cells["value [95 % interval]"] == ["all steps", "step 1", "step 2"]
    assert cells["rollouts"] == ["6", "3", "3"] and cells["groups"] == ["2", "1", "1"]
    # Kimi: 0.5 - (L - 10) / 80 and at most 0 for a wrong one: -0.5, 0 and 0, less their mean -1/6.
    assert found.now.totals_PG[0].tolist() == [-0.5, 0, 0]
    shares = {name: [cell.split(" [")[0] for cell in row] for name, row in cells.items()}
    assert shares["advantages + to -"] == ["16.7 %", "33.3 %", "0.0 %"]
    assert shares["groups reversed"] == ["50.0 %", "100.0 %", "0.0 %"]
    assert shares["groups without deviation before"][0] == "50.0 %"
    assert shares["reward grade before"][0] == "0.667" and "reward grade after" not in cells
    ends = [tuple(map(float, re.findall(r"\[(.*), (.*)\]", cell)[0])) for cell in cells["groups reversed"]]
    assert ends[0][0] < 10 and ends[0][1] > 90 and ends[1][1] == 100 and ends[2][0] == 0  # of two groups and of one
    assert cells["correlation of advantages"][0] == "-1.000" and cells["correlation of advantages"][2] == "-"


def test_replay_forecasts_idle_groups_of_other_sizes(tmp_path):
    """Half of the groups have one value; larger groups are idle less often, and the share at hand is near the observed one."""
    even = [[attempt(7, tokens=20)] * 4, [attempt(7, tokens=20)] * 2 + [attempt(0, tokens=20)] * 2] * 6
    found = replay.replay_run("grpo/x", stored(tmp_path, [even]))
    forecast = {size: _comparison._forecast(found.now.totals_PG, size) for size in (2, 4, 32)}
    shares = [float(text.removesuffix(" %")) for text in forecast.values()]
    assert 100 > shares[0] > shares[1] > shares[2] > 0 and shares[1] == pytest.approx(50, abs=12)
    assert "... forecast for groups of 4" in shown(found)


def test_replay_in_thirds_has_every_step_once(tmp_path):
    """Seven steps are shown as 1 to 3, 4 to 5 and 6 to 7."""
    found = replay.replay_run("grpo/x", stored(tmp_path, [[TURNED]] * 7))
    assert list(_comparison.spans(found)) == ["all steps", "1 to 3", "4 to 5", "6 to 7"]
    assert sum(span_P.sum() for span_P in list(_comparison.spans(found).values())[1:]) == 7


def test_replay_under_another_scale_keeps_all_signs(tmp_path):
    """Dividing by another deviation changes advantages and not one sign."""
    found = replay.replay_run("grpo/x", stored(tmp_path, [[TURNED, ALIKE]]), scale="none")
    assert not found.changed_PG.any()
    assert found.now.advantages_PG[0].tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert found.recorded_PG[0, 0] == pytest.approx((2 / 3) / (1 / 3**0.5 + 1e-4))


def test_replay_with_unscored_as_zero_counts_them(tmp_path):
    """An attempt without a verdict has no advantage when dropped, and the worst one as zero; it is unscored both times."""
    results = stored(tmp_path, [[[attempt(7), attempt(7), attempt(None, well_formed=False)]]])
    found = replay.replay_run("grpo/x", results, unscored="zero")
    assert found.recorded_PG.tolist() == [[0, 0, 0]]
    assert np.sign(found.after_PG).tolist() == [[1, 1, -1]]
    assert found.again.unscored_PG.tolist() == found.now.unscored_PG.tolist() == [[False, False, True]]


def test_replay_of_other_grades_counts_what_no_program_could_decide_as_0(tmp_path):
    """As in a training: an unreadable answer earns 0, and a missing verdict nothing."""
    results = stored(tmp_path, [[[attempt(7), attempt(7), attempt(7)]]])
    graded(results, {"r0": 7, "r1": None, "r2": None}, {"r1": "unparsable", "r2": "no-verdict"})
    found = replay.replay_run("grpo/x", results, rewards="{grade: 1}", grades="grades/y")
    assert found.now.totals_PG.tolist() == pytest.approx(np.array([[1, 0, np.nan]]), nan_ok=True)


# ------------------------------------------------------------------------------------------- what applies, preferences

LIKED = {"preferences": {"grader/helpful": {"weight": 2.0}}, "rewards": {"grade": 1}}


def talk(liked):
    """Return an attempt at small talk, which no grader grades."""
    return attempt(None, reason="not-asked", rewards_defined=["helpful"], reward_helpful=liked)


def test_preference_is_taken_from_the_table(tmp_path):
    """A preference judge is not called again: small talk is rewarded by it alone, mathematics by grades and by it."""
    proof = [attempt(7, rewards_defined=["grade", "helpful"], reward_helpful=0.0), attempt(0, rewards_defined=["grade", "helpful"], reward_helpful=1.0)]  # fmt: skip
    results = stored(tmp_path, [[[talk(0.25), talk(0.75)], proof]], group_size=2, **LIKED)
    found = replay.replay_run("grpo/x", results)
    assert found.now.totals_PG.tolist() == [[0.5, 1.5], [1, 2]]
    assert not found.now.unscored_PG.any()
    fewer = replay.replay_run("grpo/x", results, rewards="{helpful: 1, solved: 3}")
    assert fewer.now.totals_PG.tolist() == [[0.25, 0.75], [3, 1]], "`solved` does not apply to small talk"


def test_grades_where_none_are_wanted_count_nothing(tmp_path):
    """A second judge who grades small talk too rewards nothing by it: the run's grades do not apply there."""
    results = stored(tmp_path, [[[talk(0.25), talk(0.75)]]], group_size=2, **LIKED)
    graded(results, {"r0": 7, "r1": 0})
    found = replay.replay_run("grpo/x", results, grades="grades/y")
    assert found.now.totals_PG.tolist() == [[0.5, 1.5]]
    assert np.isnan(found.now.values["grade"]).all()


def test_rollouts_that_do_not_say_what_applies_need_every_reward(tmp_path):
    """Without the column `rewards_defined` a missing reward makes a rollout unscored."""
    steps = [[[attempt(7, reward_helpful=0.5), attempt(0, reward_helpful=None)]]]
    results = stored(tmp_path, steps, group_size=2, without=("rewards_defined",), **LIKED)
    assert replay.replay_run("grpo/x", results).now.unscored_PG.tolist() == [[False, True]]


# --------------------------------------------------------------------------------------------------------- other grades


def test_other_grades_turn_a_group_round(tmp_path):
    """A second judge who thinks the opposite reverses the group; one who says nothing of an attempt leaves it unscored."""
    results = stored(tmp_path, [[[attempt(7), attempt(0), attempt(0)], ALIKE]])
    graded(results, {"r0": 0, "r1": 7, "r2": None, "r3": 7, "r4": 7, "r5": 7, "elsewhere": 1})
    found = replay.replay_run("grpo/x", results, grades="grades/y")
    assert np.sign(found.after_PG).tolist() == [[-1, 1, 0], [0, 0, 0]]
    assert found.reversed_P.tolist() == [True, False]
    assert found.now.unscored_PG.sum() == 1 and not found.again.unscored_PG.any()
    assert "grades of grades/y" in shown(found) and "1 of 2 groups change" in shown(found)


def test_groups_without_other_grades_are_left_out(tmp_path):
    """Grades of some problems say nothing about the others, whose groups are not counted as changed."""
    results = stored(tmp_path, [[TURNED], [TURNED]])
    graded(results, {"r3": 7, "r4": 0, "r5": 0})
    text = shown(replay.replay_run("grpo/x", results, grades="grades/y"))
    assert "1 of 2 groups have no row in grades/y and are excluded" in text
    assert "0 of 1 groups change" in text
    assert ["rollouts", "3"] in [line.split() for line in text.splitlines()]


def test_grades_of_other_responses_are_refused(tmp_path):
    """A grades table of other responses is named with these, and with what to declare instead."""
    results = stored(tmp_path, [[TURNED]])
    graded(results, {"other": 7})
    with pytest.raises(
        TableError, match=r"has no grades of rollouts of grpo/x, but of responses/round-2; .*rollouts: true"
    ):
        replay.replay_run("grpo/x", results, grades="grades/y")


# -------------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ("{grad: 1}", "names `grad`; .*Did you mean `grade`"),
        ("{grade: much}", "`grade` has the weight 'much'; expected a number"),
        ("{grade: true}", "`grade` has the weight True"),
        ("{grade: .nan}", "`grade` has the weight nan"),
        ("{grade: {weight: []}}", r"`grade` has the weight \[\]"),
        ("{overlong: 1}", "`overlong` needs `buffer`"),
        ("{outcome: {preset: mild}}", "the preset is 'mild'"),
        ("{grade: {height: 1}}", "`grade` has the argument `height`"),
        ("grade", "found 'grade'; expected a mapping such as"),
        ("{}", "expected a mapping such as"),
        ("{grade: 1", "cannot be read as YAML"),
    ],
)
def test_wrong_rewards_are_named(tmp_path, rewards, message):
    """A mistake in `--rewards` is said with what was found and what is expected."""
    results = stored(tmp_path, [[TURNED]])
    with pytest.raises(SettingError, match=f"--rewards: .*{message}"):
        replay.replay_run("grpo/x", results, rewards=rewards)


def test_preference_has_no_arguments(tmp_path):
    """No judge is called again, so that a preference is a weight and nothing else."""
    results = stored(tmp_path, [[[talk(0.25), talk(0.75)]]], group_size=2, **LIKED)
    with pytest.raises(SettingError, match=r"`helpful` has the weight .'input': 'all'.; expected a number"):
        replay.replay_run("grpo/x", results, rewards="{helpful: {input: all}}")


@pytest.mark.parametrize(
    ("name", "grades", "message"),
    [
        ("sft/x", None, "sft/x: no training by rewards; expected grpo/<name>"),
        ("grpo/x", "responses/x", "`responses/x` is no table of grades"),
    ],
)
def test_tables_of_another_kind_are_refused(tmp_path, name, grades, message):
    """A table without rollouts is not replayed, and grades come from grades."""
    results = stored(tmp_path, [[TURNED]])
    with pytest.raises(SettingError, match=message):
        replay.replay_run(name, results, grades=grades)


def test_run_that_was_never_made_is_refused(tmp_path):
    """Without its table there is nothing to replay, and the command that makes it is named."""
    with pytest.raises(TableError, match=r"grpo/y.parquet: no such table; .*snakemake"):
        replay.replay_run("grpo/y", stored(tmp_path, [[TURNED]]))


def test_rollouts_that_are_gone_are_missed(tmp_path):
    """A run whose rollouts were deleted is named; its rewards cannot be had from the table of steps."""
    results = stored(tmp_path, [[TURNED]])
    (results / "grpo/x" / ROLLOUTS).unlink()
    with pytest.raises(TableError, match=r"rollouts.parquet: no such file; .*snakemake .*grpo/x.parquet"):
        replay.replay_run("grpo/x", results)


@pytest.mark.parametrize("column", ["rollout", "max_points", "reward_format"])
def test_rollouts_of_an_older_shape_are_refused(tmp_path, column):
    """A column that a replay needs is named when it is missing."""
    results = stored(tmp_path, [[TURNED]], without=(column,))
    with pytest.raises(TableError, match=f"has no column `{column}`"):
        replay.replay_run("grpo/x", results)


@pytest.mark.parametrize("order", [[0, 1, 3, 2, 4, 5], [0, 1, 2, 3, 4], [6, 7, 8, 0, 1, 2], [0, 3, 1, 4, 2, 5]])
def test_rollouts_of_torn_groups_are_refused(tmp_path, order):
    """Groups whose attempts are apart, of another size, or out of their steps' order, are not guessed at."""
    results = stored(tmp_path, [[TURNED, ALIKE], [TURNED]], written=lambda frame: frame[order])
    with pytest.raises(TableError, match="differ in size or are torn apart; expected 3 attempts"):
        replay.replay_run("grpo/x", results)


# ---------------------------------------------------------------------------------------------------------- the command


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["proofmill", "replay", *map(str, words)])
    command.main()


def test_command_shows_and_writes_the_replay(tmp_path, monkeypatch, capsys):
    """The rollouts come back as they are, in order, with the new rewards and advantages as columns; missing is null."""
    results = stored(tmp_path / "results", [[TURNED], [[attempt(7), attempt(0), attempt(None)]]])
    monkeypatch.setattr(replay, "AT_ONCE", 2)
    out = tmp_path / "replayed.parquet"
    run(monkeypatch, "grpo/x", "--rewards", "{length-kimi: 1}", "--out", out, "--results", results)
    assert "2 of 2 groups change" in capsys.readouterr().out
    written, whole = pl.read_parquet(out), pl.read_parquet(results / "grpo/x" / ROLLOUTS)
    assert written.select(whole.columns).equals(whole)
    assert written.columns[len(whole.columns) :] == ["advantage_replayed", "reward_length-kimi_replayed"]
    assert written["reward_length-kimi_replayed"].to_list() == [-0.5, 0, 0, 0, 0, None]
    assert written["advantage_replayed"].to_list()[1:] == pytest.approx([3**0.5 / 3] * 2 + [0] * 3, abs=1e-3)


def test_command_knows_the_rewards_of_plugins(tmp_path, monkeypatch, capsys):
    """They are those of config.yaml; without it, the message says where the reward is expected."""
    one = attempt(7, tokens=4, reward_brief=1.0, rewards_defined=["brief"])
    results = stored(tmp_path / "results", [[[one, {**one, "tokens": 9}]]], rewards={"brief": 1}, group_size=2)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"with the reward `brief`, which is unknown here; .* `plugins`"):
        run(monkeypatch, "grpo/x", "--results", results)
    (tmp_path / "config.yaml").write_text("plugins: [parts.py]\n")
    (tmp_path / "parts.py").write_text(
        "from proofmill.rewards.rewards import Reward, each\n"
        "REWARDS = {'brief': Reward(each(lambda rollout: float(rollout.tokens < 5)), '1 if short')}\n"
    )
    try:
        run(monkeypatch, "grpo/x", "--rewards", "{grade: 1, brief: 0.1}", "--results", results)
    finally:
        plugins.use([])
    assert "brief" in capsys.readouterr().out


def test_command_never_writes_over_a_file(tmp_path, monkeypatch):
    """An existing file is not changed, and the command ends with a message about it."""
    results, out = stored(tmp_path / "results", [[TURNED]]), tmp_path / "mine.parquet"
    out.write_text("mine")
    with pytest.raises(SystemExit, match=r"mine.parquet: exists; expected a new file"):
        run(monkeypatch, "grpo/x", "--out", out, "--results", results)
    assert out.read_text() == "mine"


def test_command_that_cannot_write_leaves_nothing(tmp_path, monkeypatch):
    """A folder that is not there is named, and half a file is not left."""
    results, out = stored(tmp_path / "results", [[TURNED]]), tmp_path / "nowhere" / "out.parquet"
    with pytest.raises(SystemExit, match=r"out.parquet: cannot be written .*expected a folder"):
        run(monkeypatch, "grpo/x", "--out", out, "--results", results)
    assert not out.parent.exists()


def test_replay_changes_no_result(tmp_path, monkeypatch):
    """A replay reads; table, weights and rollouts are the same files after it."""
    results = stored(tmp_path / "results", [[TURNED]])
    shutil.copytree(results, tmp_path / "before")
    run(monkeypatch, "grpo/x", "--rewards", "{solved: 1}", "--results", results)
    for path in (tmp_path / "before").rglob("*"):
        other = results / path.relative_to(tmp_path / "before")
        assert path.is_dir() or path.read_bytes() == other.read_bytes()
    assert {p.name for p in (results / "grpo/x").iterdir()} == {ROLLOUTS, MANIFEST}
