"""Checkers: a problem's own programs that decide whether an output is correct, where several outputs are.

    def check(input, output, reference): return sorted(output) == sorted(reference)

From: the checkers of programming contests, which read input, output and the jury's answer.

Differences from the originals:
1. A checker runs in another jail than the programs (`Execution.trusted`). It receives texts or plain data (values.py).
2. Only `True` and `False` are decisions. A checker that ends otherwise decides nothing.
"""

from collections.abc import Sequence
from functools import lru_cache

from proofmill.sandbox import values
from proofmill.sandbox.cases import Case
from proofmill.sandbox.executor import Execution, Executor, Result


def decide(outputs: Sequence[tuple[Case, Result]], executor: Executor) -> list[bool | str]:
    """Return for each output of a test whether it is correct, or why its checker does not decide.

    An output is wrong if a checker cannot receive it: a text that is too long, or an instance of a class of the program.
    """
    sources = [_source(result) for _, result in outputs]
    both = zip(outputs, sources, strict=True)
    decisions = iter(_run([(case, source) for (case, _), source in both if source is not None], executor))
    return [False if source is None else next(decisions) for source in sources]


@lru_cache(maxsize=64)  # a problem's attempts follow one another
def find_fault(cases: tuple[Case, ...], executor: Executor) -> str:
    """Return why a checker does not accept the expected output of its own test; empty if all do, or have none."""
    tried = [(n, case) for n, case in enumerate(cases, 1) if case.checker and case.has_reference]
    decisions = _run([(case, case.sources[1]) for _, case in tried], executor)
    faults = [(n, decision) for (n, _), decision in zip(tried, decisions, strict=True) if decision is not True]
    return next((f"the checker of test {n} {fault or 'rejects the expected output'}" for n, fault in faults), "")


def _source(result: Result) -> str | None:
    try:
        return values.source(result.value)
    except ValueError:
        return None


def _run(outputs: Sequence[tuple[Case, str]], executor: Executor) -> list[bool | str]:
    calls = [(case, f"check({case.sources[0]}, {output}, {case.sources[1]})") for case, output in outputs]
    runs = [Execution(case.checker, call, megabytes=case.megabytes, trusted=True) for case, call in calls]
    return [_decision(result) for result in executor.run(runs)]


def _decision(result: Result) -> bool | str:
    if result.status != "ok":
        return f"ends with {result.status}: {result.error}"[:300]
    return {"True": True, "False": False}.get(result.value, f"returns {result.value[:60]}; expected True or False")
