"""One row of `grades` is a verdict on a response: a mark, or none with the reason (QED-Nano, grading sections 2 to 4).

How we differ:
1. A verdict that cannot be read, or is off the scale, is `grade = null` with the reason. It is never 0.
2. The last verdict in the judge's answer counts, checked against the scale that was offered.
3. A response that is empty, or was cut off while thinking, is 0 with the reason `empty`, and costs no call.
4. The same code marks benchmarks and rewards reinforcement learning, so both mean the same by a mark.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from proofmill import arithmetic, engines, judges, kinds
from proofmill.calls import Question, Questions, Spent
from proofmill.jobs import Job, run
from proofmill.journal import Answer
from proofmill.tables import PASSING, TableError

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


Scripts = Callable[[], Iterable[tuple[str, Script]]]  # (response, script), read anew each time


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
            self._asker = self._stack.enter_context(engines.asking(self.job, self.grader))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def __call__(self, scripts: Sequence[Script], quiet: bool = False) -> list[Verdict]:
        """A verdict for each script, in order."""
        return list(self.verdicts(lambda: (("", script) for script in scripts), quiet))

    def verdicts(self, scripts: Scripts, quiet: bool = False) -> Iterator[Verdict]:
        """A verdict for each script, in order; a judge is asked for all of them before the first is given."""
        asked = self.questions(scripts)
        answers = iter(self._asker(asked, quiet) if len(asked) else ())
        return (self._without_asking(script) or read_points(next(answers)) for _, script in scripts())

    def questions(self, scripts: Scripts) -> Questions:
        """What a judge is asked for the scripts that a program cannot settle."""

        def asked() -> Iterator[tuple[str, Question]]:
            api = self.job.apis[self.grader]
            for row, s in scripts():
                if self._without_asking(s) is None:
                    fields = {"statement": s.statement, "scheme": s.scheme, "proof": s.final, "answer": s.answer}
                    yield row, judges.question(api, judges.fill(self.prompt, fields))

        return Questions(sum(self._without_asking(script) is None for _, script in scripts()), asked)

    def _without_asking(self, script: Script) -> Verdict | None:
        if script.reason != "ok":  # there is no response to grade: it failed, was refused, or did not fit
            return Verdict(None, FULL_MARKS, script.reason)
        if not script.final:
            return Verdict(0.0, FULL_MARKS, "empty")
        if self.grader == "arithmetic":
            return _check_lines(script)
        if "scheme" in judges.fields_of(self.prompt) and not script.scheme:
            return Verdict(None, FULL_MARKS, "no-scheme")
        return None


def _check_lines(script: Script) -> Verdict:
    problem = arithmetic.read(script.statement)
    if problem is None:
        return Verdict(None, FULL_MARKS, "no-verdict", "not a problem of the arithmetic family")
    return Verdict(float(arithmetic.check(problem, script.final, answer_only=True).marks()), FULL_MARKS, "ok")


def scripts_of(entry: kinds.Grades, job: Job) -> Scripts:
    """Responses joined with their problems and schemes, read anew each time; TableError when a problem is missing."""
    responses = job.parent(entry.responses)
    problems = {
        row["problem"]: row
        for row in job.parent(problems_of(job, entry.responses)).stream("problem", "statement", "answer")
    }
    schemes = dict(_schemes(entry, job))
    missing = {row["problem"] for row in responses.stream("problem")} - set(problems)
    if missing:
        raise TableError(
            f"{entry.responses}: {len(missing)} problems are not in {problems_of(job, entry.responses)}, such as {min(missing)}; "
            "expected responses to its rows. Make the responses again."
        )

    def scripts() -> Iterator[tuple[str, Script]]:
        for r in responses.stream("response", "problem", "text", "reasoning", "stop", "reason"):
            asked, scheme = problems[r["problem"]], schemes.get(r["problem"])
            text, rest = r["text"] or "", (r["reasoning"], r["stop"], r["reason"])
            yield r["response"], Script(asked["statement"], asked["answer"], scheme, text, *rest)

    return scripts


def _schemes(entry: kinds.Grades, job: Job) -> Iterator[tuple[str, str | None]]:
    rows = job.parent(entry.schemes).stream("problem", "scheme") if entry.schemes else ()
    return ((row["problem"], row["scheme"]) for row in rows)


def problems_of(job: Job, responses: str) -> str:
    """The problems table that a responses table was made from."""
    return job.parent(responses).stamp["entry"]["problems"]


def questions(entry: kinds.Grades, job: Job) -> Questions:
    """What a judge is asked about each response."""
    return Grader(entry.grader, entry.prompt, job).questions(scripts_of(entry, job))


def main(entry: kinds.Grades, job: Job) -> None:
    scripts, counts, spent = scripts_of(entry, job), Counter(), Spent()
    with Grader(entry.grader, entry.prompt, job) as grader:
        verdicts = grader.verdicts(scripts)
    graded = job.parent(entry.responses).stream("response", "problem", "attempt", "stop")

    def rows() -> Iterator[dict]:
        for r, (_, s), v in zip(graded, scripts(), verdicts, strict=True):
            counts[v.reason] += 1
            spent.add(v.cost if v.reason not in PASSING else v.cost or 0.0, v.tokens)
            yield {
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

    job.finish(rows(), counts, spent=spent)


if __name__ == "__main__":
    run(main)
