"""Card payments whose times are cut to whole seconds: the live processes load this too."""

from __future__ import annotations

from unerring import App, last, rule, step, stream, time_of


@stream(key="card")
class Txn:
    card: int
    amount: float


small = step("small", Txn, Txn.amount < 5)
large = step("large", Txn, Txn.amount > 95)
fraud = (
    rule("fraud")
    .pattern(small.next(large).within(seconds=30))
    .emit(began=time_of(last(small)), probe=last(small).amount, amount=last(large).amount)
)
app = App("cards", rules=[fraud], buckets=2)
