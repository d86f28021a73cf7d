"""Services of others that ask for a user and a password, over TLS: real servers; and what strangers on them can do."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from tests.runtime.conformance.servers import Broker, running
from unerring.channels import (
    ChannelCodec,
    ChannelConfig,
    ConsumerConfig,
    Frames,
    Heartbeat,
    ProducerConfig,
    Start,
    producer_id,
)
from unerring.model import ConfigError, HandshakeError, NetworkError
from unerring.runtime import AsyncPublisher, AsyncSubscriber
from unerring.runtime.certificates import make_certificates
from unerring.runtime.transports import TransportConfig, open_inlet, open_outlet
from unerring.runtime.transports.config import parse_url
from unerring.runtime.transports.login import Login, read_login

CODEC = ChannelCodec(ChannelConfig())


def nats(broker: Broker) -> list[str]:
    tls = broker.folder / "tls"
    (broker.folder / "nats.conf").write_text(
        f'listen: "127.0.0.1:{broker.port}"\n'
        "authorization { user: gateway, password: s3cret }\n"
        f'tls {{ cert_file: "{tls}/node.pem", key_file: "{tls}/node.key" }}\n'
    )
    return [str(broker.program), "-c", "nats.conf"]


def redis(broker: Broker) -> list[str]:
    tls = broker.folder / "tls"
    options = {"port": 0, "tls-port": broker.port, "bind": "127.0.0.1", "save": "", "appendonly": "no"}
    options |= {
        "tls-cert-file": f"{tls}/node.pem",
        "tls-key-file": f"{tls}/node.key",
        "tls-ca-cert-file": f"{tls}/ca.pem",
    }
    options |= {"tls-auth-clients": "no", "user": "default off"}
    words = [word for name, value in options.items() for word in (f"--{name}", *str(value).split(" "))]
    return [str(broker.program), *words, "--user", "gateway", "on", ">s3cret", "allchannels", "+@all"]


def mosquitto(broker: Broker) -> list[str]:
    tls = broker.folder / "tls"
    subprocess.run(
        ["mosquitto_passwd", "-b", "-c", broker.folder / "users", "gateway", "s3cret"], check=True, timeout=600
    )
    (broker.folder / "mosquitto.conf").write_text(
        f"user root\nlistener {broker.port} 127.0.0.1\nallow_anonymous false\npassword_file {broker.folder}/users\n"
        f"certfile {tls}/node.pem\nkeyfile {tls}/node.key\n"
    )
    return [str(broker.program), "-c", "mosquitto.conf"]


SERVERS = {"nats": ("nats-server", nats), "redis": ("redis-server", redis), "mqtt": ("mosquitto", mosquitto)}


def login_file(folder: Path, name: str, **lines: str) -> str:
    file = folder / name
    file.write_text("# what the service asks for\n" + "".join(f"{key} = {value}\n" for key, value in lines.items()))
    file.chmod(0o600)
    return str(file)


@pytest.mark.parametrize("scheme", SERVERS)
def test_who_has_the_password_is_let_in_over_tls_and_nobody_else(wait, server, tmp_path, scheme) -> None:
    make_certificates(tmp_path / "tls", [])
    program, command = SERVERS[scheme]
    broker = Broker(server(program), tmp_path, command)
    broker.start()
    ca = str(tmp_path / "tls" / "ca.pem")
    right = login_file(tmp_path, "right", user="gateway", password="s3cret", ca=ca)
    wrong = login_file(tmp_path, "wrong", user="gateway", password="guessed", ca=ca)
    where = f"{scheme}://localhost:{broker.port}/readings"

    async def scenario() -> None:
        with pytest.raises(HandshakeError, match=r"does not let us in.*login=FILE"):
            await open_outlet(f"{where}?login={wrong}").open(lambda sender, data: None)
        with pytest.raises((HandshakeError, NetworkError)):  # not without TLS either
            await open_outlet(where, TransportConfig(connect_us=2_000_000)).open(lambda sender, data: None)
        outlet = open_outlet(f"{where}?login={right}")
        await outlet.open(lambda sender, data: None)
        received: list[bytes] = []
        inlet = open_inlet(f"{where}?login={right}")
        await inlet.open(lambda sender, data: received.append(data))
        await wait.until(lambda: (outlet.push(b"news"), received)[1])
        await inlet.close()
        await outlet.close()

    try:
        wait.run(scenario())
    finally:
        broker.stop()


def test_an_address_has_no_password_in_it_and_the_refusal_does_not_repeat_it() -> None:
    for url in ("nats://gateway:s3cret@host:4222/readings", "redis://:s3cret@host:6379/readings"):
        with pytest.raises(ConfigError, match=r"put them into a file.*login=FILE") as refused:
            parse_url(url)
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        ("user = a\npassword = b", 0o644, "others may read the login .* run: chmod 600"),
        ("user = a\ns3cret\n", 0o600, "line 2: write name=value"),
        ("user = a\ntoken = b\n", 0o600, "has a user and a token"),
    ],
)
def test_a_login_that_cannot_be_used_gets_a_sentence_without_its_secrets(tmp_path, text, mode, sentence) -> None:
    file = tmp_path / "login"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=sentence) as refused:
        read_login(str(file))
    assert "s3cret" not in str(refused.value)
    assert "s3cret" not in repr(Login("a", "s3cret"))


@contextlib.asynccontextmanager
async def stranger(where: str):
    """Somebody who may publish on the service, and knows how our messages look."""
    outlet = open_outlet(where)
    await outlet.open(lambda sender, data: None)
    yield lambda message: outlet.push(CODEC.encode(message))
    await outlet.close()


def disbelieved(events: AsyncSubscriber) -> int:
    return events.reports["channel.unverified"] + events.reports["channel.forged"]


def test_no_forged_heartbeat_epoch_or_watermark_on_nats_is_believed(wait, server, tmp_path) -> None:
    """One was enough to hijack a stream, also with signed=True: only batches were signed."""

    async def scenario(where: str) -> None:
        config = ProducerConfig(signed=True, heartbeat_idle_us=10_000, heartbeat_pause_us_max=20_000)
        watermarks: list[int] = []
        async with AsyncPublisher(where, name="gw1", config=config) as out, stranger(where) as forge:
            at = ConsumerConfig(signed=True, start=Start.EARLIEST)
            async with AsyncSubscriber(where, config=at, on_watermark=watermarks.append) as events:
                await out.publish(b"true", at=5)
                assert (await anext(events)).value == b"true"
                before = disbelieved(events)  # frames that came before the first heartbeat
                id, epoch, mallory = producer_id("gw1"), out.epoch, "tcp://127.0.0.1:9"
                forge(Heartbeat(id, epoch + 1, 0, "gw1", mallory))  # a successor: the right one would be stale
                forge(Heartbeat(id, epoch, 1 << 40, "gw1", mallory, watermark_us=1 << 60))
                forge(Heartbeat(id, epoch, 1, "gw1", mallory, key=bytes(32), signature=bytes(64)))
                forge(Heartbeat(producer_id("other"), epoch, 1, "gw1", mallory))
                forge(Frames(id, epoch, 2, [9], [b"false"]))
                forge(Frames(id, epoch + 1, 1, [9], [b"false"]))
                forge(Heartbeat(producer_id("made-up"), epoch, 3, "made-up", mallory))
                await wait.until(lambda: disbelieved(events) >= before + 7)
                await out.publish(b"true again", at=7)
                assert (await anext(events)).value == b"true again"
                assert events.met == [id]
                assert all(watermark <= 7 for watermark in watermarks)
                assert out.reports["channel.stale"] == 0

    with running("nats", server("nats-server"), tmp_path) as broker:
        wait.run(scenario(f"nats://127.0.0.1:{broker.port}/readings"))
