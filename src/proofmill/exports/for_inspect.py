"""Build an inspect_ai task from an exported package: single-turn samples, scored by the exported grader.

A score is the share of the points. An attempt without a verdict is inspect_ai's `Score.unscored`, which its metrics and
reducers leave out (inspect_ai 0.3.245 and later).
"""

import asyncio
from pathlib import Path

from inspect_ai import Task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, ContentReasoning
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState, generate

from proofmill.exports.graded_tasks import open_tasks
from proofmill.schema.reasons import Reason
from proofmill.text.reasoning import CLOSE

MESSAGES = {"system": ChatMessageSystem, "user": ChatMessageUser}
REASONS = {  # inspect_ai's words for those of ours that have one
    Reason.REFUSED: "refusal",
    Reason.EMPTY: "no_response",
    Reason.NO_ANSWER: "invalid_response_format",
    Reason.UNPARSABLE: "invalid_response_format",
    Reason.NO_VERDICT: "grader_failed",
    Reason.OFF_SCALE: "grader_failed",
    Reason.NO_QUORUM: "grader_failed",
}


def build_task(folder: Path) -> Task:
    """Return the task of the package in a folder."""
    samples = [
        Sample(
            [MESSAGES[message["role"]](content=message["content"]) for message in task["messages"]],
            target=task["answer"] or "",
            id=problem,
            metadata={"level": task["level"], "origin": task["origin"]},
        )
        for problem, task in open_tasks(folder).tasks.items()
    ]
    return Task(MemoryDataset(samples, folder.name), solver=generate(), scorer=grade(str(folder)))


@scorer(metrics=[mean(), stderr()], name="grade")
def grade(folder: str) -> Scorer:
    """Return the scorer: the exported grader."""

    async def score(state: TaskState, target: Target) -> Score:
        tasks, message = open_tasks(Path(folder)), state.output.message
        parts = message.content if isinstance(message.content, list) else []
        thoughts = [part.reasoning for part in parts if isinstance(part, ContentReasoning)]
        # inspect_ai ends the reasoning at the first `</think>`; proofmill at the last one.
        text = state.output.completion.rpartition(CLOSE)[2] if thoughts else state.output.completion
        verdict = await asyncio.to_thread(
            tasks.grade,
            str(state.sample_id),
            text,
            "\n\n".join(thoughts) or None,
            state.output.stop_reason in ("max_tokens", "model_length"),
            state.output.stop_reason == "content_filter",
        )
        facts = {"grade": verdict.grade, "max_points": verdict.max_points, "reason": str(verdict.reason)}
        reason, explanation = REASONS.get(Reason(verdict.reason)), verdict.text or str(verdict.reason)
        if verdict.grade is None:
            return Score.unscored(reason=reason or "scoring_failed", explanation=explanation, metadata=facts)
        return Score(value=verdict.grade / verdict.max_points, explanation=explanation, reason=reason, metadata=facts)

    return score
