"""A live run whose rules change while it runs: under load, with a replica killed in between."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.app import tree_app
from tests.app.editions import sealed, wanted
from tests.app.live_tree import APART_US, LiveRun, readings
from unerring.app import RunOptions, agree_on_upgrade, live_cluster, place_of
from unerring.app.folder import remember
from unerring.app.live_upgrade import LiveUpgrade
from unerring.app.upgrading import note_first
from unerring.runtime import make_certificates

EVENTS = 20_000
"""More than are needed."""


class Upgraded(LiveRun):
    """With TLS, so that processes that come get certificates, too."""

    done = False
    tls = ""

    async def upgrade(self, tmp_path: Path) -> int:
        place = place_of(tmp_path)
        running = asyncio.create_task(self.supervisor.run())
        feeding = asyncio.create_task(self._feed_on())
        options = RunOptions(engine="live", tls=self.tls)
        certify = partial(live_cluster.certify, options=options, app="tree")
        step = LiveUpgrade(place, self.supervisor, 1, lambda callback: callback(), print, certify)
        try:
            await self.until(lambda: all(self.log(s).refresh() > self.events[10].stamp.time for s in self.streams))
            kept = self.supervisor.processes["Rate/0"].pid
            under_way = agree_on_upgrade(place, "tests.app.tree_app:wider", tree_app.wider, prepared=True)
            await self.until(lambda: bool(step.look()) or "Steps-1/0" in self.supervisor.processes)
            await self.until(lambda: self.status("Steps-1/1").get("phase") == "MEMBER")
            os.kill(self.supervisor.processes["Steps-1/1"].pid, signal.SIGKILL)
            await self.until(lambda: bool(step.look()))
            step.conclude()
            self.done = True
            await feeding
            self.end()
            await self.until(self.sealed)
            assert self.supervisor.processes["Rate/0"].pid == kept
            nodes = {name.partition("/")[0] for name in self.supervisor.processes}
            assert sorted(nodes) == ["Peaks", "Rate", "Steps-1", "situations", "source_Reading"]
        finally:
            feeding.cancel()
            self.supervisor.stop()
            await running
        return under_way.at_us

    async def _feed_on(self) -> None:
        """As fast as time goes by, until a while after the upgrade."""
        fed = rest = 0
        while rest < 20:
            self.feed(self.events[fed : fed + 4])
            fed += 4
            rest += self.done
            await asyncio.sleep(4 * APART_US / 1e6)
        del self.events[fed:]


@pytest.mark.timeout(600)
def test_rules_change_while_it_runs(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    remember(place, "tests.app.tree_app:app")
    make_certificates(tmp_path / "ca", [])
    live = Upgraded(tmp_path, "tests.app.tree_app:app", readings(EVENTS), tls=str(tmp_path / "ca"))
    live.tls = str(tmp_path / "ca")
    note_first(place, "tests.app.tree_app:app", tree_app.app)
    at_us = asyncio.run(live.upgrade(tmp_path))
    assert live.events[0].stamp.time < at_us < live.events[-1].stamp.time
    for stream, situations in wanted(tree_app.app, tree_app.wider, live.events, at_us).items():
        assert sealed(place.log, stream) == situations
        assert situations[-1].stamp.time > at_us
