"""Every target behind the port, fake and real, by the same tests."""

from __future__ import annotations

import threading
from random import Random

import pytest

from tests.sinks.places import RealPlace
from tests.sinks.world import (
    BEGIN_US,
    QUICK,
    SCHEMA,
    Fault,
    Place,
    add,
    chain_with,
    delivery,
    record_of,
    rows,
    wrong_in,
)
from unerring.audit import COMPLETENESS
from unerring.log import Chain, EventLog, Positions, cut
from unerring.model import CallerError, NetworkError, SchemaError, Stamp
from unerring.sinks import DeliveryConfig, Overtaken, Target
from unerring.sinks.chunks import chunks
from unerring.sinks.port import last_stamp

NOW = threading.Event()


def test_rows_come_back_bit_for_bit(place: Place) -> None:
    record = record_of(place, "whole")
    chain = chain_with(200)
    target = place.open("whole", record)
    assert target.position() is None
    [chunk] = chunks(chain, None, 1000)
    target.write(chunk, None)
    assert target.position() >= last_stamp(chunk)
    target.close()
    target = place.open("whole", record)
    assert wrong_in(target, chain) == {}
    first_us = chunk.column("time")[40].value
    some = target.read(first_us, first_us + 5_000).column("time").cast("int64").to_pylist()
    wanted = chunk.column("time").cast("int64").to_pylist()
    assert sorted(some) == [time for time in wanted if first_us < time <= first_us + 5_000]
    target.close()


def test_a_driver_that_was_overtaken_writes_nothing(place: Place) -> None:
    record = record_of(place, "zombie")
    chain = chain_with(90)
    first, second, third = chunks(chain, None, 30)
    one, other = place.open("zombie", record), place.open("zombie", record)
    assert one.position() is None
    assert other.position() is None
    one.write(first, None)
    with pytest.raises(Overtaken):
        other.write(first, None)
    other.close()
    other = place.open("zombie", record)  # as a driver does after every error
    at = other.position()
    other.write(second, at)
    with pytest.raises(Overtaken):
        one.write(second, last_stamp(first))
    one.close()
    other.write(third, last_stamp(second))
    assert wrong_in(other, chain) == {}
    other.close()


def test_history_and_then_what_follows_without_a_seam(place: Place) -> None:
    record = record_of(place, "seam")
    chain = chain_with(150)
    work = delivery(chain, record, lambda: place.open("seam", record))
    work.run(NOW, follow=False)
    assert work.progress.delivered == 150
    more = rows(70, chain.through_us + 5, seed=2)
    add(chain, more)
    work = delivery(chain, record, lambda: place.open("seam", record), config=DeliveryConfig(rows_max=40))
    work.run(NOW, follow=False)
    assert (work.progress.delivered, work.progress.waiting, work.progress.state) == (70, 0, "delivering")
    target = place.open("seam", record)
    assert wrong_in(target, chain) == {}
    target.close()


@pytest.mark.parametrize("seed", range(2))
def test_failures_and_lost_answers_double_nothing(place: Place, seed: int) -> None:
    random = Random(f"{seed} {place.kind}")
    record = record_of(place, f"faults{seed}")
    chain = chain_with(120, seed=seed)

    def opening() -> Fault:
        when = lambda: random.choice(["before", "after", "", ""])  # noqa: E731
        return Fault(place.open(f"faults{seed}", record), when, NetworkError)

    config = DeliveryConfig(rows_max=random.choice([20, 40]), pause_s_min=0.001, pause_s_max=0.002)
    work = delivery(chain, record, opening, config=config)
    work.run(NOW, follow=False)
    target = place.open(f"faults{seed}", record)
    assert wrong_in(target, chain) == {}
    target.close()


def test_two_drivers_at_once_double_nothing(table_place: Place) -> None:
    place = table_place
    record = record_of(place, "pair")
    held = chain_with(150)
    works = [delivery(_again(held), record, lambda: place.open("pair", record)) for _ in range(2)]
    threads = [threading.Thread(target=work.run, args=(NOW, False)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    target = place.open("pair", record)
    assert wrong_in(target, held) == {}
    target.close()


def _again(chain: Chain) -> Chain:
    return EventLog(chain.store).chain(chain.name)


def test_a_rewound_target_has_what_it_had_then(table_place: Place) -> None:
    place = table_place
    record = record_of(place, "back")
    chain = chain_with(120)
    delivery(chain, record, lambda: place.open("back", record)).run(NOW, follow=False)
    to = Stamp(chain.read(chain.base.from_us, chain.through_us).column("time")[50].as_py(), 1 << 62)
    target = place.open("back", record)
    target.rewind(to)
    target.close()
    target = place.open("back", record)
    at = target.position()
    assert at is not None
    assert at.time == to.time
    held = target.read(0, chain.through_us)
    assert max(held.column("time").cast("int64").to_pylist()) == to.time
    assert list(wrong_in(target, chain)) == [COMPLETENESS]
    target.close()
    delivery(chain, record, lambda: place.open("back", record)).run(NOW, follow=False)
    target = place.open("back", record)
    assert wrong_in(target, chain) == {}
    target.close()


def test_another_run_s_sink_is_another_sink(real_place: RealPlace) -> None:
    place = real_place
    ours, theirs = record_of(place, "shared"), record_of(place, "shared", token="ffffffff")
    chain = chain_with(30)
    delivery(chain, ours, lambda: place.open("shared", ours)).run(NOW, follow=False)
    with pytest.raises(CallerError, match="has rows, and none of them by this sink"):
        delivery(chain, theirs, lambda: place.open("shared", theirs)).run(NOW, follow=False)


def test_a_table_of_another_schema_is_refused(real_table_place: RealPlace) -> None:
    place = real_table_place
    place.make_other("other")
    record = record_of(place, "other")
    work = delivery(chain_with(5), record, lambda: place.open("other", record))
    with pytest.raises(SchemaError, match="sink other"):
        work.run(NOW, follow=False)
    assert work.progress.state == "stopped"


def test_a_position_ahead_of_the_log_is_refused(place: Place) -> None:
    record = record_of(place, "ahead")
    delivery(chain_with(60), record, lambda: place.open("ahead", record)).run(NOW, follow=False)
    with pytest.raises(CallerError, match="was rolled back, or another copy"):
        delivery(chain_with(20), record, lambda: place.open("ahead", record)).run(NOW, follow=False)


def test_a_target_that_is_down_for_a_while_is_tried_until_it_is_back(place: Place) -> None:
    record = record_of(place, "down")
    chain = chain_with(60)
    tries: list[str] = []
    heard: list[str] = []

    def opening() -> Target:
        tries.append("")
        if len(tries) < 6:
            raise NetworkError("nobody answers")
        return place.open("down", record)

    work = delivery(chain, record, opening, say=heard.append)
    work.run(NOW, follow=False)
    assert (work.progress.failures, work.progress.state) == (5, "delivering")
    assert heard == [
        "sink down is waiting and is tried again: nobody answers",
        "sink down delivers again",
    ]
    target = place.open("down", record)
    assert wrong_in(target, chain) == {}
    target.close()


class VirtualHours(threading.Event):
    """What a driver waits on, on a clock that moves as far as it is waited for. Meanwhile the stream goes on."""

    def __init__(self, chain: Chain, end_s: float) -> None:
        super().__init__()
        self.now_s = 0.0
        self._chain = chain
        self._end_s = end_s

    def wait(self, timeout: float | None = None) -> bool:
        before_s, self.now_s = self.now_s, self.now_s + (timeout or 0.0)
        if before_s // 600 < self.now_s // 600:
            add(self._chain, rows(10, self._chain.through_us + 5, seed=int(self.now_s)))
        if self.now_s >= self._end_s:
            self.set()
        return self.is_set()


def test_a_target_that_is_down_for_an_hour_is_tried_now_and_then(place: Place) -> None:
    record = record_of(place, "hour")
    held = chain_with(60)
    hours = VirtualHours(held, end_s=2 * 3600 - 60)
    down_s, up_s = 1000, 1000 + 3600
    tries: list[float] = []
    heard: list[str] = []

    def when() -> str:
        return "after" if not tries and hours.now_s >= down_s else ""  # the answer to the first write is lost

    def opening() -> Target:
        if down_s <= hours.now_s < up_s:
            tries.append(hours.now_s)
            raise NetworkError("nobody answers")
        return Fault(place.open("hour", record), when, NetworkError)

    config = DeliveryConfig(rows_max=30, look_s=20.0)
    work = delivery(_again(held), record, opening, config=config, say=heard.append, now_s=lambda: hours.now_s)
    work.run(hours)
    target = place.open("hour", record)
    assert wrong_in(target, held) == {}
    target.close()
    assert 3600 / config.pause_s_max - 1 <= len(tries) <= 3600 / config.pause_s_max + 10
    assert up_s - tries[-1] <= config.pause_s_max
    assert heard == [
        "sink hour is waiting and is tried again: the answer was lost",
        "sink hour is waiting and is tried again: nobody answers",
        "sink hour delivers again",
    ]
    assert (work.progress.state, work.progress.waiting) == ("delivering", 0)


def test_retention_keeps_what_was_not_delivered(place: Place) -> None:
    record = record_of(place, "kept")
    chain = chain_with(100)
    middle_us = chain.spans(chain.base.from_us, chain.through_us)[2].through_us
    Positions(chain.store, chain.folder).commit(record.reader, Stamp(middle_us, 0))
    cut(chain, chain.through_us)
    assert chain.base.from_us <= middle_us
    record = record_of(place, "late")
    target = place.open("late", record)
    target.write(next(chunks(chain_with(5), None, 100)), None)
    target.close()
    with pytest.raises(CallerError, match="retention has removed those up to"):
        delivery(chain, record, lambda: place.open("late", record), config=QUICK).run(NOW, follow=False)


def test_retention_waits_for_a_target_that_is_away_as_long_as_it_was_told(place: Place) -> None:
    record = record_of(place, "away")
    chain = chain_with(100)
    away = threading.Event()

    def opening() -> Target:
        away.set()
        raise NetworkError("nobody answers")

    def pinned_us(hold_us: int) -> int:
        config = DeliveryConfig(hold_us=hold_us, note_s=0.01, pause_s_max=0.1)
        away.clear()
        delivery(chain, record, opening, config=config).run(away)
        return Positions(chain.store, chain.folder).get(record.reader).time

    assert pinned_us(10**15) < chain.through_us - 10**14
    assert pinned_us(1000) == chain.through_us - 1000


def test_the_schema_of_the_tests_has_every_type() -> None:
    assert len({column.type for column in SCHEMA.columns}) == 6
    assert rows(1).column("time")[0].as_py() > BEGIN_US
