"""Render a `scores` table as Markdown, the score page: each number with its interval, n and share unscored."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from proofmill.metrics import budgets
from proofmill.metrics.averages import weights
from proofmill.metrics.score_rows import Cell
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.kinds import list_trained
from proofmill.schema.names import kind_of

Row = Mapping[str, Any]
EARNED = ("avg@", "solve-rate", "pass@", "majority@", "best@", "max@")  # metrics of what attempts earn
FEW = 10  # problems above 0, up to which a score says how many there are
LEAST_SEEDS = 5  # trainings of each model, from which a difference is about the training and not about one seed
SHOWN = ("all", "seed ", "by ", "Basic", "Advanced", "2024/2025", "Others")  # splits with a sheet


def page(
    name: str,
    rows: Sequence[Row],
    entry: Scores,
    notices: Mapping[Cell, Sequence[str]],
    claims: Sequence[str] = (),
    calls: Sequence[str] = (),
    confusions: Mapping[Cell, Mapping[tuple[int, int], int]] = {},
    compared_with: Iterable[str] = (),
    scales: Iterable[tuple[str, int | None]] = (),
) -> str:
    """Return the score page: sheets by sampling setting and split, averages, costs, comparisons, claims and corpora.

    `notices` are the sentences about each cell's attempts (notices.py), printed below the sheet of its scores. `claims` are
    the sentences of the claims (claims.py). `calls` are those about calls that failed, or that another model answered.
    `confusions` count attempts by human grade and grader's grade. `compared_with` is the table of published numbers.
    `scales` are the graders with their maximum points.
    """
    all_rows = [row for row in rows if row["model"] and row["p_value"] is None and row["slice"].startswith(SHOWN)]
    measured_rows = [row for row in all_rows if row["problems"] not in entry.averages]
    lines = [f"# {name}", ""]
    if measured_rows:
        lines += [f"Value [low, high]: {100 * entry.confidence:g} % intervals, clustered by problem.", ""]
        by = ", ".join(f"{grader} (0 to {points} points)" for grader, points in scales if points)
        lines += [f"Graded by {by}.", ""] if by else []
    parts = dict.fromkeys(row["slice"] for row in measured_rows)
    for part in sorted(parts, key=lambda part: part != "all"):
        for sampling in dict.fromkeys(row["sampling"] for row in measured_rows):
            sheet_rows = [row for row in measured_rows if (row["sampling"], row["slice"]) == (sampling, part)]
            if sheet_rows:
                lines += [*_sheet(sampling if part == "all" else f"{sampling}, {part}", sheet_rows), ""]
                lines += _notice_lines(sampling, notices) if part == "all" else ()
    for sampling in dict.fromkeys(row["sampling"] for row in all_rows) if entry.averages else ():
        lines += [*_averages(sampling, [row for row in all_rows if row["sampling"] == sampling], entry), ""]
    if published := [*compared_with]:
        lines += ["Next to published numbers (the interval of a difference is that of ours alone):", "", *published, ""]
    for cell, counts in confusions.items():
        lines += [*_confusion(cell, counts), ""]
    lines += _costs([row for row in rows if row["slice"] == budgets.SPLIT])
    compared_rows = [row for row in rows if row["p_value"] is not None]
    if compared_rows:
        lines += [
            "Differences over problems, and over seeds where there are several. The interval contains 0 exactly if p is at least "
            f"{1 - entry.confidence:.3g}. In brackets, p is adjusted by Holm for {sum(row['value'] is not None for row in compared_rows)} "
            "comparisons:",
            "",
            *_comparisons(compared_rows, 1 - entry.confidence),
            *(f"- {sentence}" for sentence in seeds_needed(compared_rows)),
            "",
        ]
    if calls:
        lines += ["Notices about calls:", "", *(f"- {sentence}" for sentence in calls), ""]
    if claims:
        lines += ["Claims (the rule is in metrics/claims.py):", "", *(f"- {sentence}" for sentence in claims), ""]
    overlaps = [row for row in rows if row["metric"] == "shared-problems"]
    lines += _corpora([row for row in rows if row["model"] is None and row not in overlaps])
    lines += _corpora([row for row in rows if row["model"] and row["problems"] is None], "model")
    lines += [f"- {row['problems']}: {row['value']:g} {row['metric']}" for row in overlaps]
    return "\n".join(lines) + "\n"


def _notice_lines(sampling: str, notices: Mapping[Cell, Sequence[str]]) -> Iterator[str]:
    texts = [
        (cell, ". ".join(sentences)) for cell, sentences in notices.items() if cell.sampling == sampling and sentences
    ]
    yield from (f"- **{cell.model}** on {cell.problems} by {cell.grader}: {text}." for cell, text in texts)
    yield from [""] * bool(texts)


def _corpora(rows: Sequence[Row], of: str = "problems") -> Iterator[str]:
    """Yield a line for each problems table and its parts, or each training and its savings; a column for each metric."""
    columns = list(dict.fromkeys(row["metric"] for row in rows))
    if rows:
        yield f"| {of} | part | rows | {' | '.join(columns)} |"
        yield "|---" * (len(columns) + 3) + "|"
    for problems, part in dict.fromkeys((row[of], row["slice"]) for row in rows):
        cells = {row["metric"]: row for row in rows if (row[of], row["slice"]) == (problems, part)}
        values = [_number(cells[column]["value"]) if column in cells else "–" for column in columns]
        yield f"| {problems} | {part} | {next(iter(cells.values()))['n']:,} | {' | '.join(values)} |"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value == int(value) else f"{value:,.4f}"


def _sheet(title: str, rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each model, benchmark and grader, with a column for each metric."""
    columns = list(dict.fromkeys(row["metric"] for row in rows))
    several_graders = len({row["grader"] for row in rows}) > 1
    titles = [title, "problems", *["grader"] * several_graders, *columns, "attempts", "unscored"]
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    for key in dict.fromkeys((row["model"], row["problems"], row["grader"]) for row in rows):
        cells = {row["metric"]: row for row in rows if (row["model"], row["problems"], row["grader"]) == key}
        largest = max(cells.values(), key=lambda row: row["n"])
        values = [_format_part(cells.get(column), largest["n_problems"]) for column in columns]
        attempts = f"{largest['n']:,} at {largest['n_problems']:,} problems{_format_few(cells.values())}"
        unscored = f"{max(row['unscored'] for row in cells.values()):.1%}"
        yield f"| {' | '.join([*key[:2], *[key[2]] * several_graders, *values, attempts, unscored])} |"


def _format_part(row: Row | None, problems: int) -> str:
    """Return the text of a cell, with its number of problems if the metric leaves some of `problems` out.

    Metrics of other attempts, such as tokens of correct ones, leave problems out by their meaning.
    """
    text = format_cell(row)
    if row is None or row["value"] is None or row["n_above_zero"] is None or row["n_problems"] >= problems:
        return text
    return f"{text} at {row['n_problems']:,}"


def _format_few(rows: Iterable[Row]) -> str:
    """Return in brackets the problems at which a metric is above 0, if they are few: a low score rests on them."""
    few = {
        row["metric"]: row["n_above_zero"]
        for row in rows
        if row["n_above_zero"] is not None
        and row["n_above_zero"] <= FEW
        and 2 * row["n_above_zero"] < row["n_problems"]
    }
    scores = [f"{metric} above 0 at {number}" for metric, number in few.items() if metric.startswith(EARNED)]
    return f" ({', '.join(scores)})" if scores else ""


def _averages(sampling: str, rows: Sequence[Row], entry: Scores) -> Iterator[str]:
    """Yield a line for each model and each published one, with a column for each average and its benchmarks."""
    averaged = {row["metric"] for row in rows if row["problems"] in entry.averages}
    metric = next((row["metric"] for row in rows if row["metric"] in averaged), None)
    if metric is None:
        return
    of_metric = [row for row in rows if row["metric"] == metric and row["slice"] == "all"]
    columns = list(dict.fromkeys(name for each in weights(entry.averages) for name in (*entry.averages[each], each)))
    yield f"| {' | '.join([f'{sampling}, {metric}', *columns, 'source'])} |"
    yield "|---" * (len(columns) + 2) + "|"
    for model in dict.fromkeys(row["model"] for row in of_metric):
        cells = {row["problems"]: row for row in of_metric if row["model"] == model}
        yield f"| {' | '.join([model, *(format_cell(cells.get(column)) for column in columns), 'measured here'])} |"
    for model, reported in entry.published.items():
        values = [reported.percent.get(column) for column in columns]
        shown = ["–" if value is None else f"{value / 100:.3f}" for value in values]
        yield f"| {' | '.join([model, *shown, reported.source])} |"


def _confusion(cell: Cell, counts: Mapping[tuple[int, int], int]) -> Iterator[str]:
    """Yield a line for each human grade, with the number of attempts at each grade of the grader."""
    humans, graders = (sorted({pair[place] for pair in counts}) for place in (0, 1))
    yield f"| human \\ {cell.grader} on {cell.problems} | {' | '.join(map(str, graders))} |"
    yield "|---" * (len(graders) + 1) + "|"
    for human in humans:
        yield f"| {human} | {' | '.join(str(counts.get((human, grader), 0)) for grader in graders)} |"


def _costs(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each point of the cost curves, cheapest first within its model and benchmark."""
    for model, problems, grader in dict.fromkeys((row["model"], row["problems"], row["grader"]) for row in rows):
        here = [row for row in rows if (row["model"], row["problems"], row["grader"]) == (model, problems, grader)]
        yield f"| {model} on {problems} by {grader} | tokens per problem | dollars per problem | value |"
        yield "|---|---|---|---|"
        for row in sorted(here, key=lambda row: (row["tokens_per_problem"] is None, row["tokens_per_problem"])):
            tokens = "–" if row["tokens_per_problem"] is None else f"{row['tokens_per_problem']:,.0f}"
            dollars = "–" if row["dollars_per_problem"] is None else f"{row['dollars_per_problem']:.3g}"
            yield f"| {row['sampling']}, {row['metric']} | {tokens} | {dollars} | {format_cell(row)} |"
        yield ""


def format_cell(row: Row | None) -> str:
    """Return a text such as `0.50 [0.41, 0.59]`."""
    if row is None or row["value"] is None:
        return "–"
    digits = 2 if abs(row["value"]) < 100 else 0
    text = f"{row['value']:.{digits}f}"
    return text if row["low"] is None else f"{text} [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"


def _comparisons(rows: Sequence[Row], alpha: float) -> Iterator[str]:
    """Yield a line for each pair of models, benchmark and sampling setting, with the difference in each metric."""

    several = len({row["grader"] for row in rows}) > 1

    def together(row: Row) -> str:
        names = f"{row['model']} - {row['baseline']} on {row['problems']}" + f" by {row['grader']}" * several
        seeds = f"{row['n_seeds']} seeds, " if (row["n_seeds"] or 1) > 1 else ""
        return f"{names} ({row['sampling']}, {seeds}{row['n_problems']:,} problems, {row['unscored']:.1%} unscored)"

    for where, some in groupby(rows, together):
        yield f"- {where}: {'; '.join(_comparison(row, alpha) for row in some)}"


def _comparison(row: Row, alpha: float) -> str:
    """Return a text such as `avg@1 +0.50 [-2.10, +3.20], p = 0.720 (1.000), no difference shown`."""
    if row["value"] is None:
        return f"{row['metric']} {budgets.too_few(row) or 'no seeds or problems in common'}"
    note = "" if row["p_adjusted"] < alpha else ", no difference shown"
    return f"{row['metric']} {difference(row)}{note}"


def difference(row: Row) -> str:
    """Return a text such as `+0.50 [-2.10, +3.20], p = 0.720 (1.000)`."""
    ends = "" if row["low"] is None else f" [{_format_signed(row['low'])}, {_format_signed(row['high'])}]"
    return f"{row['value']:+.2f}{ends}, {format_p(row)}"


def format_p(row: Row) -> str:
    """Return p, and p adjusted for all comparisons in brackets if there are several."""
    first, adjusted = ("< 0.001" if p < 0.001 else f"= {p:.3f}" for p in (row["p_value"], row["p_adjusted"]))
    return f"p {first}" if row["p_adjusted"] == row["p_value"] else f"p {first} ({adjusted.removeprefix('= ')})"


def seeds_needed(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what cannot be said about trainings with too few seeds."""
    few = [row for row in rows if is_of_few_seeds(row)]
    for seeds in sorted({row["n_seeds"] for row in few}):
        pairs = dict.fromkeys(f"{row['model']} - {row['baseline']}" for row in few if row["n_seeds"] == seeds)
        said = "one seed" if seeds == 1 else f"{seeds} seeds"
        yield (
            f"{', '.join(pairs)}: compared in {said}. Whether the difference holds for other seeds cannot be said; that takes "
            f"{LEAST_SEEDS} seeds (`repeat`)."
        )


def is_of_few_seeds(row: Row) -> bool:
    """Return whether a difference is of trained models and too few seeds to be about the training."""
    trained = any(kind_of(str(name).partition(":")[0]) in list_trained() for name in (row["model"], row["baseline"]))
    is_of_models = not row["metric"].startswith("at equal ")  # budgets compare settings of one model
    return trained and is_of_models and row["value"] is not None and row["n_seeds"] < LEAST_SEEDS


def _format_signed(value: float) -> str:
    """Return two decimals with a sign; never -0.00."""
    return f"{round(value, 2) + 0.0:+.2f}"
