"""Named rewards: what each gives the attempts of a group, with its arguments, and what an unscored attempt gets."""

import math
from dataclasses import fields

import pytest

from proofmill.config.config import expand
from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Verdict
from proofmill.rewards.rewards import _TRIAL, OUTCOMES, REWARDS, Rollout, RolloutGroup, weight
from proofmill.schema.errors import RecipeError

SMALL = {
    "api/j": {"id": "j", "price": "unknown"},
    "problems/p": {"source": "arithmetic", "rows": 4},
    "base/b": {"source": "scratch", "problems": "problems/p"},
}


def rollout(
    grade=7.0,
    tokens=10,
    text="<think>a thought</think>\n\\boxed{1}",
    stop="end",
    max_points=7,
    reason="ok",
    reference=None,
):
    submission = Submission("s", "1", None, text, stop_reason=stop)
    return Rollout(submission, Verdict(grade, max_points, reason), tokens, reference)


def given(name, *rollouts, arguments=1, max_tokens=100):
    return REWARDS[name].values(RolloutGroup(rollouts, max_tokens), arguments)


VERDICTS = [name for name in REWARDS if name.startswith(("grade", "full", "outcome", "length"))]
ARGUMENTS = {"grade-discounted": {"rate": 0.99}, "length-lead": {"alpha": 0.5}, "overlong": {"buffer": 10}}


@pytest.mark.parametrize("name", VERDICTS)
def test_unscored_attempt_has_no_reward(name):
    """A reward that depends on the verdict is null without one, and the rest of the group is rewarded as without it."""
    others = (rollout(7.0, 10, reference=12), rollout(0.0, 30, reference=12))
    silent = rollout(None, 5, reason="no-verdict", reference=12)
    arguments = ARGUMENTS.get(name, 1)
    found = given(name, *others, silent, arguments=arguments)
    assert found[2] is None
    assert found[:2] == given(name, *others, arguments=arguments)
    assert None not in found[:2]


@pytest.mark.parametrize(("grade", "expected"), [(0, 0), (1, 1 / 7), (3, 1 / 7), (5, 1 / 7), (6, 6 / 7), (7, 1)])
def test_thresholded_grades_have_three_steps(grade, expected):
    """QED-Nano's threshold: below 1 as it is, 1 to 5 as 1, 6 and 7 as they are, all of 7."""
    assert given("grade-thresholded", rollout(float(grade))) == [pytest.approx(expected)]


def test_discount_is_by_tokens():
    """0.5 to the power of 3 tokens is an eighth of the grades."""
    assert given("grade-discounted", rollout(7.0, 3), arguments={"rate": 0.5}) == [0.125]


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("pure-success", [1, 1, 0, 0, 0, 0, 0, 0]),
        ("success", [1, 0.5, 0, 0, 0, 0, 0, 0]),
        ("success-and-format", [1, 0, 0, 0, 0, 0, 0, 0]),
        ("format", [1, 1, 1, 1, 0, 0, 0, 0]),
        ("base", [1, -1, -0.5, -1, -1, -1, -1, -1]),
        ("alex", [1, 0.5, -0.5, -1, -1, -1, -1, -1]),
        ("dima", [1, 0.5, -1, 0, -1, 0, -1, -1]),
    ],
)
def test_outcomes_are_those_of_the_published_tables(preset, expected):
    """Right, wrong, no answer and an unreadable one, each finished and truncated."""
    cases = [(1.0, "ok"), (0.0, "ok"), (0.0, "no-answer"), (0.0, "unparsable")]
    rollouts = [rollout(g, max_points=1, reason=r, stop=stop) for g, r in cases for stop in ("end", "length")]
    assert given("outcome", *rollouts, arguments={"preset": preset}) == expected
    assert set(OUTCOMES) >= {preset}


def test_lengths_are_those_of_the_group():
    """Method 2 takes the shortest right attempt, method 1 the reference, Kimi the extremes; hand-computed."""
    rollouts = [
        rollout(7.0, 10, reference=20),
        rollout(7.0, 30, reference=20),
        rollout(0.0, 50, reference=20),
        rollout(0.0, 5, reference=20),
    ]
    assert given("length-group", *rollouts) == pytest.approx([0, -0.25, -0.5, 0])
    assert given("length-group", *rollouts, arguments={"weight": 3, "power": 2}) == pytest.approx([0, -0.125, -0.25, 0])
    assert given("length-group", *rollouts, arguments={"base": "mean"}) == pytest.approx([0, -1 / 6, -0.5, 0])
    assert given("length-reference", *rollouts) == pytest.approx([-1 / 3, -1 / 3, -1, -0.5])
    assert given("length-kimi", *rollouts) == pytest.approx([0.5 - 5 / 45, 0.5 - 25 / 45, -0.5, 0])
    assert given("overlong", *rollouts, arguments={"buffer": 20}, max_tokens=50) == [0, 0, -1, 0]


def test_lead_rewards_right_attempts_by_their_standardised_length():
    """exp(-alpha z) with z = -1 and 1 for two right attempts; 0 for a wrong one."""
    found = given("length-lead", rollout(7.0, 10), rollout(7.0, 30), rollout(0.0, 20), arguments={"alpha": 0.5})
    assert found == pytest.approx([math.exp(0.5), math.exp(-0.5), 0])


def test_group_without_a_reference_has_no_reward_by_it():
    """A problem without a solution cannot be measured by its length: null, not 0."""
    assert given("length-reference", rollout(7.0, 10), rollout(0.0, 20)) == [None, None]


def test_cosine_has_the_command_lines_default_by_argument():
    """Short wrong answers cost most; with `wrong: [0, -0.5]`, as open-r1's command line has it, they cost nothing."""
    short = rollout(0.0, 0)
    assert given("length-cosine", short) == [-1]
    assert given("length-cosine", short, arguments={"wrong": [0.0, -0.5]}) == [0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>we show it</think> $x$", 1),
        ("<think>wir 证明 the 定理</think> so", 2 / 6),
        ("<think>$x=1$</think> so", 0),
    ],
)
def test_language_is_that_of_the_reasoning(text, expected):
    """The share of English words of the thought (each Han character is a word); a thought without words has none."""
    assert given("language", rollout(text=text)) == [pytest.approx(expected)]


def test_text_rewards_do_not_need_a_verdict():
    """Format is known of an unscored attempt too."""
    silent = rollout(None, reason="timeout")
    assert [given(name, silent) for name in ("format", "think-format", "boxed-format")] == [[1], [1], [1]]


def grpo(rewards):
    entry = {
        "model": "base/b", "problems": "problems/p", "grader": "arithmetic", "rewards": rewards, "unscored": "drop", "steps": 1,
    }  # fmt: skip
    return expand({"r": SMALL | {"grpo/g": entry}}).entries["grpo/g"]


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ({"grad": 1}, "Did you mean `grade`"),
        ({"overlong": 1}, "`overlong` needs `buffer`"),
        (
            {"overlong": {"bufer": 3}},
            "has the argument `bufer`; expected some of buffer, weight. Did you mean `buffer`",
        ),
        ({"outcome": {"preset": "best"}}, "the preset is 'best'; expected one of pure-success"),
        ({"language": {"language": "tlh"}}, "`language`: .*tlh"),
        ({"grade": {"weight": 1, "power": 2}}, "has the argument `power`; expected some of weight"),
    ],
)
def test_reward_that_cannot_be_is_refused(rewards, message):
    """Names and arguments are checked when the configuration is read."""
    with pytest.raises(RecipeError, match=message):
        grpo(rewards)


def test_every_reward_can_be_named_and_reads_what_an_attempt_has():
    """Arguments are tried on an attempt that has each field and property of a real one."""
    needed = {
        "grade-discounted": {"rate": 0.1},
        "outcome": {"preset": "success"},
        "length-lead": {"alpha": 0.1},
        "overlong": {"buffer": 4},
    }
    assert {name: grpo({name: needed.get(name, 1)}).rewards for name in REWARDS} == {
        name: {name: needed.get(name, 1)} for name in REWARDS
    }
    read = {name for name in dir(Submission) if not name.startswith("_")} - {"of", "answer_form"}
    assert read | {field.name for field in fields(Submission)} == {*vars(_TRIAL.rollouts[0].submission)}


def test_weight_is_a_number_or_one_of_the_arguments():
    """`{grade: 0.5}` and `{length-group: {weight: 0.5, power: 2}}` weigh a half; without a weight it is 1."""
    entry = grpo({"grade": 0.5, "length-group": {"weight": 0.5, "power": 2}, "length-lead": {"alpha": 1}})
    assert [weight(value) for value in entry.rewards.values()] == [0.5, 0.5, 1]
