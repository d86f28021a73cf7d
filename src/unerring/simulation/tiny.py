"""Bounds of the code made very small, or set at their edge, so that what happens when something is full, too much or
too long happens all the time.

In a quarter of the seeds of a night, each bound of this table is drawn with a coin. Other seeds, of which some stay as
tests, keep the configuration that they had before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from unerring.channels import ConsumerConfig, ProducerConfig
from unerring.correlation import CorrelationConfig
from unerring.log import WriterConfig
from unerring.processes import ClusterBounds, ProcessesConfig

NIGHTS_FROM: Final = 1_000_000_000
"""A night's seeds begin here."""
SEARCHED: Final = range(652_001_000, 653_000_000)
"""Seeds of the same kind that were searched first; what they found stays as tests."""
SHARE: Final = 0.25

BOUNDS: Final[Mapping[type, Mapping[str, Sequence[int]]]] = MappingProxyType(
    {
        CorrelationConfig: {
            "window_events": (1, 2),
            "outgoing_events_max": (1, 2),
            "batch_events_max": (1, 2),
            "batch_bytes_max": (1, 40, 200),
            "flights_max": (1,),
            "process_events_max": (1, 2),
            "snapshot_part_bytes": (7, 64),
            "durable_snapshot_events": (1, 2),
            "bound_ahead_us": (0, 1),
        },
        ProcessesConfig: {
            "candidacies_max": (1, 2),
            "ticks_max": (1, 2),
            "transfers_max": (1, 2),
            "starts_max": (1, 2),
            "leads_max": (1, 2),
            "abort_views_max": (1, 2),
            "undo_attempts_max": (1, 2),
            "instances_max": (1, 2, 3),
        },
        ClusterBounds: {
            "mail_max": (1, 2),
            "published_max": (1, 2),
            "history_groups": (2,),
            "state_bytes_max": (1000, 1500),
            "children_max": (1, 2),
        },
        ProducerConfig: {
            "buffer_count_max": (1, 2),
            "buffer_bytes_max": (1024,),
            "replay_bytes_max": (1024,),
            "peers_max": (0, 1),
            "registered_max": (1,),
        },
        ConsumerConfig: {
            "hold_count_max": (1, 2),
            "in_hand_max": (1, 2),
            "nack_ranges_max": (1, 2),
            "answer_bytes_max": (1024,),
            "peer_answer_bytes_max": (1024,),
            "peer_attempts_max": (1,),
        },
        WriterConfig: {
            "runs_max": (0, 1),
        },
    }
)

C = TypeVar("C", bound=msgspec.Struct)


def is_tiny(seed: int) -> bool:
    """Whether a seed has bounds of this table."""
    return (seed >= NIGHTS_FROM or seed in SEARCHED) and Random(f"tiny {seed}").random() < SHARE


def tiny(seed: int, config: C) -> C:
    """The configuration of a run, with the bounds that its seed makes small."""
    if not is_tiny(seed):
        return config
    draw = Random(f"tiny {type(config).__name__} {seed}")
    some = {name: draw.choice(values) for name, values in BOUNDS[type(config)].items() if draw.random() < 0.5}
    return msgspec.structs.replace(config, **some)
