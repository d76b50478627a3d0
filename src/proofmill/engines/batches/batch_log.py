"""Record the batches of an artifact's model next to its journal, so that a killed job finds them again.

batches.jsonl has a line for each step of a batch: `intended` with its digest and the keys of its requests, before the
server knows of it; `created` with its id; `merged` once the journal has all that it answered.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from proofmill.runtime import append_log


@dataclass
class Batch:
    """A batch that is not merged yet: its digest, the keys of its requests, and its id once it has one."""

    digest: str
    keys: frozenset[str]
    id: str | None = None
    reserved: float = field(default=0.0, compare=False)  # dollars


class BatchLog:
    """The batches of one model in the folder of a journal."""

    def __init__(self, folder: Path, model: str):
        self.path, self.model = folder / "batches.jsonl", model

    def open(self) -> list[Batch]:
        """Return the batches that are not merged, oldest first."""
        batches: dict[str, Batch] = {}
        for line in append_log.complete_lines(self.path):
            try:
                step = json.loads(line)
            except ValueError:  # torn by a kill, so the step was not taken
                continue
            if step["model"] != self.model:
                continue
            if step["step"] == "intended":
                batches[step["digest"]] = Batch(step["digest"], frozenset(step["keys"]))
            elif step["step"] == "created":
                batches[step["digest"]].id = step["id"]
            else:
                del batches[step["digest"]]
        return list(batches.values())

    def add(self, step: str, batch: Batch) -> None:
        """Append a step, and wait until the disk has it."""
        more = {"keys": sorted(batch.keys)} if step == "intended" else {"id": batch.id}
        line = json.dumps({"model": self.model, "step": step, "digest": batch.digest, **more})
        append_log.append(self.path, [f"{line}\n".encode()])
