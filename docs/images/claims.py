"""Fill the numbers of docs/claims.md, and draw docs/images/claims.svg and claims-attempts.svg.

python docs/images/claims.py RESULTS [--page PAGE]

RESULTS is the results folder of a finished `snakemake nano-claims` or `snakemake nano-staleness`. The script replaces
what is between `<!-- numbers: X -->` and `<!-- end -->`. All other text stays unchanged, and so do blocks without
numbers in RESULTS.
"""

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from proofmill.analysis import curves
from proofmill.artifacts.tables import Table
from proofmill.schema.names import parse_seed, reseed

HERE = Path(__file__).parent
PAGE = HERE.parent / "claims.md"
BLOCK = re.compile(r"(<!-- numbers: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
SCORES = ("scores/claims-ways-seeds", "scores/claims-attempts-seeds", "scores/claims-rewards-seeds")
ATTEMPTS = "scores/claims-attempts-seeds"
STALENESS = "scores/claims-staleness-seeds"  # of the recipe `nano-staleness`
AUDIT_GRADE, AUDIT_GAP = "audit/grade", "audit/gap"  # metrics of a training
GAP = 0.1  # share of the points: a judge this far above the checker has drifted from it
COLORS = {"shown": "C0", "refuted": "C3"}
Claims = Mapping[str, Mapping[str, Any]]


class Results:
    """The tables of a results folder; tables may be missing."""

    def __init__(self, folder: Path):
        self.folder = folder

    def table(self, name: str) -> Table | None:
        """Return a table, or None if it is missing."""
        table = Table(name, self.folder)
        return table if table.path.exists() else None

    def seeds(self, name: str) -> list[Table]:
        """Return the existing tables of an artifact, by seed."""
        names = [name, *(reseed(name, seed) for seed in range(1, 10))]
        return [table for each in names if (table := self.table(each))]

    def claims(self, *scores: str) -> dict[str, Mapping[str, Any]]:
        """Return the outcome of each claim of these tables, ordered by name."""
        claims: dict[str, Mapping[str, Any]] = {}
        for name in scores:
            if table := self.table(name):
                claims |= table.stamp["claims"]
        return dict(sorted(claims.items()))

    def scores(self, *names: str) -> list[dict[str, Any]]:
        """Return the score rows of single models over all problems."""
        tables = [table for name in names if (table := self.table(name))]
        return [r for t in tables for r in t.rows() if r["slice"] == "all" and r["model"] and r["baseline"] is None]


# --------------------------------------------------------------------------------------------------------------- blocks


def list_claims(results: Results) -> Iterator[str]:
    """Yield the table of all claims of `nano-claims`, and its picture."""
    claims = results.claims(*SCORES)
    if not claims:
        return
    table = next(table for name in SCORES if (table := results.table(name)))
    seeds = sorted({parse_seed(name) for name in table.stamp["entry"]["grades"]})
    commit = table.stamp.get("commit") or "no checkout"
    yield f"From `snakemake nano-claims` with the seeds {', '.join(map(str, seeds))}, code {commit[:10]}."
    yield from ("", *_claim_rows(claims))
    yield from ("", "![Differences of each claim, pooled and by seed, with intervals](images/claims.svg)")


def list_stale_claims(results: Results) -> Iterator[str]:
    """Yield the table of the claims of `nano-staleness`, and the scores of its models."""
    if claims := results.claims(STALENESS):
        yield from _claim_rows(claims)
        yield ""
        yield from _score_rows(claims, results.scores(STALENESS))


def list_scores(results: Results) -> Iterator[str]:
    """Yield a row of scores for each model and benchmark of the claims, except for those of pass@k."""
    names = [name for name in SCORES if name != ATTEMPTS]
    if claims := results.claims(*names):
        yield from _score_rows(claims, results.scores(*names))


def _claim_rows(claims: Claims) -> Iterator[str]:
    yield "| claim | statement | outcome | compared | difference | p | seeds above 0 | below 0 |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, claim in claims.items():
        above = [(seed["low"] or 0) > 0 for seed in claim["seeds"].values()]
        below = [seed["high"] is not None and seed["high"] < 0 for seed in claim["seeds"].values()]
        counts = [f"{sum(some)} of {len(some)}" if some else "–" for some in (above, below)]
        compared = f"`{claim['model']}` - `{claim['baseline']}`, {claim['metric']}"
        cells = [
            name,
            claim["statement"].rstrip("."),
            f"**{claim['outcome']}**",
            compared,
            _difference(claim),
            _p(claim),
        ]
        yield f"| {' | '.join([*cells, *counts])} |"


def _score_rows(claims: Claims, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a row for each model and benchmark that the claims compare."""
    cells = {(m, c["problems"], c["sampling"]) for c in claims.values() for m in (c["model"], c["baseline"])}
    rows = [row for row in rows if (row["model"], row["problems"], row["sampling"]) in cells]
    metrics = list(dict.fromkeys(row["metric"] for row in rows if not row["metric"].endswith("-answer-rate")))
    yield f"| model | problems | {' | '.join(metrics)} |"
    yield "|---" * (len(metrics) + 2) + "|"
    for model, problems in dict.fromkeys((row["model"], row["problems"]) for row in rows):
        here = {row["metric"]: row for row in rows if (row["model"], row["problems"]) == (model, problems)}
        yield f"| {' | '.join([model, problems, *(_value(here.get(metric)) for metric in metrics)])} |"


def list_costs(results: Results) -> Iterator[str]:
    """Yield the cost of the distilled student, with and without its teacher, and of GRPO alone."""
    ways = {
        "GRPO alone": ["grpo/student"],
        "distillation": ["sft/distilled", "responses/teacher"],
        "distillation, with the teacher's training": [
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
    yield from ("| cost (mean over seeds) | training, s | attempts | sum of |", "|---|---|---|---|", *lines)


def _attempts(table: Table) -> int:
    """Return the number of attempts of a table: its rows, or the rollouts of its training."""
    if table.kind == "responses":
        return table.height
    entry = table.stamp["entry"]
    return entry["steps"] * entry["problems_per_step"] * entry["group_size"] if table.kind == "grpo" else 0


def list_pass_at_k(results: Results) -> Iterator[str]:
    """Yield pass@k of the models before and after GRPO, and its picture."""
    if claims := results.claims(ATTEMPTS):
        yield from _score_rows(claims, results.scores(ATTEMPTS))
        yield from ("", "![pass@k by the number of attempts, before and after](images/claims-attempts.svg)")


def list_audits(results: Results) -> Iterator[str]:
    """Yield how far each faulty judge graded above the checker on the same rollouts."""
    lines = []
    for name in ("grpo/judge-errs", "grpo/judge-likes-length", "grpo/judge-believes"):
        gaps = [_curve(table, AUDIT_GAP) for table in results.seeds(name)]
        audits = [_curve(table, AUDIT_GRADE) for table in results.seeds(name)]
        if not gaps or not all(gaps) or not all(audits):
            continue
        drifted = [next((step for step, gap in run if gap > GAP), None) for run in gaps]
        first, last = (fmean(run[place][1] for run in gaps) for place in (0, -1))
        grade = fmean(run[-1][1] for run in audits)
        steps = ", ".join("never" if step is None else str(step) for step in drifted)
        lines.append(f"| {name} | {first:+.2f} | {last:+.2f} | {grade:.2f} | {steps} |")
    if lines:
        title = f"first step with a gap above {GAP:g}, by seed"
        yield f"| training | gap, first | gap, last | checker's grade, last | {title} |"
        yield from ("|---|---|---|---|---|", *lines, "")
        yield "Gaps and grades are shares of the points, from 32 rollouts every five steps."


def list_unscored(*names: str) -> Callable[[Results], Iterator[str]]:
    """Return a block with the share of unscored rollouts of these trainings, at the start and at the end."""

    def lines(results: Results) -> Iterator[str]:
        rows = []
        for name in names:
            runs = [_curve(table, "unscored") for table in results.seeds(name)]
            if runs and all(runs):
                ends = [fmean(share for run in runs for _, share in run[part]) for part in (slice(2), slice(-2, None))]
                largest = max(share for run in runs for _, share in run)
                rows.append(f"| {name} | {ends[0]:.1%} | {ends[1]:.1%} | {largest:.1%} |")
        if rows:
            yield from ("| training | unscored rollouts, first | last | maximum |", "|---|---|---|---|", *rows)

    return lines


def _curve(table: Table, metric: str) -> list[tuple[int, float]]:
    """Return a metric of a training by step, without missing values."""
    rows = [row for row in table.rows() if row["metric"] == metric]
    return [(row["step"], row["value"]) for row in rows if row["value"] is not None and row["value"] == row["value"]]


BLOCKS: dict[str, Callable[[Results], Iterator[str]]] = {
    "all": list_claims,
    "scores": list_scores,
    "costs": list_costs,
    "attempts": list_pass_at_k,
    "audits": list_audits,
    "lost": list_unscored(*(f"grpo/lost-{share}-{way}" for share in (5, 20) for way in ("drop", "zero"))),
    "dodge": list_unscored("grpo/dodge-drop", "grpo/dodge-zero"),
    "staleness": list_stale_claims,
}


def _difference(numbers: Mapping[str, Any]) -> str:
    if numbers["value"] is None:
        return "–"
    ends = "" if numbers["low"] is None else f" [{numbers['low']:+.2f}, {numbers['high']:+.2f}]"
    return f"{numbers['value']:+.2f}{ends}"


def _p(numbers: Mapping[str, Any]) -> str:
    return "< 0.001" if numbers["p_adjusted"] < 0.001 else f"{numbers['p_adjusted']:.3f}"


def _value(row: Mapping[str, Any] | None) -> str:
    if row is None or row["value"] is None:
        return "–"
    digits = 2 if abs(row["value"]) < 10 else 0
    return f"{row['value']:.{digits}f}" + (
        "" if row["low"] is None else f" [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"
    )


# ------------------------------------------------------------------------------------------------------------- pictures


def draw_forest(claims: Claims, path: Path) -> None:
    """Draw the difference of each claim with its interval, and below it those of the seeds; one panel for each unit."""
    panels = {
        "mean grade (points of 7)": {n: c for n, c in claims.items() if c["metric"].startswith("avg")},
        "share of solved problems": {n: c for n, c in claims.items() if not c["metric"].startswith("avg")},
    }
    panels = {unit: {n: c for n, c in some.items() if c["value"] is not None} for unit, some in panels.items()}
    panels = {unit: some for unit, some in panels.items() if some}
    sizes = [len(some) for some in panels.values()]
    with matplotlib.rc_context({"svg.hashsalt": "proofmill", "font.size": 8}):
        figure = Figure(figsize=(8, 0.36 * sum(sizes) + 0.9 * len(sizes)), layout="constrained")
        grid = figure.add_gridspec(len(sizes), 1, height_ratios=[size + 1 for size in sizes])
        for place, (unit, some) in zip(grid, panels.items(), strict=True):
            axes = figure.add_subplot(place)
            for number, claim in enumerate(some.values()):
                color = COLORS.get(claim["outcome"], "0.45")
                _draw_interval(axes, claim, number - 0.12, color=color, marker="o", markersize=5, linewidth=2)
                for index, seed in enumerate(claim["seeds"].values()):
                    y = number + 0.12 + 0.12 * index
                    _draw_interval(axes, seed, y, color="0.6", marker=".", markersize=4, linewidth=1)
            axes.set_yticks(range(len(some)), [f"{name}\n{c['model']} - {c['baseline']}" for name, c in some.items()])
            axes.set_ylim(len(some) - 0.4, -0.6)
            axes.axvline(0, color="0.3", linewidth=0.8)
            axes.grid(axis="x", alpha=0.3)
            axes.set_xlabel(f"difference in {unit}; blue: shown, red: refuted, gray: not shown, small: by seed")
        figure.savefig(path, format="svg", metadata={"Date": None})


def _draw_interval(axes: Any, numbers: Mapping[str, Any], y: float, **looks: Any) -> None:
    if numbers["value"] is None:
        return
    if numbers["low"] is not None:
        line = {key: looks[key] for key in ("color", "linewidth")}
        axes.plot([numbers["low"], numbers["high"]], [y, y], **line)
    axes.plot([numbers["value"]], [y], **{**looks, "linewidth": 0})


# ------------------------------------------------------------------------------------------------------------- the page


def fill(text: str, results: Results) -> str:
    """Return the page with new numbers in each block that has some."""

    def block(match: re.Match[str]) -> str:
        lines = list(BLOCKS[match[2]](results))
        return match[1] + "\n".join(lines).strip("\n") + "\n" + match[3] if lines else match[0]

    return BLOCK.sub(block, text)


def main(folder: Path, page: Path = PAGE) -> None:
    """Fill the page, and draw the pictures next to it."""
    results = Results(folder)
    page.write_text(fill(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    images = page.parent / "images"
    images.mkdir(exist_ok=True)
    if claims := results.claims(*SCORES):
        draw_forest(claims, images / "claims.svg")
    if results.table(ATTEMPTS):
        curves.draw([ATTEMPTS], folder, images / "claims-attempts.svg")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fill the numbers of docs/claims.md.")
    parser.add_argument("results", type=Path, help="results folder of a finished `nano-claims` or `nano-staleness`")
    parser.add_argument("--page", type=Path, default=PAGE, help="another copy of the page")
    options = parser.parse_args()
    main(options.results, options.page)
