"""One row of `responses` is an attempt at a problem, with why it stopped, its tokens and its cost.

How we differ:
1. Served weights and remote models are both asked through the journal: a kill loses only the calls in flight.
2. A failed attempt is a row with stop `error` and its reason, instead of a missing row or an empty solution.
3. A server that returns neither text nor reasoning has failed (`silent`). An empty solution is a text that was cut off,
   or one that came after reasoning.
4. Where many attempts were cut off or are empty, the log and the stamp say so, and what to change.
5. Attempts that others wrote, the problems' own solutions, and the rollouts of a training are responses too, so that
   graders can be tested on them.
"""

import re
from collections import Counter
from collections.abc import Iterator

import polars as pl

from proofmill.artifacts.jobs import Job, run
from proofmill.calls.calls import Spent
from proofmill.calls.exchange import Answer, Question, Questions
from proofmill.engines import opening
from proofmill.graders import judges
from proofmill.measures.notices import Notices
from proofmill.prompts import templates
from proofmill.recipes.entry_values import entry_from
from proofmill.runtime.progress import say
from proofmill.schema import references
from proofmill.schema.entries import Responses
from proofmill.schema.ids import digest
from proofmill.schema.kinds import ROLLOUTS
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import Reason, Stop
from proofmill.sources.loaders import SOURCES
from proofmill.text import statements
from proofmill.text.reasoning import CLOSE, OPEN, final_part


def questions(entry: Responses, job: Job) -> dict[str, Questions]:
    """The questions to the model: each problem, `attempts` times."""
    return {} if entry.taken else {entry.model: _questions(entry, job)}


def _questions(entry: Responses, job: Job) -> Questions:
    problems = job.parent(entry.problems).rows("problem", "statement")
    remote = kind_of(entry.model) == "api"
    model = job.declared[entry.model].id if remote else job.parent(entry.model).model
    system = (("system", templates.plain(entry.system)),) if entry.system else ()
    sampling = {
        "temperature": entry.temperature,
        "top_p": entry.top_p,
        "top_k": entry.top_k,
        "min_p": entry.min_p,
        "max_tokens": entry.max_tokens,
        "stop": tuple(entry.stop),
        "seed": entry.seed,
        "options": judges.options_of(job.declared[entry.model]) if remote else "",
        "logprobs": entry.logprobs,
    }

    def named_questions() -> Iterator[tuple[str, Question]]:
        for problem in problems:
            asked = ("user", templates.fill(entry.prompt, {"statement": problem["statement"]}))
            for attempt in range(entry.attempts):
                yield problem["problem"], Question(model, (*system, asked), sample=attempt, **sampling)

    return Questions(len(problems) * entry.attempts, named_questions)


def main(entry: Responses, job: Job) -> None:
    counts, spent, noticed = Counter(), Spent(), []
    engine = "api" if kind_of(entry.model) == "api" else job.engine  # for the stamp; it does not decide the rows
    if entry.taken:
        attempts = _rollouts if entry.rollouts else {"given": _given, "solutions": _solutions}[entry.model]
        rows = list(attempts(entry, job))
        job.finish(rows, Counter(row["reason"] for row in rows), spent=spent)
        return
    to_ask = _questions(entry, job)
    with opening.asking(job, entry.model) as ask:
        answers = ask(to_ask)

    def rows() -> Iterator[dict]:
        notices = Notices(entry.max_tokens)
        for (problem, question), answer in zip(to_ask.named(), spent.counted(answers), strict=True):
            counts[answer.stop] += 1
            reason = why_none(answer) if engine == "api" else answer.reason
            empty = reason == Reason.OK and not final_part(answer.text, answer.reasoning)
            notices.add(answer.stop, Reason.EMPTY if empty else reason, answer.tokens)
            yield {
                **_NO_WRITER,
                "response": digest(problem, question.key),
                "problem": problem,
                "attempt": question.sample,
                "text": answer.text,
                "reasoning": answer.reasoning,
                "stop": answer.stop,
                "reason": reason,
                "prompt_tokens": answer.prompt_tokens,
                "tokens": answer.tokens,
                "reasoning_tokens": answer.reasoning_tokens,
                "cost": answer.cost,
                "history": [{"role": role, "content": content} for role, content in question.messages],
            }
        noticed.extend(notices.sentences())

    job.finish(rows(), counts, spent=spent, engine=engine, notices=noticed)
    if noticed:
        say(job.name, ". ".join(noticed))


def why_none(answer: Answer) -> str:
    """The reason of a server's answer: what ended by itself and has no text but reasoning may have been cut by the server."""
    if answer.reason != Reason.OK or answer.stop != Stop.END:
        return answer.reason
    if not answer.text.strip():
        return Reason.UNANSWERED if answer.reasoning else Reason.SILENT
    unclosed = answer.text.lstrip().startswith(OPEN) and CLOSE not in answer.text
    return Reason.UNANSWERED if unclosed and answer.reasoning is None else answer.reason


# ------------------------------------------------------------------------------------------ attempts that exist already

_NO_WRITER = {"writer": None, "mark": None, "out_of": None}


def _given(entry: Responses, job: Job) -> Iterator[dict]:
    """The attempts that came with the kept problems."""
    kept = {row["problem"] for row in job.parent(entry.problems).rows("problem")}
    origin = references.origin_of("responses", entry, lambda name: job.parent(name).stamp["entry"])
    source = entry_from("problems", job.parent(origin).stamp["entry"])
    times: Counter[str] = Counter()
    for problem, attempt in SOURCES[source.source].attempts(source):
        if problem in kept:
            yield _taken(problem, attempt.text, times[problem], attempt.writer, attempt.tokens) | {
                "mark": attempt.mark,
                "out_of": attempt.out_of,
            }
            times[problem] += 1


def _solutions(entry: Responses, job: Job) -> Iterator[dict]:
    """The official solution of each problem that has one, as an attempt."""
    for row in job.parent(entry.problems).rows("problem", "solution"):
        if (row["solution"] or "").strip():
            yield _taken(row["problem"], row["solution"], 0, "official", None)


def _rollouts(entry: Responses, job: Job) -> Iterator[dict]:
    """The rollouts of a `grpo` on the kept problems; a response has the id of its rollout."""
    kept = {row["problem"] for row in job.parent(entry.problems).rows("problem")}
    rollouts = pl.read_parquet(job.parent(entry.model).weights() / ROLLOUTS)
    times: Counter[str] = Counter()
    for row in rollouts.iter_rows(named=True):
        if row["problem"] in kept:
            yield _taken(row["problem"], row["text"], times[row["problem"]], entry.model, row["tokens"]) | {
                "response": row["rollout"],
                "stop": row["stop"],
                "reason": Reason.OK,
                "reasoning": None,
                "history": [{"role": "user", "content": row["prompt"]}],
            }
            times[row["problem"]] += 1


def _taken(problem: str, text: str, attempt: int, writer: str | None, tokens: int | None) -> dict:
    return {
        **_NO_WRITER,
        "response": digest(problem, writer, attempt, text),
        "problem": problem,
        "attempt": attempt,
        "writer": writer,
        "text": text,
        "reasoning": None if text else "",  # without a text it was cut off while thinking (QED-Nano's run records)
        "stop": Stop.END if text else Stop.LENGTH,
        "reason": Reason.OK if is_attempt(text) or not text else Reason.NO_PROOF,
        "prompt_tokens": None,
        "tokens": tokens,
        "reasoning_tokens": None,
        "cost": 0.0,
        "history": [],
    }


_HEADING = re.compile(
    r"^\W*(?:(?:solution|proof)(?:\s+(?:sketch|outline|attempt))?|sketch|outline|answer)\W*$", re.IGNORECASE
)


def is_attempt(text: str) -> bool:
    """Whether a text attempts the problem. An empty text, or a mere heading such as "Solution Sketch", does not."""
    return bool(statements.tokens(text)) and not _HEADING.match(text.strip())


if __name__ == "__main__":
    run(main)
