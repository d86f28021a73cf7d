"""What other packages import of pipeline. This is the list; `__init__.py` loads it when it is used."""

from . import (
    answers as answers,
    connecting as connecting,
    feeding as feeding,
    jvm as jvm,
    savepoints as savepoints,
)
from .agreements import (
    FIRST as FIRST,
    Agreement as Agreement,
    Done as Done,
    Proposal as Proposal,
    Ready as Ready,
    create as create,
    current as current,
    edition_of as edition_of,
    is_done as is_done,
    is_ready as is_ready,
    pending as pending,
    proposal as proposal,
    proposal_of as proposal_of,
    proposals as proposals,
    propose as propose,
    renew as renew,
)
from .asking import ask_tasks as ask_tasks
from .auditing import (
    Scope as Scope,
    bounds_of as bounds_of,
    judge_intake as judge_intake,
    judge_sink as judge_sink,
    judge_stream as judge_stream,
    waiting_after as waiting_after,
)
from .batch import detect_batch as detect_batch
from .checkpoints import committed_us as committed_us
from .compacting import Compacted as Compacted, compact_log as compact_log
from .connecting import master_of as master_of, parallelism as parallelism, prepare as prepare
from .costs import learn as learn
from .editions import Changes as Changes, Edition as Edition, changes_of as changes_of
from .erased import (
    Erasures as Erasures,
    Unknowable as Unknowable,
    columns_erasable as columns_erasable,
    touched_keys as touched_keys,
)
from .frames import detect as detect
from .history import rows_before as rows_before, rows_between as rows_between, rows_near as rows_near
from .ingesting import ingest as ingest
from .intervals import Bounds as Bounds, spans_of as spans_of
from .kafka_source import KafkaSparkSource as KafkaSparkSource
from .level import Level as Level, levels_of as levels_of
from .monitoring import Gauges as Gauges
from .partition import Partition as Partition
from .reference import (
    Counted as Counted,
    Judged as Judged,
    JudgedRule as JudgedRule,
    Reference as Reference,
    delivered_chain as delivered_chain,
    made_by_another as made_by_another,
)
from .requests import planner_requests as planner_requests
from .rescaling import rescale as rescale, successor as successor
from .resident.pool import Pool as Pool
from .retention import Needs as Needs, cut_here as cut_here, retain as retain, retain_here as retain_here
from .sealing_order import SEALED_LOOK_S as SEALED_LOOK_S, SealingOrder as SealingOrder
from .session import (
    REMOTE as REMOTE,
    SUBMITTED as SUBMITTED,
    SparkConfig as SparkConfig,
    is_started as is_started,
    own_sentence as own_sentence,
    plain_errors as plain_errors,
    sentence_of as sentence_of,
    spark_session as spark_session,
    start as start,
)
from .shipping import UNPACKED as UNPACKED, archive as archive
from .source import UnerringSource as UnerringSource
from .sources import Source as Source, follow_source as follow_source, ingest_source as ingest_source
from .spilling import FileRoom as FileRoom
from .sql_tables import SparkTables as SparkTables, match as match
from .states import DELTAS_MAX as DELTAS_MAX, needed_by as needed_by
from .streaming import (
    RESTARTS_MAX as RESTARTS_MAX,
    MaySeal as MaySeal,
    Sealed as Sealed,
    detect_available as detect_available,
    detect_stream as detect_stream,
    output_chains as output_chains,
    seal_at_once as seal_at_once,
)
from .taking_over import (
    begin_streams as begin_streams,
    going_on as going_on,
    keep_states as keep_states,
    state_of as state_of,
    take_over as take_over,
    waits_for as waits_for,
)
from .trying import Stretch as Stretch, Trial as Trial
from .versions import (
    agreed_levels as agreed_levels,
    agreed_upgrades as agreed_upgrades,
    enter as enter,
    furthest as furthest,
    is_begun_by as is_begun_by,
    ranked_otherwise as ranked_otherwise,
    reached_by as reached_by,
    versions_of as versions_of,
)
from .warming import check_ends as check_ends, warming_from as warming_from

__all__: list[str]
