"""One run at a time on a store, whoever started it and wherever."""

from __future__ import annotations

import msgspec
import pytest

from unerring.app.owner import FILE, Owner, Ownership
from unerring.app.place import Place, place_of
from unerring.model import CallerError, protect_json, verified_json


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    scratch = tmp_path_factory.mktemp("scratch")
    if request.param == "folder":
        return place_of(scratch / "run")
    return place_of(f"{request.getfixturevalue('s3_bucket')}/{scratch.name}", scratch)


def record(place: Place) -> Owner:
    return verified_json(place.store.read(FILE) or b"", Owner, FILE)


def elsewhere(place: Place, **changed: object) -> Owner:
    """A run of another host has the place."""
    known = Owner("another", 7, "far", "another boot", 1, "then", 0)
    known = msgspec.structs.replace(known, **changed)
    while True:  # as every writer of it does: only if it is unchanged
        held = place.store.read_tagged(FILE)
        if place.store.replace_if(FILE, protect_json(known), None if held is None else held[1]) is not None:
            return known


def test_a_second_run_of_this_host_is_told_who_has_the_place(place: Place) -> None:
    first = Ownership(place)
    first.take()
    try:
        with pytest.raises(
            CallerError, match=r"belongs to another run: process \d+ on host .*; stop that one, or give"
        ):
            Ownership(place).take()
    finally:
        first.stop()
    second = Ownership(place)
    second.take()  # the first one ended in order: at once
    second.stop()


def test_a_run_whose_process_is_gone_is_taken_over_at_once(place: Place) -> None:
    first = Ownership(place)
    first.take()
    first._stopping.set()  # kill -9: nothing is renewed, nothing is given back
    place.store.replace(FILE, protect_json(msgspec.structs.replace(record(place), pid=1, began="never")))
    second = Ownership(place)
    second.take()
    second.check()
    second.stop()


def test_a_run_elsewhere_that_renews_its_record_is_left_alone(place: Place) -> None:
    elsewhere(place)
    looks = Ownership(place, lease_s=600, look_s=0.01)
    read = looks._read

    def renewed(name: str) -> tuple[Owner | None, str | None]:
        found = read(name)
        elsewhere(place, number=(found[0].number if found[0] else 0) + 1)
        return found

    looks._read = renewed  # type: ignore[method-assign]
    with pytest.raises(CallerError, match="belongs to another run: process 1 on host far"):
        looks.take()


def test_a_run_elsewhere_that_renews_nothing_is_taken_over(place: Place) -> None:
    elsewhere(place)
    said: list[str] = []
    taking = Ownership(place, lease_s=0.05, look_s=0.01)
    taking.take(said.append)
    assert "whether that run still goes on" in said[0]
    assert record(place).number == 8
    taking.stop()
    assert record(place).token == ""


def test_the_owner_renews_and_ends_when_another_has_taken_over(place: Place) -> None:
    own = Ownership(place, renew_s=0.01)
    own.take()
    before = record(place).number
    for _ in range(60_000):
        if record(place).number > before:
            break
    assert record(place).number > before
    elsewhere(place)
    own._thread.join(60)
    with pytest.raises(CallerError, match="was taken over by another run"):
        own.check()
    own.stop()
    assert record(place).token == "another", "what is another's stays as it is"


def test_several_hosts_of_one_run_have_a_record_each(place: Place) -> None:
    hosts = [Ownership(place, lease_s=0.05, look_s=0.01, host=host) for host in "ab"]
    for one in hosts:
        one.take()
    with pytest.raises(CallerError, match="belongs to another run"):
        Ownership(place, host="a").take()
    with pytest.raises(CallerError, match="belongs to another run"):
        Ownership(place).take()  # a run on one host
    for one in hosts:
        one.stop()
    alone = Ownership(place)
    alone.take()
    with pytest.raises(CallerError, match="belongs to another run"):
        Ownership(place, host="a").take()
    alone.stop()
