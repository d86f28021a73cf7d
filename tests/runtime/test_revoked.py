"""Whoever has lost its rights, or whose key is another one, is believed no more; and what nobody can be asked for is
signed."""

from __future__ import annotations

import asyncio

import pytest

from tests.ports import free_port
from tests.runtime.test_roles import Outlet, channel
from unerring.channels import ConsumerConfig, ProducerConfig, Start
from unerring.model import ConfigError
from unerring.runtime import AsyncPublisher, AsyncSubscriber
from unerring.runtime.channel.keys import public_key
from unerring.runtime.reports import Reports
from unerring.runtime.transports import TransportConfig, open_inlet


def test_a_revoked_producer_is_cut_off_by_those_who_read_it(wait, monkeypatch, cards, tmp_path) -> None:
    """The one it is subscribed at, and the one it asks besides; whoever is not revoked notices nothing."""
    monkeypatch.setattr("unerring.runtime.guard.LOOK_S", 0.05)
    policy = tmp_path / "policy.toml"
    allows = '[[allow]]\nwho = "producer/*"\npublish = ["Reading"]\n'
    policy.write_text(allows)

    async def scenario() -> None:
        async with Outlet(cards("producer", "gw1")) as first, Outlet(cards("producer", "gw2")) as second:
            heard: list[bytes] = []
            reports = Reports()
            inlet = open_inlet(first.way.direct, channel(cards("consumer"), policy=str(policy)), reports)
            await inlet.open(lambda sender, data: heard.append(data))
            inlet.send(second.way.direct, b"asks")
            await wait.until(lambda: second.heard == [b"asks"])
            policy.write_text(f'revoked = ["producer/gw2"]\n{allows}')
            await wait.until(lambda: second.reports["tcp.disconnected"])
            assert first.reports["tcp.disconnected"] == 0
            policy.write_text(f'revoked = ["producer/gw1"]\n{allows}')
            await wait.until(lambda: not inlet.subscribed)
            assert "revoke producer/gw1" in reports.sentences("tcp.cut_off")[-1]
            first.way.push(b"revoked")
            await wait.until(lambda: reports["tcp.unreachable"])  # dialled again, and refused by us
            assert (heard, first.way.identities(first.way.direct)) == ([], ())
            policy.write_text(allows)
            await wait.until(lambda: inlet.subscribed)
            await wait.until(lambda: (first.way.push(b"back"), heard)[1])
            assert set(heard) == {b"back"}
            await inlet.close()

    wait.run(scenario())


def test_a_revoked_producer_s_events_are_not_delivered_any_more(wait, monkeypatch, cards, tmp_path) -> None:
    monkeypatch.setattr("unerring.runtime.guard.LOOK_S", 0.05)
    policy = tmp_path / "policy.toml"
    allows = '[[allow]]\nwho = "producer/*"\npublish = ["*"]\n'
    policy.write_text(allows)

    async def scenario() -> None:
        at = channel(cards("producer", "gw1"), stream="")
        async with AsyncPublisher("tcp://127.0.0.1:0", transport=at) as out:
            reader = channel(cards("consumer"), stream="", policy=str(policy))
            async with AsyncSubscriber(out.address, transport=reader) as events:
                await out.publish(b"before")
                assert (await anext(events)).value == b"before"
                policy.write_text(f'revoked = ["producer/gw1"]\n{allows}')
                await wait.until(lambda: events.reports["tcp.cut_off"])
                await out.publish(b"meanwhile")
                later = asyncio.ensure_future(anext(events))
                refused = events.reports["tcp.unreachable"]
                await wait.until(lambda: events.reports["tcp.unreachable"] > refused)
                assert not later.done()
                policy.write_text(allows)
                assert (await later).value == b"meanwhile"  # kept by the producer, and fetched now

    wait.run(scenario())


@pytest.mark.parametrize("scheme", ["tcp", "udp"])
def test_whose_signatures_count_follows_the_policy(wait, monkeypatch, tmp_path, scheme) -> None:
    """Another key, no key, and a name that is revoked; without TLS, where signatures are all there is."""
    monkeypatch.setattr("unerring.runtime.guard.LOOK_S", 0.05)
    policy = tmp_path / "policy.toml"
    right, wrong = public_key(tmp_path / "gw1.key"), public_key(tmp_path / "other.key")
    policy.write_text(f'[keys]\ngw1 = "{right}"\n')

    async def scenario() -> None:
        signs = ProducerConfig(
            signed=True, signing_key=str(tmp_path / "gw1.key"), heartbeat_idle_us=10_000, heartbeat_pause_us_max=20_000
        )
        where = f"{scheme}://127.0.0.1:{free_port()}"
        async with AsyncPublisher(where, name="gw1", config=signs) as out:
            async with AsyncSubscriber(
                f"{where}?policy={policy}", config=ConsumerConfig(start=Start.EARLIEST)
            ) as events:
                sent = 0
                for text in (
                    "",
                    f'[keys]\ngw1 = "{wrong}"\n',
                    f'revoked = ["producer/gw1"]\n[keys]\ngw1 = "{right}"\n',
                ):
                    await out.publish(b"%d" % (sent := sent + 1))
                    assert (await anext(events)).value == b"%d" % sent
                    policy.write_text(text)
                    reloaded = events.reports["policy.reloaded"]
                    await wait.until(lambda reloaded=reloaded: events.reports["policy.reloaded"] > reloaded)
                    refused = events.reports["channel.unverified"]
                    await out.publish(b"%d" % (sent := sent + 1))
                    await wait.until(lambda refused=refused: events.reports["channel.unverified"] > refused + 2)
                    later = asyncio.ensure_future(anext(events))
                    await asyncio.sleep(0)
                    assert not later.done()
                    policy.write_text(f'[keys]\ngw1 = "{right}"\n')
                    assert (await later).value == b"%d" % sent

    wait.run(scenario())


ELSEWHERE = {"udp": "192.0.2.1", "zmq": "192.0.2.1", "multicast": "239.255.79.7"}


@pytest.mark.parametrize("scheme", ELSEWHERE)
@pytest.mark.parametrize("side", ["publisher", "subscriber"])
def test_nothing_unsigned_travels_in_the_clear_beyond_loopback(wait, cards, scheme, side) -> None:
    """TLS protects the direct way alone: whoever reached the network made up what others believed."""
    listens = side == "publisher" and scheme != "multicast"
    place = f"{scheme}://{'0.0.0.0' if listens else ELSEWHERE[scheme]}:7000"

    async def opened(tls: str) -> None:
        where = f"{place}?interface=192.0.2.7&tls={tls}"
        end = AsyncPublisher(where) if side == "publisher" else AsyncSubscriber(where)
        async with end:
            pass

    for tls, why in (
        ("", "without TLS on the direct way"),
        (cards("producer"), r"unsigned.*ProducerConfig\(signed=True"),
    ):
        with pytest.raises(ConfigError, match=why):
            wait.run(opened(tls))


@pytest.mark.parametrize("scheme", ["udp", "zmq"])
def test_what_is_signed_travels_beyond_loopback(wait, cards, scheme) -> None:
    async def scenario() -> None:
        port = free_port()
        signs = ProducerConfig(signed=True, heartbeat_idle_us=10_000, heartbeat_pause_us_max=20_000)
        where = f"{scheme}://0.0.0.0:{port}"
        async with AsyncPublisher(where, config=signs, transport=channel(cards("producer", "gw1"), stream="")) as out:
            at = ConsumerConfig(signed=True, start=Start.EARLIEST)
            reader = channel(cards("consumer"), stream="")
            async with AsyncSubscriber(f"{scheme}://127.0.0.1:{port}", config=at, transport=reader) as events:
                await out.publish(b"signed")
                assert (await anext(events)).value == b"signed"

    wait.run(scenario())


def test_whether_it_is_signed_no_address_says(cards, tmp_path) -> None:
    """It is what both ends do. A subscriber whose policy has keys asks for signatures, too."""
    group = f"multicast://239.255.79.7:7000?interface=192.0.2.7&tls={cards('consumer')}"
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[keys]\ngw1 = "{public_key(tmp_path / "gw1.key")}"\n')
    with pytest.raises(ConfigError, match="there is no option 'signed'"):
        AsyncSubscriber(f"{group}&signed=true")
    with pytest.raises(ConfigError, match="unsigned"):
        AsyncSubscriber(group, transport=TransportConfig(signed=True))
    AsyncSubscriber(f"{group}&policy={policy}")
    AsyncSubscriber(group, config=ConsumerConfig(signed=True))
    AsyncPublisher(group, name="gw1", config=ProducerConfig(signed=True))
