"""Decide which proposals are valid tasks: the program runs, is deterministic, and can be shown in a prompt.

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.3.3) and its code.

Differences from the original:
1. A task is valid if all its executions succeed. There, it is valid if a message lacks the word "error": programs pass
   whose two values differ, or that end by `StopIteration` or `SystemExit`, with an empty output.
2. The executions are in different processes with different hash seeds: two, or six if sets or hashes occur, because two
   texts in a set have the same order half the time. There, they are two calls in one process, which agree on `hash`,
   the order of a set and the address of an object.
3. A value that is too long makes a proposal invalid. There, it is truncated, and no answer equals it.
4. A proposal is invalid if a prompt cannot show it, or if the message of an induction contains a program.
5. Inputs of an induction may not use the program's classes, because the solver does not have them.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice

from proofmill.prompts.escapes import NONE, enclose
from proofmill.sandbox import values
from proofmill.sandbox.executor import Execution, Executor, Result
from proofmill.selfplay_tasks.composites import misuse
from proofmill.selfplay_tasks.program_text import (
    FORBIDDEN,
    Unfit,
    arguments,
    find_forbidden,
    keyword_in,
    parse_program,
    uses_hashes,
)
from proofmill.selfplay_tasks.proposals import Proposal
from proofmill.selfplay_tasks.tasks import NO_ERROR, Invalid, Task

LONGEST = 10_000  # characters of a program, an input or a message
_PROGRAM = re.compile(r"^[ \t]*(?:def|class)[ \t]+\w+[ \t]*[(:]|\blambda\b[^\n]*:", re.MULTILINE)


def valid(
    proposals: Sequence[Proposal | Invalid],
    executor: Executor,
    step: int = 0,
    forbidden: Collection[str] = FORBIDDEN,
    keywords: Collection[str] = (),
    longest: int = LONGEST,
    runs: int = 2,
    runs_of_sets: int = 6,
) -> list[Task | Invalid]:
    """Validate proposals: return for each, in order, a task with the values of its program, or a reason.

    Invalid proposals are returned unchanged. `keywords` are words that no program may contain. Each input is executed
    `runs` times, or `runs_of_sets` times if sets or hashes occur; all runs but the first use fresh processes. A proposal
    is not rerun once an input has failed.
    """
    checked = [each if isinstance(each, Invalid) else _check(each, forbidden, keywords, longest) for each in proposals]
    times = [runs_of_sets if _uses_hashes(each) else runs for each in checked]
    first = _results(checked, executor, fresh=False)
    outcomes = [_expect_success(each, results) for each, results in zip(checked, first, strict=True)]
    for run in range(1, max(times, default=0)):
        due = [each if run < most else None for each, most in zip(outcomes, times, strict=True)]
        again = _results(due, executor, fresh=True)
        outcomes = [
            _expect_same(each, *both) if both[1] else each for each, *both in zip(outcomes, first, again, strict=True)
        ]
    return [
        each if isinstance(each, Invalid) else _task(each, results, step)
        for each, results in zip(outcomes, first, strict=True)
    ]


def _uses_hashes(proposal: Proposal | Invalid) -> bool:
    if isinstance(proposal, Invalid):
        return False
    calls = [f"f({text})" for text in proposal.inputs]
    return any(uses_hashes(parse_program(text)) for text in (proposal.program, *calls))


def _check(
    proposal: Proposal, forbidden: Collection[str], keywords: Collection[str], longest: int
) -> Proposal | Invalid:
    """Check a proposal before it runs. Return it with normalized inputs, or the reason why it is invalid."""
    texts = [proposal.program, *proposal.inputs, proposal.message]
    if any(len(text) > longest for text in texts):
        return Invalid("too-long", f"{max(map(len, texts)):,} characters")
    if not all("```" not in text and enclose(text) in (text, NONE) for text in texts):
        return Invalid("unshowable")
    if _PROGRAM.search(proposal.message):
        return Invalid("tells")
    try:
        tree = parse_program(proposal.program)
        own = parse_program(proposal.proposed) if proposal.proposed else None
        inputs = [arguments(text, None if proposal.kind == "induce" else tree) for text in proposal.inputs]
    except Unfit as unfit:
        return Invalid(unfit.reason, unfit.detail)
    if name := find_forbidden(tree, forbidden):
        return Invalid("forbidden", name)
    if word := keyword_in(proposal.program, keywords):
        return Invalid("keyword", word)
    if own and (fault := misuse(tree, own)):
        return Invalid("composite", fault)
    return replace(proposal, inputs=tuple(inputs))


def _results(proposals: Sequence[Proposal | Invalid | None], executor: Executor, fresh: bool) -> list[list[Result]]:
    """Run all inputs of each proposal and return the results; an empty list for invalid ones and None."""
    runs = [
        [Execution(each.program, f"f({text})") for text in each.inputs] if isinstance(each, Proposal) else []
        for each in proposals
    ]
    executions = [execution for some in runs for execution in some]
    results = iter(list(executor.run(executions, fresh=fresh)) if executions else ())
    return [list(islice(results, len(some))) for some in runs]


def _expect_success(proposal: Proposal | Invalid, results: Sequence[Result]) -> Proposal | Invalid:
    """Return the proposal if all executions succeeded, else the reason; in `error` tasks exceptions are a success."""
    if isinstance(proposal, Invalid):
        return proposal
    ends = ("ok", "raised") if proposal.kind == "error" else ("ok",)
    bad = (Invalid(result.status, result.error) for result in results if result.status not in ends)
    return next(bad, proposal)


def _expect_same(proposal: Proposal | Invalid, first: Sequence[Result], again: Sequence[Result]) -> Proposal | Invalid:
    """Return the proposal if all executions succeeded with the same results as before, else the reason."""
    proposal = _expect_success(proposal, again)
    if isinstance(proposal, Proposal):
        for text, before, after in zip(proposal.inputs, first, again, strict=True):
            if before.status != after.status or not _agree(before, after):
                return Invalid("differs", f"f({text}): {_end(before)}, {_end(after)}"[:300])
    return proposal


def _task(proposal: Proposal, results: Sequence[Result], step: int) -> Task:
    task = Task(proposal.kind, proposal.program, message=proposal.message, step=step, proposed=proposal.proposed)
    if proposal.kind == "induce":
        return replace(task, inputs=proposal.inputs, outputs=tuple(result.value for result in results))
    output = exception_name(results[0]) if proposal.kind == "error" else results[0].value
    return replace(task, input=proposal.inputs[0], output=output)


def exception_name(result: Result) -> str:
    """Return the class of an execution's exception, without its module; `NoError` if it raised none."""
    name = result.error.partition(":")[0].strip().rpartition(".")[2]
    return name if result.status == "raised" else NO_ERROR


def _agree(before: Result, after: Result) -> bool:
    if before.status == "raised":
        return exception_name(before) == exception_name(after)
    return values.same(values.parse(before.value), values.parse(after.value))


def _end(result: Result) -> str:
    return result.value if result.status == "ok" else exception_name(result)
