"""The event log: streams as contiguous chains of sealed segments; quarantine; positions; files brought in."""

from unerring.log.buckets import BUCKETS_MAX, Spread, bucket_of, buckets_of
from unerring.log.chain import REACHED, Chain, Sealed
from unerring.log.compaction import CompactionConfig, Compactor, compact, merge, plan
from unerring.log.epochs import Epochs, Incarnation
from unerring.log.eventlog import BUCKETS, EventLog
from unerring.log.files import guess_schema
from unerring.log.index import BASE, COMPACTED, INDEX, Base, Entry, Span, entry_of, object_name
from unerring.log.ingest import IngestConfig, Ingested, ingest
from unerring.log.intakes import INTAKE, Intake, Intakes, TakenFile, files_taken, producer_of, waiting
from unerring.log.intaking import Intaker, Means, Overtaken, Watermark
from unerring.log.lanes import Lanes, ProducerState
from unerring.log.merging import Cut, Merge, Rows
from unerring.log.objects import SEGMENTS
from unerring.log.parts import PARTS, Parts, part_after, part_columns, write_part
from unerring.log.positions import Positions
from unerring.log.producers import NOTHING, Mark, Run, Taken
from unerring.log.quarantine import QUARANTINE, BadEvent, Quarantine, Reason, declared_losses, share_text
from unerring.log.resets import Resets
from unerring.log.respread import in_stamp_order
from unerring.log.retention import Retention, begin_at, cut, cut_at, retain
from unerring.log.returning import STAYS, Held, Returned, Stayed, bring_back, held
from unerring.log.roots import Anchor, Head, Judged, Root, Roots, anchor_of, head_of, judge_head, merkle_root
from unerring.log.rows import columns_of, row_type, time_of
from unerring.log.sealing import PartRows, agree_on, seal_interval
from unerring.log.segments import (
    Footer,
    Merged,
    Part,
    Segment,
    arrow_schema,
    encode_buckets,
    encode_segment,
    segment_name,
    stating,
    with_origin,
)
from unerring.log.settling import Slice, Slicer, overlapping_rows, slice_of, waiting_rows
from unerring.log.signing import SigningKey, is_signed, new_key, public_key
from unerring.log.store import (
    ABSENT,
    Conflict,
    Got,
    LocalStore,
    MemoryStore,
    ObjectStore,
    Patience,
    Store,
    Unsure,
    check_store,
    join,
    local_folder,
    requests_made,
    store_at,
    store_options,
)
from unerring.log.sweeping import sweep, wall_us
from unerring.log.tables import events_of, table_of
from unerring.log.taking import CORRUPT, Answer, Order, TakeConfig, Taker
from unerring.log.times import Times, zoned
from unerring.log.writer import LogWriter, WriterConfig

__all__ = [
    "ABSENT",
    "BASE",
    "BUCKETS",
    "BUCKETS_MAX",
    "COMPACTED",
    "CORRUPT",
    "INDEX",
    "INTAKE",
    "NOTHING",
    "PARTS",
    "QUARANTINE",
    "REACHED",
    "SEGMENTS",
    "STAYS",
    "Anchor",
    "Answer",
    "BadEvent",
    "Base",
    "Chain",
    "CompactionConfig",
    "Compactor",
    "Conflict",
    "Cut",
    "Entry",
    "Epochs",
    "EventLog",
    "Footer",
    "Got",
    "Head",
    "Held",
    "Incarnation",
    "IngestConfig",
    "Ingested",
    "Intake",
    "Intaker",
    "Intakes",
    "Judged",
    "Lanes",
    "LocalStore",
    "LogWriter",
    "Mark",
    "Means",
    "MemoryStore",
    "Merge",
    "Merged",
    "ObjectStore",
    "Order",
    "Overtaken",
    "Part",
    "PartRows",
    "Parts",
    "Patience",
    "Positions",
    "ProducerState",
    "Quarantine",
    "Reason",
    "Resets",
    "Retention",
    "Returned",
    "Root",
    "Roots",
    "Rows",
    "Run",
    "Sealed",
    "Segment",
    "SigningKey",
    "Slice",
    "Slicer",
    "Span",
    "Spread",
    "Stayed",
    "Store",
    "TakeConfig",
    "Taken",
    "TakenFile",
    "Taker",
    "Times",
    "Unsure",
    "Watermark",
    "WriterConfig",
    "agree_on",
    "anchor_of",
    "arrow_schema",
    "begin_at",
    "bring_back",
    "bucket_of",
    "buckets_of",
    "check_store",
    "columns_of",
    "compact",
    "cut",
    "cut_at",
    "declared_losses",
    "encode_buckets",
    "encode_segment",
    "entry_of",
    "events_of",
    "files_taken",
    "guess_schema",
    "head_of",
    "held",
    "in_stamp_order",
    "ingest",
    "is_signed",
    "join",
    "judge_head",
    "local_folder",
    "merge",
    "merkle_root",
    "new_key",
    "object_name",
    "overlapping_rows",
    "part_after",
    "part_columns",
    "plan",
    "producer_of",
    "public_key",
    "requests_made",
    "retain",
    "row_type",
    "seal_interval",
    "segment_name",
    "share_text",
    "slice_of",
    "stating",
    "store_at",
    "store_options",
    "sweep",
    "table_of",
    "time_of",
    "waiting",
    "waiting_rows",
    "wall_us",
    "with_origin",
    "write_part",
    "zoned",
]
