"""A broken invariant in a callback: an event loop would log it and go on; the process must stop instead."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from unerring.runtime.halt import guard_loop
from unerring.runtime.transports import open_inlet, open_outlet

PROGRAM = """
import asyncio, sys
from unerring.model import invariant
from unerring.runtime.transports import Faults, lossy_inlet, open_inlet, open_outlet

def receive(sender, data):
    invariant(data == b"fine", "frames are fine")

async def main(url, delayed):
    outlet = open_outlet(url)
    await outlet.open(lambda sender, data: None)
    inlet = open_inlet(outlet.direct.partition("#")[0])
    if delayed:
        inlet = lossy_inlet(inlet, Faults(delay=1.0, delay_us_max=1000), 1)
    await inlet.open(receive)
    outlet.push(b"fine")
    outlet.push(b"not fine")
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], sys.argv[2] == "delayed"))
"""


@pytest.mark.parametrize("how", ["at once", "delayed"])
@pytest.mark.parametrize("url", ["inprocess://breach", "tcp://127.0.0.1:0"])
def test_a_breach_in_a_callback_stops_the_process(url, how):
    ended = subprocess.run([sys.executable, "-c", PROGRAM, url, how], capture_output=True, text=True, timeout=600)
    assert ended.returncode == 70, ended.stderr
    assert "invariant broken: frames are fine" in ended.stderr


def test_other_errors_go_where_they_went_before_and_the_service_goes_on(wait):
    async def scenario():
        told = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
        received = []

        def receive(sender, data):
            if data == b"bad":
                raise ValueError("the application's mistake")
            received.append(data)

        outlet, inlet = open_outlet("inprocess://errors"), open_inlet("inprocess://errors")
        await outlet.open(receive)
        await inlet.open(receive)
        guard_loop()
        for data in (b"one", b"bad", b"two"):
            outlet.push(data)
        await wait.until(lambda: received == [b"one", b"two"])
        assert [str(error) for error in told] == ["the application's mistake"]
        await inlet.close()
        await outlet.close()

    wait.run(scenario())


PRODUCER = """
import asyncio, sys
from unerring.runtime.transports import open_outlet

async def main():
    outlet = open_outlet(sys.argv[1])
    await outlet.open(lambda sender, data: outlet.push(data))
    print(outlet.direct, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_producer_killed_and_started_again_finds_its_consumers(wait):
    def start(url):
        process = subprocess.Popen([sys.executable, "-c", PRODUCER, url], stdout=subprocess.PIPE, text=True)
        return process, process.stdout.readline().strip()

    async def scenario():
        producer, url = start("tcp://127.0.0.1:0")
        received = []
        inlet = open_inlet(url + "?redial_min_us=1000&redial_max_us=20000")
        try:
            await inlet.open(lambda sender, data: received.append((sender, data)))
            inlet.send(url, b"first")
            await wait.until(lambda: received == [(url, b"first")])
            producer.kill()
            producer.wait(600)
            producer.stdout.close()
            await wait.until(lambda: not inlet.subscribed)
            producer, again = start(url)
            assert again == url
            await wait.until(lambda: inlet.subscribed)
            inlet.send(url, b"second")
            await wait.until(lambda: received[1:] == [(url, b"second")])
            await inlet.close()
        finally:
            producer.kill()
            producer.wait(600)
            producer.stdout.close()

    wait.run(scenario())
