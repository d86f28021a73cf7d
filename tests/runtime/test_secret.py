"""Without TLS, whoever speaks proves that it can read a file of this user."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from unerring.model import ConfigError, HandshakeError, NetworkError
from unerring.runtime.frames import framed
from unerring.runtime.reports import Reports
from unerring.runtime.secret import (
    SECRET_BYTES,
    VARIABLE,
    Stranger,
    prove_to_acceptor,
    prove_to_dialler,
    secret_path,
    shared_secret,
)
from unerring.runtime.sockets import dial
from unerring.runtime.transports import TransportConfig, open_inlet, open_outlet
from unerring.runtime.transports.hello import GREETINGS, VERSION, Hello

NOBODY = 65534


@pytest.fixture
def own_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "state" / "secret"
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def test_the_first_process_draws_a_secret_for_its_user_alone(own_secret: Path) -> None:
    secret = shared_secret()
    assert len(secret) == SECRET_BYTES
    assert shared_secret() == secret
    assert stat.S_IMODE(own_secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(own_secret.parent.stat().st_mode) == 0o700
    assert [path.name for path in own_secret.parent.iterdir()] == ["secret"]


def test_of_many_who_draw_one_at_once_all_have_the_same(own_secret: Path) -> None:
    drawn: list[bytes] = []
    together = threading.Barrier(16)

    def draw() -> None:
        together.wait()
        drawn.append(shared_secret())

    threads = [threading.Thread(target=draw) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == 16
    assert len(set(drawn)) == 1


def test_it_is_in_the_state_folder_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert secret_path() == Path("/somewhere/unerring/secret")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_refused(own_secret: Path, mode: int) -> None:
    shared_secret()
    own_secret.chmod(mode)
    with pytest.raises(ConfigError, match="others may read the secret"):
        shared_secret()


def test_a_file_of_another_user_is_refused(own_secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_secret()
    ours = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: ours + 1)
    with pytest.raises(ConfigError, match="is another user's"):
        shared_secret()


def test_a_file_that_is_too_short_is_refused(own_secret: Path) -> None:
    shared_secret()
    own_secret.write_bytes(b"x" * (SECRET_BYTES - 1))
    with pytest.raises(ConfigError, match="is no secret"):
        shared_secret()


def test_a_folder_that_cannot_be_written_gets_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file" / "secret"))
    with pytest.raises(ConfigError, match=r"cannot be kept in .*Not a directory"):
        shared_secret()


@pytest.fixture
def pair() -> Iterator[Callable[[], tuple[socket.socket, socket.socket]]]:
    made: list[socket.socket] = []

    def make() -> tuple[socket.socket, socket.socket]:
        one, other = socket.socketpair()
        one.setblocking(False)
        other.setblocking(False)
        made.extend((one, other))
        return one, other

    yield make
    for one in made:
        one.close()


def test_who_knows_the_secret_is_known_on_both_sides(wait, pair) -> None:
    async def scenario() -> None:
        dialler, acceptor = pair()
        secret = b"s" * 32
        await asyncio.gather(prove_to_acceptor(dialler, secret), prove_to_dialler(acceptor, secret))
        dialler.send(b"and then this")
        assert acceptor.recv(100) == b"and then this"

    wait.run(scenario())


def test_who_has_another_secret_is_a_stranger(wait, pair) -> None:
    async def scenario() -> None:
        dialler, acceptor = pair()

        async def dials() -> None:
            with pytest.raises(Stranger, match="does not know our secret"):
                await prove_to_acceptor(dialler, b"a" * 32)
            dialler.close()

        async def accepts() -> None:
            with pytest.raises(Stranger, match="went away without a greeting"):
                await prove_to_dialler(acceptor, b"b" * 32)

        await asyncio.gather(dials(), accepts())

    wait.run(scenario())


def test_a_proof_of_another_connection_proves_nothing(wait, pair) -> None:
    """What was overheard, sent again; and what the acceptor itself said, sent back."""

    async def overheard(secret: bytes) -> bytes:
        dialler, acceptor = pair()
        between, behind = pair()
        said = bytearray()

        async def carry(one: socket.socket, other: socket.socket, note: bool) -> None:
            loop = asyncio.get_running_loop()
            while data := await loop.sock_recv(one, 4096):
                if note:
                    said.extend(data)
                await loop.sock_sendall(other, data)

        carrying = [
            asyncio.create_task(carry(acceptor, between, note=True)),
            asyncio.create_task(carry(between, acceptor, note=False)),
        ]
        await asyncio.gather(prove_to_acceptor(dialler, secret), prove_to_dialler(behind, secret))
        for task in carrying:
            task.cancel()
        return bytes(said)

    async def scenario() -> None:
        secret = b"s" * 32
        said = await overheard(secret)
        for again in (said, said[:25] + b"\0" * 32):
            attacker, acceptor = pair()
            attacker.send(again)
            with pytest.raises(Stranger, match="does not know the secret"):
                await prove_to_dialler(acceptor, secret)
        attacker, acceptor = pair()
        attacker.send(b"unerring1" + b"n" * 16)

        async def mirror() -> None:
            answer = await asyncio.get_running_loop().sock_recv(attacker, 4096)
            attacker.send(answer[-32:])

        with pytest.raises(Stranger, match="does not know the secret"):
            await asyncio.gather(prove_to_dialler(acceptor, secret), mirror())

    wait.run(scenario())


ATTACK = """
import encodings.idna, os, socket, sys
if os.geteuid() == 0:
    os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
place, said = ("127.0.0.1", int(sys.argv[1])), bytes.fromhex(sys.argv[2])
with socket.create_connection(place) as connection:
    try:
        connection.sendall(said)
        sys.stdout.write(connection.recv(4096).hex())
    except OSError:
        pass  # cut off
"""


def attack(port: int, said: bytes) -> bytes:
    """What another user of this host is answered."""
    script = ATTACK.format(nobody=NOBODY)
    done = subprocess.run(
        [sys.executable, "-I", "-c", script, str(port), said.hex()], capture_output=True, check=True, timeout=600
    )
    return bytes.fromhex(done.stdout.decode())


def test_another_user_of_the_host_is_no_peer_and_learns_nothing(wait) -> None:
    from tests.runtime.test_links import CLUSTER, Node
    from unerring.model import Codec
    from unerring.runtime.greeting import VERSION as NODE_VERSION, Accepted, Greeting

    greeting = framed(Codec(Greeting, 4096).encode(Greeting(NODE_VERSION, CLUSTER, "mallory", 1)))
    accepted = framed(Codec(Accepted, 4096).encode(Accepted()))

    async def scenario() -> None:
        node = await Node("a").open()
        port = int(node.address.rpartition(":")[2])
        for said in (greeting + accepted, b"unerring1" + b"n" * 16 + b"p" * 32 + greeting + accepted):
            answer = await asyncio.to_thread(attack, port, said)
            assert CLUSTER.encode() not in answer
            assert len(answer) in (0, 9 + 16 + 32)
        assert node.links.status() == {}
        assert node.reports["links.refused"] == 2
        await node.links.close()

    wait.run(scenario())


def test_another_user_of_the_host_subscribes_to_nothing(wait) -> None:
    async def scenario() -> None:
        reports = Reports()
        outlet = open_outlet("tcp://127.0.0.1:0", reports=reports)
        requests: list[bytes] = []
        await outlet.open(lambda sender, data: requests.append(data))
        port = int(outlet.direct.rpartition(":")[2])
        hello = framed(GREETINGS.encode(Hello(VERSION, True)))
        assert await asyncio.to_thread(attack, port, hello + framed(b"a request")) == b""
        assert requests == []
        assert reports["tcp.connected"] == 0
        await outlet.close()

    wait.run(scenario())


def test_connections_that_prove_nothing_keep_nobody_out(wait) -> None:
    async def scenario() -> None:
        config = TransportConfig(connections_max=8)
        outlet = open_outlet("tcp://127.0.0.1:0", config)
        await outlet.open(lambda sender, data: None)
        port = int(outlet.direct.rpartition(":")[2])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        received: list[bytes] = []
        inlet = open_inlet(outlet.direct, config)
        await inlet.open(lambda sender, data: received.append(data))
        await wait.until(lambda: (outlet.push(b"news"), received)[1])
        await inlet.close()
        await outlet.close()
        for _, writer in idle:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    wait.run(scenario())


def test_two_who_share_no_secret_are_told_what_to_do(wait, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        outlet = open_outlet("tcp://127.0.0.1:0")
        await outlet.open(lambda sender, data: None)
        monkeypatch.setenv(VARIABLE, str(tmp_path / "another"))
        with pytest.raises(HandshakeError, match=f"does not know our secret.*{VARIABLE}"):
            await open_inlet(outlet.direct).open(lambda sender, data: None)
        await outlet.close()

    wait.run(scenario())


@pytest.mark.parametrize(
    ("answer", "error", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", HandshakeError, "does not ask for proof of a secret"),
        (b"", NetworkError, "closed the connection"),
        (b"unerring1" + b"n" * 16 + b"p" * 32, HandshakeError, "does not know our secret"),
    ],
)
def test_somebody_else_s_port_is_recognised(wait, answer, error, sentence) -> None:
    async def scenario() -> None:
        async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(25)
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(pretend, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(error, match=sentence):
            await dial("127.0.0.1", port, "", 5_000_000, asyncio.Protocol)
        server.close()
        await server.wait_closed()

    wait.run(scenario())


def test_a_run_s_secret_is_in_no_file_but_its_own_and_in_no_argument(tmp_path: Path) -> None:
    from unerring.app.live import command
    from unerring.app.live_cluster import make_cluster
    from unerring.app.place import place_of
    from unerring.runtime.process_cluster import ClusterShape, NodeCluster

    cluster = make_cluster("tests.app.tree_app:app", 1, tmp_path)
    nodes = NodeCluster(["tests.app.tree_app:app"], tmp_path / "processes", ClusterShape(), {}, print)
    nodes.start()
    secrets = [shared_secret(cluster.secret), shared_secret(tmp_path / "processes" / "secret")]
    assert len({*secrets, shared_secret()}) == 3, "each run has its own"
    words = [*command(place_of(tmp_path), cluster.names[0]), *nodes.command("n0")]
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "secret"]
    told = [word.encode() for word in words] + [path.read_bytes() for path in files]
    for secret in secrets:
        assert not any(secret in data or secret.hex().encode() in data for data in told)
    nodes.stop()
