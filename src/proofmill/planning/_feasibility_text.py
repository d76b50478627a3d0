"""Verdicts on a machine as text: a table, what does not fit and what would, and sums."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from proofmill.planning import hours
from proofmill.planning.hours import Ends
from proofmill.runtime.cluster import site_lines
from proofmill.schema.names import kind_of
from proofmill.training.memory import size

HEAD = ("", "model", "tokens", "how", "a GPU", "", "GPU-hours", "busy", "days")
WORDS = {True: "fits", False: "does not fit", None: "not known"}


def lines(feasibility: Any) -> Iterator[str]:
    """Yield a line for each stage, then why some do not fit and what would, then sums and lines of `site.yaml`."""
    machine, verdicts = feasibility.machine, feasibility.verdicts
    about = "this machine, no GPU" + (f", {size(machine.bytes)} free" if machine.bytes is not None else "")
    if machine.gpu:
        about = f"{machine.devices} GPUs of {size(machine.gpu.bytes)}, {size(machine.host)} of host memory for {machine.each}"
    yield f"{feasibility.plan.target} on {machine.name}: {about}"
    if not verdicts:
        yield "none of the stages to run loads weights"
        return
    yield from ("", *_table(verdicts), "", *_summary(feasibility))
    if machine.gpu:
        yield from site_lines.format_lines(verdicts, machine)


def _table(verdicts: list[Any]) -> Iterator[str]:
    """Yield the verdicts as a table. Stages of a kind that use equal weights in the same way share a row."""
    groups: dict[Any, list[Any]] = {}
    for verdict in verdicts:
        alone = verdict.judge or not verdict.asks
        key = (verdict.stage + verdict.judge if alone else kind_of(verdict.stage), verdict.model, _cells(verdict))
        groups.setdefault(key, []).append(verdict)
    rows = [HEAD]
    for (_, _, cells), alike in groups.items():
        known = [verdict.hours for verdict in alike if verdict.hours]
        name = f"{alike[0].judge} for {alike[0].stage}" if alike[0].judge else alike[0].stage
        ends = [""] * 3
        if len(known) == len(alike):
            sums = [sum(getattr(one, part) for one in known) for part in ("booked", "busy")]
            ends = [format_ends(both) for both in (*sums, max((one.days for one in known), key=sum))]
        rows.append((name + f" and {len(alike) - 1} more" * (len(alike) > 1), *cells, *ends))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, "<>><><>>>", widths, strict=True)
        yield "  ".join(f"{cell:{side}{width}}" for cell, side, width in cells).rstrip()


def _cells(verdict: Any) -> tuple[str, ...]:
    """Return the cells of a row: parameters, tokens, how the stage runs, bytes per device, and the verdict."""
    parameters = "?" if verdict.parameters is None else f"{verdict.parameters / 1e9:,.2f} B"
    how = taken = ""
    if verdict.fits:
        way, taken = verdict.ways[0], size(verdict.ways[0].bytes)
        words = [way.layout + f" x {way.devices}" * (way.devices > 1)]
        words += [f"{way.rows} row{'s' * (way.rows > 1)}"] * bool(way.rows) + ["recomputed"] * way.again
        if way.share is not None:
            words.append(f"vLLM {way.share:.0%}" + f" by {way.parallel}" * (way.parallel > 1))
        how = ", ".join(words + [f"server {way.apart}"] * bool(way.apart) + ["on further GPUs"] * bool(verdict.judge))
    return parameters, f"{verdict.tokens:,}", how, taken, WORDS[verdict.fits]


def format_ends(ends: Ends) -> str:
    """Return both ends with a precision that fits their size; one number if they round to the same."""
    numbers = (f"{end:.2g}" if end < 1 else f"{end:.1f}" if end < 10 else f"{end:,.0f}" for end in ends)
    return " to ".join(dict.fromkeys(numbers))


def _summary(feasibility: Any) -> Iterator[str]:
    """Yield why stages do not fit and what would help, each reason once; then the sums."""
    verdicts, faults = feasibility.verdicts, dict[str, list[str]]()
    for verdict in verdicts:
        for fault in verdict.faults:
            faults.setdefault(fault, []).append(verdict.stage)
    for fault, stages in faults.items():
        others = f" and {len(stages) - 2} more" * (len(stages) > 2)
        yield f"{', '.join(stages[:2])}{others}: {fault}"
    counts = {word: sum(verdict.fits is fits for verdict in verdicts) for fits, word in WORDS.items()}
    yield ", ".join(f"{word}: {count}" for word, count in counts.items() if count)
    if feasibility.booked is not None:
        ranges = (f"{min(rate):.0%} to {max(rate):.0%}" for rate in (hours.LEARNING, hours.READING))
        yield (
            f"{format_ends(feasibility.booked)} GPU-hours for {sum(bool(v.hours) for v in verdicts)} of {len(verdicts)}, if the mean "
            f"length of texts is {feasibility.fill:g} of the maximum; assumes {next(ranges)} of the GPU's peak rate in training and "
            f"{next(ranges)} of its bandwidth in sampling, no wait for the longest text to all of it"
        )
        yield f"{format_ends(feasibility.days)} days on this machine: the longest chain of stages, and at least all GPU-hours over all GPUs"
    by: dict[str, list[Ends]] = {}
    for verdict in verdicts:
        if "@" in verdict.stage and verdict.hours:
            by.setdefault(verdict.stage.split("@")[1], []).append(verdict.hours.booked)
    if len(by) > 1:
        yield "by benchmark: " + ", ".join(f"{name} {format_ends(sum(by[name], np.zeros(2)))}" for name in sorted(by))
