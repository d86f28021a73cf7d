"""Where the membership record is kept: on the supervisor's own disk, in etcd, or on a run's store. The same for all.

Keepers that share a record race for it, their writes get lost, and so do the answers; a slow one finds that another was
quicker. Whatever happens, there is one history of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from tests.correlation.table import line
from unerring.correlation import KEY, OPERATOR, STORE, CorrelationConfig, Evict, Membership, Record, RecordIs, Standing
from unerring.correlation.messages import (
    AskConfirmation,
    CaughtUp,
    Challenge,
    Confirmation,
    Enter,
    Entered,
)
from unerring.model import DiskError, Effects, Persist, Send
from unerring.runtime.live.etcd import EtcdStorage
from unerring.runtime.live.store_record import StoreStorage
from unerring.runtime.storage import SqliteStorage

Open = Callable[[], Any]
SHARED = ("etcd", "folder", "s3")
TOPOLOGY = line(1, f=2)
REPLICAS = [f"N1/{number}" for number in range(5)]
"""The founding ones, and two that come later."""


def opened(kind: str, request: pytest.FixtureRequest) -> Open:
    """How a keeper opens the record, as often as it likes."""
    folder: Path = request.getfixturevalue("tmp_path")
    name = f"{folder.parent.name}.{folder.name}"
    if kind == "embedded":
        return lambda: SqliteStorage(folder / "membership.db")
    if kind == "etcd":
        address = request.getfixturevalue("etcd")
        return lambda: EtcdStorage([address], name)
    root = str(folder) if kind == "folder" else f"{request.getfixturevalue('s3_bucket')}/{name}"
    return lambda: StoreStorage(root, "cluster.1")


@pytest.fixture(params=["embedded", *SHARED])
def storage(request: pytest.FixtureRequest) -> Open:
    return opened(request.param, request)


@pytest.fixture(params=SHARED)
def shared(request: pytest.FixtureRequest) -> Open:
    return opened(request.param, request)


# ---- the port --------------------------------------------------------------------------------------------------


def test_records_are_there_for_the_next_keeper(storage: Open) -> None:
    first = storage()
    assert first.load() == {}
    first.write([Persist(puts=(("a/1", b"one"), ("b", b"two"))), Persist(puts=(("a/2", b"three"),), deletes=("b",))])
    first.close()
    second = storage()
    assert second.load() == {"a/1": b"one", "a/2": b"three"}
    assert second.load("a/2") == {"a/2": b"three"}
    second.write([Persist(puts=(("a/1", b""),), deletes=("a/2",))])
    assert second.load() == {"a/1": b""}
    second.close()


def test_of_two_keepers_that_change_it_one_starts_over(shared: Open) -> None:
    first, second = shared(), shared()
    first.load(), second.load()
    first.write([Persist(puts=((KEY, b"first"),))])
    with pytest.raises(DiskError, match=r"another keeper has changed .*; this one starts over from it"):
        second.write([Persist(puts=((KEY, b"second"),))])
    assert second.load() == {KEY: b"first"}
    second.write([Persist(puts=((KEY, b"second"),))])
    with pytest.raises(DiskError):
        first.write([Persist(puts=((KEY, b"again"),))])
    assert first.load() == {KEY: b"second"}


def test_a_disk_of_its_own_has_one_keeper(tmp_path: Path) -> None:
    """A second supervisor in the same folder is refused before it can write anything."""
    first = SqliteStorage(tmp_path / "membership.db")
    with pytest.raises(DiskError, match="is in use by another process"):
        SqliteStorage(tmp_path / "membership.db")
    first.close()


# ---- keepers ---------------------------------------------------------------------------------------------------


class Faulty:
    """Loses requests and replies; while a request is on its way, `meanwhile` may happen."""

    def __init__(self, storage: Any, draw: Random, meanwhile: Callable[[], None]) -> None:
        self.storage = storage
        self._draw = draw
        self._meanwhile = meanwhile

    def load(self) -> Mapping[str, bytes]:
        records: Mapping[str, bytes] = self.storage.load()
        return records

    def write(self, batch: Iterable[Persist]) -> None:
        if self._draw.random() < 0.2:
            self._meanwhile()
        if self._draw.random() < 0.1:
            raise DiskError("the request was lost")
        self.storage.write(batch)
        if self._draw.random() < 0.1:
            raise DiskError("the reply was lost")


class Keeper:
    """As `Keeping` runs one: nothing leaves it before it is written, and one that fails begins with what is there."""

    def __init__(self, storage: Open, draw: Random, meanwhile: Callable[[], None]) -> None:
        self._open = storage
        self._draw = draw
        self._meanwhile = meanwhile
        self.restarts = -1
        self.writing = False
        self.storage: Faulty | None = None
        self.begin()

    def begin(self) -> None:
        if self.storage is not None:
            self.storage.storage.close()
        self.restarts += 1
        self.storage = Faulty(self._open(), self._draw, self._meanwhile)
        self.machine = Membership(self.storage.load(), TOPOLOGY, CorrelationConfig(), self._draw)

    def take(self, sender: str, message: object) -> list[Send]:
        assert self.storage is not None
        effects: Effects = self.machine.handle(sender, message, 0)
        written = [effect for effect in effects if isinstance(effect, Persist)]
        if written:
            self.writing = True
            try:
                self.storage.write(written)
            except DiskError:
                self.begin()
                return []
            finally:
                self.writing = False
        return [effect for effect in effects if isinstance(effect, Send)]

    def look(self, stored: Record) -> None:
        self.take(STORE, RecordIs(stored))


class Game:
    """Replicas that start, join and vanish, operators that evict, and as many keepers as may be."""

    def __init__(self, storage: Open, seed: int, keepers: int) -> None:
        self.draw = Random(seed)
        self.busy = False
        self.keepers = [Keeper(storage, self.draw, self.meanwhile) for _ in range(keepers)]
        self.reader = storage() if keepers > 1 else None
        self.alive: dict[str, tuple[str, int]] = {}
        """The token and incarnation of each replica that runs."""
        self.given: dict[tuple[str, int], str] = {}
        self.versions: dict[int, bytes] = {}
        self.starts = 0

    def meanwhile(self) -> None:
        if not self.busy:
            self.busy = True
            self.step()
            self.busy = False

    def stored(self) -> Record:
        storage = self.reader or self.keepers[0].storage
        raw = storage.load().get(KEY)  # type: ignore[union-attr]
        return TOPOLOGY.founding() if raw is None else msgspec.msgpack.decode(raw, type=Record)

    def step(self) -> None:
        free = [keeper for keeper in self.keepers if not keeper.writing]
        if not free:
            return
        keeper = self.draw.choice(free)
        replica = self.draw.choice(REPLICAS)
        self.draw.choice((self.enter, self.enter, self.catch_up, self.evict, self.vanish))(keeper, replica)
        if len(self.keepers) > 1 and self.draw.random() < 0.5:
            self.draw.choice(free).look(self.stored())

    def enter(self, keeper: Keeper, replica: str) -> None:
        self.starts += 1
        token, nonce = f"start {self.starts}", ""
        for _ in range(3):  # The keeper may start over between two of its words.
            members = self.stored().of("N1").items()
            if [name for name, member in members if member.standing is Standing.CAUGHT_UP] == [replica]:
                return  # It would be one failure too many.
            sent = keeper.take(replica, Enter(replica, token, 0, TOPOLOGY.fingerprint(), nonce))
            for message in (send.message for send in sent if send.to == replica):
                if isinstance(message, Challenge):
                    nonce = message.nonce
                if isinstance(message, Entered):
                    assert self.given.setdefault((replica, message.incarnation), token) == token, "given twice"
                    self.alive[replica] = token, message.incarnation
                    return

    def catch_up(self, keeper: Keeper, replica: str) -> None:
        if replica in self.alive:
            keeper.take(replica, CaughtUp(replica, self.alive[replica][1], (("src/0", 1),)))

    def vanish(self, keeper: Keeper, replica: str) -> None:
        self.alive.pop(replica, None)

    def evict(self, keeper: Keeper, replica: str) -> None:
        """Who is caught up by its own record confirms; its word may be lost, or arrive after much else."""
        asked = keeper.take(OPERATOR, Evict(replica))
        for send in asked:
            question = send.message
            if not isinstance(question, AskConfirmation) or send.to not in self.alive or self.draw.random() < 0.2:
                continue
            self.meanwhile()
            if send.to in self.alive and self.stored().caught_up(send.to, self.alive[send.to][1]):
                keeper.take(send.to, Confirmation(question.round, replica, self.alive[send.to][1]))

    def check(self) -> None:
        """One history: a version has one content, versions rise, and an eviction leaves one that is caught up."""
        record = self.stored()
        content = msgspec.msgpack.encode(record)
        assert record.version >= max(self.versions, default=0), "the record went back"
        assert self.versions.setdefault(record.version, content) == content, "two records of one version"
        assert any(member.standing is Standing.CAUGHT_UP for member in record.of("N1").values()), "the last one is gone"


def play(storage: Open, seed: int, keepers: int, steps: int) -> Game:
    game = Game(storage, seed, keepers)
    for _ in range(steps):
        game.step()
        game.check()
    for keeper in game.keepers:
        assert keeper.storage is not None
        keeper.storage.storage.close()
    return game


def test_one_keeper_has_one_history_whatever_is_lost(storage: Open) -> None:
    game = play(storage, seed=1, keepers=1, steps=60)
    assert game.keepers[0].restarts > 0
    assert max(game.versions) > 5


def test_two_supervisors_have_one_history_whatever_is_lost_or_slow(shared: Open) -> None:
    game = play(shared, seed=2, keepers=2, steps=60)
    assert all(keeper.restarts > 0 for keeper in game.keepers)
    assert max(game.versions) > 5


@pytest.mark.parametrize("seed", range(70_000_000, 70_000_030))
def test_many_races_on_a_folder(seed: int, tmp_path: Path) -> None:
    play(lambda: StoreStorage(str(tmp_path), "cluster.1"), seed, keepers=3, steps=60)


def test_a_store_that_does_not_compare_is_found_out(tmp_path: Path) -> None:
    """The check can fail: without the comparison two keepers write the same version."""

    class Careless(StoreStorage):
        def write(self, batch: Iterable[Persist]) -> None:
            batch = list(batch)
            try:
                super().write(batch)
            except DiskError:
                self.load()
                super().write(batch)

    def play_some() -> None:
        for seed in range(20):
            play(partial(Careless, str(tmp_path), f"cluster.{seed}"), seed, keepers=2, steps=60)

    with pytest.raises(AssertionError, match=r"two records of one version|the record went back|given twice"):
        play_some()
