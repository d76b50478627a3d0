"""One row of `responses` is an attempt at a problem, with why it stopped, its tokens and its cost.

How we differ:
1. Attempts are asked through the journal, served weights and remote models alike: a kill loses what was in flight.
2. An attempt that failed is a row with stop `error` and its reason, not a missing row and not an empty solution.
"""

from collections import Counter

from proofmill import judges, kinds
from proofmill.calls import Journal, Question, ask
from proofmill.engines import open_engine
from proofmill.jobs import Job, run
from proofmill.tables import digest


def main(entry: kinds.Responses, job: Job) -> None:
    problems = job.parent(entry.problems).rows("problem", "statement")
    remote = kinds.kind_of(entry.model) == "api"
    weights = job.parent(entry.model)
    model = job.apis[entry.model].id if remote else weights.model
    wanted = [(problem["problem"], attempt) for problem in problems for attempt in range(entry.attempts)]
    prompts = {p["problem"]: judges.fill(entry.prompt, {"statement": p["statement"]}) for p in problems}
    questions = [
        Question(
            model,
            (("user", prompts[problem]),),
            entry.temperature,
            entry.top_p,
            entry.max_tokens,
            entry.seed,
            sample=attempt,
        )
        for problem, attempt in wanted
    ]
    with (
        open_engine(entry.model, job.apis, weights, job.engine, job.threads) as engine,
        Journal(job.table.calls) as journal,
    ):
        answers = ask(journal, engine, questions, job.name)
    judges.check_failures(job.name, answers)
    rows = [
        {
            "response": digest(problem, question.key),
            "problem": problem,
            "attempt": attempt,
            "text": answer.text,
            "reasoning": answer.reasoning,
            "stop": answer.stop,
            "reason": answer.reason,
            "prompt_tokens": answer.prompt_tokens,
            "tokens": answer.tokens,
            "cost": answer.cost,
            "history": [{"role": role, "content": content} for role, content in question.messages],
        }
        for (problem, attempt), question, answer in zip(wanted, questions, answers, strict=True)
    ]
    counts = Counter(row["stop"] for row in rows)
    engine = "api" if remote else job.engine  # no part of what a row is, and worth knowing of a measured one
    job.finish(rows, counts, cost=judges.cost_of(answers), tokens=judges.tokens_of(answers), engine=engine)


if __name__ == "__main__":
    run(main)
