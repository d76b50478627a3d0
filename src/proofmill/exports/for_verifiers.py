"""Build a verifiers taskset (version 0.4) from an exported package: single-turn tasks, rewarded by the exported grader.

A reward is the share of the points. An attempt without a verdict raises: verifiers records it as a `TaskError` of its
trace, without a reward, so trainers can leave it out.
"""

import asyncio
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import verifiers.v1 as vf

from proofmill.exports.graded_tasks import GradedTasks, open_tasks


class Unscored(Exception):
    """An attempt without a verdict; the message is the reason."""


class ProofData(vf.TaskData):
    """A problem of the package."""

    problem: str
    package: str


class ProofTask(vf.Task[ProofData]):
    """A task whose last reply is graded."""

    @vf.reward(weight=1.0)
    async def grade(self, trace: vf.Trace) -> float:
        """Return the share of the points of the last reply."""
        tasks = read_package(self.data.package)
        truncated = bool(getattr(trace, "is_truncated", False))
        verdict = await asyncio.to_thread(tasks.grade, self.data.problem, trace.last_reply, None, truncated)
        if verdict.grade is None:
            raise Unscored(f"unscored: {verdict.reason}")
        return verdict.grade / verdict.max_points


class ProofTaskset(vf.Taskset[ProofTask, vf.TasksetConfig]):
    """The tasks of a package; the package's own class names it."""

    package: str

    def load(self) -> Iterable[ProofTask]:
        """Yield the tasks."""
        for problem, task in read_package(self.package).tasks.items():
            texts = {message["role"]: message["content"] for message in task["messages"]}
            data = ProofData(
                id=problem,
                problem=problem,
                package=self.package,
                prompt=texts["user"],
                system_prompt=texts.get("system"),
            )
            yield ProofTask(data, self.config.task)


def read_package(package: str) -> GradedTasks:
    """Return the tasks in an installed package."""
    return open_tasks(Path(str(resources.files(package))))
