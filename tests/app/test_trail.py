"""The audit trail: changes and refusals that timelines have are under the roots, and no line of it goes unseen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.app.tampering import named
from unerring.app import place_of
from unerring.app.folder import remember
from unerring.app.rooting import RootSealer
from unerring.app.trail import Stretch, Trail, TrailSealer, host_name
from unerring.app.verifying import verify
from unerring.log import EventLog
from unerring.log.roots import Roots
from unerring.model import LogError, protect_json, protect_line, sha256_of, verified_json
from unerring.runtime import Entry, What, lines, timeline


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    remember(folder, "tests.app.tree_app:app")
    EventLog(folder / "log").create(named("Plain"), buckets=2)
    for inner in ("live", "processes"):
        (folder / inner).mkdir()
    return folder


def sealed(run: Path) -> list[Entry]:
    return [entry for stretch, _ in Trail(place_of(run), host_name()).walk() if stretch for entry in stretch.entries]


def objects(run: Path) -> list[Path]:
    return sorted((run / "trail" / host_name()).glob("*.json"))


def busy(run: Path) -> Path:
    """A run with a trail of three objects under three roots."""
    sealer = RootSealer(place_of(run))
    for number in range(3):
        timeline.note(run, "operator/ann", What.COMMANDED, f"cancel order-{number}, from 127.0.0.1")
        sealer.seal()
    return run


def test_changes_and_refusals_of_all_folders_are_under_the_next_root(run: Path) -> None:
    timeline.note(run, "operator/ann", What.LOGIN, "the dashboard, from 127.0.0.1")
    timeline.note(run / "live", "R/0", What.KILLED, "killed from the dashboard (kill -9)")
    timeline.note(run / "live", "R/1", What.LEADS, "is no change")
    timeline.note(run / "processes", "user bob", What.COMMANDED, "cancel order-1, from process 7 by n0.sock")
    place = place_of(run)
    sealer = RootSealer(place)
    root = sealer.seal()
    assert [entry.who for entry in sealed(run)] == ["operator/ann", "R/0", "user bob"]
    (name,) = (path.relative_to(run).as_posix() for path in objects(run))
    assert root.objects[name] == sha256_of((run / name).read_bytes())
    assert sealer.seal() == RootSealer(place).seal() == root, "it is sealed once, also by the next process"
    timeline.note(run, "dashboard", What.REFUSED, "viewer/eve has no right 'command kill'")
    assert RootSealer(place).seal().number == root.number + 1
    assert [path.name for path in objects(run)] == ["00000001.json", "00000002.json"]
    assert len(sealed(run)) == 4
    assert verify(run).damage == []


def changed(path: Path, before: str = "") -> None:
    """Its entries are somebody else's, with a digest that fits."""
    stretch = verified_json(path.read_bytes(), Stretch, str(path))
    entries = tuple(Entry(one.at_us, "operator/eve", one.what, one.said) for one in stretch.entries)
    path.write_bytes(protect_json(Stretch(stretch.number, before or stretch.before, stretch.folder, entries)))


def rewrite_all(run: Path) -> None:
    before = ""
    for path in objects(run):
        changed(path, before)
        before = sha256_of(path.read_bytes())


def put_in(run: Path) -> None:
    last = objects(run)[-1]
    forged = Stretch(4, "0" * 64, str(run), (Entry(1, "operator/bob", What.COMMANDED, "it was bob"),))
    last.with_name("00000004.json").write_bytes(protect_json(forged))


def edit_line(run: Path) -> None:
    file = run / timeline.FILE
    first, *others = file.read_bytes().splitlines(keepends=True)
    entry = Entry(1, "operator/bob", What.COMMANDED, "it was bob")
    file.write_bytes(protect_line(msgspec.json.encode(entry)) + b"\n" + b"".join(others))
    assert first


@pytest.mark.parametrize(
    ("attack", "named"),
    [
        (lambda run: changed(objects(run)[0]), "00000001.json"),
        (lambda run: changed(objects(run)[-1]), "00000003.json"),
        (lambda run: objects(run)[1].unlink(), "00000002.json"),
        (lambda run: objects(run)[-1].unlink(), "00000003.json"),
        (rewrite_all, "00000001.json"),
        (put_in, "00000004.json"),
        (edit_line, f"{timeline.FILE} lacks 1 entries of the audit trail, the first of them (operator/ann commanded: "),
        (lambda run: (run / timeline.FILE).unlink(), f"{timeline.FILE} lacks 3 entries"),
    ],
)
def test_what_is_changed_removed_or_put_in_is_found_and_named(
    run: Path, attack: Callable[[Path], object], named: str
) -> None:
    assert verify(busy(run)).damage == []
    attack(run)
    assert any(named in sentence for sentence in verify(run).damage)


def test_a_timeline_that_grew_too_large_lacks_its_oldest_lines_and_the_trail_does_not(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "BYTES_MAX", 2000)
    sealer = RootSealer(place_of(run))
    for number in range(60):
        timeline.note(run, "operator/ann", What.COMMANDED, f"cancel order-{number}, from 127.0.0.1")
        if number % 5 == 0:
            sealer.seal()
    sealer.seal()
    assert len(sealed(run)) == 60
    assert verify(run).damage == []


def test_two_processes_of_a_host_seal_each_entry_once(run: Path) -> None:
    place = place_of(run)
    one, other = TrailSealer(place), TrailSealer(place)
    timeline.note(run, "operator/ann", What.COMMANDED, "cancel order-1, from 127.0.0.1")
    one.seal()
    timeline.note(run, "operator/ann", What.COMMANDED, "cancel order-2, from 127.0.0.1")
    other.seal()
    one.seal()
    assert [entry.said.split(",")[0] for entry in sealed(run)] == ["cancel order-1", "cancel order-2"]


def test_nothing_is_sealed_over_a_gap(run: Path) -> None:
    objects(busy(run))[-1].with_name("00000009.json").write_bytes(objects(run)[0].read_bytes())
    timeline.note(run, "operator/ann", What.COMMANDED, "cancel order-1, from 127.0.0.1")
    with pytest.raises(LogError, match="restore"):
        RootSealer(place_of(run)).seal()
    newest = Roots(place_of(run).store).newest()
    assert newest is not None
    assert newest.number == 3
