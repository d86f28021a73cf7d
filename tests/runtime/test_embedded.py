"""Embedded mode: one process, one replica, SQLite; the same machine as in a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from unerring.model import InstanceFailed, ProcessError
from unerring.processes.build import Process
from unerring.processes.graph import Retry
from unerring.runtime.process_node import Embedded
from unerring.runtime.services.clients import Refused

QUICK = Retry(attempt_us=60_000_000, attempts_max=2, backoff_us=1_000, occurrences_max=1)


class Trip(msgspec.Struct):
    city: str = ""
    hotel: str = ""
    flight: str = ""
    approved: str = ""


class Agency:
    """Local functions with a journal of what they did."""

    def __init__(self, flight: str = "flies") -> None:
        self.did: list[str] = []
        self.flight = flight
        self.interactions: list[str] = []

    def process(self) -> Process:
        trip = Process("trip", state=Trip)

        async def cancel_hotel(request: dict[str, Any], reply: Any) -> None:
            self.did.append(f"cancelled {reply}")

        @trip.action(writes="hotel", write=True, compensation=cancel_hotel, retry=QUICK)
        async def book_hotel(city: str, interaction: str) -> str:
            self.interactions.append(interaction)
            self.did.append(f"hotel in {city}")
            return f"hotel {city}"

        @trip.action(writes="flight", write=True, compensable=False, retry=QUICK)
        async def book_flight(city: str) -> str:
            if self.flight == "refuses":
                raise Refused("no seats", for_good=True)
            if self.flight == "raises once":
                self.flight = "flies"
                raise OSError("no network")
            if self.flight == "garbage":
                return 17  # type: ignore[return-value]
            self.did.append(f"flight to {city}")
            return f"flight {city}"

        trip.receive("approval", writes="approved")
        return trip.flow(book_hotel, "approval", book_flight)


async def play(agency: Agency, path: Path, act: str = "signal") -> dict[str, Any]:
    async with Embedded([agency.process()], path) as engine:
        await engine.start("trip", "t1", city="Ulm")
        if act == "cancel":
            await engine.cancel("t1")
        else:
            await engine.signal("t1", "approval", "yes", id="m1")
            if not agency.flight.startswith("refuses"):  # then it may have ended without this message
                await engine.signal("t1", "approval", "yes", id="m1")
        return await engine.result("t1")


def test_a_process_runs_to_its_end(tmp_path: Path) -> None:
    agency = Agency()
    result = asyncio.run(play(agency, tmp_path / "a.db"))
    assert result == {"city": "Ulm", "hotel": "hotel Ulm", "flight": "flight Ulm", "approved": "yes"}
    assert agency.did == ["hotel in Ulm", "flight to Ulm"]
    assert agency.interactions == ["t1/book_hotel/0@0"]


def test_starting_the_same_id_again_does_nothing(tmp_path: Path) -> None:
    agency = Agency()
    asyncio.run(play(agency, tmp_path / "a.db"))

    async def again() -> dict[str, Any]:
        async with Embedded([agency.process()], tmp_path / "a.db") as engine:
            return await engine.run("trip", "t1", city="Ulm")

    assert asyncio.run(again())["city"] == "Ulm"
    assert len(agency.did) == 2


def test_cancelling_compensates(tmp_path: Path) -> None:
    agency = Agency()
    with pytest.raises(InstanceFailed, match="t1 was cancelled"):
        asyncio.run(play(agency, tmp_path / "a.db", "cancel"))
    assert agency.did in (["hotel in Ulm", "cancelled hotel Ulm"], [])


def test_a_refusal_for_good_fails_the_process_backwards(tmp_path: Path) -> None:
    agency = Agency("refuses")
    with pytest.raises(InstanceFailed, match=r"t1 was failed: local refused book_flight: no seats"):
        asyncio.run(play(agency, tmp_path / "a.db"))
    assert agency.did == ["hotel in Ulm", "cancelled hotel Ulm"]


def test_an_action_that_raises_is_tried_again_under_its_id(tmp_path: Path) -> None:
    agency = Agency("raises once")
    assert asyncio.run(play(agency, tmp_path / "a.db"))["flight"] == "flight Ulm"


def test_garbage_from_what_cannot_be_undone_parks(tmp_path: Path) -> None:
    with pytest.raises(InstanceFailed, match="t1 was parked: book_flight answered what cannot be used"):
        asyncio.run(play(Agency("garbage"), tmp_path / "a.db"))


def test_a_process_that_waits_goes_on_after_a_restart(tmp_path: Path) -> None:
    agency = Agency()

    async def first() -> None:
        async with Embedded([agency.process()], tmp_path / "a.db") as engine:
            await engine.start("trip", "t1", city="Ulm")
            while "hotel in Ulm" not in agency.did:
                await asyncio.sleep(0.005)
            while engine.query("t1")["history"] != ["book_hotel"]:
                await asyncio.sleep(0.005)

    async def second() -> dict[str, Any]:
        async with Embedded([agency.process()], tmp_path / "a.db") as engine:
            await engine.signal("t1", "approval", "yes")
            return await engine.result("t1")

    asyncio.run(first())
    assert asyncio.run(second())["approved"] == "yes"
    assert agency.did == ["hotel in Ulm", "flight to Ulm"]


def test_wrong_starts_get_a_sentence(tmp_path: Path) -> None:
    async def wrong(process: str, instance: str, **given: Any) -> None:
        async with Embedded([Agency().process()], tmp_path / "a.db") as engine:
            await engine.start(process, instance, **given)

    with pytest.raises(ProcessError, match="there is no process 'cruise'"):
        asyncio.run(wrong("cruise", "t1"))
    with pytest.raises(ProcessError, match="'city' cannot be 3"):
        asyncio.run(wrong("trip", "t1", city=3))
    with pytest.raises(ProcessError, match="invalid instance id"):
        asyncio.run(wrong("trip", "t/1"))


def test_a_state_too_large_fails_the_process(tmp_path: Path) -> None:
    process = Process("big", state=Trip)

    @process.action(writes="city")
    async def grow() -> str:
        return "x" * (2 << 20)

    process.flow(grow)

    async def run() -> None:
        async with Embedded([process], tmp_path / "a.db") as engine:
            await engine.run("big", "b1")

    with pytest.raises(InstanceFailed, match="the state has no room for 2097157 bytes more, by grow; store less in it"):
        asyncio.run(run())
