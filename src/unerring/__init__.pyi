"""What an application imports. This is the list; `__init__.py` makes the rest of it."""

from .app import App as App, Client as Client
from .channels import (
    ChannelConfig as ChannelConfig,
    ConsumerConfig as ConsumerConfig,
    ProducerConfig as ProducerConfig,
    Start as Start,
)
from .correlation import CorrelationConfig as CorrelationConfig
from .log import (
    EventLog as EventLog,
    IngestConfig as IngestConfig,
    LogWriter as LogWriter,
    Retention as Retention,
    WriterConfig as WriterConfig,
)
from .matching import run_on as run_on
from .model import (
    Event as Event,
    InstanceFailed as InstanceFailed,
    MessageLoss as MessageLoss,
    Refused as Refused,
    Stamp as Stamp,
    UnerringError as UnerringError,
    event_of as event_of,
    schema_of as schema_of,
    stream as stream,
)
from .pipeline import SparkConfig as SparkConfig, detect as detect, match as match
from .processes import (
    ClusterBounds as ClusterBounds,
    Large as Large,
    Limits as Limits,
    Process as Process,
    ProcessesConfig as ProcessesConfig,
    Retry as Retry,
    Service as Service,
)
from .rules import (
    Operator as Operator,
    Rule as Rule,
    all_of as all_of,
    any_of as any_of,
    columns as columns,
    counted as counted,
    each as each,
    first as first,
    fn as fn,
    last as last,
    next_row as next_row,
    no as no,
    prev as prev,
    rule as rule,
    session as session,
    sliding as sliding,
    step as step,
    time_of as time_of,
    trailing as trailing,
    tumbling as tumbling,
)
from .runtime import (
    AsyncPublisher as AsyncPublisher,
    AsyncRelay as AsyncRelay,
    AsyncSubscriber as AsyncSubscriber,
    Embedded as Embedded,
    HttpService as HttpService,
    IdempotencyFilter as IdempotencyFilter,
    Interaction as Interaction,
    LocalService as LocalService,
    MemoryStorage as MemoryStorage,
    OnLoss as OnLoss,
    PostgresStore as PostgresStore,
    Publisher as Publisher,
    Received as Received,
    RunningNode as RunningNode,
    SqliteStorage as SqliteStorage,
    SqliteStore as SqliteStore,
    Subscriber as Subscriber,
    TransportConfig as TransportConfig,
    kafka_url as kafka_url,
)
from .sql import sql_rule as sql_rule
from .testing import Rehearsal as Rehearsal

__version__: str
__all__: list[str]
