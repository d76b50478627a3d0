"""Fills the numbers of docs/claims.md, and draws docs/pictures/claims.svg and claims-attempts.svg.

python docs/pictures/claims.py RESULTS [--page PAGE]

RESULTS is the results folder of a finished `snakemake nano-claims`, or `snakemake nano-lag`. What stands between
`<!-- numbers: X -->` and `<!-- end -->` is written here: sentences and tables of claim X, or the summary of the first
recipe's. The rest of the page is left as it is, and so is what RESULTS has no numbers for.
"""

import argparse
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from proofmill.artifacts.tables import Table
from proofmill.inspect import curves
from proofmill.schema.names import reseeded, seed_of

HERE = Path(__file__).parent
PAGE = HERE.parent / "claims.md"
BLOCK = re.compile(r"(<!-- numbers: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
SCORES = ("scores/claims-ways-seeds", "scores/claims-attempts-seeds", "scores/claims-rewards-seeds")
ATTEMPTS = "scores/claims-attempts-seeds"
LAG = "scores/claims-lag-seeds"  # of a recipe of its own
GAP = 0.1  # of full marks: a judge that is so much above the checker has drifted from it
COLOURS = {"shown": "C0", "refuted": "C3"}
Claims = Mapping[str, Mapping[str, Any]]


class Results:
    """The tables of a results folder, of which some may be missing."""

    def __init__(self, folder: Path):
        self.folder = folder

    def table(self, name: str) -> Table | None:
        table = Table(name, self.folder)
        return table if table.path.exists() else None

    def seeds(self, name: str) -> list[Table]:
        """The table of each seed that there is."""
        names = [name, *(reseeded(name, seed) for seed in range(1, 10))]
        return [table for each in names if (table := self.table(each))]

    def claims(self, *scores: str) -> dict[str, Mapping[str, Any]]:
        """What each claim of these tables came to, in the order of their names."""
        found = {}
        for name in scores:
            if table := self.table(name):
                found |= table.stamp["claims"]
        return dict(sorted(found.items()))

    def marks(self) -> list[dict[str, Any]]:
        """The rows of all scores that are about one model and all problems."""
        tables = [table for name in (*SCORES, LAG) if (table := self.table(name))]
        return [r for t in tables for r in t.rows() if r["split"] == "all" and r["model"] and r["against"] is None]


# --------------------------------------------------------------------------------------------------------------- blocks


def summary(results: Results) -> Iterator[str]:
    """One line for each claim, and both pictures."""
    claims = results.claims(*SCORES)
    if not claims:
        return
    table = next(table for name in SCORES if (table := results.table(name)))
    seeds = sorted({seed_of(name) for name in table.stamp["entry"]["grades"]})
    commit = table.stamp.get("commit") or "no checkout"
    yield f"Made by `snakemake nano-claims` with the seeds {', '.join(map(str, seeds))}, code {commit[:10]}."
    yield from (
        "",
        "| claim | statement | outcome | difference | p | seeds above 0 | below 0 |",
        "|---|---|---|---|---|---|---|",
    )
    for name, claim in claims.items():
        sides = [(seed["low"] or 0) > 0 for seed in claim["seeds"].values()]
        others = [seed["high"] is not None and seed["high"] < 0 for seed in claim["seeds"].values()]
        counts = [f"{sum(some)} of {len(some)}" if some else "–" for some in (sides, others)]
        cells = [name, claim["says"].rstrip("."), f"**{claim['outcome']}**", _difference(claim), _p(claim), *counts]
        yield f"| {' | '.join(cells)} |"
    yield from ("", "![Differences of each claim, pooled and by seed, with intervals](pictures/claims.svg)")


def of_claim(number: str, results: Results) -> Iterator[str]:
    """The sentences of one claim, the marks they rest on, and what else there is to say in numbers."""
    claims = {name: claim for name, claim in results.claims(*SCORES, LAG).items() if name.partition("-")[0] == number}
    if claims:
        yield from (line for claim in claims.values() for line in item(claim["sentence"]))
        yield ""
        yield from _marks(claims, results)
    for lines in (list(more) for more in (each(results) for each in FURTHER.get(number, ()))):
        if lines:
            yield from ("", *lines)


def item(sentence: str) -> list[str]:
    """The lines of a list's item, at the width of the page."""
    lines = textwrap.wrap(sentence, 120, initial_indent="- ", subsequent_indent="  ", break_long_words=False)
    return [line.rstrip() for line in lines]


def _marks(claims: Claims, results: Results) -> Iterator[str]:
    """A line for each model and benchmark that the claims are about."""
    cells = {(m, c["problems"], c["sampling"]) for c in claims.values() for m in (c["model"], c["against"])}
    rows = [row for row in results.marks() if (row["model"], row["problems"], row["sampling"]) in cells]
    measures = list(dict.fromkeys(row["measure"] for row in rows if not row["measure"].startswith("answers-found")))
    yield f"| model | problems | {' | '.join(measures)} |"
    yield "|---" * (len(measures) + 2) + "|"
    for model, problems in dict.fromkeys((row["model"], row["problems"]) for row in rows):
        here = {row["measure"]: row for row in rows if (row["model"], row["problems"]) == (model, problems)}
        yield f"| {' | '.join([model, problems, *(_value(here.get(measure)) for measure in measures)])} |"


def costs(results: Results) -> Iterator[str]:
    """What the distilled student and the one that practised alone took, the first with its teacher and without."""
    ways = {
        "reinforcement learning alone": ["grpo/student"],
        "distillation": ["sft/distilled", "responses/teacher"],
        "distillation and its teacher": [
            *("sft/distilled", "responses/teacher", "grpo/nano", "sft/rejection", "responses/sampled", "sft/cold"),
        ],
    }
    lines = []
    for way, names in ways.items():
        tables = [results.seeds(name) for name in names]
        if not all(tables):
            return
        seconds = sum(fmean(t.stamp.get("training_seconds", 0) for t in some) for some in tables)
        attempts = sum(fmean(map(_attempts, some)) for some in tables)
        parts = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| {way} | {seconds:,.0f} | {attempts:,.0f} | {parts} |")
    yield from ("| what it took (mean over seeds) | seconds of training | attempts | of |", "|---|---|---|---|", *lines)


def _attempts(table: Table) -> int:
    """How many attempts a table stands for: its rows, or the rollouts beside a training."""
    if table.kind == "responses":
        return table.height
    entry = table.stamp["entry"]
    return entry["steps"] * entry["problems_per_step"] * entry["group"] if table.kind == "grpo" else 0


def judged(results: Results) -> Iterator[str]:
    """What each erring judge and the checker that looked on said of the same rollouts."""
    lines = []
    for name in ("grpo/judge-errs", "grpo/judge-likes-length", "grpo/judge-believes"):
        runs = [_curve(table, "hold-out/apart") for table in results.seeds(name)]
        checked = [_curve(table, "hold-out/marks") for table in results.seeds(name)]
        if not runs or not all(runs) or not all(checked):
            continue
        seen = [next((step for step, gap in run if gap > GAP), None) for run in runs]
        first, last = (fmean(run[place][1] for run in runs) for place in (0, -1))
        marks = fmean(run[-1][1] for run in checked)
        steps = ", ".join("never" if step is None else str(step) for step in seen)
        lines.append(f"| {name} | {first:+.2f} | {last:+.2f} | {marks:.2f} | {steps} |")
    if lines:
        title = (
            f"| training | judge above the checker, first | last | checker's marks, last | first step with {GAP:g} |"
        )
        yield from (title, "|---|---|---|---|---|", *lines, "")
        yield "Gaps and marks are shares of full marks, of 32 rollouts every five steps; a step for each seed."


def unscored(names: Sequence[str]) -> Any:
    """A block with the share of the rollouts without a verdict, at the beginning and at the end of each training."""

    def lines(results: Results) -> Iterator[str]:
        found = []
        for name in names:
            runs = [_curve(table, "unscored") for table in results.seeds(name)]
            if runs and all(runs):
                ends = [fmean(share for run in runs for _, share in run[part]) for part in (slice(2), slice(-2, None))]
                tops = max(share for run in runs for _, share in run)
                found.append(f"| {name} | {ends[0]:.1%} | {ends[1]:.1%} | {tops:.1%} |")
        if found:
            yield from ("| training | unscored rollouts, first | last | most |", "|---|---|---|---|", *found)

    return lines


def _curve(table: Table, measure: str) -> list[tuple[int, float]]:
    """A measure of a training by step."""
    rows = [row for row in table.rows() if row["measure"] == measure]
    return [(row["step"], row["value"]) for row in rows if row["value"] is not None and row["value"] == row["value"]]


def pictured(results: Results) -> Iterator[str]:
    if results.table(ATTEMPTS):
        yield "![pass@k by the number of attempts, before and after](pictures/claims-attempts.svg)"


FURTHER = {
    "2": (costs,),
    "3": (pictured,),
    "5": (judged,),
    "7": (unscored([f"grpo/lost-{share}-{way}" for share in (5, 20) for way in ("drop", "zero")]),),
    "8": (unscored(["grpo/dodge-drop", "grpo/dodge-zero"]),),
}


def _difference(numbers: Mapping[str, Any]) -> str:
    if numbers["value"] is None:
        return "–"
    ends = "" if numbers["low"] is None else f" [{numbers['low']:+.2f}, {numbers['high']:+.2f}]"
    return f"{numbers['value']:+.2f}{ends}"


def _p(numbers: Mapping[str, Any]) -> str:
    return "< 0.001" if numbers["p"] < 0.001 else f"{numbers['p']:.3f}"


def _value(row: Mapping[str, Any] | None) -> str:
    if row is None or row["value"] is None:
        return "–"
    digits = 2 if abs(row["value"]) < 10 else 0
    return f"{row['value']:.{digits}f}" + (
        "" if row["low"] is None else f" [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"
    )


# ------------------------------------------------------------------------------------------------------------- pictures


def forest(claims: Claims, path: Path) -> None:
    """Each claim's difference with its interval, and below it those of its seeds; marks and shares in panels of theirs."""
    panels = {
        "points of 7": {n: c for n, c in claims.items() if c["value"] is not None and c["measure"].startswith("avg")},
        "share of problems": {
            n: c for n, c in claims.items() if c["value"] is not None and not c["measure"].startswith("avg")
        },
    }
    panels = {unit: some for unit, some in panels.items() if some}
    sizes = [len(some) for some in panels.values()]
    with matplotlib.rc_context({"svg.hashsalt": "proofmill", "font.size": 8}):
        figure = Figure(figsize=(8, 0.36 * sum(sizes) + 0.9 * len(sizes)), layout="constrained")
        grid = figure.add_gridspec(len(sizes), 1, height_ratios=[size + 1 for size in sizes])
        for place, (unit, some) in zip(grid, panels.items(), strict=True):
            axes = figure.add_subplot(place)
            for number, claim in enumerate(some.values()):
                colour = COLOURS.get(claim["outcome"], "0.45")
                _drawn(axes, claim, number - 0.12, color=colour, marker="o", markersize=5, linewidth=2)
                for index, seed in enumerate(claim["seeds"].values()):
                    _drawn(axes, seed, number + 0.12 + 0.12 * index, color="0.6", marker=".", markersize=4, linewidth=1)
            axes.set_yticks(range(len(some)), [f"{name}\n{c['model']} - {c['against']}" for name, c in some.items()])
            axes.set_ylim(len(some) - 0.4, -0.6)
            axes.axvline(0, color="0.3", linewidth=0.8)
            axes.grid(axis="x", alpha=0.3)
            axes.set_xlabel(f"difference, {unit} (blue: shown, red: refuted, grey: not shown; below it each seed)")
        figure.savefig(path, format="svg", metadata={"Date": None})


def _drawn(axes: Any, numbers: Mapping[str, Any], y: float, **looks: Any) -> None:
    if numbers["value"] is None:
        return
    if numbers["low"] is not None:
        line = {key: looks[key] for key in ("color", "linewidth")}
        axes.plot([numbers["low"], numbers["high"]], [y, y], **line)
    axes.plot([numbers["value"]], [y], **{**looks, "linewidth": 0})


# ------------------------------------------------------------------------------------------------------------- the page


def filled(text: str, results: Results) -> str:
    """The page with each block written anew that there are numbers for."""

    def block(match: re.Match[str]) -> str:
        lines = list(summary(results) if match[2] == "all" else of_claim(match[2], results))
        return match[1] + "\n".join(lines).strip("\n") + "\n" + match[3] if lines else match[0]

    return BLOCK.sub(block, text)


def main(folder: Path, page: Path = PAGE) -> None:
    results = Results(folder)
    page.write_text(filled(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    pictures = page.parent / "pictures"
    pictures.mkdir(exist_ok=True)
    if claims := results.claims(*SCORES):
        forest(claims, pictures / "claims.svg")
    if results.table(ATTEMPTS):
        curves.draw([ATTEMPTS], folder, pictures / "claims-attempts.svg")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fill the numbers of docs/claims.md.")
    parser.add_argument("results", type=Path, help="the results folder of a finished `nano-claims` or `nano-lag`")
    parser.add_argument("--page", type=Path, default=PAGE, help="another copy of the page")
    options = parser.parse_args()
    main(options.results, options.page)
