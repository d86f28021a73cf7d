"""`unerring explain`: a rule for people, and for scripts."""

from __future__ import annotations

import json

import pytest

from unerring.cli import main
from unerring.matching.choice import why_interpreted
from unerring.matching.explain import describe, printed
from unerring.rules import expressions as ex
from unerring.rules import patterns as pt
from unerring.rules.plan import Input, Measure, PatternPlan, Variable

from .kernel_pairs import LEFT, column, last


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["explain", *arguments])
    assert ended.value.code in (0, None)
    return capsys.readouterr().out


def test_a_rule_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    text = explained(capsys, "unerring.rules.workloads:W2")
    assert "rule: W2" in text
    assert "(type = 'C')" in text
    assert "a key without an open match is forgotten" in text
    assert "version: " in text


def test_a_script_gets_json(capsys: pytest.CaptureFixture[str]) -> None:
    from unerring.rules.workloads import W3

    said = json.loads(explained(capsys, "unerring.rules.workloads:W3", "--json"))
    assert said["rule"] == "W3"
    assert said["version"] == W3.version
    assert said["matcher"] in ("compiled", "interpreted")
    assert (said["matcher"] == "interpreted") == bool(said["why"])
    assert said["certain"] == "at the deadline of the absence at its end"


def test_arithmetic_that_can_fail_is_named() -> None:
    plan = PatternPlan(
        "Sums",
        (Input(LEFT, ("k",)),),
        (Variable("a", ex.Comparison(">", ex.Arithmetic("%", column("x"), column("k")), ex.literal(1))),),
        pt.Step("a"),
        (
            Measure("total", ex.Aggregate("sum", (column("x"),))),
            Measure("took", ex.Arithmetic("-", ex.EventTime(last("a")), ex.EventTime(ex.At((), ex.Which.FIRST)))),
            Measure("v", ex.Arithmetic("*", column("v"), ex.literal(2.0))),
        ),
    )
    said = describe(plan, why_interpreted)
    assert said["null_where"] == ["(x % k): divided by zero", "sum(x): does not fit 64 bits"]
    assert "  - (x % k): divided by zero" in printed(said)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("nonsense", "module:attribute"),
        ("no.such.module:x", "there is no module"),
        ("unerring.rules.workloads:W9", "has no 'W9'"),
        ("unerring.rules.workloads:Typed", "not a rule"),
    ],
)
def test_a_wrong_address_is_answered_by_a_sentence(capsys: pytest.CaptureFixture[str], address: str, says: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", address])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
