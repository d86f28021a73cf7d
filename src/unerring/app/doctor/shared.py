"""The store that hosts share: whether it can hold a run, how fast it is, and how their clocks and releases differ."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec

from unerring import __version__
from unerring.app.doctor.finding import Finding, error, warning, well
from unerring.app.folder import run_in
from unerring.app.place import Place
from unerring.log import CHECKED
from unerring.model import SECOND_US, DiskError, UnerringError, protect_json, verified_json

SKEW_US: Final = SECOND_US
"""Event times of producers and idle streams are judged by clocks; the order of events is not."""
SKEW_US_MAX: Final = 30 * SECOND_US
SLOW_S: Final = 1.0
_SEEN_US: Final = 24 * 3600 * SECOND_US


class Visit(msgspec.Struct, frozen=True):
    """What this command leaves on a store for the other hosts."""

    release: str
    at_us: int
    ahead_us: int
    """How far its clock was ahead of the store's."""


def store(place: Place, here: str, now_us: int | None = None) -> Iterator[Finding]:
    """The store of a run. `now_us`: this host's clock."""
    try:
        begun_s = time.perf_counter()
        if not place.is_folder or os.path.isdir(place.address):
            place.check()
        took_s = time.perf_counter() - begun_s
    except UnerringError as wrong:
        yield error("store", str(wrong))
        return
    if place.is_folder:
        yield well("store", f"{place} is a folder; hosts that share a run need a store that all of them reach")
        return
    shown = f"{place} can hold a run: it creates only what is absent, and replaces only what is unchanged"
    if took_s > SLOW_S:
        yield warning(
            "store", f"{shown}, but the nine requests of this check took {took_s:.1f} s; sealing waits for it"
        )
    else:
        yield well("store", shown)
    yield from _clocks(place, here or os.uname().nodename, now_us)


def _clocks(place: Place, here: str, now_us: int | None) -> Iterator[Finding]:
    """This host's clock by the store's, and the others' by what they left there."""
    probe = f"{CHECKED}/{secrets.token_hex(8)}"
    before_us = time.time_ns() // 1000
    place.store.create(probe, b"")
    store_us = place.store.written_us(probe)
    after_us = time.time_ns() // 1000
    with suppress(DiskError):
        place.store.delete(probe)
    if store_us is None:
        return
    own_us = (before_us + after_us) // 2 if now_us is None else now_us
    slack_us = after_us - before_us + SECOND_US  # stores tell whole seconds
    visit = Visit(__version__, own_us, own_us - store_us)
    yield _skew(f"this host's clock by that of {place}", visit.ahead_us, slack_us)
    for name in place.store.names(CHECKED):
        content = place.store.read(f"{CHECKED}/{name}") if name.startswith("host-") else None
        if content is None or name == f"host-{here}.json":
            continue
        other, host = verified_json(content, Visit, name), name[len("host-") : -len(".json")]
        if abs(store_us - (other.at_us - other.ahead_us)) > _SEEN_US:
            continue
        yield _skew(f"the clock of host {host} by this one's", other.ahead_us - visit.ahead_us, slack_us)
        if other.release != __version__:
            yield warning(
                "releases",
                f"host {host} has release {other.release} and this one {__version__}; finish the rolling upgrade",
            )
    place.store.replace(f"{CHECKED}/host-{here}.json", protect_json(visit))


def _skew(whose: str, ahead_us: int, slack_us: int) -> Finding:
    by = f"{whose} is {abs(ahead_us) / SECOND_US:.1f} s {'ahead' if ahead_us > 0 else 'behind'}"
    if abs(ahead_us) > SKEW_US_MAX:
        return error("clock", f"{by}: certificates, idle streams and times of producers go wrong; set it by NTP")
    if abs(ahead_us) > SKEW_US + slack_us:
        return warning("clock", f"{by}; set it by NTP")
    return well("clock", f"{whose} is right within {(abs(ahead_us) + slack_us) / SECOND_US:.1f} s")


def releases(place: Place) -> Iterator[Finding]:
    """The release that ran here last, and this one."""
    try:
        remembered = run_in(place)
    except UnerringError as wrong:
        yield error("releases", str(wrong))
        return
    if remembered is None:
        return
    if remembered.version == __version__:
        yield well("releases", f"{place} was run by this release, {__version__}")
    else:
        yield warning(
            "releases",
            f"{place} was run by release {remembered.version} last, and goes on with this one, {__version__}",
        )
