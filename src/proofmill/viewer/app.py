"""Serve the viewer's pages on the loopback, behind a token that the address carries once.

    /                       running jobs, scores of the recipe changed last, what needs a look, all recipes
    /recipe/<name>          the map of kinds, all stages, trainings, tables and costs
    /scores, /costs         boards of all scores, claims; the budget; what recipes, kinds and models cost
    /search?q=<text>        artifacts by name; problems by id and statement
    /live?page=<path>&keys=<block>,...  blocks of a page, for its script
    /table/<kind>/<name>    rows, filtered, sorted, paged; histogram, funnel
    /row/<kind>/<name>/<id> one row with all its texts, and its lineage
    /problem/<kind>/<name>/<id>  the problem with the attempts and verdicts of several tables, and a form for grades
    /rollouts/<kind>/<name> a training's rollouts of one step with rewards and advantages; differences of the audit grader
    /rollout/<kind>/<name>/<id>  one rollout
    /proposals/<kind>/<name>  attempts to grade by hand, so that a debiased score is known better
    /disagreements          the attempts whose grades by two graders differ most
    /training/<kind>/<name> curves of a training and of others with it, and what differs in their configurations
    /curves.json            the same curves for the script: another part of them, smoothed otherwise, or on another axis
    /compare?a=&b=&on=      two models on a benchmark
    /export/<kind>/<name>/<form>  the rows that match as a file, `csv` or `jsonl`

All styles and scripts are files here; the policy forbids others, so a text that escaped the escaping cannot run code.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Match, Route

from proofmill.analysis import costs, curves, lineage, search, show_artifact
from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.calls.merging import has_answers
from proofmill.config.config import Config
from proofmill.metrics.page import difference
from proofmill.runtime.job_logs import last_line
from proofmill.runtime.progress import clock
from proofmill.schema import references
from proofmill.schema.errors import ProofmillError, SettingError
from proofmill.schema.kinds import KINDS, list_trained
from proofmill.schema.names import file_fault, kind_of
from proofmill.viewer import (
    guard,
    human_grades,
    problem_pages,
    recipes,
    rendering,
    rollout_pages,
    score_boards,
    start_page,
    table_pages,
)
from proofmill.viewer.curves import plots, training_page
from proofmill.viewer.tables import compare_page
from proofmill.viewer.tables.joined_rows import problems_of, read_by_id
from proofmill.viewer.tables.limited_call import LimitedCall

HERE = Path(__file__).parent
BLOCKS: ContextVar[tuple[str, ...]] = ContextVar("BLOCKS", default=())  # of a page, if only they are wanted
ASSETS = {"style.css": "text/css", "page.js": "text/javascript", "curves.js": "text/javascript"}


class Pages:
    """Handlers of the addresses. `book_of` returns the configuration, reread after an edit."""

    def __init__(self, book_of: Callable[[], Config], results: Path):
        self.book_of, self.results, self.find = book_of, results, LimitedCall(table_pages.find)
        self.templates = Environment(loader=PackageLoader("proofmill.viewer", "pages"), autoescape=select_autoescape())
        self.overview, self.routes = recipes.Overview(results), list[Route]()
        self.templates.filters |= {
            "clock": clock,
            "kind_of": kind_of,
            "at": _format_time,
            "since": start_page.since,
            "text": lambda source: Markup(rendering.text(source)),
            "brief": lambda value, most=200: Markup(rendering.brief(value, most)),
            "verdict": lambda source: Markup(rendering.verdict(source)),
            "address": partial(quote, safe="/"),
            "short": plots.short,
            "look": plots.look,
        }
        self.templates.globals |= {"difference_text": difference, "dollars": costs.format_dollars}
        self.templates.globals["drawn"] = self.templates.get_template("drawn.html").module

    def page(self, name: str, status: int = 200, **shown: Any) -> Response:
        """Render a page; for `live`, only the blocks that it asks for."""
        template, context = self.templates.get_template(f"{name}.html"), {"results": self.results, **shown}
        if wanted := [key for key in BLOCKS.get() if key in template.blocks]:
            parts = template.new_context(context)
            return JSONResponse({key: "".join(template.blocks[key](parts)) for key in wanted})
        return HTMLResponse(template.render(context), status)

    def config(self) -> Config:
        """Return the configuration; an empty one while it has mistakes, since tables are shown without it."""
        try:
            return self.book_of()
        except ProofmillError:
            return Config({}, {}, {})

    def table(self, request: Request) -> Table:
        """Return the table that an address names. Raises SettingError for an invalid name."""
        return self.open_table("{kind}/{name}".format(**request.path_params))

    def open_table(self, name: str) -> Table:
        """Return the table with a name. Raises SettingError for an invalid one."""
        kind, _, rest = name.partition("/")
        is_file = rest.isprintable() and not rest.startswith(".") and file_fault(name) is None
        if kind not in KINDS or not rest or "/" in rest or not is_file:
            raise SettingError(f"{name}: no artifact; expected <kind>/<name>. Fix the address.")
        return Table(name, self.results)

    # ----------------------------------------------------------------------------------------------------------- pages

    def start(self, _: Request) -> Response:
        config = self.book_of()
        return self.page("start", **start_page.collect_start(self.overview.read(config), config))

    def recipe(self, request: Request) -> Response:
        config, name = self.book_of(), request.path_params["name"]
        if name not in config.recipes:
            raise SettingError(f"{name}: no recipe; expected one of {', '.join(config.recipes)}.")
        return self.page("recipe", **start_page.collect_recipe(self.overview.read(config), config, name))

    def scores(self, request: Request) -> Response:
        overview, metric = self.overview.read(self.book_of()), request.query_params.get("metric", "")
        tables = list(score_boards.list_tables(overview, metric))
        metrics = dict.fromkeys(name for _, boards, *_ in tables for board in boards for name in board.metrics)
        return self.page("scores", tables=tables, metrics=metrics, metric=metric)

    def costs(self, request: Request) -> Response:
        config, chosen = self.book_of(), request.query_params.get("recipe", "")
        return self.page("costs", **start_page.collect_costs(self.overview.read(config), config, chosen))

    def search(self, request: Request) -> Response:
        config, text = self.book_of(), request.query_params.get("q", "").strip()
        overview = self.overview.read(config)
        made = sorted(
            (name for name in overview.at if kind_of(name) == "problems"), key=lambda n: overview.at[n].st_size
        )
        hits = search.search(text, config.entries.keys() | overview.at, made, self.results) if text else None
        return self.page("search", text=text, hits=hits, at=overview.at)

    def live(self, request: Request) -> Response:
        """Respond with blocks of a page, or 304 if the browser has them. Raises SettingError for a page without them."""
        path, _, query = request.query_params.get("page", "").partition("?")
        scope = {**request.scope, "path": unquote(path), "query_string": query.encode()}
        for route in self.routes:
            match, child = route.matches(scope)
            if match == Match.FULL and not BLOCKS.get():
                token = BLOCKS.set(tuple(request.query_params.get("keys", "").split(",")))
                try:
                    response = route.endpoint(Request({**scope, **child}))
                finally:
                    BLOCKS.reset(token)
                if isinstance(response, JSONResponse):
                    tag = f'"{hashlib.sha256(response.body).hexdigest()[:16]}"'
                    response.headers["etag"] = tag
                    return Response(status_code=304) if request.headers.get("if-none-match") == tag else response
        raise SettingError(f"{path}: has no such blocks; expected a page of the viewer. Reload it.")

    def rows(self, request: Request) -> Response:
        table, settings = self.table(request), table_pages.read_settings(request.query_params)
        entries, entry = problem_pages.entries(self.results), self.book_of().entries.get(table.name)
        if table.kind in list_trained() and not request.query_params and (table.path.exists() or table.is_being_made):
            return RedirectResponse(f"/training/{quote(table.name)}", 303)
        if not table.path.exists() and entry is not None:
            return self.unmade(table, entry, entries)
        shown = table_pages.page(table, settings, self.find)
        self.find.start_soon()
        measured = curves.read_scores([table.name], self.results) if table.kind == "scores" else []
        return self.page(
            "table",
            title=table.name,
            table=table,
            key=show_artifact.id_column(table),
            settings=settings,
            shown=shown,
            facts=table_pages.facts(table, entries),
            described=list(show_artifact.facts(table)),
            written=show_artifact.page_of(table).partition("\n")[2],  # without the title, which the page has
            panels=list(map(plots.of_scores, measured)),
            judged=table.kind == "grades" and table.stamp["entry"]["grader"] != "human",
            twins=[pair for pair in problem_pages.comparable(entries) if table.name in pair],
        )

    def unmade(self, table: Table, entry: Any, entries: Mapping[str, Any]) -> Response:
        """Return the page of an artifact without a table: why, from what, and what its journal holds."""
        so_far = table_pages.so_far(table) if has_answers(table.calls) else None
        why = States(self.book_of(), self.results)[table.name].why
        parents = {name: name in entries for name in references.parents(entry)}
        about: dict[str, Any] = {"why": why, "parents": parents, "so_far": so_far, "log": last_line(table.log)}
        return self.page("unmade", title=table.name, table=table, **about)

    def export(self, request: Request) -> Response:
        table, settings = self.table(request), table_pages.read_settings(request.query_params)
        form, height = request.path_params["form"], table.height  # raises TableError for a missing table
        if form not in table_pages.FORMS:
            raise SettingError(f"no format `{form}`; expected {' or '.join(table_pages.FORMS)}. Fix the address.")
        places = table_pages.list_places(table, settings, self.find) if settings.where or settings.q else range(height)
        name = f"{table.name.replace('/', '-')}.{form}".encode("ascii", "replace").decode()
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return StreamingResponse(table_pages.export(table, places, form), 200, headers, table_pages.FORMS[form])

    def row(self, request: Request) -> Response:
        table, ident = self.table(request), request.path_params["row"]
        (row,) = show_artifact.rows(table, ident).to_dicts()
        steps = lineage.trail(table.name, ident, self.results) if table.kind in lineage.WALKED else []
        problems, key = problems_of(table), row.get("problem")
        shown = None
        if problems and table.kind in ("responses", "grades"):
            human = human_grades.last_grades(self.results, table.stamp["entry"].get("responses", table.name))
            shown = problem_pages.page(self.results, problems.name, row["problem"], [table.name], human, most=None)
        statement = read_by_id(problems, "problem", [key], "statement").get(key, {}).get("statement")
        about: dict[str, Any] = {"table": table, "row": row, "problems": problems, "statement": statement}
        return self.page("row", title=f"{table.name} {ident}", lineage=steps, shown=shown, **about)

    def problem(self, request: Request) -> Response:
        table, problem = self.table(request), request.path_params["row"]
        if table.kind != "problems":
            raise SettingError(f"{table.name}: has no problems; expected problems/<name>. Fix the address.")
        chosen = request.query_params.getlist("show")
        entries = problem_pages.entries(self.results)
        responses = {entries[n].get("responses", n) for n in problem_pages.with_attempts(entries, table.name)}
        grades = {
            key: grade for name in responses for key, grade in human_grades.last_grades(self.results, name).items()
        }
        shown = problem_pages.page(self.results, table.name, problem, chosen, grades)
        return self.page("problem", title=f"{table.name} {problem}", shown=shown, chosen=chosen, entries=entries)

    def rollouts(self, request: Request) -> Response:
        table, chosen = self.table(request), request.query_params.get("step")
        shown = rollout_pages.step(
            table, None if chosen is None else table_pages.read_number(chosen, f"{table.name}: no step")
        )
        apart = rollout_pages.disagreements(table) if request.query_params.get("apart") else None
        about = {"table": table, "problems": table.stamp["entry"].get("problems"), "section": "Recipes"}
        curve = training_page.curves([table.name], training_page.View(), self.results, {})
        title = f"{table.name} step {shown.step}"
        return self.page("rollouts", title=title, shown=shown, apart=apart, curve=curve, **about)

    def rollout(self, request: Request) -> Response:
        table = self.table(request)
        row = rollout_pages.rollout(table, request.path_params["row"])
        about = {"table": table, "problems": table.stamp["entry"].get("problems")}
        return self.page("rollout", title=f"{table.name} {row['rollout']}", row=row, **about)

    async def grade(self, request: Request) -> Response:
        form = await request.form()
        fields = {
            key: str(form.get(key, "")) for key in ("responses", "response", "grade", "max_points", "comment", "back")
        }
        if fields["responses"] not in problem_pages.entries(self.results):
            raise SettingError(f"{fields['responses']}: no table of responses; expected one in {self.results}/.")
        await run_in_threadpool(
            human_grades.add_grade,
            self.results,
            *(fields[key] for key in ("responses", "response", "grade", "max_points", "comment")),
        )
        back = fields["back"] if fields["back"].startswith("/") and not fields["back"].startswith("//") else "/"
        return RedirectResponse(back, 303)

    def proposals(self, request: Request) -> Response:
        table = self.table(request)
        shown = human_grades.propose_attempts(table)
        statements = self.statements(shown.problems, shown.rows)
        title = f"{table.name}: attempts to grade"
        return self.page("proposals", title=title, table=table, shown=shown, statements=statements)

    def statements(self, problems: str, rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
        """Return the statements of the problems that rows name, by id."""
        table = Table(problems, self.results) if rows else None
        return read_by_id(table, "problem", {row["problem"] for row in rows}, "statement")

    def disagreements(self, request: Request) -> Response:
        entries = problem_pages.entries(self.results)
        pairs = list(problem_pages.comparable(entries))
        one, other = (request.query_params.get(name, "") for name in ("one", "other"))
        if (one or other) and (one, other) not in pairs and (other, one) not in pairs:
            raise SettingError(f"{one} and {other}: expected grades of the same responses. Choose a pair.")
        rows = problem_pages.disagreements(self.results, one, other) if one else []
        of = entries[entries[one]["responses"]]["problems"] if rows else ""
        about: dict[str, Any] = {"one": one, "other": other, "of": of, "statements": self.statements(of, rows)}
        trained = [name for name, entry in entries.items() if entry.get("audit")]
        return self.page(
            "disagreements", title="disagreements", section="Compare", pairs=pairs, rows=rows, trained=trained, **about
        )

    def training(self, request: Request) -> Response:
        table, query, config = self.table(request), request.query_params, self.config()
        names = [table.name, *(self.open_table(name).name for name in query.getlist("with") if name)]
        shown = training_page.page(names, training_page.View.of(query), self.results, config.entries)
        recipe = [(f"/recipe/{name}", name) for name, names in config.recipes.items() if table.name in names][:1]
        return self.page("training", title=table.name, section="Recipes", crumb=[("/", "results"), *recipe], **shown)

    def compare(self, request: Request) -> Response:
        entries = problem_pages.entries(self.results)
        models = compare_page.list_benchmarks(entries)
        a, b, on = (request.query_params.get(name, "") for name in ("a", "b", "on"))
        fault, shown = "", None
        on = on or next((name for name in models.get(a, ()) if name in models.get(b, ())), "")
        try:
            shown = compare_page.compare(self.results, entries, a, b, on) if a and b else None
        except ProofmillError as error:
            fault = str(error)
        title, about = f"{a} - {b}" if shown else "compare", dict[str, Any](a=a, b=b, on=on, models=models, fault=fault)
        return self.page("compare", title=title, section="Compare", shown=shown, **about)

    def curves(self, request: Request) -> Response:
        query, plot = request.query_params, self.templates.get_template("curves.html").module.plot  # type: ignore[attr-defined]  # a macro
        names = [self.open_table(name).name for name in query.getlist("of")]
        shown = training_page.curves(names, training_page.View.of(query), self.results, self.config().entries)
        return JSONResponse(training_page.as_json(shown, plot))

    def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ASSETS:
            return PlainTextResponse("404", 404)
        text = rendering.read_styles() if name == "style.css" else (HERE / "assets" / name).read_text(encoding="utf-8")
        return Response(text, media_type=ASSETS[name])


def _format_time(moment: float) -> str:
    """Return the time of today, or date and time."""
    then, now = time.localtime(moment), time.localtime()
    return time.strftime("%H:%M" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)


def application(book_of: Callable[[], Config], results: Path, token: str) -> Starlette:
    """Build the viewer of a results folder, behind a token."""
    pages = Pages(book_of, results)
    artifact = "{kind}/{name}"
    pages.routes = [
        Route("/", pages.start),
        Route("/recipe/{name}", pages.recipe),
        Route("/scores", pages.scores),
        Route("/costs", pages.costs),
        Route("/search", pages.search),
        Route("/live", pages.live),
        Route(f"/table/{artifact}", pages.rows),
        Route(f"/row/{artifact}/{{row:path}}", pages.row),
        Route(f"/problem/{artifact}/{{row:path}}", pages.problem),
        Route(f"/rollouts/{artifact}", pages.rollouts),
        Route(f"/rollout/{artifact}/{{row}}", pages.rollout),
        Route(f"/proposals/{artifact}", pages.proposals),
        Route("/disagreements", pages.disagreements),
        Route(f"/training/{artifact}", pages.training),
        Route("/curves.json", pages.curves),
        Route("/compare", pages.compare),
        Route(f"/export/{artifact}/{{form}}", pages.export),
        Route("/grade", pages.grade, methods=["POST"]),
        Route("/assets/{name}", pages.asset),
        Route("/favicon.ico", lambda _: Response(status_code=204)),
    ]
    return Starlette(
        routes=pages.routes,
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"]),
            Middleware(guard.Guard, token=token),
        ],
        exception_handlers=dict.fromkeys((ProofmillError, 404, Exception), partial(_fault, pages)),
    )


async def _fault(pages: Pages, request: Request, error: Exception) -> Response:
    """Respond 404 with a page that shows the error's message, as on the command line; 500 for an error of the viewer."""
    if isinstance(error, ProofmillError):
        status, message = 404, str(error)
    elif isinstance(error, HTTPException):
        status, message = 404, f"{request.url.path}: no such page; expected one that another page links to."
    else:
        status, message = (
            500,
            f"{request.url.path}: a fault of the viewer; its terminal shows it. Go back, or restart it.",
        )
    return await run_in_threadpool(pages.page, "fault", status, title="not shown", message=message)
