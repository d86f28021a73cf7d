"""A stock ticker (the channel paper's introduction): one exchange, six desks, and a line that is cut for too long.

    python examples/ticker.py [SEED]

The exchange publishes quotes, and now and then the correction of one. It keeps only the last hundred for replay. Every
desk's line drops, doubles and reorders messages all the time: the channel repairs that unseen. In the middle all lines
are cut for longer than the exchange can replay, so something is really lost, and each desk reacts in its own way
(paper, section 3.4):

    audit    raise     is told exactly which quotes it lacks, writes that down, and goes on
    chart    ignore    draws what it gets
    news     warn      shows a notice and goes on
    robot    quit      must not trade on a market that it has not seen: it stops
    risk     recover   starts over from the whole book, and has the right prices again
    intern   newcomer  comes late and starts from the whole book as well
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from dataclasses import dataclass, field
from random import Random

import msgspec

from unerring import AsyncPublisher, AsyncSubscriber, ConsumerConfig, MessageLoss, ProducerConfig, Start, stream
from unerring.runtime import Faults, lossy_inlet, open_inlet

SYMBOLS = ("ACME", "BOLT", "COGS", "DYNA")
QUOTES, CUT_FROM, CUT_TO = 900, 300, 600
KEPT = ProducerConfig(buffer_count_max=100, heartbeat_idle_us=10_000, heartbeat_pause_us_max=20_000)
BAD_LINE = Faults(loss=0.05, duplication=0.05, reordering=0.05)
EARLIEST = ConsumerConfig(start=Start.EARLIEST, nack_pause_us_max=20_000, nack_attempts_max=1000)
NEWCOMER = ConsumerConfig(start=Start.INITIAL, nack_pause_us_max=20_000, nack_attempts_max=1000)
LAST = "END"


@stream(key="symbol")
class Quote:
    """A price; a correction replaces the one before it."""

    symbol: str
    cents: int
    correction: bool = False


@dataclass
class Desk:
    """What one desk has seen."""

    name: str
    prices: dict[str, int] = field(default_factory=dict)
    quotes: int = 0
    corrections: int = 0
    lost: list[str] = field(default_factory=list)
    stopped: bool = False
    started_over: int = 0

    def take(self, quote: Quote) -> None:
        self.quotes += 1
        self.corrections += quote.correction
        self.prices[quote.symbol] = quote.cents

    def start_over(self, book: bytes) -> None:
        self.started_over += 1
        self.prices = msgspec.json.decode(book, type=dict[str, int])


async def main(seed: int = 1) -> tuple[dict[str, int], list[Desk]]:
    """The exchange's own prices at the end, and the desks."""
    with warnings.catch_warnings(record=True) as notices:
        warnings.simplefilter("always")
        book, desks = await _day(seed)
    next(desk for desk in desks if desk.name == "news").lost = [str(notice.message) for notice in notices]
    return book, desks


async def _day(seed: int) -> tuple[dict[str, int], list[Desk]]:
    random = Random(seed)
    book = dict.fromkeys(SYMBOLS, 10_000)
    exchange = AsyncPublisher[Quote](
        "tcp://127.0.0.1:0", Quote, name="exchange", initial=lambda: msgspec.json.encode(book), config=KEPT
    )
    async with exchange as out, asyncio.TaskGroup() as open_desks:
        lines = {name: lossy_inlet(open_inlet(out.address), BAD_LINE, seed + n) for n, name in enumerate(REACTIONS)}
        desks = [Desk(name) for name in REACTIONS]
        for desk in desks[:-1]:
            open_desks.create_task(attend(desk, lines[desk.name], REACTIONS[desk.name], EARLIEST))
        for number in range(QUOTES):
            for line in lines.values():
                line.cut(CUT_FROM <= number < CUT_TO)
            if number == CUT_TO:
                open_desks.create_task(attend(desks[-1], lines["intern"], "recover", NEWCOMER))
            await out.publish(_quote(random, book))
            await asyncio.sleep(0.001)
        # Whoever is still there sees the market close.
        await out.publish(Quote(LAST, 0))
        while any(LAST not in desk.prices and not desk.stopped for desk in desks):
            await asyncio.sleep(0.01)
    return book, desks


REACTIONS = {
    "audit": "raise",
    "chart": "ignore",
    "news": "warn",
    "robot": "quit",
    "risk": "recover",
    "intern": "recover",
}


def _quote(random: Random, book: dict[str, int]) -> Quote:
    symbol = random.choice(SYMBOLS)
    book[symbol] += random.randrange(-50, 51)
    return Quote(symbol, book[symbol], correction=random.random() < 0.02)


async def attend(desk: Desk, line: object, reaction: str, config: ConsumerConfig) -> None:
    """A desk's day: until the market closes, or until the desk gives up."""
    subscriber = AsyncSubscriber[Quote](line, Quote, on_loss=reaction, on_initial=desk.start_over, config=config)
    async with subscriber as quotes:
        while LAST not in desk.prices and not desk.stopped:
            try:
                desk.take((await anext(quotes)).value)
            except MessageLoss as loss:
                desk.lost.append(f"{loss.first} to {loss.last}")
                desk.stopped = reaction == "quit"


if __name__ == "__main__":
    closing, everybody = asyncio.run(main(*map(int, sys.argv[1:2])))
    print(f"{'desk':<8}{'reaction':<10}{'quotes':>7}{'right':>7}  what it knows of its loss")
    for seen in everybody:
        right = all(seen.prices.get(symbol) == cents for symbol, cents in closing.items())
        knows = "; ".join(seen.lost) or (
            "started over from the book" if seen.started_over else "nothing, and asked for nothing"
        )
        print(f"{seen.name:<8}{REACTIONS[seen.name]:<10}{seen.quotes:>7}{'yes' if right else 'no':>7}  {knows}")
