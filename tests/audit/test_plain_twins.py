"""Each checker beside its plain twin, on thousands of small histories of every kind."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa

from tests.audit import plain_twins as plain
from tests.pipeline.worlds import TYPED, missing, pair, random_events
from unerring.audit import (
    Begun,
    Did,
    Relative,
    Stage,
    Wanted,
    check_channel,
    check_done,
    check_family,
    check_flow,
    check_intake,
    check_owners,
    check_quarantined,
    check_starts,
    difference,
    families,
    line,
    making,
    moment,
    perfect_run,
    unmaking,
)
from unerring.matching import Interpreter, Row
from unerring.model import TIME_MAX, TIME_MIN, Column, ColumnType, Event, Stamp, StreamSchema

MANY = 1500


def test_the_account_of_an_epoch() -> None:
    reached: Counter[str] = Counter()
    for seed in range(MANY):
        random = Random(f"intake {seed}")
        taken, marks, excused, declared = plain.draw_intake(random)
        [account], violations = check_intake("s", taken, marks, {("p", 1): excused}, {("p", 1): declared})
        assert account == plain.account(taken["p", 1], marks, excused, declared), (
            seed,
            taken,
            marks,
            excused,
            declared,
        )
        promises = {violation.promise for violation in violations}
        assert (len(promises) > 0) == (account.missing > 0 or account.doubled > 0), seed
        assert len([v for v in violations if "twice" in v.witness[0]]) <= 5
        reached.update({"missing": account.missing, "lost": account.lost, "doubled": account.doubled})
    assert min(reached.values()) > 100


def test_what_is_kept_out_of_a_stream_is_a_note_or_too_much() -> None:
    for kept in range(1, 10):
        marks = [("p", 1, 11 + n, "late") for n in range(kept)] + [("p", 1, 5, "rule")]
        accounts, _ = check_intake("s", {("p", 1): [(1, 4), (6, 10)]}, marks)
        notes, violations = check_quarantined(accounts, 0.25)
        sentence = (
            f"stream s: {kept} of {9 + kept} events ({100 * kept / (9 + kept):.3g} %) are in quarantine ({kept} late)"
        )
        assert [*notes, *(v.witness[0] for v in violations)] == [sentence]
        assert bool(violations) == (kept > 0.25 * (9 + kept))
    accounts, _ = check_intake("s", {("p", 1): [(1, 3)]}, [])
    assert check_quarantined(accounts, 0.0) == ([], [])


def test_the_limits_of_a_service() -> None:
    reached: Counter[str] = Counter()
    for seed in range(2 * MANY):
        _, lines, done = plain.draw_flow(Random(f"flow {seed}"))
        violations = check_flow(lines, done)
        assert {violation.promise for violation in violations} == plain.flow_broken(lines, done), (seed, lines, done)
        reached.update(violation.promise for violation in violations)
    assert len(reached) == 4
    assert min(reached.values()) > 50


def test_a_witness_of_limits_has_the_lines_of_the_moment() -> None:
    at = plain.Passed
    lines = [at("limits", '{"per_second": 6, "key_at_once": 1}', "", 0, 0)]
    lines += [at("do", f"i{n}", "k", n, n) for n in range(7)]
    lines += [at("do", "j", "k", 2_000_000, 2_000_009), at("do", "l", "k", 2_000_008, 2_000_010)]
    many, two = check_flow(lines)
    assert many.witness[0] == "7 in a second, and 6 are allowed"
    assert many.witness[1:] == tuple(f"do i{n} from {n} to {n}" for n in range(5))
    assert two.witness[0] == "2 at once for the key 'k', and 1 are allowed"
    assert two.witness[1:] == ("do j from 2000000 to 2000009", "do l from 2000008 to 2000010")


def test_the_ledger_of_a_channel() -> None:
    reached: Counter[str] = Counter()
    for seed in range(2 * MANY):
        published, told, claims, finished = plain.draw_ledger(Random(f"ledger {seed}"))
        violations = check_channel("c", published, told, claims, finished=finished)
        broken = plain.ledger_broken(published, told, claims, finished)
        assert {violation.promise for violation in violations} == broken, (seed, published, told, claims, finished)
        reached.update(broken)
    assert len(reached) == 7
    assert min(reached.values()) > 50


ALARM = StreamSchema("Alarm", (Column("k", ColumnType.INT), Column("v", ColumnType.INT)), ("k",))


def _table(rows: list[tuple[int, int, int, int]]) -> pa.Table:
    names = ("time", "ordinal", "k", "v")
    return pa.table({name: pa.array([row[at] for row in rows], pa.int64()) for at, name in enumerate(names)})


def test_what_only_one_of_two_rules_finds() -> None:
    total = difference(ALARM, _table([]), _table([]))
    sums: Counter[str] = Counter()
    for seed in range(120):
        random = Random(f"difference {seed}")
        stretches = []
        for _ in "ab":
            times = sorted(random.randrange(5) for _ in range(random.randrange(9)))
            stretches.append([(time, n, random.randrange(2), random.randrange(2)) for n, time in enumerate(times)])
        before, after = (Counter((row[0], *row[2:]) for row in rows) for rows in stretches)
        gone, come = before - after, after - before
        one = difference(ALARM, *map(_table, stretches))
        counts = (len(stretches[0]), len(stretches[1]), gone.total(), come.total())
        assert (one.before, one.after, one.gone, one.come) == counts
        for wanted, samples in ((gone, one.gone_samples), (come, one.come_samples)):
            assert len(samples) == min(wanted.total(), 5)
            assert not Counter((e.stamp.time, *e.payload.values()) for e in samples) - wanted
        total.add(one)
        sums.update({"before": one.before, "after": one.after, "gone": one.gone, "come": one.come})
    assert (total.before, total.after, total.gone, total.come) == tuple(sums.values())
    assert len(total.gone_samples) == len(total.come_samples) == 5
    assert [e.stamp.time for e in total.gone_samples] == [0] * 5


def _alone(rows: list[Row], key: int) -> list[Row]:
    return [row for row in rows if row.event.key == (key,)]


def test_what_makes_a_situation_is_the_least_that_does() -> None:
    made = 0
    for seed in range(80):
        rows = _alone([Row(0, event) for event in random_events(seed, 20, 2)], 0)
        plan = pair("Pairs", TYPED, "A", "B", 40)
        for output in Interpreter(plan).feed(rows, 10_000):
            wanted = Event("Pairs", Stamp(output.time, 0), (0,), output.payload)
            before = [row for row in rows if row.event.stamp.time <= output.time]
            events = making(plan, before, wanted)
            assert events is not None
            assert [event.payload["type"] for event in events] == ["A", "B"]
            assert events[-1].stamp.time == output.time
            other = Event("Pairs", wanted.stamp, (0,), {**output.payload, "began": -7})
            assert making(plan, before, other) is None
            assert making(plan, before, Event("Other", wanted.stamp, (0,), output.payload)) is None
            made += 1
    assert made > 20


def test_what_unmakes_a_situation_is_each_event_without_which_it_is_true() -> None:
    unmade = 0
    plan = missing("Misses", TYPED, "A", "B", 15)
    for seed in range(60):
        rows = _alone([Row(0, event) for event in random_events(seed, 20, 2)], 0)
        for row in [row for row in rows if row.event.payload["type"] == "A"]:
            time = row.event.stamp.time
            false = Event("Misses", Stamp(time + 15, 0), (0,), {"key": 0, "began": time})
            after = [one for one in rows if one.event.stamp.time <= time + 15]
            between = [
                one.event for one in after if one.event.stamp > row.event.stamp and one.event.payload["type"] == "B"
            ]
            found = unmaking(plan, after, false)
            if len(between) == 1 and sum(one.event.stamp.time == time for one in after) == 1:
                assert found == between
                unmade += 1
            elif len(between) > 1:
                assert found == []
    assert unmade > 10


def test_starts_against_situations() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(400):
        random = Random(f"starts {seed}")
        wanted = [
            Wanted(f"i{n}", f"s{n}", f"g{n}", random.random() < 0.8, random.random() < 0.1)
            for n in range(random.randrange(30))
        ]
        begun = {
            one.instance: Begun("other", one.given + random.choice(("", "", "", "!")))
            for one in wanted
            if random.random() < 0.7
        }
        begun |= {f"x{n}": Begun("strange", "") for n in range(random.choice((0, 0, 1, 23)))}
        forgets = random.random() < 0.3
        starts = check_starts(wanted, begun, forgets)
        aside = [one for one in wanted if one.aside]
        waiting = [one for one in wanted if not one.aside and one.instance not in begun and not one.due]
        absent = [one for one in wanted if not one.aside and one.instance not in begun and one.due]
        other = [
            one for one in wanted if not one.aside and one.instance in begun and begun[one.instance].given != one.given
        ]
        strange = [instance for instance in begun if instance.startswith("x")]
        assert (starts.aside, starts.waiting, starts.missing) == (len(aside), len(waiting), len(absent))
        told = Counter(violation.promise for violation in starts.violations)
        for promise, count in ((line.STARTED, 0 if forgets else len(absent)), (line.ASKED, len(other) + len(strange))):
            assert told[promise] == min(count, 21), seed
            if count > 20:
                last = [v for v in starts.violations if v.promise == promise][-1]
                assert last.witness == (f"and {count - 20} more of these",)
        kinds.update({"absent": len(absent), "other": len(other), "strange": len(strange), "waiting": len(waiting)})
    assert min(kinds.values()) > 100


def test_owners_of_interactions_and_what_instances_rely_on() -> None:
    lines = [
        Did("do", "a/x", "x", 1, 0, (), journal="bank"),
        Did("do", "b/x", "x", 1, 0, (), journal="bank"),
        Did("undo", "b/x", "x", 1, 0, ()),
        Did("do", "c/x", "x", 1, 0, ()),
    ]
    assert [v.witness[0] for v in check_owners(lines, ["a"])] == [
        "do b/x in bank, and 1 more interactions: no node knows an instance b",
        "do c/x: no node knows an instance c",
    ]
    assert check_owners(lines, ["a", "b", "c"]) == []
    assert [v.witness[0] for v in check_done("b", ["b/x", "b/y"], lines[2:])] == [
        "b relies on b/x, which is in no journal",
        "b relies on b/y, which is in no journal",
    ]
    assert check_done("b", ["b/x"], lines) == []


def test_children_and_what_undid_them() -> None:
    reached: Counter[str] = Counter()
    for seed in range(600):
        random = Random(f"family {seed}")
        statuses = ("completed", "completed", "failed", "cancelled")
        children = {
            f"p+{n}": Relative(random.choice(statuses), random.randrange(2)) for n in range(random.randrange(4))
        }
        undoing = {
            f"{id}~{n}": Relative(random.choice(statuses))
            for id in children
            for n in range(random.choice((0, 0, 1, 2)))
        }
        used = [(f"p+{n}", random.randrange(2)) for n in range(4) if random.random() < 0.4]
        times = {
            id: sum(undoing[u].status == "completed" for u in undoing if u.startswith(id + "~")) for id in children
        }
        wrong = [id for id, value in used if children.get(id) != Relative("completed", value) or times.get(id)]
        ids = [id for id, _ in used]
        left = [id for id, r in children.items() if id not in ids and r.status == "completed" and times[id] != 1]
        found = list(check_family("p", used, {**children, **undoing}))
        assert Counter(v.promise for v in found) == Counter({families.USED: len(wrong), families.UNUSED: len(left)}), (
            seed
        )
        reached.update(v.promise for v in found)
    assert min(reached.values()) > 50


def test_the_perfect_run_feeds_each_stage_once_and_in_order() -> None:
    schema = [StreamSchema(name, (Column("v", ColumnType.INT),)) for name in "abx"]
    fed: list[tuple[list[tuple[str, int]], int]] = []

    def stage(rows: list[Row], time: int) -> dict[str, list[Event]]:
        fed.append(([(row.event.stream, row.event.stamp.time) for row in rows], time))
        return {"x": [Event("x", row.event.stamp, (), row.event.payload) for row in rows if row.event.stream == "a"]}

    stages = [
        Stage(((schema[0], 0), (schema[1], 1)), stage),  # type: ignore[arg-type]
        Stage(((schema[2], 0),), stage),  # type: ignore[arg-type]
    ]
    primary = {
        name: [Event(name, Stamp(t, 0), (), {"v": t}) for t in times] for name, times in (("a", (1, 4)), ("b", (1, 2)))
    }
    streams = perfect_run(stages, primary)
    assert fed == [([("a", 1), ("b", 1), ("b", 2), ("a", 4)], TIME_MAX), ([("x", 1), ("x", 4)], TIME_MAX)]
    assert [event.stamp.time for event in streams["x"]] == [1, 4]
    fed.clear()
    perfect_run(stages, {name: events[:1] for name, events in primary.items()}, 3)
    assert [time for _, time in fed] == [3, 3]
    assert primary["a"] is not streams["a"]


def test_moments_as_people_write_them() -> None:
    assert moment(TIME_MIN) == "the beginning"
    assert moment(TIME_MIN - 1) == "the beginning"
    assert moment(TIME_MAX) == moment(TIME_MAX + 1) == "the end"
    assert moment(0) == "1970-01-01 00:00:00"
    assert moment(1_500_000) == "1970-01-01 00:00:01.5"
