"""The dashboard as an ASGI application: static files, the status document, server-sent events, a few questions."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from unerring.app import (
    PAGE,
    READS,
    WAIT_S_MAX,
    Nodes,
    RunStatus,
    Why,
    cause_of,
    event_document,
    latest,
    prometheus,
)
from unerring.dashboard import commands
from unerring.dashboard.access import CHANGES_PER_S_MAX, OWNER, Access
from unerring.dashboard.answers import HEADERS, Refused, body_of, in_json
from unerring.dashboard.asking import Questions
from unerring.dashboard.connections import HOLDER
from unerring.dashboard.entrance import Entrance, LetIn, peer_of, token_of
from unerring.dashboard.marks import marks
from unerring.dashboard.oidc import Oidc
from unerring.dashboard.statics import STATIC, static
from unerring.dashboard.watch import Watch
from unerring.model import TIME_MAX, TIME_MIN, UNDECODABLE, CallerError, Right, Stamp, Who
from unerring.processes import Process
from unerring.runtime import COMMAND_BYTES_MAX, REFUSED, timeline

PAGE_MAX: Final = 500
LOOKED_AT_MAX: Final = 20_000
"""Situations that one search looks at, backwards; the answer says where it stopped."""
ABOUT_CHARS_MAX: Final = 1_000
"""Of a command, in the timeline."""
STREAMS_PER_HOLDER_MAX: Final = 30
"""Of one identity, and of all who showed none at one address: so many watch at once."""
HOSTS: Final = ["127.0.0.1", "localhost", "[::1]"]


class Dashboard:
    """`app` serves one run's folder. `access` says who may look and who may change something; a token alone is that of
    somebody who may do all, and everybody may look. `hosts`: further names of it; `secure`: over TLS."""

    def __init__(
        self,
        status: RunStatus,
        access: Access | str,
        hosts: Sequence[str] = (),
        secure: bool = False,
        oidc: Oidc | None = None,
    ) -> None:
        self.status = status
        self.watch = Watch(status)
        self._access = Access({access: OWNER}) if isinstance(access, str) else access
        self._entrance = Entrance(status.place, self._access, oidc, secure)
        self._why: Why | None = None
        self._watching: Counter[str] = Counter()
        questions = Questions(status)
        routes = [
            Route("/", self._index),
            Route("/audit", self._audit),
            Route("/api/status", in_json(self._status)),
            Route("/api/stream", self._stream),
            Route("/metrics", self._metrics),
            Route("/api/situations", in_json(self._situations)),
            Route("/api/why", in_json(self._ask_why)),
            Route("/api/why-not", in_json(questions.why_not)),
            Route("/api/at", in_json(questions.at)),
            Route("/api/what-if", in_json(questions.what_if)),
            Route("/api/rules", in_json(questions.rules)),
            Route("/api/instances", in_json(self._instances)),
            Route("/api/instances/{instance:path}", in_json(self._instance)),
            Route("/api/processes/{do}", in_json(self._process_command), methods=["POST"]),
            Route("/api/graphs/{process}", in_json(self._graph)),
            Route("/api/drawings/{process}", self._drawing),
            Route("/api/timeline", in_json(self._timeline)),
            Route("/api/happenings", in_json(self._timeline)),  # its old name, for one release
            Route("/api/commands/{verb}", in_json(self._command), methods=["POST"]),
            Route("/static/{name:path}", static),
        ]
        known = Middleware(TrustedHostMiddleware, allowed_hosts=[*HOSTS, *hosts], www_redirect=False)
        seen = Middleware(LetIn, entrance=self._entrance)
        routes += self._entrance.routes
        self.app = Starlette(routes=routes, middleware=[known, seen], lifespan=self._lifespan)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(self.watch.run())
        self._access.watch(self.status.place.address)
        try:
            yield
        finally:
            self._access.close()
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
        refused = self._access.reports[REFUSED]
        text = prometheus(await self.watch.look(), [("unerring_dashboard_refused_total", {}, refused)])
        return Response(text, headers=HEADERS, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _stream(self, request: Request) -> Response:
        holder = request.scope[HOLDER]
        if self._watching[holder] >= STREAMS_PER_HOLDER_MAX:
            return Refused(f"{STREAMS_PER_HOLDER_MAX} pages of {holder} watch already; close one", 429).response
        return _Watching(self._watching, holder, self._changes_seen(request))

    async def _changes_seen(self, request: Request) -> AsyncGenerator[bytes]:
        """For as long as whoever asks may look."""
        async with contextlib.aclosing(self.watch.changes()) as changes:
            async for change in changes:
                if not self._entrance.sees(request):
                    return
                yield change

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
            self.status.instances.refresh()
            return self.status.instances.page(first, count, find, status, process)

        return await self.watch.ask(search)

    async def _instance(self, request: Request) -> Any:
        instance = request.path_params["instance"]
        shown = await asyncio.to_thread(self.status.instances.show, instance)
        process = self._process(shown["now"]["process"], shown["now"].get("version", ""))
        drawn = process is not None and process.drawing is not None
        marked = {"marks": marks(process, shown)} if process is not None and drawn else {}
        return {
            **shown,
            **marked,
            "timeline": self.status.timeline.about(instance),
            "attributes": shown["now"].get("attributes"),
            "situation": cause_of(self.status.app, instance) if self.status.app is not None else None,
        }

    def _process(self, name: str, version: str) -> Process | None:
        """A version of a process, or the one for new instances."""
        known = [] if self.status.app is None else [one for one in self.status.app.versions if one.name == name]
        return next((one for one in known if one.graph.version == version), known[-1] if known else None)

    async def _graph(self, request: Request) -> Any:
        name = request.path_params["process"]
        process = self._process(name, request.query_params.get("version", ""))
        if process is None:
            raise CallerError(f"the graph of process {name!r} is not known here, because its app cannot be loaded")
        drawn = process.drawing is not None and b"BPMNDiagram" in process.drawing.xml
        graph = {"version": process.graph.version, "vertices": process.graph.vertices, "edges": process.graph.edges}
        return {**graph, "drawn": drawn}

    async def _drawing(self, request: Request) -> Response:
        """The BPMN model that a process came from, as its author laid it out."""
        process = self._process(request.path_params["process"], request.query_params.get("version", ""))
        if process is None or process.drawing is None:
            return Response("this process was not drawn", 404, HEADERS)
        return Response(process.drawing.xml, headers=HEADERS, media_type="application/xml")

    def _changes(self, request: Request, right: Right, thing: str) -> Who | Refused:
        """Who changes something; who may not gets a sentence."""
        given = token_of(request)
        who = self._entrance.who(request)
        try:
            commands.check_origin(request.headers.get("origin", ""), request.headers.get("host", ""))
            if who is not None and not given and "origin" not in request.headers:
                raise CallerError("a browser says which page asks (Origin); a program sends its token")
            known = commands.check(who, given, self._access.may(who, right, thing), f"{right} {thing}")
        except CallerError as error:
            if who is not None or not given:  # a wrong token was noted at the door
                asked = "" if who is not None else f"{right} {thing} without a token: "
                self._access.refused(f"{asked}{error}", peer_of(request))
            return Refused(str(error), 403 if given or who is not None or "origin" in request.headers else 401)
        if self._access.changes.exceeds(known, time.monotonic()):
            self._access.refused(f"{known} asks for too many changes", peer_of(request))
            return Refused(f"{known} asks for more than {CHANGES_PER_S_MAX:g} changes a second; ask again later", 429)
        return known

    async def _process_command(self, request: Request) -> Any:
        """What `unerring.Client` asks for over HTTP."""
        do = request.path_params["do"]
        right = Right.START if do == "start" else Right.CANCEL
        if do not in READS and self._entrance.who(request) is None:
            return self._changes(request, right, "*")
        try:
            fields = msgspec.json.decode(await body_of(request, COMMAND_BYTES_MAX) or b"{}", type=dict[str, Any])
        except UNDECODABLE as error:
            raise CallerError(f"invalid request: {error}; send a JSON object") from None
        who = None if do in READS else self._changes(request, right, str(fields.get("process") or "*"))
        if isinstance(who, Refused):
            return who
        if do == "wait":
            within_s = fields.get("within_s", 0.0)
            fields["within_s"] = min(max(within_s, 0.0), WAIT_S_MAX) if isinstance(within_s, int | float) else 0.0
        fields.pop("do", None)
        if who is not None:
            dry = "a dry run of" if fields.get("dry_run") is True else ""
            named = (str(fields.get(name, "")) for name in ("what", "instance", "where"))
            about = " ".join(filter(None, (dry, do, *named)))[:ABOUT_CHARS_MAX]
            await asyncio.to_thread(self._entrance.audited, who, request, timeline.What.COMMANDED, about)
        nodes = Nodes(self.status.actions_folder)
        return {"value": await asyncio.to_thread(partial(nodes.call, do, **fields))}

    async def _command(self, request: Request) -> Any:
        verb = request.path_params["verb"]
        by = self._changes(request, Right.COMMAND, verb)
        if isinstance(by, Refused):
            return by
        body = await body_of(request, COMMAND_BYTES_MAX)
        try:
            who = msgspec.json.decode(body, type=dict[str, str])["who"]
        except (*UNDECODABLE, KeyError):
            raise CallerError('invalid request: send {"who": "NAME"}') from None
        known_by = f", by {by} from {peer_of(request)}"
        answer = await self.watch.ask(partial(commands.command, self.status, verb, who, known_by))
        await self.watch.look()
        return {"said": answer}


class _Watching(StreamingResponse):
    """A stream of changes, counted for its holder while it is open."""

    def __init__(self, open_now: Counter[str], holder: str, changes: AsyncIterator[bytes]) -> None:
        super().__init__(changes, media_type="text/event-stream", headers=HEADERS)
        self._open_now = open_now
        self._holder = holder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._open_now[self._holder] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._open_now[self._holder] -= 1
            if not self._open_now[self._holder]:
                del self._open_now[self._holder]


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
