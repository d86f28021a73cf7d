"""Which process each situation of a stream starts, and under which id: one situation starts exactly one instance."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from unerring.model import Event, Stamp


class Reaction(msgspec.Struct, frozen=True):
    """A situation's stream, the process that each of its situations starts, and which column gives which variable."""

    situation: str
    process: str
    given: tuple[tuple[str, str], ...]

    @property
    def reader(self) -> str:
        """The name under which positions are committed."""
        return reader_of(self.process)

    def instance(self, situation: Event) -> str:
        """The id of what this situation starts."""
        return f"{self.process}-{self.situation}-{situation.stamp.time}-{situation.stamp.ordinal}"

    def stamp_of(self, instance: str) -> Stamp | None:
        """The stamp of the situation that starts the instance of this id; None: it is none of this reaction."""
        match = re.fullmatch(rf"{re.escape(f'{self.process}-{self.situation}')}-(-?[0-9]+)-([0-9]+)", instance)
        return Stamp(int(match[1]), int(match[2])) if match else None

    def values(self, situation: Event) -> dict[str, Any]:
        """The input of the instance."""
        return {variable: situation.payload[column] for variable, column in self.given}


def reader_of(process: str) -> str:
    """The name under which the positions of what starts a process are committed."""
    return f"starts-{process}"
