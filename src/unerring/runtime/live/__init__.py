"""The live engine: an operating-system process for each replica, source and application, and their supervisor."""

from unerring.runtime.live.cluster import Cluster
from unerring.runtime.live.hosting import Host
from unerring.runtime.live.placement import (
    Facts,
    Strategy,
    addresses_on,
    balanced,
    free_addresses,
    place,
    process_names,
)
from unerring.runtime.live.supervisor import LiveSupervisor

__all__ = [
    "Cluster",
    "Facts",
    "Host",
    "LiveSupervisor",
    "Strategy",
    "addresses_on",
    "balanced",
    "free_addresses",
    "place",
    "process_names",
]
