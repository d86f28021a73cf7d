"""The small servant that a push consumer needs: an event channel can find it, ask for its type, and push to it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from unerring.model import FrameError, NetworkError
from unerring.runtime.giop.any import read_octets
from unerring.runtime.giop.connection import GiopConfig, GiopConnection
from unerring.runtime.giop.ior import Reference
from unerring.runtime.giop.messages import (
    GiopMessage,
    Kind,
    Request,
    Status,
    Whereabouts,
    begin_reply,
    begin_values,
    read_locate_request,
    read_request,
    write_locate_reply,
    write_message,
    write_system_exception,
)
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import Listener, listen

PUSH_CONSUMER: Final = "IDL:omg.org/CosEventComm/PushConsumer:1.0"
OBJECT: Final = "IDL:omg.org/CORBA/Object:1.0"
BAD_OPERATION: Final = "IDL:omg.org/CORBA/BAD_OPERATION:1.0"
OBJECT_NOT_EXIST: Final = "IDL:omg.org/CORBA/OBJECT_NOT_EXIST:1.0"
MARSHAL: Final = "IDL:omg.org/CORBA/MARSHAL:1.0"
CONNECTIONS_MAX: Final = 16
"""An event channel needs one, or a few for its threads."""
KEY_BYTES: Final = 16


class PushConsumer:
    """A CosEventComm::PushConsumer. `on_event` gets the octets of each event; every fault is answered and counted,
    since a channel that sees one fault unsubscribes the consumer for ever.

    Its key is drawn at random: who does not hold the reference cannot push.
    """

    def __init__(
        self,
        config: GiopConfig,
        reports: Reports,
        on_event: Callable[[bytes], None],
        on_disconnect: Callable[[], None],
    ) -> None:
        self._config = config
        self._reports = reports
        self._on_event = on_event
        self._on_disconnect = on_disconnect
        self._key = secrets.token_bytes(KEY_BYTES)
        self._listener: Listener | None = None
        self._connections: dict[GiopConnection, None] = {}
        self._paused = False

    async def open(self, host: str) -> Reference:
        """Listen on a free port of this host (loopback only: IIOP here has no TLS)."""
        self._listener = await listen(
            host,
            0,
            "",
            self._accept,
            handshake_us=self._config.connect_us,
            handshakes_max=CONNECTIONS_MAX,
            reports=self._reports,
            prefix="corba",
            foreign=True,
        )
        return Reference(PUSH_CONSUMER, self._listener.host, self._listener.port, self._key)

    async def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()
        for connection in list(self._connections):
            connection.write(write_message(Kind.CLOSE_CONNECTION, 0, b""))
            await connection.close(self._config.call_us)

    def cut(self) -> None:
        """End every connection at once, as a network does that fails."""
        for connection in list(self._connections):
            connection.fail(NetworkError("cut"))

    def pause_reading(self) -> None:
        """The channel's call stays unanswered meanwhile; its bounded ring then overwrites what it holds for us."""
        self._paused = True
        for connection in self._connections:
            connection.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        for connection in self._connections:
            connection.resume_reading()

    def _accept(self, peer: str) -> GiopConnection | None:
        if len(self._connections) >= CONNECTIONS_MAX:
            return None

        def on_message(message: GiopMessage) -> None:
            self._on_message(connection, message)

        def on_lost(reason: Exception | None) -> None:
            self._connections.pop(connection, None)
            if isinstance(reason, FrameError):
                self._reports.note("corba.bad_message", f"{peer}: {reason}; cut off")

        connection = GiopConnection(self._config, on_message, on_lost)
        if self._paused:
            connection.pause_reading()
        self._connections[connection] = None
        return connection

    # What comes in

    def _on_message(self, connection: GiopConnection, message: GiopMessage) -> None:
        if message.kind is Kind.REQUEST:
            request = read_request(message)
            answer = self._perform(request, message.oversized)
            if request.answer:
                connection.write(answer)
        elif message.kind is Kind.LOCATE_REQUEST:
            request = read_locate_request(message)
            whereabouts = Whereabouts.HERE if request.key == self._key else Whereabouts.UNKNOWN
            connection.write(write_locate_reply(request.id, request.minor, whereabouts))
        elif message.kind is Kind.CLOSE_CONNECTION:
            connection.finish()
        elif message.kind in (Kind.REPLY, Kind.LOCATE_REPLY):
            raise FrameError(f"a {message.kind.name} without a request")

    def _perform(self, request: Request, oversized: bool) -> bytes:
        """Carry out one operation; its reply."""
        if request.key != self._key:
            return write_system_exception(request.id, request.minor, OBJECT_NOT_EXIST)
        if request.operation == "push":
            self._push(request, oversized)
            return _reply(request)
        try:
            if request.operation == "_is_a":
                return _reply(request, request.arguments.string() in (PUSH_CONSUMER, OBJECT))
            if request.operation == "_non_existent":
                return _reply(request, False)
        except FrameError:
            return write_system_exception(request.id, request.minor, MARSHAL)
        if request.operation == "disconnect_push_consumer":
            self._on_disconnect()
            return _reply(request)
        return write_system_exception(request.id, request.minor, BAD_OPERATION)

    def _push(self, request: Request, oversized: bool) -> None:
        if oversized:
            self._reports.note(
                "corba.oversized", f"an event over {self._config.message_bytes_max} bytes was read past and left out"
            )
            return
        try:
            data = read_octets(request.arguments)
        except FrameError as error:
            self._reports.note("corba.foreign_event", str(error))
            return
        if data is None:
            self._reports.note("corba.foreign_event", "an event without any value: another program's")
        else:
            self._on_event(data)


def _reply(request: Request, result: bool | None = None) -> bytes:
    body = begin_reply(request.id, request.minor, Status.NO_EXCEPTION)
    if result is not None:
        begin_values(body, request.minor)
        body.boolean(result)
    return write_message(Kind.REPLY, request.minor, bytes(body))
