"""What other packages import of sinks. This is the list; `__init__.py` loads it when it is used."""

from .addresses import Address as Address, address_of as address_of
from .delivery import Delivery as Delivery, DeliveryConfig as DeliveryConfig, Progress as Progress
from .judging import judge_target as judge_target
from .memory import MemoryTable as MemoryTable, MemoryTarget as MemoryTarget
from .opening import open_target as open_target
from .port import (
    ORDINAL_MAX as ORDINAL_MAX,
    Overtaken as Overtaken,
    Target as Target,
    as_chunk as as_chunk,
    last_stamp as last_stamp,
)
from .record import SINKS as SINKS, SinkRecord as SinkRecord, forget as forget, known as known, register as register
