"""A plan as text for people, and as data for programs."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from proofmill.calls import budget, prices
from proofmill.planning.data import size, summed
from proofmill.runtime.progress import clock
from proofmill.schema.kinds import learned
from proofmill.schema.names import kind_of

_STATES = {"done": "done", "restore": "restore, it was made before", "make": "make"}


NAME, LEAST = 44, 24  # characters of a name, and of a reason, that a line has room for
ABSENT = "–"


def lines(plan: Any, verbose: bool, width: int) -> Iterator[str]:
    """The plan as text: a line for each stage that is not done, as wide as the screen; or all that is known of each."""
    yield from _in_full(plan) if verbose else _in_brief(plan, width)
    yield from _sums(plan)
    yield from _connections(plan)
    yield from _missing(plan)


def _in_full(plan: Any) -> Iterator[str]:
    width = max(map(len, plan.stages), default=0)
    for stage in plan.stages.values():
        yield f"{stage.name:<{width}}  {_STATES[stage.state]}{': ' if stage.why else ''}{'; '.join(stage.why)}".rstrip()
        if stage.state == "make":
            yield from (f"{'':<{width}}    {line}" for line in _details(stage))


def _in_brief(plan: Any, width: int) -> Iterator[str]:
    """A table: name, state, rows, calls, tokens, dollars and the time of the last making, and why in one clause."""
    stages = [stage for stage in plan.stages.values() if stage.state != "done"]
    if not stages:
        return
    rows = [("", "", "rows", "calls", "tokens", "dollars", "time", "why"), *map(_brief, stages)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for name, state, *numbers, why in rows:
        shown = "  ".join(f"{number:>{size}}" for number, size in zip(numbers, widths[2:], strict=True))
        line = f"{name:<{widths[0]}}  {state:<{widths[1]}}  {shown}  "
        room = max(LEAST, width - len(line))
        yield f"{line}{why if len(why) <= room else why[: room - 1] + '…'}".rstrip()
    yield f"what is behind a line: proofmill plan {plan.target} --verbose"


def _brief(stage: Any) -> tuple[str, ...]:
    name = stage.name if len(stage.name) <= NAME else f"{stage.name[: NAME // 2 - 1]}…{stage.name[-NAME // 2 :]}"
    calls = ABSENT if stage.calls == 0 else "?" if stage.calls is None else _short(stage.calls)
    known = stage.calls != 0 and stage.state == "make"
    return (
        name,
        stage.state,
        ABSENT if not stage.rows else ("" if stage.exact else "~") + _short(stage.rows),
        calls if stage.state == "make" else ABSENT,
        _amount(stage.tokens.value, "{}") if known else ABSENT,
        _amount(stage.dollars.value, "${}") if known else ABSENT,
        ABSENT if stage.seconds is None else clock(stage.seconds),
        _clause(stage.why),
    )


def _clause(why: list[str]) -> str:
    """The first reason; where that is what is made before it, its name alone."""
    first = why[0] if why else ""
    return f"after {first.removesuffix(' will be made')}" if first.endswith(" will be made") else "; ".join(why)


def _amount(value: float | None, form: str) -> str:
    return (
        "?" if value is None else form.format(_short(value) if value >= 1000 else f"{value:,.2f}".removesuffix(".00"))
    )


def _short(value: float) -> str:
    """`12,345` as `12.3k`, with three digits at most."""
    for worth, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= worth:
            return f"{value / worth:.3g}{letter}"
    return f"{value:,.0f}"


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
        if price := prices.listed(each.api):
            yield f"{each.model} declares no price; data/prices.csv has {price}"
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
            {
                "model": each.model,
                "stages": each.stages,
                "fault": each.fault or None,
                "price": str(price) if (price := prices.listed(each.api)) else None,
            }
            for each in plan.connections
        ],
        "spent": budget.spent(plan.results / "calls"),
        "budget": plan.book.budget,
    }
