"""A plan as text for people, and as data for programs."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from proofmill.calls import budget
from proofmill.planning.data import size, summed
from proofmill.runtime.progress import clock
from proofmill.schema.kinds import learned
from proofmill.schema.names import kind_of

_STATES = {"done": "done", "restore": "restore, it was made before", "make": "make"}


def lines(plan: Any) -> Iterator[str]:
    """The plan as text."""
    width = max(map(len, plan.stages), default=0)
    for stage in plan.stages.values():
        yield f"{stage.name:<{width}}  {_STATES[stage.state]}{': ' if stage.why else ''}{'; '.join(stage.why)}".rstrip()
        if stage.state == "make":
            yield from (f"{'':<{width}}    {line}" for line in _details(stage))
    yield from _sums(plan)
    yield from _connections(plan)
    yield from _missing(plan)


def _details(stage: Any) -> Iterator[str]:
    about = "" if stage.exact else "at most " if stage.at_most else "about "
    if stage.rows:
        counts = f"{stage.cached:,} cached, {stage.calls:,} to do, {stage.parked:,} of them parked before"
        if stage.depth:
            counts = f"{stage.cached:,} calls cached, at most {stage.depth:,} of a row one after another"
        detail = counts if stage.exact or stage.depth else "how many are cached is known when they are there"
        yield f"{about}{stage.rows:,} rows: {detail}"
    if stage.calls is None or stage.calls:
        calls = "an unknown number of" if stage.calls is None else f"{about}{stage.calls:,}"
        if stage.least is not None and stage.least < stage.calls:
            calls = f"{stage.least:,} to {stage.calls:,}"
        tokens, dollars = stage.tokens.shown("{:,.0f}"), stage.dollars.shown("${:,.2f}")
        yield f"{calls} calls{' or more' * stage.further}, {tokens} tokens, {dollars} ({stage.learned})"
    yield from stage.shows
    if stage.seconds is not None:
        gpus = f", {stage.seconds * stage.gpus / 3600:,.2f} GPU-hours" if stage.gpus else ""
        yield f"took {clock(stage.seconds)}{gpus} the last time"


def _sums(plan: Any) -> Iterator[str]:
    states = [stage.state for stage in plan.stages.values()]
    yield ""
    yield f"{states.count('make')} to make, {states.count('restore')} to restore, {states.count('done')} done"
    total = plan.totals
    if total.calls or total.unknown:
        yield f"{_calls(total)}: {total.tokens.shown('{:,.0f}')} tokens, {total.dollars.shown('${:,.2f}')}"
    stages = [stage for stage in plan.stages.values() if stage.state == "make"]
    hours = sum(stage.seconds * stage.gpus for stage in stages if stage.gpus) / 3600
    unknown = sum(stage.gpus is None for stage in stages if kind_of(stage.name) in (*learned(), "responses"))
    if hours:
        yield f"{hours:,.2f} GPU-hours as the last time"
    if unknown:
        yield f"GPU-hours unknown for {unknown} stages that were never made"
    spent, most = budget.spent(plan.results / "calls"), plan.book.budget
    if most is None:
        yield f"${spent:,.2f} spent so far; no budget is declared"
    else:
        yield f"${spent:,.2f} spent so far of a budget of ${most:,.2f}"
        if total.dollars.value is not None and spent + total.dollars.high > most:
            yield f"the budget may not suffice: up to ${spent + total.dollars.high - most:,.2f} are missing"


def _connections(plan: Any) -> Iterator[str]:
    """What the environment lacks to reach the remote models that are asked."""
    for each in plan.connections:
        if each.fault:
            others = f" and {len(each.stages) - 2} more" * (len(each.stages) > 2)
            yield f"not yet reachable: {each.fault} ({', '.join(each.stages[:2])}{others} ask it)"
    if plan.connections and not any(each.fault for each in plan.connections):
        yield f"asks {', '.join(each.model for each in plan.connections)}: `proofmill check {plan.target}` tries them"


def _calls(total: Any) -> str:
    """The calls of all stages: about as many, or at least so many where filters or unknown tables decide on more."""
    if total.least == total.calls and not total.unknown:
        return f"about {total.calls:,} calls"
    text = f"at least {total.least:,} calls"
    if total.calls > total.least:
        text += f", {total.calls:,} if no filter refuses a row"
    if total.unknown:
        text += f", and those of {total.unknown} stage{'s' * (total.unknown > 1)} whose rows are not known"
    return text


def _missing(plan: Any) -> Iterator[str]:
    """The public data that are not here, and the command that brings them."""
    if plan.missing:
        yield ""
        yield f"not on this machine ({summed(plan.missing)}); `proofmill fetch {plan.target}` brings it:"
        yield from (
            f"  {item.name}, {size(item.bytes)}, licence {item.licence}: {item.source}" for item in plan.missing
        )


def data(plan: Any) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "target": plan.target,
        "stages": [asdict(stage) for stage in plan.stages.values()],
        "totals": asdict(plan.totals),
        "missing": [item.source for item in plan.missing],
        "connections": [
            {"model": each.model, "stages": each.stages, "fault": each.fault or None} for each in plan.connections
        ],
        "spent": budget.spent(plan.results / "calls"),
        "budget": plan.book.budget,
    }
