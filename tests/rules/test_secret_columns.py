"""What rules make of secret columns is secret, and what a rule is does not depend on it."""

from __future__ import annotations

import msgspec
import pytest

from unerring import App, Process, counted, fn, last, rule, schema_of, step, stream
from unerring.model import ConfigError, RuleError
from unerring.rules import restored, stored


@stream(key="who", secret=("card", "amount"))
class Purchase:
    who: str
    shop: str
    card: str | None = None
    amount: float | None = None


@stream(key="who")
class Open:
    who: str
    shop: str
    card: str | None = None
    amount: float | None = None


@stream(key="who", secret="card")
class Seen:
    who: str
    card: str | None = None


ONE = step("one", Purchase)
TWO = step("two", Purchase, Purchase.card == last(ONE).card)


def test_what_reads_a_secret_column_is_secret_and_nothing_else() -> None:
    pair = (
        rule("Pair")
        .pattern(ONE.then(TWO).within(10))
        .emit(card=last(TWO).card, more=last(TWO).amount * 2, large=last(TWO).amount > 5, shop=last(ONE).shop)
    )
    assert pair.schema.secret == ("card", "more", "large")
    assert pair.schema.key == ("who",)
    window = rule("Sum").on(Purchase).window(counted(3)).emit(sum=fn.sum(Purchase.amount), n=fn.count())
    assert window.schema.secret == ("sum",)
    above = (
        rule("Above").pattern(step("p", pair).then(step("q", pair)).within(10)).emit(card=last(step("p", pair)).card)
    )
    assert above.schema.secret == ("card",), "level over level"
    assert restored(stored(pair.plan)).output.secret == pair.schema.secret
    side, other = step("side", Purchase), step("other", Open)
    join = rule("Both").join(side, other, within=5).emit(mine=last(side).amount, shop=last(other).shop)
    assert join.schema.secret == ("mine",)


def test_a_rule_stays_the_same_rule_when_its_columns_become_secret() -> None:
    def version(source: type) -> str:
        schema = msgspec.structs.replace(schema_of(source), name="Same")
        one = step("one", schema)
        return rule("R").pattern(one.then(step("two", schema)).within(10)).emit(shop=last(one).shop).version

    assert version(Purchase) == version(Open)


def test_no_secret_column_is_a_key_or_goes_to_a_process() -> None:
    with pytest.raises(RuleError, match="key column 'card' of Purchase is secret, and a key is shown"):
        rule("R").key("card").pattern(ONE).emit()
    pair = rule("Pair").pattern(ONE.then(TWO).within(10)).emit(card=last(TWO).card)

    class State(msgspec.Struct):
        who: str = ""
        card: str = ""

    process = Process("call", state=State)
    process.flow(process.sleep("pause", 1))
    with pytest.raises(ConfigError, match=r"Pair.card is secret, and the state of a process is kept and shown"):
        App("a", rules=[pair]).on("Pair").start(process, card="card")
    app = App("a", rules=[pair]).on("Pair").start(process)
    assert app.reactions[0].given == (("who", "who"),), "of itself only what is not secret is given"
