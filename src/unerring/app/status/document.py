"""The status document of a run: everything there is to see of it, under one naming scheme.

| section | says |
|---|---|
| run | which folder and app, by which release, and whether anything of it runs |
| health | what is wrong and since when; the input that is waited for, services, the disk, how late situations are |
| tree | the query tree: sources, rules, and what is started for which situation |
| live | the live engine's processes: leaders, incarnations, queues, lag; the membership record |
| parts | what works in the run's own process (channels, reactions, levels), and what was started again |
| inputs | each stream's watermark and its age; which rule waits for which stream |
| spark | drivers, and each level's micro-batches: rate, lag, state |
| streams | the event log: events, watermarks, quarantine, readers |
| situations | how many, by stream |
| sinks | where situations are delivered to, how far each target is, and what it waits for |
| processes | process nodes, and instances by status |
| channels | the ledger of every producer's epochs |
| timeline | failures and elections, on one time line |
| audit | the verdict, if there was an audit |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from unerring.app import ledgers
from unerring.app.folder import check_run, run_in
from unerring.app.inputs import WAITS_US, rules_in, waits_of, watermarks_of
from unerring.app.parts import channel_part, parts_in
from unerring.app.place import LOG, Where, place_of
from unerring.app.status.health import Health
from unerring.app.status.instances import Instances
from unerring.app.status.levels import Levels
from unerring.app.status.sinks import sinks_in
from unerring.app.status.streams import Streams
from unerring.app.status.timeline import RunTimeline
from unerring.app.status.tree import tree_of
from unerring.app.verdicts import verdict_in
from unerring.correlation import node_of
from unerring.model import SECOND_US, TIME_MAX, TIME_MIN, LogError, UnerringError
from unerring.runtime import cluster as clusters, status as live_status, without_secrets

if TYPE_CHECKING:
    from unerring.app.application import App
    from unerring.correlation import Topology


T = TypeVar("T")
_NOTED: Final = ("run", "service", "disk", "part", "input", "producer", "sink")
"""The problems that are said at the top; the others are seen where they are."""


class RunStatus:
    """Looks at one place again and again; what it has read once it does not read again."""

    def __init__(self, where: Where) -> None:
        self.place = place_of(where)
        self._check()
        self.remembered = run_in(self.place)
        self.notes: list[str] = []
        self._damaged: list[str] = []
        self.app = self._load()
        self.streams = Streams(self.place.log, self.app)
        self.levels = Levels(self.place.scratch)
        self.instances = Instances(self.actions_folder)
        self.health = Health(self.actions_folder)
        self._grown: tuple[Topology | None, dict[str, Any]] | None = None
        self.timeline = RunTimeline(dict.fromkeys(self._folders()))

    @property
    def actions_folder(self) -> Path:
        """Where the process nodes are: nodes that were started without an app have the folder to themselves."""
        return self.place.processes if self.place.processes.is_dir() or self._has_log else self.place.scratch

    def _folders(self) -> list[Path]:
        return [self.place.scratch, self.place.live, self.actions_folder]

    def _check(self) -> None:
        """A sentence, unless a run is here, or process nodes of one."""
        self._has_log = LOG in self.place.store.names("")
        local = (f"live/{clusters.FILE}", "processes/nodes.json", "nodes.json")
        scratch = self.place.scratch
        if not any((scratch / sign).exists() for sign in local) and not list(scratch.glob("*.sock")):
            check_run(self.place)

    def _load(self) -> App | None:
        """The app, for its tree and its processes; the rest of the document needs no app."""
        if self.remembered is None:
            return None
        from unerring.app.application import load

        try:
            return load(self.remembered.app)
        except UnerringError as error:
            self.notes.append(f"the app cannot be loaded here, so rules and graphs are not shown: {error}")
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            self.notes.append(f"{self.remembered.app} raises {what}, so rules and graphs are not shown")
        return None

    def look(self) -> dict[str, Any]:
        """The document as it is now."""
        now_us = time.time_ns() // 1000
        self._damaged = []
        streams = self.streams.look()
        live = self._live()
        tree = self._tree()
        known = self._inputs(tree, streams)
        behind_log(live["processes"], tree, known)
        document: dict[str, Any] = {
            "tree": tree,
            "live": live,
            "parts": parts_in(self.place.scratch),
            "spark": self.levels.look(live["processes"], known),
            "streams": streams,
            "inputs": self._waits(tree),
            "situations": self.streams.situations(now_us),
            "sinks": sinks_in(self.place),
            "processes": self.instances.look(),
            "channels": self._channels(),
            "timeline": self.timeline.look(),
            "audit": self._read_or_note(
                lambda: verdict_in(self.place), {"situations": None, "processes": None, "page": False}
            ),
        }
        # Nodes do not report the view of ended instances; the timeline has every view change.
        document["processes"]["later_views"] = self.timeline.later_views
        run = self._run(document, now_us)
        if run["state"] == "ended":
            for part in (document["live"]["processes"], document["processes"]["nodes"], document["spark"]["drivers"]):
                for process in part:
                    process["state"] = "ended"
        return {"run": run, **document}

    def _read_or_note(self, read: Callable[[], T], without: T) -> T:
        """What `read` returns; if the file is damaged, `without` and a note."""
        try:
            return read()
        except LogError as error:
            self._damaged.append(str(error))
            return without

    def _run(self, document: dict[str, Any], now_us: int) -> dict[str, Any]:
        alive = self._alive(document)
        # Its own process may be the only sign of life: on a full disk no part can write its status.
        running = bool(alive) or document["parts"]["state"] in ("running", "silent")
        document["health"] = self.health.look(document, running, len(alive), now_us)
        last_us = self.timeline.last_us
        return {
            "data": self.place.address,
            "scratch": str(self.place.scratch),
            "app": self.remembered.app if self.remembered else "",
            "name": self.app.name if self.app else self.place.address.rstrip("/").rpartition("/")[2],
            "version": self.remembered.version if self.remembered else "",
            "state": "running" if running else "ended",
            "alive": len(alive),
            "requests": document["parts"]["requests"],
            "since_us": self.timeline.first_us,
            "at_us": now_us if running or last_us is None else last_us,
            "notes": [
                *self.notes,
                *(problem["says"] for problem in document["health"]["problems"] if problem["kind"] in _NOTED),
                *self._unheard(document, now_us),
                *self._damages(),
            ],
        }

    @staticmethod
    def _alive(document: dict[str, Any]) -> list[dict[str, Any]]:
        """The processes that are there."""
        alive = [process for process in document["live"]["processes"] if process["state"] not in ("dead", "silent")]
        alive += [process for process in document["processes"]["nodes"] if process["state"] in ("running", "joining")]
        return alive + [
            process
            for process in document["spark"]["drivers"]
            if process["state"] == "running" and not process["supervised"]
        ]

    def _unheard(self, document: dict[str, Any], now_us: int) -> Iterator[str]:
        """A sentence for every channel that works for a while, and on which no producer was heard of."""
        if self.app is None or document["parts"]["state"] != "running":
            return
        heard = {account["stream"] for account in document["channels"]["accounts"]}
        working = {part["name"]: part["since_us"] for part in document["parts"]["parts"] if part["state"] == "running"}
        for stream, urls in self.app.channels.items():
            silent_us = now_us - working.get(channel_part(stream), now_us)
            if stream not in heard and silent_us >= WAITS_US:
                since = f"since {silent_us / SECOND_US:.0f} s"
                shown = " or ".join(map(without_secrets, urls))
                yield f"no producer was heard of on the channel of {stream} {since}: is one at {shown}?"

    def _damages(self) -> list[str]:
        """A sentence for each file that is not as it was written."""
        return [*self._damaged, *filter(None, (*self.timeline.damages, self.levels.damaged))]

    def _tree(self) -> dict[str, Any]:
        is_live = (self.place.live / clusters.FILE).exists()
        running = live_status.cluster_of(self.place.live).topology if is_live else None
        if self._grown is None or self._grown[0] is not running:
            self._grown = running, tree_of(self.app, running)
        return self._grown[1]

    def _inputs(self, tree: dict[str, Any], streams: dict[str, Any]) -> dict[str, int]:
        """For each rule, up to where all its inputs are known; complete inputs hold no rule up."""
        known: dict[str, int] = {}
        for node in tree["nodes"]:
            through = [stream["through_us"] for name in node["inputs"] if (stream := streams.get(name)) is not None]
            open_ones = [us for us in through if us is not None]
            if open_ones:
                known[node["name"]] = min(open_ones)
        return known

    def _waits(self, tree: dict[str, Any]) -> dict[str, Any]:
        """Health by input, of the chains as they were just looked at."""
        chains = {name: counted.chain for name, counted in self.streams.counted.items()}
        waits = waits_of(chains, rules_in(tree))
        return {"watermarks": msgspec.to_builtins(watermarks_of(chains)), "waits": msgspec.to_builtins(waits)}

    def _live(self) -> dict[str, Any]:
        folder = self.place.live
        if not (folder / clusters.FILE).exists():
            return {"processes": [], "record": None}
        records = [keeper["record"] for keeper in live_status.keepers(folder)]
        record = max(records, key=lambda record: int(record["version"]), default=None)
        return {"processes": live_status.processes(folder), "record": record}

    def _channels(self) -> dict[str, Any]:
        written = self._read_or_note(lambda: ledgers.read(self.place.scratch), ledgers.Ledgers(0, ()))
        accounts = list(msgspec.to_builtins(written.accounts))
        sums = ("published", "delivered", "declared_lost", "pending", "duplicates")
        return {
            "at_us": written.at_us or None,
            "balanced": all(account["balanced"] for account in accounts),
            **{name: sum(account[name] for account in accounts) for name in sums},
            "accounts": accounts,
            "waits": list(msgspec.to_builtins(written.waits)),
        }


def behind_log(processes: list[dict[str, Any]], tree: dict[str, Any], known: dict[str, int]) -> None:
    """A replica whose rule is too slow takes no more from its sources, and they no more from the log: how far it is
    behind, the log says."""
    rules = [(node["runs_on"], known[node["name"]]) for node in tree["nodes"] if node["name"] in known]
    for process in processes:
        node = process.get("shard_of") or node_of(process["name"])
        reached = [through_us for host, through_us in rules if host == node]
        through_us = process.get("through", TIME_MIN)
        if reached and process.get("inputs") and TIME_MIN < through_us < TIME_MAX:
            process["lag_s"] = max(process["lag_s"], (min(reached) - through_us) / SECOND_US)
