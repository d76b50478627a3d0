"""Grade code (the grader `tests`): programs by tests or by a check, and answers to tasks. The problem's answer decides.

    [{"input": "1 2\\n", "output": "3\\n"}, {"call": "f(1)", "result": "2"}]    tests: the share that pass
    {"tests": [{"input": "6"}], "checker": "def check(input, output, ..."}    the same, with options for all tests
    [{"check": "...", "function": "add", "setup": "", "reference": "..."}]      asserts: all hold, or not
    {"kind": "deduce", "program": "...", "input": "1", "output": "2"}           a task of self-play: right or wrong

Differences from CRUXEval and Absolute Zero:
1. An answer is a literal value, or literal arguments (selfplay_tasks/solutions.py). Nothing is evaluated after the program, so a
   call is not an answer to itself.
2. The published program is run once. If the recorded value is truncated or no literal, the value of this run replaces
   it. If the program fails or returns another value than the recorded one, all attempts are unscored (`no-gold`).
"""

import ast
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Verdict
from proofmill.sandbox import jails, values
from proofmill.sandbox.asserts import Checked, Checks, SandboxCheck
from proofmill.sandbox.cases import cases_of, state_tolerance
from proofmill.sandbox.checkers import find_fault
from proofmill.sandbox.executor import Execution, Executor, Result
from proofmill.sandbox.sandbox import MEGABYTES, SECONDS, Ran, Sandbox
from proofmill.schema.errors import SandboxError
from proofmill.schema.reasons import Reason
from proofmill.selfplay_tasks import solutions
from proofmill.selfplay_tasks.tasks import Task, from_row
from proofmill.text.fences import answer

Tests = str | SandboxCheck | Task  # tests as JSON, a check, a task


def read_tests(text: str | None) -> Tests:
    """Parse a problem's answer into the tests of an attempt. Raises ValueError with a description of the fault."""
    if not text:
        raise ValueError("the problem has no tests")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and "tests" not in value:
        return _task(value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict) and "check" in value[0]:
        return _check(value[0])
    cases_of(text)
    return text


_TASK = {"deduce": {"input", "output"}, "abduce": {"input", "output"}, "induce": {"inputs", "outputs", "message"}}


def _task(row: dict[str, Any]) -> Task:
    names = {"kind", "program", *_TASK.get(str(row.get("kind")), ())}
    lists = [row.get(name) for name in ("inputs", "outputs") if name in names]
    texts = [row.get(name) for name in names - {"inputs", "outputs"}] + [
        text for some in lists if isinstance(some, list) for text in some
    ]
    sizes = {len(some) for some in lists if isinstance(some, list)}
    if set(row) != names or len(names) < 3 or not all(isinstance(text, str) for text in texts) or sizes & {0, 1}:
        raise ValueError(
            f"task: `{json.dumps(row)[:60]}`; expected `kind` (deduce, abduce or induce) and `program`, with `input` and "
            "`output`, or `inputs`, `outputs` and `message`, all texts. Correct the answer of the problem."
        )
    if lists and (len(sizes) > 1 or not all(isinstance(some, list) for some in lists)):
        raise ValueError("task: other numbers of `inputs` and `outputs`; expected pairs. Correct the problem's answer.")
    return from_row(row)


def _check(row: dict[str, Any]) -> SandboxCheck:
    if set(row) != set(SandboxCheck.__annotations__) or not all(isinstance(text, str) for text in row.values()):
        raise ValueError(
            f"check: `{json.dumps(row)[:60]}`; expected the texts `check`, `function`, `setup` and `reference`. Correct the "
            "answer of the problem."
        )
    check = SandboxCheck(**row)
    try:
        with values.reading():
            ast.parse("\n".join((check.setup, check.reference, check.check)))
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"check: it is not Python ({error}). Correct the answer of the problem.") from error
    return check


def state_tests(answer: str) -> str:
    """Return tests as they are graded, with the tolerance of each expected float. Raises ValueError if none can be graded.

    A checker is run on its expected outputs, and the program of a task whose recorded value cannot be read. On a machine
    that cannot isolate programs, the grader finds these faults.
    """
    tests, executor = read_tests(answer), Executor(SECONDS, MEGABYTES, 1, values.LONGEST)
    fault: Task | str = ""
    match tests:
        case Task() if not all(map(values.is_plain, tests.outputs or (tests.output,))) and _can_isolate():
            with executor:
                fault = check_soundness([tests], executor)[tests]
        case str() if any(case.checker and case.has_reference for case in cases_of(tests)) and _can_isolate():
            with executor:
                fault = find_fault(cases_of(tests), executor)
    if isinstance(fault, str) and fault:
        raise ValueError(f"tests: {fault}. Fix the answer of the problem.")
    return state_tolerance(answer) if isinstance(tests, str) else answer


def _can_isolate() -> bool:
    with suppress(SandboxError):
        return bool(jails.plan())
    return False


class Code:
    """A grader of code. A context manager: inside it, `verdicts` grades submissions."""

    def __init__(self) -> None:
        self._sandbox = Sandbox()
        self._checks = Checks(self._sandbox.executor)
        self._sound: dict[Task, Task | str] = {}  # with the values of its own program, or why it has none

    def __enter__(self) -> "Code":
        self._sandbox.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._sandbox.__exit__(*error)

    def verdicts(self, submissions: Sequence[Submission]) -> Iterator[Verdict]:
        """Yield a verdict for each submission, in order."""
        tests: list[Tests | ValueError] = []
        for submission in submissions:
            try:
                tests.append(read_tests(submission.answer))
            except ValueError as error:
                tests.append(error)
        both = list(zip(submissions, tests, strict=True))
        by_tests = self._sandbox.check([(s.final, each) for s, each in both if isinstance(each, str)])
        by_check = self._checks.check([(s.final, each) for s, each in both if isinstance(each, SandboxCheck)])
        by_task = self._by_task([(s.final, each) for s, each in both if isinstance(each, Task)])
        for each in tests:
            match each:
                case str():
                    yield _of_run(next(by_tests))
                case SandboxCheck():
                    yield _of_check(next(by_check))
                case Task():
                    yield next(by_task)
                case fault:
                    yield Verdict(None, 1, Reason.NO_GOLD, str(fault))

    def _by_task(self, pairs: Sequence[tuple[str, Task]]) -> Iterator[Verdict]:
        executor = self._sandbox.executor
        self._sound |= check_soundness([task for _, task in pairs if task not in self._sound], executor)
        texts = [_answer(task, text) for text, task in pairs]
        golds = [self._sound[task] for _, task in pairs]
        sound = [(gold, text) for gold, text in zip(golds, texts, strict=True) if isinstance(gold, Task)]
        grades = iter(solutions.grade([gold for gold, _ in sound], [text for _, text in sound], executor))
        for gold, text in zip(golds, texts, strict=True):
            if isinstance(gold, str):
                yield Verdict(None, 1, Reason.NO_GOLD, gold)
                continue
            grade = next(grades)
            unknown = Reason.NO_GOLD if grade is None else Reason.OK
            yield Verdict(grade, 1, Reason.NO_ANSWER if text is None else unknown, text or "")


def _answer(task: Task, text: str) -> str | None:
    """Return the answer of a text, with or without tags; join arguments on several lines into one line."""
    parsed = solutions.parse(task.kind, answer(text) or text, tags=False)
    if task.kind != "abduce" or not parsed or "\n" not in parsed:
        return parsed
    try:
        call = ast.parse(f"f({parsed}\n)", mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return parsed
    return ast.unparse(call)[2:-1] if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else parsed


def check_soundness(tasks: Sequence[Task], executor: Executor) -> dict[Task, Task | str]:
    """Return each task with the outputs of its own program, or why its outputs are missing or differ from the recorded ones."""
    distinct = list(dict.fromkeys(tasks))
    calls = [(task.program, text) for task in distinct for text in task.inputs or (task.input,)]
    results = executor.run([Execution(program, f"f({text})") for program, text in calls])
    return {task: _with_outputs(task, [next(results) for _ in task.inputs or (0,)]) for task in distinct}


def _with_outputs(task: Task, results: Sequence[Result]) -> Task | str:
    for result, recorded in zip(results, task.outputs or (task.output,), strict=True):
        if result.status != "ok":
            return f"the problem's own program does not run: {result.status}: {result.error}"[:300]
        try:
            gold = values.parse(recorded)
        except ValueError:
            continue  # truncated, or no literal
        if not values.same(gold, values.parse(result.value)):
            return f"the problem's own program gives {result.value[:120]}, and {recorded[:120]} is recorded"
    outputs = tuple(result.value for result in results)
    return replace(task, outputs=outputs) if task.outputs else replace(task, output=outputs[0])


def _of_run(run: Ran) -> Verdict:
    """Return the verdict of one run: the share of the tests that the program passes; none if a checker does not decide."""
    reasons = {"no-code": Reason.NO_ANSWER, "undecided": Reason.UNPARSABLE, "unsound": Reason.NO_GOLD}
    return Verdict(run.share, 1, reasons.get(run.status, Reason.OK), run.detail)


def _of_check(checked: Checked) -> Verdict:
    if checked.passed is None:
        return Verdict(None, 1, Reason.NO_GOLD, checked.detail)
    return Verdict(float(checked.passed), 1, Reason.OK if checked.is_program else Reason.NO_ANSWER, checked.detail)
