"""Live replicas after an upgrade of a run that was stopped for it, and upgraded on its log:
they begin anew at the agreed time, with the states that every rule has there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unerring.app.place import Place
from unerring.audit import moment
from unerring.log import LocalStore
from unerring.model import ConfigError
from unerring.runtime import cluster, find

if TYPE_CHECKING:
    from unerring.app.application import App

TREE = "live.json"
"""On an object store: the query tree of a run's live nodes."""


def upgraded_us(run: Place, app: App) -> int | None:
    """The time from which replicas of an app begin whose rules took over in a run: the agreed one, or a later one of
    which retention kept all states. None: the run began with these rules."""
    from unerring.app.editions import edition, same_rules
    from unerring.pipeline import FIRST, agreed_upgrades, current, edition_of, savepoints

    known = current(run.log)
    if known is None or known.number == FIRST or not same_rules(edition(app), edition_of(known)):
        return None
    at_us = agreed_upgrades(run.log)[known.number - 1].at_us
    kept = set.intersection(*(set(savepoints.times(level)) for level in app.levels(run)))
    usable = [time_us for time_us in kept if time_us >= at_us]
    if not usable:
        raise ConfigError(
            f"the rules of app {app.name} took over in {run} at {moment(at_us)}, while it ran on Spark, and no states "
            "of all of them were kept; run it with --engine spark"
        )
    return min(usable)


def set_aside(run: Place, at_us: int) -> None:
    """Put the files of replicas away that ran the rules before an upgrade: all that they found is in the log."""
    folder = run.live
    if not (folder / cluster.FILE).exists():
        return
    existing = cluster.read(folder)
    if existing.begins_us >= at_us:
        return
    alive = [name for name in existing.names if find(folder, name) is not None]
    if alive:
        raise ConfigError(f"{alive[0]} of the old rules still runs in {folder}; stop that run first")
    if not isinstance(run.store, LocalStore):
        run.store.delete(TREE)
    folder.rename(folder.with_name(f"{folder.name}-until-{at_us}"))
