"""Attack graders of others: a reward function, or a task of inspect_ai, by the attacks of this project.

    proofmill attack --reward trl.rewards:accuracy_reward
    proofmill attack --reward my/rewards.py:reward --python env/bin/python --problems problems.jsonl
    proofmill attack --task inspect_evals/gsm8k

A reward function is called as TRL, open-r1 and others do: lists of `completions`, `prompts`, `solution`, `answer` and more.
The largest of its values, or 1, is all points. None and NaN have no grade; an exception costs the text that raised it.
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from proofmill.foreign import children, inspect_tasks
from proofmill.foreign.children import ChildError
from proofmill.graders import robustness
from proofmill.graders.attacks import Target
from proofmill.graders.robustness import AttackResult, AttackText
from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Verdict
from proofmill.schema.entries.problem_entries import Problems
from proofmill.schema.errors import SettingError
from proofmill.schema.reasons import Reason
from proofmill.sources.loaders import SOURCES

CHILD = Path(children.__file__).with_name("reward_child.py")
# Problems with short answers of several forms, if no others are given.
PROBLEMS = (
    ("What is $12 \\cdot 7$?", "84"),
    ("Compute $\\frac{3}{4} - \\frac{1}{4}$.", "\\frac{1}{2}"),
    ("What is the positive solution of $x^2 = 8$?", "2\\sqrt{2}"),
    ("Solve $x^2 - 3x < 0$; give an interval.", "(0, 3)"),
    ("Find all real $x$ with $x^2 = 5x - 6$.", "2, 3"),
    ("Expand $(a + b)^2$.", "a^2 + 2ab + b^2"),
    ("What is $-3^2$?", "-9"),
    ("How many primes are below $20$?", "8"),
)


def attack_reward(
    reference: str, python: str | None, problems: Path | None, rows: int, talk: bool
) -> list[AttackResult]:
    """Test a reward function with attacks. Raises SettingError if it cannot be called at all."""
    attempts = robustness.attempts(_targets(problems, rows))

    def call(some: Sequence[AttackText]) -> list[Any]:
        texts = [
            {"text": a.text, "statement": a.target.statement, "answer": a.target.answer, "solution": a.target.reference}
            for a in some
        ]
        request = {"reference": reference, "rows": texts, "talk": talk}
        try:
            return children.run(python or sys.executable, CHILD, request)["rewards"]
        except ChildError as error:
            if len(some) > 1:
                return [value for part in (some[: len(some) // 2], some[len(some) // 2 :]) for value in call(part)]
            failures.append(str(error))
            return [None]

    failures: list[str] = []
    values = [None if value is None or math.isnan(value) else value for value in call(attempts)]
    if len(failures) == len(attempts):
        raise SettingError(
            f"--reward {reference}: fails for every text ({failures[0]}); expected module:function or file.py:function, for texts "
            "(--texts) or conversations."
        )
    most = max([1.0, *(value for value in values if value is not None)])
    verdicts = [
        Verdict(None, 1, Reason.NO_VERDICT) if value is None else Verdict(max(0.0, value) / most, 1, Reason.OK)
        for value in values
    ]
    return robustness.sum_points(attempts, verdicts)


def attack_task(name: str, path: Path | None, rows: int) -> list[AttackResult]:
    """Test the scorer of a task of inspect_ai, on its own samples."""
    entry = Problems(source="inspect-task", id=name, path=str(path) if path else None, rows=rows)
    samples = {row["problem"]: row for row in inspect_tasks.problems(entry)}
    targets = [_target(row["problem"], row["statement"], row["solution"], row["solution"]) for row in samples.values()]
    attempts = robustness.attempts(_with_others(targets))
    submissions = [
        Submission(a.target.statement, samples[a.target.problem]["answer"], None, a.text, question_type="answer")
        for a in attempts
    ]
    graded = inspect_tasks.grade(submissions)
    return robustness.sum_points(attempts, (Verdict(grade, 1, reason, text) for grade, reason, text in graded))


def _targets(problems: Path | None, rows: int) -> list[Target]:
    """Return the problems of a file with statements and answers, or those of this module."""
    if problems is None:
        listed: Iterator[Mapping[str, Any]] = (
            {"statement": statement, "answer": answer} for statement, answer in PROBLEMS
        )
    else:
        listed = SOURCES["table"].load(Problems(source="table", path=str(problems)))
    some = [row for _, row in zip(range(rows), listed, strict=False) if row.get("answer")]
    if not some:
        raise SettingError(f"--problems {problems}: has no answers; expected rows with `statement` and `answer`.")
    return _with_others(
        [_target(str(n), row["statement"], row["answer"], row.get("solution")) for n, row in enumerate(some)]
    )


def _target(problem: str, statement: str, answer: str | None, solution: str | None) -> Target:
    boxed = f"The answer is $\\boxed{{{answer}}}$."
    return Target(problem, statement, answer, None, solution if "\\boxed" in (solution or "") else boxed, "answer")


def _with_others(targets: Sequence[Target]) -> list[Target]:
    """Return the problems, each with the solution of the next one."""
    from dataclasses import replace

    return [
        replace(one, other=other.reference) for one, other in zip(targets, [*targets[1:], *targets[:1]], strict=True)
    ]
