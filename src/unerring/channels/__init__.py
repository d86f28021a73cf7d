"""Reliable channels: a thin layer over any event service, after the channel paper.

`Producer`, `Consumer` and `Relay` are machines; `ChannelCodec` is their wire format; a `Ledger` says what became of
every event.
"""

from unerring.channels.codec import HEADER_BYTES, ChannelCodec
from unerring.channels.config import ChannelConfig, ConsumerConfig, ProducerConfig, Start
from unerring.channels.consumer import Consumer, Position
from unerring.channels.ledger import Account, Ledger
from unerring.channels.messages import (
    Ack,
    Asked,
    Evicted,
    Frames,
    Gone,
    Heartbeat,
    Initial,
    Loss,
    Nack,
    Newcomer,
    Peer,
    Stale,
    Watermark,
    producer_id,
)
from unerring.channels.producer import Producer
from unerring.channels.relay import Relay

__all__ = [
    "HEADER_BYTES",
    "Account",
    "Ack",
    "Asked",
    "ChannelCodec",
    "ChannelConfig",
    "Consumer",
    "ConsumerConfig",
    "Evicted",
    "Frames",
    "Gone",
    "Heartbeat",
    "Initial",
    "Ledger",
    "Loss",
    "Nack",
    "Newcomer",
    "Peer",
    "Position",
    "Producer",
    "ProducerConfig",
    "Relay",
    "Stale",
    "Start",
    "Watermark",
    "producer_id",
]
