"""The verdict on a run of the factory: promises 1 to 3, each with its figures, and that both engines say the same.

    python -m unerring.app.demo.verdict FOLDER [STORE]

judges a kept run once more. The audits run on Spark; their progress goes to standard error, the verdict is one JSON
object on standard output.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.app.application import App, load
from unerring.app.demo.folders import RunFolder, effects_in, runs_in
from unerring.app.place import Place
from unerring.audit import PROMISES, Report
from unerring.model import verified_json
from unerring.tracing import ask_for

APP: Final = "factory.app:app"
PUBLISHED: Final = "published.json"
"""The file, in the demo's folder, with the number of events that the plant has published."""
LAST: Final = {"relieve": "tell_management", "repair": "tell_customers"}
"""The effect with which each process ends, once."""


class EngineVerdict(msgspec.Struct, frozen=True):
    """What the audit found of one engine's log."""

    events: int
    lost: int
    """Declared lost."""
    delivered: dict[str, int]
    perfect: dict[str, int]
    violations: list[str]
    intake_violations: list[str]
    line_violations: list[str] = []
    """Between its situations and the processes that they start."""


class FactoryVerdict(msgspec.Struct, frozen=True):
    """Empty lists of violations: the promise was kept."""

    published: int
    engines: dict[str, EngineVerdict]
    differences: list[str]
    """Between the engines."""
    instances: dict[str, int]
    """Process instances, by status."""
    interactions: int
    effects: dict[str, int]
    process_violations: list[str]

    @property
    def channels(self) -> list[str]:
        """Published = delivered + declared lost, and every number accounted for."""
        wrong = [f"{name}: {one}" for name, engine in self.engines.items() for one in engine.intake_violations]
        return wrong + [
            f"{name}: {self.published:,} published, {engine.events:,} in the log, {engine.lost:,} declared lost"
            for name, engine in self.engines.items()
            if engine.events + engine.lost != self.published
        ]

    @property
    def correlation(self) -> list[str]:
        violations = [f"{name}: {one}" for name, engine in self.engines.items() for one in engine.violations]
        return violations + self.differences

    @property
    def holds(self) -> bool:
        return not (self.channels or self.correlation or self.process_violations)


def judge(folder: Path, say: Callable[[str], Any], data: str = "") -> FactoryVerdict:
    """The whole verdict on a run that has ended."""
    app = load(APP)
    live, spark = (RunFolder(place) for place in runs_in(data or str(folder), folder))
    engines = _audited(app, {"live": live.place, "spark": spark.place}, say)
    say("comparing the engines")
    differences = _differences(app, live, spark)
    say("comparing what the services did with what was decided, and with the situations")
    from unerring.app.process_audit import audit_processes
    from unerring.app.verdicts import keep_processes

    services = folder / "services"
    journals = [str(path) for path in sorted(services.glob("*.sqlite"))]
    audited = audit_processes(live.place.processes, app.versions, journals)
    keep_processes(audited, live.place)
    wrong = [f"{name}: {one}" for name, engine in engines.items() for one in engine.line_violations]
    wrong += [str(violation) for violation in audited.violations]
    wrong += [f"{instance} is not settled" for instance in audited.unsettled]
    wrong += [f"{action} was not compared with any journal" for action in audited.unseen]
    return FactoryVerdict(
        published=verified_json((folder / PUBLISHED).read_bytes(), int, str(folder / PUBLISHED)),
        engines=engines,
        differences=differences,
        instances=audited.instances,
        interactions=audited.interactions,
        effects=effects_in(services),
        process_violations=wrong + _actions_wrong(live.wanted(app), services),
    )


def _audited(app: App, runs: dict[str, Place], say: Callable[[str], Any]) -> dict[str, EngineVerdict]:
    from unerring.app.auditing import Audit
    from unerring.app.verdicts import keep
    from unerring.pipeline import SparkConfig, start

    verdicts: dict[str, EngineVerdict] = {}
    audits = {name: Audit(app, place) for name, place in runs.items()}
    say("Spark starts once more, for the audit")
    log = str(next(iter(runs.values())).scratch.parent / "audit-spark.log")
    spark = start(SparkConfig(memory="1g", log=log, quick=True), "audit of the demo")
    try:
        for name, audit in audits.items():
            say(f"recomputing the perfect run from the log of {name}")
            report = audit.run(spark)
            keep(report, runs[name])
            verdicts[name] = _of(report)
    finally:
        spark.stop()
    return verdicts


def _of(report: Report) -> EngineVerdict:
    return EngineVerdict(
        events=sum(report.events.values()),
        lost=sum(one.lost for one in report.intake),
        delivered={rule.stream: rule.delivered for rule in report.rules},
        perfect={rule.stream: rule.perfect for rule in report.rules},
        violations=[
            f"{rule.stream}: {count} {PROMISES[promise]}"
            for rule in report.rules
            for promise, count in rule.counts.items()
            if count
        ],
        intake_violations=[str(violation) for violation in report.intake_violations],
        line_violations=[str(violation) for violation in report.line_violations],
    )


def _differences(app: App, live: RunFolder, spark: RunFolder) -> list[str]:
    """Situations that one engine gave and the other did not: stamps, order and payloads."""
    wrong = []
    for schema in app.outputs:
        ours, theirs = live.delivered(schema.name), spark.delivered(schema.name)
        if ours != theirs:
            wrong.append(f"{schema.name}: live gave {len(ours):,} and Spark {len(theirs):,}, and they are not the same")
    return wrong


def _actions_wrong(wanted: dict[str, str], services: Path) -> list[str]:
    """Every situation that asks for a process has the effects of one; nothing else has any."""
    from factory.services import OPERATIONS, journal  # type: ignore[import-not-found]

    effects = [effect for name in OPERATIONS for effect in journal(services, name) if not effect.undone]
    done = Counter((effect.instance, effect.operation) for effect in effects)
    wrong = [f"{one}: {operation} was done {count} times" for (one, operation), count in done.items() if count > 1]
    wrong += [f"{one}: nothing was done" for one, process in wanted.items() if not done[one, LAST[process]]]
    wrong += sorted({f"{one} was started by no situation" for one, _ in done if one not in wanted})
    return wrong


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    os.environ.setdefault("FACTORY_SERVICES", "http://127.0.0.1:1")
    ask_for(0.0)  # what is recomputed is on no event's way
    verdict = judge(folder, lambda text: sys.stderr.write(f"{text}\n"), *sys.argv[2:3])
    sys.stdout.write(msgspec.json.encode(verdict).decode() + "\n")


if __name__ == "__main__":
    main()
