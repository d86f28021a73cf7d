"""What an application imports. This is the list; `__init__.py` makes the rest of it."""

from .app import App as App
from .channels import (
    ChannelConfig as ChannelConfig,
)
from .channels import (
    ConsumerConfig as ConsumerConfig,
)
from .channels import (
    ProducerConfig as ProducerConfig,
)
from .channels import (
    Start as Start,
)
from .correlation import CorrelationConfig as CorrelationConfig
from .log import (
    EventLog as EventLog,
)
from .log import (
    IngestConfig as IngestConfig,
)
from .log import (
    LogWriter as LogWriter,
)
from .log import (
    WriterConfig as WriterConfig,
)
from .matching.tree import run_on as run_on
from .model import (
    Event as Event,
)
from .model import (
    InstanceFailed as InstanceFailed,
)
from .model import (
    MessageLoss as MessageLoss,
)
from .model import (
    Refused as Refused,
)
from .model import (
    Stamp as Stamp,
)
from .model import (
    UnerringError as UnerringError,
)
from .model import (
    event_of as event_of,
)
from .model import (
    schema_of as schema_of,
)
from .model import (
    stream as stream,
)
from .pipeline.frames import detect as detect
from .pipeline.session import SparkConfig as SparkConfig
from .pipeline.sql_tables import match as match
from .processes.build import Process as Process
from .processes.config import ClusterBounds as ClusterBounds
from .processes.config import ProcessesConfig as ProcessesConfig
from .processes.graph import Retry as Retry
from .processes.graph import Service as Service
from .rules import fn as fn
from .rules.api import (
    Rule as Rule,
)
from .rules.api import (
    counted as counted,
)
from .rules.api import (
    rule as rule,
)
from .rules.api import (
    session as session,
)
from .rules.api import (
    sliding as sliding,
)
from .rules.api import (
    trailing as trailing,
)
from .rules.api import (
    tumbling as tumbling,
)
from .rules.operators import Operator as Operator
from .rules.steps import (
    all_of as all_of,
)
from .rules.steps import (
    any_of as any_of,
)
from .rules.steps import (
    each as each,
)
from .rules.steps import (
    first as first,
)
from .rules.steps import (
    last as last,
)
from .rules.steps import (
    no as no,
)
from .rules.steps import (
    step as step,
)
from .rules.terms import columns as columns
from .rules.terms import next_row as next_row
from .rules.terms import prev as prev
from .rules.terms import time_of as time_of
from .runtime.channel import (
    AsyncPublisher as AsyncPublisher,
)
from .runtime.channel import (
    AsyncRelay as AsyncRelay,
)
from .runtime.channel import (
    AsyncSubscriber as AsyncSubscriber,
)
from .runtime.channel import (
    OnLoss as OnLoss,
)
from .runtime.channel import (
    Publisher as Publisher,
)
from .runtime.channel import (
    Received as Received,
)
from .runtime.channel import (
    Subscriber as Subscriber,
)
from .runtime.process_node import Embedded as Embedded
from .runtime.process_node import RunningNode as RunningNode
from .runtime.services import (
    HttpService as HttpService,
)
from .runtime.services import (
    IdempotencyFilter as IdempotencyFilter,
)
from .runtime.services import (
    Interaction as Interaction,
)
from .runtime.services import (
    LocalService as LocalService,
)
from .runtime.services import (
    PostgresStore as PostgresStore,
)
from .runtime.services import (
    SqliteStore as SqliteStore,
)
from .runtime.storage import MemoryStorage as MemoryStorage
from .runtime.storage import SqliteStorage as SqliteStorage
from .runtime.transports import TransportConfig as TransportConfig
from .sql.stream import sql_rule as sql_rule
from .testing import Rehearsal as Rehearsal

__version__: str
__all__: list[str]
