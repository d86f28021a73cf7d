"""The filter in front of a service, as ASGI middleware: a request with an `Idempotency-Key` (the interaction id) has
its effect once, and every repetition gets the recorded answer.

| request | answer |
|---|---|
| a new IID | the application's; recorded in the same transaction as the application's effects |
| an IID that was done or refused | the recorded answer again |
| an IID that comes with another request | 422, nothing happens |
| a new IID with `Unerring-Settle` | 409, `Unerring-Answer: fenced`; a tombstone, and the application is not asked |
| DELETE of an IID that was done | the application undoes it (it sees the DELETE); recorded as cancelled |
| DELETE of an IID that has not come yet | a tombstone: the late original will be refused |
| a header that cannot be read | 400, nothing happens |
| of an interaction of ours, or to the gate, without proof of the secret | 401, nothing happens |
| while the filter's database fails | 503: the outcome is unknown, and the same IID will be tried again |
| a cancelled IID, or a write of a lower view than was seen for the instance | 409, `Unerring-Answer: fenced` |
| with `limits`, what the application would be called for while it is not its turn | 429, `Unerring-Answer: wait` |
| `Unerring-Flow: pause`, `resume` or `show` | closes, opens or shows the gate (with `limits`) |

The application finds the interaction in `scope["unerring"]`: its id, and the connection whose transaction it should
use. An answer of 4xx is a refusal and is recorded (410: for good), whatever the application wrote is taken back; 5xx or
an exception records nothing: the outcome is unknown and the same IID will be tried again.

What was done and undone, in order, stands in the table `unerring_journal`, committed with the effects themselves: an
audit compares it with what the processes decided.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import msgspec

from unerring.model import ConfigError, Right, read_who
from unerring.processes import WAIT_US_MIN, Limits
from unerring.runtime.guard import Guard
from unerring.runtime.reports import Reports
from unerring.runtime.services.gate import Gate, Permit
from unerring.runtime.services.headers import BadHeader, Headers, read
from unerring.runtime.services.proof import AGE_S_MAX, AT, CALLER, FLOW, Callers, Secrets
from unerring.runtime.services.store import Line, Recorded, Store, Transaction

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

Answered = tuple[int, str, bytes]
"""An HTTP status, the answer's name, and its body."""

GONE: Final = 410
_FOREIGN: Final = "foreign:"
_UNKNOWN_CALLER: Final = (
    "this filter does not know its caller: both need the same secret file (IdempotencyFilter(secret=FILE), and "
    "UNERRING_SECRET or HttpService(secret=FILE) where the request comes from); see docs/security.md"
)


class Interaction(msgspec.Struct, frozen=True):
    """The interaction of the present request, for the application."""

    iid: str
    instance: str
    view: int
    connection: Any
    """The database connection of the transaction that records the interaction: effects written on it happen once."""
    original: bytes = b""
    """For a DELETE: the body of the request that is to be undone, and the answer to it."""
    answered: bytes = b""
    group: int = 0
    basis: tuple[int, ...] = ()
    settle: bool = False
    """Only what was recorded is wanted."""


class _Response:
    """The application's answer."""

    def __init__(self) -> None:
        self.status = 500
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""

    async def take(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")


class IdempotencyFilter:
    """ASGI middleware before a service: `IdempotencyFilter(app, SqliteStore("shop.db"))`.

    A request with an interaction id (`Idempotency-Key`) has its effect once: a repeated one is answered with the
    recorded reply, `DELETE` cancels by id and leaves a tombstone for what comes late, and lower views are fenced.
    Effects that the application writes on `scope["unerring"].connection` commit together with the record. With
    `limits` the application is called for no more at once, and no more often, than these say, whoever asks.
    """

    def __init__(
        self,
        app: App,
        store: Store,
        request_bytes_max: int = 1 << 20,
        limits: Limits | None = None,
        secret: Secrets = "",
        policy: str = "",
        name: str = "",
    ) -> None:
        """`secret`: whose knowledge callers prove: a file, or one for each caller by its name (ROLE/NAME); empty: that
        of this user's processes; None: everybody is believed. `policy`: which of the callers may call the service
        `name`; it is asked where each has a secret of its own."""
        self._app = app
        self._store = store
        self._most = request_bytes_max
        self._callers = Callers(secret)
        self._name = name
        self.reports = Reports()
        self._guard = Guard(policy, self.reports) if self._callers.named else None
        self._gate = Gate(store, limits) if limits is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.lower(): value for name, value in scope.get("headers", ())}
        if scope["type"] == "http" and headers.get(b"unerring-flow"):
            await self._steer(headers, receive, send)
            return
        if scope["type"] != "http" or not headers.get(b"idempotency-key"):
            await self._app(scope, receive, send)
            return
        try:
            known = read(headers)
        except BadHeader as bad:
            await _answer(send, 400, "", str(bad))
            return
        try:
            body = await self._read(receive)
        except ConnectionResetError:
            return  # nobody waits for an answer, and what was asked is not known to the end
        if body is None:
            await _answer(send, 413, "final", f"the request has more than {self._most} bytes")
            return
        ours = b"unerring-instance" in headers
        if ours and not self._may_call(scope["method"], scope["path"], headers, body):
            await _answer(send, 401, "unknown", _UNKNOWN_CALLER)
            return
        if not ours and self._callers.asked:
            known = _apart(known)
        of = (known.iid, known.instance, known.view, None)
        interaction = Interaction(*of, group=known.group, basis=known.basis, settle=known.settle)
        try:
            answer = await self._in_turn(scope, known, interaction, body)
        except _Wait as wait:
            answer = (429, "wait", msgspec.json.encode({"why": "it is not its turn", "wait_us": wait.us}))
        except _Unknown as unknown:
            answer = (unknown.status, "unknown", unknown.body)
        except Exception as error:  # of the store: full, locked, gone, or lost while it committed
            why = f"the filter's database failed, so that the outcome is unknown: {error}"
            answer = (503, "unknown", msgspec.json.encode({"why": why}))
        await _answer(send, answer[0], answer[1], answer[2])

    async def _in_turn(self, scope: Scope, known: Headers, interaction: Interaction, body: bytes) -> Answered:
        """With a permit where the application will be called."""
        gate = self._gate
        if gate is None:
            return await self._carry_out(scope, interaction, body, None)
        await gate.open()
        entered = await gate.enter(known, scope["method"] == "DELETE")
        if isinstance(entered, int):
            raise _Wait(entered)
        failed = True
        try:
            answer = await self._carry_out(scope, interaction, body, entered)
            failed = False
        except Exception:
            if entered is not None:
                await gate.note_failure(entered)
            raise
        finally:
            if entered is not None:
                gate.leave(entered, failed)
        return answer

    async def _carry_out(self, scope: Scope, interaction: Interaction, body: bytes, permit: Permit | None) -> Answered:
        async with self._store.transaction(interaction.iid) as transaction:
            if scope["method"] == "DELETE":
                return await self._cancel(scope, transaction, interaction, permit)
            return await self._do(scope, transaction, interaction, body, permit)

    def _may_call(self, method: str, path: str, headers: dict[bytes, bytes], body: bytes) -> bool:
        """Whether whoever asks has proved that it may."""
        if not self._callers.asked:
            return True
        told = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        if not self._callers.proved(method, path, told, body):
            self.reports.count("filter.unproved")
            return False
        if told.get(FLOW) and abs(time.time() - _seconds(told.get(AT, ""))) > AGE_S_MAX:
            self.reports.count("filter.unproved")
            return False
        if self._guard is None:
            return True
        self._guard.reload()
        try:
            who = read_who(told.get(CALLER, ""))
        except ConfigError:
            return False
        return self._guard.refusal((who,), Right.CALL, self._name) is None

    async def _steer(self, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        """A command of an operator to the gate."""
        gate, what = self._gate, headers[b"unerring-flow"].decode("latin-1")
        if gate is None:
            await _answer(send, 404, "", "this service has no limits; give its filter some: limits=Limits(...)")
            return
        try:
            body = await self._read(receive)
            if not self._may_call("POST", "/", headers, body or b""):
                await _answer(send, 401, "", _UNKNOWN_CALLER)
                return
            await gate.open()
            if what == "pause":
                await gate.pause((body or b"").decode("utf-8", "replace")[:200])
            elif what == "resume":
                await gate.resume()
            elif what != "show":
                await _answer(send, 400, "", f"the gate cannot {what[:40]!r}; it can pause, resume and show")
                return
        except ConnectionResetError:
            return
        except Exception as error:
            await _answer(send, 503, "unknown", f"the filter's database failed: {error}")
            return
        await _answer(send, 200, "done", msgspec.json.encode(gate.look()))

    async def _read(self, receive: Receive) -> bytes | None:
        body: bytes = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError("the client disconnected before it had sent its request")
            body += message.get("body", b"")
            if len(body) > self._most:
                return None
            if not message.get("more_body"):
                return body

    async def _do(
        self, scope: Scope, transaction: Transaction, interaction: Interaction, body: bytes, permit: Permit | None
    ) -> Answered:
        digest = hashlib.blake2b(scope["path"].encode() + b"\0" + body, digest_size=16).hexdigest()
        known = await transaction.find(interaction.iid)
        if known is not None:
            if known.state == "cancelled":
                return 409, "fenced", b'{"why": "this interaction was cancelled"}'
            if known.digest != digest:
                return 422, "unknown", b'{"why": "this Idempotency-Key came with another request before"}'
            return known.status, known.state, known.reply
        if interaction.settle:
            await transaction.record(interaction.iid, Recorded("cancelled", "", 409, b"", b""))
            return 409, "fenced", b'{"why": "this interaction never came, and is cancelled"}'
        if 0 <= interaction.view < await transaction.fence(interaction.instance):
            return 409, "fenced", b'{"why": "a higher view of this instance is at work"}'
        await transaction.mark()
        response = await self._ask(scope, interaction, transaction, body, scope["method"], permit)
        if response.status >= 400:
            await transaction.take_back()
        await self._note("do", transaction, permit)
        state = "done" if response.status < 400 else "final" if response.status == GONE else "refused"
        await transaction.record(interaction.iid, Recorded(state, digest, response.status, body, response.body))
        if state == "done":
            await transaction.write_down(_line("do", interaction, body, response.body))
            if interaction.view > 0:
                await transaction.raise_fence(interaction.instance, interaction.view)
        return response.status, state, response.body

    async def _cancel(
        self, scope: Scope, transaction: Transaction, interaction: Interaction, permit: Permit | None
    ) -> Answered:
        if interaction.view > 0:
            await transaction.raise_fence(interaction.instance, interaction.view)
        known = await transaction.find(interaction.iid)
        if known is not None and known.state == "done":
            undoing = msgspec.structs.replace(interaction, original=known.request, answered=known.reply)
            response = await self._ask(scope, undoing, transaction, known.request, "DELETE", permit)
            if response.status >= 400:
                raise _Unknown(503, b'{"why": "the service did not undo it"}')
            await self._note("undo", transaction, permit)
            await transaction.write_down(_line("undo", interaction, known.request, b"null"))
        if known is None or known.state != "cancelled":
            await transaction.record(interaction.iid, Recorded("cancelled", "", 409, b"", b""))
        return 200, "done", b"null"

    async def _note(self, what: str, transaction: Transaction, permit: Permit | None) -> None:
        if self._gate is not None and permit is not None:
            await transaction.note(self._gate.line(what, permit))

    async def _ask(
        self,
        scope: Scope,
        interaction: Interaction,
        transaction: Transaction,
        body: bytes,
        method: str,
        permit: Permit | None,
    ) -> _Response:
        """The application's answer, inside the transaction. 5xx and exceptions leave nothing behind."""
        if self._gate is not None and permit is None:  # what it was asked for came to its end meanwhile
            raise _Wait(WAIT_US_MIN)
        asked = dict(scope)
        asked["method"] = method
        asked["unerring"] = msgspec.structs.replace(interaction, connection=transaction.connection)
        given = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> MutableMapping[str, Any]:
            return given.pop() if given else {"type": "http.disconnect"}

        response = _Response()
        try:
            await self._app(asked, receive, response.take)
        except Exception as error:
            raise _Unknown(500, msgspec.json.encode({"why": f"the service raised {error!r}"})) from error
        if response.status >= 500:
            raise _Unknown(response.status, response.body)
        return response


def _apart(known: Headers) -> Headers:
    """What programs of others key as they like lies apart from what processes do: it can touch nothing of theirs."""
    return msgspec.structs.replace(known, iid=f"{_FOREIGN}{known.iid}", instance=f"{_FOREIGN}{known.instance}", view=-1)


def _seconds(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0.0


class _Wait(Exception):
    """Leaves the transaction, so that it is rolled back: it is not its turn."""

    def __init__(self, us: int) -> None:
        super().__init__(us)
        self.us = us


def _line(what: str, interaction: Interaction, request: bytes, reply: bytes) -> Line:
    basis = ",".join(map(str, interaction.basis))
    return Line(what, interaction.iid, interaction.group, basis, request, reply)


class _Unknown(Exception):
    """Leaves the transaction, so that it is rolled back."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


async def _answer(send: Send, status: int, answer: str, body: bytes | str) -> None:
    data = body if isinstance(body, bytes) else msgspec.json.encode({"why": body})
    headers = [(b"content-type", b"application/json"), *([(b"unerring-answer", answer.encode())] if answer else [])]
    if answer == "wait":
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
