"""The small HTTP server of a run or a node: `/metrics` for Prometheus, `/healthz` and `/readyz` for whoever supervises
containers. Nothing here changes anything, and nothing tells of an event."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

from unerring.model import NetworkError, UnerringError

if TYPE_CHECKING:
    from unerring.app.metrics import Told

LOOPBACK: Final = "127.0.0.1"
SILENT_S_MAX: Final = 30.0
"""A loop that has not come round for so long hangs."""
_ASKED_S_MAX: Final = 10.0
"""So long a client may take for its request; it holds a thread."""


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


def serve(metrics: Told, health: Health, port: int, host: str = LOOPBACK) -> ThreadingHTTPServer:
    """`/metrics`, `/healthz` and `/readyz`, until `shutdown`."""

    class Page(BaseHTTPRequestHandler):
        timeout = _ASKED_S_MAX

        def do_GET(self) -> None:
            match self.path:
                case "/metrics":
                    code, text = 200, metrics.text()
                case "/healthz" | "/readyz":
                    well, why = health.alive() if self.path == "/healthz" else health.ready()
                    code, text = 200 if well else 503, f"{why}\n"
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

    try:
        server = ThreadingHTTPServer((host, port), Page)
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise NetworkError(f"port {port} of {host} for metrics {why}; choose another with --metrics-port") from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
