"""The object store on a faulty bucket: who won is told by the object, and every rule holds whatever reply is lost."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from unerring.log import Conflict, ObjectStore, Patience, Unsure
from unerring.log.store import objects
from unerring.log.store.client import ABSENT
from unerring.model import DiskError
from unerring.simulation.faulty_bucket import FaultyBucket, Objects, StoreFaults, faulty_store

SEEDS = 300


def race(seed: int, faults: StoreFaults, mend: Callable[[ObjectStore], ObjectStore] = lambda store: store) -> int:
    """Two writers create the same names; the second acts between the requests of the first. How many were wrong."""
    random, objects, wrong = Random(seed), Objects(), 0
    second = mend(faulty_store(FaultyBucket(objects, random, faults), 2 * seed))
    won: dict[str, list[bytes]] = {}
    name = ""
    acting = False

    def write(store: ObjectStore, writer: bytes) -> None:
        if store.create(name, b"equal" if seed % 3 == 0 else writer):
            won.setdefault(name, []).append(writer)

    def let_the_other_act() -> None:
        nonlocal acting
        if not acting and name not in written and random.random() < 0.3:
            acting = True
            written.add(name)
            write(second, b"second")
            acting = False

    written: set[str] = set()
    first = mend(faulty_store(FaultyBucket(objects, random, faults, let_the_other_act), 2 * seed + 1))
    for number in range(10):
        name = f"segment-{number}"
        write(first, b"first")
        if name not in written:
            write(second, b"second")
        right = len(won.get(name, ())) == 1 and objects.held[name].data in (won[name][0], b"equal")
        wrong += not right
    return wrong


def test_of_two_writers_exactly_one_is_told_that_it_won() -> None:
    for seed in range(SEEDS):
        assert race(seed, StoreFaults.all(0.15)) == 0, f"seed {seed}"


@pytest.mark.parametrize("fault", ["lost_reply", "lost_request", "late", "conflict"])
def test_of_two_writers_one_wins_whatever_the_fault(fault: str) -> None:
    for seed in range(50):
        assert race(seed, StoreFaults(**{fault: 0.4})) == 0, f"seed {seed}"


class ExistsMeansLost(ObjectStore):
    """Broken on purpose: believes the status."""

    def create(self, name: str, data: bytes) -> bool:
        token = self._fresh_token()

        def put() -> bool:
            try:
                self._client.put(self._path(name), data, token, ABSENT)
            except Conflict:
                return False
            return True

        return self._persist("write", name, put)


class EqualMeansOurs(ObjectStore):
    """Broken on purpose: tells the winner by the bytes."""

    def create(self, name: str, data: bytes) -> bool:
        return super().create(name, data) or self.read(name) == data


@pytest.mark.parametrize("broken", [ExistsMeansLost, EqualMeansOurs])
def test_a_store_that_tells_the_winner_otherwise_would_be_caught(broken: type[ObjectStore]) -> None:
    def breaking(store: ObjectStore) -> ObjectStore:
        return broken(store._client, "memory://simulated", "", Patience(), lambda _: None, store._fresh_token)

    assert sum(race(seed, StoreFaults.all(0.15), breaking) for seed in range(30)) > 0


def test_a_conditional_replacement_is_not_lost_with_its_reply() -> None:
    for seed in range(SEEDS):
        bucket = FaultyBucket(Objects(), Random(seed), StoreFaults.all(0.2))
        store = faulty_store(bucket, seed)
        tag = store.replace_if("counter", b"0", None)
        for raised in range(1, 21):
            assert tag is not None, "nobody else writes here"
            tag = store.replace_if("counter", b"%d" % raised, tag)
        assert bucket.objects.held["counter"].data == b"20"
        assert bucket.injected > 0


def test_what_was_replaced_does_not_come_back() -> None:
    # A put that timed out is carried out when newer bytes are there already.
    for seed in range(SEEDS):
        bucket = FaultyBucket(Objects(), Random(seed), StoreFaults(late=0.3))
        store = faulty_store(bucket, seed)
        for number in range(20):
            store.replace("position", b"%d" % number)
            assert store.read("position") == b"%d" % number, f"seed {seed}"


def test_two_who_replace_both_come_to_an_end() -> None:
    for seed in range(50):
        random, objects = Random(seed), Objects()
        stores = [faulty_store(FaultyBucket(objects, random, StoreFaults.all(0.15)), seed + i) for i in range(2)]
        for number in range(20):
            stores[number % 2].replace("record", b"%d" % number)
            assert stores[0].read("record") == b"%d" % number


def test_what_is_read_is_whole_or_absent() -> None:
    for seed in range(SEEDS):
        bucket = FaultyBucket(Objects(), Random(seed), StoreFaults.all(0.2))
        store = faulty_store(bucket, seed)
        data = Random(seed).randbytes(3000)
        assert store.create("x", data)
        assert store.read("x") == data
        with store.open("x") as file:
            file.seek(1000)
            assert file.read(500) == data[1000:1500]
        assert store.read("y") is None
        assert store.read_tagged("x") == (data, bucket.objects.held["x"].tag)
        store.delete("x")
        assert store.read("x") is None


def test_a_listing_may_lag_and_a_name_may_not() -> None:
    lagged = 0
    for seed in range(50):
        store = faulty_store(FaultyBucket(Objects(), Random(seed), StoreFaults(lag=0.5)), seed)
        for number in range(10):
            store.create(f"f/{number}", b"")
            lagged += f"{number}" not in store.names("f")
            assert store.read(f"f/{number}") == b""
    assert lagged > 50


class Dead:
    """A bucket that never answers."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        def fail(*_: object) -> None:
            raise Unsure("503 SlowDown")

        return fail


def test_patience_ends_and_says_so() -> None:
    pauses: list[float] = []
    store = ObjectStore(Dead(), "s3://bucket/run", "run", Patience(tries_max=6, longest_pause_s=1.0), pauses.append)
    acts: dict[str, Callable[[], object]] = {
        "write": lambda: store.create("log/x", b"1"),
        "read": lambda: store.read("log/x"),
        "list": lambda: store.names("log/x"),
        "delete": lambda: store.delete("log/x"),
    }
    for verb, act in acts.items():
        pauses.clear()
        with pytest.raises(DiskError) as ended:
            act()
        assert str(ended.value).startswith(f"cannot {verb} s3://bucket/run/log/x: 503 SlowDown, after 6 tries")
        assert len(pauses) == 5
        assert pauses[0] <= 0.1
        assert 0.4 < max(pauses) <= 1.0
    store.note("log/x", b"1")


def test_of_an_object_that_is_replaced_while_it_is_read_one_whole_state_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects, "PIECE_BYTES", 10)
    for old, new in [(35, 35), (35, 20), (20, 35), (10, 11), (30, 5), (30, 0), (9, 10)]:
        for at in range(6):
            held, requests = Objects(), [0]
            writer = faulty_store(FaultyBucket(held, Random(1), StoreFaults()), 1)
            writer.replace("x", b"o" * old)

            def replaced(
                at: int = at, writer: ObjectStore = writer, size: int = new, requests: list[int] = requests
            ) -> None:
                requests[0] += 1
                if requests[0] == at + 1:
                    writer.replace("x", b"n" * size)

            store = faulty_store(FaultyBucket(held, Random(1), StoreFaults(), replaced), 2)
            data, tag = store.read_tagged("x") or (b"", "")
            assert data in (b"o" * old, b"n" * new), (old, new, at)
            assert (tag == held.held["x"].tag) == (data == held.held["x"].data)
