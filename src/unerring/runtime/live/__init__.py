"""The live gear: one operating-system process for each replica, source and application, and a supervisor over them."""

from unerring.runtime.live.cluster import Cluster, free_addresses
from unerring.runtime.live.hosting import Host
from unerring.runtime.live.supervisor import Supervisor

__all__ = ["Cluster", "Host", "Supervisor", "free_addresses"]
