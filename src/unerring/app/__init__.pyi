"""What other packages import of app. This is the list; `__init__.py` loads it when it is used."""

from . import capacity as capacity, live as live, live_cluster as live_cluster
from .acting import PROCESSES as PROCESSES
from .address import find as find
from .application import DATA as DATA, App as App, load as load
from .auditing import Audit as Audit
from .backing_up import back_up as back_up
from .backups import Backup as Backup
from .capacity import Capacity as Capacity, Use as Use, errors as errors
from .certifying import certify as certify, judged_root as judged_root
from .client import (
    READS as READS,
    WAIT_S_MAX as WAIT_S_MAX,
    Client as Client,
    Nodes as Nodes,
    nodes_in as nodes_in,
)
from .delivering import (
    Sink as Sink,
    deliver_all as deliver_all,
    forget_sink as forget_sink,
    record_named as record_named,
    rewind_sink as rewind_sink,
    sink_deliveries as sink_deliveries,
)
from .demo.factory import Factory as Factory, Shape as Shape
from .demo.mutants import MUTANTS as MUTANTS
from .demo.screen import Screen as Screen, print_verdict as print_verdict
from .doctor import ERROR as ERROR, Asked as Asked, Finding as Finding, examine as examine
from .duckdb_tables import DuckTables as DuckTables
from .erasing import Erased as Erased, erase_key as erase_key
from .feeds import Feeds as Feeds, check_channels as check_channels
from .folder import address_in as address_in, check_run as check_run, remember as remember, run_in as run_in
from .forgetting import USUAL as USUAL, note_kept as note_kept
from .learned import (
    bounded as bounded,
    costs_of_run as costs_of_run,
    failovers_of_run as failovers_of_run,
    kept_in as kept_in,
    priced as priced,
)
from .lineage import traced_run as traced_run
from .listed import all_pages as all_pages, both as both, having as having
from .live_engine import LiveEngine as LiveEngine
from .live_needs import needs_of as needs_of, retained_levels as retained_levels
from .live_sealer import live_situations as live_situations
from .live_upgrade import LiveUpgrade as LiveUpgrade
from .many import BATCHES as BATCHES
from .metrics import metrics_sender as metrics_sender
from .new import make_app as make_app
from .options import RunOptions as RunOptions
from .owner import Ownership as Ownership
from .past import Past as Past, value_of as value_of
from .place import Place as Place, Where as Where, place_of as place_of, shown as shown
from .plan_document import PlanDocument as PlanDocument, plan_of as plan_of
from .planning import PlacementOptions as PlacementOptions
from .process_audit import (
    ProcessVerdict as ProcessVerdict,
    audit_processes as audit_processes,
    judge_family as judge_family,
    judge_instance as judge_instance,
    read_flow as read_flow,
)
from .process_export import ENDED as ENDED, export as export
from .reactions import cause_of as cause_of
from .recomputing import Recomputed as Recomputed, recompute as recompute
from .reconciling import running_in as running_in
from .resets import reset_producer as reset_producer
from .restoring import restore as restore
from .rooting import RootSealer as RootSealer
from .run import CHECK_S as CHECK_S, Run as Run, run_of as run_of
from .sealed_events import SealedEvents as SealedEvents
from .serving import LOOPBACK as LOOPBACK, Health as Health, Trust as Trust, serve as serve
from .spark_engine import LevelView as LevelView, SparkEngine as SparkEngine
from .status import RunStatus as RunStatus, StatusMetrics as StatusMetrics
from .status.prometheus import prometheus as prometheus
from .status.streams import Streams as Streams
from .status.timeline import GRAVE as GRAVE
from .submission import Submission as Submission, write_submission as write_submission
from .travel import Travel as Travel
from .upgrading import (
    BEGINNING as BEGINNING,
    TRIAL_PAGE as TRIAL_PAGE,
    DryRun as DryRun,
    agree_on_upgrade as agree_on_upgrade,
    changes_while_it_runs as changes_while_it_runs,
    load_again as load_again,
    note_first as note_first,
    since_time as since_time,
    upgrade_here as upgrade_here,
)
from .verdicts import PAGE as PAGE, keep as keep, keep_processes as keep_processes
from .verifying import Spread as Spread, Verified as Verified, spread_on as spread_on, verify as verify
from .what_if import WhatIf as WhatIf, number_value as number_value
from .why import Why as Why, event_document as event_document, latest as latest
from .why_not import WhyNot as WhyNot, attempt_lines as attempt_lines

__all__: list[str]
