"""Payloads into columns: all at once where they are alike, one at a time where some are not."""

from __future__ import annotations

import msgspec
from hypothesis import given, strategies as st

from unerring.log.payloads import Payloads
from unerring.log.quarantine import Reason
from unerring.model import schema_of, stream


@stream()
class Reading:
    machine: str
    celsius: float


encode = msgspec.msgpack.encode
records = st.tuples(st.text(max_size=5), st.floats(allow_nan=False) | st.integers(-5, 5))
forms = st.sampled_from(["array", "map", "poison", "short", "wrong", "large"])


@given(st.lists(st.tuples(records, forms), max_size=20))
def test_any_mixture_gives_the_rows_that_fit_and_names_the_others(
    given_rows: list[tuple[tuple[str, float], str]],
) -> None:
    payloads, wanted, reasons = [], [], []
    for at, ((machine, celsius), form) in enumerate(given_rows):
        shape = {
            "array": [machine, celsius],
            "map": {"machine": machine, "celsius": celsius},
            "short": [machine],
            "wrong": {"machine": 7, "celsius": celsius},
            "large": {"machine": "x" * 500, "celsius": celsius},
        }
        payloads.append(b"\xc1" if form == "poison" else encode(shape[form]))
        if form in ("array", "map"):
            wanted.append((machine, float(celsius)))
        else:
            why = {"wrong": Reason.SCHEMA, "large": Reason.TOO_LARGE}.get(form, Reason.UNDECODABLE)
            reasons.append((at, why))
    table, bad = Payloads(schema_of(Reading), bytes_max=200).read(payloads)
    assert list(zip(table.column("machine").to_pylist(), table.column("celsius").to_pylist(), strict=True)) == wanted
    assert [(at, why) for at, why, _ in bad] == reasons
