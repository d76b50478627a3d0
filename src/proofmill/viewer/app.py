"""The pages and who may see them: an application on the loopback, behind a token that its address carries once.

    /recipe/<name>          the graph, what runs, what everything made, took and cost
    /table/<kind>/<name>    rows, filtered, sorted, paged; histogram, funnel
    /row/<kind>/<name>/<id> one row with all its texts, and the way back to its source
    /problem/<kind>/<name>/<id>  the problem with its attempts and verdicts, tables side by side; a mark can be given
    /rollouts/<kind>/<name> a training's rollouts of one step with rewards and advantages; where its hold-out judge differs
    /rollout/<kind>/<name>/<id>  one of them
    /disagreements          the attempts that two graders mark most differently
    /curves.svg             of trainings; of marks by attempts or by spending

Nothing is fetched from elsewhere: styles and the one script are files beside this module, and the page's policy forbids all
others, so that even a text that slipped through the escaping could run nothing.
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

from proofmill.artifacts.tables import Table
from proofmill.calls import budget
from proofmill.inspect import curves, lineage, reading
from proofmill.recipes.book import Book
from proofmill.schema.errors import ProofmillError, SettingError
from proofmill.schema.kinds import KINDS, ROLLOUTS, learned
from proofmill.viewer import marks, problems, recipes, rendering, rollouts, tables

HERE = Path(__file__).parent
COOKIE = "proofmill-view"
ASSETS = {"style.css": "text/css", "viewer.js": "text/javascript"}
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


class Guard:
    """Lets in who has the token: from the address once, then from a cookie; others get 403. Adds the page's policy."""

    def __init__(self, app: ASGIApp, token: str):
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request = Request(scope)
        given = request.query_params.get("token")
        if given is not None and secrets.compare_digest(given, self.token):
            query = urlencode([(k, v) for k, v in request.query_params.multi_items() if k != "token"])
            response = RedirectResponse(f"{request.url.path}{'?' + query if query else ''}", 303)
            response.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            return await response(scope, receive, send)
        if not secrets.compare_digest(request.cookies.get(COOKIE, ""), self.token):
            text = "403: this page needs the token in the address that `proofmill view` printed."
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
    """What each address shows. `book_of` reads the configuration anew where it was edited."""

    def __init__(self, book_of: Callable[[], Book], results: Path):
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
        """The table that an address names; SettingError for a name that is none."""
        kind, name = request.path_params["kind"], request.path_params["name"]
        if kind not in KINDS or "/" in name or name.startswith("."):
            raise SettingError(f"{kind}/{name}: no artifact; expected <kind>/<name>.")
        return Table(f"{kind}/{name}", self.results)

    # ------------------------------------------------------------------------------------------------------- the pages

    def first(self, _: Request) -> Response:
        return RedirectResponse(f"/recipe/{next(iter(self.book_of().recipes))}", 303)

    def recipe(self, request: Request) -> Response:
        book, name = self.book_of(), request.path_params["name"]
        if name not in book.recipes:
            raise SettingError(f"{name}: no recipe; expected one of {', '.join(book.recipes)}.")
        shown = recipes.stages(book, name, self.results)
        pages = [stage.name for stage in shown if Table(stage.name, self.results).page.exists()]
        return self.page(
            "recipe",
            title=name,
            here=name,
            stages=shown,
            by_kind=list(recipes.by_kind(shown)),
            graph=recipes.graph(book, shown),
            box={"width": recipes.WIDTH, "height": recipes.HEIGHT},
            summary=recipes.summary(shown),
            money=budget.spent_of(self.results / "calls", book.budget),
            pages=pages,
        )

    def rows(self, request: Request) -> Response:
        table, asked = self.table(request), _asked(request)
        facts = list(reading.facts(table))
        keep = table.stamp["entry"].get("keep") or []
        order = [item if isinstance(item, str) else next(iter(item)) for item in keep]
        fault, shown, bars = "", None, []
        try:
            shown = tables.page(table, asked)
            bars = tables.histogram(table, asked) if asked.histogram else []
        except SettingError as error:
            fault, shown = str(error), tables.page(table, tables.Asked())
        drawn = table.kind in learned() or (table.kind == "scores" and curves.read_scores([table.name], self.results))
        return self.page(
            "table",
            title=table.name,
            table=table,
            facts=facts,
            asked=asked,
            shown=shown,
            fault=fault,
            bars=bars,
            funnel=tables.funnel(table, order),
            written=reading.page_of(table).partition("\n")[2],  # its title is ours
            drawn=drawn,
            rolled=table.kind in learned() and (table.weights() / ROLLOUTS).exists(),
            per_page=tables.PAGE,
            twins=[(a, b) for a, b in problems.comparable(problems.entries(self.results)) if table.name in (a, b)],
        )

    def row(self, request: Request) -> Response:
        table, ident = self.table(request), request.path_params["row"]
        (found,) = reading.rows(table, ident).to_dicts()
        way = lineage.trail(table.name, ident, self.results) if table.kind in lineage.WALKED else []
        return self.page("row", title=f"{table.name} {ident}", table=table, ident=ident, row=found, way=way)

    def problem(self, request: Request) -> Response:
        table, problem = self.table(request), request.path_params["row"]
        if table.kind != "problems":
            raise SettingError(f"{table.name}: has no problems; expected problems/<name>.")
        chosen = request.query_params.getlist("show")
        found = problems.entries(self.results)
        responses = {found[n].get("responses", n) for n in problems.attempted(found, table.name)}
        given = {key: mark for name in responses for key, mark in marks.given(self.results, name).items()}
        shown = problems.page(self.results, table.name, problem, chosen, given)
        return self.page("problem", title=f"{table.name} {problem}", shown=shown, chosen=chosen, found=found)

    def rollouts(self, request: Request) -> Response:
        table, asked = self.table(request), request.query_params.get("step")
        if asked is not None and not asked.isdecimal():
            raise SettingError(f"{table.name}: no step `{asked}`; expected a number.")
        shown = rollouts.step(table, None if asked is None else int(asked))
        apart = rollouts.disagreements(table) if request.query_params.get("apart") else None
        about = {"table": table, "problems": table.stamp["entry"].get("problems")}
        return self.page("rollouts", title=f"{table.name} step {shown.step}", shown=shown, apart=apart, **about)

    def rollout(self, request: Request) -> Response:
        table = self.table(request)
        row = rollouts.rollout(table, request.path_params["row"])
        about = {"table": table, "problems": table.stamp["entry"].get("problems")}
        return self.page("rollout", title=f"{table.name} {row['rollout']}", row=row, **about)

    async def mark(self, request: Request) -> Response:
        form = await request.form()
        fields = {key: str(form.get(key, "")) for key in ("responses", "response", "mark", "out_of", "comment", "back")}
        if fields["responses"] not in problems.entries(self.results):
            raise SettingError(f"{fields['responses']}: no table of responses here.")
        await run_in_threadpool(
            marks.give,
            self.results,
            *(fields[key] for key in ("responses", "response", "mark", "out_of", "comment")),
        )
        back = fields["back"] if fields["back"].startswith("/") and not fields["back"].startswith("//") else "/"
        return RedirectResponse(back, 303)

    def disagreements(self, request: Request) -> Response:
        found = problems.entries(self.results)
        pairs = list(problems.comparable(found))
        one, other = request.query_params.get("one"), request.query_params.get("other")
        rows = problems.disagreements(self.results, one, other) if one in found and other in found else []
        of = found[found[one]["responses"]]["problems"] if one in found else ""
        trained = [name for name, entry in found.items() if entry.get("hold_out")]
        return self.page(
            "disagreements", title="disagreements", pairs=pairs, one=one, other=other, rows=rows, of=of, trained=trained
        )

    def curves(self, request: Request) -> Response:
        picture = io.BytesIO()
        curves.draw(request.query_params.getlist("of"), self.results, picture)
        return Response(picture.getvalue(), media_type="image/svg+xml")

    def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ASSETS:
            return PlainTextResponse("404", 404)
        text = (HERE / "assets" / name).read_text(encoding="utf-8")
        return Response(text + (rendering.styles() if name == "style.css" else ""), media_type=ASSETS[name])


def _asked(request: Request) -> tables.Asked:
    asked = request.query_params
    page = asked.get("page", "0")
    return tables.Asked(
        where=asked.get("where", "").strip(),
        sort=asked.get("sort", ""),
        down=asked.get("down") == "1",
        page=int(page) if page.isdecimal() else 0,
        columns=tuple(asked.getlist("columns")),
        histogram=asked.get("histogram", ""),
    )


def _query(asked: tables.Asked, **changed: Any) -> str:
    """The address of a table's page with other settings."""
    now = {"where": asked.where, "sort": asked.sort, "down": int(asked.down), "page": asked.page,
           "columns": list(asked.columns), "histogram": asked.histogram, **changed}  # fmt: skip
    return "?" + urlencode({key: value for key, value in now.items() if value not in ("", 0, [])}, doseq=True)


def application(book_of: Callable[[], Book], results: Path, token: str) -> Starlette:
    """The viewer of a folder of results, behind a token."""
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
            Route("/disagreements", pages.disagreements),
            Route("/curves.svg", pages.curves),
            Route("/mark", pages.mark, methods=["POST"]),
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
    """What cannot be shown is said in the words that the command line has for it."""
    known = isinstance(error, ProofmillError)
    said = str(error) if known else f"{request.url.path}: no such page; expected one that another leads to."
    return await run_in_threadpool(pages.page, "fault", 404, title="not shown", said=said)
