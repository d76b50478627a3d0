"""Grade submissions with judge models by a rubric: one judge, or a jury that reconsiders while its members disagree.

From: QED-Nano's evaluation and its verifier in reinforcement learning (`verifier_api.py`); MathArena's jury
(normalizer, further rounds, minimum).

Differences from the original:
1. A verdict that cannot be parsed is retried. If it stays unparsable, the submission is unscored, with the reason. It
   never counts as 0.
2. If a judge's call fails for a transient reason, the submission stays unscored for now. No verdict is formed without
   that judge; the next run repeats the call and continues from there.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

from proofmill.answers import extraction
from proofmill.calls.dialogues import Ask, Dialogue, together, until_read
from proofmill.calls.model_requests import ModelOutput, Talk, build_prompt_request, build_request, options_of, total
from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Opinion, Verdict, read
from proofmill.prompts import escapes, templates
from proofmill.prompts.templates import Prompt
from proofmill.schema.entries.declared import Grader
from proofmill.schema.fields import GRADER_PROMPT
from proofmill.schema.reasons import ABSENT, TRANSIENT, UNPARSED, Reason, StopReason
from proofmill.text.reasoning import without_evaluation

STAGE = 1_000  # sample numbers that each stage of a cascade reserves for a judge

# Functions that merge several grades into one.
MERGES: dict[str, Callable[[list[float]], float]] = {
    "mean": statistics.fmean, "median": statistics.median, "min": min, "max": max,
}  # fmt: skip


class Ruling(NamedTuple):
    """The decision of one stage of a cascade."""

    verdict: Verdict
    split: bool = False  # the judges disagree at the end


# --------------------------------------------------------------------------------------------------------------- a jury


@dataclass(frozen=True)
class Sitting:
    """The judges of one grader and the submission they grade.

    `stage` is the prefix of the rounds' names: empty at first, `escalated ` in the second stage of a cascade.
    `judgement` is then the text of the first grader. With `schemes`, a prompt that can show a scheme does not grade a
    submission without one.
    """

    grader: Grader
    submission: Submission
    declared: Mapping[str, Any]  # models `api/...` by name
    schemes: bool = False
    stage: str = ""
    judgement: str | None = None

    @cached_property
    def prompt(self) -> Prompt:
        return templates.prompt(self.grader.prompt or GRADER_PROMPT)

    @cached_property
    def fields(self) -> dict[str, str | None]:
        """Values of the fields that the prompt may show."""
        final = self.submission.final
        if self.grader.self_evaluation == "removed":
            final = without_evaluation(final) or final
        return {
            "statement": self.submission.statement,
            "scheme": self.submission.scheme,
            "reference": self.submission.reference if self.grader.show_reference else None,
            "answer": self.submission.answer,
            "judgement": self.judgement,
            "proof": extraction.excerpt(final) if self.prompt.compares_answers else final,
        }

    @property
    def absent(self) -> str | None:
        """The first field that grading needs and that has no value; None if all have one."""
        if missing := self.prompt.absent(self.fields):
            return missing
        if self.schemes and "scheme" in self.prompt.optional and not self.submission.scheme:
            return "scheme"
        if self.grader.show_reference and not (self.submission.reference or "").strip():
            return "reference"
        return None

    def report_unscored(self, reason: Reason) -> Verdict:
        return Verdict(None, int(max(self.prompt.scale)), reason)

    def judge(self, seat: int, talk: Talk) -> Dialogue:
        """Return the outputs of the judge at a position in the jury in one round; retry while the last is unparsable."""
        name = self.grader.judges[seat]
        keys = [self._alike(judge) for judge in self.grader.judges]
        # The same request at another seat, turn or stage gets another sample number.
        first = STAGE * self.stage.count("escalated") + keys[:seat].count(keys[seat])

        def ask(turn: int) -> Ask:
            return Ask(name, build_request(self.declared[name], talk, first + turn * keys.count(keys[seat])))

        return until_read(ask, lambda answer: read(answer, self.prompt).reason in UNPARSED, self.grader.parse_retries)

    def _alike(self, judge: str) -> tuple:
        """Return a key that is equal for two names of one judge: the same model with the same settings."""
        api = self.declared[judge]
        return api.id, api.temperature, api.max_tokens, options_of(api)

    def normalize(self, name: str) -> Dialogue:
        """Return the output of a normalizer: the proof in a neutral style."""
        (answer,) = yield [Ask(name, build_prompt_request(self.declared[name], "normalize", self.fields))]
        return answer


def jury(sitting: Sitting) -> Dialogue:
    """Return the ruling of one or several judges. Repeat rounds until they agree or no round is left."""
    grader, paid, opinions = sitting.grader, [], []
    if absent := sitting.absent:
        return Ruling(sitting.report_unscored(ABSENT[absent]))
    fields = sitting.fields
    if grader.normalizer:
        answer = yield from sitting.normalize(grader.normalizer)
        paid.append(answer)
        if reason := _not_normalized(answer):
            opinion = Opinion(grader.normalizer, f"{sitting.stage}normalizer", None, reason)
            return Ruling(sitting.report_unscored(reason).with_calls(paid, [opinion]))
        fields = {**fields, "proof": answer.text}
    talks: list[Talk | None] = [(("user", sitting.prompt.render(fields)),)] * len(grader.judges)
    verdicts = [sitting.report_unscored(Reason.NO_VERDICT)] * len(talks)
    for round in range(1, grader.rounds + 2):
        replies = yield from (_one_round if grader.ask == "all" else _in_turn)(sitting, talks)
        paid += [answer for turns in replies.values() for answer in turns]
        verdicts = [read(replies[n][-1], sitting.prompt) if n in replies else old for n, old in enumerate(verdicts)]
        opinions += [
            Opinion(grader.judges[n], f"{sitting.stage}{round}", v.grade, v.reason, v.text if len(talks) > 1 else "")
            for n, v in enumerate(verdicts)
            if n in replies
        ]
        if failed := next((v.reason for v in verdicts if v.reason in TRANSIENT), None):
            return Ruling(sitting.report_unscored(failed).with_calls(paid, opinions))
        split = _disagree(verdicts, grader.max_spread)
        if len(talks) == 1 or (split is False):
            break
        talks = _reconsidering(talks, {n: turns[-1] for n, turns in replies.items()})
    return Ruling(_merge(grader, verdicts).with_calls(paid, opinions), bool(split))


def _one_round(sitting: Sitting, talks: Sequence[Talk | None]) -> Dialogue:
    """Return all outputs of each judge that has a conversation, by its position in the jury."""
    seated = {seat: talk for seat, talk in enumerate(talks) if talk is not None}
    replies = yield from together([sitting.judge(seat, talk) for seat, talk in seated.items()])
    return dict(zip(seated, replies, strict=True))


def _in_turn(sitting: Sitting, talks: Sequence[Talk | None]) -> Dialogue:
    """Return the outputs as `_one_round` does, of as many judges as can change the verdict."""
    replies: dict[int, list[ModelOutput]] = {}
    for seat, talk in enumerate(talks):
        verdicts = [read(turns[-1], sitting.prompt) for turns in replies.values()]
        if talk is not None and not _is_settled(sitting, verdicts):
            replies[seat] = yield from sitting.judge(seat, talk)
    return replies


def _is_settled(sitting: Sitting, verdicts: list[Verdict]) -> bool:
    """Return whether the other judges cannot change the verdict, or a judge was not reached and is asked by the next run."""
    scale, none = sitting.prompt.scale, sitting.report_unscored(Reason.NO_VERDICT)
    missing = [[none, *(replace(none, grade=grade, reason=Reason.OK) for grade in (min(scale), max(scale)))]]
    merged = [
        _merge(sitting.grader, [*verdicts, *rest])
        for rest in product(*missing * (len(sitting.grader.judges) - len(verdicts)))
    ]
    unreached = any(verdict.reason in TRANSIENT for verdict in verdicts)
    return unreached or len({(verdict.grade, verdict.reason) for verdict in merged}) == 1


def _not_normalized(answer: ModelOutput) -> Reason | None:
    """Return why the normalizer's output holds no proof; None if it holds one."""
    if answer.reason != Reason.OK:
        return Reason(answer.reason)
    return None if answer.stop_reason == StopReason.END and answer.text.strip() else Reason.NOT_NORMALIZED


def _disagree(verdicts: Sequence[Verdict], spread: float) -> bool | None:
    """Return whether grades are further apart than `spread`; None without grades."""
    grades = [verdict.grade for verdict in verdicts if verdict.grade is not None]
    return max(grades) - min(grades) > spread if grades else None


def _reconsidering(talks: Sequence[Talk | None], last: Mapping[int, ModelOutput]) -> list[Talk | None]:
    """Return the conversations of the next round, in which each judge that replied sees the texts of the others."""
    texts = {seat: answer.text for seat, answer in last.items() if answer.reason == Reason.OK}
    next_talks: list[Talk | None] = []
    for seat, talk in enumerate(talks):
        if talk is None or seat not in texts:
            next_talks.append(None)
            continue
        shown = escapes.in_blocks("judgement", (text for n, text in texts.items() if n != seat))
        own = escapes.without_control_tokens(texts[seat])
        next_talks.append((*talk, ("assistant", own), ("user", templates.fill("reconsider", {"others": shown}))))
    return next_talks


def _merge(grader: Grader, verdicts: Sequence[Verdict]) -> Verdict:
    """Merge the verdicts of the last round into one; without a grade if fewer than `quorum` judges gave one."""
    if len(verdicts) == 1:
        return verdicts[0]
    grades = [verdict.grade for verdict in verdicts if verdict.grade is not None]
    if len(grades) < grader.quorum:
        reason = Reason.NO_QUORUM if grades else next(v.reason for v in verdicts if v.grade is None)
        return Verdict(None, verdicts[0].max_points, reason)
    grade = float(MERGES[grader.reduce](grades))
    text = next((verdict.text for verdict in verdicts if verdict.grade == grade), "")
    return Verdict(grade, verdicts[0].max_points, Reason.OK, text)


def together_with(first: Verdict, last: Verdict) -> Verdict:
    """Return the later verdict of a cascade with the cost and the opinions of both."""
    return replace(
        last,
        cost=total((first.cost, last.cost)),
        tokens=first.tokens + last.tokens,
        prompt_tokens=first.prompt_tokens + last.prompt_tokens,
        opinions=first.opinions + last.opinions,
    )
