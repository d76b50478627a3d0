"""One row of `grades` is a verdict on a response: a mark, or none with the reason (QED-Nano, grading sections 2 and 3).

How we differ:
1. A failure is `grade = null` with its reason, and each judge's opinion is kept beside the verdict they make together.
2. The final answer of a response stands beside its mark, so that majorities can be counted later.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from proofmill import answers, kinds
from proofmill.calls import Questions, Spent
from proofmill.graders import Grader, Scripts
from proofmill.jobs import Job, run
from proofmill.scripts import Script
from proofmill.tables import PASSING, TableError
from proofmill.verdicts import Verdict


def scripts_of(entry: kinds.Grades, job: Job) -> Scripts:
    """Responses joined with their problems and schemes, read anew each time; TableError when a problem is missing."""
    responses = job.parent(entry.responses)
    told = ("problem", "statement", "answer", "solution", "asks")
    problems = {row["problem"]: row for row in job.parent(problems_of(job, entry.responses)).stream(*told)}
    schemes = schemes_of(job, entry.schemes)
    missing = {row["problem"] for row in responses.stream("problem")} - set(problems)
    if missing:
        raise TableError(
            f"{entry.responses}: {len(missing)} problems are not in {problems_of(job, entry.responses)}, such as {min(missing)}; "
            "expected responses to its rows. Make the responses again."
        )

    def scripts() -> Iterator[tuple[str, Script]]:
        for r in responses.stream("response", "problem", "text", "reasoning", "stop", "reason", "mark", "out_of"):
            asked = problems[r["problem"]]
            yield (
                r["response"],
                Script(
                    asked["statement"],
                    asked["answer"],
                    schemes.get(r["problem"]),
                    r["text"] or "",
                    r["reasoning"],
                    r["stop"],
                    r["reason"],
                    asked["solution"],
                    asked["asks"] or "proof",
                    r["mark"],
                    r["out_of"],
                ),
            )

    return scripts


def schemes_of(job: Job, name: str | None) -> dict[str, str]:
    """The schemes to mark by, by problem: those that their table keeps."""
    rows = job.parent(name).rows("problem", "scheme") if name else ()
    return {row["problem"]: row["scheme"] for row in rows if row["scheme"]}


def problems_of(job: Job, responses: str) -> str:
    """The problems table that a responses table was made from."""
    return job.parent(responses).stamp["entry"]["problems"]


def grader_for(entry: kinds.Grades, job: Job) -> Grader:
    return Grader(entry.grader, entry.prompt, job, schemes=entry.schemes is not None)


def questions(entry: kinds.Grades, job: Job) -> dict[str, Questions]:
    """What each judge is asked about each response to begin with."""
    return {} if entry.grader == "human" else grader_for(entry, job).questions(scripts_of(entry, job)) or {}


def main(entry: kinds.Grades, job: Job) -> None:
    scripts = scripts_of(entry, job)
    if entry.grader == "human":
        _finish(entry, job, scripts, (_given(script) for _, script in scripts()))
        return
    with grader_for(entry, job) as grader:
        _finish(entry, job, scripts, grader.verdicts(scripts))


def _given(script: Script) -> Verdict:
    """The mark a human gave."""
    reason = script.reason if script.reason != "ok" else "ok" if script.mark is not None else "no-mark"
    return Verdict(script.mark if reason == "ok" else None, script.out_of or 0, reason)


def _finish(entry: kinds.Grades, job: Job, scripts: Scripts, verdicts: Iterator[Verdict]) -> None:
    counts, spent = Counter(), Spent()
    graded = job.parent(entry.responses).stream("response", "problem", "attempt", "stop")

    def rows() -> Iterator[dict]:
        for r, (_, s), v in zip(graded, scripts(), verdicts, strict=True):
            counts[v.reason] += 1
            spent.add(v.cost if v.reason not in PASSING else v.cost or 0.0, v.tokens)
            spent.failures += any(opinion.reason in PASSING for opinion in v.opinions)
            yield {
                "response": r["response"],
                "problem": r["problem"],
                "attempt": r["attempt"],
                "grade": v.grade,
                "out_of": v.out_of,
                "reason": v.reason,
                "well_formed": s.well_formed if s.reason == "ok" else None,
                "answer": answers.extract(s.final) if s.reason == "ok" else None,
                "stop": r["stop"],
                "verdict": v.text,
                "opinions": [asdict(opinion) for opinion in v.opinions],
                "prompt_tokens": v.prompt_tokens,
                "tokens": v.tokens,
                "cost": v.cost,
            }

    job.finish(rows(), counts, spent=spent)


if __name__ == "__main__":
    run(main)
