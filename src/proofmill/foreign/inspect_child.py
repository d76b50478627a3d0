"""Run an inspect_ai task for inspect_tasks.py: list its prompts, or score texts by its solver and scorer.

    python inspect_child.py REQUEST.json REPLY.json

A model of this file plays both parts. It keeps the conversation that the task's solver builds, and replies with a stored
text, so that what solvers do before and after the call is done. A sample that calls the model again has its own error.
"""

import json
import os
import runpy
import sys
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval, task_with
from inspect_ai.dataset import MemoryDataset
from inspect_ai.model import ContentReasoning, ContentText, GenerateConfig, ModelAPI, ModelOutput, get_model, modelapi
from inspect_ai.scorer import value_to_float
from inspect_ai.solver import solver
from inspect_ai.util import registry_create

ROLES = "INSPECT_EVAL_MODEL_ROLE"  # of inspect_ai's own command: models by their roles, separated by spaces
sample_at: ContextVar[int] = ContextVar("sample_at")
asked: dict[int, list[dict[str, str]]] = {}
replies: dict[int, dict] = {}


@solver
def remember():
    """Return a solver that notes which sample calls the model next."""

    async def solve(state, generate):
        sample_at.set(int(state.sample_id))
        return state

    return solve


class Stored(ModelAPI):
    """A model whose replies are stored; it keeps what it is asked."""

    async def generate(self, input, tools, tool_choice, config):
        """Return the stored reply to the sample in turn. Raises ValueError if a sample asks twice, or for tools."""
        place = sample_at.get(None)  # none in a scorer
        if place is None or place in asked or tools:
            fault = "offers tools" if tools else "calls the model more than once"
            raise ValueError(f"the task {fault}; if its scorer asks a judge, set {ROLES}=grader=<provider>/<model>")
        asked[place] = [{"role": message.role, "content": message.text} for message in input]
        if any(not isinstance(message.content, str) and len(message.content) > 1 for message in input):
            raise ValueError("the task's prompt has parts other than text")
        reply = replies.get(place, {})
        content = reply.get("text", "")
        if reply.get("reasoning"):
            content = [ContentReasoning(reasoning=reply["reasoning"]), ContentText(text=content)]
        return ModelOutput.from_content("stored", content, "max_tokens" if reply.get("truncated") else "stop")


@modelapi("stored")
def use_stored():
    """Return the class of the model."""
    return Stored


def find_task(name: str, path: str | None) -> Task:
    """Return a task: of an installed package (`package/name`), or of a Python file."""
    if path is None:
        __import__(name.partition("/")[0])
        return registry_create("task", name)
    return runpy.run_path(path)[name]()


def run(task: Task, samples: list, score: bool) -> list:
    """Return the samples of a log, in order; they are numbered from 0."""
    numbered = [sample.model_copy(update={"id": number}) for number, sample in enumerate(samples)]
    quiet = task_with(task, dataset=MemoryDataset(numbered), setup=remember(), epochs=1)
    options = {"display": "none", "log_dir": sys.argv[2] + ".logs", "log_samples": True, "fail_on_error": False}
    roles: Any = dict(role.split("=", 1) for role in os.environ.get(ROLES, "").split())
    stored = get_model("stored/model", config=GenerateConfig())
    (log,) = eval(quiet, model=stored, model_roles=roles, score=score, **options)
    if log.status != "success":
        raise SystemExit(f"inspect_ai: {log.error.message if log.error else log.status}")
    return sorted(log.samples or [], key=lambda sample: int(sample.id))


def versions(name: str, path: str | None) -> str:
    """Return the versions that decide prompts and scores, and the judges of scorers."""
    packages = ["inspect_ai", *([] if path else [name.partition("/")[0]])]
    known = []
    for package in packages:
        try:
            known.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            known.append(f"{package} unknown")
    return ", ".join([*known, *os.environ.get(ROLES, "").split()])


def grade_of(sample: Any, key: str | None) -> dict:
    """Return the value of a sample's first score (of several, that of `key`), converted by inspect_ai, or null with the reason."""
    if sample.error or not sample.scores:
        return {"value": None, "reason": "scoring_failed", "text": sample.error.message if sample.error else ""}
    score = next(iter(sample.scores.values()))
    text = score.explanation or score.answer or ""
    value = score.value.get(key) if isinstance(score.value, dict) and key else score.value
    if not isinstance(value, str | int | float | bool):
        return {"value": None, "reason": f"not one value: {score.value}", "text": text}
    value = value_to_float()(value)
    return {"value": None if value != value else value, "reason": score.reason or "", "text": text}


def main() -> None:
    """Read the request, and write the reply."""
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    name, path = request["name"], request["path"]
    task = find_task(name, path)
    every = {str(number if sample.id is None else sample.id): sample for number, sample in enumerate(task.dataset)}
    if "attempts" not in request:
        samples = list(every.items())[: request["rows"]]
        faults = {int(done.id): done.error.message for done in run(task, [s for _, s in samples], False) if done.error}
        targets = [sample.target if isinstance(sample.target, str) else list(sample.target) for _, sample in samples]
        listed = [
            {"id": id, "messages": asked.get(number, []), "target": targets[number], "fault": faults.get(number)}
            for number, (id, _) in enumerate(samples)
        ]
        reply = {"samples": listed}
    else:
        attempts = request["attempts"]
        replies.update(enumerate(attempts))
        reply = {
            "grades": [grade_of(done, request["key"]) for done in run(task, [every[a["id"]] for a in attempts], True)]
        }
    Path(sys.argv[2]).write_text(json.dumps({"versions": versions(name, path), **reply}), encoding="utf-8")


if __name__ == "__main__":
    main()
