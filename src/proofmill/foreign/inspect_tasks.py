"""Read a single-turn task of inspect_ai as problems, and grade attempts at them by the task's own solver and scorer.

    problems/x: {source: inspect-task, id: inspect_evals/gsm8k}            a task of an installed package
    problems/y: {source: inspect-task, path: tasks.py, id: sums}           a task of a file
    responses/x: {problems: problems/x, model: api/solver, prompt: verbatim}
    grades/x: {responses: responses/x, grader: inspect-task}

The task runs in the environment of PROOFMILL_INSPECT_PYTHON, an interpreter with inspect_ai, in a child process with
limits (children.py). Of scores with several values, `columns: {given_grade: <key>}` names the grade. Judges that a scorer
calls by their role are those of INSPECT_EVAL_MODEL_ROLE (`grader=openai/gpt-4o`), and are not journaled.

Differences from `inspect eval`:
1. The solver's conversation is captured once and becomes the statement; this project samples, journals and counts.
2. A score that inspect_ai leaves out, and one that is not a number from 0 to 1, is unscored. So is an attempt whose scorer
   fails, or exceeds a limit when it is alone.
3. Versions of inspect_ai and of the task's package, and the judges, are in each row. Others do not grade it.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from proofmill.foreign import children
from proofmill.foreign.children import ChildError
from proofmill.public_data.locations import local_path
from proofmill.runtime.progress import log
from proofmill.schema.entries.problem_entries import Problems
from proofmill.schema.errors import SettingError, TableError, short
from proofmill.schema.fields import require
from proofmill.schema.ids import file_sha256
from proofmill.schema.reasons import Reason, StopReason

CHILD = Path(__file__).with_name("inspect_child.py")
PYTHON = "PROOFMILL_INSPECT_PYTHON"
AT_ONCE = 100  # attempts scored by one child
REASONS = {"grader_failed": Reason.NO_VERDICT, "refusal": Reason.REFUSED, "no_response": Reason.NO_OUTPUT}
Graded = tuple[float | None, Reason, str]  # share of the points, or None with the reason; text


def problems(entry: Problems) -> Iterator[dict[str, Any]]:
    """Yield the samples of a task. Raises TableError for a task with several turns, tools or several messages."""
    if unknown := entry.columns.keys() - {"given_grade"}:
        raise SettingError(
            f"`columns` has `{min(unknown)}`; expected `given_grade` alone, a key of the scorer's values."
        )
    name, path = (
        require(entry.id or (Path(require(entry.path)).stem)),
        entry.path and str(local_path(entry.path).absolute()),
    )
    request = {"name": name, "path": path, "rows": entry.rows}
    try:
        reply = run(request)
    except ChildError as error:
        raise TableError(
            f"{entry.path or name}: the task `{name}` cannot be listed ({error}); expected a task of inspect_ai that is installed for "
            f"{PYTHON}. Fix it."
        ) from error
    systems = set()
    for sample in reply["samples"]:
        talk = sample["messages"]
        asked = [message["content"] for message in talk if message["role"] == "user"]
        systems |= {message["content"] for message in talk if message["role"] == "system"}
        if sample["fault"] or len(asked) != 1 or talk[-1]["role"] != "user" or len(systems) > 1:
            fault = (
                sample["fault"]
                or f"its prompt has the roles {', '.join(message['role'] for message in talk) or 'none'}"
            )
            raise TableError(
                f"{name}: sample {sample['id']}: {short(fault)}; expected one call with one message of a user, after at most one "
                "system message that all samples share. Use its logs instead (`source: inspect-logs`)."
            )
        digest = file_sha256(Path(path)) if path else None
        gold = {
            "task": name,
            "path": entry.path,
            "key": entry.columns.get("given_grade"),
            "sha256": digest,
            "sample": sample["id"],
            "versions": reply["versions"],
        }
        target = sample["target"]
        yield {
            "problem": f"{name.rpartition('/')[2]}-{sample['id']}",
            "statement": asked[0],
            "answer": json.dumps(gold),
            "solution": "; ".join([target] if isinstance(target, str) else target) or None,
            "question_type": "answer",
            "origin": f"{name} {sample['id']}",
        }
    if systems:
        log(name, f"its solver sends a system message; set it as `system` of the responses: {short(min(systems))}")


def grade(submissions: Sequence[Any]) -> Iterator[Graded]:
    """Yield the grade of each submission (graders.Submission) as a share of 1, its reason, and the scorer's text."""
    graded: dict[int, Graded] = {}
    by_task: dict[str, list[int]] = {}
    for place, submission in enumerate(submissions):
        gold = _read_gold(submission.answer)
        if gold is None:
            graded[place] = None, Reason.NO_GOLD, "not a problem of `source: inspect-task`"
        else:
            by_task.setdefault(json.dumps({key: gold[key] for key in gold if key != "sample"}), []).append(place)
    for task, places in by_task.items():
        for start in range(0, len(places), AT_ONCE):
            part = places[start : start + AT_ONCE]
            graded |= dict(zip(part, _grade_by(json.loads(task), [submissions[place] for place in part]), strict=True))
    return (graded[place] for place in range(len(submissions)))


def _grade_by(task: dict[str, Any], submissions: Sequence[Any]) -> list[Graded]:
    """Grade submissions to one task. If the child fails for several attempts, each gets a child of its own."""
    path = task["path"] and str(local_path(task["path"]).absolute())
    if path and file_sha256(Path(path)) != task["sha256"]:
        raise SettingError(f"{path}: has changed since its problems were read; expected the same file. Rebuild them.")
    attempts = [
        {
            "id": json.loads(submission.answer or "")["sample"],
            "text": submission.final,
            "reasoning": submission.reasoning,
            "truncated": submission.stop_reason == StopReason.LENGTH,
        }
        for submission in submissions
    ]
    try:
        reply = run({"name": task["task"], "path": path, "key": task.get("key"), "attempts": attempts})
    except ChildError as error:
        if len(submissions) > 1:
            return [graded for each in submissions for graded in _grade_by(task, [each])]
        return [(None, Reason.NO_VERDICT, f"the scorer failed: {error}")]
    if reply["versions"] != task["versions"]:
        raise SettingError(
            f"{PYTHON}: has {reply['versions']}, and the problems of {task['task']} were read with {task['versions']}; expected the "
            "same. Install those versions and name those judges, or rebuild the problems."
        )
    return [_read_grade(grade) for grade in reply["grades"]]


def _read_grade(grade: dict[str, Any]) -> Graded:
    value, reason = grade["value"], REASONS.get(grade["reason"], Reason.NO_VERDICT)
    if value is None:
        return None, reason, f"{grade['reason']}: {grade['text']}"
    if not 0 <= value <= 1:
        return None, Reason.OFF_SCALE, f"{value:g}: {grade['text']}"
    return float(value), Reason.OK, grade["text"]


def _read_gold(answer: str | None) -> dict[str, Any] | None:
    try:
        gold = json.loads(answer or "")
        return gold if isinstance(gold, dict) and "sample" in gold and "task" in gold else None
    except ValueError:
        return None


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Return the reply of a child. Raises SettingError without an interpreter, ChildError for a child without a reply."""
    if not (python := os.environ.get(PYTHON)):
        raise SettingError(
            f"{PYTHON}: not set; expected the path of a Python with inspect_ai and the task's package. Set it: python -m venv inspect "
            f"&& inspect/bin/pip install inspect_ai inspect_evals && export {PYTHON}=$PWD/inspect/bin/python"
        )
    folder = Path(request["path"]).parent if request["path"] else None
    return children.run(python, CHILD, request, folder)
