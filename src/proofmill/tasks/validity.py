"""Validity: which proposals are tasks. A program runs, elsewhere with the same value again, and can be shown.

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.3.3) and its code.

How we differ:
1. A task is valid if all its executions end well, and not because a message lacks the word "error". There, programs
   pass whose two values differ, or that end by `StopIteration` or `SystemExit`, and their output is empty.
2. The executions are in different processes with different hash seeds: two, and six where sets or hashes occur, since
   two texts in a set have the same order half the time. There, they are two calls in one process, which agree on `hash`,
   the order of a set, the address of an object.
3. A value that is too long makes a proposal invalid. There, it is cut, and no answer equals it.
4. A proposal is invalid if a prompt cannot show it as it is, and if the message of an induction tells a program.
5. Inputs of an induction are written out without the program's classes: a solver has none of them.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice

from proofmill.prompts.escapes import NONE, enclosed
from proofmill.sandbox import values
from proofmill.sandbox.executor import Execution, Executor, Result
from proofmill.tasks.composites import misuse
from proofmill.tasks.programs import FORBIDDEN, Unfit, arguments, keyword_in, meets_hashes, parsed, reaches
from proofmill.tasks.proposals import Proposal
from proofmill.tasks.tasks import NO_ERROR, Invalid, Task

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
    """What each proposal is, in order: a task with the values of its program, or invalid for a reason.

    What is invalid already stays so. `keywords` are words that no program may have. Each input is executed `runs` times,
    after the first time afresh, and while all inputs of its proposal pass; `runs_of_sets` times if sets or hashes occur.
    """
    checked = [
        each if isinstance(each, Invalid) else _checked(each, forbidden, keywords, longest) for each in proposals
    ]
    times = [runs_of_sets if _meets_hashes(each) else runs for each in checked]
    first = _results(checked, executor, fresh=False)
    found = [_ended(each, results) for each, results in zip(checked, first, strict=True)]
    for run in range(1, max(times, default=0)):
        due = [each if run < most else None for each, most in zip(found, times, strict=True)]
        again = _results(due, executor, fresh=True)
        found = [_repeated(each, *both) if both[1] else each for each, *both in zip(found, first, again, strict=True)]
    return [
        each if isinstance(each, Invalid) else _task(each, results, step)
        for each, results in zip(found, first, strict=True)
    ]


def _meets_hashes(proposal: Proposal | Invalid) -> bool:
    if isinstance(proposal, Invalid):
        return False
    calls = [f"f({text})" for text in proposal.inputs]
    return any(meets_hashes(parsed(text)) for text in (proposal.program, *calls))


def _checked(
    proposal: Proposal, forbidden: Collection[str], keywords: Collection[str], longest: int
) -> Proposal | Invalid:
    """A proposal with its inputs as they are kept, or what is wrong with it before it runs."""
    texts = [proposal.program, *proposal.inputs, proposal.message]
    if any(len(text) > longest for text in texts):
        return Invalid("too-long", f"{max(map(len, texts)):,} characters")
    if not all("```" not in text and enclosed(text) in (text, NONE) for text in texts):
        return Invalid("unshowable")
    if _PROGRAM.search(proposal.message):
        return Invalid("tells")
    try:
        tree = parsed(proposal.program)
        own = parsed(proposal.written) if proposal.written else None
        inputs = [arguments(text, None if proposal.kind == "induce" else tree) for text in proposal.inputs]
    except Unfit as unfit:
        return Invalid(unfit.reason, unfit.detail)
    if reached := reaches(tree, forbidden):
        return Invalid("forbidden", reached)
    if word := keyword_in(proposal.program, keywords):
        return Invalid("keyword", word)
    if own and (fault := misuse(tree, own)):
        return Invalid("composite", fault)
    return replace(proposal, inputs=tuple(inputs))


def _results(proposals: Sequence[Proposal | Invalid | None], executor: Executor, fresh: bool) -> list[list[Result]]:
    """The results of all inputs of each proposal; none for what is not one. Nothing is run for nothing."""
    asked = [
        [Execution(each.program, f"f({text})") for text in each.inputs] if isinstance(each, Proposal) else []
        for each in proposals
    ]
    executions = [execution for some in asked for execution in some]
    results = iter(list(executor.run(executions, fresh=fresh)) if executions else ())
    return [list(islice(results, len(some))) for some in asked]


def _ended(proposal: Proposal | Invalid, results: Sequence[Result]) -> Proposal | Invalid:
    """A proposal whose executions all ended well; an exception is an end like others where it is asked for."""
    if isinstance(proposal, Invalid):
        return proposal
    ends = ("ok", "raised") if proposal.kind == "error" else ("ok",)
    bad = (Invalid(result.status, result.error) for result in results if result.status not in ends)
    return next(bad, proposal)


def _repeated(proposal: Proposal | Invalid, first: Sequence[Result], again: Sequence[Result]) -> Proposal | Invalid:
    """A proposal whose executions ended well again, and as before."""
    proposal = _ended(proposal, again)
    if isinstance(proposal, Proposal):
        for text, before, after in zip(proposal.inputs, first, again, strict=True):
            if before.status != after.status or not _agree(before, after):
                return Invalid("differs", f"f({text}): {_end(before)}, {_end(after)}"[:300])
    return proposal


def _task(proposal: Proposal, results: Sequence[Result], step: int) -> Task:
    task = Task(proposal.kind, proposal.program, message=proposal.message, step=step, written=proposal.written)
    if proposal.kind == "induce":
        return replace(task, inputs=proposal.inputs, outputs=tuple(result.value for result in results))
    output = raised(results[0]) if proposal.kind == "error" else results[0].value
    return replace(task, input=proposal.inputs[0], output=output)


def raised(result: Result) -> str:
    """The class of an execution's exception, without its module; `NoError` where it has none."""
    name = result.error.partition(":")[0].strip().rpartition(".")[2]
    return name if result.status == "raised" else NO_ERROR


def _agree(before: Result, after: Result) -> bool:
    if before.status == "raised":
        return raised(before) == raised(after)
    return values.same(values.parse(before.value), values.parse(after.value))


def _end(result: Result) -> str:
    return result.value if result.status == "ok" else raised(result)
