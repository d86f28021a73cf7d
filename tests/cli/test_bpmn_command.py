"""`unerring bpmn`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.processes.sketches import sketched
from unerring import Process
from unerring.cli import main

TEXT = """
start s
service a "Reserve stock" u:writes=stock
xor g "Enough?"
service b "Ship"
task c "Order more"
or i
service d
service e
end y
end z
s -> a -> g
g -yes:Yes> b -> y
g -no:No> c -> i
i -f1> d -> z
i -f2> e -> z
"""


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["bpmn", *arguments])
    return int(ended.value.code or 0)


def test_check_says_everything_at_once(tmp_path: Path, capsys: Any) -> None:
    good, bad = tmp_path / "good.bpmn", tmp_path / "bad.bpmn"
    good.write_bytes(sketched(TEXT))
    bad.write_bytes(sketched("start s\ncomplexGateway k\nend z escalation\ns -> z"))
    assert called("check", str(good), "--service", "work") == 0
    told = capsys.readouterr().out
    assert "to bind: yes (line" in told
    assert "process order can be imported (5 actions, 0 waits)" in told
    assert called("check", str(bad)) == 1
    assert capsys.readouterr().out.count("problem: ") == 2
    assert called("check", str(bad), "--json") == 1
    assert [each["id"] for each in json.loads(capsys.readouterr().out)["problems"]] == ["k", "z"]
    assert called("import", str(bad)) == 2
    assert "k (line 7): a complexGateway has no meaning here" in capsys.readouterr().err


def test_import_writes_a_module_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    model, module = tmp_path / "enough.bpmn", tmp_path / "enough_module.py"
    model.write_bytes(sketched(TEXT))
    assert called("import", str(model), "--to", str(module)) == 0
    assert "try: unerring explain enough_module:order" in capsys.readouterr().out
    assert called("import", str(model), "--to", str(module)) == 2
    assert "exists; choose another file" in capsys.readouterr().err
    assert called("import", str(model), "--to", str(tmp_path.parent / "elsewhere.py")) == 2
    monkeypatch.syspath_prepend(str(tmp_path))
    import enough_module  # type: ignore[import-not-found]

    from unerring import Rehearsal

    fakes = {name: (lambda **_: 1) for name in ("reserve_stock", "ship", "order_more", "d", "e")}
    stage = Rehearsal(enough_module.order, {"work": fakes})
    stage.start("o1", enough="No", f1=True)
    assert stage.finish("o1").status == "completed"
    assert stage.effects("work") == ["reserve_stock", "order_more", "d"]


def test_export_writes_a_model_that_is_imported_as_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    source, model = tmp_path / "small_shop.py", tmp_path / "shop.bpmn"
    source.write_text(
        "from unerring import Process, Service\n"
        "shop = Process('shop', services=[Service('stock')])\n"
        "@shop.action(service='stock', write=True)\nasync def reserve() -> None: ...\n"
        "shop.flow(reserve, shop.receive('payment'))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import small_shop  # type: ignore[import-not-found]

    assert called("export", "small_shop:shop", "--to", str(model)) == 0
    assert f"shop, version {small_shop.shop.graph.version}" in capsys.readouterr().out
    assert called("export", "small_shop:shop") == 0
    assert capsys.readouterr().out == model.read_text()
    assert Process.from_bpmn(model).graph == small_shop.shop.graph
    assert called("export", "small_shop:reserve") == 2
    assert "not a process" in capsys.readouterr().err
