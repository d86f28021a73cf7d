"""The event log: streams as contiguous chains of sealed segments; quarantine; positions; files brought in."""

from unerring.log.buckets import bucket_of, buckets_of
from unerring.log.chain import Base, Chain, Sealed, Span
from unerring.log.eventlog import BUCKETS, EventLog
from unerring.log.ingest import IngestConfig, Ingested, ingest
from unerring.log.positions import Positions
from unerring.log.quarantine import BadEvent, Quarantine, Reason
from unerring.log.resets import Resets
from unerring.log.segments import Footer, arrow_schema, with_origin
from unerring.log.store import LocalStore, MemoryStore, Store, local_folder
from unerring.log.writer import LogWriter, WriterConfig

__all__ = [
    "BUCKETS",
    "BadEvent",
    "Base",
    "Chain",
    "EventLog",
    "Footer",
    "IngestConfig",
    "Ingested",
    "LocalStore",
    "LogWriter",
    "MemoryStore",
    "Positions",
    "Quarantine",
    "Reason",
    "Resets",
    "Sealed",
    "Span",
    "Store",
    "WriterConfig",
    "arrow_schema",
    "bucket_of",
    "buckets_of",
    "ingest",
    "local_folder",
    "with_origin",
]
