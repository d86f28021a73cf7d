"""What other packages import of sinks. This is the list; `__init__.py` loads it when it is used."""

from .addresses import Address as Address, address_of as address_of
from .delivery import Delivery as Delivery, DeliveryConfig as DeliveryConfig, Progress as Progress
from .judging import judge_target as judge_target
from .opening import open_target as open_target
from .port import Overtaken as Overtaken, Target as Target
from .record import SINKS as SINKS, SinkRecord as SinkRecord, forget as forget, known as known, register as register
