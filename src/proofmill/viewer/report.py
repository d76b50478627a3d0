"""Write the report of a recipe: one self-contained HTML file, which also prints well.

It has scores with intervals, the filtering of the training set, curves of trainings, overlaps with benchmarks, sample
attempts with verdicts, time and cost, all settings, and the commands to reproduce it. Only tables and stamps are read.
The report of an unfinished recipe covers the existing tables and lists the missing ones.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import yaml
from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from proofmill.analysis import curves, show_artifact, training_series
from proofmill.artifacts.tables import Table
from proofmill.config.config import Config
from proofmill.runtime.progress import clock
from proofmill.schema.errors import ProofmillError, SettingError
from proofmill.schema.kinds import list_trained
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import Reason
from proofmill.text.suggestions import among
from proofmill.viewer import problem_pages, recipes, rendering, table_pages
from proofmill.viewer.curves import plots, training_page

HERE = Path(__file__).parent
LONGEST = 4000  # characters of a text in the report


@dataclass(frozen=True)
class Sample:
    """An example attempt: the reason for its choice, and its rows."""

    why: str
    grades: str
    problem: Mapping[str, Any]
    response: Mapping[str, Any]
    grade: Mapping[str, Any]


def write(config: Config, recipe: str, results: Path) -> str:
    """Return the report as HTML. Raises SettingError for an unknown recipe, or one without finished tables."""
    if recipe not in config.recipes:
        raise SettingError(f"{recipe}: no recipe; expected one of {among(recipe, config.recipes)}")
    stages = recipes.stages(config, recipe, results)
    made = [stage.name for stage in stages if Table(stage.name, results).path.exists() and stage.state != "damaged"]
    if not made:
        raise SettingError(f"{recipe}: has no finished table; expected some in {results}/. Run it: snakemake {recipe}")
    stamps = {name: Table(name, results).stamp for name in made}
    pages = Environment(loader=PackageLoader("proofmill.viewer", "pages"), autoescape=select_autoescape())
    pages.filters |= {
        "address": quote,  # of the macros
        "clock": clock,
        "text": lambda source: Markup(rendering.text(source)),
        "short": plots.short,
        "look": plots.look,
        "cut": lambda source: source if len(source or "") <= LONGEST else f"{source[:LONGEST]}…",
    }
    return pages.get_template("report.html").render(
        recipe=recipe,
        made=len(made),
        missing=[stage.name for stage in stages if stage.name not in made],
        stages=stages,
        by_kind=list(recipes.by_kind(stages)),
        kinds=[(kind, some, recipes.summary(some)) for kind, some in recipes.by_kind(stages)],
        edges=recipes.edges(stages),
        facts=_facts(stamps, results),
        scores=list(_scores(made, results)),
        funnels=list(_funnels(made, results)),
        examples=[(name, stamps[name]["counts"]) for name in made if kind_of(name) == "examples"],
        trainings=list(_trainings(made, results)),
        overlaps=list(_overlaps(made, results)),
        samples=list(_samples(made, stamps, results)),
        settings=_settings(made, stamps),
        style=Markup(rendering.read_styles()),
    )


def _facts(stamps: Mapping[str, Mapping[str, Any]], results: Path) -> dict[str, str]:
    """Summarize time, tokens, cost, commits and versions."""
    seconds = sum(stamp.get("seconds") or 0 for stamp in stamps.values())
    asked = [stamp for stamp in stamps.values() if stamp.get("tokens") is not None]
    unknown = sum(stamp.get("cost") is None for stamp in asked)
    dollars = sum(stamp.get("cost") or 0 for stamp in asked)
    newest = max(Table(name, results).path.stat().st_mtime for name in stamps)
    commits = Counter(stamp["commit"] for stamp in stamps.values() if stamp.get("commit"))
    versions = next(iter(stamps.values()))["versions"]
    return {
        "finished": datetime.fromtimestamp(newest).strftime("%Y-%m-%d %H:%M"),
        "stages' time": clock(seconds),
        "tokens of calls": f"{sum(stamp['tokens'] or 0 for stamp in asked):,}",
        "paid": f"${dollars:,.2f}{f', plus unknown costs of {unknown} of {len(asked)} stages' if unknown else ''}",
        "code": ", ".join(f"{commit[:10]} ({count} tables)" for commit, count in commits.most_common())
        or "no checkout",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }


def _scores(made: Sequence[str], results: Path) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Yield each score page without its title, and its panels of scores by attempts or by cost."""
    for name in made:
        table = Table(name, results)
        if kind_of(name) == "scores" and table.page.exists():
            panels = list(map(plots.of_scores, curves.read_scores([name], results)))
            yield name, show_artifact.page_of(table).partition("\n")[2], panels


def _funnels(made: Sequence[str], results: Path) -> Iterator[tuple[str, list[table_pages.Bar]]]:
    for name in made:
        if kind_of(name) == "problems" and (bars := table_pages.funnel(Table(name, results))):
            yield name, bars


def _trainings(made: Sequence[str], results: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the curves of each kind of training."""
    for kind in list_trained():
        if trainings := [training_series.read(name, results) for name in made if kind_of(name) == kind]:
            yield kind, training_page.draw(trainings, training_page.View())


def _overlaps(made: Sequence[str], results: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for name in made:
        if kind_of(name) == "overlaps":
            undecided = pl.col("method") + pl.lit(" (undecided)")
            method = pl.when(pl.col("reason") == Reason.OK).then("method").otherwise(undecided)
            rows = Table(name, results).scan().with_columns(method.alias("method")).collect()
            yield name, rows.group_by("problems", "against", "method", maintain_order=True).len().to_dicts()


def _samples(made: Sequence[str], stamps: Mapping[str, Any], results: Path) -> Iterator[Sample]:
    """Yield a best and a worst attempt of each scored grades table, and the attempt that graders disagree on most."""
    graded = [name for name in made if kind_of(name) == "grades"]
    used = {name for score in made if kind_of(score) == "scores" for name in stamps[score]["entry"]["grades"]}
    for name in graded:
        if name not in used:
            continue
        grades = Table(name, results).scan().filter(pl.col("grade").is_not_null()).select("response", "grade").collect()
        if grades.is_empty():
            continue
        if grades["grade"].n_unique() == 1:
            yield _sample("all have this grade", name, grades["response"][0], stamps, results)
            continue
        ranked = grades.sort("grade", maintain_order=True)["response"].to_list()
        for why, response in (
            ("first of the best", _first(grades, ranked[-1])),
            ("first of the worst", ranked[0]),
        ):
            yield _sample(why, name, response, stamps, results)
    for one, other in problem_pages.comparable({name: stamps[name]["entry"] for name in graded}):
        try:
            rows = problem_pages.disagreements(results, one, other, 1)
        except ProofmillError:
            continue
        for row in rows:
            yield _sample(f"largest difference to {other}", one, row["response"], stamps, results)


def _first(grades: pl.DataFrame, response: str) -> str:
    """Return the first attempt with the same grade as this one."""
    grade = grades.filter(pl.col("response") == response)["grade"][0]
    return grades.filter(pl.col("grade") == grade)["response"][0]


def _sample(why: str, name: str, response: str, stamps: Mapping[str, Any], results: Path) -> Sample:
    responses = stamps[name]["entry"]["responses"]
    of = Table(responses, results).stamp["entry"]["problems"]
    (grade,) = show_artifact.rows(Table(name, results), response).to_dicts()
    (attempt,) = show_artifact.rows(Table(responses, results), response).to_dicts()
    (problem,) = show_artifact.rows(Table(of, results), grade["problem"]).to_dicts()
    return Sample(why, name, problem, attempt, grade)


def _settings(made: Sequence[str], stamps: Mapping[str, Any]) -> str:
    """Return all entries as YAML of a configuration, without defaults."""
    entries = {name: show_artifact.own_fields(kind_of(name), stamps[name]["entry"]) for name in made}
    declared = {name: fields for stamp in stamps.values() for name, fields in (stamp.get("declared") or {}).items()}
    own = {name: show_artifact.own_fields(kind_of(name), fields) for name, fields in sorted(declared.items())}
    return yaml.safe_dump({**own, **entries}, sort_keys=False, allow_unicode=True, width=110)
