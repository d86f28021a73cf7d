"""What the runtime's tests share: one event loop a test, and waiting for a condition instead of sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from unerring.runtime.certificates import make_certificates

TIMEOUT_S = 600.0
POLL_S = 0.002


class Wait:
    """Run a test's coroutine within a bound; inside it, wait for conditions."""

    def run(self, test: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(TIMEOUT_S):
                return await test

        return asyncio.run(bounded())

    async def until(self, condition: Callable[[], Any], why: str = "") -> Any:
        deadline = asyncio.get_running_loop().time() + TIMEOUT_S / 2
        while not (value := condition()):
            assert asyncio.get_running_loop().time() < deadline, f"never came true: {why or condition}"
            await asyncio.sleep(POLL_S)
        return value


@pytest.fixture
def wait() -> Wait:
    return Wait()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tls") / "node"
    make_certificates(folder, ["node-a"])
    return str(folder)


@pytest.fixture(scope="session")
def cards(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """A folder with the certificate of a role and a name, all of one CA."""
    root = tmp_path_factory.mktemp("cards")
    make_certificates(root / "ca", [])

    def card(role: str, name: str = "ann", run: str = "any") -> str:
        folder = root / f"{run}.{role}.{name}"
        if not folder.exists():
            make_certificates(folder, [name], ca=root / "ca", roles=[role] if role else [], run=run)
        return str(folder)

    return card
