"""The correlation paper: f+1 active replicas of every node; a situation is delivered once although f of them fail.

| module | idea |
|---|---|
| topology, record | query trees over nodes; who the replicas are |
| incoming, intake | the duplicate filter that sees gaps; acks, credit, asking again |
| engine | what correlates |
| queue, outgoing | what is not yet received by all; pruning, credit, serving |
| election, detector | who sends |
| join, snapshot, membership | coming back, and the record that says so |
| journal | durable mode |
| replica, source, application | the machines |
"""

from unerring.correlation.application import Application
from unerring.correlation.config import CorrelationConfig
from unerring.correlation.engine import Engine, Fed, HandOver, Hosting
from unerring.correlation.membership import Membership
from unerring.correlation.replica import Replica
from unerring.correlation.source import Source
from unerring.correlation.topology import NodeSpec, Role, Topology

__all__ = [
    "Application",
    "CorrelationConfig",
    "Engine",
    "Fed",
    "HandOver",
    "Hosting",
    "Membership",
    "NodeSpec",
    "Replica",
    "Role",
    "Source",
    "Topology",
]
