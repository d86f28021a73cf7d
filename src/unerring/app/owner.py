"""Who runs on a store: one run at a time, by a record there that is replaced only if it is unchanged.

The run renews its record every few seconds. Who finds somebody else's record looks whether it is renewed, by a clock of
its own, and takes over when it is not; a process of the same host is looked for instead. Nothing that is sealed rests
on this: it keeps two runs from starting the same processes and subscribing to the same channels. Several drivers of
one run are one run. Where a run is on several hosts, each has a record, so that no two processes stand for one host.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.app.place import Place
from unerring.model import CallerError, DiskError, protect_json, to_datetime, verified_json
from unerring.runtime import Process, began_at

FILE: Final = "owner.json"


def file_of(host: str) -> str:
    """The record of one of several hosts, each of which has a part of the run; empty: the run is on one."""
    return f"owner.{host}.json" if host else FILE


RENEW_S: Final = 5.0
LEASE_S: Final = 20.0
"""A record that was not renewed for so long belongs to a run that is gone, or cannot reach the store."""
LOOK_S: Final = 2.0


class Owner(msgspec.Struct, frozen=True):
    """The record. Its number rises whenever it is renewed, so that no two states of it are alike."""

    token: str
    """Which run; empty: it ended in order."""
    number: int
    host: str
    space: str
    """The boot of a kernel and the space in which process numbers are unique."""
    pid: int
    began: str
    since_us: int

    def __str__(self) -> str:
        since = f"{to_datetime(self.since_us):%Y-%m-%d %H:%M:%S} UTC"
        return f"process {self.pid} on host {self.host}, since {since}"


def is_owned(place: Place) -> bool:
    """Whether a run has the place now, as far as its record says; of this host, whether its process is there."""
    held = _record(place, FILE)
    if held is None:
        return False
    return held.space != _space() or began_at(held.pid) == held.began


def owned_here(place: Place) -> list[Process]:
    """The processes of this host that have the place."""
    records = [_record(place, name) for name in place.store.names("") if name.startswith("owner.")]
    held = [one for one in records if one is not None and one.space == _space() and began_at(one.pid) == one.began]
    return [Process(one.pid, None) for one in held]


def owned_elsewhere(place: Place) -> list[str]:
    """The other hosts that have a part of the run, as far as their records say."""
    records = [_record(place, name) for name in place.store.names("") if name.startswith("owner.")]
    return [one.host for one in records if one is not None and one.space != _space()]


def _record(place: Place, name: str) -> Owner | None:
    """Who has the place; nobody, after a run that ended in order."""
    content = place.store.read(name)
    held = None if content is None else verified_json(content, Owner, place.store.locate(name))
    return held if held is not None and held.token else None


class Ownership:
    """A part of a run: the store is this run's from `take` to `stop`."""

    def __init__(
        self,
        place: Place,
        lease_s: float = LEASE_S,
        renew_s: float = RENEW_S,
        look_s: float = LOOK_S,
        host: str = "",
    ) -> None:
        """`host`: which of several hosts of one run this is."""
        self._place = place
        self._file = file_of(host)
        self._host = host
        self._lease_s = lease_s
        self._renew_s = renew_s
        self._look_s = look_s
        self._own: Owner | None = None
        self._tag: str | None = None
        self._lost: CallerError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="owner", daemon=True)

    def take(self, say: Callable[[str], Any] = lambda text: None) -> None:
        """Make the store this run's; a sentence if it is another one's."""
        for name in self._others():
            other, _ = self._read(name)
            if other is not None and other.token:
                self._wait_until_gone(other, say, name)
        held, self._tag = self._read(self._file)
        if held is not None and held.token:
            self._wait_until_gone(held, say, self._file)
        own = self._describe(1 if held is None else held.number + 1)
        self._tag = self._place.store.replace_if(self._file, protect_json(own), self._tag)
        if self._tag is None:
            raise CallerError(f"another run was started in {self._place} at the same time; one of them is enough")
        self._own = own
        self._thread.start()

    def start(self, say: Callable[[str], None]) -> None:
        """It was taken before anything else."""

    def check(self) -> None:
        if self._lost is not None:
            raise self._lost

    def stop(self) -> None:
        """Let the next run begin at once."""
        self._stopping.set()
        if self._own is None:
            return
        self._thread.join()
        own, self._own = self._own, None
        if self._lost is None:
            ended = msgspec.structs.replace(own, token="", number=own.number + 1)
            try:
                self._place.store.replace_if(self._file, protect_json(ended), self._tag)
            except DiskError:
                return  # the next run sees that this process is gone

    def _others(self) -> list[str]:
        """The records of a run on one host, for one of several; and the other way round."""
        if self._host:
            return [FILE]
        return [name for name in self._place.store.names("") if name.startswith("owner.") and name != FILE]

    def _wait_until_gone(self, held: Owner, say: Callable[[str], Any], name: str) -> None:
        if held.space == _space():
            if began_at(held.pid) == held.began:
                raise self._refusal(held)
            return
        say(f"{self._place} was run by {held}; looking for {self._lease_s:.0f} s whether that run still goes on")
        until_s = time.monotonic() + self._lease_s
        while time.monotonic() < until_s:
            self._stopping.wait(self._look_s)
            now, tag = self._read(name)
            if name == self._file:
                self._tag = tag
            if now is None or not now.token:
                return
            if now != held:
                raise self._refusal(now)

    def _refusal(self, held: Owner) -> CallerError:
        return CallerError(
            f"{self._place} belongs to another run: {held}; stop that one, or give this one another --data"
        )

    def _renew(self) -> None:
        while not self._stopping.wait(self._renew_s):
            try:
                self._renew_once()
            except DiskError:
                continue  # the store is away; what is sealed meanwhile waits for it too
            if self._lost is not None:
                return

    def _renew_once(self) -> None:
        if self._own is None:
            return
        own = msgspec.structs.replace(self._own, number=self._own.number + 1)
        tag = self._place.store.replace_if(self._file, protect_json(own), self._tag)
        if tag is None:
            now, self._tag = self._read(self._file)
            if now is None or now.token != own.token:
                who = "nobody" if now is None else str(now)
                self._lost = CallerError(f"{self._place} was taken over by another run ({who}); this one ends")
                return
            self._own = now  # a reply to our own renewal was lost
            return
        self._own, self._tag = own, tag

    def _read(self, name: str) -> tuple[Owner | None, str | None]:
        held = self._place.store.read_tagged(name)
        if held is None:
            return None, None
        where = self._place.store.locate(name)
        return verified_json(held[0], Owner, where, "remove it, if no run uses this place"), held[1]

    def _describe(self, number: int) -> Owner:
        pid = os.getpid()
        return Owner(
            token=secrets.token_hex(8),
            number=number,
            host=os.uname().nodename,
            space=_space(),
            pid=pid,
            began=began_at(pid) or "",
            since_us=time.time_ns() // 1000,
        )


def _space() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # no Linux: then only the lease tells
        return secrets.token_hex(8)
