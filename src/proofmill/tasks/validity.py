"""Validity: which proposals are tasks. A program runs, twice and elsewhere with the same value, and can be shown.

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.3.3) and its code.

How we differ:
1. A task is valid if all its executions end well, and not because a message lacks the word "error". There, programs
   pass whose two values differ, or that end by `StopIteration` or `SystemExit`, and their output is empty.
2. The two executions are in different processes with different hash seeds. There, they are calls in one process, which
   agree on `hash`, the order of a set, the address of an object.
3. A value that is too long makes a proposal invalid. There, it is cut, and no answer equals it.
4. A proposal is invalid if a prompt cannot show it as it is, and if the message of an induction tells a program.
5. Inputs of an induction are written out without the program's classes: a solver has none of them.
"""

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from proofmill.prompts.escapes import enclosed
from proofmill.sandbox import values
from proofmill.sandbox.executor import Execution, Executor, Result
from proofmill.tasks.composites import misuse
from proofmill.tasks.programs import FORBIDDEN, Unfit, arguments, keyword_in, parsed, reaches
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
) -> list[Task | Invalid]:
    """What each proposal is, in order: a task with the values of its program, or invalid for a reason.

    What is invalid already stays so. `keywords` are words that no program may have. Each input is executed twice, the
    second time afresh and only where all inputs of a proposal passed the first time.
    """
    found: list[Task | Invalid | None] = [
        each if isinstance(each, Invalid) else _unfit(each, forbidden, keywords, longest) for each in proposals
    ]
    first = _run(proposals, found, executor, fresh=False)
    for place, results in first.items():
        found[place] = _failure(proposals[place], results)
    second = _run(proposals, found, executor, fresh=True)
    for place, results in second.items():
        proposal = proposals[place]
        assert isinstance(proposal, Proposal)
        found[place] = _failure(proposal, results) or _task(proposal, first[place], results, step)
    return [each or Invalid("unscored") for each in found]


def _unfit(proposal: Proposal, forbidden: Collection[str], keywords: Collection[str], longest: int) -> Invalid | None:
    """What is wrong with a proposal before it runs; None where nothing is."""
    texts = [proposal.program, *proposal.inputs, proposal.message]
    if any(len(text) > longest for text in texts):
        return Invalid("too-long", f"{max(map(len, texts))} characters")
    if not all("```" not in text and enclosed(text) in (text, "(none)") for text in texts):
        return Invalid("unshowable")
    if _PROGRAM.search(proposal.message):
        return Invalid("tells")
    try:
        tree = parsed(proposal.program)
        for text in proposal.inputs:
            arguments(text, None if proposal.kind == "induce" else tree)
            if reached := reaches(ast.parse(f"f({text})"), forbidden):
                return Invalid("forbidden", reached)
        own = parsed(proposal.written) if proposal.written else None
    except Unfit as unfit:
        return Invalid(unfit.reason, unfit.detail)
    if reached := reaches(tree, forbidden):
        return Invalid("forbidden", reached)
    if word := keyword_in(proposal.program, keywords):
        return Invalid("keyword", word)
    if own and (fault := misuse(tree, own)):
        return Invalid("composite", fault)
    return None


def _run(
    proposals: Sequence[Proposal | Invalid], found: Sequence[object], executor: Executor, fresh: bool
) -> dict[int, list[Result]]:
    """The results of all inputs of each proposal of which nothing is said yet, by its place."""
    places = {
        place: each for place, each in enumerate(proposals) if found[place] is None and isinstance(each, Proposal)
    }
    executions = [Execution(each.program, f"f({text})") for each in places.values() for text in each.inputs]
    results = iter(list(executor.run(executions, fresh=fresh)))
    return {place: [next(results) for _ in each.inputs] for place, each in places.items()}


def _failure(proposal: Proposal | Invalid, results: Sequence[Result]) -> Invalid | None:
    """The first execution that did not end well; an exception is an end like others where it is asked for."""
    ends = ("ok", "raised") if isinstance(proposal, Proposal) and proposal.kind == "error" else ("ok",)
    return next((Invalid(result.status, result.error) for result in results if result.status not in ends), None)


def _task(proposal: Proposal, first: Sequence[Result], second: Sequence[Result], step: int) -> Task | Invalid:
    """The task of a proposal that ran twice."""
    for text, before, after in zip(proposal.inputs, first, second, strict=True):
        if before.status != after.status or not _agree(before, after):
            return Invalid("differs", f"f({text}): {_end(before)}, {_end(after)}"[:300])
    task = Task(proposal.kind, proposal.program, message=proposal.message, step=step, written=proposal.written)
    if proposal.kind == "induce":
        return replace(task, inputs=proposal.inputs, outputs=tuple(result.value for result in first))
    output = raised(first[0]) if proposal.kind == "error" else first[0].value
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
