"""The dashboard's door: who asks, whether they may look, and how a browser logs in and out."""

from __future__ import annotations

import asyncio
import time
from html import escape
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from unerring.app import Place
from unerring.dashboard import commands
from unerring.dashboard.access import COOKIE, Access
from unerring.dashboard.answers import HEADERS, Refused, body_of, in_json
from unerring.dashboard.connections import HOLDER
from unerring.dashboard.oidc import Oidc
from unerring.dashboard.pace import Pace
from unerring.dashboard.sessions import SESSION_S_MAX
from unerring.model import CallerError, Right, UnerringError, Who
from unerring.runtime import timeline

LOGIN_BYTES_MAX: Final = 4096
SESSION_S: Final = int(SESSION_S_MAX)
LOGIN: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Unerring: log in</title>
<link rel="icon" href="/static/mark.svg"><link rel="stylesheet" href="/static/style.css">
<script type="module" src="/static/enter.js"></script>
<main><h1>Log in</h1><p>The token is the one that <code>unerring dashboard</code> printed.</p>
<p role="alert">WHY</p><form method="post" action="/login">
<label>Token <input type="password" name="token" required autofocus autocomplete="off"></label>
<button>Log in</button></form>OTHER</main></html>"""
ENTERED: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Unerring</title>
<meta http-equiv="refresh" content="0;url=/"><p><a href="/">Go on</a></p></html>"""
STATE: Final = "unerring_login"
OPEN: Final = (
    "/login",
    "/oidc/login",
    "/oidc/callback",
    "/static/style.css",
    "/static/mark.svg",
    "/static/enter.js",
)
"""What everybody may ask for."""
DASHBOARD: Final = "dashboard"
"""Its name on the timeline."""
PROVIDER_AT_ONCE_MAX: Final = 20
PROVIDER_PER_S_MAX: Final = 1.0
"""Of one address: logins at the provider that it may begin. They cannot push each other out."""


class Entrance:
    """Lets people into the dashboard of one run."""

    def __init__(self, place: Place, access: Access, oidc: Oidc | None, secure: bool) -> None:
        self.access = access
        self._place = place
        self._oidc = oidc
        self._secure = secure
        access.told = self._note
        self._begun = Pace(PROVIDER_AT_ONCE_MAX, PROVIDER_PER_S_MAX)
        self.routes = [
            Route("/login", self._page, methods=["GET"]),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/oidc/login", self._oidc_login),
            Route("/oidc/callback", self._oidc_callback),
            Route("/api/who", in_json(self._whoever)),
        ]

    def who(self, request: Request) -> Who | None:
        """By the token that a program sends, or by a browser's session."""
        given = token_of(request)
        return self.access.who(given) if given else self.access.session(request.cookies.get(COOKIE, ""))

    def sees(self, request: Request) -> bool:
        """Whether whoever asks may look, now."""
        return self.access.may(self.who(request), Right.VIEW, self._place.address)

    async def keeps_out(self, request: Request) -> Response | None:
        """Whoever may not look gets the login page, and nothing else."""
        who, given, run = self.who(request), bool(token_of(request)), self._place.address
        if given and who is None and not await self._failed(request):
            return _too_many_wrong()
        if request.url.path in OPEN or self.sees(request):
            return None
        if who is not None:
            self.access.refused(f"{who} has no right 'view {run}'", peer_of(request))
        if request.url.path == "/" and request.method == "GET":
            return RedirectResponse("/login", 303, HEADERS)
        return Refused("log in first: /login", 401).response

    def audited(self, who: Who, request: Request, what: str, detail: str) -> None:
        """Who changed what, and from where, is part of the run's timeline."""
        timeline.note(self._place.scratch, str(who), what, f"{detail}, from {peer_of(request)}")

    async def _failed(self, request: Request) -> bool:
        """Let whoever guesses wait for the answer; False: too many wait."""
        self.access.refused("somebody showed a token or code that is not known", peer_of(request))
        return await self.access.failed(peer_of(request))

    def _note(self, why: str) -> None:
        """What was refused is on the run's timeline, once of each kind; the metrics count the rest."""
        timeline.note(self._place.scratch, DASHBOARD, timeline.What.REFUSED, why)

    async def _whoever(self, request: Request) -> Any:
        who = self.who(request)
        return {"who": str(who) if who is not None else None}

    async def _page(self, request: Request) -> Response:
        return self._form()

    def _form(self, why: str = "", status: int = 200) -> Response:
        other = "" if self._oidc is None else '<p><a href="/oidc/login">Log in with your provider</a></p>'
        return HTMLResponse(LOGIN.replace("WHY", escape(why)).replace("OTHER", other), status, headers=HEADERS)

    async def _login(self, request: Request) -> Response:
        try:
            body = await body_of(request, LOGIN_BYTES_MAX)
            commands.check_origin(request.headers.get("origin", ""), request.headers.get("host", ""))
        except CallerError as error:
            return Response(str(error), 403, HEADERS)
        shown = dict(parse_qsl(body.decode("utf-8", "replace")))
        code = shown.get("code", "")
        who = self.access.sessions.exchange(code) if code else self.access.who(shown.get("token", "").strip())
        if who is None:
            if not await self._failed(request):
                return _too_many_wrong()
            why = "This address was used, or is older than a minute: log in with the token." if code else ""
            return self._form(why or "This token is not known here.", 403)
        # Always to the same page: whatever a link says, nobody is sent elsewhere.
        return await self._enter(request, RedirectResponse("/", 303, HEADERS), who, "the dashboard")

    async def _enter(self, request: Request, answer: Response, who: Who, how: str) -> Response:
        """The answer with a session's cookie, or its refusal."""
        if self.access.logins.exceeds(who, time.monotonic()):
            self.access.refused(f"{who} logs in too often", peer_of(request))
            return self._form(f"{who} has logged in too often; log in again in a minute.", 429)
        await asyncio.to_thread(self.audited, who, request, timeline.What.LOGIN, how)
        value = self.access.begin(who)
        answer.set_cookie(COOKIE, value, SESSION_S, httponly=True, samesite="strict", secure=self._secure, path="/")
        return answer

    async def _logout(self, request: Request) -> Response:
        self.access.end(request.cookies.get(COOKIE, ""))
        answer = RedirectResponse("/login", 303, HEADERS)
        answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict", secure=self._secure)
        return answer

    async def _oidc_login(self, request: Request) -> Response:
        if self._oidc is None:
            return Response("this dashboard has no provider; use a token", 404, HEADERS)
        if self._begun.exceeds(peer_of(request), time.monotonic()):
            return self._form("Too many logins begin at the provider; try again in a minute.", 429)
        back = str(request.url.replace(path="/oidc/callback", query=""))
        try:
            there, state = await self._oidc.begin(back)
        except UnerringError as error:
            return self._form(str(error), 503)
        answer = RedirectResponse(there, 303, HEADERS)
        # It comes back from the provider's page, which a strict cookie would not.
        answer.set_cookie(STATE, state, 600, httponly=True, samesite="lax", secure=self._secure, path="/oidc")
        return answer

    async def _oidc_callback(self, request: Request) -> Response:
        if self._oidc is None:
            return Response("this dashboard has no provider; use a token", 404, HEADERS)
        asked = request.query_params
        try:
            brought = request.cookies.get(STATE, "")
            who = await self._oidc.end(asked.get("code", ""), asked.get("state", ""), brought)
        except UnerringError as error:
            return self._form(str(error), 403)
        # Not a redirect: the way here began on another site, and the session's cookie would stay behind.
        entered = HTMLResponse(ENTERED, headers=HEADERS)
        answer = await self._enter(request, entered, who, "the dashboard, by its provider")
        answer.delete_cookie(STATE, path="/oidc", httponly=True, samesite="lax", secure=self._secure)
        return answer


class LetIn:
    """ASGI middleware: before anything is answered, whether this one may look."""

    def __init__(self, app: ASGIApp, entrance: Entrance) -> None:
        self._app = app
        self._entrance = entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kept_out = None
        if scope["type"] == "http":
            request = Request(scope)
            scope[HOLDER] = holder_of(request, self._entrance.who(request))
            kept_out = await self._entrance.keeps_out(request)
        await (kept_out or self._app)(scope, receive, send)


def token_of(request: Request) -> str:
    """What a program shows; a text that ends where its token would begin shows none."""
    return request.headers.get("authorization", "").removeprefix("Bearer").strip()


def peer_of(request: Request) -> str:
    """The address that asks."""
    return request.client.host if request.client is not None else "?"


def holder_of(request: Request, who: Who | None) -> str:
    """Whose connection it is: an identity's, or that of all at one address who showed none."""
    return f"at {peer_of(request)}" if who is None else str(who)


def _too_many_wrong() -> Response:
    return Refused("too many wrong tokens are shown here now; try again later", 429).response
