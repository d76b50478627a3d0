"""A plan as text, and as JSON data."""

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date
from typing import Any

from proofmill.calls import budget, prices
from proofmill.planning._power import warn_of_shared_rows
from proofmill.planning.data import format_total
from proofmill.public_data import registry
from proofmill.runtime import environment
from proofmill.runtime.progress import clock
from proofmill.schema.kinds import list_trained
from proofmill.schema.names import kind_of
from proofmill.text.byte_sizes import format_bytes

_STATES = {"done": "done", "restore": "restore from the archive", "make": "make"}


NAME, LEAST = 44, 48  # maximum characters of a name, minimum of a line of a reason
ABSENT = "–"


def lines(plan: Any, verbose: bool, width: int) -> Iterator[str]:
    """Yield the plan as text: a line of `width` for each stage that is not done; with `verbose`, all details."""
    yield from _in_full(plan) if verbose else _in_brief(plan, width)
    yield from _sums(plan)
    yield from _connections(plan)
    yield from _public_data(plan)


def _in_full(plan: Any) -> Iterator[str]:
    """Yield all details of each stage."""
    width = max(map(len, plan.stages), default=0)
    for stage in plan.stages.values():
        yield f"{stage.name:<{width}}  {_STATES[stage.state]}{': ' if stage.why else ''}{'; '.join(stage.why)}".rstrip()
        if stage.state == "make":
            yield from (f"{'':<{width}}    {line}" for line in _details(stage))


def _in_brief(plan: Any, width: int) -> Iterator[str]:
    """Yield a table: name, state, rows, calls, tokens, dollars, time of the last run, and the complete reason.

    A column of figures without one is left out.
    """
    stages = [stage for stage in plan.stages.values() if stage.state != "done"]
    if not stages:
        return
    cells = list(zip(*map(_brief, stages), strict=True))
    heads = ("", "", "rows", "calls", "tokens", "dollars", "time", "why")
    shown = [(head, *column) for head, column in zip(heads, cells, strict=True) if set(column) != {ABSENT}]
    widths = [max(map(len, column)) for column in shown]
    for name, state, *numbers, why in zip(*shown, strict=True):
        figures = [f"{number:>{size}}  " for number, size in zip(numbers, widths[2:], strict=False)]
        line = f"{name:<{widths[0]}}  {state:<{widths[1]}}  {''.join(figures)}"
        room = width - len(line)
        begin = len(line) if len(why) <= room or room >= LEAST else 4  # without room, a reason is below the line
        parts = textwrap.wrap(why, max(LEAST, width - begin), break_long_words=False, break_on_hyphens=False)
        yield f"{line}{parts.pop(0) if parts and begin > 4 else ''}".rstrip()
        yield from (f"{'':<{begin}}{part}" for part in parts)
    yield f"details: proofmill plan {plan.target} --verbose"


def _brief(stage: Any) -> tuple[str, ...]:
    """Return the cells of a stage."""
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
    """Return the reasons; only the name of a stage that runs before it, if that is the first."""
    first = why[0] if why else ""
    return f"after {first.removesuffix(' will be made')}" if first.endswith(" will be made") else "; ".join(why)


def _amount(value: float | None, form: str) -> str:
    """Return an amount in short form; `?` if unknown."""
    return (
        "?" if value is None else form.format(_short(value) if value >= 1000 else f"{value:,.2f}".removesuffix(".00"))
    )


def _short(value: float) -> str:
    """Return a number with at most three digits, e.g. `12.3k`."""
    for worth, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= worth:
            return f"{value / worth:.3g}{letter}"
    return f"{value:,.0f}"


def _details(stage: Any) -> Iterator[str]:
    """Yield rows, calls, cost and time of a stage."""
    about = "" if stage.exact else "at most " if stage.at_most else "about "
    if stage.rows:
        counts = f"{stage.cached:,} cached, {stage.calls:,} to do, {stage.failed:,} of them failed before"
        if stage.depth:
            counts = f"{stage.cached:,} calls cached, at most {stage.depth:,} sequential calls per row"
        detail = counts if stage.exact or stage.depth else "the number of cached calls is not known yet"
        yield f"{about}{stage.rows:,} rows: {detail}"
    if stage.calls is None or stage.calls:
        calls = "an unknown number of" if stage.calls is None else f"{about}{stage.calls:,}"
        if stage.least is not None and stage.least < stage.calls:
            calls = f"{stage.least:,} to {stage.calls:,}"
        tokens, dollars = stage.tokens.format("{:,.0f}"), stage.dollars.format("${:,.2f}")
        yield f"{calls} calls{' or more' * stage.further}, {tokens} tokens, {dollars} ({stage.learned})"
    yield from stage.shows
    if stage.seconds is not None:
        gpus = f", {stage.seconds * stage.gpus / 3600:,.2f} GPU-hours" if stage.gpus else ""
        yield f"the last run took {clock(stage.seconds)}{gpus}"


def _sums(plan: Any) -> Iterator[str]:
    """Yield the totals, and the cost against the budget."""
    states = [stage.state for stage in plan.stages.values()]
    yield ""
    yield from warn_of_shared_rows(plan.config, plan.stages)
    yield f"{states.count('make')} to make, {states.count('restore')} to restore, {states.count('done')} done"
    total = plan.totals
    if total.calls or total.unknown:
        yield f"{_calls(total)}: {total.tokens.format('{:,.0f}')} tokens, {total.dollars.format('${:,.2f}')}"
    stages = [stage for stage in plan.stages.values() if stage.state == "make"]
    hours = sum(stage.seconds * stage.gpus for stage in stages if stage.gpus) / 3600
    entries = plan.config.entries
    unknown = sum(stage.gpus is None for stage in stages if _loads_weights(stage.name, entries[stage.name]))
    if hours:
        yield f"{hours:,.2f} GPU-hours in the last runs"
    if unknown:
        yield f"GPU-hours are unknown for {unknown} stage{'s' * (unknown > 1)} that never ran"
    spent, most = budget.sum_costs(plan.results / "calls"), plan.config.budget
    if most is None:
        yield f"${spent:,.2f} spent so far; no budget is set"
    else:
        yield f"${spent:,.2f} spent so far of a budget of ${most:,.2f}"
        if total.dollars.value is not None and spent + total.dollars.high > most:
            yield f"the budget may be too low by up to ${spent + total.dollars.high - most:,.2f}"


def _loads_weights(name: str, entry: Any) -> bool:
    """Return whether a stage trains a model, or samples one that is an artifact."""
    return kind_of(name) in list_trained() or (
        kind_of(name) == "responses" and "/" in entry.model and kind_of(entry.model) != "api"
    )


def _connections(plan: Any) -> Iterator[str]:
    """Yield missing settings of the remote models, and models without a price."""
    for each in plan.connections:
        if each.fault:
            others = f" and {len(each.stages) - 2} more" * (len(each.stages) > 2)
            yield f"not yet reachable: {each.fault} ({', '.join(each.stages[:2])}{others} need it)"
        if notice := each.api.retirement(date.today()):
            yield f"{each.model}: {notice}"
        if environment.is_batched(each.model):
            yield f"{each.model} is called by batches, at half the price and within a day"
        if price := prices.list_price(each.api):
            yield f"{each.model} has no `price`; data/prices.csv has {price}"
    if plan.connections and not any(each.fault for each in plan.connections):
        yield f"needs {', '.join(each.model for each in plan.connections)}; `proofmill check {plan.target}` tests them"


def _calls(total: Any) -> str:
    """Return the calls of all stages: an estimate, or a minimum if filters or unknown tables decide on more."""
    if total.least == total.calls and not total.unknown:
        return f"about {total.calls:,} calls"
    text = f"at least {total.least:,} calls"
    if total.calls > total.least:
        text += f", {total.calls:,} if no filter drops a row"
    if total.unknown:
        text += f", and those of {total.unknown} stage{'s' * (total.unknown > 1)} with unknown rows"
    return text


def _public_data(plan: Any) -> Iterator[str]:
    """Yield addresses whose files may change, with the fetched commit; then missing data, and how to download them."""
    fetched = {row["source"]: row["commit"] for row in registry.read_lock()}
    for address, stages in plan.moving.items():
        commit = f" (fetched: {fetched[address]})" if fetched.get(address) else ""
        yield f"{', '.join(stages)}: {address} is not pinned and may change; set a commit{commit}"
    if plan.missing:
        yield ""
        yield f"not on this machine ({format_total(plan.missing)}); `proofmill fetch {plan.target}` downloads it:"
        yield from (
            f"  {item.name}, {format_bytes(item.bytes)}, license {item.license}: {item.source}" for item in plan.missing
        )


def data(plan: Any) -> dict[str, Any]:
    """Return the plan as JSON data."""
    return {
        "target": plan.target,
        "stages": [asdict(stage) for stage in plan.stages.values()],
        "totals": asdict(plan.totals),
        "missing": [item.source for item in plan.missing],
        "moving": plan.moving,
        "connections": [
            {
                "model": each.model,
                "stages": each.stages,
                "fault": each.fault or None,
                "retirement": each.api.retirement(date.today()) or None,
                "price": str(price) if (price := prices.list_price(each.api)) else None,
            }
            for each in plan.connections
        ],
        "spent": budget.sum_costs(plan.results / "calls"),
        "budget": plan.config.budget,
    }
