"""The world around a run on several hosts, on a host of its own: a producer, a service, and who watches the log.

It reads a command a line, as JSON, and answers each with a line: `["sealed", n]` (wait until the situations of so many
events are sealed), `["moved"]` (when it saw each stream reach what), `["members"]` (the membership record), `["end"]`
(publish nothing more; how many were), `["noted"]` (how often the service did what for each number).
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from tests.campaign.plant.spread_app import Warm
from unerring import IdempotencyFilter, Publisher
from unerring.app import place_of
from unerring.correlation import KEY, Record
from unerring.log import events_of
from unerring.model import verified
from unerring.runtime.live.store_record import _Held
from unerring.runtime.services import SqliteStore

CERTIFICATES = "/srv/given/reader"
APART_S = 0.02
LOOK_S = 0.02
HOT_EVERY = 10
"""Every so many events one starts a process."""
WATCHED = ("Warm", "heat", "tens")


class Notes:
    """A service that notes numbers down, behind the filter."""

    def __init__(self) -> None:
        self.done: dict[str, int] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        key = dict(scope["headers"])[b"idempotency-key"].decode()
        body = (await receive()).get("body", b"")
        if scope["method"] == "DELETE":
            self.done.pop(key, None)
        else:
            self.done[key] = json.loads(body)["number"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"1"})


class WorldAround:
    def __init__(self, address: str, here: str) -> None:
        self.place = place_of(address, "/srv/observer")
        self.notes = Notes()
        self.published = 0
        self.moved: dict[str, list[tuple[float, int]]] = {name: [] for name in WATCHED}
        self._ending = threading.Event()
        self._ended = threading.Event()
        self._pause = threading.Event()
        store = SqliteStore(Path("/srv/notes.db"))
        serving = uvicorn.Config(
            IdempotencyFilter(self.notes, store), host=here, port=7001, log_level="error", lifespan="off"
        )
        work = (lambda: asyncio.run(uvicorn.Server(serving).serve()), lambda: self._publish(here), self._watch)
        self._threads = [threading.Thread(target=one, daemon=True) for one in work]
        for thread in self._threads:
            thread.start()

    def _publish(self, here: str) -> None:
        with Publisher(f"tcp://{here}:7000?tls={CERTIFICATES}", Warm) as out:
            while not self._ending.wait(APART_S):
                out.publish(Warm(self.published % 3, self.published, self.published % HOT_EVERY == 0))
                self.published += 1
            self._ended.set()
            threading.Event().wait()  # what is not acknowledged yet may be asked for

    def _watch(self) -> None:
        """When each stream was seen to have got further. Its end is not asked for: reading names does not cost much."""
        log = self.place.log
        chains: dict[str, Any] = {}
        while not self._pause.wait(LOOK_S):
            for name in WATCHED:
                if name not in chains and log.declaration(name) is not None:
                    chains[name] = log.chain(name)
                if name in chains and chains[name].refresh() > (self.moved[name][-1][1] if self.moved[name] else 0):
                    self.moved[name].append((time.monotonic(), chains[name].through_us))

    def answer(self, what: str, number: int = 0) -> Any:
        match what:
            case "sealed":
                while len(self.numbers()) < number:
                    self._pause.wait(0.2)
                return len(self.numbers())
            case "moved":
                return self.moved
            case "members":
                return self.members()
            case "end":
                self._ending.set()
                self._ended.wait()
                return self.published
            case "noted":
                return Counter(self.notes.done.values()).most_common()
            case "numbers":
                return self.numbers()

    def numbers(self) -> list[int]:
        """The numbers of all situations that are sealed, in their order."""
        log = self.place.log
        if log.declaration("heat") is None:
            return []
        chain = log.chain("heat")
        table = chain.read(chain.base.from_us, chain.refresh())
        return [event.payload["number"] for event in events_of(table, chain.schema)]

    def members(self) -> dict[str, list[Any]]:
        store = self.place.store
        for name in store.names("membership"):
            raw = verified(store.read(f"membership/{name}") or b"", name, "")
            record = msgspec.msgpack.decode(msgspec.msgpack.decode(raw, type=_Held).records[KEY], type=Record)
            return {one: [member.incarnation, member.standing] for one, member in record.members.items()}
        return {}


if __name__ == "__main__":
    around = WorldAround(sys.argv[1], sys.argv[2])
    for line in sys.stdin:
        print(json.dumps(around.answer(*json.loads(line))), flush=True)
