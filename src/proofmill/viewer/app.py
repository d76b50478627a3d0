"""Serve the viewer's pages on the loopback, behind a token that the address carries once.

    /recipe/<name>          the graph of artifacts, with state, rows, time and cost
    /table/<kind>/<name>    rows, filtered, sorted, paged; histogram, funnel
    /row/<kind>/<name>/<id> one row with all its texts, and its lineage
    /problem/<kind>/<name>/<id>  the problem with the attempts and verdicts of several tables, and a form for grades
    /rollouts/<kind>/<name> a training's rollouts of one step with rewards and advantages; differences of the audit grader
    /rollout/<kind>/<name>/<id>  one rollout
    /proposals/<kind>/<name>  attempts to grade by hand, so that a debiased score is known better
    /disagreements          the attempts whose grades by two graders differ most
    /curves.svg             curves of trainings; curves of scores by attempts or by cost

All styles and the one script are files of this folder. The content security policy forbids any others, so a text that
escaped the escaping could not run code either.
"""

import io
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proofmill.analysis import curves, lineage, show_artifact
from proofmill.artifacts.tables import Table
from proofmill.calls import budget
from proofmill.config.config import Config
from proofmill.schema.errors import ProofmillError, SettingError
from proofmill.schema.kinds import KINDS, ROLLOUTS, list_trained
from proofmill.viewer import human_grades, problem_pages, recipes, rendering, rollout_pages, table_pages

HERE = Path(__file__).parent
COOKIE = "proofmill-view"
ASSETS = {"style.css": "text/css", "page.js": "text/javascript", "curves.js": "text/javascript"}
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


class Guard:
    """Check the token, first in the address and then in a cookie; without it respond 403. Adds the page's policy."""

    def __init__(self, app: ASGIApp, token: str):
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request = Request(scope)
        token = request.query_params.get("token")
        if token is not None and secrets.compare_digest(token, self.token):
            query = urlencode([(k, v) for k, v in request.query_params.multi_items() if k != "token"])
            response = RedirectResponse(f"{request.url.path}{'?' + query if query else ''}", 303)
            response.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            return await response(scope, receive, send)
        if not secrets.compare_digest(request.cookies.get(COOKIE, ""), self.token):
            text = "403: this page needs the token. Open the address that `proofmill view` printed."
            return await PlainTextResponse(text, 403)(scope, receive, send)

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [
                    (b"content-security-policy", POLICY.encode()),
                    (b"x-content-type-options", b"nosniff"),
                    (b"referrer-policy", b"no-referrer"),
                    (b"cache-control", b"no-store"),
                ]
            await send(message)

        await self.app(scope, receive, with_policy)


class Pages:
    """Handlers of the addresses. `book_of` returns the configuration, reread after an edit."""

    def __init__(self, book_of: Callable[[], Config], results: Path):
        self.book_of, self.results = book_of, results
        self.templates = Environment(loader=PackageLoader("proofmill.viewer", "pages"), autoescape=select_autoescape())
        self.templates.filters |= {
            "text": lambda source: Markup(rendering.text(source)),
            "brief": lambda value: Markup(rendering.brief(value)),
            "address": partial(quote, safe="/"),
        }
        self.templates.globals |= {"query": _query}

    def page(self, name: str, status: int = 200, **shown: Any) -> Response:
        try:
            names = list(self.book_of().recipes)
        except ProofmillError:
            names = []
        html = self.templates.get_template(f"{name}.html").render(recipes=names, results=self.results, **shown)
        return HTMLResponse(html, status)

    def table(self, request: Request) -> Table:
        """Return the table that an address names. Raises SettingError for an invalid name."""
        kind, name = request.path_params["kind"], request.path_params["name"]
        if kind not in KINDS or "/" in name or name.startswith("."):
            raise SettingError(f"{kind}/{name}: no artifact; expected <kind>/<name>. Fix the address.")
        return Table(f"{kind}/{name}", self.results)

    # ----------------------------------------------------------------------------------------------------------- pages

    def first(self, _: Request) -> Response:
        return RedirectResponse(f"/recipe/{next(iter(self.book_of().recipes))}", 303)

    def recipe(self, request: Request) -> Response:
        config, name = self.book_of(), request.path_params["name"]
        if name not in config.recipes:
            raise SettingError(f"{name}: no recipe; expected one of {', '.join(config.recipes)}.")
        shown = recipes.stages(config, name, self.results)
        pages = [stage.name for stage in shown if Table(stage.name, self.results).page.exists()]
        return self.page(
            "recipe",
            title=name,
            here=name,
            stages=shown,
            by_kind=list(recipes.by_kind(shown)),
            graph=recipes.graph(config, shown),
            box={"width": recipes.WIDTH, "height": recipes.HEIGHT},
            summary=recipes.summary(shown),
            money=budget.format_spent(self.results / "calls", config.budget),
            pages=pages,
        )

    def rows(self, request: Request) -> Response:
        table, settings = self.table(request), _settings(request)
        facts = list(show_artifact.facts(table))
        keep = table.stamp["entry"].get("keep") or []
        order = [item if isinstance(item, str) else next(iter(item)) for item in keep]
        fault, shown, bars = "", None, []
        try:
            shown = table_pages.page(table, settings)
            bars = table_pages.histogram(table, settings) if settings.histogram else []
        except SettingError as error:
            fault, shown = str(error), table_pages.page(table, table_pages.PageSettings())
        drawn = table.kind in list_trained() or (
            table.kind == "scores" and curves.read_scores([table.name], self.results)
        )
        return self.page(
            "table",
            title=table.name,
            table=table,
            facts=facts,
            settings=settings,
            shown=shown,
            fault=fault,
            bars=bars,
            funnel=table_pages.funnel(table, order),
            written=show_artifact.page_of(table).partition("\n")[2],  # without the title, which the page has
            drawn=drawn,
            judged=table.kind == "grades" and table.stamp["entry"]["grader"] != "human",
            rolled=table.kind in list_trained() and (table.weights() / ROLLOUTS).exists(),
            per_page=table_pages.PAGE,
            twins=[
                (a, b) for a, b in problem_pages.comparable(problem_pages.entries(self.results)) if table.name in (a, b)
            ],
        )

    def row(self, request: Request) -> Response:
        table, ident = self.table(request), request.path_params["row"]
        (row,) = show_artifact.rows(table, ident).to_dicts()
        steps = lineage.trail(table.name, ident, self.results) if table.kind in lineage.WALKED else []
        return self.page("row", title=f"{table.name} {ident}", table=table, ident=ident, row=row, lineage=steps)

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
        if chosen is not None and not chosen.isdecimal():
            raise SettingError(f"{table.name}: no step `{chosen}`; expected a number. Fix the address.")
        shown = rollout_pages.step(table, None if chosen is None else int(chosen))
        apart = rollout_pages.disagreements(table) if request.query_params.get("apart") else None
        about = {"table": table, "problems": table.stamp["entry"].get("problems")}
        return self.page("rollouts", title=f"{table.name} step {shown.step}", shown=shown, apart=apart, **about)

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
        return self.page("proposals", title=f"{table.name}: attempts to grade", table=table, shown=shown)

    def disagreements(self, request: Request) -> Response:
        entries = problem_pages.entries(self.results)
        pairs = list(problem_pages.comparable(entries))
        one, other = request.query_params.get("one"), request.query_params.get("other")
        rows = problem_pages.disagreements(self.results, one, other) if one in entries and other in entries else []
        of = entries[entries[one]["responses"]]["problems"] if one in entries else ""
        trained = [name for name, entry in entries.items() if entry.get("audit")]
        return self.page(
            "disagreements", title="disagreements", pairs=pairs, one=one, other=other, rows=rows, of=of, trained=trained
        )

    def curves(self, request: Request) -> Response:
        image = io.BytesIO()
        curves.draw(request.query_params.getlist("of"), self.results, image)
        return Response(image.getvalue(), media_type="image/svg+xml")

    def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ASSETS:
            return PlainTextResponse("404", 404)
        text = (HERE / "assets" / name).read_text(encoding="utf-8")
        return Response(text + (rendering.styles() if name == "style.css" else ""), media_type=ASSETS[name])


def _settings(request: Request) -> table_pages.PageSettings:
    parameters = request.query_params
    page = parameters.get("page", "0")
    return table_pages.PageSettings(
        where=parameters.get("where", "").strip(),
        sort=parameters.get("sort", ""),
        down=parameters.get("down") == "1",
        page=int(page) if page.isdecimal() else 0,
        columns=tuple(parameters.getlist("columns")),
        histogram=parameters.get("histogram", ""),
    )


def _query(settings: table_pages.PageSettings, **changed: Any) -> str:
    """Return the query string of a table's page with changed settings."""
    now = {"where": settings.where, "sort": settings.sort, "down": int(settings.down), "page": settings.page,
           "columns": list(settings.columns), "histogram": settings.histogram, **changed}  # fmt: skip
    return "?" + urlencode({key: value for key, value in now.items() if value not in ("", 0, [])}, doseq=True)


def application(book_of: Callable[[], Config], results: Path, token: str) -> Starlette:
    """Build the viewer of a results folder, behind a token."""
    pages = Pages(book_of, results)
    artifact = "{kind}/{name}"
    return Starlette(
        routes=[
            Route("/", pages.first),
            Route("/recipe/{name}", pages.recipe),
            Route(f"/table/{artifact}", pages.rows),
            Route(f"/row/{artifact}/{{row:path}}", pages.row),
            Route(f"/problem/{artifact}/{{row:path}}", pages.problem),
            Route(f"/rollouts/{artifact}", pages.rollouts),
            Route(f"/rollout/{artifact}/{{row}}", pages.rollout),
            Route(f"/proposals/{artifact}", pages.proposals),
            Route("/disagreements", pages.disagreements),
            Route("/curves.svg", pages.curves),
            Route("/grade", pages.grade, methods=["POST"]),
            Route("/assets/{name}", pages.asset),
            Route("/favicon.ico", lambda _: Response(status_code=204)),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"]),
            Middleware(Guard, token=token),
        ],
        exception_handlers={ProofmillError: partial(_fault, pages), 404: partial(_fault, pages)},
    )


async def _fault(pages: Pages, request: Request, error: Exception) -> Response:
    """Respond 404 with a page that shows the error's message, as on the command line."""
    known = isinstance(error, ProofmillError)
    message = str(error) if known else f"{request.url.path}: no such page; expected one that another page links to."
    return await run_in_threadpool(pages.page, "fault", 404, title="not shown", message=message)
