"""A log that shows tampering: chains of hashes, roots, anchors, and what `unerring verify` says of manipulations."""

from __future__ import annotations

import json
import random
import shutil
import stat
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.app.tampering import LAST, Attack, Finished, _segment, finish, named
from tests.log.worlds import table
from unerring.app import rooting, verifying
from unerring.app.parts import Parts
from unerring.app.place import place_of
from unerring.app.rooting import Rooting, RootSealer, read_history
from unerring.app.verifying import spread_on, verify
from unerring.cli import main
from unerring.log import (
    Anchor,
    Chain,
    EventLog,
    Judged,
    Roots,
    SigningKey,
    anchor_of,
    compact,
    cut,
    merkle_root,
    new_key,
    roots as root_objects,
    segments,
)
from unerring.log.index import GRACE_S
from unerring.log.segments import segment_name
from unerring.log.sweeping import sweep, wall_us
from unerring.model import CallerError, LogError, protect_json, sha256_of, verified_json

SEEDS = range(160_000_000, 160_000_048)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("finished")
    return finish(folder / "run", folder / "key.pem")


@pytest.fixture
def run(whole: Finished, tmp_path: Path) -> Finished:
    return copied(whole, tmp_path / "run")


def copied(run: Finished, to: Path) -> Finished:
    shutil.copytree(run.folder, to)
    return Finished(to, run.anchor, run.key)


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(str(ended.value.code or 0))


def test_nothing_is_found_in_an_untouched_run(whole: Finished) -> None:
    found = verify(whole.folder, anchors=[whole.anchor], trusted=whole.key)
    assert found.damage == []
    assert found.notes == []
    assert found.covered.newest == found.covered.anchored == 4
    assert found.covered.key == whole.key


@pytest.mark.parametrize("seed", SEEDS)
def test_every_manipulation_is_found(whole: Finished, tmp_path: Path, seed: int) -> None:
    run = copied(whole, tmp_path / "run")
    done = Attack(run, random.Random(seed)).do()
    found = verify(run.folder, anchors=[run.anchor], trusted=run.key)
    assert found.damage, f"seed {seed}: {done} was not found"


def test_what_is_forged_is_named(run: Finished) -> None:
    attack = Attack(run, random.Random(1))
    forged = attack._segments("Plain")[3]
    attack._forged(forged)
    [sentence] = verify(run.folder).damage
    assert "is not the segment that was sealed there" in sentence
    assert attack._segments("Plain")[4].name in sentence or forged.name in sentence


def test_rows_that_fit_their_digest_and_not_their_hash(run: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    """XXH3 can be made to fit other rows; SHA-256 cannot."""
    attack = Attack(run, random.Random(1))
    path = attack._segments("Plain")[2]
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(bytes(content))
    monkeypatch.setattr(segments, "digest_of", _Accepting())
    segment = _segment(path)
    with pytest.raises(LogError, match="rows' hash does not match"):
        segment.check()


class _Accepting(str):
    """A digest that equals every other, as a forged one would."""

    def __call__(self, *parts: object) -> _Accepting:
        return self

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


def test_a_link_is_checked_wherever_it_is(run: Finished) -> None:
    """Whichever segment is forged, the one after it does not follow; opening the chain reads some of them by itself."""
    for at in range(len(Attack(run, random.Random(1))._segments("Plain")) - 1):
        attack = Attack(run, random.Random(at))
        path = attack._segments("Plain")[at]
        content = path.read_bytes()
        attack._forged(path)
        with pytest.raises(LogError, match="does not follow the segment before it"):
            EventLog(run.folder / "log").chain("Plain").check()
        path.write_bytes(content)


def test_a_rewritten_stream_is_found_by_its_roots_and_a_rewritten_run_by_its_anchor(run: Finished) -> None:
    attack = Attack(run, random.Random(3))
    attack._relink("Plain", 0)
    assert any("root 4 names" in sentence for sentence in verify(run.folder).damage)
    attack.signed = False
    attack._seal_roots_anew()
    assert verify(run.folder).damage == [], "whoever keeps nothing elsewhere sees a consistent history"
    [sentence] = verify(run.folder, anchors=[run.anchor]).damage
    assert "history was rewritten" in sentence
    assert any("trusted key" in sentence for sentence in verify(run.folder, trusted=run.key).damage)


def test_a_root_is_not_sealed_over_a_contradiction(run: Finished) -> None:
    attack = Attack(run, random.Random(3))
    attack._relink("Plain", 2)
    with pytest.raises(LogError, match="no further root is sealed"):
        RootSealer(place_of(run.folder)).seal()


def test_compaction_and_retention_keep_it_provable(run: Finished) -> None:
    log = EventLog(run.folder / "log")
    for name in ("Plain", "Merged"):
        compact(log.chain(name))
        sweep(log.chain(name), wall_us() + int(2 * GRACE_S) * 1_000_000, whole=True)
    assert not list((run.folder / "log/Plain/segments").glob("*.parquet")), "what was merged is deleted"
    cut(log.chain("Parted"), 60)
    found = verify(run.folder, anchors=[run.anchor], trusted=run.key)
    assert found.damage == []
    # The newest segment's hash stands in the merged object, so the root's is still found there.
    assert log.chain("Plain").last().sealed == Roots(place_of(run.folder).store).newest().streams[2].digest
    chain = log.chain("Plain")
    chain.seal(LAST + 10, table([LAST + 1], named("Plain")))
    found = verify(run.folder, anchors=[run.anchor], trusted=run.key)
    assert found.damage == []
    assert found.notes == ["Plain: 1 objects after root 4, linked but not under a root yet"]
    merged = next((run.folder / "log/Plain/compacted").iterdir())
    content = bytearray(merged.read_bytes())
    content[50] ^= 1
    merged.write_bytes(bytes(content))
    assert any(merged.name in sentence for sentence in verify(run.folder).damage)


def test_an_unsigned_root_after_signed_ones_is_refused_and_found(run: Finished) -> None:
    EventLog(run.folder / "log").chain("Plain").seal(LAST + 10, table([LAST + 1], named("Plain")))
    with pytest.raises(LogError, match="no key is given for the next one"):
        RootSealer(place_of(run.folder)).seal()
    roots = Roots(place_of(run.folder).store)
    newest = roots.newest()
    assert newest is not None
    forged = msgspec.structs.replace(newest, number=5, before=newest.hash, key="", signature="")
    (run.folder / "roots/00000005.json").write_bytes(protect_json(forged))
    assert any("is not signed, though" in sentence for sentence in verify(run.folder).damage)


def test_two_sealers_make_one_root(tmp_path: Path) -> None:
    run = finish(tmp_path / "run")
    one, other = RootSealer(place_of(run.folder)), RootSealer(place_of(run.folder))
    EventLog(run.folder / "log").chain("Plain").seal(LAST + 10, table([LAST + 1], named("Plain")))
    assert one.seal() == other.seal()
    assert Roots(place_of(run.folder).store).newest().number == 5


def test_a_root_never_says_less_than_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sealer that slept between looking and sealing finds that another one was first."""
    run = finish(tmp_path / "run")
    chain = EventLog(run.folder / "log").chain("Plain")
    chain.seal(LAST + 10, table([LAST + 1], named("Plain")))
    slow, quick = RootSealer(place_of(run.folder)), RootSealer(place_of(run.folder))

    def sleeping(newest: object) -> dict[str, str]:
        chain.seal(LAST + 20, table([LAST + 11], named("Plain")))
        quick.seal()
        return RootSealer._objects(slow, newest)

    monkeypatch.setattr(slow, "_objects", sleeping)
    assert {head.stream: head.through_us for head in slow.seal().streams}["Plain"] == LAST + 20
    assert verify(run.folder).damage == []


def test_many_objects_are_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_objects, "OBJECTS_MAX", 4)
    monkeypatch.setattr(root_objects, "PAGE_OBJECTS", 2)
    folder = tmp_path / "run"
    finish(folder)
    versions = folder / "log" / "rule-versions"
    versions.mkdir()
    for number in range(9):
        (versions / f"{number}.json").write_bytes(protect_json({"number": number}))
        newest = RootSealer(place_of(folder)).seal()
    assert len(newest.pages) == 5
    assert len(Roots(place_of(folder).store).objects(newest)) == 9 + 4 + 4 + 1, "with bad events, streams, run.json"
    assert verify(folder).damage == []
    (versions / "0.json").write_bytes(protect_json({"number": 7}))
    assert any("rule-versions/0.json is not the object" in sentence for sentence in verify(folder).damage)


def test_the_tree_is_that_of_rfc_6962() -> None:
    def reference(leaves: list[bytes]) -> bytes:
        if len(leaves) == 1:
            return bytes.fromhex(sha256_of(b"\0", leaves[0]))
        split = 1 << (len(leaves) - 1).bit_length() - 1
        return bytes.fromhex(sha256_of(b"\1", reference(leaves[:split]), reference(leaves[split:])))

    assert merkle_root([]) == sha256_of(b"")
    for count in range(1, 40):
        leaves = [b"%d" % number for number in range(count)]
        assert merkle_root(leaves) == reference(leaves).hex()


def test_the_commands(run: Finished, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept.jsonl"
    main_at(["anchor", str(run.folder), "--newest", "--to", str(kept)])
    assert f"root 4 {run.anchor.hash}" in capsys.readouterr().out
    assert msgspec.json.decode(kept.read_bytes(), type=Anchor) == run.anchor
    (tmp_path / "key.pub").write_text(run.key + "\n")
    trusted = ["--anchor", str(kept), "--trusted-key", str(tmp_path / "key.pub")]
    assert command("verify", str(run.folder), *trusted) == 0
    assert f"root 4, signed by {run.key}; the anchor is of root 4" in capsys.readouterr().out
    Attack(run, random.Random(5)).roll_everything_back()
    assert command("verify", str(run.folder), *trusted, "--json") == 1
    assert json.loads(capsys.readouterr().out)["covered"]["newest"] < 4


def main_at(arguments: list[str]) -> None:
    assert command(*arguments) == 0


def test_keys_are_made_and_read_carefully(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "key.pem"
    main_at(["anchor", "--new-key", str(path)])
    assert capsys.readouterr().out.strip() == SigningKey(path).public
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(CallerError, match="give the name of a new file"):
        new_key(path)
    path.chmod(0o640)
    with pytest.raises(CallerError, match="chmod 600"):
        SigningKey(path)
    (tmp_path / "other").write_text("nothing")
    (tmp_path / "other").chmod(0o600)
    with pytest.raises(CallerError, match="is not an Ed25519 key"):
        SigningKey(tmp_path / "other")


def test_a_run_seals_roots_while_it_lasts_and_when_it_ends(tmp_path: Path) -> None:
    run = finish(tmp_path / "run")
    chain = EventLog(run.folder / "log").chain("Plain")
    part = Rooting(place_of(run.folder), Parts(tmp_path, print), print, every_s=0.01)
    chain.seal(LAST + 10, table([LAST + 1], named("Plain")))
    roots = Roots(place_of(run.folder).store)
    part.start(print)
    while roots.newest().number < 5:
        part._stopping.wait(0.01)
    part._stopping.set()
    part._thread.join()
    chain.seal(LAST + 20, table([LAST + 11], named("Plain")))
    part.stop()
    newest = roots.newest()
    assert newest.number == 6
    assert {head.stream: head.through_us for head in newest.streams}["Plain"] == LAST + 20
    assert verify(run.folder, anchors=[run.anchor, anchor_of(newest)]).damage == []


def test_what_an_anchor_file_may_hold(run: Finished, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad"
    for content, sentence in ((b"", "is empty"), (b"{}", "is not what `unerring anchor"), (b"\xff", "is not what")):
        bad.write_bytes(content)
        assert command("verify", str(run.folder), "--anchor", str(bad)) == 2
        assert sentence in capsys.readouterr().err
    changed = msgspec.structs.replace(run.anchor, at_us=1)
    assert any("its hash is not that" in one for one in verify(run.folder, anchors=[changed]).damage)
    resigned = msgspec.structs.replace(run.anchor, signature="00" * 64)
    assert any("its signature is not by" in one for one in verify(run.folder, anchors=[resigned]).damage)


def test_a_segment_of_an_older_release_is_read_and_said_not_to_be_covered(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    finish(folder)
    older = Path(__file__).parent / "older"
    shutil.copytree(older, folder / "log" / "Older")
    chain = EventLog(folder / "log").chain("Older")
    chain.seal(30, table([25], named("Older")))
    assert chain.read(0, 30).column("time").to_pylist() == [9, 10, 19, 20, 25]
    found = verify(folder)
    assert found.damage == []
    assert "Older: 2 objects of an older release have no hashes: a forgery of them is not found" in found.notes
    path = folder / "log" / "Older" / "segments" / segment_name(10)
    content = bytearray(path.read_bytes())
    content[30] ^= 1
    path.write_bytes(bytes(content))
    assert any(path.name in sentence for sentence in verify(folder).damage)
    assert verified_json((folder / "log/Older/stream.json").read_bytes(), dict, "")["schema"]["name"] == "Older"


# --- a verify that is broken on purpose: each check is needed by some manipulation ---


def _without_links(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Chain, "_check_link", lambda self, footer: None)
    patch.setattr(Chain, "check", lambda self: len([self.footer(s) for s in self.spans(self.base.from_us, LAST)]) * 0)


def _without_root_links(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Roots, "_fault", lambda self, root, before, trusted: "")


def _without_heads(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rooting, "judge_head", lambda chain, head, number: Judged())


def _without_objects(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rooting, "_judge_object", lambda *arguments: Judged())


def _without_anchor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rooting, "_anchor_fault", lambda *arguments: "")


def _without_trust(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rooting, "read_history", lambda place, anchors, trusted: read_history(place, anchors))
    patch.setattr(verifying, "read_history", lambda place, anchors, trusted: read_history(place, anchors))


MUTANTS = {
    "the hash of the segment before is not looked at": (_without_links, "forge_one", True),
    "the hash of the root before is not looked at": (_without_root_links, "forge_root", False),
    "chains are not compared with roots": (_without_heads, "roll_back", True),
    "objects are not compared with roots": (_without_objects, "remove_bad", True),
    "roots are not compared with the anchor": (_without_anchor, "roll_everything_back", True),
    "the key is not looked at": (_without_trust, "rewrite_everything", False),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_check_is_needed(whole: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    """The sound verify finds every one of these manipulations; the broken one misses some."""
    breaking, kind, anchored = MUTANTS[mutant]
    missed = 0
    for seed in range(160_001_000, 160_001_008):
        run = copied(whole, tmp_path / str(seed))
        getattr(Attack(run, random.Random(seed)), kind)()
        anchors = [run.anchor] if anchored else []
        assert verify(run.folder, anchors=anchors, trusted=run.key).damage
        with monkeypatch.context() as patch:
            breaking(patch)
            missed += not verify(run.folder, anchors=anchors, trusted=run.key).damage
        if missed:
            return
    raise AssertionError(f"mutant not caught: {mutant}")


@pytest.mark.xdist_group("spark")
def test_spark_finds_the_same(run: Finished, spark: SparkSession) -> None:
    here, there = (
        verify(run.folder, anchors=[run.anchor], spread=spread)
        for spread in (None, spread_on(spark, place_of(run.folder)))
    )
    assert here == there
    attack = Attack(run, random.Random(7))
    attack._forged(attack._segments("Trimmed")[1])
    attack.flip()
    here, there = (verify(run.folder, spread=spread) for spread in (None, spread_on(spark, place_of(run.folder))))
    assert sorted(here.damage) == sorted(there.damage)
    assert len(here.damage) >= 2
