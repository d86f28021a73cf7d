"""Bounds and pauses of one replica, source or application. None of them changes a stamp."""

from __future__ import annotations

from unerring.model import MILLISECOND_US, SECOND_US, ConfigError, ProcessConfig, check


class CorrelationConfig(ProcessConfig, frozen=True, forbid_unknown_fields=True):
    # What may pile up.
    window_events: int = 32_768
    """Credit: events of one stream that a receiver buffers ahead of what it has processed."""
    outgoing_events_max: int = 65_536
    """Events of one outgoing stream in the queue before the replica stops processing (back-pressure)."""
    batch_events_max: int = 8192
    """Events in one message; where they travel as objects, at most 1024."""
    batch_bytes_max: int = 2 << 20
    """Bytes of one message whose events travel as columns. A single event may have more."""
    flights_max: int = 4
    """Batches on the way to a receiver. At that number only whole ones go out; events that make less wait for an ack
    and then travel together: one by one at low load, many at high load."""
    process_events_max: int = 4096
    """Events of one stream that are processed in one step, and the rest of a time begun."""
    snapshot_part_bytes: int = 1 << 20
    durable_snapshot_events: int = 10_000
    """Durable mode: accepted events between two snapshots on disk."""

    bound_ahead_us: int = SECOND_US
    """How far a source's bound on disk lies above the watermark that needed it, so that few need one. 0 for a source
    whose producer keeps its own position, such as the event log: it must go on exactly where it was."""

    # How often.
    tick_us: int = 20 * MILLISECOND_US
    gossip_us: int = 50 * MILLISECOND_US
    process_pause_us: int = 1 * MILLISECOND_US
    """The pause between processing events and processing the next ones: those that come meanwhile go together."""
    watermark_pause_us: int = 2 * MILLISECOND_US
    """A watermark alone goes out at most this often."""
    ack_repeat_us: int = 250 * MILLISECOND_US
    """Acks and credit are repeated to all upstream replicas: nothing else repeats a lost one."""
    record_poll_us: int = SECOND_US
    ping_us: int = 200 * MILLISECOND_US

    # How patient.
    patience_us: int = 200 * MILLISECOND_US
    """When a stream has not advanced for so long, a receiver asks who has more of it; doubled each time, if nobody has.
    What somebody has had for so long, and has not come, it asks for."""
    patience_us_max: int = 2 * SECOND_US
    gap_pause_us: int = 20 * MILLISECOND_US
    """The pause before the same gap is reported again."""
    ask_us: int = 50 * MILLISECOND_US
    """How long a new leader waits for each receiver's word what it has, before it resends: hardly anything is then sent
    twice, and a failover takes one more round. 0: it resends at once, as in the paper."""
    lease_us: int = SECOND_US
    """How long a normal replica serves a receiver that asked."""
    vote_us: int = 60 * MILLISECOND_US
    suspect_us_min: int = 120 * MILLISECOND_US
    suspect_us_max: int = 3 * SECOND_US
    join_retry_us: int = 200 * MILLISECOND_US
    eviction_us: int = 2 * SECOND_US
    """How long an eviction waits for a remaining member's confirmation before it is given up."""
    evict_after_us: int = 30 * SECOND_US
    """A replica that its keeper has not heard of for so long is evicted, if another one confirms that it remains; 0:
    only by an operator."""
    evict_full_us: int = 3 * SECOND_US
    """The same for one on whose account a queue upstream is full."""
    latency_step_us: int = 1 * MILLISECOND_US
    """Latencies that differ by less are equal for an election."""

    def __post_init__(self) -> None:
        for name in (
            "window_events",
            "outgoing_events_max",
            "batch_events_max",
            "batch_bytes_max",
            "process_events_max",
            "flights_max",
            "snapshot_part_bytes",
            "durable_snapshot_events",
        ):
            check(self, name, 1, 1 << 32)
        for name in self.__struct_fields__:
            if name.endswith("_us"):
                check(self, name, 0 if name in ("bound_ahead_us", "ask_us", "evict_after_us") else 1, 3600 * SECOND_US)
        if self.patience_us_max < self.patience_us or self.suspect_us_max < self.suspect_us_min:
            raise ConfigError("CorrelationConfig: an upper bound of patience or suspicion is below its lower one")
        if self.evict_after_us and min(self.evict_after_us, self.evict_full_us) < 2 * self.record_poll_us:
            raise ConfigError(
                "CorrelationConfig: evict_after_us and evict_full_us must be at least twice record_poll_us: a replica "
                "that is well is heard so often"
            )
