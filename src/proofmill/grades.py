"""One row of `grades` is a verdict on a response: a mark, or none with the reason (QED-Nano, grading sections 2 to 4).

How we differ:
1. A verdict that cannot be read, or is off the scale, is `grade = null` with the reason. It is never 0.
2. The last verdict in the judge's answer counts, checked against the scale that was offered.
3. A response that is empty, or was cut off while thinking, is 0 with the reason `empty`, and costs no call.
4. The same code marks benchmarks and rewards reinforcement learning, so both mean the same by a mark.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from proofmill import arithmetic, judges, kinds
from proofmill.calls import Answer, Journal, ask
from proofmill.engines import open_engine
from proofmill.jobs import Job, run
from proofmill.tables import TableError

FULL_MARKS = 7
POINTS = re.compile(r"<points[^>]*>(.*?)</points>", re.DOTALL)
NUMBER = re.compile(r"^\s*(-?\d+)(?:\s*(?:/|out of)\s*7)?\s*$")
# A heading that is nothing but "Evaluation", "Self-Evaluation" or "Final Evaluation". The original misses the hyphen, and
# takes "Evaluation of the integral" for one too.
SELF_EVALUATION = re.compile(r"^#+[ *]*(?:(?:Self|Final)[ *-]*){0,2}Evaluation[ *]*(?::.*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    grade: float | None
    out_of: int
    reason: str
    text: str = ""
    cost: float | None = 0.0
    tokens: int = 0


@dataclass(frozen=True)
class Script:
    """What is marked: the problem, its scheme and what was written."""

    statement: str
    answer: str | None
    scheme: str | None
    text: str
    reasoning: str | None = None
    stop: str = "end"
    reason: str = "ok"

    @property
    def final(self) -> str:
        """The part that is graded: after the reasoning, without the writer's own evaluation of it."""
        if self.reasoning is not None:
            text = self.text
        elif "</think>" in self.text:
            text = arithmetic.split_proof(self.text)
        else:
            text = "" if "<think>" in self.text else self.text  # cut off while thinking
        return SELF_EVALUATION.split(text)[0].strip()

    @property
    def well_formed(self) -> bool:
        """It ended by itself, its reasoning is closed, and its answer has exactly one box."""
        thought = self.reasoning is not None or (self.text.startswith("<think>") and self.text.count("</think>") == 1)
        return self.stop == "end" and thought and self.final.count("\\boxed{") == 1


def read_points(answer: Answer) -> Verdict:
    """The verdict in a judge's answer."""
    cost, tokens = answer.cost, answer.tokens
    if answer.reason != "ok":
        return Verdict(None, FULL_MARKS, answer.reason, answer.text or answer.detail, cost, tokens)
    found = POINTS.findall(answer.text)
    number = NUMBER.match(found[-1]) if found else None
    if number is None:
        return Verdict(None, FULL_MARKS, "no-verdict", answer.text, cost, tokens)
    if not 0 <= int(number[1]) <= FULL_MARKS:
        return Verdict(None, FULL_MARKS, "off-scale", answer.text, cost, tokens)
    return Verdict(float(number[1]), FULL_MARKS, "ok", answer.text, cost, tokens)


class Grader:
    """Marks scripts by a judge or by a program. A context manager: a judge's journal and engine are open inside it."""

    def __init__(self, grader: str, prompt: str, job: Job):
        self.grader, self.prompt, self.job = grader, prompt, job
        self._stack = ExitStack()

    def __enter__(self) -> "Grader":
        if kinds.kind_of(self.grader) == "api":
            self.api = self.job.apis[self.grader]
            self.engine = self._stack.enter_context(
                open_engine(self.grader, self.job.apis, self.job.table, self.job.engine, self.job.threads)
            )
            self.journal = self._stack.enter_context(Journal(self.job.table.calls))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def __call__(self, scripts: Sequence[Script], quiet: bool = False) -> list[Verdict]:
        """A verdict for each script, in order."""
        verdicts: list[Verdict | None] = [self._without_asking(script) for script in scripts]
        open_places = [place for place, verdict in enumerate(verdicts) if verdict is None]
        asked = [scripts[place] for place in open_places]
        for place, verdict in zip(open_places, self._ask(asked, quiet), strict=True):
            verdicts[place] = verdict
        return verdicts

    def _without_asking(self, script: Script) -> Verdict | None:
        if script.reason != "ok":  # there is no response to grade: it failed, was refused, or did not fit
            return Verdict(None, FULL_MARKS, script.reason)
        if not script.final:
            return Verdict(0.0, FULL_MARKS, "empty")
        if "scheme" in judges.fields_of(self.prompt) and kinds.kind_of(self.grader) == "api" and not script.scheme:
            return Verdict(None, FULL_MARKS, "no-scheme")
        return None

    def _ask(self, scripts: Sequence[Script], quiet: bool) -> list[Verdict]:
        if self.grader == "arithmetic":
            return [_check_lines(script) for script in scripts]
        if not scripts:
            return []
        questions = [
            judges.question(
                self.api,
                judges.fill(
                    self.prompt,
                    {"statement": s.statement, "scheme": s.scheme, "proof": s.final, "answer": s.answer},
                ),
            )
            for s in scripts
        ]
        answers = ask(self.journal, self.engine, questions, self.job.name, quiet)
        judges.check_failures(self.job.name, answers)
        return [read_points(answer) for answer in answers]


def _check_lines(script: Script) -> Verdict:
    problem = arithmetic.read(script.statement)
    if problem is None:
        return Verdict(None, FULL_MARKS, "no-verdict", "not a problem of the arithmetic family")
    return Verdict(float(arithmetic.check(problem, script.final, answer_only=True).marks()), FULL_MARKS, "ok")


def scripts_of(
    responses: Sequence[Mapping[str, Any]], problems: Sequence[Mapping], schemes: Sequence[Mapping]
) -> list[Script]:
    """Responses joined with their problems and schemes."""
    problem = {row["problem"]: row for row in problems}
    scheme = {row["problem"]: row["scheme"] for row in schemes}
    return [
        Script(
            problem[r["problem"]]["statement"],
            problem[r["problem"]]["answer"],
            scheme.get(r["problem"]),
            r["text"] or "",
            r["reasoning"],
            r["stop"],
            r["reason"],
        )
        for r in responses
    ]


def problems_of(job: Job, responses: str) -> str:
    """The problems table that a responses table was made from."""
    return job.parent(responses).stamp["entry"]["problems"]


def main(entry: kinds.Grades, job: Job) -> None:
    responses = job.parent(entry.responses).rows(
        "response", "problem", "attempt", "text", "reasoning", "stop", "reason"
    )
    problems = job.parent(problems_of(job, entry.responses)).rows("problem", "statement", "answer")
    schemes = job.parent(entry.schemes).rows("problem", "scheme") if entry.schemes else []
    if missing := {r["problem"] for r in responses} - {p["problem"] for p in problems}:
        raise TableError(
            f"{entry.responses}: {len(missing)} problems are not in {problems_of(job, entry.responses)}, such as {min(missing)}; "
            "expected responses to its rows. Make the responses again."
        )
    scripts = scripts_of(responses, problems, schemes)
    with Grader(entry.grader, entry.prompt, job) as grader:
        verdicts = grader(scripts)
    rows = [
        {
            "response": r["response"],
            "problem": r["problem"],
            "attempt": r["attempt"],
            "grade": v.grade,
            "out_of": v.out_of,
            "reason": v.reason,
            "well_formed": s.well_formed if s.reason == "ok" else None,
            "stop": r["stop"],
            "verdict": v.text,
            "cost": v.cost,
        }
        for r, s, v in zip(responses, scripts, verdicts, strict=True)
    ]
    costs = [v.cost for v in verdicts]
    job.finish(
        rows,
        Counter(v.reason for v in verdicts),
        cost=None if None in costs else round(sum(costs), 6),
        tokens=sum(v.tokens for v in verdicts),
    )


if __name__ == "__main__":
    run(main)
