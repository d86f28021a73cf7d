"""A night: fresh seeds, time that is divided, pieces that hang or die, and a journal from which it goes on."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from unerring.cli import main
from unerring.model import CallerError
from unerring.night import Piece, Trial, found_lately, open_night, part_of, parts, report_of, write_report
from unerring.night.division import PIECE_S, Division
from unerring.night.findings import FINDINGS_MAX, SEEDS_KEPT_MAX, Findings
from unerring.night.journal import Journal, Line, Night
from unerring.night.parts import Part
from unerring.night.piece import Found, carry_out, runs_of
from unerring.night.running import TESTS_HANG_S, Spender

COUNTING = Part("seeds", "counter:Counting")
WRONG = Part("seeds", "troubled:Wrong")
HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def importable(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def night(home: Path, seconds: float = 3600, cores: int = 1, seed: int = 7) -> Journal:
    return open_night(home, seconds, cores, seed)


def done(piece: Piece, seconds: float = 1.0, *found: Found) -> Line:
    return Line(piece, Trial(piece.count, found=found), seconds, "2026-01-01T00:00:00")


# What there is to try


def test_every_scenario_is_tried_and_every_mutant() -> None:
    known = {part.name for part in parts()}
    assert {"seeds:processes", "seeds:intake", "mutants:log", "altered:channels", "repeated:correlation"} <= known


def test_parts_can_be_chosen(tmp_path: Path) -> None:
    assert {part.name for part in parts(only=["seeds:log"])} == {"seeds:log"}
    with pytest.raises(CallerError, match=r"no part has 'nothing' in its name; there are seeds:"):
        parts(only=["nothing"])
    with pytest.raises(CallerError, match="has no files of tests"):
        parts(tmp_path)
    with pytest.raises(CallerError, match="is no part of a night"):
        part_of("log")


LONG = """
import pytest
@pytest.mark.parametrize("how", ["at once", "a::b"])
def test_kills(how): pass
@pytest.mark.timeout(9000)
def test_for_hours(): pass
@pytest.mark.timeout(timeout=9.5)
def test_quickly(): pass
@pytest.mark.fixed_seeds
def test_the_same_seeds(): pass
"""


def test_a_piece_of_the_long_tests_is_one_test(tmp_path: Path) -> None:
    file, searched, wrong = tmp_path / "test_long.py", tmp_path / "test_seeds.py", tmp_path / "test_wrong.py"
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = fixed_seeds\n")
    file.write_text(LONG)
    searched.write_text("import pytest\n@pytest.mark.fixed_seeds\ndef test_same(): pass\n")
    wrong.write_text("nonsense")
    known = parts(tmp_path, only=["tests:"])
    nodes = {"test_kills[at once]": 0.0, "test_kills[a::b]": 0.0, "test_for_hours": 9000.0, "test_quickly": 9.5}
    alone = [Part("tests", f"{file}::{node}", limit_s) for node, limit_s in nodes.items()]
    assert known == [*alone, Part("tests", str(wrong))]
    assert {part.group for part in alone} == {f"tests:{file}"}
    assert [carry_out(Piece(part, 1)).tried for part in alone] == [1, 1, 1, 1]
    [found] = carry_out(Piece(known[-1], 1)).found
    assert "test_wrong.py" in found.what
    assert [part_of(part.name).group for part in alone] == [part.group for part in alone]


def test_a_test_hangs_only_after_its_own_limit(tmp_path: Path) -> None:
    spender = Spender(night(tmp_path), [COUNTING], {})
    assert spender._patience_s(Piece(Part("tests", "f::short", 60.0), 0)) == TESTS_HANG_S
    assert spender._patience_s(Piece(Part("tests", "f::for_hours", 30_000.0), 0)) > 30_000.0


# Seeds


def test_two_nights_have_other_seeds_and_two_parts_too(tmp_path: Path) -> None:
    one = open_night(tmp_path / "a", 60, 1, now=datetime(2026, 1, 1, tzinfo=UTC)).night
    other = open_night(tmp_path / "b", 60, 1, now=datetime(2026, 1, 2, tzinfo=UTC)).night
    assert one.seed != other.seed
    assert open_night(tmp_path / "c", 60, 1, now=datetime(2026, 1, 1, tzinfo=UTC)).night.seed == one.seed
    firsts = [one.first_seed(part) for part in (COUNTING, WRONG)]
    assert abs(firsts[0] - firsts[1]) >= 10**6
    assert max(firsts) < 1 << 63


def test_no_seed_is_tried_twice(tmp_path: Path) -> None:
    journal = night(tmp_path)
    first = journal.night.first_seed(COUNTING)
    division = Division([COUNTING], {COUNTING.name: first}, {})
    seen: set[int] = set()
    for _ in range(20):
        piece = division.next_piece(1e9)
        assert piece is not None
        seeds = set(range(piece.first, piece.first + piece.count))
        assert not seeds & seen
        seen |= seeds
        division.add(piece, Trial(piece.count), 0.1 * piece.count)
    assert seen == set(range(first, first + len(seen)))


# Time


def shares(found: dict[str, int], names: list[Part], rounds: int = 400) -> dict[str, float]:
    division = Division(names, {part.name: 0 for part in names}, found)
    spent = {part.name: 0.0 for part in names}
    for _ in range(rounds):
        piece = division.next_piece(1e9)
        assert piece is not None
        seconds = 0.5 * piece.count
        spent[piece.part.name] += seconds
        division.add(piece, Trial(piece.count), seconds)
    return {name: seconds / sum(spent.values()) for name, seconds in spent.items()}


def test_what_found_most_lately_gets_more_and_nothing_gets_none() -> None:
    names = [Part("seeds", "log"), Part("seeds", "intake"), Part("altered", "channels")]
    even = shares({}, names)
    assert even["seeds:log"] == pytest.approx(even["seeds:intake"], rel=0.2)
    steered = shares({"seeds:intake": 3}, names)
    assert steered["seeds:intake"] > 3 * steered["seeds:log"]
    assert min(steered.values()) > 0.01


def test_pieces_take_about_as_long_as_they_should() -> None:
    division = Division([COUNTING], {COUNTING.name: 0}, {})
    for _ in range(5):
        piece = division.next_piece(1e9)
        assert piece is not None
        division.add(piece, Trial(piece.count), 0.25 * piece.count)
    assert piece.count == PIECE_S / 0.25
    late = division.next_piece(2.0)
    assert late is not None
    assert late.count == 8
    assert division.next_piece(0.1) is None


def test_a_file_of_tests_is_begun_only_if_there_is_time_for_it() -> None:
    tests = Part("tests", "test_long.py")
    division = Division([tests], {tests.name: 10**15}, {})
    assert division.next_piece(60.0) is None
    piece = division.next_piece(3600.0)
    assert piece == Piece(tests, 10**15)
    assert division.next_piece(3600.0) is None  # not twice at once
    division.add(piece, Trial(5), 30.0)
    assert division.next_piece(20.0) is None
    assert division.next_piece(60.0) == Piece(tests, 10**15 + 1)


def test_the_tests_of_a_file_share_the_time_of_one_and_take_turns() -> None:
    many = [Part("tests", f"test_many.py::test_{number}") for number in range(6)]
    one = Part("tests", "test_one.py::test_it")
    division = Division([*many, one], {part.name: 0 for part in [*many, one]}, {})
    order: list[str] = []
    for _ in range(24):
        piece = division.next_piece(1e9)
        assert piece is not None
        order.append(piece.part.subject)
        division.add(piece, Trial(1), 50.0)
    assert order.count(one.subject) == 12
    assert [order.count(part.subject) for part in many] == [2] * 6
    first = division.next_piece(1e9)
    second = division.next_piece(1e9)
    assert first is not None
    assert second is not None
    assert {first.part.group, second.part.group} == {many[0].group, one.group}, "not two of a file at once"
    assert division.next_piece(1e9) is None


def test_a_short_night_is_not_spent_by_the_first_turn_of_long_tests() -> None:
    tests = [Part("tests", f"test_{number}.py::test_it") for number in range(20)]
    seeds = [Part("seeds", name) for name in ("log", "intake", "channels")]
    division = Division([*tests, *seeds], {part.name: 0 for part in [*tests, *seeds]}, {})
    spent_s = {"tests": 0.0, "seeds": 0.0}
    while sum(spent_s.values()) < 3_000:
        piece = division.next_piece(1e9)
        assert piece is not None
        seconds = 300.0 if piece.part.kind == "tests" else PIECE_S
        spent_s[piece.part.kind] += seconds
        division.add(piece, Trial(piece.count), seconds)
    fair = sum(part.weight(0) for part in seeds) / sum(part.weight(0) for part in [*tests, *seeds])
    assert spent_s["seeds"] / sum(spent_s.values()) >= fair
    assert spent_s["tests"] > 0


def test_a_night_knows_what_tests_took_in_those_before(tmp_path: Path) -> None:
    short, long = (Part("tests", f"test_long.py::test_{name}") for name in ("short", "long"))
    journal = night(tmp_path)
    for part, seconds in ((short, 10.0), (short, 30.0), (long, 500.0)):
        journal.add(Line(Piece(part, 0), Trial(1), seconds, ""))
    journal.add(Line(Piece(short, 0), Trial(0), 7_000.0, "", hung=0))
    later = Spender(open_night(tmp_path, 90, 2, 8, now=datetime(2999, 1, 1, tzinfo=UTC)), [short, long], {}).division
    assert [later.expected_s(part) for part in (short, long)] == [20.0, 500.0]
    first = Spender(open_night(tmp_path / "first", 90, 2, 8), [short, long], {}).division
    assert [first.expected_s(part) for part in (short, long)] == [45.0, 45.0], "a short night tries what it can"


def test_nights_begin_with_other_tests(tmp_path: Path) -> None:
    many = [Part("tests", f"test_many.py::test_{number}") for number in range(20)]
    begun = [Spender(night(tmp_path / str(seed), seed=seed), many, {}).division.next_piece(1e9) for seed in range(8)]
    assert len({piece.part for piece in begun if piece is not None}) > 2


def test_a_scenario_that_has_not_reached_what_it_must_gets_more() -> None:
    division = Division([COUNTING], {COUNTING.name: 0}, {})
    piece = division.next_piece(1e9)
    assert piece is not None
    division.add(piece, Trial(1), 1.0)
    [missing] = division.unreached(COUNTING)
    division.add(piece, Trial(1, reached={missing: 1}), 1.0)
    assert division.unreached(COUNTING) == []


# Findings


def test_what_differs_by_numbers_is_one_cause() -> None:
    findings = Findings()
    new = [findings.add(WRONG, Found(seed, f"instance {seed} never ends", "")) for seed in range(30)]
    assert [finding is not None for finding in new] == [True, *[False] * 29]
    [finding] = findings.by_id.values()
    assert finding.times == 30
    assert finding.seeds == list(range(SEEDS_KEPT_MAX))
    assert findings.add(WRONG, Found(1, "another promise", "")) is not None
    assert findings.add(COUNTING, Found(1, "another promise", "")) is not None


def test_one_promise_that_is_broken_by_other_last_steps_is_another_cause() -> None:
    findings = Findings()

    def new(*steps: str) -> bool:
        return findings.add(WRONG, Found(1, "events arrive in order", "", steps)) is not None

    assert new("c0: sequence 81 of e38c8e came after 108")
    assert not new("c1: sequence 7 of 9ffc2d came after 9", "c1: sequence 8 of 9ffc2d came after 9"), "once each"
    assert new("at 9408 us: list index out of range", "in _has_room, /here/feed.py:233")
    assert new("at 9408 us: list index out of range", "in accept, /here/feed.py:233")
    last = ["c1: a crash", *[f"c1: event {number}" for number in range(9)], "c1: a gap"]
    assert new("c1: it slept", *last)
    assert not new("c1: it lost its disk", *last), "only the last steps count"


def test_a_mutant_that_survived_is_shown_again_alone(capsys: pytest.CaptureFixture[str]) -> None:
    name = "asks once only"
    finding = Findings().add(Part("mutants", "counter:Counting"), Found(8, "was not caught", ""), name)
    assert finding is not None
    words = shlex.split(finding.replay)
    assert words[:2] == ["unerring", "simulate"]
    assert words[2:] == ["counter:Counting", "--mutant", name, "--seeds", "50", "--from", "8"]
    with pytest.raises(SystemExit) as end:
        main([*words[1:-4], "--seeds", "2", "--from", "8", "--cores", "1"])
    assert end.value.code == 1, "this one is caught"
    assert f"--seed 8 --mutant '{name}'" in capsys.readouterr().out.replace("\n", " ")


def test_causes_are_bounded() -> None:
    findings = Findings()
    for number in range(FINDINGS_MAX + 5):
        findings.add(WRONG, Found(1, "x" * number, ""))
    assert len(findings.by_id) == FINDINGS_MAX
    assert findings.dropped == 5


# The journal


def test_a_night_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    journal = night(tmp_path, seconds=100)
    journal.add(done(Piece(COUNTING, journal.night.first_seed(COUNTING), 40), 30.0))
    with journal.path.open("ab") as file:
        file.write(b'{"piece": cut off in the mid')
    again = open_night(tmp_path, 5000, 2)
    assert again.night == journal.night
    assert [line.piece.count for line in again.lines()] == [40]
    assert again.path.read_bytes().endswith(b"}\n")
    spender = Spender(again, [COUNTING], {})
    assert spender.left_s == 70.0
    assert spender.tried == 40
    piece = spender.division.next_piece(1e9)
    assert piece is not None
    assert piece.first == journal.night.first_seed(COUNTING) + 40


def test_a_night_that_is_over_is_followed_by_another(tmp_path: Path) -> None:
    journal = night(tmp_path, seconds=10)
    journal.add(done(Piece(COUNTING, 0), 10.0, Found(3, "a promise", "its witness")))
    assert found_lately(tmp_path) == {COUNTING.name: 1}
    later = open_night(tmp_path, 10, 1, now=datetime(2999, 1, 1, tzinfo=UTC))
    assert later.night.seed != journal.night.seed
    assert list(later.lines()) == []


def test_a_journal_that_is_none_gets_a_sentence(tmp_path: Path) -> None:
    journal = night(tmp_path)
    journal.path.write_bytes(b"nonsense\n")
    with pytest.raises(CallerError, match="has a line that is none"):
        Spender(journal, [COUNTING], {})
    (journal.folder / "night.json").write_text("[]")
    with pytest.raises(CallerError, match="cannot be read"):
        night(tmp_path)


# Pieces in processes


def test_a_piece_says_what_it_did() -> None:
    begun: list[int] = []
    trial = carry_out(Piece(COUNTING, 100, 3), begun.append)
    assert begun == [100, 101, 102]
    assert trial.tried == 3
    assert trial.messages > 0
    assert trial.found == ()
    caught = carry_out(Piece(Part("mutants", "counter:Counting"), 0, mutant="answers before it has persisted"))
    assert caught.caught_after is not None
    hostile = carry_out(Piece(Part("altered", "channels"), 5))
    assert hostile.messages > 100
    assert hostile.found == ()


def test_tests_that_fail_are_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = tmp_path / "test_some.py"
    file.write_text("def test_right(): pass\ndef test_wrong(): assert 1 == 2\n")
    trial = carry_out(Piece(Part("tests", str(file)), 0))
    assert trial.tried == 2
    [found] = trial.found
    assert "test_wrong" in found.what
    assert "assert 1 == 2" in found.text
    assert "its runs are in" in found.text
    file.write_text("syntax error")
    [found] = carry_out(Piece(Part("tests", str(file)), 0)).found
    assert "test_some.py" in found.what or "pytest ended" in found.what


BLOWS = """
import json, os
from pathlib import Path

def test_kills():
    assert os.environ["UNERRING_SEED"] == "77"
    with Path(os.environ["UNERRING_BLOWS"]).open("a") as file:
        for struck in ({"kill -9": 3}, {"kill -9": 1, "SIGSTOP": 2}):
            file.write(json.dumps(struck) + chr(10))
"""


def test_tests_draw_from_the_nights_seed_and_their_blows_are_counted(tmp_path: Path) -> None:
    part = Part("tests", str(tmp_path / "test_blows.py"))
    (tmp_path / "test_blows.py").write_text(BLOWS)
    trial = carry_out(Piece(part, 77))
    assert trial.found == ()
    assert trial.blows == {"SIGSTOP": 2, "kill -9": 4}
    assert not runs_of(Piece(part, 77), os.getpid()).exists(), "only what fails is kept"
    journal = Journal(tmp_path, Night("then", "1", 10, 1, 3))
    for first in (77, 78):
        journal.add(Line(Piece(part, first), trial, 1.0, ""))
    assert report_of(Spender(journal, [part], {}), [part]).blows == {"SIGSTOP": 4, "kill -9": 8}


def spent_until(spender: Spender, enough: object) -> Spender:
    """Spend a night until something holds."""

    def look(_progress: object) -> None:
        if enough():  # type: ignore[operator]
            spender.stop()

    spender.spend(look, every_s=0.02)
    return spender


def test_a_mistake_is_found_shrunk_and_told(tmp_path: Path) -> None:
    journal = night(tmp_path)
    spender = Spender(journal, [WRONG], {})
    spent_until(spender, lambda: any(finding.faults for finding in spender.findings.by_id.values()))
    report = report_of(spender, [WRONG])
    page = write_report(journal, report)
    [finding] = [told for told in report.findings if told["faults"]]
    assert finding["replay"].startswith(f"unerring simulate troubled:Wrong --seed {finding['seeds'][0]} --faults ")
    assert finding["replay"] in page.read_text()
    assert json.loads((tmp_path / "report.json").read_text())["findings"][0]["part"] == WRONG.name
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(finding["replay"])[1:])
    assert ended.value.code == 1


@pytest.mark.parametrize(("subject", "what"), [("troubled:Hanging", "hung"), ("troubled:Dying", "died with 9")])
def test_a_seed_that_hangs_or_kills_its_process_is_found(tmp_path: Path, subject: str, what: str) -> None:
    part = Part("seeds", subject)
    journal = night(tmp_path, seed=0)
    spender = Spender(journal, [part], {}, hang_s=8.0)
    spent_until(spender, lambda: spender.findings.by_id)
    finding = next(iter(spender.findings.by_id.values()))
    assert what in finding.what
    assert finding.seeds[0] % 10 == 3
    [line] = [line for line in journal.lines() if line.hung is not None]
    assert line.trial.tried == line.hung - line.piece.first


def test_a_night_that_is_ended_goes_on_with_the_same_command(tmp_path: Path, environment: dict[str, str]) -> None:
    words = [sys.executable, "-m", "unerring", "night", "--hours", "1", "--only", "seeds:channels", "--cores", "1"]
    running = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    journals: list[Path] = []
    while not journals:
        assert running.poll() is None
        journals = [path for path in tmp_path.glob("night/*/journal.jsonl") if path.stat().st_size]
    os.kill(running.pid, signal.SIGTERM)
    said, _ = running.communicate(timeout=600)
    assert running.returncode == 130
    assert "interrupted; the same command goes on" in said
    assert (tmp_path / "night" / "report.html").exists()
    again = open_night(tmp_path / "night", 3600, 1)
    assert again.folder == journals[0].parent


def test_one_seed_can_be_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in ((["--seed", "5"], 0), ([], 2)):
        with pytest.raises(SystemExit) as ended:
            main(["night", "--replay", "altered:channels", *arguments])
        assert ended.value.code == code
    said = capsys.readouterr()
    assert "nothing found" in said.out
    assert "--replay needs --seed" in said.err


def test_a_night_is_told_in_whole(tmp_path: Path) -> None:
    """The same from the journal as from whoever was there."""
    journal = Journal(tmp_path, Night("then", "1", 10, 1, 3))
    part = Part("mutants", "log")
    mutant = "exists means lost"
    for needed in (2, 4):
        journal.add(Line(Piece(part, 0, mutant=mutant), Trial(needed, caught_after=needed), 1.0, ""))
    journal.add(done(Piece(part, 0, mutant=mutant), 1.0, Found(0, "was not caught", "")))
    report = report_of(Spender(journal, [part], {}), [part])
    [zoo] = [one for one in report.mutants if one.mutant == mutant]
    assert (zoo.times, zoo.caught, zoo.seeds_mean, zoo.seeds_most) == (3, 2, 3.0, 4)
    assert report.seeds == 7
    assert len(report.findings) == 1


# The fuzzer


def fuzzer(folder: Path, program: str) -> Path:
    """A folder of fuzzing with one target."""
    (folder / "corpus" / "decoder").mkdir(parents=True)
    (folder / "run.py").write_text(program)
    return folder


def test_a_target_of_the_fuzzer_is_a_part(tmp_path: Path) -> None:
    folder = fuzzer(tmp_path / "fuzz", 'print(\'{"inputs": 12, "found": []}\')')
    [part] = parts(only=["fuzz:"], fuzz=folder)
    assert part == Part("fuzz", str(folder / "corpus" / "decoder"))
    with pytest.raises(CallerError, match=r"has no run\.py"):
        parts(fuzz=tmp_path)
    division = Division([part], {part.name: 5}, {}, folder=str(tmp_path / "kept"))
    piece = division.next_piece(100)
    assert piece is not None
    assert piece.folder == str(tmp_path / "kept")
    assert division.next_piece(100) is None, "one at a time: it keeps what it finds"
    assert carry_out(piece).tried == 12


def test_what_the_fuzzer_finds_is_a_finding_and_so_is_its_death(tmp_path: Path) -> None:
    said = '{"inputs": 3, "found": [{"seed": 1, "what": "KeyError in x.py, read", "text": "Traceback"}]}'
    folder = fuzzer(tmp_path / "fuzz", f"print({said!r})")
    [part] = parts(only=["fuzz:"], fuzz=folder)
    [found] = carry_out(Piece(part, 1)).found
    assert found.what == "KeyError in x.py, read"
    (folder / "run.py").write_text("raise SystemExit('broken')")
    [found] = carry_out(Piece(part, 1)).found
    assert found.what.endswith("run.py ended with 1")
    assert "broken" in found.text
