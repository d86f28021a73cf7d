"""Reliable channels: a thin layer over any event service, after the channel paper.

`Producer`, `Consumer` and `Relay` are machines; `ChannelCodec` is their wire format; a `Ledger` says what became of
every event.
"""

from unerring.channels.codec import EVENT_BYTES, HEADER_BYTES, ChannelCodec
from unerring.channels.config import ChannelConfig, ConsumerConfig, ProducerConfig, Start
from unerring.channels.consumer import Consumer, Position
from unerring.channels.feed import Feed
from unerring.channels.ledger import Account, Ledger
from unerring.channels.messages import (
    ORDINAL_MAX,
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
    PresentEpoch,
    Stale,
    Watermark,
    any_epoch,
    joined,
    producer_id,
)
from unerring.channels.peers import REPAIRED, Peers
from unerring.channels.producer import Producer
from unerring.channels.relay import Relay
from unerring.channels.signature import SEED_BYTES, KeyOf, Signer, Verifier

__all__ = [
    "EVENT_BYTES",
    "HEADER_BYTES",
    "ORDINAL_MAX",
    "REPAIRED",
    "SEED_BYTES",
    "Account",
    "Ack",
    "Asked",
    "ChannelCodec",
    "ChannelConfig",
    "Consumer",
    "ConsumerConfig",
    "Evicted",
    "Feed",
    "Frames",
    "Gone",
    "Heartbeat",
    "Initial",
    "KeyOf",
    "Ledger",
    "Loss",
    "Nack",
    "Newcomer",
    "Peer",
    "Peers",
    "Position",
    "PresentEpoch",
    "Producer",
    "ProducerConfig",
    "Relay",
    "Signer",
    "Stale",
    "Start",
    "Verifier",
    "Watermark",
    "any_epoch",
    "joined",
    "producer_id",
]
