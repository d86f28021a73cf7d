"""Messages that others wrote, as events of a stream: JSON, Avro, Protobuf and CloudEvents, with a schema registry.

Nothing here knows the service that a message came over. A source builds a `Message`, and a `PayloadDecoder` answers
with the event's time and columns, or raises why there is none: `Undecodable` is the message's fault, and it goes to
quarantine; `NetworkError` is the registry's, and the source tries the same message again.
"""

from unerring.runtime.payloads.config import PayloadConfig
from unerring.runtime.payloads.decoder import PayloadDecoder
from unerring.runtime.payloads.message import Message, Undecodable
from unerring.runtime.payloads.registry import Registry, RegistryConfig

__all__ = ["Message", "PayloadConfig", "PayloadDecoder", "Registry", "RegistryConfig", "Undecodable"]
