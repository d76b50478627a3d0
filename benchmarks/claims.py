"""Fill the numbers of docs/claims.md, and draw docs/images/claims.svg and claims-attempts.svg.

    python benchmarks/claims.py [--folder docs/measurements] [--page docs/claims.md]

The numbers come from the attempts of the finished seeds that benchmarks/seeds.py keeps in the folder, by the rule and the
statistics of this code. The script replaces what is between `<!-- numbers: X -->` and `<!-- end -->`. All other text
stays unchanged, and so do blocks without numbers in the folder.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
import seeds
import verifiers
from matplotlib.figure import Figure

from proofmill import scores
from proofmill.artifacts.tables import Table
from proofmill.config import yaml_files
from proofmill.config.config import Config, expand
from proofmill.metrics.attempt_table import has, where
from proofmill.metrics.comparisons import pair_numbers
from proofmill.metrics.metrics import METRICS
from proofmill.schema.names import without_seed
from proofmill.viewer.curves import pictures

PAGE = seeds.ROOT / "docs/claims.md"
RECIPE, IDLE, RETIRED, SMOL = "nano-claims", "nano-idle", "nano-retired", "smol-seeds"
RECIPES = (
    *(RECIPE, "nano-staleness", "nano-tuning", "nano-taught", "nano-taught-tuning", "smol-taught", IDLE, RETIRED, SMOL),
    *verifiers.STUDIES,
)
WAYS, ATTEMPTS, REWARDS = "scores/claims-ways-seeds", "scores/claims-attempts-seeds", "scores/claims-rewards-seeds"
SCORES = (WAYS, ATTEMPTS, REWARDS)
AUDIT_GRADE, AUDIT_GAP = "audit/grade", "audit/gap"  # metrics of a training
EARLIER = seeds.FOLDER / "claims-of-three-seeds.csv"  # outcomes by the earlier rule: p over problems, seeds pooled
TAUGHT = "scores/smol-taught-seeds"  # of a section of its own
SILENT = "frac_reward_zero_std"  # share of the groups without a signal
GAP = 0.1  # share of the points: a judge this far above the checker has drifted from it
COLORS = {"shown": "C0", "refuted": "C3"}
Claims = Mapping[str, Mapping[str, Any]]
Curve = list[tuple[int, float]]


class Results:
    """The scores, claims and curves of a folder of measurements; parts may be missing."""

    def __init__(self, config: Config, folder: Path):
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.settled: dict[str, dict[str, dict[str, Any]]] = {}
        self.groups: dict[str, Any] = {}
        self.curves: dict[tuple[str, str], dict[int, Curve]] = {}
        self.commits: dict[str, list[str]] = {}
        for recipe in RECIPES:
            tables = seeds.read(recipe, folder)
            self.commits[recipe] = seeds.commits(recipe, folder)
            for name, entry in seeds.repeated(config, recipe).items() if tables else ():
                self.groups[name] = groups = seeds.group(tables, entry)
                self.rows[name], settled = scores.score_groups(groups, entry)
                self.settled[name] = {claim.name: claim.to_stamp() for claim in settled}
        for recipe in (RECIPE, IDLE, *verifiers.STUDIES):
            for key, by_seed in _curves(recipe, folder).items():
                self.curves.setdefault(key, by_seed)  # trainings of several recipes count once
        self.retired = _curves(RETIRED, folder)  # its own control, trained at the same commit
        self.entries = config.entries
        self.verdicts = {name: verifiers.read(study, folder) for name, study in verifiers.STUDIES.items()}

    def seeds(self, name: str) -> list[int]:
        """Return the finished seeds of a table of scores."""
        return sorted({row["seed"] for attempts in self.groups.get(name, {}).values() for row in attempts})

    def claims(self, *names: str) -> dict[str, Mapping[str, Any]]:
        """Return the outcome of each claim of these scores, ordered by name."""
        return dict(sorted((name, claim) for each in names for name, claim in self.settled.get(each, {}).items()))

    def scores(self, *names: str) -> list[dict[str, Any]]:
        """Return the score rows of single models over all problems."""
        rows = [row for name in names for row in self.rows.get(name, ())]
        return [row for row in rows if row["slice"] == "all" and row["model"] and row["baseline"] is None]

    def curve(self, name: str, metric: str) -> list[Curve]:
        """Return a metric of a training by step, for each finished seed."""
        return [points for _, points in sorted(self.curves.get((name, metric), {}).items())]

    def total(self, name: str, metric: str) -> float:
        """Return what a training or a table of responses took, as mean over seeds; 0 if it is not there."""
        return fmean(points[-1][1] for points in self.curve(name, metric)) if self.curve(name, metric) else 0


def _curves(recipe: str, folder: Path) -> dict[tuple[str, str], dict[int, Curve]]:
    """Return the metrics of the trainings of a recipe by name, metric and seed."""
    curves: dict[tuple[str, str], dict[int, Curve]] = {}
    for point in seeds.read_trainings(recipe, folder):
        by_seed = curves.setdefault((without_seed(point["name"]), point["metric"]), {})
        by_seed.setdefault(point["seed"], []).append((point["step"], point["value"]))
    return curves


# --------------------------------------------------------------------------------------------------------------- blocks


def list_claims(results: Results) -> Iterator[str]:
    """Yield the table of all claims of `nano-claims`, and its picture."""
    claims = results.claims(*SCORES)
    if not claims:
        return
    finished = ", ".join(map(str, results.seeds(WAYS)))
    yield f"Seeds {finished}, code {' and '.join(results.commits[RECIPE])}."
    yield from ("", *_claim_rows(claims))
    yield from ("", "![Differences of each claim, pooled and by seed, with intervals](images/claims.svg)")


def list_smol_claims(results: Results) -> Iterator[str]:
    """Yield the claims about a language model, and pass@k before and after GRPO."""
    names = [name for name in results.settled if name.startswith("scores/smol") and name != TAUGHT]
    if claims := results.claims(*names):
        yield f"Seeds {', '.join(map(str, results.seeds(names[0])))}, code {' and '.join(results.commits[SMOL])}."
        yield from ("", *_claim_rows(claims), "")
        yield from _score_rows(claims, [row for row in results.scores(*names) if row["metric"].startswith("pass")])


def list_claims_of(name: str) -> Callable[[Results], Iterator[str]]:
    """Return a block with the table of the claims of these scores, and the scores of its models."""

    def lines(results: Results) -> Iterator[str]:
        if claims := results.claims(name):
            yield from _claim_rows(claims)
            yield ""
            yield from _score_rows(claims, results.scores(name))

    return lines


def list_scores(results: Results) -> Iterator[str]:
    """Yield a row of scores for each model and benchmark of the claims, except for those of pass@k."""
    names = [name for name in SCORES if name != ATTEMPTS]
    if claims := results.claims(*names):
        yield from _score_rows(claims, results.scores(*names))


def _claim_rows(claims: Claims) -> Iterator[str]:
    yield "| claim | statement | outcome | before | compared | difference | p | seeds above 0 | below 0 |"
    yield "|---|---|---|---|---|---|---|---|---|"
    before = {line["claim"]: line["outcome"] for line in seeds.read_lines(EARLIER)}
    for name, claim in claims.items():
        above = [(seed["low"] or 0) > 0 for seed in claim["seeds"].values()]
        below = [seed["high"] is not None and seed["high"] < 0 for seed in claim["seeds"].values()]
        counts = [f"{sum(some)} of {len(some)}" if some else "–" for some in (above, below)]
        compared = f"`{claim['model']}` - `{claim['baseline']}`, {claim['metric']}"
        cells = [
            name,
            claim["statement"].rstrip("."),
            f"**{claim['outcome']}**",
            before.get(name, "–"),
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
        seconds = sum(results.total(name, seeds.SECONDS) for name in names)
        attempts = sum(results.total(name, seeds.ATTEMPTS) for name in names)
        if not all(results.curve(name, seeds.SECONDS) or results.curve(name, seeds.ATTEMPTS) for name in names):
            return
        parts = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| {way} | {seconds:,.0f} | {attempts:,.0f} | {parts} |")
    yield from ("| cost (mean over seeds) | training, s | attempts | sum of |", "|---|---|---|---|", *lines)


def list_pass_at_k(results: Results) -> Iterator[str]:
    """Yield pass@k of the models before and after GRPO, and its picture."""
    if claims := results.claims(ATTEMPTS):
        yield from _score_rows(claims, results.scores(ATTEMPTS))
        yield from ("", "![pass@k by the number of attempts, before and after](images/claims-attempts.svg)")


def list_parts(results: Results) -> Iterator[str]:
    """Yield the difference of each claim about the ways of training by problem family, and of well-formed attempts."""
    claims, groups = results.claims(WAYS), results.groups.get(WAYS, {})
    parts = sorted({row["level"] for attempts in groups.values() for row in attempts})
    if not claims:
        return
    yield f"| claim | all | {' | '.join(parts)} | well-formed |"
    yield "|---" * (len(parts) + 3) + "|"
    for name, claim in claims.items():
        models = claim["model"], claim["baseline"]
        both = [next(rows for cell, rows in groups.items() if cell[:2] == (m, claim["problems"])) for m in models]
        cells = [_difference(claim)]
        kernel: Any = METRICS["avg-at-k"].apply
        for field, value in [*(("level", part) for part in parts), ("well_formed", 1.0)]:
            chosen = [where(rows, has(field, value)) for rows in both]
            cells.append(_difference(pair_numbers(kernel, None, models, (chosen[0], chosen[1]), results.entries[WAYS])))
        yield f"| {' | '.join([name, *cells])} |"


def list_tuning(name: str) -> Callable[[Results], Iterator[str]]:
    """Return a block with the mean grade of each setting that was tried on the problems for tuning."""

    def lines(results: Results) -> Iterator[str]:
        rows = [row for row in results.scores(name) if row["metric"].startswith("avg")]
        problems = list(dict.fromkeys(row["problems"] for row in rows))
        if rows:
            yield f"| training | {' | '.join(problems)} |"
            yield "|---" * (len(problems) + 1) + "|"
        for model in dict.fromkeys(row["model"] for row in rows):
            here = [row for table in problems for row in rows if (row["model"], row["problems"]) == (model, table)]
            yield f"| `{model}` | {' | '.join(map(_value, here))} |"

    return lines


def list_audits(results: Results) -> Iterator[str]:
    """Yield how far each faulty judge graded above the checker on the same rollouts."""
    lines = []
    for name in ("grpo/judge-errs", "grpo/judge-likes-length", "grpo/judge-believes"):
        gaps, audits = results.curve(name, AUDIT_GAP), results.curve(name, AUDIT_GRADE)
        if not gaps:
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
            if runs := results.curve(name, "unscored"):
                ends = [fmean(share for run in runs for _, share in run[part]) for part in (slice(2), slice(-2, None))]
                largest = max(share for run in runs for _, share in run)
                rows.append(f"| {name} | {ends[0]:.1%} | {ends[1]:.1%} | {largest:.1%} |")
        if rows:
            yield from ("| training | unscored rollouts, first | last | maximum |", "|---|---|---|---|", *rows)

    return lines


def list_idle(*trainings: tuple[str, str], retired: bool = False) -> Callable[[Results], Iterator[str]]:
    """Return a function that yields a metric of idle groups in each third of these trainings; `retired`: of that recipe."""

    def lines(results: Results) -> Iterator[str]:
        rows, curves = [], results.retired if retired else results.curves
        for name, metric in trainings:
            if runs := [points for _, points in sorted(curves.get((name, metric), {}).items())]:
                shares = [[value for _, value in run] for run in runs]
                thirds = [
                    fmean(
                        fmean(run[(start := place * len(run) // 3) : max(start + 1, (place + 1) * len(run) // 3)])
                        for run in shares
                    )
                    for place in range(3)
                ]
                shown = " | ".join(f"{share:.1%}" for share in thirds)
                what = "after replacement" if metric != SILENT else "as drawn"
                rollouts = fmean(points[-1][1] for points in curves[name, seeds.ATTEMPTS].values())
                rows.append(f"| `{name}` | {what} | {shown} | {rollouts:,.0f} |")
        if rows:
            yield "| training | idle groups | first third | second | last | rollouts |"
            yield from ("|---|---|---|---|---|---|", *rows)

    return lines


PROVERS = {  # of each study: trainings that a trained judge rewards
    "verifier-nano": ("grpo/by-verifier", "grpo/by-verifier-half", "grpo/by-verifier-again", "grpo/by-verifiers"),
    "verifier-smol": (
        *("grpo/proofs-judge", "grpo/proofs-verified", "grpo/proofs-verified-half", "grpo/proofs-verified-again"),
        "grpo/proofs-verifiers",
    ),
}


def _rewards(results: Results, name: str) -> list[list[tuple[int, float, float]]]:
    """Return step, grade by the judge and grade by the checker of each audit, for each seed."""
    pairs = zip(results.curve(name, AUDIT_GAP), results.curve(name, AUDIT_GRADE), strict=True)
    return [[(step, grade + gap, grade) for (step, gap), (_, grade) in zip(*pair, strict=True)] for pair in pairs]


def list_drift(recipe: str) -> Callable[[Results], Iterator[str]]:
    """Return the lines of what judge and checker grade the rollouts of each prover: first, halfway and last."""

    def lines(results: Results) -> Iterator[str]:
        known = {name: runs for name in PROVERS[recipe] if (runs := _rewards(results, name))}
        if known:
            title = f"first step with a gap above {GAP:g}, by seed"
            yield f"| prover | judge / checker, first | halfway | last | {title} |"
            yield "|---|---|---|---|---|"
        for name, runs in known.items():
            shown = []
            for place in (0, len(runs[0]) // 2, -1):
                by_judge, true = (fmean(run[place][side] for run in runs) for side in (1, 2))
                shown.append(f"{by_judge:.2f} / {true:.2f}")
            drifted = [next((step for step, judge, true in run if judge - true > GAP), None) for run in runs]
            steps = ", ".join("never" if step is None else str(step) for step in drifted)
            yield f"| `{name}` | {' | '.join(shown)} | {steps} |"
        if known:
            yield from ("", f"![True grade over the reward, by prover](images/drift-{recipe}.svg)")

    return lines


def list_verdicts(
    lines: Callable[[verifiers.Study, verifiers.Verdicts], Iterator[str]], recipe: str
) -> Callable[[Results], Iterator[str]]:
    """Return the lines about the verdicts of one study."""
    return lambda results: lines(verifiers.STUDIES[recipe], results.verdicts[recipe])


BLOCKS: dict[str, Callable[[Results], Iterator[str]]] = {
    "all": list_claims,
    "scores": list_scores,
    "tuning": list_tuning("scores/tuning-seeds"),
    "parts": list_parts,
    "costs": list_costs,
    "attempts": list_pass_at_k,
    "audits": list_audits,
    "lost": list_unscored(*(f"grpo/lost-{share}-{way}" for share in (5, 20) for way in ("drop", "zero"))),
    "dodge": list_unscored("grpo/dodge-drop", "grpo/dodge-zero"),
    "staleness": list_claims_of("scores/claims-staleness-seeds"),
    "taught": list_claims_of("scores/claims-taught-seeds"),
    "smol-taught": list_claims_of(TAUGHT),
    "idle": list_claims_of("scores/claims-idle-seeds"),
    "idle-groups": list_idle(("grpo/nano", SILENT), ("grpo/replaced", SILENT), ("grpo/replaced", "idle/left")),
    "retired": list_claims_of("scores/claims-retired-seeds"),
    "retired-groups": list_idle(("grpo/nano", SILENT), ("grpo/retired", SILENT), retired=True),
    "verifier": list_claims_of("scores/claims-verifier-seeds"),
    "verifier-agreement": list_verdicts(verifiers.list_agreement, "verifier-nano"),
    "verifier-errors": list_verdicts(verifiers.list_errors, "verifier-nano"),
    "provers": list_claims_of("scores/claims-provers-seeds"),
    "drift": list_drift("verifier-nano"),
    "unlike": list_claims_of("scores/claims-unlike-seeds"),
    "unlike-agreement": list_verdicts(verifiers.list_agreement, "verifier-unlike"),
    "smol-verifier": list_claims_of("scores/proof-verifiers-seeds"),
    "smol-verifier-agreement": list_verdicts(verifiers.list_agreement, "verifier-smol"),
    "smol-verifier-errors": list_verdicts(verifiers.list_errors, "verifier-smol"),
    "smol-provers": list_claims_of("scores/proof-provers-seeds"),
    "smol-drift": list_drift("verifier-smol"),
    "taught-tuning": list_tuning("scores/taught-tuning-seeds"),
    "smol": list_smol_claims,
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


def draw_drift(results: Results, recipe: str, path: Path) -> None:
    """Draw the true grade over the reward for each prover, from its first audit to its last; pale: single seeds."""
    with matplotlib.rc_context({"svg.hashsalt": "proofmill", "font.size": 8}):
        figure = Figure(figsize=(5, 4), layout="constrained")
        axes = figure.add_subplot()
        for number, name in enumerate(PROVERS[recipe]):
            runs = _rewards(results, name)
            for run in runs:
                axes.plot([judge for _, judge, _ in run], [true for *_, true in run], color=f"C{number}", alpha=0.2)
            means = [[fmean(values) for values in zip(*point, strict=True)] for point in zip(*runs, strict=True)]
            if means:
                _, judge, true = zip(*means, strict=True)
                axes.plot(judge, true, color=f"C{number}", marker=".", label=name)
                axes.plot(judge[-1], true[-1], color=f"C{number}", marker="s")
        axes.axline((0, 0), slope=1, color="0.3", linewidth=0.8, linestyle=":")
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="reward by the judge, share of the points; square: last audit")
        axes.set_ylabel("true grade, share of the points")
        axes.legend()
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
    return seeds.fill(text, lambda name: BLOCKS[name](results))


def main(config: Config, folder: Path = seeds.FOLDER, page: Path = PAGE) -> None:
    """Fill the page, and draw the pictures next to it."""
    results = Results(config, folder)
    page.write_text(fill(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    images = page.parent / "images"
    images.mkdir(exist_ok=True)
    if claims := results.claims(*SCORES):
        draw_forest(claims, images / "claims.svg")
    for recipe, names in PROVERS.items():
        if any(results.curve(name, AUDIT_GAP) for name in names):
            draw_drift(results, recipe, images / f"drift-{recipe}.svg")
    if ATTEMPTS in results.rows:
        with tempfile.TemporaryDirectory() as tables:
            Table(ATTEMPTS, Path(tables)).write(results.rows[ATTEMPTS], {"entry": {}, "fingerprint": RECIPE})
            pictures.draw([ATTEMPTS], Path(tables), images / "claims-attempts.svg")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fill the numbers of docs/claims.md.")
    parser.add_argument("--folder", type=Path, default=seeds.FOLDER, help="measurements (default: docs/measurements)")
    parser.add_argument("--page", type=Path, default=PAGE, help="another copy of the page")
    options = parser.parse_args()
    main(expand(yaml_files.read("config.yaml")), options.folder, options.page)
