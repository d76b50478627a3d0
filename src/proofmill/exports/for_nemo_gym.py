"""Build a NeMo-Gym resources server (version 0.4) from an exported package; it grades the last message of a response.

A reward is the share of the points. An attempt without a verdict is HTTP 503 with the reason, so its rollout fails and is
not trained on as 0.
"""

import asyncio
from importlib import resources
from pathlib import Path
from typing import ClassVar

from fastapi import HTTPException
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer

from proofmill.exports.graded_tasks import open_tasks


class ProofVerifyRequest(BaseVerifyRequest):
    """A response to a task, which the row of the dataset names."""

    problem: str


class ProofVerifyResponse(BaseVerifyResponse):
    """The reward, with the grade that it comes from."""

    grade: float
    max_points: int


class ProofServer(SimpleResourcesServer):
    """Grades by the exported grader; the package's own class names the package."""

    package: ClassVar[str]

    async def verify(self, body: ProofVerifyRequest) -> ProofVerifyResponse:
        """Return the share of the points."""
        messages = [item for item in body.response.output if item.type == "message"]
        text = "".join(part.text for item in messages[-1:] for part in item.content if part.type == "output_text")
        truncated = getattr(body.response.incomplete_details, "reason", None) == "max_output_tokens"
        tasks = open_tasks(Path(str(resources.files(self.package))))
        verdict = await asyncio.to_thread(tasks.grade, body.problem, text, None, truncated)
        if verdict.grade is None:
            raise HTTPException(503, f"unscored: {verdict.reason}")
        return ProofVerifyResponse(
            responses_create_params=body.responses_create_params,
            response=body.response,
            reward=verdict.grade / verdict.max_points,
            grade=verdict.grade,
            max_points=verdict.max_points,
        )
