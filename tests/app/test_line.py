"""The audit of the whole line: situations, the instances that they start, what services did for those. In a copy of a
run one of each is removed, and one of each added; each is a finding that names it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from examples.check_certificate import faults_of as second_faults_of

from unerring import App, Embedded, HttpService, IdempotencyFilter, Process, Service, last, rule, run_on, step, stream
from unerring.app import RootSealer, place_of, remember
from unerring.app.acting import PROCESSES
from unerring.app.demo.mutants import forget_instance, invent_instance, rewrite
from unerring.app.process_audit import _shown, audit_processes
from unerring.app.reconciling import reconcile
from unerring.audit import Certificate, JudgedProcesses, Report, faults_of, read_certificate
from unerring.audit.line import ASKED, DONE, OWNED, STARTED, WITNESSES_MAX, Begun, Wanted, check_starts
from unerring.cli import main
from unerring.log import BadEvent, EventLog, LogWriter, Positions, Quarantine, Reason, new_key
from unerring.model import ConfigError, Event, Persist, Stamp, protect_json, schema_of
from unerring.processes.messages import State
from unerring.processes.roster import HISTORY
from unerring.runtime.process_cluster import PLACES, Places
from unerring.runtime.services import SqliteStore
from unerring.runtime.storage import SqliteStorage


@stream(key="machine")
class Heat:
    machine: str
    celsius: float


class Cooling(msgspec.Struct):
    machine: str = ""
    peak: float = 0.0
    fan: str = ""


def cooling() -> Process:
    process = Process("cool", state=Cooling, services=[Service("fans")])

    @process.action(service="fans", writes="fan", write=True)
    async def turn_on(machine: str, peak: float) -> str: ...

    return process.flow(turn_on)


def overheating() -> Any:
    hot = step("hot", Heat, Heat.celsius > 80)
    hotter = step("hotter", Heat, Heat.celsius > last(hot).celsius)
    return rule("overheating").pattern(hot.then(hotter).within(seconds=10)).emit(peak=last(hotter).celsius)


def app() -> App:
    return App("plant", rules=[overheating()], buckets=1).on("overheating").start(cooling())


async def fans(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b'"on"'})


SECOND = 1_000_000


def found() -> list[Event]:
    heats = [(n, f"press-{n % 3}", 81.0 + n) for n in range(1, 13)]
    events = [Event("Heat", Stamp(n * SECOND), (m,), {"machine": m, "celsius": c}) for n, m, c in heats]
    return list(run_on([overheating()], events))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has ended: its situations are in the log, each has started its process, and the services did it."""
    data, plant = tmp_path_factory.mktemp("line"), app()
    (reaction,) = plant.reactions
    situations = found()
    assert len(situations) >= 3
    writer = LogWriter(EventLog(data / "log"), plant.outputs[0], buckets=1)
    for number, event in enumerate(situations):
        writer.append("rules", (1, number + 1), event.stamp, dict(event.payload), 0)
    writer.end(0)
    writer.seal()

    async def act() -> None:
        store = SqliteStore(data / "fans.db")
        service = HttpService("http://fans", transport=httpx.ASGITransport(app=IdempotencyFilter(fans, store)))
        async with Embedded([cooling()], data / PROCESSES / "n0.db", {"fans": service}) as engine:
            for event in situations:
                await engine.run("cool", reaction.instance(event), **reaction.values(event))
        await store.close()

    asyncio.run(act())
    Positions(EventLog(data / "log").store, "overheating").commit(reaction.reader, situations[-1].stamp)
    return data


@pytest.fixture
def data(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def wrong(data: Path) -> list[tuple[str, str]]:
    """All findings between the parts: the promise, and what shows that it is broken."""
    verdict = audit_processes(data / PROCESSES, [cooling()], [str(data / "fans.db")])
    line = reconcile(app(), data)
    return [(one.promise, " ".join(one.witness)) for one in (*line.violations, *verdict.violations)]


def journal(data: Path, sql: str) -> None:
    with closing(sqlite3.connect(data / "fans.db")) as connection, connection:
        connection.execute(sql)


def test_a_whole_run_has_nothing_wrong(data: Path) -> None:
    assert wrong(data) == []
    assert reconcile(app(), data).notes == ()


def test_an_instance_that_is_gone_is_missed_by_its_situation_and_its_interactions(data: Path) -> None:
    gone = forget_instance(data / PROCESSES)
    assert [promise for promise, _ in wrong(data)] == [STARTED, OWNED]
    assert all(gone in witness for _, witness in wrong(data))


def test_a_host_without_process_nodes_judges_no_instances_and_says_so(data: Path, tmp_path: Path) -> None:
    """Around a store the nodes are on the hosts of the run, and an audit may be on another."""
    line = reconcile(app(), place_of(data, tmp_path / "elsewhere"))
    assert line.violations == ()
    assert "no process node of" in line.notes[0]
    where_nodes_were = tmp_path / "elsewhere" / PROCESSES
    where_nodes_were.mkdir(parents=True)
    (where_nodes_were / PLACES).write_bytes(protect_json(Places(["plant"], {"n0": 1})))
    assert {one.promise for one in reconcile(app(), place_of(data, tmp_path / "elsewhere")).violations} == {STARTED}
    shutil.rmtree(data / PROCESSES)
    assert {one.promise for one in reconcile(app(), data).violations} == {STARTED}, "they were nowhere else"


def test_an_instance_that_no_situation_started_is_a_stranger(data: Path) -> None:
    strange = invent_instance(data / PROCESSES)
    told = wrong(data)
    assert told[0][0] == ASKED
    assert told[0][1].startswith(f"{strange} (cool, given ")
    assert "no situation of that stamp is in the log" in told[0][1]


def test_an_instance_that_was_given_something_else_than_its_situation_says_is_found(data: Path) -> None:
    (path,) = (data / PROCESSES).glob("*.db")
    with closing(SqliteStorage(path)) as storage:
        key, record = next((k, v) for k, v in storage.load().items() if k.endswith(f"|{HISTORY}"))
        state = msgspec.msgpack.decode(record, type=State)
        other = msgspec.structs.replace(state, given={**state.given, "peak": 2.9e40})
        storage.write([Persist(puts=((key, msgspec.msgpack.encode(other)),))])
    (first, *_) = wrong(data)
    assert first[0] == ASKED
    assert "was not given what overheating at 1970-01-01" in first[1]
    assert "2.9e40" in first[1].replace("e+", "e")


def test_a_situation_that_is_gone_leaves_a_stranger(data: Path) -> None:
    rewrite(data, "overheating", lambda rows: rows.pop(1))
    ((promise, witness),) = wrong(data)
    assert promise == ASKED
    assert "no situation of that stamp is in the log" in witness


def test_a_situation_that_was_added_lacks_its_instance(data: Path) -> None:
    rewrite(data, "overheating", lambda rows: rows.insert(1, {**rows[0], "time": rows[0]["time"] + 1}))
    ((promise, witness),) = wrong(data)
    assert promise == STARTED
    assert "should have started cool-overheating-" in witness


def test_a_whole_stream_of_situations_that_is_gone_leaves_strangers(data: Path) -> None:
    shutil.rmtree(data / "log" / "overheating")
    assert {promise for promise, _ in wrong(data)} == {ASKED}
    assert len(wrong(data)) == len(found())


def test_databases_that_are_gone_are_missed(data: Path) -> None:
    shutil.rmtree(data / PROCESSES)
    assert {one.promise for one in reconcile(app(), data).violations} == {STARTED}


def test_an_interaction_of_nobody_is_a_stranger(data: Path) -> None:
    other = "INSERT INTO unerring_journal (what, iid, grp, basis, request, reply) SELECT "
    journal(data, f"{other}what, 'nobody/turn_on/0@0', grp, basis, request, reply FROM unerring_journal LIMIT 1")
    ((promise, witness),) = wrong(data)
    assert promise == OWNED
    assert witness == f"do nobody/turn_on/0@0 in {data / 'fans.db'}: no node knows an instance nobody"


def test_an_interaction_of_another_run_is_known_where_that_run_is_named(data: Path, whole: Path) -> None:
    forget_instance(data / PROCESSES)
    sources = [str(data / "fans.db")]
    assert audit_processes(data / PROCESSES, [cooling()], sources).violations
    also = [whole / PROCESSES]
    assert audit_processes(data / PROCESSES, [cooling()], sources, also).violations == ()


def test_an_interaction_that_is_gone_is_missed_whether_or_not_its_instance_has_ended(data: Path) -> None:
    journal(data, "DELETE FROM unerring_journal WHERE n = (SELECT max(n) FROM unerring_journal)")
    assert len(wrong(data)) == 1
    (path,) = (data / PROCESSES).glob("*.db")
    with closing(SqliteStorage(path)) as storage:  # the same instance, as it was before it was settled
        records = storage.load()
        key = max(k for k in records if k.endswith(f"|{HISTORY}") and k.split("|")[0] in wrong_instance(records, data))
        state = msgspec.msgpack.decode(records[key], type=State)
        going_on = msgspec.structs.replace(state, status="running")
        accepted = msgspec.msgpack.encode((0, going_on, True, False))
        storage.write([Persist(puts=((key.replace(HISTORY, "accepted"), accepted),), deletes=(key,))])
    assert "which is in no journal" in dict(wrong(data))[DONE]


def wrong_instance(records: Any, data: Path) -> list[str]:
    with closing(sqlite3.connect(data / "fans.db")) as connection:
        told = {iid.split("/")[0] for (iid,) in connection.execute("SELECT iid FROM unerring_journal")}
    return [key.split("|")[0] for key in records if key.endswith(f"|{HISTORY}") and key.split("|")[0] not in told]


def test_what_is_still_to_be_acted_on_or_was_set_aside_is_a_note(data: Path) -> None:
    plant = app()
    (reaction,) = plant.reactions
    log, situations = EventLog(data / "log"), found()
    Positions(log.store, "overheating").commit(reaction.reader, situations[-2].stamp)
    forget_instance(data / PROCESSES, reaction.instance(situations[-1]))
    forget_instance(data / PROCESSES, reaction.instance(situations[0]))
    stamp = situations[0].stamp
    bad = BadEvent(reaction.reader, stamp.time, stamp.ordinal, Reason.PROCESS, "it cannot", b"{}")
    Quarantine(log.store, "overheating").add([bad])
    line = reconcile(plant, data)
    assert line.violations == ()
    assert line.notes == (
        "overheating starts cool: 1 situations are still to be acted on, when the run continues",
        "overheating starts cool: 1 situations could start none, and are in quarantine with the reason",
    )


def test_a_run_that_only_watches_has_no_line(data: Path) -> None:
    shutil.rmtree(data / PROCESSES)
    shutil.rmtree(data / "log" / "overheating" / "positions")
    assert reconcile(app(), data).violations == ()


def test_many_findings_are_counted_and_some_are_shown() -> None:
    told = check_starts([Wanted(f"i{n}", f"s{n}", "") for n in range(WITNESSES_MAX + 7)], {})
    assert len(told.violations) == WITNESSES_MAX + 1
    assert told.violations[-1].witness == ("and 7 more of these",)
    forgot = check_starts([Wanted("i", "s", "")], {"j": Begun("p", "")}, forgets=True)
    assert (forgot.missing, [one.promise for one in forgot.violations]) == (1, [ASKED])


def test_a_process_whose_name_no_position_can_be_kept_under_is_refused() -> None:
    hot = step("hot", Heat, Heat.celsius > 80)
    rules = rule("hotness").pattern(hot.then(step("more", Heat)).within(seconds=9)).emit(peak=last(hot).celsius)
    process = Process("cool down", state=Cooling)
    process.flow(process.sleep("s", 1))
    make: Callable[..., App] = App("plant", rules=[rules], buckets=1).on("hotness").start
    with pytest.raises(ConfigError, match="situations cannot start 'cool down'; name it with letters"):
        make(process)


PLANT = app()


class Certified:
    """`unerring audit --certificate` on a copy, with situations that nobody has to recompute on Spark."""

    def __init__(self, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data, self.verdict = data, data / "verdict.json"
        self.key = data.parent / "key.pem"
        new_key(self.key)
        heats = LogWriter(EventLog(data / "log"), schema_of(Heat), buckets=1)
        heats.append("press", (1, 1), Stamp(SECOND), {"machine": "press-1", "celsius": 82.0}, 0)
        heats.end(0)
        heats.seal()
        remember(data, f"{__name__}:PLANT")
        (data / PROCESSES / PLACES).write_bytes(protect_json(Places([f"{__name__}:PLANT"], {})))
        RootSealer(place_of(data)).seal()
        report = Report("plant", str(data), 0, 0, (), ())
        monkeypatch.setattr("unerring.app.auditing.Audit.run", lambda *_: report)
        monkeypatch.setattr("unerring.pipeline.spark_session", lambda *_: nullcontext())

    def audited(self) -> tuple[int, Certificate, dict[str, Any]]:
        """The exit code, and what both checkers hold of what was signed."""
        command = ["audit", str(self.data), "--journal", str(self.data / "fans.db")]
        with pytest.raises(SystemExit) as ended:
            main([*command, "--certificate", str(self.verdict), "--signing-key", str(self.key)])
        certificate, document = read_certificate(self.verdict.read_bytes(), "it")
        assert faults_of(certificate, document) == second_faults_of(document) == []
        return int(str(ended.value.code)), certificate, document


def test_a_certificate_says_what_was_found_of_processes(data: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """It was signed before they were judged: the exit code was 1, and what was signed said that nothing was wrong."""
    certified, count = Certified(data, monkeypatch), len(found())
    code, certificate, _ = certified.audited()
    judged = certificate.processes
    assert judged is not None
    assert (code, certificate.format, certificate.wrong, judged.counts) == (0, 2, 0, {})
    assert (judged.instances, judged.interactions, judged.unseen) == ({"completed": count}, count, ())
    assert judged.versions[0].startswith("cool ")
    assert judged.journals == (str(data / "fans.db"),)
    journal(data, "DELETE FROM unerring_journal WHERE n = (SELECT max(n) FROM unerring_journal)")
    code, certificate, document = certified.audited()
    assert certificate.processes is not None
    assert (code, certificate.wrong) == (1, certificate.processes.wrong)
    assert certificate.wrong >= 1
    assert faults_of(certificate, {**document, "processes": None})[0].startswith("the signature is not by")
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["check-certificate", str(certified.verdict)])
    assert (
        f"processes: {count} completed; {count - 1} interactions, {certificate.wrong} wrong" in capsys.readouterr().out
    )


def test_a_certificate_says_that_processes_were_not_checked(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    certified = Certified(data, monkeypatch)
    monkeypatch.setattr("unerring.app.running_in", lambda folder: ["n0"])
    _, certificate, _ = certified.audited()
    assert certificate.processes == JudgedProcesses(not_checked="n0 still run; stop the run first")
    shutil.rmtree(data / PROCESSES)
    _, certificate, _ = certified.audited()
    assert certificate.processes == JudgedProcesses(not_checked="no process node has run in the folder of the run")
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["check-certificate", str(certified.verdict)])
    said = capsys.readouterr().out
    assert "processes were not checked: no process node has run" in said
    assert "nothing is wrong in what was judged" in said


def test_no_password_of_a_journal_is_signed() -> None:
    assert _shown("postgresql://anna:s3cret@db:5432/shop?password=s3cret") == "postgresql://db/shop"
    assert _shown("fans.db") == "fans.db"
