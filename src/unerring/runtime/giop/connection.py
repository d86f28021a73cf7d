"""IIOP on asyncio: a connection that gives whole messages, and a client that calls objects over one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from unerring.model import FrameError, HandshakeError, NetworkError, PeerError, ProcessConfig, check
from unerring.runtime.giop.assembly import Assembly
from unerring.runtime.giop.cdr import Decoder, Encoder
from unerring.runtime.giop.ior import Reference, read_reference
from unerring.runtime.giop.messages import (
    GiopMessage,
    Kind,
    Status,
    begin_request,
    begin_values,
    read_reply,
    write_message,
)
from unerring.runtime.sockets import dial, join_host

FORWARDS_MAX: Final = 4
"""How often one call may be sent elsewhere before it is given up."""
MIB: Final = 1024 * 1024


class GiopConfig(ProcessConfig, frozen=True):
    """The limits of one connection: how much it holds, and how long it waits."""

    message_bytes_max: int = 4 * MIB + 4096
    """A longer message is read past; only its beginning is kept."""
    outbox_bytes_max: int = 16 * MIB
    """Held for a peer that reads slowly; beyond it nothing is taken."""
    connect_us: int = 5_000_000
    call_us: int = 5_000_000
    """How long a call may stay without an answer."""

    def __post_init__(self) -> None:
        check(self, "message_bytes_max", 1024, 1 << 30)
        check(self, "outbox_bytes_max", 1024, 1 << 32)
        check(self, "connect_us", 1_000, 1 << 40)
        check(self, "call_us", 1_000, 1 << 40)


class RemoteException(PeerError):
    """The object answered with a CORBA exception."""

    def __init__(self, repository_id: str, where: str, operation: str) -> None:
        self.repository_id = repository_id
        super().__init__(f"{where} answered {operation} with the exception {repository_id}")

    @property
    def gone(self) -> bool:
        """The object is not there: not yet, or not any more."""
        return "OBJECT_NOT_EXIST" in self.repository_id or "TRANSIENT" in self.repository_id


class GiopConnection(asyncio.Protocol):
    """One connection. `on_message` is called on the event loop for each message; FrameError from it ends it."""

    def __init__(
        self,
        config: GiopConfig,
        on_message: Callable[[GiopMessage], None],
        on_lost: Callable[[Exception | None], None],
    ) -> None:
        self.on_message = on_message
        self._config = config
        self._on_lost = on_lost
        self._assembly = Assembly(config.message_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._failure: Exception | None = None
        self._gone = asyncio.Event()
        self._relief = asyncio.Event()
        self._relief.set()
        self._paused = False

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def local_host(self) -> str:
        """This side's address: where the peer can reach us."""
        name = self._transport.get_extra_info("sockname") if self._transport is not None else None
        return str(name[0]) if name else "127.0.0.1"

    def write(self, data: bytes) -> bool:
        """False: nobody is there, or the bounded outbox is full; nothing was taken."""
        if self._transport is None or self._transport.is_closing():
            return False
        waiting_bytes = self._transport.get_write_buffer_size()
        if waiting_bytes and waiting_bytes + len(data) > self._config.outbox_bytes_max:
            return False
        self._transport.write(data)
        return True

    def fail(self, error: Exception) -> None:
        """End it now, for this reason."""
        if self._failure is None:
            self._failure = error
        if self._transport is not None:
            self._transport.abort()

    def finish(self) -> None:
        """Write what is left, then end it."""
        if self._transport is not None:
            self._transport.close()

    async def close(self, within_us: int) -> None:
        """The same, and wait for it; a peer that does not read is not waited for beyond the bound."""
        if self._transport is None:
            return
        self._transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_us / 1e6):
                await self._gone.wait()
        self._transport.abort()
        await self._gone.wait()

    def pause_reading(self) -> None:
        self._paused = True
        if self.open and self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if self.open and self._transport is not None:
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            transport.close()
            return
        self._transport = transport
        transport.set_write_buffer_limits(high=self._config.outbox_bytes_max // 2)
        if self._paused:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._assembly.feed(data):
                if self._failure is None:
                    self.on_message(message)
        except FrameError as error:
            self.write(write_message(Kind.MESSAGE_ERROR, 0, b""))
            self._failure = error
            self.finish()

    async def writable(self) -> None:
        """Wait while half of the outbox is full."""
        await self._relief.wait()

    def pause_writing(self) -> None:
        self._relief.clear()

    def resume_writing(self) -> None:
        self._relief.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._gone.set()
        self._relief.set()
        self._on_lost(self._failure or error)


@dataclass(frozen=True, slots=True)
class _Call:
    """A request whose answer has not come yet."""

    operation: str
    done: Callable[[Decoder | Reference | Exception], None]


Write = Callable[[Encoder], None]


def nothing(_: Encoder) -> None:
    """No arguments."""


class GiopClient:
    """Calls objects of one server over one connection; calls may overlap, answers find their callers by number."""

    def __init__(self, host: str, port: int, config: GiopConfig) -> None:
        self.where = join_host(host, port)
        self.config = config
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        """Done when the connection is over; its result is the reason, or None."""
        self.connection = GiopConnection(config, self._on_message, self._on_lost)
        self.address = (host, port)
        self._calls: dict[int, _Call] = {}
        self._settled = asyncio.Event()
        self._next_id = 1
        self._heard = False

    async def connect(self) -> None:
        await dial(*self.address, "", self.config.connect_us, lambda: self.connection, foreign=True)

    @property
    def under_way(self) -> int:
        """Calls without an answer so far."""
        return len(self._calls)

    def post(
        self,
        target: Reference,
        operation: str,
        arguments: Write,
        done: Callable[[Decoder | Reference | Exception], None],
    ) -> bool:
        """Call without waiting; `done` gets the results, where to ask instead, or why there are none.

        False: nothing was sent, and `done` is not called.
        """
        id = self._next_id
        self._next_id = (id + 1) & 0xFFFFFFFF
        body = begin_request(id, target.minor, target.key, operation)
        if arguments is not nothing:
            begin_values(body, target.minor)
            arguments(body)
        self._calls[id] = _Call(operation, done)
        if self.connection.write(write_message(Kind.REQUEST, target.minor, bytes(body))):
            return True
        del self._calls[id]
        return False

    async def call(self, target: Reference, operation: str, arguments: Write = nothing) -> Decoder:
        """Call and wait for the results. Another address in a forwarded reference is not dialled: only its key counts,
        since a service names itself as it sees itself, and the address that we reached it by is known to work."""
        for _ in range(FORWARDS_MAX):
            answer = await self._call_once(target, operation, arguments)
            if not isinstance(answer, Reference):
                return answer
            target = answer
        raise PeerError(f"{self.where} forwarded {operation} {FORWARDS_MAX} times; giving up")

    async def _call_once(self, target: Reference, operation: str, arguments: Write) -> Decoder | Reference:
        answer: asyncio.Future[Decoder | Reference | Exception] = asyncio.get_running_loop().create_future()

        def done(result: Decoder | Reference | Exception) -> None:
            if not answer.done():
                answer.set_result(result)

        if not self.post(target, operation, arguments, done):
            raise NetworkError(f"{self.where} is gone or does not read; {operation} was not sent")
        try:
            async with asyncio.timeout(self.config.call_us / 1e6):
                result = await answer
        except TimeoutError:
            what = "did not answer" if self._heard else "may not be a CORBA server: it did not answer"
            raise NetworkError(f"{self.where} {what} {operation} within {self.config.call_us / 1e6:g} s") from None
        if isinstance(result, Exception):
            raise result
        return result

    async def settle(self, under_way_max: int = 0) -> None:
        """Wait until no more than so many calls are without an answer, or the connection is over."""
        while len(self._calls) > under_way_max and self.connection.open:
            self._settled.clear()
            await self._settled.wait()

    async def settle_within(self, within_us: int) -> None:
        """The same for all calls, within a bound: closing on answers to come could destroy what was sent last."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_us / 1e6):
                await self.settle()

    async def close(self) -> None:
        await self.connection.close(self.config.call_us)

    # What comes in

    def _on_message(self, message: GiopMessage) -> None:
        self._heard = True
        if message.kind is Kind.REPLY:
            self._on_reply(message)
        elif message.kind is Kind.CLOSE_CONNECTION:
            self.connection.finish()
        elif message.kind is Kind.MESSAGE_ERROR:
            self.connection.fail(HandshakeError(f"{self.where} does not understand our GIOP messages"))

    def _on_reply(self, message: GiopMessage) -> None:
        reply = read_reply(message)
        call = self._calls.pop(reply.id, None)
        self._settled.set()
        if call is None:
            return  # nobody waits for it any more
        try:
            call.done(self._result(reply.status, reply.results, call.operation))
        except FrameError as error:
            call.done(error)

    def _result(self, status: Status, results: Decoder, operation: str) -> Decoder | Reference | Exception:
        if status is Status.NO_EXCEPTION:
            return results
        if status in (Status.USER_EXCEPTION, Status.SYSTEM_EXCEPTION):
            return RemoteException(results.string(), self.where, operation)
        if status in (Status.LOCATION_FORWARD, Status.LOCATION_FORWARD_PERM):
            forward = read_reference(results)
            return forward or PeerError(f"{self.where} sent {operation} to nowhere")
        return PeerError(f"{self.where} wants {operation} addressed in another way than by key")

    def _on_lost(self, reason: Exception | None) -> None:
        if isinstance(reason, FrameError):
            reason = HandshakeError(f"{self.where} is not a CORBA server, or not a sound one: {reason}")
        if not self.lost.done():
            self.lost.set_result(reason)
        calls, self._calls = self._calls, {}
        self._settled.set()
        for call in calls.values():
            call.done(
                reason
                if isinstance(reason, PeerError)
                else NetworkError(f"{self.where} closed the connection before it answered {call.operation}")
            )
