"""The rules of a live run's processes, by the editions on its store: they do not depend on what a module holds now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unerring.correlation import NodeSpec, Switch, Topology
from unerring.log import EventLog
from unerring.model import StreamSchema

if TYPE_CHECKING:
    from unerring.app.application import App
    from unerring.pipeline import Edition
    from unerring.rules import Plan


def agreed_switch(log: EventLog) -> Switch | None:
    """When the rules of the last upgrade take over. A source looks here after it has looked how far the log is, and
    before it hands that on: an upgrade that is ready later takes over after that."""
    from unerring.pipeline import agreed_upgrades

    agreed = agreed_upgrades(log)
    return Switch(agreed[-1].number, agreed[-1].at_us) if agreed else None


class LiveRules:
    """Of a run that was begun by an app, and perhaps upgraded since."""

    def __init__(self, log: EventLog, app: App) -> None:
        self._log = log
        self._app = app

    @property
    def editions(self) -> list[Edition]:
        from unerring.app.editions import edition
        from unerring.pipeline import edition_of, proposals

        return [edition_of(one) for one in proposals(self._log)] or [edition(self._app)]

    def plans(self, node: NodeSpec, topology: Topology) -> list[Plan]:
        """The rules of a node, in the order of its app."""
        from unerring.pipeline import current

        editions, known = self.editions, current(self._log)
        number = topology.upgrade - topology.is_ending(node)
        if not topology.upgrade and known is not None:  # a run that began, or was stopped and begun anew, with these
            number = known.number
        own = editions[min(number, len(editions) - 1)].plans
        return [plan for plan in own if plan.outputs[0].name in topology.made(node.name)]

    def schema(self, stream: str) -> StreamSchema:
        """Of a stream that a rule makes."""
        return next(one.outputs[stream] for one in reversed(self.editions) if stream in one.outputs)

    def versions(self, stream: str, from_us: int, through_us: int) -> Iterator[tuple[int, str]]:
        """The rules that make an interval of a stream: each with the time up to which it does."""
        from unerring.pipeline import agreed_upgrades

        editions, ends = self.editions, [agreed.at_us for agreed in agreed_upgrades(self._log)]
        for number, edition in enumerate(editions):
            end_us = min(ends[number], through_us) if number < len(ends) else through_us
            maker = edition.maker(stream)
            if end_us > from_us:
                yield end_us, "" if maker is None else maker.version
                from_us = end_us
