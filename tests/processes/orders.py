"""A process that most tests use."""

from __future__ import annotations

import msgspec

from unerring.processes.build import Process
from unerring.processes.graph import Service


class Order(msgspec.Struct):
    item: str = "bolt"
    count: int = 1
    price: int = 0
    reservation: str = ""
    invoice: str = ""
    label: str = ""
    answer: str = ""


def order_process() -> Process:
    """Price, reserve; large orders are inspected; label and invoice at once; then the truck, which cannot return."""
    order = Process("order", state=Order, services=(Service("stock"), Service("bank", cancels=False)))

    @order.action(writes="price", deterministic=True, time=5_000)
    async def quote(item: str, count: int) -> int:
        return len(item) * count

    @order.action(service="stock", writes="reservation", write=True, time=20_000)
    async def reserve(item: str, count: int) -> str: ...

    @order.action(service="stock", writes="answer", time=10_000)
    async def inspect(reservation: str) -> str: ...

    @order.action(service="bank", writes="invoice", write=True, compensation="refund", cost=3, time=50_000)
    async def bill(price: int) -> str: ...

    @order.action(writes="label", deterministic=True)
    async def print_label(reservation: str) -> str:
        return f"label {reservation}"

    @order.action(service="stock", write=True, compensable=False, time=30_000)
    async def dispatch(label: str, invoice: str) -> None: ...

    @order.condition
    def large(count: int) -> bool:
        return count > 10

    return order.flow(
        quote,
        reserve,
        order.xor(large, {True: [inspect], False: []}),
        order.both([bill], [print_label]),
        dispatch,
    )
