"""Collect the pages about recipes: the start page with what needs a look, one recipe, and the costs of all."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import polars as pl

from proofmill.analysis import costs
from proofmill.artifacts.tables import Table
from proofmill.calls import budget
from proofmill.config.config import Config
from proofmill.schema.errors import ProofmillError
from proofmill.schema.kinds import list_trained
from proofmill.schema.names import kind_of
from proofmill.viewer import recipes, score_boards
from proofmill.viewer.recipes import JobView, Overview, follow_job, summary

SHARE = 0.01  # of the attempts, above which empty or truncated ones need a look
SPENT = 0.8  # of the budget
IDLE = 0.5  # of the groups without a gradient
GAP = 0.1  # audit gap, as a share of all points
LATEST = 6  # tables made last
ADVICE = {
    "empty": ("have no text after the reasoning; each counts as 0 points", "check reasoning-end of {model}"),
    "truncated": ("stopped at the token limit", "raise max-tokens"),
    "unscored": ("have no grade and are missing from the score", "their reason says why"),
}


@dataclass(frozen=True)
class Look:
    """One cause that needs a look, with links to exactly its rows."""

    sort: str
    text: str
    links: Sequence[tuple[str, str]] = ()
    log: Sequence[str] = ()
    command: str = ""


@dataclass(frozen=True)
class RecipeView:
    """A recipe with results: its stages, boards, running jobs with their progress, and the time of its last change."""

    name: str
    stages: Sequence[JobView]
    boards: Sequence[score_boards.Board]

    @property
    def states(self) -> Mapping[str, int]:
        return summary(self.stages)

    @property
    def stamps(self) -> dict[str, Mapping[str, Any]]:
        return {stage.name: stage.stamp for stage in self.stages if stage.stamp}

    @property
    def changed(self) -> float:
        return max((stage.changed for stage in self.stages), default=0.0)

    @property
    def began(self) -> float:
        return min((stage.changed - stage.took for stage in self.stages if stage.changed), default=0.0)

    @cached_property
    def jobs(self) -> list[tuple[JobView, Any, Any]]:
        return [(stage, *follow_job(stage)) for stage in self.stages if stage.state == "running"]


def collect_start(overview: Overview, config: Config) -> dict[str, Any]:
    """Return the contents of the start page."""
    shown = [view_recipe(overview, name) for name in overview.with_results()]
    boards = next((recipe.boards for recipe in shown if recipe.boards), [])
    first = {(board.scores, board.best["problems"]): id(board) for board in reversed(boards)}
    return {
        "shown": shown,
        "sizes": overview.sizes(),
        "money": budget.format_spent(overview.results / "calls", config.budget),
        "first_boards": [board for board in boards if id(board) in first.values()],
        "other_boards": [board for board in boards if id(board) not in first.values()],
        "causes": list(list_causes(overview, config, shown)),
        "latest": list_latest(overview),
    }


def collect_recipe(overview: Overview, config: Config, name: str) -> dict[str, Any]:
    """Return the contents of a recipe's page."""
    shown = view_recipe(overview, name)
    kinds = [(kind, some, summary(some)) for kind, some in recipes.by_kind(shown.stages)]
    trained = [stage for kind, some, _ in kinds if kind in list_trained() for stage in some]
    read = [stage.stamp and recipes.read_spark(Table(stage.name, overview.results), stage.changed) for stage in trained]
    return {
        "it": shown,
        "about": recipes.describe(name),
        "fault": config.faults.get(name),
        "causes": list_failures(shown.stages),
        "kinds": kinds,
        "edges": recipes.edges(shown.stages),
        "lanes": recipes.arrange_lanes(shown.stages),
        "trainings": list(zip(trained, read, strict=True)),
        "costs": costs.sum_costs(shown.stamps, overview.results, by_model=False),
    }


def collect_costs(overview: Overview, config: Config, chosen: str) -> dict[str, Any]:
    """Return the contents of the page of costs: by kind and model for the chosen recipe (default: the one changed last)."""
    shown = [RecipeView(name, overview.stages(name), ()) for name in overview.with_results()]
    made = {stage.name: (stage.changed, stage.stamp) for recipe in shown for stage in recipe.stages if stage.stamp}
    it = next((recipe for recipe in shown if recipe.name == chosen), next(iter(shown), None))
    return {
        "recipes": shown,
        "it": it,
        "rows": costs.sum_costs(it.stamps, overview.results) if it else [],
        "spent": budget.sum_costs(overview.results / "calls"),
        "budget": config.budget,
        "curve": costs.draw_sum([*made.values()]),
    }


def view_recipe(overview: Overview, recipe: str, metric: str = "") -> RecipeView:
    """Collect a recipe. Boards of damaged tables are left out: the tables need a look themselves."""
    stages, boards = overview.stages(recipe), list[score_boards.Board]()
    scored = [stage for stage in stages if kind_of(stage.name) == "scores" and stage.stamp]
    for stage in sorted(scored, key=lambda stage: -stage.changed):
        try:
            boards += score_boards.list_boards(overview, stage.name, metric)
        except ProofmillError:
            continue
    return RecipeView(recipe, stages, boards)


def list_causes(overview: Overview, config: Config, shown: Sequence[RecipeView]) -> Iterator[Look]:
    """Yield what needs a look in the recipes with results: failures first, then lost attempts, trainings, budget."""
    stages = {stage.name: stage for recipe in shown for stage in recipe.stages}
    yield from list_failures(stages.values())
    lost: dict[tuple, dict[str, score_boards.Lost]] = {}  # by address: two graders share truncated responses
    for name in (name for name, stage in stages.items() if kind_of(name) == "grades" and stage.stamp):
        try:
            for each in score_boards.list_lost(overview, name):
                if each.sort == "unscored" or each.count > SHARE * each.of:
                    server = kind_of(each.entry["model"]) == "api"
                    lost.setdefault((each.sort, each.entry["problems"], server), {})[each.address] = each
        except ProofmillError:
            continue
    for (sort, problems, server), by_address in lost.items():
        (said, advice), some = ADVICE[sort], [*by_address.values()]
        count, of = sum(each.count for each in some), sum(each.of for each in some)
        models = ", ".join(dict.fromkeys(each.entry["model"] for each in some[:3]))
        hint = f"; {advice.format(model=models)}" if server or sort == "truncated" else ""
        links = [(f"{each.table.partition('/')[2]} {each.count:,}", each.address) for each in some]
        yield Look(sort, f"{count:,} of {of:,} responses on {problems.partition('/')[2]} {said}{hint}.", links)
    for stage in stages.values():
        if kind_of(stage.name) == "grpo" and stage.stamp:
            yield from _of_training(stage.name, read_health(Table(stage.name, overview.results), stage.changed))
    if config.budget and (spent := budget.sum_costs(overview.results / "calls")) > SPENT * config.budget:
        yield Look("budget", f"${spent:,.2f} of ${config.budget:,.2f} are spent.", [("Costs", "/costs")])


def list_failures(stages: Iterable[JobView]) -> list[Look]:
    """Return the failed and damaged stages, with error, end of the log, and the command that repeats or checks each."""
    looks = []
    for stage in stages:
        link = [(stage.name, f"/table/{stage.name}")]
        if stage.state == "failed":
            again = f"snakemake {stage.log.with_suffix('.parquet')}"
            looks.append(Look("failed", stage.last_line, link, stage.log_end, again))
        elif stage.state == "damaged":
            looks.append(Look("damaged", stage.why, link, command=f"proofmill check {stage.name}"))
    return looks


@lru_cache(maxsize=500)
def read_health(table: Table, changed: float) -> dict[str, float]:
    """Return the mean audit gap and share of idle groups of a version of a training; none if its rows are damaged."""
    try:
        named = table.scan().filter(pl.col("metric").is_in(["audit/gap", "frac_reward_zero_std"]))
        return dict(named.group_by("metric").agg(pl.col("value").mean()).collect().iter_rows())
    except ProofmillError:
        return {}


def _of_training(name: str, means: Mapping[str, float]) -> Iterator[Look]:
    if (means.get("frac_reward_zero_std") or 0) > IDLE:
        share = f"{means['frac_reward_zero_std']:.0%} of the groups of {name} have no gradient: all their rewards are equal."
        yield Look("no signal", share, [("Its curves", f"/table/{name}")])
    if abs(means.get("audit/gap") or 0) > GAP:
        gap = (
            f"The reward grader of {name} gives {means['audit/gap']:+.0%} of all points compared with the audit grader."
        )
        yield Look("audit gap", gap, [("Where they differ", f"/rollouts/{name}?apart=1")])


def list_latest(overview: Overview) -> list[tuple[str, int, dict[str, Any], float]]:
    """Return the tables made last: name, rows, stamp, time."""
    names = sorted(overview.at, key=lambda name: -overview.at[name].st_mtime)
    latest = []
    for name in names[:LATEST]:
        try:
            stamp, rows = overview.facts(name)
        except ProofmillError:
            continue
        latest.append((name, rows, stamp, overview.at[name].st_mtime))
    return latest


def since(moment: float) -> str:
    """Return the time since a moment: `a minute ago`, `3 hours ago`; its date after two days."""
    minutes = (time.time() - moment) / 60
    for limit, unit, size in ((1.5, "a minute", 0), (90, "minutes", 1), (48 * 60, "hours", 60)):
        if minutes < limit:
            return f"{minutes / size:.0f} {unit} ago" if size else f"{unit} ago"
    return time.strftime("%Y-%m-%d", time.localtime(moment))
