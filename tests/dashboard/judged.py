"""What a run leaves in its folder beside its log: ledgers, micro-batches, instances that were undone, verdicts. Each is
written as a run or an audit writes it, with figures that are easy to tell apart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from unerring.app import batches, ledgers
from unerring.app.process_audit import ProcessVerdict
from unerring.app.verdicts import keep, keep_processes
from unerring.audit.intake import Intake
from unerring.audit.report import PROMISES, Report, RuleVerdict
from unerring.model import Event, Persist
from unerring.processes.messages import State, Status, Step, Taken, Undone
from unerring.processes.roster import HISTORY
from unerring.runtime import timeline
from unerring.runtime.storage import SqliteStorage
from unerring.runtime.timeline import What

AT_US = 1_790_000_000_000_000
CANCELLED = "repair-Standstill-7-0"
MOVED = "repair-Standstill-8-0"
STILL_THERE = f"{MOVED}/order_parts/0@0"


def leave(data: Path, made: list[Event]) -> None:
    """All of it."""
    _channels(data)
    _micro_batches(data)
    _instances(data / "processes")
    _verdicts(data, made)


def _channels(data: Path) -> None:
    lost = (ledgers.LostRange(7, 9, "replay_full"),)
    accounts = (
        ledgers.Account("Produced", "tcp://x:1", "press", "a", 11, 0, 321, 321, 0, 0, 17, True),
        ledgers.Account("Stored", "tcp://x:2", "store", "b", 12, 40, 210, 205, 3, 2, 5, True, lost),
    )
    (data / ledgers.FILE).write_bytes(msgspec.json.encode(ledgers.Ledgers(AT_US, accounts)))


def _micro_batches(data: Path) -> None:
    for number in range(40):
        for level, rules in ((1, ("ProductionRate", "Need")), (2, ("StorageDivision",))):
            batches.note(
                data,
                batches.Batch(
                    at_us=AT_US + number * 1_000_000,
                    driver=batches.DRIVER,
                    level=level,
                    rules=rules,
                    batch=number,
                    took_s=1.0,
                    events=100 * level + number,
                    situations={},
                    through_us=number * 1_000_000,
                    lag_s=float(number % 7),
                    keys=20 + number,
                    state_bytes=1000 * level + number,
                ),
            )


def _instances(folder: Path) -> None:
    """One that was cancelled and undone, and one that went on in a second view, whose first one was undone."""
    from factory.processes import repair

    def taken(instance: str, view: int) -> tuple[Taken, ...]:
        done = [(name, f"{instance}/{name}/0@{view}") for name in ("make_room", "order_parts")]
        return tuple(Taken(name, iid, {}, f"{name} done", True, 1, view, False, 2500) for name, iid in done)

    version = repair.graph.version
    first, second = taken(CANCELLED, 0), taken(MOVED, 1)
    undone = tuple(Undone(one.vertex, one.iid, 4000) for one in reversed(first))
    gone = State(CANCELLED, "repair", version, 1, (Step(0, (1,), "n0/processes", AT_US),), (), {"facility": "F"}, first)
    gone = msgspec.structs.replace(gone, status=Status.CANCELLED, reason="cancelled", undone=undone)
    moved = State(MOVED, "repair", version, 1, (Step(1, (1,), "n1/processes", AT_US),), (), {"facility": "G"}, second)
    moved = msgspec.structs.replace(moved, status=Status.COMPLETED)
    storage = SqliteStorage(folder / "n0.db")
    puts = tuple((f"{one.instance}|{HISTORY}", msgspec.msgpack.encode(one)) for one in (gone, moved))
    storage.write([Persist(puts)])
    storage.close()
    timeline.note(folder, "n1", What.VIEW, f"{MOVED}: n1/processes asks for view 1: nobody leads")
    timeline.note(folder, "n0", What.UNDOES, f"{MOVED}: group 1 of view 0: {STILL_THERE}")


def _verdicts(data: Path, made: list[Event]) -> None:
    counts = Counter(event.stream for event in made)
    rules = tuple(
        RuleVerdict(name, name, "live", "v1", 0, AT_US, AT_US, count, count, dict.fromkeys(PROMISES, 0))
        for name, count in sorted(counts.items())
    )
    intake = (Intake("Produced", "press", 11, 1, 321, 321, {}, 0, 0, 0),)
    keep(Report("factory", str(data), 0, AT_US, rules, intake, events={"Produced": 321}), data)
    keep_processes(ProcessVerdict({"completed": 1, "cancelled": 1}, 7, (), (), ()), data)
