"""The levels of a run on Spark: what its micro-batches did, and who drives them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from unerring.app.batches import DRIVER, Batch, Batches
from unerring.model import SECOND_US, TIME_MAX
from unerring.runtime import find

RECENT_MAX: Final = 120
PIDS: Final = "pids"


class Levels:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._batches = Batches(folder)

    @property
    def damaged(self) -> str:
        """A sentence, once a damaged line of the micro-batches was passed over."""
        return self._batches.damaged

    def look(self, processes: list[dict[str, Any]], inputs: Mapping[str, int]) -> dict[str, Any]:
        """`processes`: those of the live engine, whose supervisor several drivers share. `inputs`: up to where the
        inputs of a rule are known by now, which may be further than its last batch found them."""
        self._batches.look()
        levels = [self._level(*one) for one in sorted({(whose.number, whose.unkeyed) for whose in self._batches.kept})]
        for level in levels:
            known = [inputs[rule] for rule in level["rules"] if rule in inputs]
            if known and level["through_us"] is not None:
                level["lag_s"] = max(0.0, (min(known) - level["through_us"]) / SECOND_US)
        return {"drivers": self._drivers(processes), "levels": levels}

    def _drivers(self, processes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        drivers: list[dict[str, Any]] = []
        for status in processes:
            if "driver" in status:
                kept = {name: status.get(name) for name in ("name", "state", "pid", "leads", "elections", "refused")}
                driver = {name: status["driver"][name] for name in ("jvm", "sealed", "held")}
                drivers.append({**kept, **driver, "supervised": True})
        names = sorted(path.name for path in (self._folder / PIDS).glob(DRIVER))
        for name in names:
            process = find(self._folder, name)
            drivers.append({"name": name, "state": "dead", "pid": None, "supervised": False})
            if process is not None:
                drivers[-1] |= {"state": "running", "pid": process.pid}
        return drivers

    def _level(self, number: int, unkeyed: bool) -> dict[str, Any]:
        """The level's section, from the driver that is furthest."""
        batches = self._batches
        own = {whose: kept[-1] for whose, kept in batches.kept.items() if whose[:2] == (number, unkeyed)}
        whose = max(own, key=lambda one: (own[one].through_us, own[one].at_us))
        last = own[whose]
        return {
            "number": number,
            "unkeyed": unkeyed,
            "rules": list(last.rules),
            "batches": batches.count[whose],
            "events": batches.events[whose],
            "driver": last.driver,
            "batch": last.batch,
            "took_s": last.took_s,
            "events_per_s": _rate(batches.kept[whose]),
            "through_us": last.through_us if last.through_us < TIME_MAX else None,
            "complete": last.through_us == TIME_MAX,
            "lag_s": last.lag_s,
            "keys": last.keys,
            "state_bytes": last.state_bytes,
            "recent": [_point(batch) for batch in batches.kept[whose][-RECENT_MAX:]],
        }


def _rate(kept: list[Batch]) -> float | None:
    """Over the last ten batches: one alone says little."""
    last = kept[-10:]
    took_s = sum(batch.took_s for batch in last)
    return sum(batch.events for batch in last) / took_s if took_s > 0 else None


def _point(batch: Batch) -> dict[str, Any]:
    return {
        "at_us": batch.at_us,
        "took_s": batch.took_s,
        "events": batch.events,
        "lag_s": batch.lag_s,
        "keys": batch.keys,
        "state_bytes": batch.state_bytes,
    }
