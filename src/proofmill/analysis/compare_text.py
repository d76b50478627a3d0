"""Render a comparison of logs as one page of text: scores, differences, groups, settings, notices."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proofmill.metrics.estimates import fewest_problems
from proofmill.metrics.page import difference, format_cell
from proofmill.schema.errors import list_names, short

Row = Mapping[str, Any]
LONGEST = 80  # lines of a page
DETAILED = 3  # pairs; with more, each is one line


def lines(result: Row) -> list[str]:
    """Return at most LONGEST lines."""
    page = list(_page(result))
    left = len(page) - LONGEST + 1
    return page if left < 2 else [*page[: LONGEST - 1], f"... and {left:,} more lines; --json has all"]


def _page(result: Row) -> Iterator[str]:
    logs, pairs = result["logs"], result["pairs"]
    yield from (f"{log['label']}  {log['path']}  ({log['program']}, {short(log['model'])})" for log in logs)
    names = ", ".join(dict.fromkeys(f"`{short(log['metric'])}`" for log in logs))
    scale = f"0 to {result['max_points']:g}" if result["max_points"] else "no bounds"
    yield from ("", f"Mean {names} ({scale}) with {100 * result['confidence']:g} % intervals, clustered by problem:")
    yield from _align([["", "score", "problems", "attempts", "unscored", "truncated", "refused"], *map(_cells, logs)])
    yield ""
    for pair in pairs:
        yield from _describe_pair(pair, 1 - result["confidence"], len(pairs) <= DETAILED)
    if len(pairs) > 1:
        groups = " | ".join(map(" ".join, result["groups"]))
        yield f"Not shown to differ: {groups} (p adjusted by Holm for {len(pairs)} comparisons)"
    equal = (
        "their statements are equal" if all(p["statements_compared"] for p in pairs) else "statements are not compared"
    )
    yield f"Problems are matched by id; {equal}."
    for title, texts in (("Differences in settings", _settings(result)), ("Notices", _notices(result))):
        if listed := [f"- {text}" for text in texts]:
            yield from ("", title, *listed)


def _cells(log: Row) -> list[str]:
    fewest, most = log["attempts_per_problem"]
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in log["unscored_reasons"].items())
    return [
        log["label"],
        format_cell(log),
        f"{log['n_problems']:,}",
        f"{log['attempts']:,} ({fewest if fewest == most else f'{fewest} to {most}'} each)",
        f"{log['unscored']:.1%}{f' ({reasons})' if reasons else ''}",
        *("not recorded" if log[share] is None else f"{log[share]:.1%}" for share in ("truncated", "refused")),
    ]


def _align(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _describe_pair(pair: Row, alpha: float, is_detailed: bool) -> Iterator[str]:
    """Yield the difference, next to that of truncation; ties and the detectable difference if `is_detailed`."""
    one, other = pair["log"], pair["baseline"]
    if pair["value"] is None:
        yield f"{one} - {other}  no problem is scored in both"
        return
    note = "" if pair["p_adjusted"] < alpha else ", no difference shown"
    value, low, high = (100 * (number or 0) for number in pair["truncation"].values())
    cut = f"; truncated {value:+.1f} points [{low:+.1f}, {high:+.1f}]" if value else ""
    yield f"{one} - {other}  {difference(pair)} on {pair['n_problems']:,} problems{note}{cut}"
    if is_detailed:
        yield f"       {one} is better on {pair['better']:,}, worse on {pair['worse']:,}, equal on {pair['equal']:,}"
        known = "unknown" if pair["detectable"] is None else f"{pair['detectable']:.2f}"
        yield f"       difference that such a comparison detects with 80 % power: {known}"
    for label, problems in ((one, pair["only_in_log"]), (other, pair["only_in_baseline"])):
        if problems:
            yield f"       only in {label}, not compared: {len(problems):,} problems ({list_names(problems[:5])})"
    if pair["unscored_in_one"]:
        yield f"       unscored in {one} or {other}, not compared: {pair['unscored_in_one']:,} problems"


def _settings(result: Row) -> Iterator[str]:
    for name, values in result["settings"].items():
        shown = (f"{label} {'not set' if value is None else short(str(value))}" for label, value in values.items())
        yield f"{name}: {', '.join(shown)}"
    for pair in result["pairs"]:
        if pair["requests_that_differ"]:
            yield f"requests: {pair['log']} and {pair['baseline']} differ at {pair['requests_that_differ']:,} problems"


def _notices(result: Row) -> Iterator[str]:
    for pair in result["pairs"]:
        if pair["identical"]:
            yield f"{pair['log']} and {pair['baseline']} have the same scores for all attempts: they may be one run"
        if pair["n_problems"] < (fewest := fewest_problems(result["confidence"])):
            yield (
                f"{pair['log']} - {pair['baseline']}: fewer than {fewest} problems cannot show a difference at "
                f"{100 * result['confidence']:g} %"
            )
    for log in result["logs"]:
        yield from (f"{log['label']}: {notice}" for notice in log["notices"])
