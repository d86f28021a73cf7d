"""The dashboard as an ASGI application: static files, the status document, server-sent events, a few questions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from unerring.app import PAGE, READS, WAIT_S_MAX, Nodes, RunStatus, Why, event_document, latest, prometheus
from unerring.dashboard import commands
from unerring.dashboard.watch import Watch
from unerring.model import TIME_MAX, TIME_MIN, CallerError, Stamp, UnerringError

STATIC: Final = Path(__file__).parent / "static"
PAGE_MAX: Final = 500
LOOKED_AT_MAX: Final = 20_000
"""Situations that one search looks at, backwards; the answer says where it stopped."""
HOSTS: Final = ["127.0.0.1", "localhost", "[::1]"]
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

Answer = Callable[[Request], Awaitable[Any]]


class Dashboard:
    """`app` serves one run's folder. Whoever has `token` may kill and restart its processes."""

    def __init__(self, status: RunStatus, token: str) -> None:
        self.status = status
        self.watch = Watch(status)
        self._token = token
        self._why: Why | None = None
        routes = [
            Route("/", self._index),
            Route("/audit", self._audit),
            Route("/api/status", _json(self._status)),
            Route("/api/stream", self._stream),
            Route("/metrics", self._metrics),
            Route("/api/situations", _json(self._situations)),
            Route("/api/why", _json(self._ask_why)),
            Route("/api/instances", _json(self._instances)),
            Route("/api/instances/{instance:path}", _json(self._instance)),
            Route("/api/processes/{do}", _json(self._process_command), methods=["POST"]),
            Route("/api/graphs/{process}", _json(self._graph)),
            Route("/api/timeline", _json(self._timeline)),
            Route("/api/happenings", _json(self._timeline)),  # its old name, for one release
            Route("/api/commands/{verb}", _json(self._command), methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        hosts = Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False)
        self.app = Starlette(routes=routes, middleware=[hosts], lifespan=self._lifespan)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(self.watch.run())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _index(self, request: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers=HEADERS)

    async def _audit(self, request: Request) -> Response:
        kept = await asyncio.to_thread(self.status.place.store.read, PAGE)
        if kept is None:
            return Response("this run has not been audited yet; run `unerring audit`", 404)
        # A page of our own making with its style inside it, and nothing else.
        safe = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
        return Response(kept, headers={**HEADERS, "Content-Security-Policy": safe}, media_type="text/html")

    async def _metrics(self, request: Request) -> Response:
        text = prometheus(await self.watch.look())
        return Response(text, headers=HEADERS, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _stream(self, request: Request) -> Response:
        return StreamingResponse(self.watch.changes(), media_type="text/event-stream", headers=HEADERS)

    async def _status(self, request: Request) -> Any:
        return await self.watch.look()

    async def _timeline(self, request: Request) -> Any:
        if not self.watch.document:
            await self.watch.look()
        return {"count": self.status.timeline.count, "last": self.status.timeline.all}

    async def _situations(self, request: Request) -> Any:
        asked = request.query_params
        if not self.watch.document:
            await self.watch.look()
        known = self.status.streams.situation_streams
        wanted = [name for name in asked.get("streams", "").split(",") if name] or known
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise CallerError(f"there are no situations {unknown[0]!r}; choose one of {', '.join(known)}")
        before = (*_stamp(asked, TIME_MAX), asked.get("stream", ""))
        count = min(_number(asked, "count", 100), PAGE_MAX)
        chains = [self.status.streams.counted[name].chain for name in wanted]
        find = asked.get("find", "").casefold()
        if not find:
            return {
                "events": [event_document(event) for event in await asyncio.to_thread(latest, chains, before, count)]
            }
        looked_at = await asyncio.to_thread(latest, chains, before, LOOKED_AT_MAX)
        matching = [event for event in map(event_document, looked_at) if find in _text(event)]
        return {"events": matching[:count], "looked_at": len(looked_at)}

    async def _ask_why(self, request: Request) -> Any:
        asked = request.query_params
        if self.status.app is None:
            raise CallerError("; ".join(self.status.notes) or "this folder does not say which app ran in it")
        if self._why is None:
            self._why = Why(self.status.app, self.status.place)
        return await asyncio.to_thread(self._why, asked.get("stream", ""), _stamp(asked, 0))

    async def _instances(self, request: Request) -> Any:
        asked = request.query_params
        find, status, process = (asked.get(name, "") for name in ("find", "status", "process"))
        first = _number(asked, "first", 0)
        count = min(_number(asked, "count", 100), PAGE_MAX)

        def search() -> Any:
            self.status.instances.look()
            every, text = self.status.instances.list(), find.casefold()
            matching = [
                one
                for one in every
                if status in ("", one["status"])
                and process in ("", one["process"])
                and (not text or text in f"{one['instance']} {one.get('reason', '')}".casefold())
            ]
            return {"total": len(every), "matching": len(matching), "items": matching[first : first + count]}

        return await self.watch.ask(search)

    async def _instance(self, request: Request) -> Any:
        instance = request.path_params["instance"]
        shown = await asyncio.to_thread(self.status.instances.show, instance)
        return {**shown, "timeline": self.status.timeline.about(instance)}

    async def _graph(self, request: Request) -> Any:
        name = request.path_params["process"]
        version = request.query_params.get("version", "")
        known = [] if self.status.app is None else [one for one in self.status.app.versions if one.name == name]
        process = next((one for one in known if one.graph.version == version), known[-1] if known else None)
        if process is None:
            raise CallerError(f"the graph of process {name!r} is not known here, because its app cannot be loaded")
        return {"version": process.graph.version, "vertices": process.graph.vertices, "edges": process.graph.edges}

    def _refused(self, request: Request) -> Refused | None:
        """Who may not change anything gets a sentence."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        try:
            commands.check_origin(request.headers.get("origin", ""), request.headers.get("host", ""))
            commands.check(self._token, given)
        except CallerError as error:
            return Refused(str(error), 403 if given or "origin" in request.headers else 401)
        return None

    async def _process_command(self, request: Request) -> Any:
        """What `unerring.Client` asks for over HTTP."""
        do = request.path_params["do"]
        refused = None if do in READS else self._refused(request)
        if refused is not None:
            return refused
        try:
            fields = msgspec.json.decode(await request.body() or b"{}", type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise CallerError(f"invalid request: {error}; send a JSON object") from None
        if do == "wait":
            within_s = fields.get("within_s", 0.0)
            fields["within_s"] = min(max(within_s, 0.0), WAIT_S_MAX) if isinstance(within_s, int | float) else 0.0
        fields.pop("do", None)
        nodes = Nodes(self.status.actions_folder)
        return {"value": await asyncio.to_thread(partial(nodes.call, do, **fields))}

    async def _command(self, request: Request) -> Any:
        refused = self._refused(request)
        if refused is not None:
            return refused
        body = await request.body()
        try:
            who = msgspec.json.decode(body, type=dict[str, str])["who"]
        except (msgspec.DecodeError, KeyError):
            raise CallerError('invalid request: send {"who": "NAME"}') from None
        answer = await self.watch.ask(partial(commands.command, self.status, request.path_params["verb"], who))
        await self.watch.look()
        return {"said": answer}


class Refused(msgspec.Struct, frozen=True):
    """An answer with a sentence and a status of its own."""

    error: str
    status: int


def _json(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    """The result of `answer` as JSON; its errors as a sentence."""

    async def endpoint(request: Request) -> Response:
        status = 200
        try:
            body = await answer(request)
        except CallerError as error:
            body = Refused(str(error), 400)
        except (UnerringError, OSError) as error:
            body = Refused(str(error), 503)
        if isinstance(body, Refused):
            status, body = body.status, {"error": body.error}
        return Response(msgspec.json.encode(body), status, HEADERS, "application/json")

    return endpoint


def _number(asked: Any, name: str, default: int, least: int = 0) -> int:
    text = asked.get(name, "")
    try:
        number = int(text) if text else default
    except ValueError:
        raise CallerError(f"{name}={text[:40]!r} is not a whole number") from None
    if not least <= number <= TIME_MAX:
        raise CallerError(f"{name}={text[:40]!r} is out of range; it must be from {least} to {TIME_MAX}")
    return number


def _stamp(asked: Any, default_us: int) -> Stamp:
    return Stamp(_number(asked, "time_us", default_us, least=TIME_MIN), _number(asked, "ordinal", 0))


def _text(event: dict[str, Any]) -> str:
    values = [event["stream"], *(str(value) for value in event["payload"].values())]
    return " ".join(values).casefold()
