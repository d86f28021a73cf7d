"""Hosts on one machine that share nothing but a network: each has its own network, mounts, processes and name.

A host's root is read-only, so that Python, Java and Spark are there as in an image. What it may write is its own and in
memory: `/srv`, `/tmp`, `/var/tmp` and `/dev/shm`. What it is given is copied to `/srv/given` when it starts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from tests.correlation.network import Network, network

GIVEN = Path("/srv/given")
OWN = ("/tmp", "/var/tmp", "/dev/shm")
_INIT = """
set -e
given=$1; name=$2; names=$3; shift 3
mount --make-rprivate /
hostname "$name"
mount -t tmpfs none /srv
cp -r "$given" /srv/given
mkdir /srv/home
printf '%s' "$names" > /srv/hosts
mount --bind /srv/hosts /etc/hosts
for hidden; do mount -t tmpfs none "$hidden"; done
mount -o remount,bind,ro /
cd /srv/given
echo up
exec sleep infinity
"""
_RUN = 'cd /srv/given && exec "$@"'


class Host:
    """A running host; what runs on it ends with it."""

    def __init__(self, joined: Network, name: str, given: Path, hidden: Sequence[str]) -> None:
        self.address = joined.addresses[name]
        self._joined, self._name = joined, name
        joined.plug(name)
        apart = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
        known = {"localhost": "127.0.0.1", **joined.addresses}
        names = "".join(f"{address} {host}\n" for host, address in known.items())
        init = ["sh", "-c", _INIT, "init", str(given), name, names, *OWN, *hidden]
        self._outside = subprocess.Popen([*joined.inside(name), *apart, *init], stdout=subprocess.PIPE, text=True)
        assert self._outside.stdout is not None
        assert self._outside.stdout.readline() == "up\n", f"host {name} did not start"
        self._started: list[subprocess.Popen[bytes]] = []
        [self._init] = psutil.Process(self._outside.pid).children()

    @property
    def root(self) -> Path:
        """Its files, as they are seen from outside."""
        return Path(f"/proc/{self._init.pid}/root")

    def command(self, *command: str, **more: str) -> list[str]:
        """A command as it is started from outside."""
        known = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG") if name in os.environ}
        own = {"HOME": "/srv/home", "SPARK_LOCAL_IP": self.address, "SPARK_LOCAL_HOSTNAME": self.address}
        settings = [f"{name}={value}" for name, value in {**known, **own, **more}.items()]
        enter = ["nsenter", "--target", str(self._init.pid), "--mount", "--pid", "--net", "--uts"]
        return [*enter, "env", "-i", *settings, "sh", "-c", _RUN, "sh", *command]

    def start(self, log: Path, *command: str, **more: str) -> subprocess.Popen[bytes]:
        """Start a program there; what it says is in a file outside."""
        with log.open("ab") as output:
            process = subprocess.Popen(self.command(*command, **more), stdout=output, stderr=subprocess.STDOUT)
        self._started.append(process)
        return process

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a program there to its end."""
        done = self.command(*command, **more)
        return subprocess.run(done, capture_output=True, text=True, timeout=600, check=False)

    def lose(self) -> None:
        """Its cable is pulled first: to the others it falls silent, and no kernel ends its connections. Then its first
        process is killed, and with it all others: nothing of it is left."""
        if self._outside.returncode is not None:
            return
        self._joined.unplug(self._name)
        with contextlib.suppress(psutil.NoSuchProcess):
            self._init.send_signal(signal.SIGKILL)
        self._outside.communicate()
        for process in self._started:
            process.wait()


def hidden_folders() -> list[str]:
    """Where this package is: hosts that are not given it must not find it."""
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    asking = [sys.executable, "-c", "import unerring; print(unerring.__file__)"]
    found = subprocess.run(asking, capture_output=True, text=True, env=plain, cwd="/", check=False).stdout.strip()
    folders = {Path(__file__).parents[1] / "src"}
    if found:
        package = Path(found).parent
        folders.add(package if package.parent.name == "site-packages" else package.parent)
    return sorted(str(folder) for folder in folders if not any(folder.is_relative_to(own) for own in OWN))


@contextlib.contextmanager
def hosts(ip: Path, nft: Path, tag: str, given: Mapping[str, Path], more: Sequence[str] = ()) -> Iterator[Hosts]:
    """Hosts by name, with what each is given; `more` are addresses in the same network for other programs."""
    gone = [own for own in OWN if Path(sys.prefix).is_relative_to(own)]
    if gone:
        raise RuntimeError(f"a host has a {gone[0]} of its own, and would not find {sys.prefix}: move this checkout")
    with network(ip, nft, tag, (*given, *more)) as joined:
        all_hosts = Hosts(joined, {})
        try:
            for name, folder in given.items():
                all_hosts[name] = Host(joined, name, folder, hidden_folders())
            yield all_hosts
        finally:
            for host in all_hosts.values():
                host.lose()


class Hosts(dict[str, Host]):
    """Running hosts, and their network."""

    def __init__(self, joined: Network, running: Mapping[str, Host]) -> None:
        super().__init__(running)
        self.network = joined
