"""Health in a minute: what is wrong, each as one problem with a sentence and since when, worst first; which
input everything waits for, which service fails and where, how slow the disk is, how late situations and effects are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.app.inputs import WAITS_US, Wait
from unerring.app.latencies import Latency
from unerring.app.ledgers import Wait as Awaited
from unerring.app.status.instances import NODE_SILENT_S
from unerring.log import SyncsSeen
from unerring.model import BOUNDS_S, SECOND_US, Histogram
from unerring.runtime import ServiceSeen, node_statuses

SLOW_S: Final = 0.1
"""A disk half of whose syncs take longer is slow: every acknowledgement waits for one."""
HANGS_S: Final = 2.0
JOINS_S: Final = 5.0
"""A process node that has no part in anything for that long lacks others that could tell it what it promised."""
FAILS_S: Final = 1.0
"""A service that failed once and answered again at once is nobody's business."""

KINDS: Final = ("run", "part", "disk", "process", "service", "input", "producer", "sink", "instance")
"""What can be wrong, worst first."""


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    kind: str
    """One of KINDS."""
    name: str
    says: str
    since_us: int | None = None
    """Wall time."""


class WaitsFor(msgspec.Struct, frozen=True):
    """The input at the root of what waits, and the rules that cannot go on without it."""

    stream: str
    since_us: int
    rules: list[str]


class Health:
    """Of one run; `actions`: the folder of its process nodes."""

    def __init__(self, actions: Path) -> None:
        self._actions = actions

    def look(self, document: dict[str, Any], running: bool, alive: int, now_us: int) -> dict[str, Any]:
        """The section, of the others."""
        nodes = node_statuses(self._actions)
        services = _merged(one for node in nodes for one in node.services)
        disks = {node.name: node.disk for node in nodes}
        for one in document["live"]["processes"]:
            if "disk" in one:
                disks[one["name"]] = msgspec.convert(one.pop("disk"), SyncsSeen)
        disks["run"] = msgspec.convert(document["parts"].pop("disk"), SyncsSeen)
        latency = msgspec.convert(document["parts"].pop("latency"), list[Latency])
        waits_for = _root_of(document["inputs"], document["tree"])
        problems = [*_own(document["parts"], alive), *_parts(document["parts"]), *_held_up(document["sinks"])]
        if running:
            silent = [(node.name, node.silent_s) for node in nodes if node.silent_s > NODE_SILENT_S]
            problems += [
                *_down(document),
                *_joining(document["processes"]["nodes"], now_us),
                *_failing(services, now_us),
                *_slow(disks, silent, now_us),
                *([] if waits_for is None else _waited_for(waits_for, document["inputs"], now_us)),
                *_awaited(document["channels"]["waits"], now_us),
                *_standing(document["processes"]),
            ]
        problems.sort(key=lambda problem: KINDS.index(problem.kind))
        return {
            "state": "ended" if not running else "trouble" if problems else "well",
            "problems": msgspec.to_builtins(problems),
            "waits_for": msgspec.to_builtins(waits_for),
            "services": msgspec.to_builtins(services),
            "disk": _disk(disks),
            "latency": [_told(one) for one in [*latency, *_effects(services)]],
        }


def _merged(seen: Iterable[ServiceSeen]) -> list[ServiceSeen]:
    """Each service once, as all nodes have seen it: it fails while no node has had an answer since."""
    known: dict[str, ServiceSeen] = {}
    for one in seen:
        if one.name not in known:
            known[one.name] = one
            continue
        all_ = known[one.name]
        all_.asked, all_.failed = all_.asked + one.asked, all_.failed + one.failed
        all_.took.merge(one.took)
        all_.effects.merge(one.effects)
        failing = [us for us in (all_.failing_since_us, one.failing_since_us) if us]
        if one.failing_since_us and one.failing_since_us >= all_.failing_since_us:
            all_.why = one.why
        all_.answered_us = max(all_.answered_us, one.answered_us)
        all_.failing_since_us = min(failing, default=0)
    for all_ in known.values():
        if all_.answered_us >= all_.failing_since_us:
            all_.failing_since_us = 0
    return [known[name] for name in sorted(known)]


def _down(document: dict[str, Any]) -> Iterator[Problem]:
    nodes = [node for node in document["processes"]["nodes"] if node["state"] != "silent"]  # `_slow` says what is known
    for one in (*document["live"]["processes"], *nodes, *document["spark"]["drivers"]):
        if one["state"] in ("dead", "silent"):
            died_us = next(
                (e["at_us"] for e in reversed(document["timeline"]["last"]) if e["who"] == one["name"]), None
            )
            says = f"{one['name']} is {one['state']}; its supervisor starts it again"
            yield Problem("process", one["name"], says, died_us)


def _joining(nodes: list[dict[str, Any]], now_us: int) -> Iterator[Problem]:
    for one in nodes:
        if one["state"] == "joining" and now_us - one["since_us"] >= JOINS_S * SECOND_US:
            yield Problem("process", one["name"], f"{one['name']} takes no part yet: {one['why']}", one["since_us"])


def _failing(services: list[ServiceSeen], now_us: int) -> Iterator[Problem]:
    for one in services:
        since_us = one.failing_since_us
        if since_us and now_us - since_us >= FAILS_S * SECOND_US:
            at = f" at {one.address}" if one.address else ""
            says = f"service {one.name}{at} fails since {(now_us - since_us) / SECOND_US:.0f} s: {one.why}"
            yield Problem("service", one.name, says, since_us)


def _slow(disks: dict[str, SyncsSeen], silent: list[tuple[str, float]], now_us: int) -> Iterator[Problem]:
    for name, disk in disks.items():
        half_s = disk.recent.at_most_s(0.5)
        if disk.hangs_s >= HANGS_S:
            since_us = now_us - int(disk.hangs_s * SECOND_US)
            says = f"the disk of {name} does not end a sync that began {disk.hangs_s:.0f} s ago"
            yield Problem("disk", name, says, since_us)
        elif half_s is not None and half_s > SLOW_S:
            says = f"the disk of {name} is slow: half of its syncs take longer than {_usual(disk.recent)}"
            yield Problem("disk", name, says)
    for name, silent_s in silent:
        says = f"{name} has told nothing for {silent_s:.0f} s: it is stopped, or its disk takes nothing"
        yield Problem("disk", name, says, now_us - int(silent_s * SECOND_US))


def _usual(recent: Histogram) -> str:
    """The lower end of the middle one's bucket: what half of them surely took."""
    half_s = recent.at_most_s(0.5) or 0.0
    return f"{max((bound for bound in BOUNDS_S if bound < half_s), default=0.0) * 1000:,.0f} ms"


def _own(parts: dict[str, Any], alive: int) -> Iterator[Problem]:
    """The run's own process."""
    if alive and parts["state"] == "gone":
        says = (
            f"the run's own process {parts['pid']} is gone, and {alive} processes of it are left: nothing comes in "
            "over channels, and who dies is not started again; start the same command again"
        )
        yield Problem("run", "run", says)
    elif parts["state"] == "silent":
        silent = f"the run's own process {parts['pid']} has written nothing for {parts['silent_s']:.0f} s"
        yield Problem("run", "run", f"{silent}: it is stuck, or its disk takes nothing")


def _parts(parts: dict[str, Any]) -> Iterator[Problem]:
    for part in parts["parts"]:
        if part["state"] == "waiting" and parts["state"] in ("running", "silent"):
            says = f"{part['name']} waits: {part['why']}"
            if not part["held"]:
                says = f"{part['name']} failed and is started again ({part['restarts']} times so far): {part['why']}"
            yield Problem("part", part["name"], says, part["since_us"])
        elif part["state"] == "failed":
            yield Problem("part", part["name"], f"{part['name']} ended the run: {part['why']}", part["since_us"])


def _root_of(inputs: dict[str, Any], tree: dict[str, Any]) -> WaitsFor | None:
    """The input that has been waited for longest; of a stream that a rule makes, the one that this rule waits for."""
    waits = {wait.rule: wait for wait in msgspec.convert(inputs["waits"], list[Wait])}
    makers = {stream: node["name"] for node in tree["nodes"] if node["role"] == "rule" for stream in node["outputs"]}
    roots: dict[str, list[Wait]] = {}
    for wait in waits.values():
        root, passed = wait, {wait.rule}
        while (maker := makers.get(root.stream)) in waits and maker not in passed:
            passed.add(maker)
            root = waits[maker]
        roots.setdefault(root.stream, []).append(wait)
    found = [
        WaitsFor(stream, min(w.since_us for w in of), sorted({w.rule for w in of})) for stream, of in roots.items()
    ]
    return min(found, key=lambda one: (one.since_us, one.stream), default=None)


def _waited_for(root: WaitsFor, inputs: dict[str, Any], now_us: int) -> Iterator[Problem]:
    """The root first, then what else is waited for."""
    waits = msgspec.convert(inputs["waits"], list[Wait])
    told = set()
    for wait in sorted(waits, key=lambda one: (one.stream != root.stream, one.since_us)):
        if (
            now_us - wait.since_us < WAITS_US
            or wait.stream in told
            or (wait.rule in root.rules and wait.stream != root.stream)
        ):
            continue
        told.add(wait.stream)
        others = [rule for rule in root.rules if rule != wait.rule] if wait.stream == root.stream else []
        more = f" ({', '.join(others)} with it)" if others else ""
        yield Problem("input", wait.stream, wait.sentence(now_us, more), wait.since_us)


def _awaited(waits: list[dict[str, Any]], now_us: int) -> Iterator[Problem]:
    """Every stream whose producers wait for one of them, or that cannot be sealed."""
    for wait in msgspec.convert(waits, list[Awaited]):
        if wait.blocked:
            yield Problem("producer", wait.stream, f"stream {wait.stream} cannot be sealed: {wait.blocked}")
        elif wait.silent_us >= WAITS_US:
            silent = f"nothing came from it for {wait.silent_us / SECOND_US:.0f} s, and {wait.held:,} events wait"
            remedy = "start it, let it end(), or declare the stream with idle_after"
            says = f"stream {wait.stream} waits for its producer {wait.producer}: {silent}; {remedy}"
            yield Problem("producer", wait.stream, says, now_us - wait.silent_us)


def _held_up(sinks: list[dict[str, Any]]) -> Iterator[Problem]:
    for sink in sinks:
        if sink["state"] in ("waiting", "stopped"):
            says = f"sink {sink['name']} is {sink['state']}, {sink['waiting']:,} events behind: {sink['why']}"
            yield Problem("sink", sink["name"], says)


def _standing(processes: dict[str, Any]) -> Iterator[Problem]:
    if processes["held"]:
        says = f"{processes['held']:,} instances are held: see 'unerring process list --status held', then retry them"
        yield Problem("instance", "held", says)
    if processes["stuck"]:
        says = f"{processes['stuck']:,} instances have something that does not undo: 'unerring process list --stuck'"
        yield Problem("instance", "stuck", says)


def _disk(disks: dict[str, SyncsSeen]) -> dict[str, Any]:
    """All disks together, and each one's last minute; `all` is for metrics."""
    every = Histogram()
    for disk in disks.values():
        every.merge(disk.recent)
    by_process = {
        name: {**_quantiles(disk.recent), "hangs_s": disk.hangs_s, "all": msgspec.to_builtins(disk.all)}
        for name, disk in disks.items()
        if disk.all.count or disk.hangs_s
    }
    return {**_quantiles(every), "by_process": by_process}


def _quantiles(took: Histogram) -> dict[str, Any]:
    return {"count": took.count, "half_s": took.at_most_s(0.5), "most_s": took.at_most_s(0.99), "max_s": took.max_s}


def _effects(services: list[ServiceSeen]) -> Iterator[Latency]:
    for one in services:
        if one.effects.count:
            yield Latency("published", "effect", one.name, one.effects)


def _told(one: Latency) -> dict[str, Any]:
    way = {"since": one.since, "to": one.to, "of": one.of}
    return {**way, **_quantiles(one.took), "took": msgspec.to_builtins(one.took)}
