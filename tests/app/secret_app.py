"""An application over payments with secret columns: what its rules make is secret or not, and an operator refuses one
payment in words that have its card in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from unerring import Operator, last, rule, step, stream
from unerring.app import App
from unerring.model import Event, Stamp

MARK = "4111-"
"""What every card begins with."""
PINS = range(700_000_001, 799_999_999, 11_111_111)
REFUSED = f"{MARK}9"
WHO = tuple(f"w{number}" for number in range(6))


@stream(key="who", secret=("card", "pin"))
class Payment:
    who: str
    shop: str
    card: str | None = None
    pin: int | None = None


@stream(key="who")
class Count:
    who: str
    count: int


class Counting(Operator):
    def __init__(self) -> None:
        self.count = 0

    def on_event(self, event: Event) -> Iterable[dict[str, Any]]:
        if event.payload["card"] == REFUSED:
            raise ValueError(f"the card {event.payload['card']} with {event.payload['pin']} is refused")
        self.count += 1
        return [{"who": event.payload["who"], "count": self.count}]

    def snapshot(self) -> bytes:
        return str(self.count).encode()

    def restore(self, state: bytes) -> None:
        self.count = int(state)


_one = step("one", Payment, Payment.pin > 500_000_000)
_other = step("other", Payment, Payment.card == last(_one).card)
TWICE = rule("Twice").pattern(_one.then(_other).within(40)).emit(card=last(_other).card, shop=last(_other).shop)
_first = step("first", TWICE)
_second = step("second", TWICE)
FOUR = rule("Four").pattern(_first.then(_second).within(200)).emit(shop=last(_second).shop)
COUNTED = rule("Counted").on(Payment).operator(Counting, Count)
app = App("cards", rules=[TWICE, FOUR, COUNTED], streams=[Payment], buckets=2)


def payments(seed: int, count: int) -> list[Event]:
    """Some at equal times. One has the card that is refused."""
    draw, events, stamp = Random(seed), [], Stamp(0, 0)
    for number in range(count):
        later = Stamp(stamp.time + draw.randint(1, 9), 0)
        stamp = Stamp(stamp.time, stamp.ordinal + 1) if number and draw.random() < 0.4 else later
        card = REFUSED if number == count // 2 else f"{MARK}{draw.randint(1, 2)}"
        pin = draw.choice(PINS) if draw.random() < 0.8 else draw.randrange(9)
        payload = {"who": draw.choice(WHO), "shop": draw.choice(("north", "south")), "card": card, "pin": pin}
        events.append(Event("Payment", stamp, (payload["who"],), payload))
    return events


def tells(data: bytes | str) -> Iterator[str]:
    """The cards and pins that stand in something."""
    raw = data.encode() if isinstance(data, str) else data
    for value in (MARK, *map(str, PINS)):
        if value.encode() in raw:
            yield value
    for pin in PINS:
        packed = b"\xce" + pin.to_bytes(4, "big")  # in MessagePack
        if any(form in raw for form in (packed, pin.to_bytes(8, "little"), pin.to_bytes(8, "big"))):
            yield f"{pin} as a number"
