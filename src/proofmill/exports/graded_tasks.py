"""Read the tasks of an exported package, and grade attempts at them with the exported grader.

    tasks.jsonl     a task a line: messages for the solver, and everything that its attempts are graded by
    grader.json     the grader, its rubric, and the models and graders that it uses
    prompts/        rubrics of the user's own; plugins/ has the user's own graders

Grading is that of `grades`: the same programs, rubrics, escapes, parsers, juries and cascades.
"""

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from proofmill.calls.dialogues import Ask, Done, advance
from proofmill.config import plugins
from proofmill.config.entry_values import entry_from
from proofmill.exports import direct_calls
from proofmill.graders.escalation import max_points
from proofmill.graders.graders import SubmissionGrader
from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import Verdict
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import Reason, StopReason

AT_ONCE = 32  # judge calls of one process


@cache
def open_tasks(folder: Path) -> "GradedTasks":
    """Return the tasks in a folder; one grader serves a process."""
    return GradedTasks(folder)


class GradedTasks:
    """The tasks of a package, by problem, and their grader. It opens with the first grade and stays open."""

    def __init__(self, folder: Path):
        self.folder = folder
        lines = (folder / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
        self.tasks: dict[str, dict[str, Any]] = {task["problem"]: task for task in map(json.loads, lines)}
        self.settings = json.loads((folder / "grader.json").read_text(encoding="utf-8"))
        self._one_at_a_time, self._calls = threading.Lock(), ThreadPoolExecutor(AT_ONCE)

    @cached_property
    def grader(self) -> SubmissionGrader:
        """The grader, with its programs open."""
        if paths := [str(self.folder / path) for path in self.settings["plugins"]]:
            plugins.add(paths)
        declared = {
            name: entry_from(kind_of(name), self._locate(fields)) for name, fields in self.settings["declared"].items()
        }
        prompt = self._locate({"prompt": self.settings["prompt"]})["prompt"]
        return SubmissionGrader(self.settings["grader"], prompt, declared, self.settings["schemes"]).__enter__()

    def _locate(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return fields of an entry with the place of a prompt that the package brings."""
        prompt = fields.get("prompt")
        return {**fields, "prompt": str(self.folder / prompt)} if prompt and prompt.endswith(".md") else fields

    @property
    def max_points(self) -> int:
        return max_points(self.grader.graders[0])

    def grade(
        self, problem: str, text: str, reasoning: str | None = None, truncated: bool = False, refused: bool = False
    ) -> Verdict:
        """Return the verdict on an attempt: a grade up to `max_points`, or None with the reason. Threads may share this."""
        with self._one_at_a_time:
            dialogue = self.grader.dialogue(self._submit(problem, text, reasoning, truncated, refused))
        state = advance(dialogue, None)
        while not isinstance(state, Done):
            state = advance(dialogue, self._reply(state))
        return state.result

    def grade_all(self, attempts: Sequence[tuple[str, str]]) -> list[Verdict]:
        """Return the verdicts on (problem, text) pairs, in order; their judges are called concurrently."""
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return list(threads.map(lambda attempt: self.grade(*attempt), attempts))

    def _submit(self, problem: str, text: str, reasoning: str | None, truncated: bool, refused: bool) -> Submission:
        task = self.tasks[problem]
        return Submission(
            task["statement"],
            task["answer"],
            task["scheme"],
            text,
            reasoning,
            StopReason.LENGTH if truncated else StopReason.END,
            Reason.REFUSED if refused else Reason.OK,
            task["solution"],
            task["question_type"],
        )

    def _reply(self, asks: Sequence[Ask]) -> list[Any]:
        """Return the outputs of judges, called concurrently, and of programs, one at a time."""
        called = {
            place: self._calls.submit(direct_calls.ask, ask.who, self.grader.declared[ask.who], ask.what)
            for place, ask in enumerate(asks)
            if ask.who in self.grader.declared
        }
        replies: list[Any] = []
        for place, ask in enumerate(asks):
            if place in called:
                replies.append(called[place].result())
            else:
                with self._one_at_a_time:
                    replies.extend(self.grader.programs[ask.who]([ask.what]))
        return replies
