"""Signed channels: id, epoch, heartbeats, watermarks and losses are the producer's word, or they are not believed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from unerring.channels import Consumer, ConsumerConfig, Evicted, Frames, Gone, Heartbeat, Initial, Producer, Signer
from unerring.model import Broadcast, ConfigError, Deliver, Report, Send, read_policy
from unerring.runtime.channel.keys import BelievedKeys, keys_of, public_key, signing_seed
from unerring.runtime.secret import shared_secret

SEED = b"s" * 32
KEYS = {"press": Signer(SEED).key}


def pair() -> tuple[Producer, Consumer]:
    producer = Producer("press", "press", {}, 1, signing_seed=SEED)
    return producer, Consumer(random.Random(1), key_of=KEYS.get)


def said(effects: list[Any]) -> list[Any]:
    return [effect.message for effect in effects if isinstance(effect, Send | Broadcast)]


def published(producer: Producer, *payloads: bytes) -> Frames:
    first = producer.last + 1
    effects = producer.publish(payloads, list(range(first, first + len(payloads))), None, 10) or []
    (frames,) = [message for message in said(effects) if isinstance(message, Frames)]
    return frames


def refused(consumer: Consumer, message: Any) -> bool:
    effects = consumer.handle("somebody", message, 20)
    return (
        bool(effects)
        and isinstance(effects[0], Report)
        and effects[0].what
        in (
            "channel.forged",
            "channel.unverified",
            "channel.unsigned",
        )
    )


def test_what_the_producer_signed_is_delivered() -> None:
    producer, consumer = pair()
    assert not refused(consumer, producer._heartbeat())
    effects = consumer.handle("press", published(producer, b"a", b"b"), 20)
    assert [effect.what.payloads for effect in effects if isinstance(effect, Deliver)] == [(b"a", b"b")]


CHANGES: list[dict[str, Any]] = [
    {"epoch": 2},
    {"last": 7},
    {"watermark_us": 1 << 50},
    {"direct": "tcp://mallory:1"},
    {"previous_epoch": 1, "previous_last": 0},
    {"peers": ("tcp://mallory:1",)},
    {"key": Signer(bytes(32)).key},
    {"name": "press2"},
    {"producer": 7},
    {"signature": b""},
    {"signature": bytes(64)},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_a_heartbeat_is_believed_as_it_was_signed_or_not_at_all(change: dict[str, Any]) -> None:
    producer, consumer = pair()
    genuine = producer._heartbeat()
    assert refused(consumer, msgspec.structs.replace(genuine, **change))
    assert consumer.met() == []
    assert not refused(consumer, genuine)
    assert refused(consumer, msgspec.structs.replace(genuine, **change)), "nor later"


def test_somebody_s_own_key_and_signature_count_for_nothing() -> None:
    _, consumer = pair()
    mallory = Producer("press", "mallory", {}, 9, signing_seed=bytes(32))
    assert refused(consumer, mallory._heartbeat())
    assert refused(consumer, published(mallory, b"false"))
    assert refused(consumer, Producer("other", "mallory", {}, 9, signing_seed=bytes(32))._heartbeat())


def test_what_declares_a_loss_is_signed_too() -> None:
    producer, consumer = pair()
    consumer.handle("press", producer._heartbeat(), 5)
    for message in (
        Evicted(producer.id, 1, 1 << 30),
        Gone(producer.id, 1, ((1, 9),)),
        Initial(producer.id, 1, 9, b"false", "press", "mallory"),
    ):
        assert refused(consumer, message)
    (initial,) = said(producer.welcome("till", b"true", 5))
    assert not refused(consumer, initial)


def test_frames_before_the_first_genuine_heartbeat_make_no_producer_known() -> None:
    producer, consumer = pair()
    assert refused(consumer, published(producer, b"early"))
    assert consumer.met() == []


def test_a_part_of_a_batch_and_a_batch_of_another_epoch_prove_nothing() -> None:
    producer, consumer = pair()
    consumer.handle("press", producer._heartbeat(), 5)
    frames = published(producer, b"a", b"b")
    assert refused(consumer, frames.cut(1, 1))
    assert refused(consumer, msgspec.structs.replace(frames, epoch=2))
    assert refused(consumer, msgspec.structs.replace(frames, more=not frames.more))
    assert not refused(consumer, frames)


def test_a_consumer_that_asks_for_no_signatures_is_as_before() -> None:
    producer, _ = pair()
    plain = Consumer(random.Random(1))
    assert not refused(plain, Heartbeat(producer.id, 1, 0, "press", "press"))


def test_keys_follow_from_the_secret_or_come_from_files(tmp_path: Path) -> None:
    secret = str(tmp_path / "secret")
    seed = signing_seed("", secret, "press")
    assert seed != signing_seed("", secret, "other")
    assert keys_of({}, secret)("press") == Signer(seed).key
    assert shared_secret(secret) not in seed
    file = tmp_path / "keys" / "press"
    public = public_key(file)
    assert public_key(file) == public
    assert file.stat().st_mode & 0o777 == 0o600
    own = signing_seed(str(file), secret, "press")
    known = keys_of({"press": public}, secret)
    assert known("press") == Signer(own).key
    assert known("other") is None
    assert read_policy(f'[keys]\npress = "{public}"\n').keys == {"press": public}


def test_a_key_that_cannot_be_used_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="64 hexadecimal digits"):
        ConsumerConfig(signed=True, keys={"press": "secret"})
    with pytest.raises(ConfigError, match="line 2: the key of press is not one of 64"):
        read_policy('[keys]\npress = "12"\n')
    with pytest.raises(ConfigError, match="cannot be read"):
        signing_seed(str(tmp_path / "nowhere"), "", "press")
    public_key(tmp_path / "key")
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(ConfigError, match="others may read the signing key"):
        signing_seed(str(tmp_path / "key"), "", "press")


def test_other_keys_count_from_when_they_are_given() -> None:
    producer, consumer = pair()
    consumer.handle("press", producer._heartbeat(), 5)
    frames = published(producer, b"a", b"b")
    consumer.believe(KEYS.get)
    assert not refused(consumer, frames), "the key is the same: nothing has to be said again"
    consumer.believe({"press": Signer(bytes(32)).key}.get)
    assert refused(consumer, published(producer, b"c"))
    assert refused(consumer, producer._heartbeat())
    consumer.believe(KEYS.get)
    assert refused(consumer, published(producer, b"d")), "until it says who it is"
    assert not refused(consumer, producer._heartbeat())
    plain = Consumer(random.Random(1))
    plain.believe(KEYS.get)
    assert refused(plain, Heartbeat(producer.id, 1, 0, "press", "press"))


def test_the_keys_of_so_many_producers_are_remembered_and_the_oldest_says_again_who_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("unerring.channels.signature._KNOWN_MAX", 2)
    consumer = Consumer(random.Random(1), key_of={name: Signer(SEED).key for name in "abc"}.get)
    a, b, c = (Producer(name, name, {}, 1, signing_seed=SEED) for name in "abc")
    for producer in (a, b, a):
        assert not refused(consumer, producer._heartbeat())
    assert not refused(consumer, published(a, b"1"))
    assert not refused(consumer, c._heartbeat())
    assert [refused(consumer, published(producer, b"2")) for producer in (a, b, c)] == [True, False, False]
    assert not refused(consumer, a._heartbeat())
    assert [refused(consumer, published(producer, b"3")) for producer in (b, c, a)] == [True, False, False]


def test_a_policy_takes_nobody_s_duty_to_sign_away() -> None:
    public = KEYS["press"].hex()
    first, gone = read_policy(f'[keys]\npress = "{public}"\n'), read_policy("")
    known = BelievedKeys(ConsumerConfig(), "", first)
    assert (known.asked, known("press"), known("other")) == (True, KEYS["press"], None)
    known.renew(gone)
    assert (known.asked, known("press")) == (True, None)
    known.renew(read_policy(f'revoked = ["producer/pr*"]\n[keys]\npress = "{public}"\n'))
    assert known("press") is None
    known.renew(first)
    assert known("press") == KEYS["press"]
    assert not BelievedKeys(ConsumerConfig(), "", gone).asked


def test_what_was_signed_and_is_sent_again_changes_nothing() -> None:
    producer, consumer = pair()
    early, frames = producer._heartbeat(), published(producer, b"a", b"b")
    consumer.handle("press", early, 5)
    consumer.handle("press", frames, 6)
    consumer.handle("press", producer.advance(50, 7)[-1].message, 7)
    consumer.accepted(producer.id, 1, 2, 8)
    successor = Producer("press", "press", {"channel/epoch": b"1", "channel/closed_at": b"2"}, 9, signing_seed=SEED)
    consumer.handle("press", successor._heartbeat(), 9)
    before = (consumer.positions(), consumer.ledger(), consumer.met())
    for again in (early, frames, producer._heartbeat()):
        effects = consumer.handle("mallory", again, 10)
        assert not any(isinstance(effect, Deliver) for effect in effects)
    assert (consumer.positions(), consumer.ledger(), consumer.met()) == before
