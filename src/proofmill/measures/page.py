"""Renders a `scores` table as Markdown: each number with its interval, its n and its share unscored."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from proofmill.measures import budgets
from proofmill.measures.averages import weights
from proofmill.measures.numbers import Cell
from proofmill.measures.text_lengths import OF_CORPUS
from proofmill.schema.scores_entry import Scores

Row = Mapping[str, Any]
SHOWN = ("all", "seed ", "by ", "Basic", "Advanced", "2024/2025", "Others")  # splits that have a sheet of their own


def page(
    name: str,
    rows: Sequence[Row],
    entry: Scores,
    notices: Mapping[Cell, Sequence[str]],
    claims: Sequence[str] = (),
    calls: Sequence[str] = (),
) -> str:
    """The page: sheets of each sampling over all problems and each split in SHOWN, averages, comparisons and corpora.

    `notices` are the sentences about each cell's attempts (notices.py), which stand under the sheet with its marks;
    `claims` those that each claim ends in (claims.py); `calls` those about calls that failed, or another model answered.
    """
    all_rows = [row for row in rows if row["model"] and row["p"] is None and row["split"].startswith(SHOWN)]
    measured_rows = [row for row in all_rows if row["problems"] not in entry.averages]
    lines = [f"# {name}", ""]
    if measured_rows:
        lines += [f"Value [low, high]: {entry.confidence:.0%} intervals, clustered by problem.", ""]
    parts = dict.fromkeys(row["split"] for row in measured_rows)
    for part in sorted(parts, key=lambda part: part != "all"):
        for sampling in dict.fromkeys(row["sampling"] for row in measured_rows):
            sheet_rows = [row for row in measured_rows if (row["sampling"], row["split"]) == (sampling, part)]
            if sheet_rows:
                lines += [*_sheet(sampling if part == "all" else f"{sampling}, {part}", sheet_rows), ""]
                lines += _noticed(sampling, notices) if part == "all" else ()
    for sampling in dict.fromkeys(row["sampling"] for row in all_rows) if entry.averages else ():
        lines += [*_averages(sampling, [row for row in all_rows if row["sampling"] == sampling], entry), ""]
    lines += _spending([row for row in rows if row["split"] == budgets.SPLIT])
    compared_rows = [row for row in rows if row["p"] is not None]
    if compared_rows:
        lines += [
            f"Differences, problem by problem (two-sided permutation test; p adjusted by Holm for {len(compared_rows)} comparisons):",
            "",
            *_comparisons(compared_rows, 1 - entry.confidence),
            "",
        ]
    if calls:
        lines += ["Calls to notice:", "", *(f"- {sentence}" for sentence in calls), ""]
    if claims:
        lines += ["Claims (measures/claims.py has the rule):", "", *(f"- {sentence}" for sentence in claims), ""]
    lines += _corpora([row for row in rows if row["model"] is None and row["measure"] in OF_CORPUS])
    overlaps = [row for row in rows if row["measure"] == "shared-problems"]
    lines += [f"- {row['problems']}: {row['value']:g} {row['measure']}" for row in overlaps]
    return "\n".join(lines) + "\n"


def _noticed(sampling: str, notices: Mapping[Cell, Sequence[str]]) -> Iterator[str]:
    said = [
        (cell, ". ".join(sentences)) for cell, sentences in notices.items() if cell.sampling == sampling and sentences
    ]
    yield from (f"- **{cell.model}** on {cell.problems} by {cell.grader}: {text}." for cell, text in said)
    yield from [""] * bool(said)


def _corpora(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each table of problems and its parts, a column for each measure."""
    columns = list(dict.fromkeys(row["measure"] for row in rows))
    if rows:
        yield f"| problems | part | rows | {' | '.join(columns)} |"
        yield "|---" * (len(columns) + 3) + "|"
    for problems, part in dict.fromkeys((row["problems"], row["split"]) for row in rows):
        cells = {row["measure"]: row for row in rows if (row["problems"], row["split"]) == (problems, part)}
        values = [_number(cells[column]["value"]) for column in columns]
        yield f"| {problems} | {part} | {next(iter(cells.values()))['n']:,} | {' | '.join(values)} |"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value == int(value) else f"{value:,.4f}"


def _sheet(title: str, rows: Sequence[Row]) -> Iterator[str]:
    """A line for each model, benchmark and grader, a column for each measure."""
    columns = list(dict.fromkeys(row["measure"] for row in rows))
    several_graders = len({row["grader"] for row in rows}) > 1
    titles = [title, "problems", *["grader"] * several_graders, *columns, "attempts", "unscored"]
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    for key in dict.fromkeys((row["model"], row["problems"], row["grader"]) for row in rows):
        cells = {row["measure"]: row for row in rows if (row["model"], row["problems"], row["grader"]) == key}
        largest = max(cells.values(), key=lambda row: row["n"])
        values = [_cell(cells.get(column)) for column in columns]
        attempts = f"{largest['n']:,} at {largest['problems_n']:,} problems"
        unscored = f"{max(row['unscored'] for row in cells.values()):.1%}"
        yield f"| {' | '.join([*key[:2], *[key[2]] * several_graders, *values, attempts, unscored])} |"


def _averages(sampling: str, rows: Sequence[Row], entry: Scores) -> Iterator[str]:
    """A line for each model and each that others report, a column for each benchmark of an average and each average."""
    averaged = {row["measure"] for row in rows if row["problems"] in entry.averages}
    measure = next((row["measure"] for row in rows if row["measure"] in averaged), None)
    if measure is None:
        return
    of_measure = [row for row in rows if row["measure"] == measure and row["split"] == "all"]
    columns = list(dict.fromkeys(name for each in weights(entry.averages) for name in (*entry.averages[each], each)))
    yield f"| {' | '.join([f'{sampling}, {measure}', *columns, 'source'])} |"
    yield "|---" * (len(columns) + 2) + "|"
    for model in dict.fromkeys(row["model"] for row in of_measure):
        cells = {row["problems"]: row for row in of_measure if row["model"] == model}
        yield f"| {' | '.join([model, *(_cell(cells.get(column)) for column in columns), 'measured here'])} |"
    for model, reported in entry.published.items():
        values = [reported.percent.get(column) for column in columns]
        shown = ["–" if value is None else f"{value / 100:.3f}" for value in values]
        yield f"| {' | '.join([model, *shown, reported.source])} |"


def _spending(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each point of the curves, cheapest first within its model and benchmark."""
    for model, problems, grader in dict.fromkeys((row["model"], row["problems"], row["grader"]) for row in rows):
        here = [row for row in rows if (row["model"], row["problems"], row["grader"]) == (model, problems, grader)]
        yield f"| {model} on {problems} by {grader} | tokens of a problem | dollars | value |"
        yield "|---|---|---|---|"
        for row in sorted(here, key=lambda row: (row["spent_tokens"] is None, row["spent_tokens"])):
            tokens = "–" if row["spent_tokens"] is None else f"{row['spent_tokens']:,.0f}"
            dollars = "–" if row["spent_dollars"] is None else f"{row['spent_dollars']:.3g}"
            yield f"| {row['sampling']}, {row['measure']} | {tokens} | {dollars} | {_cell(row)} |"
        yield ""


def _cell(row: Row | None) -> str:
    if row is None or row["value"] is None:
        return "–"
    digits = 2 if abs(row["value"]) < 100 else 0
    text = f"{row['value']:.{digits}f}"
    return text if row["low"] is None else f"{text} [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"


def _comparisons(rows: Sequence[Row], alpha: float) -> Iterator[str]:
    """A line for each two models, benchmark and sampling, with the difference in each measure."""

    def together(row: Row) -> str:
        names = f"{row['model']} - {row['against']} on {row['problems']}"
        return f"{names} ({row['sampling']}, {row['problems_n']:,} problems, {row['unscored']:.1%} unscored)"

    for where, some in groupby(rows, together):
        yield f"- {where}: {'; '.join(_comparison(row, alpha) for row in some)}"


def _comparison(row: Row, alpha: float) -> str:
    """Such as `avg@1 +0.50 [-2.10, +3.20], p = 0.720, no difference shown`."""
    if row["value"] is None:
        return f"{row['measure']} {budgets.too_few(row) or 'no problem in common'}"
    note = "" if row["p"] < alpha else ", no difference shown"
    return f"{row['measure']} {difference(row)}{note}"


def difference(row: Row) -> str:
    """Such as `+0.50 [-2.10, +3.20], p = 0.720`."""
    ends = "" if row["low"] is None else f" [{_signed(row['low'])}, {_signed(row['high'])}]"
    p = "p < 0.001" if row["p"] < 0.001 else f"p = {row['p']:.3f}"
    return f"{row['value']:+.2f}{ends}, {p}"


def _signed(value: float) -> str:
    """Two digits with a sign; a zero has none below it."""
    return f"{round(value, 2) + 0.0:+.2f}"
