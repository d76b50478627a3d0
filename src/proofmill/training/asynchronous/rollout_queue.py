"""Sampled rollouts that no step has trained on yet, in a file among the checkpoints; a kill loses only those in flight.

Each rollout is a line as soon as it is sampled, before its judge is called. Each step is a line that names the groups it
trains on. A training that resumes from a checkpoint, or restarts without one, takes the groups that were not trained on;
their grades are in the journal. Rollouts by weights that were lost are kept if a training with this staleness limit could
have trained on them at that step. The others are dropped and sampled again.

A new rollout therefore makes progress even without a checkpoint. One that is sampled again does not: a job that does no
more than that in its walltime would do so forever.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from threading import Event, Lock
from typing import Any

import numpy as np

from proofmill.runtime import append_log, durable
from proofmill.training.asynchronous.sampler import SampledRollout
from proofmill.training.rollout_log import whole_lines

ATTEMPTS = "attempts.jsonl"  # among the checkpoints


class RolloutQueue:
    """The file of the attempts of a training; `waiting` has those of groups that were not trained on yet, by group and place."""

    def __init__(self, folder: Path, after: int, max_staleness: int, advanced: Event | None = None):
        """Load the rollouts that an earlier run left for a training that resumes after step `after`.

        `advanced` is set when an attempt is kept that no earlier run had (`Job.advanced`).
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self._lock = folder / ATTEMPTS, Lock()
        self._advanced = advanced or Event()
        self._had: set[tuple[int, int]] = set()  # group and place of each attempt that was sampled, and not learned
        self.waiting: dict[int, dict[int, SampledRollout]] = {}
        self.problems: dict[int, int] = {}  # the indices of the problems of groups, where problems retire
        self._learned: dict[int, int] = {}  # the steps of groups
        self._below = 0  # all groups below this one are learned, and forgotten
        for line in map(json.loads, whole_lines(self.path)):
            if "ids" in line:
                self._had.add((line["group"], line["place"]))
            if "ids" in line and abs(line["policy_step"] - after) <= max_staleness:
                attempt = _attempt(line)
                self.waiting.setdefault(attempt.group, {})[attempt.place] = attempt
            elif "problem" in line:
                self.problems[line["group"]] = line["problem"]
            elif line.get("step", after + 1) <= after:
                self._below = max(self._below, line.get("below", 0))
                self._learned.update(dict.fromkeys(line["groups"], line["step"]))
        self.waiting = {group: found for group, found in self.waiting.items() if not self._is_trained_on(group, after)}
        self._write(after, (_line(attempt) for found in self.waiting.values() for attempt in found.values()))

    @property
    def groups(self) -> Iterator[int]:
        """The groups that were not trained on yet, in order; endless."""
        return (group for group in count(self._below) if group not in self._learned)

    def add(self, attempt: SampledRollout) -> None:
        """Keep an attempt that has just been sampled."""
        with self._lock:
            self._append(_line(attempt))
            if (attempt.group, attempt.place) not in self._had:
                self._had.add((attempt.group, attempt.place))
                self._advanced.set()

    def assign(self, group: int, problem: int) -> None:
        """Record the problem of a group, by its index, before an attempt is sampled."""
        with self._lock:
            self.problems[group] = problem
            self._append({"group": group, "problem": problem})

    def learn(self, step: int, groups: Sequence[int]) -> None:
        """Record which groups a step trains on."""
        with self._lock:
            self._learned.update(dict.fromkeys(groups, step))
            self._append({"step": step, "groups": [*groups]})
            durable.sync(self.path)  # before the checkpoint of the step

    def forget(self, step: int) -> None:
        """Remove the groups that were trained on up to this step, which no kill can undo."""
        with self._lock:
            while self._learned.get(self._below, step + 1) <= step:
                del self._learned[self._below]
                self._below += 1
            self._had = {(group, place) for group, place in self._had if not self._is_trained_on(group, step)}
            known = map(json.loads, whole_lines(self.path))
            self._write(
                step, (line for line in known if "ids" in line and not self._is_trained_on(line["group"], step))
            )

    def _is_trained_on(self, group: int, step: int) -> bool:
        return group < self._below or self._learned.get(group, step + 1) <= step

    def _append(self, line: dict[str, Any]) -> None:
        append_log.append(self.path, [_encode(line)], sync=False)  # a step's lines are synced before its checkpoint

    def _write(self, forgotten: int, attempts: Iterable[dict[str, Any]]) -> None:
        """Rewrite the file, in one rename, with the groups of the trained steps and with these attempts."""
        new = self.path.with_suffix(".new")
        self.problems = {group: at for group, at in self.problems.items() if not self._is_trained_on(group, forgotten)}
        steps = sorted({*self._learned.values()})
        with open(new, "wb") as file:
            file.write(_encode({"step": forgotten, "below": self._below, "groups": []}))
            for step in steps:
                file.write(_encode({"step": step, "groups": [g for g, at in self._learned.items() if at == step]}))
            file.writelines(_encode({"group": group, "problem": at}) for group, at in self.problems.items())
            file.writelines(map(_encode, attempts))
        durable.replace(new, self.path)


def _encode(line: dict[str, Any]) -> bytes:
    return f"{json.dumps(line)}\n".encode()


def _line(attempt: SampledRollout) -> dict[str, Any]:
    arrays = {"ids": attempt.ids_T.astype("<i4"), "logprobs": attempt.logprobs_T.astype("<f4")}
    coded = {name: base64.b64encode(array.tobytes()).decode() for name, array in arrays.items()}
    return {"group": attempt.group, "place": attempt.place, "policy_step": attempt.policy_step, **coded}


def _attempt(line: dict[str, Any]) -> SampledRollout:
    ids, logprobs = (np.frombuffer(base64.b64decode(line[n]), k) for n, k in (("ids", "<i4"), ("logprobs", "<f4")))
    return SampledRollout(line["group"], line["place"], line["policy_step"], ids, logprobs)
