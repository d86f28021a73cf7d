"""How a process's requests reach services: local async functions, or HTTP with the interaction id as `Idempotency-Key`.

A client only carries: it makes one attempt and says what came of it. Repetition, patience and what an answer means are
the machine's. A 4xx says that this attempt did nothing, and no connection that it did not get there; whatever else is
not a clear answer (a timeout, a broken connection, 5xx, an answer that cannot be read) is `unknown`.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, Protocol

import httpx
import msgspec

from unerring.model import SECOND_US, UNDECODABLE, Address, FrameError, ProcessError, Refused, UnerringError, WorldError
from unerring.processes import Answer, Limiter, Limits, Reply, Request
from unerring.runtime.executor import Carrier
from unerring.runtime.large import LargeValues, Vanished
from unerring.runtime.reports import Reports
from unerring.runtime.secret import shared_secret
from unerring.runtime.services.asked import Asked
from unerring.runtime.services.headers import written
from unerring.runtime.services.proof import AT, CALLER, FLOW, PROOF, proof
from unerring.runtime.timers import monotonic_us
from unerring.runtime.transports.config import without_secrets
from unerring.tracing import tracer

GONE: Final = 410
"""The status of a refusal for good."""
NO_REFUSALS: Final = (408, 425, 429)
"""These 4xx say "not now": a timeout, too early, too many requests. What became of the request is unknown."""
NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
"""No connection came about, so that no byte of the request got there."""


class Service(Protocol):
    async def ask(self, request: Request) -> Reply: ...

    async def close(self) -> None: ...


def answer(request: Request, what: str, value: Any = None, recorded: bool = True) -> Reply:
    return Reply(request.instance, request.iid, request.mode, what, value, recorded)


class LocalService:
    """Async functions of this node's own process, by operation, or by version and operation where several versions run.
    A parameter called `interaction` gets the IID."""

    def __init__(self, functions: Mapping[str, Callable[..., Awaitable[Any]]]) -> None:
        self._functions = dict(functions)
        self._wants = {name: "interaction" in inspect.signature(f).parameters for name, f in self._functions.items()}

    async def ask(self, request: Request) -> Reply:
        name = f"{request.version}:{request.operation}"
        name = name if name in self._functions else request.operation
        function = self._functions.get(name)
        if function is None:
            return answer(request, Answer.UNREACHED, f"there is no function {request.operation!r} here")
        try:
            given = dict(request.payload)
            if self._wants[name]:
                given["interaction"] = request.iid
            value = msgspec.to_builtins(await function(**given))
        except Refused as refusal:
            return answer(request, Answer.FINAL if refusal.for_good else Answer.REFUSED, str(refusal))
        except Exception as error:
            sentence = f"{request.operation} raised {error!r}; what fails without an effect should raise Refused"
            return answer(request, Answer.UNKNOWN, sentence)
        return answer(request, Answer.DONE, value)

    async def close(self) -> None:
        pass


class HttpService:
    """A service over HTTP: POST {url}/{operation} with what the action reads as a JSON object; DELETE to cancel."""

    def __init__(
        self,
        url: str,
        timeout_s: float = 5.0,
        reply_bytes_max: int = 1 << 20,
        connections_max: int = 64,
        transport: httpx.AsyncBaseTransport | None = None,
        secret: str | Path | None = "",
        caller: str = "",
    ) -> None:
        """`secret`: the file whose knowledge is proved to the service's filter; empty: that of this user's processes;
        None: nothing is proved. `caller`: the name under which a filter knows that secret."""
        self._secret_file = secret
        self._caller = caller
        limits = httpx.Limits(max_connections=connections_max, max_keepalive_connections=connections_max)
        self._client = httpx.AsyncClient(base_url=url, timeout=timeout_s, limits=limits, transport=transport)
        self._most = reply_bytes_max
        self._traces = tracer()
        self.address = without_secrets(url)
        self.at_once_max = connections_max
        """Requests that a node makes at once; the others wait for their turn, and that is no attempt."""

    async def ask(self, request: Request) -> Reply:
        if self._traces is None:
            return await self._ask(request, {})
        began_ns = time.time_ns()
        attempt = str(began_ns)
        reply = await self._ask(request, self._traces.asks(request.instance, request.iid, attempt))
        about = {
            "unerring.service": request.service,
            "unerring.operation": request.operation,
            "unerring.mode": request.mode,
            "unerring.answer": reply.answer,
            "server.address": str(self._client.base_url),
        }
        failed = str(reply.value) if reply.answer in (Answer.UNKNOWN, Answer.UNREACHED) else ""
        self._traces.asked(request.instance, request.iid, attempt, about, began_ns, failed)
        return reply

    async def _ask(self, request: Request, more: dict[str, str]) -> Reply:
        method = "DELETE" if request.mode == "cancel" else "POST"
        try:
            content = b"" if method == "DELETE" else msgspec.json.encode(request.payload)
            headers = self._proved(method, f"/{request.operation}", written(request), content) | more
            asked = self._client.build_request(method, f"/{request.operation}", content=content, headers=headers)
        except (httpx.InvalidURL, ValueError, TypeError) as error:
            return answer(request, Answer.UNREACHED, f"it cannot be sent: {error}")
        try:
            response = await self._client.send(asked, stream=True)
            async with aclosing(response):
                body = b""
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > self._most:
                        return answer(request, Answer.UNKNOWN, f"it answered more than {self._most} bytes")
        except NOT_SENT as error:
            return answer(request, Answer.UNREACHED, f"{type(error).__name__}: {error}")
        except (httpx.HTTPError, OSError) as error:
            return answer(request, Answer.UNKNOWN, f"{type(error).__name__}: {error}")
        return _read(request, response, body)

    def _proved(self, method: str, path: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        """Headers that show who asks."""
        if self._secret_file is None:
            return headers
        named = {**headers, CALLER: self._caller} if self._caller else headers
        return {**named, PROOF: proof(shared_secret(self._secret_file), method, path, named, body)}

    async def steer(self, what: str, why: str = "") -> dict[str, Any]:
        """To the gate of the service's filter: pause, resume or show."""
        headers = self._proved("POST", "/", {FLOW: what, AT: str(int(time.time()))}, why.encode())
        try:
            response = await self._client.post("/", content=why.encode(), headers=headers)
        except httpx.HTTPError as error:
            raise WorldError(f"{self._client.base_url} does not answer ({error}); start the service again") from None
        if response.status_code != 200 or response.headers.get("unerring-answer") != Answer.DONE:
            raise ProcessError(f"{self._client.base_url} has no gate: {response.text[:200]}")
        look: dict[str, Any] = msgspec.json.decode(response.content)
        return look

    async def close(self) -> None:
        await self._client.aclose()


def _read(request: Request, response: httpx.Response, body: bytes) -> Reply:
    marked = response.headers.get("unerring-answer", "")
    what = marked or _meaning(response.status_code)
    if what == Answer.WAIT:
        return answer(request, Answer.WAIT, _waits_us(body))
    if what not in (Answer.DONE, Answer.REFUSED, Answer.FINAL, Answer.FENCED):
        return answer(request, Answer.UNKNOWN, body[:200].decode("utf-8", "replace"))
    try:
        value = msgspec.json.decode(body) if body else None
    except UNDECODABLE:
        if what != Answer.DONE:
            value = body[:200].decode("utf-8", "replace")
        else:  # it was done, and its reply cannot be used: the machine decides, as for a value of the wrong type
            value = {"garbage": body[:200].decode("utf-8", "replace")}
    return answer(request, what, value, recorded=bool(marked) or what == Answer.DONE)


def _waits_us(body: bytes) -> int:
    try:
        return int(msgspec.json.decode(body)["wait_us"])
    except (*UNDECODABLE, LookupError, TypeError, ValueError):
        return SECOND_US


def _meaning(status: int) -> str:
    """The meaning of an HTTP status where no filter gives it."""
    if 200 <= status < 300:
        return Answer.DONE
    if 400 <= status < 500 and status not in NO_REFUSALS:
        return Answer.FINAL if status == GONE else Answer.REFUSED
    return Answer.UNKNOWN


class ServiceCarrier:
    """A node's carrier: `service:NAME` goes to a service, this node's own address back to it, the rest over links."""

    def __init__(
        self,
        me: Address,
        services: Mapping[str, Service],
        links: Carrier | None,
        reports: Reports,
        asking_max: int = 1_000,
        large: LargeValues | None = None,
    ) -> None:
        self._large = large
        self._me = me
        self._services = services
        self._links = links
        self._reports = reports
        self._turns = {
            name: Limiter(Limits(at_once=min(getattr(service, "at_once_max", asking_max), asking_max)))
            for name, service in services.items()
        }
        self.asked = {name: Asked(name, getattr(service, "address", "")) for name, service in services.items()}
        self._asked = 0
        self._asking: set[asyncio.Task[None]] = set()
        self.offer: Callable[[Address, Any], bool] = lambda sender, message: False
        """The driver's inbox, once there is a driver."""

    def send(self, to: Address, message: Any) -> None:
        if to.startswith("service:"):
            self._ask(to, message)
        elif to == self._me:
            asyncio.get_running_loop().call_soon(self.offer, self._me, message)
        elif self._links is not None:
            try:
                self._links.send(to, message)
            except FrameError as error:  # one instance that is too large must not end the node with all others
                self._reports.note("process.too_large", f"nothing was sent to {to}: {error}")

    def broadcast(self, message: Any) -> None:
        if self._links is not None:
            self._links.broadcast(message)

    def _ask(self, to: Address, request: Request) -> None:
        service = self._services.get(request.service)
        if service is None:
            why = f"this node has no service {request.service!r}; give it one"
            self._reports.note("process.no_service", why)
            asyncio.get_running_loop().call_soon(self.offer, to, answer(request, Answer.UNREACHED, why))
            return
        self._asked += 1
        id, turns = str(self._asked), self._turns[request.service]
        wait_us = turns.ask(id, f"{request.mode} {request.iid}", "", 0, monotonic_us())
        if wait_us:
            self._reports.count("process.not_asked")
            asyncio.get_running_loop().call_soon(self.offer, to, answer(request, Answer.WAIT, wait_us))
        else:
            task = asyncio.get_running_loop().create_task(self._carry(service, id, to, request))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _carry(self, service: Service, id: str, to: Address, request: Request) -> None:
        began_s = time.time()
        try:
            reply = await self._with_values(service, request)
        finally:
            self._turns[request.service].end(id, False, monotonic_us())
        self.asked[request.service].take(request, reply, began_s)
        if reply.answer in (Answer.UNKNOWN, Answer.UNREACHED) and reply.value:
            self._reports.note(f"process.{reply.answer}_outcome", f"{request.iid}: {reply.value}")
        self.offer(to, reply)

    async def _with_values(self, service: Service, request: Request) -> Reply:
        """Large values are read before a request is sent, and stored before anybody hears of the reply."""
        large = self._large
        if large is None or not large.concerns(request):
            return await service.ask(request)
        try:
            reply = await service.ask(await asyncio.to_thread(large.asked, request))
            return await asyncio.to_thread(large.answered, request, reply)
        except Vanished as error:  # this attempt did nothing; an earlier one may have
            return answer(request, Answer.FINAL, str(error), recorded=False)
        except (UnerringError, msgspec.MsgspecError, *UNDECODABLE) as error:
            return answer(request, Answer.UNKNOWN, f"a large value cannot be stored or read: {error}")

    async def close(self) -> None:
        for task in list(self._asking):
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        for service in self._services.values():
            await service.close()
