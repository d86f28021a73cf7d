"""The conformance suite over every transport that comes with the package."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tests.conformance.channel import (
    HARSH,
    Service,
    a_cut_off_consumer_catches_up,
    everything_arrives_once_and_in_order,
    foreign_bytes_are_counted_and_harm_nobody,
)
from unerring.runtime.transports import Faults

_fresh = itertools.count()


def inprocess() -> Service:
    url = f"inprocess://conformance{next(_fresh)}"
    return Service(url, inlet_url=lambda _: url)


def tcp() -> Service:
    return Service("tcp://127.0.0.1:0")


TRANSPORTS = pytest.mark.parametrize("service", [inprocess, tcp])


@TRANSPORTS
@pytest.mark.parametrize("faults", [None, HARSH, Faults(loss=0.3)], ids=["calm", "harsh", "loss"])
def test_everything_arrives_once_and_in_order(service: object, faults: Faults | None) -> None:
    asyncio.run(everything_arrives_once_and_in_order(service(), faults))  # type: ignore[operator]


@TRANSPORTS
def test_a_cut_off_consumer_catches_up(service: object) -> None:
    asyncio.run(a_cut_off_consumer_catches_up(service()))  # type: ignore[operator]


@TRANSPORTS
def test_foreign_bytes_are_counted_and_harm_nobody(service: object) -> None:
    asyncio.run(foreign_bytes_are_counted_and_harm_nobody(service()))  # type: ignore[operator]
