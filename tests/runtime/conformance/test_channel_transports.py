"""The conformance suite over every transport that comes with the package, foreign services with their real servers."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka import MockCluster
from tests.ports import free_port
from tests.runtime.conformance.channel import (
    HARSH,
    Service,
    a_cut_off_consumer_catches_up,
    everything_arrives_once_and_in_order,
    foreign_bytes_are_counted_and_harm_nobody,
)
from tests.runtime.conformance.servers import PROGRAMS, running
from unerring.runtime.transports import Faults

_fresh = itertools.count()


def fixed(url: str) -> Service:
    return Service(url, inlet_url=lambda _: url)


OWN = {
    "inprocess": lambda: fixed(f"inprocess://conformance{next(_fresh)}"),
    "tcp": lambda: Service("tcp://127.0.0.1:0"),
    "udp": lambda: fixed(f"udp://127.0.0.1:{free_port(socket.SOCK_DGRAM)}"),
    "zmq": lambda: fixed(f"zmq://127.0.0.1:{free_port()}"),
    "multicast": lambda: fixed(f"multicast://239.255.77.{1 + next(_fresh) % 250}:{free_port(socket.SOCK_DGRAM)}"),
}


@pytest.fixture(params=[*OWN, "kafka", *PROGRAMS])
def service(
    request: pytest.FixtureRequest, server: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> object:
    """A function that gives a fresh service; one server for a test, one subject for each call."""
    scheme = request.param
    if scheme in OWN:
        yield OWN[scheme]
        return
    if scheme == "kafka":
        with MockCluster(2) as cluster:
            yield lambda: fixed(cluster.url(f"conformance{next(_fresh)}"))
        return
    with running(scheme, server(PROGRAMS[scheme][0]), tmp_path_factory.mktemp(scheme)) as broker:
        yield lambda: fixed(f"{scheme}://127.0.0.1:{broker.port}/conformance{next(_fresh)}")


Fresh = Callable[[], Service]


@pytest.mark.parametrize("faults", [None, HARSH, Faults(loss=0.3)], ids=["calm", "harsh", "loss"])
def test_everything_arrives_once_and_in_order(service: Fresh, faults: Faults | None) -> None:
    asyncio.run(everything_arrives_once_and_in_order(service(), faults))


def test_a_cut_off_consumer_catches_up(service: Fresh) -> None:
    asyncio.run(a_cut_off_consumer_catches_up(service()))


def test_foreign_bytes_are_counted_and_harm_nobody(service: Fresh) -> None:
    asyncio.run(foreign_bytes_are_counted_and_harm_nobody(service()))
