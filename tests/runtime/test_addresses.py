"""An address that cannot be right is one sentence, of whatever transport; nothing dies of it unheard."""

from __future__ import annotations

import asyncio

import pytest

from unerring.model import ConfigError, NetworkError, UnerringError
from unerring.runtime.giop.ior import parse_reference
from unerring.runtime.sockets import redial, split_host
from unerring.runtime.transports import SCHEMES, check_address, open_inlet, open_outlet

HOSTS = ("\0", "x" * 300, "a..b", "host name", "half\ud800", "h:1", "")


@pytest.mark.parametrize(
    "text",
    [
        "corbaloc::@127.0.0.1:11169/Tee",
        "corbaloc::1.2@/Tee",
        "corbaloc::1.9@127.0.0.1/Tee",
        "corbaloc::127.0.0.1:1:2/Tee",
        "corbaloc::127.0.0.1:\u0663/Tee",
        "corbaloc::half\udc80/Tee",
        "corbaloc::127.0.0.1/half\udc80",
        "corbaloc:rir:/NameService",
        "corbaloc::127.0.0.1:11169",
        "corbaloc:",
        "IOR:",
        "IOR:0",
        "IOR:00000000",
        "IOR:\udc80",
        "ior",
    ],
)
def test_a_bad_object_reference_is_a_sentence(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_reference(text)


@pytest.mark.parametrize("host", HOSTS)
def test_no_resolver_is_asked_for_what_is_no_host(host: str) -> None:
    with pytest.raises(ConfigError, match="is not an address; write host:port"):
        split_host(f"{host}:7000")
    for scheme in SCHEMES:
        if scheme != "inprocess":
            with pytest.raises(ConfigError):
                check_address(f"{scheme}://{host}:7000/name")


def test_hosts_are_what_they_were() -> None:
    assert split_host("[::1]:7000") == ("::1", 7000)
    assert split_host("hall-3.example:1") == ("hall-3.example", 1)
    assert split_host("b\u00fccher.example:1") == ("b\u00fccher.example", 1)
    assert split_host("localhost", 2809) == ("localhost", 2809)


@pytest.mark.parametrize("make", [open_inlet, open_outlet])
def test_an_option_that_is_no_text_is_a_sentence(make: object) -> None:
    with pytest.raises(ConfigError, match="is not the URL of a transport"):
        make("tcp://127.0.0.1:7000?frame_bytes_max=\ud800")  # type: ignore[operator]


async def _opened(url: str) -> None:
    outlet = open_outlet(url)
    async with asyncio.timeout(600):
        await outlet.open(lambda sender, data: None)


def test_a_zmq_producer_with_a_name_for_its_address_does_not_wait_for_ever() -> None:
    with pytest.raises(ConfigError, match="a producer listens at an IP address"):
        asyncio.run(_opened("zmq://localhost:7999"))


def test_dialling_goes_on_whatever_an_attempt_raises() -> None:
    """A task that ended of it would never dial again, and nobody would hear of that."""
    heard: list[UnerringError] = []

    async def attempt() -> bool:
        raise UnicodeError("label too long")

    def failed(error: UnerringError) -> None:
        heard.append(error)
        if len(heard) == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(redial(attempt, 1, 1, failed))
    assert [str(error) for error in heard] == ["dialling failed: UnicodeError: label too long"] * 3
    assert all(isinstance(error, NetworkError) for error in heard)
