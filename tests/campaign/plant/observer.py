"""Beside a run, on a host of its own: seals inputs of a prepared log on the store, and tells what is sealed there.

It reads a command a line, as JSON, and answers each with a line: `["feed", n]`, `["segments", 0, stream]`,
`["sealed", n, stream]` and `["reached", n]` (wait until it has n segments, or all outputs have reached input n),
`["objects"]`, `["rows"]`.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from typing import Any

import pyarrow as pa

from tests.campaign.plant.app import app
from unerring.app import place_of
from unerring.log import EventLog

LOOK_S = 0.05
OUTPUTS = [schema.name for schema in app.outputs]


class Observer:
    def __init__(self, prepared: str, address: str) -> None:
        self.prepared = prepared
        self.given = EventLog(prepared).chain("Typed")
        self.spans = self.given.spans(self.given.base.from_us, self.given.through_us)
        self.log = place_of(address, "/srv/observer").log if "://" in address else place_of(address).log
        self.inputs = self.log.create(self.given.schema, app.buckets)

    def answer(self, what: str, number: int = 0, stream: str = "") -> Any:
        match what:
            case "feed":
                for span in self.spans[:number]:
                    if span.through_us > self.inputs.through_us:
                        self.inputs.seal(span.through_us, self.given.read(span.from_us, span.through_us))
                return len(self.spans)
            case "segments":
                return self.segments(stream)
            case "sealed":
                return self.until(lambda: self.segments(stream) >= number)
            case "reached":
                return self.until(lambda: min(map(self.through_us, OUTPUTS)) >= self.spans[number - 1].through_us)
            case "objects":
                return self.objects()
            case "rows":
                return {name: self.rows(name) for name in OUTPUTS}

    def until(self, condition: Any) -> float:
        began_s, pause = time.monotonic(), threading.Event()
        while not condition():
            pause.wait(LOOK_S)
        return time.monotonic() - began_s

    def segments(self, name: str) -> int:
        if self.log.declaration(name) is None:
            return 0
        chain = self.log.chain(name)
        return len(chain.spans(chain.base.from_us, chain.through_us))

    def through_us(self, name: str) -> int:
        return -1 if self.log.declaration(name) is None else self.log.chain(name).through_us

    def objects(self) -> dict[str, str]:
        """What is sealed of the outputs, byte by byte."""
        store = self.log.store
        return {
            f"{stream}/{name}": hashlib.blake2b(store.read(f"{stream}/segments/{name}") or b"").hexdigest()
            for stream in OUTPUTS
            for name in store.names(f"{stream}/segments")
        }

    def rows(self, name: str) -> tuple[int, str]:
        """How many there are, and the hash of all of them as one stream of bytes, however they were cut."""
        chain = self.log.chain(name)
        table = chain.read(chain.base.from_us, self.spans[-1].through_us).combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return len(table), hashlib.blake2b(sink.getvalue()).hexdigest()


def main() -> None:
    observer = Observer(*sys.argv[1:])
    for line in sys.stdin:
        print(json.dumps(observer.answer(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
