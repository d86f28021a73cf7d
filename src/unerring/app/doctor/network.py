"""Ports that this host listens on, and those of others that it must reach."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

from unerring.app.doctor.finding import Finding, error, warning, well

CONNECT_S: Final = 2.0
_AT_ONCE: Final = 32
_PORTS: Final = {"http": 80, "https": 443}


def listens(addresses: Mapping[str, str]) -> Iterator[Finding]:
    """What does not run on this host must find its port free."""
    taken = 0
    for name, address in addresses.items():
        why = _taken(address)
        if why:
            taken += 1
            yield error("ports", f"{name} cannot listen on {address}: {why}")
    if addresses and not taken:
        yield well("ports", f"the ports of this host are free: {_range(addresses)}")


def _taken(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_server((host, int(port)), family=_family(host)):
            return ""
    except OSError as failed:
        if failed.errno == errno.EADDRINUSE:
            return "another program has the port; end it (ss -ltnp shows it), or give the run other hosts' addresses"
        if failed.errno == errno.EADDRNOTAVAIL:
            return "this host does not have that address; correct --host or --here"
        return f"{os.strerror(failed.errno or 0)}; choose another address"


def reaches(addresses: Mapping[str, str], up: bool) -> Iterator[Finding]:
    """What others listen on. `up`: they should be there now."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = pool.map(_answer, addresses.values())
        for (name, address), answer in zip(addresses.items(), answers, strict=True):
            if not answer:
                yield well("peers", f"{name} answers on {address}")
            elif answer == "refused" and not up:
                yield well("peers", f"{address} can be reached; {name} is not running there")
            elif answer == "refused":
                yield warning(
                    "peers", f"nobody listens on {address}, where {name} should be; start it, or look why it ended"
                )
            else:
                yield error(
                    "peers",
                    f"{name} on {address} cannot be reached ({answer}); look at routes and firewalls between the hosts",
                )


def _answer(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S):
            return ""
    except ConnectionRefusedError:
        return "refused"
    except TimeoutError:
        return f"no answer in {CONNECT_S:.0f} s"
    except OSError as failed:
        return failed.strerror or str(failed)


def places_of(urls: Mapping[str, str]) -> dict[str, str]:
    """host:port of what has one, by name."""
    known = {}
    for name, url in urls.items():
        parts = urlsplit(url)
        try:
            port = parts.port or _PORTS.get(parts.scheme)
        except ValueError:
            continue  # a list of servers, as Kafka's: its own client says what is wrong
        if parts.hostname and port and parts.scheme not in ("udp", "multicast"):
            known[name] = f"{parts.hostname}:{port}"
    return known


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _range(addresses: Mapping[str, str]) -> str:
    ports = sorted({int(address.rpartition(":")[2]) for address in addresses.values()})
    return f"{ports[0]} to {ports[-1]}, {len(ports)} of them" if len(ports) > 1 else str(ports[0])
