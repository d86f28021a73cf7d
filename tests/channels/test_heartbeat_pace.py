"""When the sporadic heartbeat is sent (paper, section 3.1): not in a burst, then ever more seldom."""

from __future__ import annotations

from unerring.channels import ProducerConfig
from unerring.channels.heartbeat import HeartbeatPace
from unerring.model import MILLISECOND_US, SetTimer


def at(ms: int) -> SetTimer:
    return SetTimer("beat", ms * MILLISECOND_US)


def test_a_burst_puts_heartbeats_off_and_pauses_grow_behind_it() -> None:
    pace = HeartbeatPace(
        "beat", ProducerConfig(heartbeat_idle_us=100 * MILLISECOND_US, heartbeat_pause_us_max=350 * MILLISECOND_US)
    )
    assert pace.begin(0) == at(100)
    assert pace.published(60 * MILLISECOND_US) is None, "the armed timer comes early enough"
    assert pace.due(100 * MILLISECOND_US) == (False, at(160)), "the burst goes on"
    assert pace.due(160 * MILLISECOND_US) == (True, at(360))
    assert pace.due(360 * MILLISECOND_US) == (True, at(710)), "no pause is longer than the longest"
    assert pace.due(710 * MILLISECOND_US) == (True, at(1060))
    assert pace.published(720 * MILLISECOND_US) == at(820), "a new burst begins with short pauses"
    assert pace.published(720 * MILLISECOND_US) is None
    assert pace.due(820 * MILLISECOND_US) == (True, at(1020))
