"""The cluster file of a live run: the query tree, and where every process listens. One file for a run and host."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from unerring.correlation import MEMBERSHIP, CorrelationConfig, Topology, is_keeper, node_of
from unerring.log import private_folder, write_private
from unerring.model import TIME_MIN, ConfigError, protect, verified_json

FILE = "cluster.json"


class Cluster(msgspec.Struct, frozen=True):
    """Written when a run's folder is made; a run with other rules or another f needs its own folder."""

    app: str
    topology: Topology
    addresses: dict[str, str]
    """host:port of every replica, source and application, of spare replicas, and of the keepers of the membership
    record, by name."""
    config: CorrelationConfig = CorrelationConfig()
    durable: bool = False
    """Whether replicas keep what they acknowledge on disk."""
    tls: str = ""
    """A folder with a folder of certificates for each process, or with one certificate for all of this host; empty: no
    TLS, loopback only."""
    policy: str = ""
    """The file with the rights of those who show a certificate; empty: the defaults."""
    secret: str = ""
    """The file with the secret of this run's processes, which they prove to know where there is no TLS."""
    etcd: tuple[str, ...] = ()
    """Where etcd answers, if the membership record is there. Neither there nor on a store: the supervisor keeps it on
    its own disk."""
    record: str = ""
    """The address of the run's store, if the membership record is there."""
    hosts: dict[str, str] = {}
    """Which host each process and keeper belongs on; empty: all on this one."""
    generation: int = 1
    """Rises when volatile replicas, all of which were gone, begin anew from the log: who is left of an older generation
    is refused at the handshake."""
    begins_us: int = TIME_MIN
    """The time after which this generation reads the log: its beginning, or where it was cut."""
    named: str = ""
    """Its `place`, if its addresses have changed since: nodes came and went with an upgrade."""

    @property
    def founding(self) -> list[str]:
        """The processes that a run begins with."""
        return [name for node in self.topology.nodes for name in node.replicas]

    @property
    def names(self) -> list[str]:
        """All processes that may be there: everybody but the keepers of the record."""
        return [name for name in self.addresses if not is_keeper(name)]

    @property
    def keepers(self) -> list[str]:
        """The one that keeps the membership record, or those that share it."""
        return [MEMBERSHIP] if MEMBERSHIP in self.addresses else [name for name in self.addresses if is_keeper(name)]

    @property
    def identity(self) -> str:
        """The identity that all processes that talk to each other must share."""
        return f"{self.topology.fingerprint()}.{self.generation}"

    @property
    def place(self) -> str:
        """The name that separates the record of this run from those of other runs of the same app in one etcd."""
        if self.named:
            return self.named
        where = msgspec.json.encode(sorted(self.addresses.items()))
        return f"{self.identity}.{hashlib.blake2b(where, digest_size=8).hexdigest()}"

    def certificates(self, name: str) -> str:
        """The folder with the certificate of a process; empty: no TLS."""
        own = Path(self.tls) / name.replace("/", ".")
        return str(own) if self.tls and own.exists() else self.tls

    def on(self, host: str) -> list[str]:
        """The processes of one host, spare ones too."""
        return [name for name in self.names if not self.hosts or self.hosts[name] == host]

    def keeper(self, host: str) -> str:
        """The keeper of the membership record for the processes of a host."""
        return MEMBERSHIP if MEMBERSHIP in self.addresses else f"{MEMBERSHIP}/{host}"

    def watcher(self, host: str) -> str:
        """The name under which a host's supervisor keeps the record, or reads what another host keeps."""
        own = f"{MEMBERSHIP}/{host}"
        return own if own in self.addresses else MEMBERSHIP

    def spares(self, node: str) -> list[str]:
        """Names under which a node may get further replicas, or new ones in place of old ones."""
        founding = self.topology.node(node).replicas
        return [name for name in self.names if node_of(name) == node and name not in founding]

    def peers(self, name: str) -> list[str]:
        """The processes that a process may talk to: peers, the levels above and below it, the keepers."""
        if is_keeper(name):
            readers = [other for other in self.addresses if is_keeper(other) and other not in self.keepers]
            if name in readers:
                return self.keepers
            return [*readers, *self.names]
        node = self.topology.node(node_of(name))
        near = [*self.topology.upstream(node.name)]
        near += [taker for stream in node.outputs for taker in self.topology.takers(stream)]
        if not node.stands_alone:
            near.append(node.name)
        return [*self.keepers, *(other for other in self.names if other != name and node_of(other) in near)]

    def write(self, folder: Path) -> None:
        private_folder(folder)
        scratch = folder / f"{FILE}.new"
        write_private(scratch, protect(msgspec.json.format(msgspec.json.encode(self), indent=1)))
        os.replace(scratch, folder / FILE)


def read(folder: Path) -> Cluster:
    """The cluster of a run's folder."""
    try:
        return verified_json((folder / FILE).read_bytes(), Cluster, str(folder / FILE))
    except FileNotFoundError:
        raise ConfigError(
            f"{folder} holds no live run and no drivers; start one with `unerring run APP --engine live`, or with "
            "`--engine spark --f 1`"
        ) from None
