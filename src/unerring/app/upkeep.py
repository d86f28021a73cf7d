"""Keeping a run's log small while it runs: small segments are merged, and what retention lets go is removed.

One thread does both, in the process that has the log. It is not needed for events to flow: a log that nobody compacts
only costs more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from unerring.app.by_turn import Turn, always
from unerring.app.live_needs import needs_of, retained_levels
from unerring.app.parts import Parts
from unerring.app.place import Place
from unerring.log import CompactionConfig, Compactor
from unerring.model import UnerringError

if TYPE_CHECKING:
    from unerring.app.application import App

PART: Final = "upkeep of the log"
LOOK_S: Final = 10.0
STORE_LOOK_S: Final = 60.0


class Upkeep:
    """A part of a run."""

    def __init__(
        self,
        app: App,
        place: Place,
        parts: Parts,
        say: Callable[[str], Any],
        config: CompactionConfig | None = None,
        look_s: float | None = None,
        turn: Turn = always,
    ) -> None:
        self._turn = turn
        self._app = app
        self._place = place
        self._parts = parts
        self._say = say
        self._config = config
        self._look_s = look_s or (LOOK_S if place.is_folder else STORE_LOOK_S)
        self._compactors: dict[str, Compactor] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, say: Callable[[str], None]) -> None:
        self._thread = threading.Thread(
            target=self._parts.keep, args=(PART, self._run, self._stopping), name="upkeep", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Nothing to do: it reports its failures itself."""

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        said = ""
        on = False
        while not self._stopping.wait(self._look_s):
            on = self._turn(on)
            if not on:
                continue
            try:
                self.compact()
                self.retain()
                said = ""
            except UnerringError as error:  # events flow without it, so it ends nothing
                if said != str(error):
                    said = str(error)
                    self._say(f"{PART} failed and is tried again: {said}")

    def compact(self) -> None:
        """Merge what there is to merge, of every stream."""
        log = self._place.log
        for schema in (*self._app.streams, *self._app.outputs):
            if schema.name not in self._compactors and log.declaration(schema.name) is not None:
                self._compactors[schema.name] = Compactor(log.chain(schema.name), self._config)
        for compactor in self._compactors.values():
            while not self._stopping.is_set() and compactor.step():
                pass

    def retain(self) -> None:
        """Remove what is older, or more, than the app keeps. A savepoint of every rule is made first, so that an audit
        and a new query have where to start from."""
        from unerring.pipeline import retain_here

        if self._app.retention is None:
            return
        levels = retained_levels(self._app, self._place)
        removed = retain_here(levels, self._app.retention, needs_of(self._place))
        gone = {stream: count for stream, count in removed.items() if count}
        if gone:
            self._say("retention removed " + ", ".join(f"{count:,} segments of {name}" for name, count in gone.items()))
