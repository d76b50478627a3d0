"""Guard the viewer's pages by a token, and against other pages of the browser."""

import secrets
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "proofmill-view-{port}"  # two viewers on one machine do not log each other out
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


class Guard:
    """Check the token, first in the address and then in a cookie; without it respond 403. Adds the page's policy.

    A form must come from a page of the viewer: browsers say where it is in `Origin`.
    """

    def __init__(self, app: ASGIApp, token: str):
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request = Request(scope)
        token, cookie = request.query_params.get("token"), COOKIE.format(port=request.url.port or 80)
        if token is not None and self._is_token(token):
            query = urlencode([(k, v) for k, v in request.query_params.multi_items() if k != "token"])
            response = RedirectResponse(f"{request.url.path}{'?' + query if query else ''}", 303)
            response.set_cookie(cookie, self.token, httponly=True, samesite="strict")
            return await response(scope, receive, send)
        if not self._is_token(request.cookies.get(cookie, "")):
            text = "403: this page needs the token. Open the address that `proofmill view` printed."
            return await PlainTextResponse(text, 403)(scope, receive, send)
        own = f"{request.url.scheme}://{request.url.netloc}"
        if request.method != "GET" and request.headers.get("origin", own) != own:
            text = "403: this form was sent from another page. Open the viewer and send it from there."
            return await PlainTextResponse(text, 403)(scope, receive, send)

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [
                    (b"content-security-policy", POLICY.encode()),
                    (b"x-content-type-options", b"nosniff"),
                    (b"referrer-policy", b"same-origin"),  # `no-referrer` would send forms with `Origin: null`
                    (b"cache-control", b"no-store"),
                ]
            await send(message)

        await self.app(scope, receive, with_policy)

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode("utf-8", "replace"), self.token.encode())
