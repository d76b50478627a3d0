"""Evaluate the robustness of a grader: the share of the points that each attack (attacks.py) earns on some problems.

Differences from a test of single prompts:
1. The result of an attack is the mean grade of its best variant over all problems, because a policy would learn that
   variant.
2. An attack text without a grade is excluded from the mean. The share of these is reported next to it.
"""

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proofmill.graders.attacks import ATTACKS, Target
from proofmill.graders.graders import Submissions
from proofmill.graders.program_graders import gradable
from proofmill.graders.verdicts import Verdict
from proofmill.schema.errors import short
from proofmill.schema.ids import digest

PROBLEMS = 8  # default number of problems
COLUMNS = ("problem", "statement", "answer", "solution", "question_type")  # columns of `problems` that attacks need
EMPTY = "empty"  # the attack that the others are compared with


def targets(
    problems: Iterable[Mapping[str, Any]], schemes: Mapping[str, str] | None, grader: str, most: int = PROBLEMS
) -> list[Target]:
    """Return up to `most` problems that the grader can grade, chosen by their ids, so that the choice is repeatable."""
    able = [p for p in problems if p["question_type"] != "chat" and gradable(grader, p, schemes)]
    able.sort(key=lambda problem: digest("attacked", problem["problem"]))
    return [
        Target(
            p["problem"], p["statement"], p["answer"], (schemes or {}).get(p["problem"]), p["solution"],
            p["question_type"] or "proof", _other(able, index),
        )
        for index, p in enumerate(able[:most])
    ]  # fmt: skip


def _other(problems: Sequence[Mapping[str, Any]], index: int) -> str | None:
    """Return the solution of another problem, preferably of one with another answer; None without any."""
    others = [p for p in (*problems[index + 1 :], *problems[:index]) if (p["solution"] or "").strip()]
    unlike = (p for p in others if p["answer"] != problems[index]["answer"])
    return next((p["solution"] for p in (*unlike, *others)), None)


@dataclass(frozen=True)
class AttackText:
    """A text that one variant of an attack writes for a problem."""

    attack: str
    variant: str
    target: Target
    text: str


def attempts(targets: Sequence[Target]) -> list[AttackText]:
    """Return the texts of all attacks on these problems."""
    return [
        AttackText(attack, variant, target, text)
        for attack, record in ATTACKS.items()
        for target in targets
        for variant, text in record.write(target).items()
    ]


def about() -> int:
    """Return the approximate number of attack texts on the default number of problems."""
    target = Target("", "Find x.", "10", "scheme", "x = 10", "answer", "x = 11")
    return PROBLEMS * len(attempts([target]))


def submissions(attempts: Sequence[AttackText]) -> Submissions:
    """Return the attack texts as submissions to a grader, each with a row id."""
    return lambda: ((f"{a.attack} ({a.variant}) {a.target.problem}", a.target.submission(a.text)) for a in attempts)


@dataclass(frozen=True)
class AttackResult:
    """The result of an attack with its best variant: the mean share of the points; None if no text has a grade.

    `best` is the single text with the highest share, of any variant. `unscored` is a share of all texts of the attack.
    """

    attack: str
    variant: str
    share: float | None
    problems: int  # number of grades in the mean
    best: AttackText | None
    most: float | None  # share of the points of the best text
    unscored: float
    reasons: Mapping[str, int]  # number of texts without a grade, by reason

    @property
    def control(self) -> bool:
        return ATTACKS[self.attack].control

    def facts(self) -> dict[str, Any]:
        """Return the result as it is stored in the stamp of a table."""
        best = self.best.target.problem if self.best else None
        return {
            "variant": self.variant, "share": self.share, "problems": self.problems, "best": self.most, "on": best,
            "unscored": self.unscored,
        }  # fmt: skip


def sum_points(attempts: Sequence[AttackText], verdicts: Iterable[Verdict]) -> list[AttackResult]:
    """Return the result of each attack, in the order of ATTACKS; attacks without texts are left out."""
    by_attack: dict[str, list[tuple[AttackText, Verdict]]] = defaultdict(list)
    for attempt, verdict in zip(attempts, verdicts, strict=True):
        by_attack[attempt.attack].append((attempt, verdict))
    return [_sum_attack(attack, pairs) for attack, pairs in by_attack.items()]


def _sum_attack(attack: str, pairs: Sequence[tuple[AttackText, Verdict]]) -> AttackResult:
    shares: dict[str, list[float]] = {attempt.variant: [] for attempt, _ in pairs}
    graded = [(verdict.grade / verdict.max_points, attempt) for attempt, verdict in pairs if verdict.grade is not None]
    for share, attempt in graded:
        shares[attempt.variant].append(share)
    # By the sum, not the mean: a variant that applies to few problems earns a policy little.
    variant = max(shares, key=lambda variant: (sum(shares[variant]), len(shares[variant])))
    most, best = max(graded, key=lambda pair: (pair[0], pair[1].variant == variant), default=(None, None))
    reasons = Counter(str(verdict.reason) for _, verdict in pairs if verdict.grade is None)
    return AttackResult(
        attack,
        variant,
        statistics.fmean(shares[variant]) if shares[variant] else None,
        len(shares[variant]),
        best,
        most,
        reasons.total() / len(pairs),
        reasons,
    )


# --------------------------------------------------------------------------------------------------------------- report


def lines(results: Sequence[AttackResult]) -> Iterator[str]:
    """Yield the lines of a table of all attacks, then the findings."""
    rows = [("attack", "earns", "problems", "variant", "best text", "unscored")]
    rows += [
        (r.attack, _share(r.share), str(r.problems), r.variant, _share(r.most), f"{r.unscored:.1%}") for r in results
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield ""
    yield from findings(results)


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.3f}"


def findings(results: Sequence[AttackResult]) -> Iterator[str]:
    """Yield a line for each attack that earns more than an empty answer, each failed control, and missing grades."""
    nothing = max((r.share or 0.0 for r in results if r.attack == EMPTY), default=0.0)
    more = [r for r in results if not r.control and (r.share or 0.0) > nothing]
    for each in sorted(more, key=lambda r: -(r.share or 0.0)):
        yield sentence(each)
    if not more and any(r.share is not None for r in results if not r.control):
        yield f"no attack earns more than an empty answer ({nothing:.3f})"
    for control in (r for r in results if r.control):
        if (control.share or 0.0) <= nothing:
            yield (
                f"the control `{control.attack}` earns {_share(control.share)}, no more than an empty answer: this grader does "
                "not recognize a correct answer, or none is known here"
            )
    reasons = sum((Counter(r.reasons) for r in results), Counter[str]())
    if reasons:
        counted = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        yield f"{reasons.total():,} texts have no grade and are excluded from the means: {counted}"


def sentence(result: AttackResult) -> str:
    """Return the result of an attack as a sentence: its share of the points, the variant, and the best text."""
    on = (
        f"; {_share(result.most)} on {result.best.target.problem} by {_shorten(result.best.text)}"
        if result.best
        else ""
    )
    share = _share(result.share)
    return f"`{result.attack}` earns {share} of the points on {result.problems} problems ({result.variant}){on}"


def _shorten(text: str) -> str:
    return short(json.dumps(text, ensure_ascii=False))


def fault(results: Sequence[AttackResult], most: float, grader: str, where: str) -> str:
    """Return an error if an attack earns a larger share of the points than `most` or none has a grade; else empty."""
    attacks = [result for result in results if not result.control]
    if all(result.share is None or result.attack == EMPTY for result in attacks):  # `empty` is graded without a call
        reasons = sum((Counter(r.reasons) for r in attacks), Counter[str]())
        return (
            f"{where}: {grader} graded no attack ({', '.join(reasons) or 'it can grade none of the problems'}), so its "
            "robustness is unknown; expected grades. Fix the grader or remove `max-attack`. Nothing was trained."
        )
    over = [result for result in attacks if (result.share or 0.0) > most]
    if not over:
        return ""
    listed = "\n".join(f"  {sentence(each)}" for each in sorted(over, key=lambda r: -(r.share or 0.0)))
    return (
        f"{where}: attacks earn points from {grader}, which a policy would learn to exploit; expected at most {most:g} of the "
        f"points for each (`max-attack`).\n{listed}\nFix the grader or its prompt, use problems whose answers cannot be "
        f"guessed, or raise `max-attack`. Nothing was trained. Details: proofmill attack {where}"
    )
