"""The problems that a policy attempts: those that it is trained on, and those held out."""

from collections.abc import Iterator, Sequence
from typing import Any

from proofmill.artifacts.jobs import Job
from proofmill.artifacts.joins import schemes_of
from proofmill.graders import program_graders
from proofmill.prompts import templates
from proofmill.prompts.escapes import ControlTokens
from proofmill.runtime import processes
from proofmill.runtime.progress import log


def read(job: Job, table: str, grader: str, schemes: str | None, prompt: str, tokenizer: Any) -> list[dict[str, Any]]:
    """Return the problems of a table that `grader` can grade, each with its prompt, scheme and lengths.

    Problems of small talk have no grade and are kept. What is left out is logged.
    """
    found = schemes_of(job.parent, schemes)
    problems = job.parent(table).rows("problem", "statement", "answer", "solution", "question_type")
    needed = found if schemes else None
    kept = [p for p in problems if p["question_type"] == "chat" or program_graders.gradable(grader, p, needed)]
    if len(kept) < len(problems) and not processes.rank():
        left_out = f"{len(problems) - len(kept):,} of {len(problems):,} problems of {table} are left out"
        log(job.name, f"{left_out}: the grader needs an answer or a scheme")
    control = ControlTokens(tokenizer)

    def tokens(text: str | None) -> int | None:
        return len(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else None

    def describe(problem: dict[str, Any]) -> dict[str, Any]:
        text = templates.fill(prompt, {"statement": problem["statement"]})
        return {
            "prompt": control.escape([{"role": "user", "content": text}]),
            **problem,
            "question_type": problem["question_type"] or "proof",
            "scheme": found.get(problem["problem"]),
            "question_tokens": tokens(problem["statement"]),
            "reference_tokens": tokens(problem["solution"]),
        }

    return [describe(problem) for problem in kept]


def in_tokens(prompts: Sequence[Any], tokenizer: Any) -> Iterator[list[int]]:
    """Yield each prompt as the tokens that a rollout begins with."""
    for prompt in prompts:
        yield tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
