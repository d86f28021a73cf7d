"""A path with a scheme that nobody reads is refused wherever a run's folder, a log or a file is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from unerring import App
from unerring.cli import main
from unerring.model import CallerError
from unerring.pipeline.source import UnerringSource
from unerring.rules.workloads import W1

PLACE = "s3a://bucket/run"
COMMANDS = [
    ["run", "unerring.rules.workloads:W1", "--data", PLACE],
    ["run", "nowhere:app", "--engine", "live", "--data", PLACE],
    ["ingest", "a.csv", "--stream", "A", "--time-column", "t", "--data", PLACE],
    ["audit", PLACE],
    ["retain", PLACE, "--before", "5"],
    ["rescale", PLACE, "--buckets", "5"],
    ["situations", PLACE],
    ["status", PLACE],
    ["status", "--data", PLACE],
    ["top", PLACE],
    ["dashboard", PLACE],
    ["costs", "--data", PLACE],
    ["node", "nowhere:process", "--data", PLACE],
    ["process", "export", "--to", PLACE],
    ["process", "list", "--data", PLACE],
    ["evaluate", "channels", "--data", PLACE],
    ["query", "SELECT 1", "--table", f"t={PLACE}"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_every_command_refuses_it(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "there is no store for s3a" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_app_and_a_data_source_refuse_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = App("trial", rules=[W1])
    for call in (lambda: app.levels(PLACE), lambda: app.situations("W1", data=PLACE)):
        with pytest.raises(CallerError, match="there is no store for s3a"):
            call()
    with pytest.raises(CallerError, match="there is no store for s3a"):
        UnerringSource({"path": PLACE, "stream": "Typed"}).schema()
    assert not list(tmp_path.iterdir())
