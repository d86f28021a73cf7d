"""A receiver of OpenLineage events, which checks what it takes."""

from __future__ import annotations

import json
import threading
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

PATIENCE_S = 300.0
SPEC = "https://openlineage.io/spec/"


class Receiver:
    """Takes events at `/api/v1/lineage`, until it ends."""

    def __init__(self, status: int = 200) -> None:
        self.events: list[dict[str, Any]] = []
        self._came = threading.Condition()
        receiver = self

        class Page(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if status == 200:
                    receiver._take(self.path, json.loads(body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _take(self, path: str, event: dict[str, Any]) -> None:
        with self._came:
            self.events.append({"path": path, **event})
            self._came.notify_all()

    def wait_for(self, count: int) -> list[dict[str, Any]]:
        """The events, when there are so many; each is one of OpenLineage's."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.events) >= count, PATIENCE_S), self.events
        for event in self.events:
            assert event["path"] == "/api/v1/lineage"
            check({name: value for name, value in event.items() if name != "path"})
        return self.events

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def check(event: dict[str, Any]) -> None:
    """What the specification says of a run event: its members, and those of its facets."""
    assert set(event) == {"eventTime", "producer", "schemaURL", "eventType", "run", "job", "inputs", "outputs"}
    assert event["schemaURL"] == f"{SPEC}2-0-2/OpenLineage.json#/$defs/RunEvent"
    assert event["eventType"] in ("START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER")
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    assert set(event["run"]) == {"runId", "facets"}
    UUID(event["run"]["runId"])
    assert set(event["job"]) == {"namespace", "name", "facets"}
    check_facets(event["run"]["facets"], event["job"]["facets"])
    for side, own in (("inputs", "inputFacets"), ("outputs", "outputFacets")):
        for dataset in event[side]:
            assert {"namespace", "name"} <= set(dataset) <= {"namespace", "name", "facets", own}
            assert dataset["namespace"]
            assert dataset["name"]
            check_facets(dataset.get("facets", {}), dataset.get(own, {}))


def check_facets(*several: dict[str, Any]) -> None:
    for facets in several:
        for facet in facets.values():
            assert facet["_producer"]
            assert facet["_schemaURL"].startswith(SPEC)


def brief(event: dict[str, Any]) -> tuple[str, str, str]:
    return event["eventType"], event["job"]["facets"]["jobType"]["jobType"], event["job"]["name"]


def names(event: dict[str, Any], side: str) -> list[tuple[str, str]]:
    return [(dataset["namespace"], dataset["name"]) for dataset in event[side]]


def fields(dataset: dict[str, Any]) -> list[tuple[str, str]]:
    return [(field["name"], field["type"]) for field in dataset["facets"]["schema"]["fields"]]
