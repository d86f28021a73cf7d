"""What instances did, as a stream of the event log: one event for each action, so that Spark can analyse it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from unerring.log import Chain, EventLog, with_origin
from unerring.model import schema_of
from unerring.processes import ProcessAction

if TYPE_CHECKING:
    import pyarrow as pa

ENDED: Final = ("completed", "cancelled", "failed", "parked")


def export(histories: Iterable[Mapping[str, Any]], log: EventLog) -> int:
    """Append what is not there yet, of instances that have ended and did something; how many instances. An event's
    time is its instance's end, or just after the last one that was exported."""
    chain = log.create(schema_of(ProcessAction), 1)
    ended = [told for told in histories if told["status"] in ENDED and _did(told)]
    while True:
        chain.refresh()
        there = set(
            chain.read(chain.base.from_us, chain.through_us, columns=["instance"]).column("instance").to_pylist()
        )
        fresh = [told for told in ended if told["instance"] not in there]
        if not fresh or _append(chain, fresh):
            return len(fresh)


def _append(chain: Chain, fresh: list[Mapping[str, Any]]) -> bool:
    """False: another export was faster, and may have brought some of these."""
    rows: list[dict[str, Any]] = []
    last_us = chain.through_us
    for told in sorted(fresh, key=lambda told: (_ended_us(told), told["instance"])):
        last_us = max(last_us + 1, _ended_us(told))
        rows += [{"time": last_us, "ordinal": number} | row for number, row in enumerate(_rows(told))]
    return chain.seal(last_us, with_origin(_table(rows), chain.schema)).won


def _did(told: Mapping[str, Any]) -> bool:
    return any(group["actions"] for group in told["groups"])


def _ended_us(told: Mapping[str, Any]) -> int:
    return int(told["groups"][-1]["at_us"])


def _rows(told: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    undone = {one["iid"]: one["took_us"] for one in told["undone"]}
    for group in told["groups"]:
        for action in group["actions"]:
            yield {
                "instance": told["instance"],
                "process": told["process"],
                "version": told["version"],
                "status": told["status"],
                "action": action["vertex"],
                "iid": action["iid"],
                "master": group["master"],
                "group": group["group"],
                "view": group["view"],
                "write": action["write"],
                "took_us": action["took_us"],
                "undo_us": undone.get(action["iid"]),
                "done_us": group["at_us"],
                "ended_us": _ended_us(told),
            }


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    columns = ["time", "ordinal", *(column.name for column in schema_of(ProcessAction).columns)]
    kinds = {"write": pa.bool_(), "undo_us": pa.int64()}
    return pa.table({name: pa.array([row[name] for row in rows], kinds.get(name)) for name in columns})
