"""The correlation paper: f+1 active replicas of every node; a situation is delivered once although f of them fail.

| module | idea |
|---|---|
| topology, record | query trees over nodes; who the replicas are |
| shards | nodes divided by key: streams cut and put together again |
| incoming, intake | the duplicate filter that sees gaps; acks, credit, asking again |
| engine, handed | what correlates, and what an engine that works on its own time hands over |
| queue, outgoing | what is not yet received by all; pruning, credit, serving |
| election, detector | who sends |
| entering, join, snapshot, membership | coming back, and the record that says so |
| journal | durable mode |
| rearranging | old and new nodes side by side, then the new ones alone |
| switching, course | the time at which nodes take over that came with an upgrade, and under which names streams come |
| replica, source, application | the machines |
"""

from unerring.correlation.application import Application, committed, moved, numbered, position_of
from unerring.correlation.config import CorrelationConfig
from unerring.correlation.course import Course
from unerring.correlation.dead_links import DeadLinks
from unerring.correlation.election import Election
from unerring.correlation.engine import Engine, Fed, HandOver, Hosting
from unerring.correlation.incoming import Incoming, Taken, Verdict
from unerring.correlation.intake import Intake
from unerring.correlation.join import Join
from unerring.correlation.journal import STATE_KEY, Journal, handed_after
from unerring.correlation.membership import KEY, Membership, Watcher
from unerring.correlation.messages import (
    ENGINE,
    MEMBERSHIP,
    OPERATOR,
    SEALER,
    STORE,
    Ack,
    AskAcks,
    Batch,
    Candidate,
    Elected,
    Evict,
    Forget,
    Gossip,
    LeaderDead,
    Produced,
    Publish,
    ReadRecord,
    Receipt,
    RecordIs,
    Resume,
    Switch,
    Vote,
    WaitsFor,
    codec,
    is_keeper,
)
from unerring.correlation.outgoing import Outgoing, StreamPosition
from unerring.correlation.queue import Queue
from unerring.correlation.rearranging import after_of, alone, before_of, founded, is_that, side_by_side
from unerring.correlation.record import Member, Record, Standing, node_of
from unerring.correlation.replica import Replica
from unerring.correlation.shards import Sharding, outputs_of, sharded
from unerring.correlation.snapshot import Snapshot
from unerring.correlation.source import PRODUCER, Source, kept_key, needs_after
from unerring.correlation.switching import AskLog, FromLog, Lane, Rearrange, Span, is_ahead, lane_of, lanes_at
from unerring.correlation.topology import NodeSpec, Part, Role, Topology

__all__ = [
    "ENGINE",
    "KEY",
    "MEMBERSHIP",
    "OPERATOR",
    "PRODUCER",
    "SEALER",
    "STATE_KEY",
    "STORE",
    "Ack",
    "Application",
    "AskAcks",
    "AskLog",
    "Batch",
    "Candidate",
    "CorrelationConfig",
    "Course",
    "DeadLinks",
    "Elected",
    "Election",
    "Engine",
    "Evict",
    "Fed",
    "Forget",
    "FromLog",
    "Gossip",
    "HandOver",
    "Hosting",
    "Incoming",
    "Intake",
    "Join",
    "Journal",
    "Lane",
    "LeaderDead",
    "Member",
    "Membership",
    "NodeSpec",
    "Outgoing",
    "Part",
    "Produced",
    "Publish",
    "Queue",
    "ReadRecord",
    "Rearrange",
    "Receipt",
    "Record",
    "RecordIs",
    "Replica",
    "Resume",
    "Role",
    "Sharding",
    "Snapshot",
    "Source",
    "Span",
    "Standing",
    "StreamPosition",
    "Switch",
    "Taken",
    "Topology",
    "Verdict",
    "Vote",
    "WaitsFor",
    "Watcher",
    "after_of",
    "alone",
    "before_of",
    "codec",
    "committed",
    "founded",
    "handed_after",
    "is_ahead",
    "is_keeper",
    "is_that",
    "kept_key",
    "lane_of",
    "lanes_at",
    "moved",
    "needs_after",
    "node_of",
    "numbered",
    "outputs_of",
    "position_of",
    "sharded",
    "side_by_side",
]
