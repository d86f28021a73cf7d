"""Running a keeper of the membership record: on a disk of its own, or with other hosts' keepers on etcd or a store."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import msgspec

from unerring.correlation import KEY, MEMBERSHIP, OPERATOR, STORE, Evict, Membership, Record, RecordIs, Watcher
from unerring.model import CallerError, DiskError
from unerring.runtime.live.cluster import Cluster
from unerring.runtime.live.etcd import EtcdStorage
from unerring.runtime.live.hosting import Host
from unerring.runtime.live.presence import Presence
from unerring.runtime.live.store_record import StoreStorage
from unerring.runtime.os_processes import dotted
from unerring.runtime.storage import SqliteStorage

Storage = SqliteStorage | EtcdStorage | StoreStorage

LOOK_S = 0.1
"""How often a keeper looks whether another one has changed the record in etcd."""
STORE_LOOK_S = 2.0
"""The same on a store, where every look is a request."""
AGAIN_S = 0.2


class Keeping:
    """Keeps the record for a host until cancelled. `record` is the one known last."""

    def __init__(self, cluster: Cluster, folder: Path, host: str) -> None:
        self.cluster = cluster
        self.folder = folder
        self.name = cluster.watcher(host)
        self.presence = Presence(list(dict.fromkeys(cluster.hosts.values())), host)
        self.trouble = ""
        """Why the record cannot be changed now, if so."""
        self._host: Host | None = None
        self._stopped = False

    @property
    def record(self) -> Record:
        machine = None if self._host is None else self._host.driver.machine
        return machine.record if isinstance(machine, Membership | Watcher) else Record(0, {})

    @property
    def membership(self) -> Membership | None:
        """The keeper that runs now, if the record is kept here."""
        machine = None if self._host is None else self._host.driver.machine
        return machine if isinstance(machine, Membership) else None

    def evict(self, replica: str) -> None:
        if self._host is None or not self._keeps:
            raise CallerError(f"the membership record cannot be changed now: {self.trouble or 'it is not kept here'}")
        self._host.driver.offer(OPERATOR, Evict(replica))

    @property
    def _keeps(self) -> bool:
        """Whether the record is kept here, not only read."""
        return self._shared or self.name == MEMBERSHIP

    async def run(self) -> None:
        """One keeper after the other: where several have the record, each ends when it lost a race for a change."""
        if not self._keeps:
            self._host = Host(self.cluster, self.name, Watcher(self.cluster.config))
            await self._host.run(self.folder / "status" / f"{dotted(self.name)}.json")
            return
        while not self._stopped:
            storage: Storage | None = None
            try:
                storage = await asyncio.to_thread(self._storage)
                await self._keep(storage, await asyncio.to_thread(storage.load))
                return
            except DiskError as error:
                self.trouble = str(error)
                if not self._shared:
                    raise
            finally:
                self._host = None
                if storage is not None:
                    storage.close()
            await asyncio.sleep(AGAIN_S * random.random())

    @property
    def _shared(self) -> bool:
        """Whether another keeper may change the record."""
        return bool(self.cluster.etcd or self.cluster.record)

    def _storage(self) -> Storage:
        if self.cluster.etcd:
            return EtcdStorage(self.cluster.etcd, self.cluster.place, self.cluster.certificates(self.name))
        if self.cluster.record:
            return StoreStorage(self.cluster.record, self.cluster.place)
        return SqliteStorage(self.folder / "membership.db")

    async def _keep(self, storage: Storage, records: object) -> None:
        if self._stopped:
            return
        machine = Membership(records, self.cluster.topology, self.cluster.config, random.Random())  # type: ignore[arg-type]
        self._host = Host(self.cluster, self.name, machine, storage, hear=self.presence.hear)
        self.trouble = ""
        beside = None
        if self.cluster.etcd or (self.cluster.record and self.cluster.hosts):
            beside = self._look
        await self._host.run(self.folder / "status" / f"{dotted(self.name)}.json", beside)

    async def _look(self) -> None:
        """Read what another keeper wrote, with its own storage: writes are still compared with what was known."""
        host, storage = self._host, self._storage()
        while host is not None:
            await asyncio.sleep(STORE_LOOK_S if self.cluster.record else LOOK_S)
            try:
                stored = (await asyncio.to_thread(storage.load, KEY)).get(KEY)
            except DiskError as error:
                self.trouble = str(error)
                continue
            self.trouble = ""
            if stored is not None:
                record = msgspec.msgpack.decode(stored, type=Record)
                if record.version > self.record.version:
                    host.driver.offer(STORE, RecordIs(record))

    def stop(self) -> None:
        self._stopped = True
        if self._host is not None:
            self._host.driver.stop("the run ends")
