"""A producer whose clock was ahead once, and an operator who lets it begin anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from unerring.app.feeds import Feeds
from unerring.app.parts import Parts
from unerring.app.resets import reset_producer
from unerring.app.verifying import verify
from unerring.channels import Start
from unerring.cli import main
from unerring.log import BadEvent, EventLog, Quarantine, Reason, Taken
from unerring.model import CallerError, StaleEpoch, schema_of
from unerring.pipeline.auditing import is_accounted
from unerring.rules.workloads import Typed
from unerring.runtime.channel import Publisher, epochs

TYPED = schema_of(Typed)
DAY_MS = 86_400_000


def until(condition: Callable[[], bool], feeds: Feeds) -> None:
    end_s = time.monotonic() + 60
    while not condition():
        assert feeds.error is None
        assert time.monotonic() < end_s
        threading.Event().wait(0.01)


def publish(out: Publisher[Typed], first: int, last: int) -> None:
    out.publish_many([Typed(1, "A", 0.5) for _ in range(first, last + 1)], at=list(range(first, last + 1)))
    out.watermark(last)


def publish_until_refused(out: Publisher[Typed]) -> None:
    for time_us in range(11, 6_000):
        publish(out, time_us, time_us)
        threading.Event().wait(0.01)


def times(log: EventLog) -> list[int]:
    return list(log.chain("Typed").read(0, 1_000_000).column("time").to_pylist())


def test_a_producer_whose_clock_was_a_day_ahead_is_heard_again_after_a_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = EventLog(tmp_path / "log")

    def feed(out: Publisher[Typed], start: Start = Start.LATEST) -> Feeds:
        feeds = Feeds(log, {"Typed": out.address}, {"Typed": TYPED}, 1, start=start, parts=Parts(tmp_path))
        feeds.start()
        return feeds

    monkeypatch.setattr(epochs, "_last", epochs.present_epoch(0) + DAY_MS)
    with Publisher("tcp://127.0.0.1:0", Typed, name="press") as out:
        feeds = feed(out, Start.EARLIEST)
        publish(out, 1, 10)
        until(lambda: log.chain("Typed").through_us == 10, feeds)
        feeds.stop()
    ((high, _),) = log.chain("Typed").producers().values()

    monkeypatch.setattr(epochs, "_last", 0)  # the clock was set right
    with Publisher("tcp://127.0.0.1:0", Typed, name="press") as out:
        feeds = feed(out)
        with pytest.raises(StaleEpoch, match="unerring channel reset STREAM press --data RUN"):
            publish_until_refused(out)
        feeds.stop()

    main_said = call(["channel", "reset", "Typed", "press", "--data", str(tmp_path)], capsys)
    assert main_said.startswith("press is reset in Typed: what it sends next is taken, whatever its epoch\n")
    assert f"kept: all that is in the log, up to epoch {high}, sequence 10\n" in main_said
    assert f"lost: events of epoch {high} after 10, if there were any" in main_said
    (lost,) = Quarantine(log.store, "Typed").events()
    assert (lost.reason, lost.epoch, lost.sequence) == (Reason.LOST, high, 11)

    with Publisher("tcp://127.0.0.1:0", Typed, name="press") as out:
        publish(out, 21, 25)  # before anybody listens: nothing of it may be passed over
        feeds = feed(out)
        until(lambda: log.chain("Typed").through_us == 25, feeds)
        feeds.stop()
        feeds = feed(out)  # and it goes on after a restart
        publish(out, 26, 30)
        until(lambda: log.chain("Typed").through_us == 30, feeds)
        feeds.stop()
    assert times(log) == [*range(1, 11), *range(21, 31)]
    assert verify(tmp_path).damage == []
    assert log.chain("Typed").producers()[lost.producer][0] < high


def call(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code in (0, None)
    return capsys.readouterr().out


def test_an_audit_still_accounts_for_an_epoch_that_was_reset() -> None:
    """Its number is above that of the epoch that followed it, which does not mean that it is not sealed yet."""
    ends, resets = {"p": (5, 30)}, {"p": [(9, 10)]}
    told = {
        mark: is_accounted(BadEvent("p", *mark, Reason.LOST, "", b""), Taken({"p": (4, 7)}), Taken(ends), resets)
        for mark in [(4, 7), (4, 8), (5, 30), (5, 31), (8, 1), (9, 4), (9, 11)]
    }
    assert told == {
        (4, 7): False,
        (4, 8): True,
        (5, 30): True,
        (5, 31): False,
        (8, 1): False,
        (9, 4): True,
        (9, 11): True,
    }


def test_what_cannot_be_reset_is_a_sentence(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")
    log.create(TYPED, 1)
    with pytest.raises(CallerError, match="stream Typed has no producer 'press'; it knows none"):
        list(reset_producer(tmp_path, "Typed", "press"))
    Parts(tmp_path).check()
    with pytest.raises(CallerError, match=r"a run is active in .*; stop it first"):
        list(reset_producer(tmp_path, "Typed", "press"))
