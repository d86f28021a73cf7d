"""A shop with children, deadlines, messages by key, and two versions of its order."""

from __future__ import annotations

from typing import Any

import msgspec

from unerring.processes.build import Process
from unerring.processes.graph import Service


class Parcel(msgspec.Struct):
    item: str = ""
    label: str = ""


class Order(msgspec.Struct):
    customer: str = ""
    items: list[str] = []
    labels: list[str] = []
    paid: int = 0
    receipt: str = ""
    note: str = ""


def parcel() -> Process:
    process = Process("parcel", state=Parcel, services=[Service("post")])

    @process.action(service="post", writes="label", write=True)
    async def send(item: str) -> str: ...

    return process.flow(send)


def recall() -> Process:
    process = Process("recall", state=Parcel, services=[Service("post")])

    @process.action(service="post", write=True)
    async def fetch_back(label: str) -> None: ...

    return process.flow(fetch_back)


def order(
    version: int = 1, deadline: int = 0, on_failure: str = "undo", pay: bool = True, final: bool = False
) -> Process:
    """Reserve, wait for the money, send a parcel for each item, close. Version 2 notes something before it closes."""
    process = Process(
        "order", state=Order, services=[Service("bank"), Service("post")], deadline=deadline, on_failure=on_failure
    )

    @process.action(service="bank", writes="receipt", write=True)
    async def reserve(customer: str) -> str: ...

    @process.action(service="bank", write=True, compensable=not final)
    async def close(receipt: str, labels: list[str]) -> None: ...

    @process.query
    def progress(labels: list[str], paid: int) -> dict[str, int]:
        return {"parcels": len(labels), "paid": paid}

    steps: list[Any] = [reserve]
    if pay:
        steps.append(process.receive("payment", writes="paid", key="customer"))
    steps.append(
        process.child(
            "send_all",
            parcel(),
            {"item": "items"},
            returns="label",
            writes="labels",
            undo=recall(),
            over="items",
            at_once=2,
        )
    )
    if version == 2:

        @process.action(service="bank", writes="note", write=True)
        async def remark(customer: str) -> str: ...

        steps.append(remark)
    return process.flow(*steps, close)


def fakes(**more: Any) -> dict[str, dict[str, Any]]:
    bank = {
        "reserve": lambda customer: f"r-{customer}",
        "close": lambda receipt, labels: None,
        "remark": lambda customer: "n",
    }
    post = {"send": lambda item: f"l-{item}", "fetch_back": lambda label: None}
    for name, fake in more.items():
        (post if name in post else bank)[name] = fake
    return {"bank": bank, "post": post}
