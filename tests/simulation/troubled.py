"""Scenarios that go wrong, for the tests of a night."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from counter import Counting, HastyServer

from unerring.audit import Violation
from unerring.simulation import World


class Wrong(Counting):
    """A protocol with a mistake."""

    server = HastyServer


class Hanging(Counting):
    """One seed of ten never ends."""

    def safety(self, world: World) -> Iterable[Violation]:
        if world.seed % 10 == 3:
            threading.Event().wait()
        return super().safety(world)


class Dying(Counting):
    """One seed of ten takes its process with it."""

    def safety(self, world: World) -> Iterable[Violation]:
        if world.seed % 10 == 3:
            os._exit(9)
        return super().safety(world)
