"""Sample attempts at problems. One row is an attempt, with its stop reason, tokens and cost.

Differences from other samplers:
1. Calls to served weights and to remote models both go through the journal: a kill loses only the calls in flight.
2. A failed attempt is a row with stop `error` and its reason, instead of a missing row or an empty solution.
3. A server that returns neither text nor reasoning has failed (`no-output`). An empty solution is a truncated text, or an
   empty one after reasoning.
4. If many attempts are truncated or empty, the log and the stamp (metadata) warn about it and suggest a fix.
5. An attempt by a scaffold (scaffolds/) is one row, with each of its calls as a step. Its tokens and cost are the sums.
6. Attempts written by others, the problems' own solutions, and the rollouts of a training are responses too, so that
   graders can be tested on them.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import polars as pl

from proofmill.artifacts.jobs import Job, run
from proofmill.artifacts.joins import ById
from proofmill.artifacts.tables import Table
from proofmill.calls import runner
from proofmill.calls.calls import Spent
from proofmill.calls.dialogues import Ask, Begin, Dialogue, first_requests, together
from proofmill.calls.model_requests import ModelOutput, ModelRequest, Requests, build_request, options_of, why_none
from proofmill.config.entry_values import entry_from
from proofmill.engines import open_engine
from proofmill.estimation import sequential, stopping
from proofmill.graders.graders import SubmissionGrader
from proofmill.graders.submissions import OF_PROBLEM, Submission
from proofmill.graders.verdicts import Verdict
from proofmill.metrics.notices import Notices
from proofmill.prompts import templates
from proofmill.runtime.progress import log
from proofmill.scaffolds import scaffolds
from proofmill.scaffolds.scaffold_run import Played, Player, ScaffoldRun, Talk, run_scaffold
from proofmill.schema import references
from proofmill.schema.entries.response_entries import Responses
from proofmill.schema.fields import require
from proofmill.schema.ids import digest
from proofmill.schema.kinds import ROLLOUTS
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import TRANSIENT, Reason, StopReason
from proofmill.sources.loaders import SOURCES
from proofmill.text import statements
from proofmill.text.reasoning import final_part


def requests(entry: Responses, job: Job) -> dict[str, Requests]:
    """Return the requests by model: each problem, `attempts` times; for a scaffold, the first requests of each model."""
    if entry.scaffold is not None:
        return first_requests(_plays(entry, job))
    if entry.until is not None:
        return first_requests(_tries(entry, job, _grader(entry, job), _problems(entry, job)))
    return {} if entry.taken else {entry.model: _requests(entry, job)}


def _requests(entry: Responses, job: Job) -> Requests:
    problems = job.parent(entry.problems).rows("problem", "statement")
    prompt, player = templates.prompt(require(entry.prompt)), _player(entry, job, entry.model)
    system = (("system", templates.plain(entry.system)),) if entry.system else ()

    def name_requests() -> Iterator[tuple[str, ModelRequest]]:
        for problem in problems:
            asked = ("user", prompt.render({"statement": problem["statement"]}))
            for attempt in range(entry.attempts):
                yield problem["problem"], player.request((*system, asked), attempt)

    return Requests(len(problems) * entry.attempts, name_requests)


def _player(entry: Responses, job: Job, who: str) -> Player:
    """Return a player with the sampling of the entry; another remote model in a scaffold keeps its declared sampling."""
    remote = kind_of(who) == "api"
    if remote and who != entry.model:
        return Player(who, partial(build_request, job.declared[who]))
    given = [word for word in ("top_k", "min_p") if getattr(entry, word) is not None] + ["top_p"] * (entry.top_p != 1)
    model = job.declared[who].id if remote else job.parent(who).model_given(*given)
    sampling: dict[str, Any] = {
        "temperature": entry.temperature,
        "top_p": entry.top_p,
        "top_k": entry.top_k,
        "min_p": entry.min_p,
        "max_tokens": require(entry.max_tokens),
        "stop": tuple(entry.stop),
        "seed": entry.seed,
        "options": options_of(job.declared[who]) if remote else "",
        "logprobs": entry.logprobs,
    }
    return Player(who, lambda talk, sample: ModelRequest(model, talk, sample=sample, **sampling))


def main(entry: Responses, job: Job) -> None:
    counts: Counter[str] = Counter()
    spent, noticed = Spent(), []
    engine = "api" if kind_of(entry.model) == "api" else job.engine  # for the stamp; does not affect the rows
    if entry.taken:
        attempts = _rollouts if entry.rollouts else {"given": _read_given, "solutions": _solutions}[entry.model]
        taken = list(attempts(entry, job))
        job.finish(taken, Counter(row["reason"] for row in taken), spent=spent)
        return
    if entry.scaffold is not None:
        _play(entry, job)
        return
    ended: list[str] = []
    if entry.until is not None:
        asked = _try(entry, job, counts, spent, ended)
    else:
        to_ask = _requests(entry, job)
        with open_engine.asking(job, entry.model) as ask:
            answers = ask(to_ask)
        asked = zip(to_ask.with_rows(), spent.count(answers), strict=True)

    def rows() -> Iterator[dict]:
        notices = Notices(entry.max_tokens)
        for (problem, request), answer in asked:
            counts[answer.stop_reason] += 1
            reason = why_none(answer) if engine == "api" else answer.reason
            empty = reason == Reason.OK and not final_part(answer.text, answer.reasoning)
            notices.add(answer.stop_reason, Reason.EMPTY if empty else reason, answer.tokens)
            yield {
                **_PLAIN,
                "response": digest(problem, request.key),
                "problem": problem,
                "attempt": request.sample,
                "text": answer.text,
                "reasoning": answer.reasoning,
                "stop_reason": answer.stop_reason,
                "reason": reason,
                "prompt_tokens": answer.prompt_tokens,
                "tokens": answer.tokens,
                "reasoning_tokens": answer.reasoning_tokens,
                "cost": answer.cost,
                "request_messages": [{"role": role, "content": content} for role, content in request.messages],
            }
        noticed.extend(notices.sentences())

    facts: dict[str, Any] = {"ended": ended} if entry.until else {}
    job.finish(rows(), counts, spent=spent, engine=engine, notices=noticed, **facts)
    if sentences := [*ended, *noticed]:
        log(job.name, ". ".join(sentences))


# ----------------------------------------------------------------------------------------------------- until it is known


def _grader(entry: Responses, job: Job) -> SubmissionGrader:
    return SubmissionGrader(require(entry.grader), entry.grader_prompt, job.declared, schemes=entry.schemes is not None)


def _problems(entry: Responses, job: Job) -> Any:
    return job.parent(entry.problems).rows("problem", *OF_PROBLEM)


def _try(
    entry: Responses, job: Job, counts: Counter[str], spent: Spent, ended: list[str]
) -> Iterator[tuple[tuple[str, ModelRequest], ModelOutput]]:
    """Ask until the rule of the entry ends. Yield the attempts, count what is known, and add to `ended` how it ended.

    A shard makes no calls for a rule over problems: it would not know what the others have found.
    """
    problems, shares, counted = _problems(entry, job), dict[str, float](), Counter[str]()
    rule = stopping.rule_of(entry, lambda name: _read_shares(job.parent(name)))
    groups = [] if job.shard and rule else stopping.groups_of(entry, problems)
    with open_engine.asking_for(job, grader := _grader(entry, job), further=[entry.model]) as askers:
        for group in groups:
            tries = _tries(entry, job, grader, group)
            results = runner.results(tries, askers, "problems", grader.programs)
            for (problem, _), (asked, verdicts, decision) in zip(tries(), results, strict=True):
                if rule is None:
                    counts[f"pass rate {decision or 'not known'}"] += 1
                for verdict in verdicts:
                    spent.of_verdict(verdict)
                if scored := _list_shares(verdicts):
                    shares[problem] = fmean(scored)
                counted.update(calls=len(asked), problems=1)
                requests, answers = zip(*asked, strict=True)
                yield from zip(((problem, request) for request in requests), spent.count(answers), strict=True)
            if rule and rule.end(shares):
                break
    why = f": {rule.end(shares) or 'the rule did not end'}" if rule else ""
    of = f"{counted['calls']:,} of at most {len(problems) * entry.attempts:,} attempts"
    ended.append(f"{of}, at {counted['problems']:,} of {len(problems):,} problems{why}")


def _read_shares(graded: Table) -> dict[str, float]:
    """Return the mean share of the points by problem of a table of grades."""
    scored = graded.scan().select("problem", share=pl.col("grade") / pl.col("max_points")).drop_nulls()
    return dict(scored.group_by("problem").mean().collect().iter_rows())


def _list_shares(verdicts: Sequence[Verdict]) -> list[float]:
    return [verdict.grade / verdict.max_points for verdict in verdicts if verdict.grade is not None]


def _tries(entry: Responses, job: Job, grader: SubmissionGrader, problems: Sequence[dict]) -> Begin:
    """Return a dialogue for each problem: some attempts, their grades, and more attempts until a pass rate is known."""
    schemes = ById(job.parent(entry.schemes), "problem", "scheme", "dropped") if entry.schemes else {}
    prompt, player = templates.prompt(require(entry.prompt)), _player(entry, job, entry.model)
    system = (("system", templates.plain(entry.system)),) if entry.system else ()
    band = stopping.band_of(entry)

    def attempts(problem: dict) -> Dialogue:
        talk = (*system, ("user", prompt.render({"statement": problem["statement"]})))
        scheme, decision = schemes.get(problem["problem"]), None
        asked: list[tuple[ModelRequest, ModelOutput]] = []
        verdicts: list[Verdict] = []
        for number in sequential.looks(entry.attempts) if band else [entry.attempts]:
            requests = [player.request(talk, attempt) for attempt in range(len(asked), number)]
            answers = yield [Ask(entry.model, request) for request in requests]
            asked += zip(requests, answers, strict=True)
            submitted = [_submit(entry, problem, scheme, answer) for answer in answers]
            verdicts += yield from together([grader.dialogue(submission) for submission in submitted])
            if band and (decision := band.decide(_list_shares(verdicts))):
                break
        return asked, verdicts, decision

    return lambda: ((problem["problem"], attempts(problem)) for problem in problems)


def _submit(entry: Responses, problem: dict, scheme: Any, answer: ModelOutput) -> Submission:
    reason = why_none(answer) if kind_of(entry.model) == "api" else answer.reason
    response = {"text": answer.text, "reasoning": answer.reasoning, "stop_reason": answer.stop_reason, "reason": reason}
    return Submission.of(response, problem, scheme)


# ------------------------------------------------------------------------------------------------------- with a scaffold


def _plays(entry: Responses, job: Job) -> Begin:
    """Return a play of the scaffold for each attempt at each problem."""
    problems = job.parent(entry.problems).rows("problem", "statement")
    prompt, chosen = templates.prompt(require(entry.prompt)), scaffolds.chosen(entry.scaffold)
    players = chosen.players(entry.model, partial(_player, entry, job))
    system: Talk = (("system", templates.plain(entry.system)),) if entry.system else ()

    def plays() -> Iterator[tuple[str, Any]]:
        for problem in problems:
            statement = prompt.render({"statement": problem["statement"]})
            for attempt in range(entry.attempts):
                play = ScaffoldRun(statement, players, attempt, entry.seed, system, chosen.prompts)
                yield problem["problem"], run_scaffold(chosen.run, play)

    return plays


def _play(entry: Responses, job: Job) -> None:
    """Run the scaffold, and write a row for each play."""
    counts: Counter[str] = Counter()
    spent, noticed = Spent(), []
    plays, chosen = _plays(entry, job), scaffolds.chosen(entry.scaffold)
    # Identifies models, sampling and scaffold.
    asked = digest(_player(entry, job, entry.model).request((), 0).key, entry.scaffold)
    with open_engine.asking_all(job, chosen.models(entry.model)) as askers:
        results = runner.results(plays, askers, "plays")

    def rows() -> Iterator[dict]:
        notices = Notices(entry.max_tokens)
        for place, ((problem, _), end) in enumerate(zip(plays(), results, strict=True)):
            counts[end.stop_reason] += 1
            spent.add(end.cost if end.reason not in TRANSIENT else end.cost or 0.0, end.tokens)
            spent.failures += end.reason in TRANSIENT
            empty = end.reason == Reason.OK and not final_part(end.text, end.reasoning)
            answered = 0 if end.answer_step is None else end.steps[end.answer_step].answer.tokens
            notices.add(end.stop_reason, Reason.EMPTY if empty else end.reason, answered)
            yield _of_play(problem, place % entry.attempts, asked, end)
        noticed.extend(notices.sentences())

    engine = "api" if kind_of(entry.model) == "api" else job.engine
    job.finish(rows(), counts, spent=spent, engine=engine, notices=noticed)
    for sentence in noticed:
        log(job.name, sentence)


def _of_play(problem: str, attempt: int, asked: str, end: Played) -> dict:
    steps = [
        {
            "step": step.name,
            "role": step.role,
            "model": step.who,
            "inputs": list(step.shown),
            "depth": step.depth,
            "text": step.answer.text,
            "reasoning": step.answer.reasoning,
            "stop_reason": step.answer.stop_reason,
            "reason": step.answer.reason,
            "prompt_tokens": step.answer.prompt_tokens,
            "tokens": step.answer.tokens,
            "reasoning_tokens": step.answer.reasoning_tokens,
            "cost": step.answer.paid,
        }
        for step in end.steps
    ]
    return {
        **_PLAIN,
        "response": digest(problem, asked, attempt),
        "problem": problem,
        "attempt": attempt,
        "text": end.text,
        "reasoning": end.reasoning,
        "stop_reason": end.stop_reason,
        "reason": end.reason,
        "prompt_tokens": end.prompt_tokens,
        "tokens": end.tokens,
        "reasoning_tokens": end.reasoning_tokens,
        "cost": end.cost,
        "request_messages": [],
        "steps": steps,
        "answer_step": end.answer_step,
    }


# --------------------------------------------------------------------------------------------------- existing attempts

# Columns of an attempt that a model sampled in one call.
_PLAIN = {"writer": None, "given_grade": None, "max_points": None, "steps": None, "answer_step": None}


def _read_given(entry: Responses, job: Job) -> Iterator[dict]:
    """Yield the attempts that came with the kept problems."""
    kept = {row["problem"] for row in job.parent(entry.problems).rows("problem")}
    origin = require(references.origin_of("responses", entry, lambda name: job.parent(name).stamp["entry"]))
    source = entry_from("problems", job.parent(origin).stamp["entry"])
    times: Counter[str] = Counter()
    for problem, attempt in require(SOURCES[source.source].attempts)(source):
        if problem in kept:
            row = _take(problem, attempt.text, times[problem], attempt.writer, attempt.tokens) | {
                "given_grade": attempt.grade,
                "max_points": attempt.max_points,
                "prompt_tokens": attempt.prompt_tokens,
                "reasoning_tokens": attempt.reasoning_tokens,
            }
            known = {"reasoning": attempt.reasoning, "stop_reason": attempt.stop_reason, "reason": attempt.reason}
            yield row | {column: value for column, value in known.items() if value is not None}
            times[problem] += 1


def _solutions(entry: Responses, job: Job) -> Iterator[dict]:
    """Yield the official solution of each problem that has one, as an attempt."""
    for row in job.parent(entry.problems).rows("problem", "solution"):
        if (row["solution"] or "").strip():
            yield _take(row["problem"], row["solution"], 0, "official", None)


def _rollouts(entry: Responses, job: Job) -> Iterator[dict]:
    """Yield the rollouts of a `grpo` on the kept problems; a response has the id of its rollout."""
    kept = {row["problem"] for row in job.parent(entry.problems).rows("problem")}
    rollouts = pl.read_parquet(job.parent(entry.model).weights() / ROLLOUTS)
    times: Counter[str] = Counter()
    for row in rollouts.iter_rows(named=True):
        if row["problem"] in kept:
            yield _take(row["problem"], row["text"], times[row["problem"]], entry.model, row["tokens"]) | {
                "response": row["rollout"],
                "stop_reason": row["stop_reason"],
                "reason": Reason.OK,
                "reasoning": None,
                "request_messages": [{"role": "user", "content": row["prompt"]}],
            }
            times[row["problem"]] += 1


def _take(problem: str, text: str, attempt: int, writer: str | None, tokens: int | None) -> dict:
    return {
        **_PLAIN,
        "response": digest(problem, writer, attempt, text),
        "problem": problem,
        "attempt": attempt,
        "writer": writer,
        "text": text,
        "reasoning": None if text else "",  # no text: truncated during reasoning (QED-Nano's run records)
        "stop_reason": StopReason.END if text else StopReason.LENGTH,
        "reason": Reason.OK if is_attempt(text) or not text else Reason.NO_PROOF,
        "prompt_tokens": None,
        "tokens": tokens,
        "reasoning_tokens": None,
        "cost": 0.0,
        "request_messages": [],
    }


_HEADING = re.compile(
    r"^\W*(?:(?:solution|proof)(?:\s+(?:sketch|outline|attempt))?|sketch|outline|answer)\W*$", re.IGNORECASE
)


def is_attempt(text: str) -> bool:
    """Return whether a text attempts the problem. An empty text, or a mere heading such as "Solution Sketch", does not."""
    return bool(statements.tokens(text)) and not _HEADING.match(text.strip())


if __name__ == "__main__":
    run(main)
