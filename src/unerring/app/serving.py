"""The small HTTP server of a run or a node: `/metrics` for Prometheus, `/healthz` and `/readyz` for whoever supervises
containers. Nothing here changes anything, and nothing tells of an event.

On loopback it tells everybody everything. Beyond it, the two pages of health say yes or no to everybody, since whoever
supervises containers has no certificate of ours; names and numbers are for those whose certificate has the right to
view the run.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.model import NetworkError, Right, UnerringError, identities
from unerring.runtime import Guard, Reports, is_loopback, optional_context

if TYPE_CHECKING:
    from unerring.app.metrics import Told

LOOPBACK: Final = "127.0.0.1"
SILENT_S_MAX: Final = 30.0
"""A loop that has not come round for so long hangs."""
CONNECTIONS_MAX: Final = 100
"""At once; each holds a thread and a descriptor. Where there are more, one that has not asked yet makes room."""
_PAUSE_S: Final = 0.002
"""Before one makes room: a flood costs little, and whoever comes has CONNECTIONS_MAX times as long to ask."""
_ROOM_S_MAX: Final = 1.0
"""So long a newcomer waits for room, and is cut off then."""
_ASKED_S_MAX: Final = 10.0
"""So long a client may take for its request, and to read the answer."""
_KEPT_S: Final = 0.25
"""The numbers are gathered no more often than this, however often they are asked for."""
_FOR_VIEWERS: Final = (
    "beyond loopback this is for those who show a certificate that may view the run: start it with --tls DIR, make one "
    "with 'unerring certs DIR --ca CA --role viewer --name NAME', and see docs/security.md\n"
)


class Health:
    """What a process says of itself. `waits_for` names what does not take part yet. `starting` and `stopping` may take
    long, and are no reason to kill it."""

    def __init__(self, waits_for: Callable[[], str] = lambda: "", clock: Callable[[], float] = time.monotonic) -> None:
        self._waits_for = waits_for
        self._clock = clock
        self._came_round = clock()
        self._state = "starting"

    def come_round(self) -> None:
        """The process's loop is here again, and everything that it checks is well."""
        self._came_round = self._clock()
        if self._state == "starting":
            self._state = "ready"

    def stop(self) -> None:
        """It takes on no more, and ends what it has."""
        self._state = "stopping"

    def alive(self) -> tuple[bool, str]:
        """Whether the process goes on; if not, it should be started again."""
        silent_s = self._clock() - self._came_round
        if self._state == "ready" and silent_s > SILENT_S_MAX:
            return False, f"it has not come round for {silent_s:.0f} s"
        return True, self._state

    def ready(self) -> tuple[bool, str]:
        """Whether it takes part."""
        well, why = self.alive()
        if not well or self._state != "ready":
            return False, why
        try:
            waits_for = self._waits_for()
        except UnerringError as error:  # a file of the run that cannot be read just now
            waits_for = str(error)
        return not waits_for, waits_for or why


class Trust(msgspec.Struct, frozen=True):
    """Who may be told more than whether all is well, beyond loopback."""

    tls: str = ""
    """A folder with a certificate; without one nobody is told."""
    policy: str = ""
    """The file with the rights; empty: the defaults."""
    run: str = ""
    """What somebody must have the right to view."""


_NOBODY: Final = Trust()


def serve(metrics: Told, health: Health, port: int, host: str = LOOPBACK, trust: Trust = _NOBODY) -> HealthServer:
    """`/metrics`, `/healthz` and `/readyz`, until `stop`."""
    try:
        server = HealthServer(metrics, health, (host, port), trust)
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise NetworkError(f"port {port} of {host} for metrics {why}; choose another with --metrics-port") from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


class HealthServer(ThreadingHTTPServer):
    """A thread for each connection, of which there are no more than a few at once."""

    request_queue_size = 128

    def __init__(self, metrics: Told, health: Health, at: tuple[str, int], trust: Trust) -> None:
        self.health = health
        self.reports = Reports()
        self._metrics = metrics
        self._open_to_all = is_loopback(at[0])
        self._trust = trust
        self._tls = "" if self._open_to_all else trust.tls
        if self._tls:
            optional_context(self._tls)  # says at once what is wrong with it
        self._guard = Guard(trust.policy, self.reports)
        self._guarding = threading.Lock()
        self._gathering = threading.Lock()
        self._gathered: tuple[float, str] | None = None
        self._connections: dict[Any, bool] = {}
        """Those that are open, the oldest first, and whether they have asked."""
        self._changed = threading.Condition()
        if ":" in at[0]:
            self.address_family = socket.AF_INET6
        super().__init__(at, _Page)

    def stop(self) -> None:
        self.shutdown()
        self.server_close()

    # What is told

    def numbers(self) -> str:
        with self._gathering:
            now = time.monotonic()
            if self._gathered is None or now - self._gathered[0] >= _KEPT_S:
                self._gathered = now, self._metrics.text()
            return self._gathered[1]

    def may_view(self, connection: Any) -> bool:
        """Whether whoever is there may be told names and numbers."""
        if self._open_to_all:
            return True
        shown: Any = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
        if not shown:
            return False
        whos = identities(str(uri) for kind, uri in shown.get("subjectAltName", ()) if kind == "URI")
        with self._guarding:
            self._guard.reload()
            return self._guard.refusal(whos, Right.VIEW, self._trust.run) is None

    # Connections

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            if not self._has_room(_PAUSE_S):
                idle = next((one for one, asked in self._connections.items() if not asked), None)
                if idle is not None:
                    with contextlib.suppress(OSError):  # its thread has just closed it
                        socket.socket.shutdown(idle, socket.SHUT_RDWR)
                if not self._has_room(_ROOM_S_MAX):
                    self.shutdown_request(request)
                    return
            self._connections[request] = False
        super().process_request(request, client_address)

    def _has_room(self, within_s: float) -> bool:
        return self._changed.wait_for(lambda: len(self._connections) < CONNECTIONS_MAX, within_s)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In the connection's own thread, so that a slow handshake holds nobody up."""
        request.settimeout(_ASKED_S_MAX)
        if not self._tls:
            super().finish_request(request, client_address)
            return
        context = optional_context(self._tls)
        with self._changed:
            secure = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            del self._connections[request]
            self._connections[secure] = False
        try:
            secure.do_handshake()
            super().finish_request(secure, client_address)
        finally:
            self.shutdown_request(secure)

    def has_asked(self, connection: Any) -> None:
        with self._changed:
            self._connections[connection] = True

    def close_request(self, request: Any) -> None:
        super().close_request(request)
        with self._changed:
            self._connections.pop(request, None)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever goes away, or does not speak HTTP or TLS. The screen belongs to the run."""
        self.reports.count("metrics.broken")


class _Page(BaseHTTPRequestHandler):
    timeout = _ASKED_S_MAX
    server: HealthServer

    def do_GET(self) -> None:
        self.server.has_asked(self.connection)
        health, may_view = self.server.health, self.server.may_view(self.connection)
        match self.path:
            case "/metrics":
                code, text = (200, self.server.numbers()) if may_view else (403, _FOR_VIEWERS)
            case "/healthz" | "/readyz":
                well, why = health.alive() if self.path == "/healthz" else health.ready()
                code = 200 if well else 503
                text = f"{why if may_view else 'yes' if well else 'no'}\n"
            case _:
                code, text = 404, "look at /metrics, /healthz and /readyz\n"
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """The screen belongs to the run."""
