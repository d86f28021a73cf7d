"""What other packages import of runtime. This is the list; `__init__.py` loads it when it is used."""

from . import lines as lines, timeline as timeline, unix_sockets as unix_sockets
from .certificates import (
    NODE_CERTIFICATE as NODE_CERTIFICATE,
    certificate_times as certificate_times,
    has_ca as has_ca,
    make_certificates as make_certificates,
    optional_context as optional_context,
    server_context as server_context,
)
from .channel import (
    AsyncPublisher as AsyncPublisher,
    AsyncRelay as AsyncRelay,
    AsyncSubscriber as AsyncSubscriber,
    OnLoss as OnLoss,
    Publisher as Publisher,
    Received as Received,
    Subscriber as Subscriber,
)
from .channel.keys import public_key as public_key
from .collecting import collect_seldom as collect_seldom
from .compiling import submit as submit
from .control import COMMAND_BYTES_MAX as COMMAND_BYTES_MAX, listens as listens
from .giop import (
    GiopClient as GiopClient,
    GiopConfig as GiopConfig,
    PushConsumer as PushConsumer,
    Reference as Reference,
)
from .giop.events import (
    EventChannel as EventChannel,
    channel_named as channel_named,
    read_pulled as read_pulled,
    write_event as write_event,
)
from .guard import REFUSED as REFUSED, Guard as Guard, load_policy as load_policy
from .kafka import (
    Extent as Extent,
    KafkaConfig as KafkaConfig,
    KafkaReader as KafkaReader,
    KafkaSource as KafkaSource,
    Loss as Loss,
    Reading as Reading,
    TakenMessage as TakenMessage,
    Topic as Topic,
    decide as decide,
    kafka_url as kafka_url,
    producer_of as producer_of,
    read_span as read_span,
    reads_topic as reads_topic,
    source_of as source_of,
    topic_now as topic_now,
)
from .kafka.address import (
    KafkaAddress as KafkaAddress,
    client_options as client_options,
    explain as explain,
    greet as greet,
    kafka_address as kafka_address,
)
from .links import LinksConfig as LinksConfig
from .live import (
    Cluster as Cluster,
    Facts as Facts,
    Host as Host,
    LiveSupervisor as LiveSupervisor,
    Strategy as Strategy,
    addresses_on as addresses_on,
    balanced as balanced,
    cluster as cluster,
    free_addresses as free_addresses,
    place as place,
    process_names as process_names,
    status as status,
)
from .live.hosting import STATUS_S as STATUS_S, note as note
from .live.status import keepers as keepers, processes as processes
from .live.store_record import StoreStorage as StoreStorage
from .live.supervisor import WANTED as WANTED, ask_supervisor as ask_supervisor
from .logs import JSON as JSON, LOG_FILE as LOG_FILE, LOG_FORM as LOG_FORM, TEXT as TEXT, own_log as own_log
from .loop import Driver as Driver
from .node_status import node_statuses as node_statuses, tell as tell
from .os_processes import (
    Process as Process,
    began_at as began_at,
    dotted as dotted,
    end_all as end_all,
    find as find,
    find_all as find_all,
    marked as marked,
    own_number as own_number,
)
from .pages import PAGE_MAX as PAGE_MAX, place_of_row as place_of_row
from .pausing import family as family, paused as paused
from .payloads import (
    Message as Message,
    PayloadConfig as PayloadConfig,
    PayloadDecoder as PayloadDecoder,
    Undecodable as Undecodable,
)
from .process_cluster import (
    NODE_MARK as NODE_MARK,
    NODE_PORT as NODE_PORT,
    PLACES as PLACES,
    ClusterShape as ClusterShape,
    NodeCluster as NodeCluster,
    Places as Places,
    addresses_in as addresses_in,
    placed_nodes as placed_nodes,
)
from .process_control import (
    SUFFIX as SUFFIX,
    Command as Command,
    ask_node as ask_node,
    control_of as control_of,
    node_sockets as node_sockets,
)
from .process_driver import MACHINE as MACHINE
from .process_node import Embedded as Embedded, RunningNode as RunningNode
from .reports import Reports as Reports
from .restarts import (
    EXIT_FINAL as EXIT_FINAL,
    GivenUp as GivenUp,
    Restarts as Restarts,
    RestartsConfig as RestartsConfig,
)
from .secret import state_folder as state_folder
from .services import (
    HttpService as HttpService,
    IdempotencyFilter as IdempotencyFilter,
    Interaction as Interaction,
    LocalService as LocalService,
    PostgresStore as PostgresStore,
    SqliteStore as SqliteStore,
)
from .services.asked import CLOCKED_S as CLOCKED_S, Asked as Asked, ServiceSeen as ServiceSeen
from .services.proof import Callers as Callers, proof as proof
from .services.store import (
    FLOW as FLOW,
    JOURNAL as JOURNAL,
    Line as Line,
    Recorded as Recorded,
    Transaction as Transaction,
)
from .sockets import is_loopback as is_loopback
from .storage import (
    MemoryStorage as MemoryStorage,
    SqliteStorage as SqliteStorage,
    check_file as check_file,
    settled as settled,
)
from .timeline import Entry as Entry, Timeline as Timeline, What as What
from .timers import monotonic_us as monotonic_us
from .transports import (
    Faults as Faults,
    TransportConfig as TransportConfig,
    check_address as check_address,
    corba as corba,
    lossy_inlet as lossy_inlet,
    lossy_outlet as lossy_outlet,
    open_inlet as open_inlet,
    open_outlet as open_outlet,
)
from .transports.config import without_secrets as without_secrets
from .transports.tcp import YIELD_BYTES as YIELD_BYTES

__all__: list[str]
