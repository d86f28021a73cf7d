"""`unerring explain`: a rule for people, and for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from unerring.cli import main
from unerring.matching.explain import describe, printed
from unerring.matching.kernel import Columns
from unerring.rules import expressions as ex, patterns as pt
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
    assert (said["matcher"] == "interpreted") == bool(said["why"]) == bool(said["cost"])
    assert said["certain"] == "at the deadline of the absence at its end"


def test_what_is_not_compiled_says_why_and_what_that_costs() -> None:
    from dataclasses import replace

    from unerring.rules.plan import OutputMode
    from unerring.rules.workloads import W2

    text = printed(describe(replace(W2.plan, mode=OutputMode.ALL_ROWS)))
    assert "matcher: interpreted" in text
    assert "why: it outputs all rows of a match" in text
    assert "times the CPU time of compiled code for each event (measure it with: unerring bench kernel)" in text


def test_a_compiler_that_failed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run elsewhere goes on as Python; `explain` finds out why, until it compiles."""
    from unerring.matching.choice import matcher_for
    from unerring.matching.kernel import Kernel, compilation
    from unerring.rules.workloads import W2

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def broken(source: str, cache: Path | None = None) -> compilation.Functions:
        raise MemoryError("no more room")

    matcher = matcher_for(W2.plan)
    assert isinstance(matcher, Kernel)
    with monkeypatch.context() as patch:
        patch.setattr(compilation, "compiled", broken)
        matcher._compile(Columns(np.zeros(0, np.int64), {}))
    assert "compilation_fault: MemoryError: no more room" in explained(capsys, "unerring.rules.workloads:W2")
    compilation.note_fault(matcher._program.source, tmp_path, "")
    assert "compilation_fault" not in explained(capsys, "unerring.rules.workloads:W2")
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(blocked))
    assert "the folder of machine code cannot be used" in explained(capsys, "unerring.rules.workloads:W2")


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
    said = describe(plan)
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
