"""Development certificates and mutual TLS: who is not of our CA is refused with a sentence, and harms nobody."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import ssl
import stat
import subprocess
import sys

import pytest
from cryptography import x509

from unerring.model import Actor, ConfigError, HandshakeError, Who
from unerring.runtime.certificates import (
    client_context,
    identities_in,
    make_certificates,
    renew,
    renew_all,
    server_context,
)
from unerring.runtime.reports import Reports
from unerring.runtime.supervisor import renewing
from unerring.runtime.transports import TransportConfig, open_inlet, open_outlet


def test_keys_are_private_and_nothing_is_overwritten(tmp_path):
    written = make_certificates(tmp_path / "tls", ["node-a", "10.1.2.3"])
    assert sorted(path.name for path in written) == ["ca.key", "ca.pem", "node.key", "node.pem"]
    for path in written:
        assert stat.S_IMODE(path.stat().st_mode) == (0o600 if path.suffix == ".key" else 0o644)
    before = {path: path.read_bytes() for path in written}
    with pytest.raises(ConfigError, match="is not overwritten; choose another folder"):
        make_certificates(tmp_path / "tls", ["node-b"])
    assert {path: path.read_bytes() for path in written} == before


def test_one_leftover_key_is_enough_to_refuse(tmp_path):
    (tmp_path / "node.key").write_text("precious")
    with pytest.raises(ConfigError, match=r"node\.key already exists"):
        make_certificates(tmp_path, [])
    assert [path.name for path in tmp_path.iterdir()] == ["node.key"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"days": 0}, "choose between 1 and"),
        ({"names": ["bücher.example"]}, "is not a host name"),
        ({"ca": "nowhere"}, "cannot read a CA"),
    ],
)
def test_what_cannot_be_gets_a_sentence(tmp_path, arguments, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make_certificates(tmp_path / "tls", **{"names": ["a"], **arguments})
    assert not (tmp_path / "tls").exists()


def test_a_folder_without_certificates_gets_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match="make them with 'unerring certs"):
        client_context(tmp_path)


def test_the_command(tmp_path):
    def certs(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "unerring", "certs", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=600,
        )

    first = certs(tmp_path / "a", "--name", "node-a", "--name", "10.0.0.1")
    assert first.returncode == 0, first.stderr
    assert f"use it with tls={tmp_path / 'a'}" in first.stdout
    second = certs(
        tmp_path / "b", "--role", "producer", "--name", "node-b", "--run", "plant", "--ca", tmp_path / "a", "--json"
    )
    assert {path.rpartition("/")[2] for path in json.loads(second.stdout)} == {"ca.pem", "node.pem", "node.key"}
    assert (tmp_path / "a" / "ca.pem").read_bytes() == (tmp_path / "b" / "ca.pem").read_bytes()
    assert identities_in(tmp_path / "b") == (Who("plant", "producer", "node-b"),)
    assert {who.role for who in identities_in(tmp_path / "a")} == set(Actor)
    nothing = certs(tmp_path / "c", "--name", "node-c", "--ca", tmp_path / "a")
    assert (nothing.returncode, "say what the certificate is for: --role" in nothing.stderr) == (2, True)
    again = certs(tmp_path / "a")
    assert again.returncode == 2
    assert again.stderr.startswith("unerring: ")
    assert "Traceback" not in again.stderr


def folder_of(tmp_path, kind, ours):
    """Certificates that ours must refuse, and why they must."""
    folder = tmp_path / kind
    if kind == "another CA":
        make_certificates(folder, [])
    elif kind == "expired":
        start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=30)
        make_certificates(folder, [], ca=ours, days=10, valid_from=start)
    else:
        start = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=30)
        make_certificates(folder, [], ca=ours, valid_from=start)
    return str(folder)


@pytest.mark.parametrize(
    ("kind", "told", "noted"),
    [
        ("another CA", "not of our CA", "does not trust our CA"),
        ("expired", "expired", "expired"),
        ("not yet valid", "", "not valid yet"),
    ],
)
@pytest.mark.parametrize("wrong_side", ["consumer", "producer"])
def test_a_certificate_that_must_be_refused(tmp_path, wait, certificates, kind, told, noted, wrong_side):
    wrong = folder_of(tmp_path, kind, certificates)

    async def scenario():
        reports = Reports()
        outlet = open_outlet(
            "tcp://127.0.0.1:0", TransportConfig(tls=wrong if wrong_side == "producer" else certificates), reports
        )
        await outlet.open(lambda sender, data: None)
        refused = open_inlet(
            outlet.direct, TransportConfig(tls=certificates if wrong_side == "producer" else wrong), Reports()
        )
        with pytest.raises(HandshakeError) as caught:
            await refused.open(lambda sender, data: None)
        await wait.until(lambda: reports["tcp.refused"], "the producer counts it and names the peer")
        assert "127.0.0.1" in reports.sentences("tcp.refused")[0]
        sentences = [str(caught.value), *reports.sentences("tcp.refused")]
        assert any(
            "both sides need certificates of one CA" in s or noted in s or (told and told in s) for s in sentences
        )
        if wrong_side == "consumer":
            await still_serves(wait, outlet, certificates)
        await outlet.close()

    wait.run(scenario())


async def still_serves(wait, outlet, certificates):
    received = []
    inlet = open_inlet(outlet.direct, TransportConfig(tls=certificates))
    await inlet.open(lambda sender, data: received.append(data))
    outlet.push(b"business as usual")
    await wait.until(lambda: received == [b"business as usual"])
    await inlet.close()


def test_no_certificate_no_service(wait, certificates):
    async def scenario():
        reports = Reports()
        outlet = open_outlet("tcp://127.0.0.1:0", TransportConfig(tls=certificates), reports)
        requests = []
        await outlet.open(lambda sender, data: requests.append(data))
        port = int(outlet.direct.rpartition(":")[2])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(f"{certificates}/ca.pem")
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            assert await reader.read() == b""
        writer.close()
        await wait.until(lambda: reports["tcp.refused"] == 1)
        assert "it showed no certificate" in reports.sentences("tcp.refused")[0]
        assert requests == []
        await still_serves(wait, outlet, certificates)
        await outlet.close()

    wait.run(scenario())


def test_one_side_with_tls_and_the_other_without(wait, certificates):
    async def scenario():
        reports = Reports()
        outlet = open_outlet("tcp://127.0.0.1:0", TransportConfig(tls=certificates), reports)
        await outlet.open(lambda sender, data: None)
        plain = open_inlet(outlet.direct, TransportConfig(handshake_us=2_000_000), Reports())
        # It cannot tell "no TLS" from a producer that goes away, so it says so and tries on.
        await plain.open(lambda sender, data: None)
        assert not plain.subscribed
        await wait.until(lambda: reports["tcp.refused"])
        assert "does not speak TLS; give both sides tls=DIR or neither" in reports.sentences("tcp.refused")[0]
        await plain.close()
        await still_serves(wait, outlet, certificates)
        await outlet.close()

        outlet = open_outlet("tcp://127.0.0.1:0")
        await outlet.open(lambda sender, data: None)
        told = Reports()
        inlet = open_inlet(outlet.direct, TransportConfig(tls=certificates), told)
        await inlet.open(lambda sender, data: None)
        assert not inlet.subscribed
        assert "it may not speak TLS" in told.sentences("tcp.unreachable")[0]
        await inlet.close()
        await outlet.close()

    wait.run(scenario())


def test_the_certificate_must_name_the_host(wait, tmp_path, certificates):
    async def scenario():
        outlet = open_outlet("tcp://127.0.0.2:0", TransportConfig(tls=certificates))
        await outlet.open(lambda sender, data: None)
        with pytest.raises(HandshakeError, match="does not name this"):
            await open_inlet(outlet.direct, TransportConfig(tls=certificates)).open(lambda sender, data: None)
        await outlet.close()

    wait.run(scenario())


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_without_tls_only_loopback_is_listened_on(wait, host):
    with pytest.raises(ConfigError, match=r"refusing to listen on .* without TLS; use a loopback address"):
        wait.run(open_outlet(f"tcp://{host}:0").open(lambda sender, data: None))


HOUR = datetime.timedelta(hours=1)


def valid_until(folder):
    with open(f"{folder}/node.pem", "rb") as file:
        return x509.load_pem_x509_certificate(file.read()).not_valid_after_utc


def test_a_short_lived_certificate_is_renewed_in_time_with_its_names_and_roles(tmp_path):
    make_certificates(tmp_path / "ca", [])
    make_certificates(
        tmp_path / "run" / "gw1", ["gw1", "10.0.0.7"], ca=tmp_path / "ca", roles=["producer"], run="plant", hours=6
    )
    folder = tmp_path / "run" / "gw1"
    now, ends = datetime.datetime.now(datetime.UTC), valid_until(folder)
    assert 5 * HOUR < ends - now <= 6 * HOUR
    assert renew_all(tmp_path / "run", tmp_path / "ca") == []
    assert not renew(folder, tmp_path / "ca", now + 2 * HOUR)
    before = (folder / "node.key").read_bytes()
    assert renew(folder, tmp_path / "ca", now + 5 * HOUR)
    assert valid_until(folder) - ends > 4 * HOUR
    assert (folder / "node.key").read_bytes() != before
    assert stat.S_IMODE((folder / "node.key").stat().st_mode) == 0o600
    assert identities_in(folder) == (Who("plant", "producer", "gw1"),)
    assert sorted(path.name for path in folder.iterdir()) == ["ca.pem", "node.key", "node.pem"]


def test_who_has_no_ca_renews_nothing(tmp_path):
    make_certificates(tmp_path / "run" / "a", ["a"], roles=["replica"], hours=1)
    (tmp_path / "run" / "a" / "ca.key").unlink()
    assert renew_all(tmp_path / "run", tmp_path / "run" / "a") == []


def test_a_run_renews_while_its_connections_go_on(wait, tmp_path, monkeypatch):
    """What a run's supervisors do beside their processes: nobody is restarted, and nobody is cut off."""
    monkeypatch.setattr("unerring.runtime.supervisor.RENEW_S", 0.01)
    make_certificates(tmp_path / "ca", [])
    began = datetime.datetime.now(datetime.UTC) - 5 * HOUR
    folder = tmp_path / "run" / "gw1"
    roles = ["producer", "consumer"]
    make_certificates(folder, ["gw1"], ca=tmp_path / "ca", roles=roles, run="plant", hours=6, valid_from=began)
    ends, said, heard = valid_until(folder), [], []

    async def scenario():
        outlet = open_outlet("tcp://127.0.0.1:0", TransportConfig(tls=str(folder)))
        await outlet.open(lambda sender, data: None)
        inlet = open_inlet(outlet.direct, TransportConfig(tls=str(folder)))
        await inlet.open(lambda sender, data: heard.append(data))
        renews = asyncio.create_task(renewing(str(tmp_path / "run"), str(tmp_path / "ca"), said.append))
        await wait.until(lambda: said)
        outlet.push(b"on the connection from before")
        await wait.until(lambda: heard)
        assert valid_until(folder) > ends + 3 * HOUR
        await still_serves(wait, outlet, str(folder))
        _, writer = await asyncio.open_connection(
            "127.0.0.1", int(outlet.direct.rpartition(":")[2]), ssl=client_context(tmp_path / "ca")
        )
        shown = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(True))
        assert shown.not_valid_after_utc == valid_until(folder)
        writer.close()
        renews.cancel()
        await inlet.close()
        await outlet.close()

    wait.run(scenario())
    assert said == ["the certificate of gw1 was renewed"]


def test_new_files_count_for_the_next_connection_without_a_restart(wait, tmp_path):
    """Files that do not fit each other, as while they are being replaced, leave the former ones in force."""
    make_certificates(tmp_path / "ca", [])
    old = datetime.datetime.now(datetime.UTC) - 300 * 24 * HOUR
    roles = ["producer", "consumer"]
    make_certificates(tmp_path / "tls", ["both"], ca=tmp_path / "ca", roles=roles, valid_from=old)

    async def scenario():
        outlet = open_outlet("tcp://127.0.0.1:0", TransportConfig(tls=str(tmp_path / "tls")))
        await outlet.open(lambda sender, data: None)
        await still_serves(wait, outlet, str(tmp_path / "tls"))
        first = server_context(tmp_path / "tls")
        (tmp_path / "tls" / "node.key").write_bytes(b"half a key")
        assert server_context(tmp_path / "tls") is first
        await still_serves(wait, outlet, str(tmp_path / "tls"))
        assert renew(tmp_path / "tls", tmp_path / "ca")
        assert server_context(tmp_path / "tls") is not first
        _, writer = await asyncio.open_connection(
            "127.0.0.1", int(outlet.direct.rpartition(":")[2]), ssl=client_context(tmp_path / "ca")
        )
        shown = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(True))
        assert shown.not_valid_after_utc == valid_until(tmp_path / "tls")
        writer.close()
        await outlet.close()

    wait.run(scenario())
