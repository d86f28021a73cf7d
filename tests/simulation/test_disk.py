"""Persist before send, and what crashes, full disks and failed syncs make of what was not synced."""

from __future__ import annotations

import recorder
from hypothesis import given, strategies as st

from unerring.model import Deliver, Effects, Persist, Send, SetTimer, Stop
from unerring.simulation import Bounds, DiskSpec, LinkSpec, World

SYNC_US = 1_000
DELAY_US = 10


def world(seed: int = 1, survives: float = 0.0, bounds: Bounds | None = None) -> World:
    link = LinkSpec(delay_us=DELAY_US, spread_us=0)
    return World(seed, link, DiskSpec(sync_us=SYNC_US, spread_us=0, survives=survives), bounds)


def put(key: str, value: bytes = b"v") -> Persist:
    return Persist(puts=((key, value),))


def do(on: World, node: str, *effects: object) -> None:
    assert on.call(node, "do", list(effects))


def test_what_follows_a_persist_waits_for_its_sync() -> None:
    on = world()
    recorder.add(on, "a")
    [b] = [recorder.add(on, "b")]
    on.run_until(0)
    do(on, "a", Send("b", "before"), put("k"), Send("b", "after"), Deliver("after"))
    on.run_until(SYNC_US - 1)
    assert b[0].messages() == ["before"]
    assert [line.what for line in on.history] == ["start", "start"]
    on.run_until(SYNC_US + DELAY_US)
    assert b[0].messages() == ["before", "after"]
    assert on.history[-1].value == "after"
    assert on.history[-1].at_us == SYNC_US


def test_a_crash_before_the_sync_loses_records_and_sends() -> None:
    on = world()
    a, b = recorder.add(on, "a"), recorder.add(on, "b")
    on.run_until(0)
    do(on, "a", put("k"), Send("b", "x"), Deliver("x"))
    on.run_until(SYNC_US - 1)
    on.crash("a")
    on.run_until(10 * SYNC_US)
    on.start("a")
    on.run_until(20 * SYNC_US)
    assert a[1].records == {}
    assert b[0].messages() == []
    assert all(line.what != "deliver" for line in on.history)


def test_an_unsynced_batch_survives_whole_or_not_at_all() -> None:
    seen = set()
    for seed in range(40):
        on = world(seed, survives=0.5)
        a = recorder.add(on, "a")
        on.run_until(0)
        do(on, "a", Persist(puts=(("k", b"1"), ("l", b"1"))))
        on.run_until(SYNC_US)
        do(on, "a", Persist(puts=(("k", b"2"), ("m", b"2")), deletes=("l",)))
        on.run_until(SYNC_US + 1)
        on.crash("a")
        on.start("a")
        seen.add(tuple(a[1].records.items()))
    assert seen == {(("k", b"1"), ("l", b"1")), (("k", b"2"), ("m", b"2"))}


def test_records_come_back_in_key_order() -> None:
    on = world()
    a = recorder.add(on, "a")
    on.run_until(0)
    do(on, "a", put("z"), put("b"), put("m"))
    on.run_until(10 * SYNC_US)
    on.crash("a")
    on.start("a")
    assert list(a[1].records) == ["b", "m", "z"]


def test_inputs_go_on_during_a_sync_and_later_persists_share_the_next() -> None:
    on = world()
    recorder.add(on, "a", lambda what, value, now: [put(value), Send("b", value)] if what == "message" else [])
    b = recorder.add(on, "b")
    recorder.add(on, "c")
    on.run_until(0)
    do(on, "c", *[Send("a", f"k{number}") for number in range(5)])
    on.run_until(20 * SYNC_US)
    assert b[0].messages() == [f"k{number}" for number in range(5)]
    assert on.nodes["a"].storage.syncs == 2  # The first alone, the other four as one group commit.


def test_what_the_application_answers_comes_after_what_it_was_told_by() -> None:
    on = world()

    def tell(what: object) -> None:
        on.call("a", "do", [put("second"), Send("b", "third")] if what == "first" else [])

    recorder.add(on, "a", on_deliver=tell)
    b = recorder.add(on, "b")
    on.run_until(0)
    do(on, "a", put("k"), Deliver("first"), Send("b", "first"), put("first"), Send("b", "second"))
    on.run_until(20 * SYNC_US)
    assert b[0].messages() == ["first", "second", "third"]
    assert list(on.nodes["a"].storage.records) == ["k", "first", "second"]


def test_the_application_is_told_in_the_order_of_delivery() -> None:
    on = world()
    told: list[object] = []

    def tell(what: object) -> None:
        told.append(what)
        if what == "first":
            on.call("a", "do", [Deliver("third")])

    recorder.add(on, "a", on_deliver=tell)
    on.run_until(0)
    do(on, "a", Deliver("first"), Deliver("second"))
    assert told == ["first", "second", "third"]
    assert [line.value for line in on.history if line.what == "deliver"] == told


def test_a_crash_among_deliveries_ends_them() -> None:
    on = world()
    told: list[object] = []

    def tell(what: object) -> None:
        told.append(what)
        on.crash("a")
        on.start("a")

    recorder.add(on, "a", on_deliver=tell)
    on.run_until(0)
    do(on, "a", Deliver("first"), Deliver("second"))
    assert told == ["first"]
    do(on, "a", Deliver("third"))
    assert told == ["first", "third"]


def test_a_full_disk_stops_the_node_and_nothing_is_sent() -> None:
    on = world()
    a, b = recorder.add(on, "a"), recorder.add(on, "b")
    on.run_until(0)
    on.nodes["a"].storage.full = True
    do(on, "a", put("k"), Send("b", "x"))
    on.run_until(5 * SYNC_US)
    assert on.machine("a") is None
    assert (on.history[-1].what, on.history[-1].value) == ("fail", "the disk is full")
    on.nodes["a"].storage.full = False
    on.start("a")
    on.run_until(10 * SYNC_US)
    assert a[1].records == {}
    assert b[0].messages() == []


def test_a_failed_sync_stops_the_node_once() -> None:
    on = world()
    a = recorder.add(on, "a")
    on.run_until(0)
    on.nodes["a"].storage.fails_next = True
    do(on, "a", put("k"))
    on.run_until(5 * SYNC_US)
    assert on.machine("a") is None
    on.start("a")
    do(on, "a", put("k"))
    on.run_until(10 * SYNC_US)
    assert on.machine("a") is a[1]
    assert on.nodes["a"].storage.records == {"k": b"v"}


def test_a_lying_disk_forgets_at_a_crash_what_it_claimed() -> None:
    on = world()
    a, b = recorder.add(on, "a"), recorder.add(on, "b")
    on.run_until(0)
    do(on, "a", put("true"))
    on.run_until(2 * SYNC_US)
    on.nodes["a"].storage.lie(True)
    do(on, "a", put("lie"), Send("b", "promised"))
    on.run_until(5 * SYNC_US)
    on.crash("a")
    on.start("a")
    assert b[0].messages() == ["promised"]
    assert a[1].records == {"true": b"v"}


def test_stop_waits_for_the_disk_and_nothing_is_sent_after_it() -> None:
    on = world()
    recorder.add(on, "a")
    b = recorder.add(on, "b")
    on.run_until(0)
    do(on, "a", put("k"), Send("b", "last"), Stop("done"), Send("b", "never"))
    assert on.machine("a") is None
    on.run_until(5 * SYNC_US)
    assert b[0].messages() == ["last"]
    assert [(line.what, line.value) for line in on.history if line.node == "a"][-1] == ("stop", "done")
    assert on.nodes["a"].storage.records == {"k": b"v"}


def test_timers_do_not_wait_for_the_disk() -> None:
    on = world()
    a = recorder.add(on, "a")
    on.run_until(0)
    do(on, "a", put("k"), SetTimer("t", on.node_now_us("a") + SYNC_US // 2))
    on.run_until(SYNC_US - 1)
    assert [what for what, _, _ in a[0].got] == ["start", "timer"]


def test_a_stalled_node_hears_its_application_when_the_sync_returns() -> None:
    on = world(bounds=Bounds(waiting_max=3))
    heard: list[bool] = []
    recorder.add(on, "a", on_deliver=lambda what: heard.append(on.call("a", "do", [])))
    on.run_until(0)
    do(on, "a", put("k"), *[Deliver(number) for number in range(5)])
    assert on.machine("a") is None
    on.run_until(2 * SYNC_US)
    assert heard == [True] * 5


def test_a_node_stalls_when_too_much_waits_for_its_disk_and_loses_nothing() -> None:
    on = world(bounds=Bounds(waiting_max=3))
    a = recorder.add(on, "a", lambda what, value, now: [put("k"), Deliver(value)] if what == "message" else [])
    recorder.add(on, "b")
    on.run_until(0)
    do(on, "b", *[Send("a", number) for number in range(10)])
    on.run_until(SYNC_US // 2)
    assert len(a[0].messages()) == 3  # The third's effects are over the bound.
    assert on.machine("a") is None
    on.run_until(50 * SYNC_US)
    assert [line.value for line in on.history if line.what == "deliver"] == list(range(10))


@given(st.data())
def test_persist_before_send_whatever_the_order_and_the_moment_of_a_crash(data: st.DataObject) -> None:
    """A model of the promise: whoever got message n can be sure that everything persisted before n is there."""
    on = world(data.draw(st.integers(0, 2**32)), survives=0.5)
    kinds = data.draw(st.lists(st.sampled_from(["persist", "send"]), max_size=12))
    effects: Effects = [
        put(f"{number:03}") if kind == "persist" else Send("b", number) for number, kind in enumerate(kinds)
    ]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(kinds)), max_size=3)))
    a, b = recorder.add(on, "a"), recorder.add(on, "b")
    on.run_until(0)
    for number, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(kinds)], strict=True)):
        on.run_until(number * data.draw(st.integers(0, SYNC_US)))
        do(on, "a", *effects[first:last])
    on.run_until(on.now_us + data.draw(st.integers(0, 4 * SYNC_US)))
    on.crash("a")
    on.start("a")
    on.run_until(on.now_us + SYNC_US)
    kept = [int(key) for key in a[1].records]
    persisted = [number for number, kind in enumerate(kinds) if kind == "persist"]
    assert kept == persisted[: len(kept)]  # In order, no holes.
    got = b[0].messages()
    sent = [number for number, kind in enumerate(kinds) if kind == "send"]
    assert got == sent[: len(got)]
    if got:
        assert [number for number in persisted if number < got[-1]] == kept[: sum(n < got[-1] for n in persisted)]
