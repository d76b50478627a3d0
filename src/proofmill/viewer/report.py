"""The report of a recipe: one HTML file with all that a reader of its results asks for, legible on paper.

What was measured, with intervals; how the training set came about; what the trainings did step by step; what was looked
for in the benchmarks and found; attempts with their verdicts; what it took; every setting; how to make it again. It reads
tables and stamps alone: a recipe that is not finished has the report of what there is, and says what is missing.
"""

import base64
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import yaml
from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from proofmill.artifacts.tables import Table
from proofmill.inspect import curves, reading
from proofmill.recipes.book import Book
from proofmill.runtime.progress import clock
from proofmill.schema.errors import ProofmillError, SettingError
from proofmill.schema.kinds import learned
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import Reason
from proofmill.text.suggestions import among
from proofmill.viewer import problems, recipes, rendering, tables

HERE = Path(__file__).parent
LONGEST = 4000  # characters of a text in the report


@dataclass(frozen=True)
class Sample:
    """An attempt that stands for others: why it was chosen, and the rows that belong to it."""

    why: str
    grades: str
    problem: Mapping[str, Any]
    response: Mapping[str, Any]
    grade: Mapping[str, Any]


def written(book: Book, recipe: str, results: Path) -> str:
    """The report as HTML. Raises SettingError for a name that is no recipe, or one of which nothing was made."""
    if recipe not in book.recipes:
        raise SettingError(f"{recipe}: no recipe; expected one of {among(recipe, book.recipes)}")
    stages = recipes.stages(book, recipe, results)
    made = [stage.name for stage in stages if Table(stage.name, results).path.exists() and stage.state != "damaged"]
    if not made:
        raise SettingError(
            f"{recipe}: nothing was made yet; expected tables in {results}/. Make it: snakemake {recipe}"
        )
    stamps = {name: Table(name, results).stamp for name in made}
    pages = Environment(loader=PackageLoader("proofmill.viewer", "pages"), autoescape=select_autoescape())
    pages.filters |= {
        "text": lambda source: Markup(rendering.text(source)),
        "cut": lambda source: source if len(source or "") <= LONGEST else f"{source[:LONGEST]}…",
    }
    return pages.get_template("report.html").render(
        recipe=recipe,
        made=len(made),
        missing=[stage.name for stage in stages if stage.name not in made],
        stages=stages,
        by_kind=list(recipes.by_kind(stages)),
        graph=recipes.graph(book, stages),
        box={"width": recipes.WIDTH, "height": recipes.HEIGHT},
        facts=_facts(stamps, results),
        scores=list(_scores(made, results)),
        funnels=list(_funnels(made, stamps, results)),
        examples=[(name, stamps[name]["counts"]) for name in made if kind_of(name) == "examples"],
        trainings=list(_trainings(made, results)),
        overlaps=list(_overlaps(made, results)),
        samples=list(_samples(made, stamps, results)),
        settings=_settings(made, stamps),
        style=Markup((HERE / "assets/style.css").read_text(encoding="utf-8") + rendering.styles()),
    )


def _facts(stamps: Mapping[str, Mapping[str, Any]], results: Path) -> dict[str, str]:
    """What it took and what it was made with."""
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
        "paid": f"${dollars:,.2f}{f', and unknown sums in {unknown} of {len(asked)} stages' if unknown else ''}",
        "code": ", ".join(f"{commit[:10]} ({count} tables)" for commit, count in commits.most_common())
        or "no checkout",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }


def _scores(made: Sequence[str], results: Path) -> Iterator[tuple[str, str, str | None]]:
    """Each page of scores without its title, with a picture of marks by attempts or by spending where it has any."""
    for name in made:
        table = Table(name, results)
        if kind_of(name) == "scores" and table.page.exists():
            drawn = curves.read_scores([name], results)
            picture = _picture([name], results) if drawn else None
            yield name, reading.page_of(table).partition("\n")[2], picture


def _funnels(made: Sequence[str], stamps: Mapping[str, Any], results: Path) -> Iterator[tuple[str, list[tables.Bar]]]:
    for name in made:
        if kind_of(name) == "problems":
            keep = stamps[name]["entry"].get("keep") or []
            order = [item if isinstance(item, str) else next(iter(item)) for item in keep]
            if bars := tables.funnel(Table(name, results), order):
                yield name, bars


def _trainings(made: Sequence[str], results: Path) -> Iterator[tuple[str, str]]:
    """The curves of each kind of training, those of one kind in one picture."""
    for kind in learned():
        names = [name for name in made if kind_of(name) == kind]
        if names and curves.read(names, results):
            yield kind, _picture(names, results)


def _overlaps(made: Sequence[str], results: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for name in made:
        if kind_of(name) == "overlaps":
            undecided = pl.col("method") + pl.lit(" (undecided)")
            method = pl.when(pl.col("reason") == Reason.OK).then("method").otherwise(undecided)
            rows = Table(name, results).scan().with_columns(method.alias("method")).collect()
            yield name, rows.group_by("problems", "against", "method", maintain_order=True).len().to_dicts()


def _samples(made: Sequence[str], stamps: Mapping[str, Any], results: Path) -> Iterator[Sample]:
    """Of each graded table that scores rest on a best and a worst attempt; and the one that graders disagree on most."""
    graded = [name for name in made if kind_of(name) == "grades"]
    measured = {name for score in made if kind_of(score) == "scores" for name in stamps[score]["entry"]["grades"]}
    for name in graded:
        if name not in measured:
            continue
        marks = Table(name, results).scan().filter(pl.col("grade").is_not_null()).select("response", "grade").collect()
        if marks.is_empty():
            continue
        if marks["grade"].n_unique() == 1:
            yield _sample("all have this mark", name, marks["response"][0], stamps, results)
            continue
        ranked = marks.sort("grade", maintain_order=True)["response"].to_list()
        for why, response in (
            ("the first of the best", _first(marks, ranked[-1])),
            ("the first of the worst", ranked[0]),
        ):
            yield _sample(why, name, response, stamps, results)
    found = {name: stamps[name]["entry"] for name in graded}
    for one, other in problems.comparable(found):
        try:
            rows = problems.disagreements(results, one, other, 1)
        except ProofmillError:
            continue
        for row in rows:
            yield _sample(f"disputed: {other} differs most here", one, row["response"], stamps, results)


def _first(marks: pl.DataFrame, response: str) -> str:
    """The first attempt with the same mark as this one."""
    mark = marks.filter(pl.col("response") == response)["grade"][0]
    return marks.filter(pl.col("grade") == mark)["response"][0]


def _sample(why: str, name: str, response: str, stamps: Mapping[str, Any], results: Path) -> Sample:
    responses = stamps[name]["entry"]["responses"]
    of = Table(responses, results).stamp["entry"]["problems"]
    (grade,) = reading.rows(Table(name, results), response).to_dicts()
    (attempt,) = reading.rows(Table(responses, results), response).to_dicts()
    (problem,) = reading.rows(Table(of, results), grade["problem"]).to_dicts()
    return Sample(why, name, problem, attempt, grade)


def _settings(made: Sequence[str], stamps: Mapping[str, Any]) -> str:
    """Every entry as a configuration writes it, without what is at its default."""
    entries = {name: reading.own_fields(kind_of(name), stamps[name]["entry"]) for name in made}
    declared = {name: fields for stamp in stamps.values() for name, fields in (stamp.get("declared") or {}).items()}
    own = {name: reading.own_fields(kind_of(name), fields) for name, fields in sorted(declared.items())}
    return yaml.safe_dump({**own, **entries}, sort_keys=False, allow_unicode=True, width=110)


def _picture(names: Sequence[str], results: Path) -> str:
    """A picture of curves as an address that holds it."""
    file = io.BytesIO()
    curves.draw(names, results, file)
    return "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode()
