"""What instances did, as a stream of the event log: one event for each action, so that Spark can analyse it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from unerring.log import Chain, EventLog, with_origin
from unerring.model import schema_of
from unerring.processes import VIEW_CHANGE, ProcessAction

if TYPE_CHECKING:
    import pyarrow as pa

ENDED: Final = ("completed", "cancelled", "failed", "parked")


def export(
    histories: Iterable[Mapping[str, Any]], log: EventLog, view_changes: Iterable[Mapping[str, Any]] = ()
) -> int:
    """Append what is not there yet, of instances that have ended and did something, and view changes; how many
    instances. An event's time is its instance's end, or just after the last one that was exported."""
    chain = log.create(schema_of(ProcessAction), 1)
    ended = [history for history in histories if history["status"] in ENDED and _did(history)]
    ended += [_as_history(change) for change in view_changes]
    while True:
        chain.refresh()
        exported = set(
            chain.read(chain.base.from_us, chain.through_us, columns=["instance"]).column("instance").to_pylist()
        )
        fresh = [history for history in ended if history["instance"] not in exported]
        if not fresh or _append(chain, fresh):
            return sum(bool(history["process"]) for history in fresh)


def _append(chain: Chain, fresh: list[Mapping[str, Any]]) -> bool:
    """False: another export was faster, and may have brought some of these."""
    rows: list[dict[str, Any]] = []
    last_us = chain.through_us
    for history in sorted(fresh, key=lambda history: (_ended_us(history), history["instance"])):
        last_us = max(last_us + 1, _ended_us(history))
        rows += [{"time": last_us, "ordinal": number} | row for number, row in enumerate(_rows(history))]
    return chain.seal(last_us, with_origin(_table(rows), chain.schema)).won


def _as_history(change: Mapping[str, Any]) -> dict[str, Any]:
    """A view change, as an instance of no process with one action."""
    node, at_us, took_us = change["node"], change["at_us"], change["took_us"]
    action = {"vertex": VIEW_CHANGE, "iid": f"{node} {at_us}", "write": False, "took_us": took_us}
    group = {"actions": [action], "master": node, "group": 0, "view": 0, "at_us": at_us}
    known = {"instance": f"{VIEW_CHANGE} {node} {at_us}", "process": "", "version": "", "status": "completed"}
    return {**known, "groups": [group], "undone": []}


def _did(history: Mapping[str, Any]) -> bool:
    return any(group["actions"] for group in history["groups"])


def _ended_us(history: Mapping[str, Any]) -> int:
    return int(history["groups"][-1]["at_us"])


def _rows(history: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    undone = {one["iid"]: one["took_us"] for one in history["undone"]}
    for group in history["groups"]:
        for action in group["actions"]:
            yield {
                "instance": history["instance"],
                "process": history["process"],
                "version": history["version"],
                "status": history["status"],
                "action": action["vertex"],
                "iid": action["iid"],
                "master": group["master"],
                "group": group["group"],
                "view": group["view"],
                "write": action["write"],
                "took_us": action["took_us"],
                "undo_us": undone.get(action["iid"]),
                "done_us": group["at_us"],
                "ended_us": _ended_us(history),
            }


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    columns = ["time", "ordinal", *(column.name for column in schema_of(ProcessAction).columns)]
    kinds = {"write": pa.bool_(), "undo_us": pa.int64()}
    return pa.table({name: pa.array([row[name] for row in rows], kinds.get(name)) for name in columns})
