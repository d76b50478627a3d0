"""Rewards by name: a number for each attempt of a group; a recipe weighs several: `{grade: 1, format: 0.1}`.

A weight may be a mapping with the reward's arguments: `{length-group: {weight: 0.5, power: 2}}`. A reward by the
grader's verdict is None without a verdict: with `unscored: drop` such an attempt gets no gradient and does not enter its
group's mean. An attempt that a program could not decide (`unparsable`) has the grade 0; otherwise unreadable output
would pay.

From: QED-Nano, open-r1's rewards, DeepSeek-R1 (language consistency), the GSM8K length study, Kimi k1.5, GRPO-LEAD,
DAPO; lengths.py, format_checks.py and languages.py say where each differs from its source.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from proofmill.rewards import format_checks, lengths
from proofmill.rewards.lengths import RIGHT_RANGE, WRONG_RANGE
from proofmill.schema.reasons import UNDECIDED, Reason, StopReason
from proofmill.text import languages
from proofmill.text.reasoning import thought_or_all
from proofmill.text.suggestions import among


@dataclass(frozen=True)
class Rollout:
    """The input of a reward: the attempt and its end, the grader's verdict, and the attempt's length in tokens."""

    submission: Any  # submissions.Submission
    verdict: Any  # verdicts.Verdict
    tokens: int
    reference_tokens: int | None = None  # of the official solution

    @property
    def right(self) -> float:
        """1 for all points, 0 for less, NaN without a verdict."""
        return math.nan if self.verdict.grade is None else float(self.verdict.grade == self.verdict.max_points)


@dataclass(frozen=True)
class RolloutGroup:
    """The attempts at one problem in one step, and the maximum tokens of an attempt."""

    rollouts: Sequence[Rollout]
    max_tokens: int

    @property
    def tokens_G(self) -> list[int]:
        return [rollout.tokens for rollout in self.rollouts]

    @property
    def right_G(self) -> list[float]:
        return [rollout.right for rollout in self.rollouts]


@dataclass(frozen=True)
class Reward:
    """`apply` takes a group and the arguments by name, and returns a number or None for each attempt."""

    apply: Callable[..., Iterable[float | None]]
    doc: str
    arguments: Mapping[str, Any] = field(default_factory=dict)  # name: default; None must be given
    of_verdict: bool = False  # the reward exists only where a verdict is asked for
    of_reference: bool = False  # the reward exists only for problems with a reference solution

    def applies(self, asked: Any, referenced: Any) -> Any:
        """Return whether the reward exists for an attempt, or for arrays of them: with a verdict and a reference or not."""
        return (asked | (not self.of_verdict)) & (referenced | (not self.of_reference))

    def fault(self, name: str, config: Any) -> str | None:
        """Return what is wrong with the weight or the arguments in a recipe, or None."""
        named = config if isinstance(config, Mapping) else {}
        if unknown := set(named) - {"weight", *self.arguments}:
            known = among(min(unknown), ["weight", *self.arguments])
            return f"`{name}` has the argument `{min(unknown)}`; expected some of {known}"
        if missing := [key for key, default in self.arguments.items() if default is None and key not in named]:
            return f"`{name}` needs `{missing[0]}`; expected `{{{name}: {{weight: 1, {missing[0]}: ...}}}}`."
        try:
            if not math.isfinite(weight(config)):
                return f"`{name}` weighs {weight(config)}; expected a number."
            self.values(_TRIAL, config)
        except (TypeError, ValueError) as error:
            return f"`{name}`: {error}"
        return None

    def values(self, group: RolloutGroup, config: Any) -> list[float | None]:
        """Return the rewards of a group, one for each attempt, with the arguments in a recipe."""
        named = {key: value for key, value in config.items() if key != "weight"} if isinstance(config, Mapping) else {}
        values = self.apply(group, **{**self.arguments, **named})
        return [None if value is None or value != value else float(value) for value in values]


def _trial(grade: float, tokens: int) -> Rollout:
    submission = SimpleNamespace(  # the fields of submissions.Submission
        **{"text": "<think>a b</think> c", "final": "c", "reasoning": None, "well_formed": True, "unanswered": False},
        **{"statement": "a?", "answer": "c", "scheme": None, "reference": "c", "question_type": "answer"},
        **{"stop_reason": StopReason.END, "reason": Reason.OK, "grade": None, "max_points": None},
    )
    return Rollout(submission, SimpleNamespace(grade=grade, max_points=7, reason=Reason.OK), tokens, 2)


# A right and a wrong attempt, on which arguments are tried.
_TRIAL = RolloutGroup([_trial(7.0, 2), _trial(0.0, 3)], 4)


def weight(config: Any) -> float:
    """Return the factor of a reward in the weighted sum."""
    return float(config.get("weight", 1.0) if isinstance(config, Mapping) else config)


def each(value: Callable[..., float | None]) -> Callable[..., list[float | None]]:
    """Make a reward of a function of one attempt."""
    return lambda group, **arguments: [value(rollout, **arguments) for rollout in group.rollouts]


# ------------------------------------------------------------------------------------------------------- by the verdict


def _grade(rollout: Rollout) -> float | None:
    verdict = rollout.verdict
    return None if verdict.grade is None else verdict.grade / verdict.max_points


def _reward_solved(rollout: Rollout) -> float | None:
    return None if rollout.verdict.grade is None else rollout.right


def _reward_thresholded(rollout: Rollout) -> float | None:
    """Apply QED-Nano's `custom_reward_threshold`: grades from 1 to below 6 (of 7) count as 1."""
    grade, max_points = rollout.verdict.grade, rollout.verdict.max_points
    if grade is None:
        return None
    return (1 if 1 <= grade < 6 else grade) / max_points


def _reward_discounted(rollout: Rollout, rate: float) -> float | None:
    grade = _grade(rollout)
    return None if grade is None else grade * float(lengths.discount([rollout.tokens], rate)[0])


# (finished, not finished) for each outcome; QED-Nano's tables.
OUTCOMES: dict[str, dict[str, tuple[float, float]]] = {
    "pure-success": {"correct": (1, 1), "wrong": (0, 0), "no-answer": (0, 0), "unparsable": (0, 0)},
    "success": {"correct": (1, 0.5), "wrong": (0, 0), "no-answer": (0, 0), "unparsable": (0, 0)},
    "success-and-format": {"correct": (1, 0), "wrong": (0, 0), "no-answer": (0, 0), "unparsable": (0, 0)},
    "format": {"correct": (1, 1), "wrong": (1, 1), "no-answer": (0, 0), "unparsable": (0, 0)},
    "base": {"correct": (1, -1), "wrong": (-0.5, -1), "no-answer": (-1, -1), "unparsable": (-1, -1)},
    "alex": {"correct": (1, 0.5), "wrong": (-0.5, -1), "no-answer": (-1, -1), "unparsable": (-1, -1)},
    "dima": {"correct": (1, 0.5), "wrong": (-1, 0), "no-answer": (-1, 0), "unparsable": (-1, -1)},
}
NO_OUTCOME = {Reason.NO_ANSWER: "no-answer", Reason.EMPTY: "no-answer"} | dict.fromkeys(UNDECIDED, "unparsable")


def _outcome(rollout: Rollout, preset: str) -> float | None:
    verdict = rollout.verdict
    if verdict.grade is None:
        return None
    outcome = NO_OUTCOME.get(verdict.reason, "correct" if rollout.right else "wrong")
    return OUTCOMES[preset][outcome][rollout.submission.stop_reason != StopReason.END]


def _outcomes(group: RolloutGroup, preset: str) -> list[float | None]:
    if preset not in OUTCOMES:
        raise ValueError(f"the preset is {preset!r}; expected one of {', '.join(OUTCOMES)}.")
    return [_outcome(rollout, preset) for rollout in group.rollouts]


# -------------------------------------------------------------------------------------------------------- by the length


def _to_reference(group: RolloutGroup) -> Iterable[float]:
    """Return the tokens of the reference; a group has one problem, hence one reference."""
    reference = group.rollouts[0].reference_tokens if group.rollouts else None
    return lengths.reference_penalty(group.tokens_G, group.right_G, reference, 1.0)


def _in_group(group: RolloutGroup, power: float, base: str | float) -> Iterable[float]:
    return lengths.group_penalty(group.tokens_G, group.right_G, 1.0, power, base)


def _lead(group: RolloutGroup, alpha: float) -> Iterable[float]:
    return lengths.lead_reward(group.tokens_G, group.right_G, alpha)


def _kimi(group: RolloutGroup) -> Iterable[float]:
    return lengths.kimi_reward(group.tokens_G, group.right_G)


def _cosine(group: RolloutGroup, right: Sequence[float], wrong: Sequence[float]) -> Iterable[float]:
    right_range, wrong_range = ((ends[0], ends[1]) for ends in (right, wrong))
    return lengths.cosine_reward(group.tokens_G, group.right_G, group.max_tokens, right_range, wrong_range)


def _overlong(group: RolloutGroup, buffer: int) -> Iterable[float]:
    return lengths.soft_overlong(group.tokens_G, group.max_tokens, min(buffer, group.max_tokens))


# ---------------------------------------------------------------------------------------------------------- by the text


def _language(rollout: Rollout, language: str) -> float | None:
    """Return the share of words in the language, in the reasoning or else all of the text; 0 for a text without words."""
    text = rollout.submission.text
    return languages.consistency(thought_or_all(text), language, wordless=0.0)


def _languages(group: RolloutGroup, language: str) -> list[float | None]:
    languages.consistency("", language)  # raises ValueError for an unknown language
    return [_language(rollout, language) for rollout in group.rollouts]


def _of_text(value: Callable[..., float]) -> Callable[..., list[float | None]]:
    return each(lambda rollout, **arguments: value(rollout.submission.text, **arguments))


REWARDS: dict[str, Reward] = {
    "grade": Reward(each(_grade), "the grade as a share of all points", of_verdict=True),
    "solved": Reward(each(_reward_solved), "1 for all points, else 0", of_verdict=True),
    "grade-thresholded": Reward(
        each(_reward_thresholded),
        "the grade of 7 points in three steps: below 1, 1 (for 1 to 5), 6 and 7",
        of_verdict=True,
    ),
    "grade-discounted": Reward(
        each(_reward_discounted),
        "the grade as a share, times `rate` to the power of the tokens",
        {"rate": None},
        of_verdict=True,
    ),
    "outcome": Reward(
        _outcomes,
        f"of a final answer, by whether it is right and ended: {', '.join(OUTCOMES)}",
        {"preset": "pure-success"},
        of_verdict=True,
    ),
    "format": Reward(
        each(lambda rollout: float(rollout.submission.well_formed)),
        "1 for closed reasoning, one box and an end, else 0",
    ),
    "think-format": Reward(
        _of_text(format_checks.FORMS["think-format"]),
        "1 for one block of reasoning at the beginning and an answer after it",
    ),
    "boxed-format": Reward(
        _of_text(format_checks.FORMS["boxed-format"]), "the same with exactly one box in the answer"
    ),
    "answer-format": Reward(
        _of_text(format_checks.FORMS["answer-format"]), "1 for R1's think and answer tags, once each and nothing around"
    ),
    "tag-count": Reward(_of_text(format_checks.tag_count), "a quarter for each of R1's four tags that occurs once"),
    "reasoning-steps": Reward(_of_text(format_checks.reasoning_steps), "a third for each sign of a step, at most 1"),
    "repetition": Reward(
        _of_text(lambda text, n: format_checks.repetition_penalty(text, n)),
        "minus the share of repeated n-grams of words",
        {"n": 3},
    ),
    "language": Reward(_languages, "share of the words of the reasoning that are in the language", {"language": "en"}),
    "length-reference": Reward(
        _to_reference,
        "minus the distance from the reference's length, by the group's largest",
        of_verdict=True,
        of_reference=True,
    ),
    "length-group": Reward(
        _in_group,
        "minus the excess over the shortest right attempt (or `median`, `mean`, a quantile of them), times the share that is "
        "right to the `power`",
        {"power": 1.0, "base": "shortest"},
        of_verdict=True,
    ),
    "length-lead": Reward(
        _lead,
        "exp(-alpha z) of right attempts' standardised lengths, 0 for wrong ones",
        {"alpha": None},
        of_verdict=True,
    ),
    "length-kimi": Reward(_kimi, "0.5 for the shortest to -0.5 for the longest; wrong ones at most 0", of_verdict=True),
    "length-cosine": Reward(
        _cosine,
        "right ones lose, wrong ones regain with their length, along a cosine; `wrong: [0, -0.5]` is open-r1's command line",
        {"right": RIGHT_RANGE, "wrong": WRONG_RANGE},
        of_verdict=True,
    ),
    "overlong": Reward(_overlong, "0 down to -1 over the last `buffer` tokens before the limit", {"buffer": None}),
}
