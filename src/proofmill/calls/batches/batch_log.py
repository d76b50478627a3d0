"""Record the batches of an artifact's models next to its journal, so that a killed job finds them again.

batches.jsonl has a line for each step of a batch: `intended` with its digest, its requests and the dollars reserved for
it, before the server knows of it; `created` with its id; `merged` once the journal has all that it answered.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proofmill.calls.model_requests import ModelRequest
from proofmill.runtime import append_log

Shape = tuple[int, int, bool]  # of a request: bytes of its conversation, `max_tokens`, `logprobs`


@dataclass
class Batch:
    """A batch that is not merged yet: its digest, the keys of its requests, and its id once it has one."""

    digest: str
    keys: frozenset[str]
    id: str | None = None
    reserved: float = field(default=0.0, compare=False)  # dollars
    shapes: dict[str, Shape] = field(default_factory=dict, compare=False)  # by key
    left_out: frozenset[str] = field(default=frozenset(), compare=False)  # unsupported fields, if this run submitted it

    def build_outline(self, key: str, model: str) -> ModelRequest:
        """Return a request with the key and the limits of one in this batch, to read a reply that no row needs now."""
        size, most, logprobs = self.shapes.get(key, (0, 4096, False))
        request = ModelRequest(model, (("user", " " * size),), max_tokens=most, logprobs=logprobs)
        vars(request)["key"] = key  # not the digest of the blanks
        return request


class BatchLog:
    """The batches of one model, or of all, in the folder of a journal."""

    def __init__(self, folder: Path, model: str | None = None):
        self.path, self.model = folder / "batches.jsonl", model

    def open(self) -> list[Batch]:
        """Return the batches that are not merged, oldest first."""
        batches: dict[str, Batch] = {}
        for line in append_log.complete_lines(self.path):
            try:
                step = json.loads(line)
            except ValueError:  # torn by a kill, so the step was not taken
                continue
            if self.model not in (None, step["model"]):
                continue
            if step["step"] == "intended":
                shapes = dict(zip(step["keys"], step.get("shapes", ()), strict=False))
                batches[step["digest"]] = Batch(
                    step["digest"], frozenset(step["keys"]), None, step.get("reserved", 0.0), shapes
                )
            elif step["step"] == "created":
                batches[step["digest"]].id = step["id"]
            else:
                del batches[step["digest"]]
        return list(batches.values())

    def read_reserved(self) -> dict[str, float]:
        """Return the dollars that are reserved for each batch that is not merged, by its digest."""
        return {batch.digest: batch.reserved for batch in self.open()}

    def add(self, step: str, batch: Batch) -> None:
        """Append a step, and wait until the disk has it."""
        more: dict[str, Any] = {"id": batch.id}
        if step == "intended":
            keys = sorted(batch.keys)
            shapes = [batch.shapes[key] for key in keys if key in batch.shapes]
            more = {"keys": keys, "shapes": shapes, "reserved": batch.reserved}
        line = json.dumps({"model": self.model, "step": step, "digest": batch.digest, **more})
        append_log.append(self.path, [f"{line}\n".encode()])
