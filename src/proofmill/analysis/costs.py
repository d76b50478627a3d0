"""Sum costs from stamps and journals: compute, calls, retries, tokens and dollars by kind and model, and by time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from proofmill.calls import records
from proofmill.schema.errors import ProofmillError
from proofmill.schema.names import kind_of

CURVE = 200  # points
Stamp = Mapping[str, Any]


@dataclass(frozen=True)
class Cost:
    """The artifacts of a kind with one model, and the `sums` of their seconds, calls, retries, tokens read and written."""

    kind: str
    model: str
    stamps: Sequence[Stamp]
    sums: Mapping[str, float]


def format_dollars(stamps: Iterable[Stamp]) -> str:
    """Return the dollars of all calls, and whether some have no known price; empty without calls."""
    costs = [stamp.get("cost") for stamp in stamps if stamp.get("tokens") is not None]
    known = [cost for cost in costs if cost is not None]
    return " + ".join([f"${sum(known):,.2f}"] * bool(known) + ["no price"] * (len(known) < len(costs)))


def sum_costs(stamps: Mapping[str, Stamp], results: Path, by_model: bool = True) -> list[Cost]:
    """Return the costs of artifacts by kind and model, or by kind alone, the longest first."""
    groups: dict[tuple[str, str], dict[str, Stamp]] = {}
    for name, stamp in stamps.items():
        model = stamp["entry"].get("grader" if kind_of(name) == "grades" else "model") or ""
        groups.setdefault((kind_of(name), model if by_model else ""), {})[name] = stamp
    costs = []
    for (kind, model), some in groups.items():
        sums: Counter[str] = Counter()
        for name, stamp in some.items():
            folder, tokens = results / "calls" / name, stamp.get("tokens")
            sums.update({"seconds": stamp.get("seconds") or 0, "written": tokens or 0})
            sums.update({} if tokens is None else count_calls(folder, *_version(folder)))
        costs.append(Cost(kind, model, [*some.values()], sums))
    return sorted(costs, key=lambda cost: -cost.sums["seconds"])


def _version(folder: Path) -> Iterator[float]:
    """Yield what changes with a journal: size and time of its files."""
    for path in (*records.segments(folder), folder / "calls.jsonl"):
        if path.exists():
            yield from (path.stat().st_size, path.stat().st_mtime)


@lru_cache(maxsize=2000)
def count_calls(folder: Path, *version: float) -> Mapping[str, float]:
    """Return the calls in a version of a journal, their retries, and the tokens that models read."""
    try:
        frame = records.frame(folder, "tries", "prompt_tokens")
    except ProofmillError:  # its job and `proofmill check` report a damaged journal
        return {}
    retries = max(0, int(frame["tries"].sum()) - frame.height)
    return {"calls": frame.height, "retries": retries, "read": int(frame["prompt_tokens"].sum())}


def draw_sum(made: Sequence[tuple[float, Stamp]]) -> dict[str, Any] | None:
    """Draw the sum of dollars (of seconds, if all are 0) by the time of each table, as an SVG path in 100 by 100."""
    key = "cost" if any(stamp.get("cost") for _, stamp in made) else "seconds"
    total, points, ordered = 0.0, [], sorted(made, key=lambda each: each[0])
    most = sum(stamp.get(key) or 0.0 for _, stamp in made)
    if len(made) < 2 or not most:
        return None
    start, end = ordered[0][0], ordered[-1][0]
    for moment, stamp in ordered:
        total += stamp.get(key) or 0.0
        points.append(f"H{100 * (moment - start) / ((end - start) or 1):.2f}V{100 - 100 * total / most:.2f}")
    thinned = "".join(points[:: -1 - len(points) // CURVE][::-1])  # from the end, so that the last point is one
    return {"path": f"M0 100{thinned}", "paid": key == "cost", "total": most, "start": start, "end": end}
