"""Outputs of another journal that count as own ones: of an artifact for its shards, or of a parent for its child.

A stage that grades attempts while it samples them has the judges' outputs. The table of grades borrows them.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from proofmill.calls import records
from proofmill.calls.model_requests import ModelOutput
from proofmill.schema.reasons import StopReason


class Earlier:
    """The outputs of a journal that no process writes meanwhile, by key. Those that are `lent` cost nothing again."""

    def __init__(self, folder: Path, lent: bool = False):
        self._lent = lent
        self._paths, self._starts = records.segments(folder), [0]
        self._places: dict[str, int] = {}  # the number of the row, counted over all segments
        self._tail: dict[str, ModelOutput] = {}
        for path in self._paths:
            frame, before = records.read(path, "key", "stop_reason"), self._starts[-1]
            for row, (key, stop) in enumerate(frame.rows(), before):
                self._note(key, stop, self._places, row)
            self._starts.append(before + frame.height)
        tail = folder / "calls.jsonl"
        for line in records.whole_rows(tail):
            self._note(line.key, line.answer.stop_reason, self._tail, line.answer)

    def _note(self, key: str, stop: str, where: dict[str, Any], what: Any) -> None:
        """Record the last row of a key. A failure, or a line that invalidates an output, removes the key."""
        self._places.pop(key, None)
        self._tail.pop(key, None)
        if stop != StopReason.ERROR:
            where[key] = what

    def __contains__(self, key: str) -> bool:
        return key in self._places or key in self._tail

    def answers(self, keys: Iterable[str]) -> dict[str, ModelOutput]:
        """Return the outputs of some keys. Raises KeyError for a key without one."""
        wanted = set(keys)
        outputs = {key: self._tail[key] for key in wanted & self._tail.keys()}
        rows = sorted((self._places[key], key) for key in wanted - outputs.keys())
        for segment, group in groupby(rows, lambda row: bisect_right(self._starts, row[0]) - 1):
            some = list(group)
            places = [row - self._starts[segment] for row, _ in some]
            answers = records.answers_at(self._paths[segment], places)
            outputs |= {key: answer for (_, key), answer in zip(some, answers, strict=True)}
        return {key: replace(output, cost=0.0) for key, output in outputs.items()} if self._lent else outputs


def lenders_of(responses: Any) -> list[Path]:
    """Return the journal of a table of responses that were graded while they were sampled; none of another table."""
    return [responses.calls] if responses.stamp["entry"].get("until") else []
