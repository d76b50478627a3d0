"""Rewards of a step's rollouts: the grader's verdicts, the named rewards, the preferences, and the audit grader's grades.

Differences from TRL's reward functions:
1. Some rewards are not defined for a problem (a grade for small talk, a preference before its first step). Such a reward
   is neither 0 nor missing, and the others count. If a reward applies and is missing, the rollout is unscored, whatever its other
   rewards.
2. A rollout that a program cannot decide, or that has no text outside the reasoning, earns 0; the reward is not missing.
   Otherwise the policy could learn to write what is never graded. open-r1 also counts an unreadable answer as wrong, and
   has no reward for an unreadable reference answer.
3. An audit grader grades a sample at intervals, without rewarding. If its grades fall behind the reward's, the policy is
   exploiting the reward (Gao et al. 2022 measure this gap).
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

from proofmill.graders.graders import SubmissionGrader
from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Verdict
from proofmill.rewards import lengths
from proofmill.rewards.rewards import REWARDS, Rollout, RolloutGroup, weight
from proofmill.runtime.progress import log
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.errors import ServiceError
from proofmill.schema.names import preference_name
from proofmill.schema.reasons import UNDECIDED, Reason
from proofmill.text import reflection
from proofmill.training import advantages
from proofmill.training.preferences import PreferenceModel

AVERAGED_AUDITS = 3  # samples of the audit grader that are averaged at the start and at the end of a training
EQUAL = 1e-8  # rewards that differ by less count as equal
UNASKED = Verdict(None, 1, Reason.NOT_ASKED)  # the verdict for a problem without a correct answer


@dataclass(frozen=True)
class Rewarded:
    """N rollouts with K rewards each; NaN in `values_NK` is a missing reward where `applies_NK` is true."""

    rollouts: Sequence[Rollout]
    values_NK: np.ndarray
    applies_NK: np.ndarray

    @property
    def unscored_N(self) -> np.ndarray:
        return (self.applies_NK & np.isnan(self.values_NK)).any(axis=1)

    def mask_uncounted(self, unscored: str) -> np.ndarray:
        """Return the rewards NK that count: none for an unscored rollout (`drop`), or 0 for missing ones (`zero`)."""
        return advantages.mask_uncounted(self.values_NK, self.applies_NK, unscored)


def decide(verdict: Verdict) -> Verdict:
    """Return the verdict as a reward: the grade 0 if a program could not decide, with the reason.

    An answer that the policy left in its reasoning does not count.
    """
    if verdict.reason == Reason.REASONING_ONLY:
        return replace(verdict, grade=0.0, reason=Reason.EMPTY)
    return replace(verdict, grade=0.0) if verdict.reason in UNDECIDED else verdict


class Rewarding:
    """All rewards of an entry; `preferences` are keyed by reference, as in the entry."""

    def __init__(
        self,
        entry: Grpo,
        grader: SubmissionGrader,
        preferences: Mapping[str, PreferenceModel] | None = None,
        audit: SubmissionGrader | None = None,
    ):
        self.entry, self.grader, self.preferences, self.audit = entry, grader, preferences or {}, audit
        self.names, _ = self.columns(entry)

    @staticmethod
    def columns(entry: Grpo) -> tuple[list[str], list[float]]:
        """Return names and weights of an entry's rewards, preferences last."""
        names = [*entry.rewards, *map(preference_name, entry.preferences)]
        return names, [*map(weight, entry.rewards.values()), *(p["weight"] for p in entry.preferences.values())]

    def begin(self, submissions: Sequence[Submission], programs: bool = False) -> "list[Future[Verdict]]":
        """Start grading rollouts while others are still being sampled, if judges take requests at any time.

        With `programs`, start it for program graders too.
        """
        graded = [submission for submission in submissions if submission.question_type != "chat"]
        return self.grader.begin(graded) if self.names and (self.grader.stream or programs) else []

    def reward(
        self, submissions: Sequence[Submission], tokens: Sequence[int], references: Sequence[int | None], step: int
    ) -> Rewarded:
        """Compute the rewards of a step's rollouts; those of a group are consecutive. Without rewards, nothing is graded."""
        indices = [i for i, submission in enumerate(submissions) if self.names and submission.question_type != "chat"]
        graded = self.grader([submissions[index] for index in indices], quiet=True)
        verdicts = dict(zip(indices, map(decide, graded), strict=True))
        rollouts = [
            Rollout(submission, verdicts.get(index, UNASKED), count, reference)
            for index, (submission, count, reference) in enumerate(zip(submissions, tokens, references, strict=True))
        ]
        columns = [self._score_named(name, settings, rollouts) for name, settings in self.entry.rewards.items()]
        columns += [
            self._score_preference(name, settings, submissions, step)
            for name, settings in self.entry.preferences.items()
        ]
        shape = (len(columns), len(rollouts))
        values_KN = np.array([values for values, _ in columns], dtype=float).reshape(shape)
        applies_KN = np.array([applies for _, applies in columns], dtype=bool).reshape(shape)
        return Rewarded(rollouts, values_KN.T, applies_KN.T)

    def _score_named(self, name: str, settings: Any, rollouts: Sequence[Rollout]) -> tuple[list, list[bool]]:
        size = self.entry.group_size
        groups = [rollouts[start : start + size] for start in range(0, len(rollouts), size)]
        values = [
            value
            for group in groups
            for value in REWARDS[name].values(RolloutGroup(group, self.entry.max_tokens), settings)
        ]
        applies = REWARDS[name].applies
        return values, [applies(r.verdict is not UNASKED, r.reference_tokens is not None) for r in rollouts]

    def _score_preference(
        self, name: str, settings: Mapping[str, Any], submissions: Sequence[Submission], step: int
    ) -> tuple[list, list[bool]]:
        has_begun = step >= settings.get("from_step", 0)
        applies = [
            has_begun and ("question_types" not in settings or submission.question_type in settings["question_types"])
            for submission in submissions
        ]
        values = iter(self.preferences[name]([s for s, does in zip(submissions, applies, strict=True) if does]))
        return [next(values) if does else None for does in applies], applies

    def sample_audit(self, rollouts: Sequence[Rollout], step: int) -> list[float | None]:
        """Return the audit grader's share of all points for a sample fixed by seed and step, None for other rollouts."""
        candidates = [index for index, rollout in enumerate(rollouts) if rollout.verdict.grade is not None]
        rng = random.Random(f"{self.entry.seed} {step}")
        sample = sorted(rng.sample(candidates, min(self.entry.audit_rows, len(candidates))))
        assert self.audit is not None, "there is an audit grader"
        verdicts = self.audit([rollouts[index].submission for index in sample], quiet=True)
        audited: list[float | None] = [None] * len(rollouts)
        for index, verdict in zip(sample, verdicts, strict=True):
            if verdict.grade is not None:
                audited[index] = verdict.grade / verdict.max_points
        return audited


def audit_gap(rollouts: Sequence[Rollout], audited: Sequence[float | None]) -> float:
    """Return the mean excess of the reward's grades over the audit grader's, as a share of all points; NaN without both."""
    gaps = [
        rollout.verdict.grade / rollout.verdict.max_points - share
        for rollout, share in zip(rollouts, audited, strict=True)
        if share is not None and rollout.verdict.grade is not None
    ]
    return math.fsum(gaps) / len(gaps) if gaps else math.nan


def has_drifted(gaps: Sequence[float], most: float | None) -> bool:
    """Return whether the mean gap of the last samples exceeds that of the first by more than `most` (None: never)."""
    known = [gap for gap in gaps if gap == gap]
    if most is None or len(known) < 2 * AVERAGED_AUDITS:
        return False
    return float(np.mean(known[-AVERAGED_AUDITS:]) - np.mean(known[:AVERAGED_AUDITS])) > most


class AuditGrader:
    """The samples of the audit grader, and whether its grades fall behind the reward's."""

    def __init__(self, name: str, entry: Grpo, rewards: "Rewarding | None", kept_rollouts: Iterable[Mapping[str, Any]]):
        """Take the rollouts of the training so far."""
        self.name, self.entry, self.rewards = name, entry, rewards
        by_step: dict[int, list[float]] = {}
        for row in kept_rollouts if entry.audit else ():
            if row["audit"] is not None and row["grade"] is not None:
                by_step.setdefault(row["step"], []).append(row["grade"] / row["max_points"] - row["audit"])
        self.gaps = [float(np.mean(gaps)) for _, gaps in sorted(by_step.items())]

    @property
    def over(self) -> bool:
        """True once the audit grader has stopped the training."""
        return has_drifted(self.gaps, self.entry.audit_gap)

    def audit(
        self, rollouts: Sequence[Rollout], first_step: int, last_step: int
    ) -> tuple[list[float | None], dict[str, float]]:
        """Return its shares of all points for the rollouts of these steps, None if not called, and its metrics."""
        every = self.entry.audit_every
        if not (self.rewards and self.rewards.audit) or last_step // every == (first_step - 1) // every:
            return [None] * len(rollouts), {}
        audited = self.rewards.sample_audit(rollouts, first_step)
        gap = audit_gap(rollouts, audited)
        self.gaps.append(gap)
        if self.over:
            log(self.name, f"stops at step {first_step}: grades exceed the audit grader's by {gap:+.2f} of all points")
        known = [share for share in audited if share is not None]
        return audited, {"audit/grade": float(np.mean(known)) if known else math.nan, "audit/gap": gap}


ROUNDS = 10  # the latest rollout batches, of which `max-unscored` is a share


class Unscored:
    """Counts the unscored rollouts of the latest rollout batches, by reason.

    The limit is a share of the rollouts of ROUNDS batches, even if there were fewer so far. So a few unscored rollouts at
    the start do not stop a training, and one without any scored rollout stops early.
    """

    def __init__(self, share: float, a_round: int, rounds: int):
        """Allow `share` of the rollouts of a training with `rounds` rollout batches of `a_round` rollouts."""
        latest = min(ROUNDS, rounds)
        self.rounds: deque[Counter[str]] = deque(maxlen=latest)
        self.a_round, self.most = a_round, share * a_round * latest

    def add(self, causes_of_round: Iterable[str], further: bool = False) -> str | None:
        """Add the reasons of a batch's unscored rollouts; return a phrase for an error if there are too many now.

        `further` rollouts belong to the batch before.
        """
        if not further:
            self.rounds.append(Counter())
        self.rounds[-1].update(causes_of_round)
        causes = sum(self.rounds, Counter())
        if causes.total() <= self.most:
            return None
        shown = ", ".join(f"{count:,} {cause}" for cause, count in causes.most_common(5))
        return f"{causes.total():,} of the last {len(self.rounds) * self.a_round:,} rollouts have no verdict ({shown})"


def too_many_unscored(name: str, fault: str, share: float, kept_rollouts: Path) -> ServiceError:
    """Build the error of a training with more rollouts without a verdict than `share`; `fault` is the count."""
    return ServiceError(
        f"{name}: {fault}; expected at most {share:.0%} (`max-unscored`). Read the "
        f"grader's output (`verdict` in {kept_rollouts}) and fix the cause, or raise the limit. Rerun the same "
        "command to resume from the last checkpoint."
    )


def causes(rewarded: Rewarded) -> list[str]:
    """Return the reason of each unscored rollout of a batch."""
    reasons = [rollout.verdict.reason for rollout in rewarded.rollouts]
    return [_cause(reason) for reason, unscored in zip(reasons, rewarded.unscored_N, strict=True) if unscored]


def _cause(reason: str) -> str:
    """Return why a rollout is unscored, by the reason of its verdict: with a verdict, a preference is missing."""
    return "no preference" if reason in (Reason.OK, Reason.NOT_ASKED) else reason


def curves(rewarded: Rewarded, max_tokens: int, question_N: Sequence[int]) -> dict[str, float]:
    """Return metrics of a step's rollouts beyond those that TRL logs; undefined ones are left out."""
    rollouts = rewarded.rollouts
    tokens_N = [rollout.tokens for rollout in rollouts]
    right_N = [rollout.right for rollout in rollouts]
    reference_N = [math.nan if r.reference_tokens is None else r.reference_tokens for r in rollouts]
    grades = [r.verdict.grade / r.verdict.max_points for r in rollouts if r.verdict.grade is not None]
    metrics = {
        "unscored": float(rewarded.unscored_N.mean()),
        "grade": float(np.mean(grades)) if grades else math.nan,
        "solved": float(np.nanmean(right_N)) if grades else math.nan,
        "question_vs_response_length_correlation": lengths.length_correlation(question_N, tokens_N),
        "answer_vs_response_length_correlation": lengths.length_correlation(reference_N, tokens_N),
        "near_limit": lengths.near_limit(tokens_N, max_tokens),
        "model_efficiency": lengths.model_efficiency(reference_N, tokens_N, right_N),
        "reflective_words": float(np.mean([reflection.count(rollout.submission.text) for rollout in rollouts])),
    }
    return {name: value for name, value in metrics.items() if not math.isnan(value)}
