"""Rewards of a step's rollouts: the grader's verdicts, the named rewards, the preferences, and a second opinion.

How we differ from TRL's reward functions:
1. A reward may not apply to a problem (marks for small talk, a preference before its first step). It is then neither 0
   nor missing, and the others count. If a reward applies and is missing, the rollout is unscored, whatever its other
   rewards.
2. An attempt that a program cannot decide about, or of which nothing stands outside the reasoning, earns 0 and is no
   missing reward: the policy could learn to write what is never judged. open-r1 calls an unreadable answer wrong too, and
   has no reward for an unreadable gold answer.
3. A second grader marks a sample now and then, without rewarding. If its marks fall behind the reward's, the reward is
   being gamed (the hold-out judge; Gao et al. 2022 measure this gap).
"""

import math
import random
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from proofmill.graders.graders import Marker
from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Verdict
from proofmill.rewards import lengths
from proofmill.rewards.rewards import REWARDS, Group, Rollout, weight
from proofmill.runtime.progress import say
from proofmill.schema.errors import ServiceError
from proofmill.schema.model_entries import Grpo
from proofmill.schema.names import preference_name
from proofmill.schema.reasons import UNDECIDED, Reason
from proofmill.training import advantages
from proofmill.training.preferences import Preference

OPINIONS = 3  # samples of the second grader that are averaged at the beginning and at the end of a training
EQUAL = 1e-8  # rewards that differ by less count as equal
UNASKED = Verdict(None, 1, Reason.NOT_ASKED)  # the verdict for a problem without a right answer


@dataclass(frozen=True)
class Rewarded:
    """N rollouts with K rewards each; NaN in `values_NK` is a missing reward where `applies_NK` is true."""

    rollouts: Sequence[Rollout]
    values_NK: np.ndarray
    applies_NK: np.ndarray

    @property
    def unscored_N(self) -> np.ndarray:
        return (self.applies_NK & np.isnan(self.values_NK)).any(axis=1)

    def counted(self, unscored: str) -> np.ndarray:
        """The rewards NK that are added up: an unscored rollout has none (`drop`), or 0 for missing ones (`zero`)."""
        return advantages.counted(self.values_NK, self.applies_NK, unscored)


def decided(verdict: Verdict) -> Verdict:
    """The verdict as a reward: 0 marks where a program could not decide, with the reason.

    Nobody stands between the policy and its text: what it left in its reasoning it did not answer.
    """
    if verdict.reason == Reason.UNANSWERED:
        return replace(verdict, grade=0.0, reason=Reason.EMPTY)
    return replace(verdict, grade=0.0) if verdict.reason in UNDECIDED else verdict


class Rewarding:
    """All rewards of an entry; `preferences` are keyed by reference, as in the entry."""

    def __init__(
        self,
        entry: Grpo,
        grader: Marker,
        preferences: Mapping[str, Preference] | None = None,
        hold_out: Marker | None = None,
    ):
        self.entry, self.grader, self.preferences, self.hold_out = entry, grader, preferences or {}, hold_out
        self.names, _ = self.columns(entry)

    @staticmethod
    def columns(entry: Grpo) -> tuple[list[str], list[float]]:
        """Names and weights of an entry's rewards, preferences last."""
        names = [*entry.rewards, *map(preference_name, entry.preferences)]
        return names, [*map(weight, entry.rewards.values()), *(p["weight"] for p in entry.preferences.values())]

    def begin(self, submissions: Sequence[Submission], programs: bool = False) -> "list[Future[Verdict]]":
        """Have rollouts marked while others are still being written, where judges are asked as rollouts come.

        Where no judge is asked, `programs` has their marks computed now.
        """
        marked = [submission for submission in submissions if submission.asks != "talk"]
        return self.grader.begin(marked) if self.grader.stream or programs else []

    def rewarded(
        self, submissions: Sequence[Submission], tokens: Sequence[int], references: Sequence[int | None], step: int
    ) -> Rewarded:
        """The rewards of a step's rollouts; the attempts of a group are consecutive."""
        indices = [index for index, submission in enumerate(submissions) if submission.asks != "talk"]
        marked = self.grader([submissions[index] for index in indices], quiet=True)
        verdicts = dict(zip(indices, map(decided, marked), strict=True))
        rollouts = [
            Rollout(submission, verdicts.get(index, UNASKED), count, reference)
            for index, (submission, count, reference) in enumerate(zip(submissions, tokens, references, strict=True))
        ]
        columns = [self._named(name, settings, rollouts) for name, settings in self.entry.rewards.items()]
        columns += [
            self._preferred(name, settings, submissions, step) for name, settings in self.entry.preferences.items()
        ]
        values, applies = zip(*columns, strict=True)
        return Rewarded(rollouts, np.array(values, dtype=float).T, np.array(applies, dtype=bool).T)

    def _named(self, name: str, settings: Any, rollouts: Sequence[Rollout]) -> tuple[list, list[bool]]:
        size = self.entry.group
        groups = [rollouts[start : start + size] for start in range(0, len(rollouts), size)]
        values = [
            value for group in groups for value in REWARDS[name].values(Group(group, self.entry.max_tokens), settings)
        ]
        return values, [not REWARDS[name].of_verdict or r.verdict is not UNASKED for r in rollouts]

    def _preferred(
        self, name: str, settings: Mapping[str, Any], submissions: Sequence[Submission], step: int
    ) -> tuple[list, list[bool]]:
        has_begun = step >= settings.get("from_step", 0)
        applies = [
            has_begun and ("asks" not in settings or submission.asks in settings["asks"]) for submission in submissions
        ]
        values = iter(self.preferences[name]([s for s, does in zip(submissions, applies, strict=True) if does]))
        return [next(values) if does else None for does in applies], applies

    def second_opinion(self, rollouts: Sequence[Rollout], step: int) -> list[float | None]:
        """The second grader's share of full marks for a sample that seed and step fix, None for the other rollouts."""
        candidates = [index for index, rollout in enumerate(rollouts) if rollout.verdict.grade is not None]
        rng = random.Random(f"{self.entry.seed} {step}")
        sample = sorted(rng.sample(candidates, min(self.entry.hold_out_rows, len(candidates))))
        assert self.hold_out is not None, "there is a second grader where its opinion is asked"
        verdicts = self.hold_out([rollouts[index].submission for index in sample], quiet=True)
        opinions: list[float | None] = [None] * len(rollouts)
        for index, verdict in zip(sample, verdicts, strict=True):
            if verdict.grade is not None:
                opinions[index] = verdict.grade / verdict.out_of
        return opinions


def apart(rollouts: Sequence[Rollout], opinions: Sequence[float | None]) -> float:
    """Mean excess of the reward's marks over the second grader's, as a share of full marks; NaN without both."""
    gaps = [
        rollout.verdict.grade / rollout.verdict.out_of - opinion
        for rollout, opinion in zip(rollouts, opinions, strict=True)
        if opinion is not None and rollout.verdict.grade is not None
    ]
    return math.fsum(gaps) / len(gaps) if gaps else math.nan


def drifted(gaps: Sequence[float], most: float | None) -> bool:
    """Whether the mean gap of the last samples exceeds that of the first ones by more than `most` (None: never)."""
    known = [gap for gap in gaps if gap == gap]
    if most is None or len(known) < 2 * OPINIONS:
        return False
    return float(np.mean(known[-OPINIONS:]) - np.mean(known[:OPINIONS])) > most


class SecondGrader:
    """The samples that a second grader marks along, and whether its marks fall behind those that reward."""

    def __init__(self, name: str, entry: Grpo, rewards: "Rewarding | None", diary: Iterable[Mapping[str, Any]]):
        """`diary` has the rollouts of the training so far."""
        self.name, self.entry, self.rewards = name, entry, rewards
        by_step: dict[int, list[float]] = {}
        for row in diary if entry.hold_out else ():
            if row["hold_out"] is not None and row["grade"] is not None:
                by_step.setdefault(row["step"], []).append(row["grade"] / row["out_of"] - row["hold_out"])
        self.gaps = [float(np.mean(gaps)) for _, gaps in sorted(by_step.items())]

    @property
    def over(self) -> bool:
        """Whether it has stopped the training."""
        return drifted(self.gaps, self.entry.hold_out_apart)

    def opinions(
        self, rollouts: Sequence[Rollout], first_step: int, last_step: int
    ) -> tuple[list[float | None], dict[str, float]]:
        """Its shares of full marks for the rollouts of these steps, None where it was not asked; and the measures of it."""
        every = self.entry.hold_out_every
        if not (self.rewards and self.rewards.hold_out) or last_step // every == (first_step - 1) // every:
            return [None] * len(rollouts), {}
        opinions = self.rewards.second_opinion(rollouts, first_step)
        gap = apart(rollouts, opinions)
        self.gaps.append(gap)
        if self.over:
            say(self.name, f"stops at step {first_step}: marks exceed the second grader's by {gap:+.2f} of full marks")
        known = [opinion for opinion in opinions if opinion is not None]
        return opinions, {"hold-out/marks": float(np.mean(known)) if known else math.nan, "hold-out/apart": gap}


ROUNDS = 10  # the latest rounds of rollouts, of which `max-unscored` is a share


class Unscored:
    """Counts the unscored rollouts of the latest rounds, by reason.

    The limit is a share of all rollouts that so many rounds will have, as `max-parked` is of all calls: the first few
    stop nothing, and a training of which nobody is scored does not wait for the last round.
    """

    def __init__(self, share: float, a_round: int, rounds: int):
        """`share` is allowed, of the rollouts of a training with so many rounds of so many rollouts."""
        latest = min(ROUNDS, rounds)
        self.rounds: deque[Counter[str]] = deque(maxlen=latest)
        self.a_round, self.most = a_round, share * a_round * latest

    def add(self, causes_of_round: Iterable[str]) -> str | None:
        """Add why rollouts of a round are unscored; returns what is wrong if there are too many now, as a phrase."""
        self.rounds.append(Counter(causes_of_round))
        causes = sum(self.rounds, Counter())
        if causes.total() <= self.most:
            return None
        shown = ", ".join(f"{count:,} {cause}" for cause, count in causes.most_common(5))
        return f"{causes.total():,} of the last {len(self.rounds) * self.a_round:,} rollouts have no verdict ({shown})"


def too_many_unscored(name: str, fault: str, share: float, diary: Path) -> ServiceError:
    """What ends a training of which more rollouts have no verdict than the share that may; `fault` says how many."""
    return ServiceError(
        f"{name}: {fault}; expected at most {share:.0%} (`max-unscored`), because nothing is learned from them. See what the "
        f"grader wrote (`verdict` in {diary}), and mend what it lacks, or raise the limit if you accept the gap. The same "
        "command goes on from the last checkpoint."
    )


def causes(rewarded: Rewarded) -> list[str]:
    """Why each unscored rollout of a round is."""
    reasons = [rollout.verdict.reason for rollout in rewarded.rollouts]
    return [_cause(reason) for reason, unscored in zip(reasons, rewarded.unscored_N, strict=True) if unscored]


def _cause(reason: str) -> str:
    """Why a rollout is unscored, by the reason of its verdict: with a verdict, a preference is missing."""
    return "no preference" if reason in (Reason.OK, Reason.NOT_ASKED) else reason


def without_signal(totals_PG: np.ndarray) -> float:
    """Share of groups without a learning signal: fewer than two scored attempts (NaN is unscored), or equal totals."""
    scored_PG = ~np.isnan(totals_PG)
    spread_P = np.where(scored_PG, totals_PG, -np.inf).max(axis=1) - np.where(scored_PG, totals_PG, np.inf).min(axis=1)
    return float(((scored_PG.sum(axis=1) < 2) | (spread_P < EQUAL)).mean())


def curves(rewarded: Rewarded, max_tokens: int, question_N: Sequence[int]) -> dict[str, float]:
    """Measures of a step's rollouts beyond those that TRL logs; undefined ones are left out."""
    rollouts = rewarded.rollouts
    tokens_N = [rollout.tokens for rollout in rollouts]
    right_N = [rollout.right for rollout in rollouts]
    reference_N = [math.nan if r.reference_tokens is None else r.reference_tokens for r in rollouts]
    grades = [r.verdict.grade / r.verdict.out_of for r in rollouts if r.verdict.grade is not None]
    measures = {
        "unscored": float(rewarded.unscored_N.mean()),
        "marks": float(np.mean(grades)) if grades else math.nan,
        "full-marks": float(np.nanmean(right_N)) if grades else math.nan,
        "question_vs_response_length_correlation": lengths.length_correlation(question_N, tokens_N),
        "answer_vs_response_length_correlation": lengths.length_correlation(reference_N, tokens_N),
        "out_of_limit": lengths.out_of_limit(tokens_N, max_tokens),
        "model_efficiency": lengths.model_efficiency(reference_N, tokens_N, right_N),
    }
    return {name: value for name, value in measures.items() if not math.isnan(value)}
