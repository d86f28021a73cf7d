"""Hosts on one machine: network namespaces joined by a bridge, cut off from each other by nftables rules."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

PREFIX = "10.77.0"


class Network:
    """`hosts` are namespaces with an address each. A cut drops what one of them receives from another."""

    def __init__(self, ip: Path, nft: Path, tag: str, hosts: Sequence[str]) -> None:
        self.addresses = {host: f"{PREFIX}.{number}" for number, host in enumerate(hosts, 1)}
        self._ip = ip
        self._nft = nft
        self._tag = tag

    def namespace(self, host: str) -> str:
        return f"{self._tag}{host}"

    def inside(self, host: str) -> list[str]:
        """What a command is prefixed with to run there."""
        return [str(self._ip), "netns", "exec", self.namespace(host)]

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"

    def _in_ip(self, host: str, *arguments: str) -> None:
        self._run(str(self._ip), "-n", self.namespace(host), *arguments)

    def open(self) -> None:
        """One more namespace holds the bridge, so that nothing of this machine's own network is touched."""
        for host in ("", *self.addresses):
            self._run(str(self._ip), "netns", "add", self.namespace(host))
            self._in_ip(host, "link", "set", "lo", "up")
        self._in_ip("", "link", "add", "bridge0", "type", "bridge")
        self._in_ip("", "link", "set", "bridge0", "up")
        for host, address in self.addresses.items():
            plug = f"to{host}"
            self._in_ip("", "link", "add", plug, "type", "veth", "peer", "name", "eth0", "netns", self.namespace(host))
            self._in_ip("", "link", "set", plug, "master", "bridge0", "up")
            self._in_ip(host, "addr", "add", f"{address}/24", "dev", "eth0")
            self._in_ip(host, "link", "set", "eth0", "up")
            self._nft_in(host, "add table inet cut; add chain inet cut in { type filter hook input priority 0; }")

    def close(self) -> None:
        for host in ("", *self.addresses):
            subprocess.run([str(self._ip), "netns", "del", self.namespace(host)], capture_output=True, check=False)

    def _nft_in(self, host: str, rules: str) -> None:
        self._run(*self.inside(host), str(self._nft), rules)

    def cut(self, host: str, off_from: str, both: bool) -> None:
        """`host` receives nothing from the other one; both: nor the other way."""
        self._nft_in(host, f"add rule inet cut in ip saddr {self.addresses[off_from]} drop")
        if both:
            self._nft_in(off_from, f"add rule inet cut in ip saddr {self.addresses[host]} drop")

    def unplug(self, host: str) -> None:
        """Nothing comes from it or reaches it any more, and nobody is told so."""
        self._in_ip("", "link", "set", f"to{host}", "down")

    def plug(self, host: str) -> None:
        self._in_ip("", "link", "set", f"to{host}", "up")

    def heal(self) -> None:
        for host in self.addresses:
            self._nft_in(host, "flush chain inet cut in")


@contextlib.contextmanager
def network(ip: Path, nft: Path, tag: str, hosts: Sequence[str]) -> Iterator[Network]:
    made = Network(ip, nft, tag, hosts)
    made.close()
    try:
        made.open()
        yield made
    finally:
        made.close()
