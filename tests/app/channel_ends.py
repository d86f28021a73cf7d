"""One end of a channel, under whichever release it is started with.

`python -m tests.app.channel_ends out` publishes some events, prints its address, and stays; `in ADDRESS` receives them
all, or prints why it is refused.
"""

from __future__ import annotations

import sys

from tests.app.live_tree import readings
from tests.app.tree_app import Reading
from unerring import ConsumerConfig, Publisher, Start, Subscriber
from unerring.model import HandshakeError

MANY = 3


def out() -> None:
    with Publisher("tcp://127.0.0.1:0", Reading) as publisher:
        for event in readings(MANY):
            publisher.publish(Reading(**event.payload), at=event.stamp.time)
        sys.stdout.write(f"{publisher.address}\n")
        sys.stdout.flush()
        sys.stdin.read()


def taken(address: str) -> str:
    try:
        with Subscriber(address, Reading, config=ConsumerConfig(start=Start.EARLIEST)) as events:
            return ", ".join(str(next(events).value.celsius) for _ in range(MANY))
    except HandshakeError as error:
        return str(error)


if __name__ == "__main__":
    if sys.argv[1] == "out":
        out()
    else:
        sys.stdout.write(taken(sys.argv[2]))
