"""An app whose stream has secret columns, and rules above it that read them."""

from __future__ import annotations

from unerring import App, last, rule, step, stream


@stream(key="who", secret=("card", "pin"))
class Payment:
    who: str
    shop: str
    card: str | None = None
    pin: int | None = None


_one = step("one", Payment, Payment.pin > 500_000_000)
_other = step("other", Payment, Payment.card == last(_one).card)
TWICE = rule("Twice").pattern(_one.then(_other).within(40)).emit(card=last(_other).card, shop=last(_other).shop)
_first = step("first", TWICE)
_second = step("second", TWICE)
FOUR = rule("Four").pattern(_first.then(_second).within(200)).emit(shop=last(_second).shop)
ANY = step("any", Payment, Payment.shop == "north")
VISITS = rule("Visits").pattern(ANY.within(5)).emit(shop=last(ANY).shop)
app = App("cards", rules=[TWICE, FOUR, VISITS], streams=[Payment], buckets=2)
