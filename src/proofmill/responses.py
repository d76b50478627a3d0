"""One row of `responses` is an attempt at a problem, with why it stopped, its tokens and its cost.

How we differ:
1. Attempts are asked through the journal, served weights and remote models alike: a kill loses what was in flight.
2. An attempt that failed is a row with stop `error` and its reason, not a missing row and not an empty solution.
"""

import json
from collections import Counter
from collections.abc import Iterator

from proofmill import engines, judges, kinds
from proofmill.calls import Question, Questions, Spent
from proofmill.jobs import Job, run
from proofmill.tables import digest


def questions(entry: kinds.Responses, job: Job) -> Questions:
    """What the model is asked: each problem, so many times."""
    problems = job.parent(entry.problems).rows("problem", "statement")
    remote = kinds.kind_of(entry.model) == "api"
    model = job.apis[entry.model].id if remote else job.parent(entry.model).model
    options = (
        json.dumps(job.apis[entry.model].options, sort_keys=True) if remote and job.apis[entry.model].options else ""
    )

    def asked() -> Iterator[tuple[str, Question]]:
        for problem in problems:
            messages = (("user", judges.fill(entry.prompt, {"statement": problem["statement"]})),)
            for attempt in range(entry.attempts):
                yield (
                    problem["problem"],
                    Question(
                        model,
                        messages,
                        entry.temperature,
                        entry.top_p,
                        entry.max_tokens,
                        entry.seed,
                        sample=attempt,
                        options=options,
                        logprobs=entry.logprobs,
                    ),
                )

    return Questions(len(problems) * entry.attempts, asked)


def main(entry: kinds.Responses, job: Job) -> None:
    asked, counts, spent = questions(entry, job), Counter(), Spent()
    with engines.asking(job, entry.model) as ask:
        answers = ask(asked)

    def rows() -> Iterator[dict]:
        for (problem, question), answer in zip(asked.named(), spent.of(answers), strict=True):
            counts[answer.stop] += 1
            yield {
                "response": digest(problem, question.key),
                "problem": problem,
                "attempt": question.sample,
                "text": answer.text,
                "reasoning": answer.reasoning,
                "stop": answer.stop,
                "reason": answer.reason,
                "prompt_tokens": answer.prompt_tokens,
                "tokens": answer.tokens,
                "cost": answer.cost,
                "history": [{"role": role, "content": content} for role, content in question.messages],
            }

    engine = "api" if kinds.kind_of(entry.model) == "api" else job.engine  # no part of what a row is, and worth knowing
    job.finish(rows(), counts, spent=spent, engine=engine)


if __name__ == "__main__":
    run(main)
