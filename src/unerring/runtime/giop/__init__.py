"""GIOP/IIOP in pure Python: as much of CORBA as an event channel's suppliers and consumers need."""

from unerring.runtime.giop.connection import GiopClient, GiopConfig, RemoteException
from unerring.runtime.giop.ior import Reference, parse_reference
from unerring.runtime.giop.servant import PushConsumer

__all__ = ["GiopClient", "GiopConfig", "PushConsumer", "Reference", "RemoteException", "parse_reference"]
