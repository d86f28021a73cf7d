"""What a process tells of the spans that it sees. One tracer for a process, or none: then nothing is done at all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from unerring.tracing.identity import (
    Ids,
    Ref,
    instance_ref,
    process_ref,
    published_ref,
    received_ref,
    rule_ref,
    sealed_ref,
)
from unerring.tracing.variables import Settings, settings

if TYPE_CHECKING:
    import numpy as np

    from unerring.tracing.exporting import SpanSender

SPANS_MAX: Final = 64
"""Spans of one call: a moment with more events than that is told of in part."""
LINKS_MAX: Final = 100
SPANS_PER_S_MAX: Final = 100
"""Of a flood a process keeps a smaller share of traces: a span costs as much as some fifty events of a channel."""
_SECOND_NS: Final = 1_000_000_000

_name = ""
_of_process: tuple[int, Tracer | None] | None = None


class Tracer:
    """Makes spans, and hands them to a sender that never waits."""

    def __init__(self, asked: Settings, sender: SpanSender) -> None:
        self._ids = Ids(asked.namespace, asked.rate, asked.run)
        self._asked = self._rate = asked.rate
        self._told = 0
        self._since_ns = time.monotonic_ns()
        self._sender = sender
        self.among = self._ids.among
        self.kept = self._ids.kept

    def published(self, stream: str, times: Sequence[int], epoch: int, last: int, began_ns: int) -> None:
        """Events were published, the last one with this sequence."""
        places = self.among(times)
        for at in places[:SPANS_MAX]:
            sequence = last - len(times) + 1 + at
            ref = published_ref(stream, times[at], epoch, sequence)
            about = {"unerring.epoch": epoch, "unerring.sequence": sequence}
            self._tell(
                f"publish {stream}", "producer", ref, None, began_ns, about=self._stream(stream, times[at], about)
            )

    def received(
        self, stream: str, times: Sequence[int], epoch: int, first: int, began_ns: int, *, published: bool = True
    ) -> None:
        """Events came out of a channel, the first one with this sequence. `published`: by a producer who tells of it,
        not by somebody else into a topic."""
        for at in self.among(times)[:SPANS_MAX]:
            named = (stream, times[at], epoch, first + at)
            about = self._stream(stream, times[at], {"unerring.epoch": epoch, "unerring.sequence": first + at})
            parent = published_ref(*named) if published else None
            self._tell(f"channel {stream}", "consumer", received_ref(*named), parent, began_ns, about=about)

    def sealed(
        self, stream: str, time_us: int, origins: Iterable[tuple[int, int]], began_ns: int, ended_ns: int
    ) -> None:
        """The events of a time are in the log; `origins`: the epoch and sequence of each that came over a channel."""
        causes = [received_ref(stream, time_us, *origin) for origin in origins]
        self._tell(
            f"log {stream}",
            "internal",
            sealed_ref(stream, time_us),
            causes[0] if causes else None,
            began_ns,
            ended_ns,
            causes[1:],
            self._stream(stream, time_us, {}),
        )

    def found(self, stream: str, time_us: int, made_of: Iterable[tuple[str, int]], at_ns: int) -> None:
        """The situations of a time are in the log, made of these events: their streams and times."""
        links = [sealed_ref(*event) for event in made_of]
        about = self._stream(stream, time_us, {"unerring.events": len(links)})
        ref, parent = sealed_ref(stream, time_us), rule_ref(stream, time_us)
        self._tell(f"situation {stream}", "internal", ref, parent, at_ns, at_ns, links, about)

    def ran(
        self,
        stream: str,
        times: Sequence[int] | np.ndarray[Any, Any],
        inputs: Mapping[str, Any],
        began_ns: int,
        about: Mapping[str, Any],
    ) -> None:
        """A rule made situations at these times, of rows of `inputs`: by stream, their times."""
        told = dict.fromkeys(int(times[at]) for at in self.among(times))
        for time_us in list(told)[:SPANS_MAX]:
            causes = [sealed_ref(name, time_us) for name, of in inputs.items() if time_us in of]
            ref, parent = rule_ref(stream, time_us), causes[0] if causes else None
            self._tell(
                f"rule {stream}",
                "internal",
                ref,
                parent,
                began_ns,
                links=causes[1:],
                about=self._stream(stream, time_us, about),
            )

    def started(self, process: str, instance: str, situation: tuple[str, int], began_ns: int) -> None:
        """An instance was started for a situation."""
        if self.kept(process_ref(instance).of):
            about = {"unerring.process": process, "unerring.instance": instance}
            ref = process_ref(instance)
            self._tell(f"process {process}", "internal", ref, sealed_ref(*situation), began_ns, about=about)

    def asks(self, instance: str, iid: str, attempt: str) -> dict[str, str]:
        """The header that tells a service which span asks it."""
        ref = instance_ref(instance, iid, attempt)
        if not self.kept(ref.of):
            return {}
        return {"traceparent": f"00-{self._ids.trace(ref.of):032x}-{self._ids.span(ref):016x}-01"}

    def asked(
        self, instance: str, iid: str, attempt: str, about: Mapping[str, Any], began_ns: int, failed: str
    ) -> None:
        """A service was asked, and answered or did not."""
        ref = instance_ref(instance, iid, attempt)
        if self.kept(ref.of):
            name = f"{about['unerring.service']} {about['unerring.operation']}"
            more = {**about, "unerring.instance": instance, "unerring.interaction": iid}
            self._tell(name, "client", ref, process_ref(instance), began_ns, about=more, failed=failed)

    def trace_id(self, of: int | str) -> str:
        """For a log line about a time or an instance; empty: its trace is not kept."""
        return f"{self._ids.trace(of):032x}" if self.kept(of) else ""

    def _count(self) -> None:
        """Halve the share of traces at the bound, and double it for each second with few, up to what was asked for.
        Whether one is kept still follows from its id, so that those of the smallest share are whole."""
        self._told += 1
        now_ns = time.monotonic_ns()
        seconds = (now_ns - self._since_ns) // _SECOND_NS
        if self._told >= SPANS_PER_S_MAX:
            self._rate /= 2
        elif not seconds:
            return
        elif self._told < SPANS_PER_S_MAX // 4:
            self._rate = min(self._asked, self._rate * 2.0 ** min(seconds, 64))
        self._ids.share(self._rate)
        self._told, self._since_ns = 0, now_ns

    def finish(self) -> None:
        """Send what waits."""
        self._sender.finish()

    def _stream(self, stream: str, time_us: int, about: Mapping[str, Any]) -> dict[str, Any]:
        return {"unerring.stream": stream, "unerring.time_us": time_us, **about}

    def _tell(
        self,
        name: str,
        kind: str,
        ref: Ref,
        parent: Ref | None,
        began_ns: int,
        ended_ns: int = 0,
        links: Sequence[Ref] = (),
        about: Mapping[str, Any] | None = None,
        failed: str = "",
    ) -> None:
        ids = self._ids
        self._count()
        self._sender.send(
            name,
            kind,
            (ids.trace(ref.of), ids.span(ref)),
            None if parent is None else ids.span(parent),
            (began_ns, ended_ns or time.time_ns()),
            [(ids.trace(link.of), ids.span(link)) for link in links[:LINKS_MAX]],
            {"unerring.role": _name, **(about or {})} if _name else dict(about or {}),
            failed,
        )


def call_me(name: str) -> None:
    """The name of this process in its spans, such as a replica's or a node's."""
    global _name
    _name = name


def tracer() -> Tracer | None:
    """The tracer of this process; None: nothing is traced."""
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():  # a sender's thread does not survive a fork
        asked = settings()
        made = None
        if asked.rate > 0:
            from unerring.tracing.exporting import SpanSender

            made = Tracer(asked, SpanSender())
        _of_process = os.getpid(), made
    return _of_process[1]


def send_waiting() -> None:
    """Send what this process has told, before somebody ends it: Spark ends its workers by a signal."""
    if _of_process is not None and _of_process[0] == os.getpid() and _of_process[1] is not None:
        _of_process[1].finish()
