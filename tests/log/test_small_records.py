"""What is written beside chains: readers' positions, keys, epochs of sources, what is in quarantine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from unerring.log import (
    BadEvent,
    Epochs,
    Incarnation,
    MemoryStore,
    Positions,
    Quarantine,
    Reason,
    Resets,
    SigningKey,
    Taken,
    declared_losses,
    new_key,
)
from unerring.log.quarantine import Returning, share_text
from unerring.log.signing import is_signed, public_key
from unerring.log.store.bucket import Bucket
from unerring.log.store.client import requests_made
from unerring.log.syncs import Syncs
from unerring.model import BEFORE_ALL, CallerError, ConfigError, Stamp

# --- positions ---


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "a.json", "ä/"])
def test_a_readers_name_is_one_word(name: str) -> None:
    positions = Positions(MemoryStore(), "s")
    with pytest.raises(ConfigError, match="use letters, digits, - and _"):
        positions.commit(name, Stamp(1, 0))
    with pytest.raises(ConfigError, match="reader name"):
        positions.get(name)
    with pytest.raises(ConfigError, match="reader name"):
        positions.forget(name)


def test_readers_go_on_where_they_were_until_they_are_forgotten() -> None:
    positions = Positions(MemoryStore(), "s")
    assert positions.get("starts-order_2") == BEFORE_ALL
    positions.commit("starts-order_2", Stamp(5, 1))
    positions.commit("b", Stamp(7, 0))
    assert positions.all() == {"starts-order_2": Stamp(5, 1), "b": Stamp(7, 0)}
    positions.forget("b")
    assert positions.all() == {"starts-order_2": Stamp(5, 1)}


# --- keys ---


def test_a_public_key_is_digits_or_pem(tmp_path: Path) -> None:
    public = new_key(tmp_path / "key")
    (tmp_path / "digits").write_text(f"{public}\n")
    pem = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )
    (tmp_path / "pem").write_bytes(pem)
    assert [public_key(tmp_path / name) for name in ("digits", "pem")] == [public, public]
    other = generate_private_key(SECP256R1()).public_key()
    (tmp_path / "other").write_bytes(other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    (tmp_path / "short").write_text(public[:-1])
    (tmp_path / "long").write_text(public + "0")
    for name in ("other", "short", "long"):
        with pytest.raises(CallerError, match=f"{name} is no public Ed25519 key"):
            public_key(tmp_path / name)
    with pytest.raises(CallerError, match="cannot read the public key"):
        public_key(tmp_path / "none")


def test_only_what_the_holder_signed_is_signed(tmp_path: Path) -> None:
    public = new_key(tmp_path / "key")
    key = SigningKey(tmp_path / "key")
    signature = key.sign(b"this")
    assert key.public == public
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert is_signed(b"this", public, signature)
    assert not is_signed(b"that", public, signature)
    assert not is_signed(b"this", new_key(tmp_path / "other"), signature)
    assert not is_signed(b"this", public, "no digits")
    with pytest.raises(CallerError, match="give the name of a new file"):
        new_key(tmp_path / "key")
    assert SigningKey(tmp_path / "key").public == public, "a key that is there is never written over"


# --- epochs ---


def test_of_two_who_begin_an_epoch_both_have_the_firsts() -> None:
    store = MemoryStore()
    one, other = Epochs(store, "s", "topic"), Epochs(store, "s", "topic")
    assert one.newest() is None
    first = Incarnation("id-1", {"0": 5})
    assert one.begin(0, first) == (0, first)
    assert other.begin(0, Incarnation("id-2", {"0": 9})) == (0, first)
    second = Incarnation("id-3", {})
    assert other.begin(1, second) == (1, second)
    assert one.newest() == (1, second)
    assert one.begin(1, Incarnation("id-4", {})) == (1, second)
    assert Epochs(store, "s", "other").newest() is None
    assert Epochs(store, "s", "topic").newest() == (1, second)


# --- resets ---


def test_a_producer_that_was_reset_at_its_mark_begins_anew() -> None:
    resets = Resets(MemoryStore(), "s")
    taken = Taken({"a": (1, 4), "b": (1, 4)}, {"a": (((1, 6), (1, 7)),)}, frozenset())
    assert (resets.all(), resets.without(taken)) == ({}, taken)
    resets.add("a", (1, 3))
    assert resets.without(taken) == taken, "it has gone on since"
    resets.add("a", (1, 4))
    resets.add("c", (0, 1))
    assert resets.all() == {"a": [(1, 3), (1, 4)], "c": [(0, 1)]}
    assert resets.without(taken) == Taken({"b": (1, 4)}, {}, frozenset())


# --- syncs ---


def test_the_syncs_of_the_last_minute_are_told_beside_all_of_them() -> None:
    now = [0.0]
    syncs = Syncs(lambda: now[0])

    def sync(seconds: float) -> None:
        with syncs.timed():
            now[0] += seconds

    def fail() -> None:
        with syncs.timed():
            now[0] += 2
            assert syncs.look().hangs_s == 7.0, "the oldest that has not ended"
            raise OSError("full")

    sync(2.0)
    sync(3.0)
    now[0] = 62.0
    sync(4.0)
    seen = syncs.look()
    assert (seen.all.count, seen.all.sum_s, seen.all.max_s) == (3, 9.0, 4.0)
    assert (seen.recent.count, seen.recent.sum_s, seen.hangs_s) == (1, 4.0, 0.0), "66 s: one ended at 5 s"
    now[0] = 121.5
    assert syncs.look().recent.count == 1
    now[0] = 126.0
    assert syncs.look().recent.count == 0
    with syncs.timed():
        now[0] += 5
        with pytest.raises(OSError, match="full"):
            fail()
        assert syncs.look().hangs_s == 7.0
    assert (syncs.look().hangs_s, syncs.look().all.count) == (0.0, 5)
    for _ in range(600):
        sync(0.01)
    assert (syncs.look().recent.count, syncs.look().all.count) == (500, 605)


# --- quarantine ---


def bad(sequence: int, first: int | None = None, reason: Reason = Reason.LOST) -> BadEvent:
    return BadEvent("p", 0, sequence, reason, "", b"", None, first)


def test_of_two_reports_of_a_loss_the_wider_one_counts() -> None:
    for order in ([3, 5], [5, 3], [None, 3], [3, None]):
        quarantine = Quarantine(MemoryStore(), "s")
        for first in order:
            quarantine.add([bad(9, first)])
        assert [event.first for event in quarantine.events()] == [3], order
        assert declared_losses(quarantine.events()) == {("p", 0): [(3, 9)]}
    assert declared_losses([bad(9), bad(4, 2, Reason.LATE)]) == {}


def test_what_is_back_in_the_stream_is_no_longer_bad() -> None:
    quarantine = Quarantine(MemoryStore(), "s")
    quarantine.add([bad(number, reason=Reason.LATE) for number in (3, 1, 2)])
    quarantine.add([bad(1, reason=Reason.LATE), bad(4, reason=Reason.SCHEMA)])
    assert quarantine.counts() == {"late": 3, "schema": 1}
    token = quarantine.begin_return(Returning(7, (("p", 0, 1), ("p", 0, 2))))
    assert quarantine.unfinished() == {token: Returning(7, (("p", 0, 1), ("p", 0, 2)))}
    assert quarantine.counts() == {"late": 3, "schema": 1}, "they are not there yet"
    quarantine.finish_return(token, Returning(7, (("p", 0, 1),)))
    assert quarantine.unfinished() == {}
    assert [event.sequence for event in quarantine.events()] == [2, 3, 4]


def test_a_share_of_nothing_is_nothing() -> None:
    assert [share_text(*pair) for pair in ((0, 0), (1, 1), (1, 2), (1, 3))] == ["0 %", "100 %", "50 %", "33.3 %"]


# --- listings ---


def test_a_listing_after_a_name_does_not_ask_for_those_before() -> None:
    bucket = Bucket("memory", "listings")
    for number in range(5):
        bucket.put(f"f/{number}", b"", "t")
    bucket.put("f/7/deep/er", b"", "t")
    assert sorted(bucket.names("f/", "2")) == ["3", "4", "7"]
    assert sorted(bucket.names("f/", "")) == ["0", "1", "2", "3", "4", "7"]


def test_every_request_to_an_object_store_is_counted() -> None:
    bucket = Bucket("memory", "requests")

    def made(request: Callable[[], object]) -> dict[str, int]:
        before = requests_made()
        request()
        return {
            kind: count - before.get(kind, 0) for kind, count in requests_made().items() if count != before.get(kind)
        }

    assert made(lambda: bucket.put("f/1", b"x", "t")) == {"put": 1}
    assert made(lambda: bucket.get("f/1", 0, 1)) == {"get": 1}
    assert made(lambda: bucket.head("f/1")) == {"head": 1}
    for after in ("", "0", "9"):
        assert made(lambda after=after: bucket.names("f/", after)) == {"list": 1}
        assert made(lambda after=after: bucket.names("nothing/", after)) == {"list": 1}
    assert made(lambda: bucket.delete("f/1")) == {"delete": 1}
