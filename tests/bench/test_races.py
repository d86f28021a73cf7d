"""The races of bench/peers, as far as they go without a peer: what is compared, what is read, and what is said."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unerring.cli.bench import _load
from unerring.matching import Interpreter, Row
from unerring.model import CallerError, Event, Stamp, WorldError
from unerring.rules import W1, W2, W3, Rule

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "bench" / "peers"))

import flink_java
import flink_sql
import race_inputs
import race_matches
import race_sides
import services
import step_journal
import tables
import tables_peer
import transform_peer
import workflow_race


def matches(*rows: tuple[int, int, int]) -> race_matches.Matches:
    return race_matches.Matches(*np.array(rows, np.int64).reshape(-1, 3).T)


def test_a_digest_knows_the_matches_and_not_their_order() -> None:
    some = matches((1, 10, 20), (2, 10, 30), (1, 15, 20))
    assert some.digest() == matches((1, 15, 20), (1, 10, 20), (2, 10, 30)).digest()
    assert race_matches.must_be_equal("W1", some, matches((1, 15, 20), (1, 10, 20), (2, 10, 30)), "Flink") == 3
    for other in ((1, 10, 21), (1, 11, 20), (3, 10, 20)):
        assert some.digest() != matches(other, (2, 10, 30), (1, 15, 20)).digest()


def test_columns_that_changed_places_are_another_set_of_matches() -> None:
    assert matches((1, 10, 20), (2, 30, 40)).digest() != matches((2, 10, 20), (1, 30, 40)).digest()


def test_matches_that_differ_end_the_race() -> None:
    some = matches((1, 10, 20), (2, 10, 30))
    with pytest.raises(WorldError, match="W1: 2 matches here and 1 on Flink; the race is void"):
        race_matches.must_be_equal("W1", some, matches((1, 10, 20)), "Flink")
    with pytest.raises(WorldError, match=r"W1: as many matches as on DuckDB \(2\), but not the same ones"):
        race_matches.must_be_equal("W1", some, matches((1, 10, 20), (2, 10, 31)), "DuckDB")


def test_what_is_open_when_the_events_end_is_left_out() -> None:
    assert (
        matches((1, 10, 20), (2, 10, 30), (3, 5, 31)).ended_by(30).digest()
        == matches((1, 10, 20), (2, 10, 30)).digest()
    )


def test_matches_are_read_from_what_each_peer_writes(tmp_path: Path) -> None:
    wanted = matches((7, 1_000, 2_000), (8, 3_000, 4_000))
    (tmp_path / "2026-01-01--00").mkdir()
    for where, row in (("part-0", (7, 1_000, 2_000)), ("2026-01-01--00/part-1-0", (8, 3_000, 4_000))):
        np.array([row], race_matches.IN_BINARY).tofile(tmp_path / where)
    assert race_matches.of_binary(tmp_path).digest() == wanted.digest()
    columns = {"key": wanted.key, "began": wanted.began * 1000, "ended": wanted.ended * 1000}
    pq.write_table(pa.table(columns), tmp_path / "found.parquet")
    assert race_matches.of_parquet(tmp_path / "found.parquet").digest() == wanted.digest()


def test_the_binary_files_have_every_event_once_in_order(tmp_path: Path) -> None:
    drawn = race_inputs.draw(101)
    race_inputs.write_binary(tmp_path / "binary", drawn, 100)
    parts = [np.fromfile(tmp_path / "binary" / f"{reader}.bin", race_inputs.IN_BINARY) for reader in range(2)]
    assert all((np.diff(part["ms"]) > 0).all() for part in parts)
    rows = np.sort(np.concatenate(parts), order="ms")
    assert rows["ms"].tolist() == drawn["ms"][:100].tolist()
    assert rows["key"].tolist() == drawn["key"][:100].tolist()
    assert bytes(rows["type"]).decode() == "".join(drawn["type"][:100])
    assert rows["v"].tolist() == drawn["v"][:100].tolist()
    assert race_inputs.IN_BINARY.itemsize == 21  # FlinkCep.java says so too
    assert "EVENT_BYTES = 21" in Path(flink_java.__file__).with_name("FlinkCep.java").read_text()


def test_the_last_line_of_a_peer_is_what_it_says() -> None:
    said = 'a warning\n{"took_s": 5, "start_up_s": 1, "took_cpu_s": 9.5, "start_up_cpu_s": 1.5}\n'
    told = race_sides.parsed(said, "", 0, "Flink")
    cost = race_sides.cost_there(told, 4_000_000, 512.0)
    assert cost.rate == 1_000_000
    assert cost.cpu_us == 2.0
    assert cost.memory_mib == 512.0


@pytest.mark.parametrize(
    ("said", "error", "code", "sentence"),
    [
        ("", "Exception in thread main\n\tno such file\n", 1, "Flink ended with 1: \tno such file"),
        ("", "", 0, "Flink ended with 0: it said nothing"),
        ("Killed\n", "", 0, "Flink ended without its figures; its last line was 'Killed'"),
    ],
)
def test_a_peer_that_failed_is_quoted(said: str, error: str, code: int, sentence: str) -> None:
    with pytest.raises(WorldError) as raised:
        race_sides.parsed(said, error, code, "Flink")
    assert sentence in str(raised.value)


def cost(events: int, took_s: float, start_up_s: float, cpu_s: float) -> race_sides.Cost:
    return race_sides.Cost(events, took_s, start_up_s, cpu_s, 0.0, 100.0)


def test_the_ratio_is_of_rates_net_of_start_up_and_has_a_goal() -> None:
    ours, theirs, safe = cost(20_000, 12.0, 2.0, 4.0), cost(2_000, 6.0, 1.0, 8.0), cost(2_000, 11.0, 1.0, 8.0)
    said = {figure["figure"]: figure for figure in flink_java.figures("W1", ours, theirs, safe, same_s=3.0)}
    assert said["W1.flink_java_ratio"]["value"] == 5.0
    assert said["W1.flink_java_ratio"]["goal"] == "≥ 5"
    assert said["W1.flink_java_ratio"]["met"] is True
    assert said["W1.flink_java_ratio.exactly_once"]["value"] == 10.0
    assert said["W1.flink_java_ratio.cpu"]["value"] == pytest.approx(20.0)
    assert said["W1.flink_java_ratio.whole"]["value"] == 2.0
    slower = {figure["figure"]: figure for figure in flink_java.figures("W1", theirs, ours, ours, same_s=3.0)}
    assert slower["W1.flink_java_ratio"]["met"] is False


def test_a_ratio_below_one_says_that_the_table_engine_wins() -> None:
    said = {
        figure["figure"]: figure["value"]
        for figure in tables.figures("duckdb", "W2", cost(100, 5, 1, 8), cost(100, 2, 0, 4))
    }
    assert said["W2.duckdb_ratio"] == 0.5
    assert said["W2.duckdb_ratio.whole"] == 0.4
    assert said["W2.duckdb_ratio.cpu"] == 0.5


def test_where_the_pipeline_becomes_quicker() -> None:
    ours, theirs = cost(1_000_000, 3.0, 1.0, 1.0), cost(1_000_000, 4.5, 0.5, 1.0)  # 2 and 4 µs an event
    assert tables.crossover(ours, theirs) == pytest.approx(250_000)
    assert tables.crossover(cost(1_000_000, 2.5, 0.5, 1.0), cost(1_000_000, 5.0, 1.0, 1.0)) == 0
    assert tables.crossover(theirs, ours) is None


def test_a_race_of_services_says_rates_latencies_and_what_was_lost() -> None:
    played = {"rate": 2e6, "publisher_us": 1.0, "consumer_us": 2.0, "p50_ms": 1.0, "p99_ms": 9.0}
    theirs = {**played, "rate": 1e6, "server_us": 7.0, "share": 0.75}
    sides = {(way, side): [of] for way in services.WAYS for side, of in (("ours", played), ("theirs", theirs))}
    said = {figure["figure"]: figure["value"] for figure in services.figures("nats", 3, sides)}
    assert said["nats.batches_ratio.1to3"] == 2.0
    assert said["nats.batches_ratio.cpu.1to3"] == 2.0  # 1 + 3 * 2, and a server with 7 more
    assert said["nats.singles_lost.1to3"] == 0.25
    assert (said["ours.p50_ms.1to3"], said["nats.p99_ms.1to3"]) == (1.0, 9.0)


@pytest.mark.parametrize(("peer", "name"), [("zenoh", "Zenoh"), ("nats", "NATS")])
def test_a_service_that_is_not_installed_is_asked_for(
    peer: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "PYTHON", tmp_path / "python")
    with pytest.raises(CallerError, match=f"{name} is not installed; run `make peers`"):
        next(_load("channels").run(against=peer))
    with pytest.raises(CallerError, match="'pigeon' to race against; there are zenoh, nats"):
        next(_load("channels").run(against="pigeon"))


def test_too_little_work_is_not_made_negative() -> None:
    assert race_sides.net(3.0, 1.0) == 2.0
    assert race_sides.net(1.0, 1.5) == 1.0


@pytest.mark.parametrize("rule", [W1, W2, W3], ids=lambda rule: rule.plan.name)
def test_the_sql_means_the_rule(rule: Rule, tmp_path: Path) -> None:
    """DuckDB is installed here too, so its queries can be tried without the peer's environment."""
    drawn = race_inputs.draw(8_000)
    race_inputs.write_log(tmp_path / "log", drawn, 8_000)
    segments = str(tmp_path / "log" / race_inputs.SCHEMA.name / "segments")
    tables_peer.on_duckdb(rule.plan.name, threads=1)(segments, str(tmp_path / "found.parquet"))
    wanted = interpreted(rule, drawn)
    assert race_matches.must_be_equal("W", wanted, race_matches.of_parquet(tmp_path / "found.parquet"), "DuckDB") > 100


def interpreted(rule: Rule, drawn: race_inputs.Drawn) -> race_matches.Matches:
    columns = zip(*(drawn[name].tolist() for name in ("ms", "key", "type", "v")), strict=True)
    rows = [
        Row(0, Event("Typed", Stamp(ms * 1000), (key,), {"key": key, "type": kind, "v": v}))
        for ms, key, kind, v in columns
    ]
    outputs = Interpreter(rule.plan).feed(rows, rows[-1].event.stamp.time)
    return matches(*((out.key[0], out.payload["began"] // 1000, out.time // 1000) for out in outputs))


@pytest.mark.parametrize("rule", [W1, W2, W3], ids=lambda rule: rule.plan.name)
def test_the_state_for_transform_with_state_means_the_rule(rule: Rule) -> None:
    """Each key in two micro-batches, its state kept between them as Spark would keep it."""
    workload = rule.plan.name
    drawn = race_inputs.draw(8_000)
    kept = np.isin(drawn["type"], transform_peer.WANTED[workload])
    found = []
    for key in range(1000):
        own = kept & (drawn["key"] == key)
        columns = [(drawn["ms"][own] * 1000).tolist(), drawn["type"][own].tolist(), drawn["v"][own].tolist()]
        state: tuple[object, ...] = ()
        for part in (slice(0, 3), slice(3, None)):
            machine = transform_peer.MACHINES[workload](*state)
            found += [
                (key, began // 1000, ended // 1000) for began, ended, *_ in machine.feed(*(c[part] for c in columns))
            ]
            state = machine.state()
        if workload == "W3":
            due = transform_peer.W3(*state).passed(int(drawn["ms"][-1]) * 1000)
            found += [(key, began // 1000, ended // 1000) for began, ended, *_ in due]
    assert race_matches.must_be_equal(workload, interpreted(rule, drawn), matches(*found), "transformWithState") > 100


@pytest.mark.parametrize(
    ("module", "peer", "name"),
    [
        (flink_sql, "flink", "Flink"),
        (flink_java, "flink-java", "Flink"),
        (tables, "duckdb", "DuckDB"),
        (tables, "polars", "Polars"),
    ],
)
def test_a_peer_that_is_not_installed_is_asked_for(
    module: ModuleType, peer: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(module, "PYTHON", tmp_path / "python", raising=False)
    with pytest.raises(CallerError, match=f"{name} is not installed; run `make peers`"):
        next(module.race(peer, quick=True))


def test_an_unknown_peer_is_answered_with_those_there_are() -> None:
    with pytest.raises(
        CallerError, match="'pigeon' to race against; there are flink, flink-java, duckdb, polars, transform"
    ):
        next(_load("pipeline").run(against="pigeon"))


def journal_lines(*lines: str) -> list[dict[str, object]]:
    """`do w 0 k`: what, workflow, step, key."""
    parts = [line.split() for line in lines]
    return [
        {"what": what, "workflow": of, "step": int(step), "key": key, "ns": number * 10**9}
        for number, (what, of, step, key) in enumerate(parts)
    ]


def test_a_journal_with_every_step_once_is_clean() -> None:
    lines = journal_lines("begin w 0 a", "do w 0 a", "begin w 1 b", "do w 1 b")
    assert step_journal.judge(lines, ["w"], 2) == step_journal.Verdict(2, 0, 0, 0, 0, 0, 0, 0)


def test_a_step_that_was_done_again_and_undone_has_one_effect() -> None:
    lines = journal_lines("begin w 0 a@0", "do w 0 a@0", "begin w 0 a@1", "do w 0 a@1", "undo w 0 a@0")
    verdict = step_journal.judge(lines, ["w"], 1)
    assert (verdict.begun_twice, verdict.done_twice, verdict.undone) == (1, 1, 1)
    assert (verdict.missing, verdict.effects_twice, verdict.keyed_twice, verdict.twice_s) == (0, 0, 0, 1.0)


def test_effects_that_remain_twice_are_counted_with_and_without_the_key() -> None:
    same = journal_lines("begin w 0 a", "do w 0 a", "begin w 0 a", "do w 0 a")
    assert step_journal.judge(same, ["w"], 1)[5:7] == (1, 0)
    other = journal_lines("begin w 0 a", "do w 0 a", "begin w 0 b", "do w 0 b")
    assert step_journal.judge(other, ["w"], 1)[5:7] == (1, 1)


def test_a_step_that_is_missing_undone_or_early_is_found() -> None:
    assert step_journal.judge(journal_lines("begin w 0 a"), ["w"], 1).missing == 1
    assert step_journal.judge(journal_lines("begin w 0 a", "do w 0 a", "undo w 0 a"), ["w"], 1).missing == 1
    assert step_journal.judge(journal_lines("begin w 1 b", "do w 1 b"), ["w"], 2).out_of_order == 1
    assert step_journal.judge([], ["w", "v"], 3).missing == 6


def test_a_journal_is_read_on_and_half_a_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = step_journal.Journal(path)
    assert journal.of("w") == []
    path.write_text('{"workflow": "w", "step": 0}\n{"workflow": "v", "st')
    assert journal.of("w", "v") == [{"workflow": "w", "step": 0}]
    with path.open("a") as file:
        file.write('ep": 1}\n')
    assert journal.of("v") == [{"workflow": "v", "step": 1}]


def test_a_void_race_of_workflows_and_an_unknown_peer_say_so(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="processes cannot be measured against 'airflow'; there are temporal"):
        list(_load("processes").run(against="temporal,airflow"))
    missing = step_journal.judge([], ["w"], 1)
    with pytest.raises(WorldError, match="the race is void"):
        list(workflow_race._judged("restate", "restate.usual", missing, dict))


def test_ratios_of_workflows_are_of_like_settings() -> None:
    def figure(name: str, value: float, unit: str) -> dict[str, object]:
        return {"figure": name, "value": value}

    median = {
        "ours.tuned.worker": 0.1,
        "ours.usual.worker": 0.5,
        "restate.tuned.worker": 0.3,
        "restate.usual.worker": 2.0,
        "restate.usual.server": 1.0,
    }
    told = {one["figure"]: (one["value"], one.get("met")) for one in workflow_race._ratios("restate", median, figure)}
    assert told["failover.restate_ratio"] == (pytest.approx(3.0), True)
    assert told["failover.restate_ratio.usual"] == (4.0, False)
    assert told["failover.restate_ratio.usual.server"] == (2.0, None)
    assert workflow_race.percentile([3.0, 1.0, 2.0], 50) == 2.0
