"""Large values: a variable that holds a reference, while the value itself is in a store, named by its content."""

from __future__ import annotations

import msgspec

from unerring.processes.build import Process


class Large(msgspec.Struct, frozen=True):
    """The type of a variable whose values are too large for a state. Requests and functions get the value itself."""

    sha256: str = msgspec.field(default="", name="unerring-large")
    """Of the value as JSON. Empty: there is none yet."""
    bytes: int = 0


def large_variables(process: Process) -> frozenset[str]:
    """The variables of this type."""
    return frozenset(name for name, kind in process.types.items() if kind is Large)


class Kept(msgspec.Struct, frozen=True):
    """For the application: the outcome and the history of an instance that has ended are on this node's disk."""

    instance: str


class Forgotten(msgspec.Struct, frozen=True):
    """For the application: a node keeps nothing more of an instance that has ended."""

    instance: str
