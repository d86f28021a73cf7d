"""A webhook: at least once, with a stable id, in order; what answers mean."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.sinks.service import Service, keys_of
from tests.sinks.world import QUICK, SCHEMA, chain_with, delivery
from unerring.log import Chain, MemoryStore
from unerring.model import CallerError, ConfigError, Stamp
from unerring.sinks import Delivery, SinkRecord, address_of, forget, open_target
from unerring.sinks.record import position_name, register

NOW = threading.Event()


@pytest.fixture
def service() -> Iterator[Service]:
    running = Service()
    yield running
    running.end()


def work_on(chain: Chain, store: MemoryStore, url: str) -> Delivery:
    record = register(store, "alarms", SCHEMA.name, str(address_of(url)))
    return delivery(chain, record, lambda: open_target(address_of(url), SCHEMA, record, store), config=QUICK)


def test_each_situation_is_posted_with_its_stamp_as_key(service: Service) -> None:
    chain, store = chain_with(70), MemoryStore()
    work_on(chain, store, service.url).run(NOW, follow=False)
    assert service.keys() == keys_of(chain)
    key, document = service.taken[3]
    assert document["id"] == key
    assert set(document) == {"id", "stream", "time_us", "ordinal", "payload"}
    assert set(document["payload"]) == {column.name for column in SCHEMA.columns}
    work_on(chain, store, service.url).run(NOW, follow=False)
    assert len(service.taken) == 70


def test_what_was_not_taken_is_posted_again_and_a_lost_answer_repeats_its_key(service: Service) -> None:
    chain, store = chain_with(20), MemoryStore()
    service.answers = [204, 503, 500, 429, 204, 0, 204]
    work = work_on(chain, store, service.url)
    work.run(NOW, follow=False)
    once = list(dict.fromkeys(service.keys()))
    assert once == keys_of(chain)
    assert service.keys() == [*once[:3], once[2], *once[3:]]
    assert work.progress.failures == 4


@pytest.mark.parametrize("status", [422, 401, 403])
def test_an_answer_that_does_not_change_stops_the_sink_where_it_is(service: Service, status: int) -> None:
    # 401 and 403: also what a service says when a credential in the address is no longer valid.
    chain, store = chain_with(20), MemoryStore()
    service.answers = [204, 204, status]
    with pytest.raises(CallerError, match=f"answered {status} to overheating-"):
        work_on(chain, store, service.url).run(NOW, follow=False)
    assert service.keys() == keys_of(chain)[:2]
    work_on(chain, store, service.url).run(NOW, follow=False)
    assert service.keys() == keys_of(chain)


def test_batches_have_the_ids_of_their_events(service: Service) -> None:
    chain, store = chain_with(50), MemoryStore()
    work_on(chain, store, f"{service.url}?a=b&unerring-batch=8").run(NOW, follow=False)
    assert [one["id"] for _, batch in service.taken for one in batch] == keys_of(chain)
    assert all(key == batch[-1]["id"] for key, batch in service.taken)
    assert max(len(batch) for _, batch in service.taken) == 8


def test_a_rewound_sink_posts_the_same_keys_again(service: Service) -> None:
    chain, store = chain_with(20), MemoryStore()
    work = work_on(chain, store, service.url)
    work.run(NOW, follow=False)
    to_us = chain.read(chain.base.from_us, chain.through_us).column("time")[9].as_py()
    work.rewind(to_us)
    work.run(NOW, follow=False)
    keys = keys_of(chain)
    later = [key for key in keys if int(key.split("-")[1]) > to_us]
    assert service.keys() == [*keys, *later]


def test_two_drivers_post_everything_at_least_once(service: Service) -> None:
    held, store = chain_with(120), MemoryStore()
    works = [work_on(held if number else chain_with(120), store, service.url) for number in range(2)]
    threads = [threading.Thread(target=work.run, args=(NOW, False)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(service.keys()) == set(keys_of(held))


def test_a_service_cannot_be_read_and_forgetting_it_forgets_its_position(service: Service) -> None:
    chain, store = chain_with(3), MemoryStore()
    work = work_on(chain, store, service.url)
    work.run(NOW, follow=False)
    record = work.record
    target = open_target(address_of(service.url), SCHEMA, record, store)
    assert target.position() == Stamp(*map(int, service.keys()[-1].split("-")[1:]))
    with pytest.raises(CallerError, match="cannot be read"):
        target.read(0, 1)
    target.close()
    from unerring.log import EventLog

    forget(store, EventLog(chain.store), record)
    assert store.read(position_name("alarms")) is None


def test_a_batch_of_nothing_is_a_mistake() -> None:
    record = SinkRecord("a", "overheating", "http://x", "0")
    with pytest.raises(ConfigError, match="from 1 to"):
        open_target(address_of("http://x/?unerring-batch=0"), SCHEMA, record, MemoryStore())
