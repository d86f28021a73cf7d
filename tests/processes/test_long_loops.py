"""A loop of ten thousand rounds: its state stays small, and every round can still be undone."""

from __future__ import annotations

import msgspec
import pytest

from unerring import Process, Rehearsal, Service
from unerring.model import ProtocolError
from unerring.processes import Answer, ClusterBounds, Grouping, Reply, State, group_at, history_of, unpacked
from unerring.processes.execution import Execution
from unerring.processes.history import Pages, added, extends, joined
from unerring.processes.messages import Accepted, Packed
from unerring.processes.packing import UNPACKED_BYTES_MAX, basis_of, chunk_of, first_of, packed, runs_of
from unerring.processes.plausible import check_state
from unerring.processes.recovery import kept, place_before
from unerring.processes.undo import steps_of_taken

ROUNDS = 10_000


class Meter(msgspec.Struct):
    count: int = 0
    reading: int = 0


def metering(at_most: int = ROUNDS) -> Process:
    process = Process("metering", state=Meter, services=[Service("meter")])

    @process.action(service="meter", write=True, writes="count")
    async def read(count: int) -> int:
        return count

    @process.condition
    def full(count: int) -> bool:
        return count >= at_most

    return process.flow(process.repeat([read], until=full, at_most=at_most))


def played(process: Process, groups: int, rounds: int) -> State:
    """The decided state after so many rounds, each executed by a master of its own."""
    graph = process.graph
    state = State("m", graph.name, graph.version, 0, (), graph.start, process.initial({}))
    for number in range(rounds):
        group = group_at(graph, state.cut, (), "", Grouping())
        execution = Execution(process, state, number // 3000, group.vertices, {})
        (asked,) = execution.advance(0)
        execution.reply(Reply("m", asked.iid, "do", Answer.DONE, number + 1), 1)
        state = packed(execution.next_state("node0", 1_700_000_000_000_000 + number * 20_000), groups)
    return state


@pytest.fixture(scope="module")
def long() -> State:
    return played(metering(), ClusterBounds().history_groups, ROUNDS)


def test_the_state_of_ten_thousand_rounds_is_small(long: State) -> None:
    assert long.group == ROUNDS
    assert long.status == "completed"
    size = len(msgspec.msgpack.encode(long))
    whole = len(msgspec.msgpack.encode(unpacked(long)))
    assert whole > 700_000
    assert size < 200_000
    assert len(long.lineage) <= ClusterBounds().history_groups
    assert len(basis_of(long)) < 20  # what each request says that it builds on


def test_every_round_is_there_and_undone_in_reverse_order(long: State) -> None:
    whole = unpacked(long)
    assert [taken.iid for taken in whole.taken] == [f"m/read'{n}/0@{n // 3000}" for n in range(ROUNDS)]
    steps = steps_of_taken(metering().graph, long, 500)
    assert [step.iid for step in steps] == [taken.iid for taken in reversed(whole.taken)]
    assert steps[0].basis == runs_of(whole.basis[:-1])
    history = history_of(long)
    assert [group["actions"][0]["reply"] for group in history["groups"]] == list(range(1, ROUNDS + 1))


def test_a_packed_history_is_read_where_it_is_needed(long: State) -> None:
    whole, graph = unpacked(long), metering().graph
    assert long.views == whole.views
    for group in (1, 2, 500, ROUNDS):
        assert kept(group, (group - 1) // 3000, long)
        assert not kept(group, 7, long)
        assert place_before(graph, long, group) == place_before(graph, whole, group)


def test_it_goes_over_the_wire_and_to_the_disk_and_back() -> None:
    process = metering(50)
    state, before = played(process, 8, 30), played(process, 8, 29)
    assert state.past
    assert extends(state, before)
    assert joined(before, added(state, before)) == state
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=State)
    assert again == state
    check_state(again, {f"metering@{process.graph.version}": process}, before, 500)
    pages, records = Pages({}), {}
    for rounds in range(40):
        record, changes = pages.split(Accepted(0, played(process, 8, rounds), own=True))
        for key, value in changes.items():
            records[key] = msgspec.msgpack.encode(value) if value is not None else b""
        records = {key: data for key, data in records.items() if data}
    assert Pages(records).whole(record).state == played(process, 8, 39)
    assert sorted(records) == sorted(pages.keys)


@pytest.mark.parametrize(
    "chunk",
    [
        Packed(4, ((0, 4),), b"nonsense"),
        Packed(4, ((0, 4),), played(metering(50), 8, 30).past[0].data[:-5]),
        Packed(3, ((0, 3),), played(metering(50), 8, 30).past[0].data),
        Packed(4, ((1, 4),), played(metering(50), 8, 30).past[0].data),
    ],
)
def test_a_packed_history_that_lies_is_refused(chunk: Packed) -> None:
    process = metering(50)
    state = played(process, 8, 30)
    lying = msgspec.structs.replace(state, past=(chunk, *state.past[1:]))
    with pytest.raises(ProtocolError):
        check_state(lying, {f"metering@{process.graph.version}": process}, None, 500)


def test_a_packed_history_that_would_fill_the_memory_is_refused() -> None:
    import zlib

    bomb = zlib.compress(b"\0" * (UNPACKED_BYTES_MAX + 1))
    with pytest.raises(ProtocolError, match="too long"):
        chunk_of(Packed(1, ((0, 1),), bomb))


@pytest.mark.parametrize("views", [(), (0,), (0, 0), (0,) * 9, (0, 0, 0, 1, -1, -1, -1, -1, 2, 2), (3, 1, 1, 1, 1)])
def test_a_lineage_in_short(views: tuple[int, ...]) -> None:
    for groups in range(len(views) + 1):
        assert first_of(runs_of(views), groups) == runs_of(views[:groups])


@pytest.mark.parametrize(("groups", "most", "half"), [(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 3, 2), (7, 5, 3), (8, 7, 4)])
def test_a_history_is_packed_by_halves_of_what_is_kept(groups: int, most: int, half: int) -> None:
    process = metering(50)
    for rounds in range(1, 12):
        state = played(process, groups, rounds)
        assert len(state.lineage) == (rounds if rounds <= most else most - (most - rounds) % half)
        assert {chunk.groups for chunk in state.past} <= {half}
        assert [action.group for action in state.taken] == list(range(state.unpacked_from + 1, rounds + 1))


def test_a_process_with_a_packed_history_is_undone() -> None:
    stage = Rehearsal(
        metering(20), {"meter": {"read": lambda count: count + 1}}, bounds=ClusterBounds(history_groups=4)
    )
    stage.start("m")
    stage.run_until(lambda: len(stage.effects("meter")) == 12)
    stage.crash(stage.master("m"), for_s=0.5)
    stage.cancel("m")
    assert stage.finish("m").status in ("cancelled", "completed")
    stage.check()
