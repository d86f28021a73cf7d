"""The channels' bounds. What must be equal on both ends is small: the size of a frame."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from unerring.channels.messages import NAME_CHARS_MAX
from unerring.model import MILLISECOND_US, SECOND_US, ClusterConfig, ConfigError, ProcessConfig, check


class ChannelConfig(ClusterConfig, frozen=True):
    """Bounds of a channel that must be equal on both ends."""

    frame_bytes_max: int = 4 * 1024 * 1024
    """A frame over this is refused before it is decoded."""
    payload_bytes_max: int = 1024 * 1024
    """One event's payload over this is refused at the source."""

    def __post_init__(self) -> None:
        check(self, "frame_bytes_max", 4096, 1 << 30)
        check(self, "payload_bytes_max", 1, self.frame_bytes_max - 1024)


class ProducerConfig(ProcessConfig, frozen=True):
    """The bounds and settings of one producer."""

    buffer_count_max: int = 1_000_000
    buffer_bytes_max: int = 64 * 1024 * 1024
    buffer_age_us_max: int = 600 * SECOND_US
    """The replay buffer evicts its oldest frames beyond any of the three, but never what a registered consumer has
    not acknowledged: then `publish` waits and `try_publish` says no."""
    durable: bool = False
    """The replay buffer is on stable storage before anything of it is sent: a restarted producer continues its epoch
    and can still replay. Otherwise a restart is a new epoch."""
    lateness_us: int = 0
    """How much events may be published out of order. Such a producer promises nothing by publishing: its watermarks are
    those that the application gives. A publisher takes it from its stream, if that declares one."""
    replay_bytes_max: int = 1024 * 1024
    """How much one NACK is answered with at the most; the consumer asks again for the rest."""
    repair_bytes_per_s: int = 32 * 1024 * 1024
    """The rate of all repairs together, so that they cannot starve live traffic. Beyond it a NACK is answered with
    one event, so that whoever asks sees that somebody is there."""
    merge_consumers_min: int = 3
    """When so many consumers lack the same range within `merge_window_us`, one push to all repairs it."""
    merge_window_us: int = 20 * MILLISECOND_US
    signed: bool = False
    """Every batch and heartbeat carries the producer's signature (64 bytes): consumers can refuse what others made up,
    and those who are told where to serve repair each other's losses after its crash."""
    signing_key: str = ""
    """A file with the key that signs, as `unerring channel key FILE` makes it. Empty: one that follows from the secret
    of this user's processes and the producer's name."""
    peers_max: int = 16
    """How many consumers and relays that keep signed batches it tells the others of; the oldest makes room."""
    registered_max: int = 64
    """How many registered consumers at the most; another one is refused."""
    unconfirmed_us_max: int = 60 * SECOND_US
    """A registration whose consumer was not heard of again for so long, after the first time, is forgotten."""
    registered_silence_us_max: int = 0
    """The same for a consumer that was heard of more than once; 0: what it misses is kept for it however long it is
    away, and `publish` waits when the buffer is full."""
    heartbeat_idle_us: int = 50 * MILLISECOND_US
    """How long after a burst the first heartbeat follows. It also says that nothing more of the last event's time will
    come; after a time in whole seconds that takes a second, since more of it may come for so long."""
    heartbeat_pause_us_max: int = 5 * SECOND_US
    """Pauses between heartbeats double up to this and then go on: heartbeats get lost too."""
    epoch_ahead_us_max: int = 7 * 86_400 * SECOND_US
    """A consumer's word that this producer has a successor counts only if that one's epoch lies no further ahead of the
    clock."""
    strict_zero_overhead: bool = False
    """No heartbeat at all. The hole this leaves: an event lost at the end of a burst is noticed only with the next
    event."""

    def __post_init__(self) -> None:
        check(self, "buffer_count_max", 1, 1 << 40)
        check(self, "buffer_bytes_max", 1024, 1 << 40)
        check(self, "buffer_age_us_max", MILLISECOND_US, 1 << 50)
        check(self, "lateness_us", 0, 1 << 60)
        check(self, "replay_bytes_max", 1024, 1 << 30)
        check(self, "repair_bytes_per_s", 1024, 1 << 40)
        check(self, "merge_consumers_min", 2, 1_000_000)
        check(self, "merge_window_us", 0, 3600 * SECOND_US)
        check(self, "peers_max", 0, 256)
        check(self, "registered_max", 0, 100_000)
        check(self, "unconfirmed_us_max", MILLISECOND_US, 1 << 50)
        check(self, "registered_silence_us_max", 0, 1 << 50)
        check(self, "epoch_ahead_us_max", 0, 1 << 60)
        check(self, "heartbeat_idle_us", MILLISECOND_US, 3600 * SECOND_US)
        check(self, "heartbeat_pause_us_max", self.heartbeat_idle_us, 86_400 * SECOND_US)


class Start(StrEnum):
    """Where a new consumer begins."""

    LATEST = "latest"
    """The first event it hears of."""
    EARLIEST = "earliest"
    """The epoch's first event; what is no longer in the producer's buffer is declared lost."""
    INITIAL = "initial"
    """The producer's initial information, handed over at a cut between two publishes."""


class ConsumerConfig(ProcessConfig, frozen=True):
    """The bounds and settings of one consumer."""

    start: Start = Start.LATEST
    registered: str = ""
    """The name under which the producer keeps what is not acknowledged yet. Empty: as in the paper, NACK only."""
    ack_interval_us: int = 100 * MILLISECOND_US
    """How often a registered consumer acknowledges, cumulatively."""
    hold_bytes_max: int = 32 * 1024 * 1024
    hold_count_max: int = 500_000
    """Hold-back beyond either drops the newest, which is asked for again when there is room."""
    in_hand_max: int = 65_536
    """Events of a producer that the application was handed and has not accepted yet. Where there are more than four
    producers, each has its part of four times as many, and at least a thousand: one that the application waits for is
    never shut out by the others."""
    nack_delay_us: int = 2 * MILLISECOND_US
    """How long a gap may close by itself (a service that reorders) before it is asked for; jittered."""
    nack_pause_us_max: int = 1 * SECOND_US
    """Pauses between requests for the same gap double up to this."""
    nack_attempts_max: int = 30
    """After this many requests without an answer the gap is declared lost."""
    nack_ranges_max: int = 64
    """Ranges in one request; neighbouring ranges are merged."""
    answer_bytes_max: int = 1024 * 1024
    """What a frame of an answer may weigh. A subscriber lowers it to what its transport takes."""
    peer_bytes_max: int = 16 * 1024 * 1024
    """Signed batches kept for other consumers, if they can reach this one; the oldest go."""
    peer_answer_bytes_max: int = 1024 * 1024
    """The limit of an answer to one request of another consumer; at least one batch is sent."""
    peer_attempts_max: int = 4
    """When a producer has lost an epoch, its consumers ask each other so many times in vain before they declare what
    they miss of it lost."""
    peer_silence_us: int = 15 * SECOND_US
    """A producer that has not even sent a heartbeat for so long may be gone: peers are asked for what they have."""
    epoch_ahead_us_max: int = 7 * 86_400 * SECOND_US
    """How far a producer's clock may be ahead of this one's. A later epoch is refused: once it were believed, the right
    producer would be taken for a stale one until then."""
    signed: bool = False
    """Only what its producer signed is believed. Whose signatures count: `keys`."""
    keys: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Public keys by producers' names, in hexadecimal; no others are believed then. Empty: the keys that follow from
    the secret of this user's processes."""
    producers_max: int = 1024
    """Feeds at the most; frames of further producers are refused and counted."""

    def __post_init__(self) -> None:
        check(self, "ack_interval_us", MILLISECOND_US, 3600 * SECOND_US)
        check(self, "hold_bytes_max", 1024, 1 << 40)
        check(self, "hold_count_max", 1, 1 << 40)
        check(self, "in_hand_max", 1, 1 << 40)
        check(self, "nack_delay_us", 0, 3600 * SECOND_US)
        check(self, "nack_pause_us_max", MILLISECOND_US, 3600 * SECOND_US)
        check(self, "nack_attempts_max", 1, 1_000_000)
        check(self, "nack_ranges_max", 1, 10_000)
        check(self, "answer_bytes_max", 1024, 1 << 30)
        check(self, "peer_bytes_max", 0, 1 << 40)
        check(self, "peer_answer_bytes_max", 1024, 1 << 30)
        check(self, "peer_attempts_max", 1, 1_000_000)
        check(self, "peer_silence_us", MILLISECOND_US, 86_400 * SECOND_US)
        check(self, "producers_max", 1, 1 << 20)
        for name, key in self.keys.items():
            if not re.fullmatch(r"[0-9a-fA-F]{64}", key):
                raise ConfigError(f"the key of producer {name!r} is not one of 64 hexadecimal digits: {key[:80]!r}")
        check(self, "epoch_ahead_us_max", 0, 1 << 60)
        if len(self.registered) > NAME_CHARS_MAX:
            raise ConfigError(
                f"ConsumerConfig.registered has {len(self.registered)} characters; the limit is {NAME_CHARS_MAX}"
            )
