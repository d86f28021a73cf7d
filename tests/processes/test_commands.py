"""Commands of operators by themselves: which state each leads to, and which are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.processes.test_boundaries import Order, at, did, patient, steps
from unerring import Process
from unerring.model import ProcessError
from unerring.processes.build import Process as Built
from unerring.processes.commands import back, carried_out, gone_back, here, irrevocable, promised
from unerring.processes.graph import LATE, Cut, Rounds
from unerring.processes.messages import AGAIN, CANCEL, HOLD, MOVE, RESUME, Mail, State, Status, Step, Taken
from unerring.processes.packing import packed


def carry(state: State, channel: str, payload: Any = None, process: Built | None = None) -> State:
    process = process or steps()
    version = {f"steps@{process.graph.version}": process}
    return carried_out(Mail("m", channel, payload), process, state, version.get, 4, 5)


def test_a_command_leads_to_one_state() -> None:
    process = steps()
    state = at(process, "b", taken=(did(process.graph, "a", 1),), held="x")
    fields = {
        (CANCEL, None): {"status": Status.UNDOING, "reason": "cancelled", "held": ""},
        (HOLD, "for lunch"): {"held": "for lunch"},
        (HOLD, None): {"held": "by an operator"},
        (RESUME, None): {"held": ""},
        (RESUME, "a"): {"held": ""},
        (AGAIN, None): {"held": "", "again": 1},
        (AGAIN, "a"): {"status": Status.UNDOING, "rewind": 0, "held": "", "reason": ""},
    }
    for (channel, payload), changed in fields.items():
        assert carry(state, channel, payload) == msgspec.structs.replace(state, **changed), (channel, payload)
    with pytest.raises(ProcessError, match="no steps of version 7 is deployed on this node"):
        carry(state, MOVE, "7")
    final = steps("a")
    with pytest.raises(ProcessError, match="it cannot be cancelled: a was done, and cannot be undone"):
        carry(at(final, "b", taken=(did(final.graph, "a", 1),)), CANCEL, process=final)


def parents(final: bool) -> Process:
    child = Process("child", state=Order)
    child.flow(child.receive("go"))
    process = Process("steps", state=Order)
    given = {"item": "item"}
    return process.flow(process.child("part", child, given, compensable=not final, undo=None if final else child))


def test_nothing_is_tried_again_beside_a_child_that_stays() -> None:
    process = parents(final=True)
    state = at(process, "part")
    assert promised(process.graph, state) == "part"
    assert here(process, msgspec.structs.replace(state, held="x")) == state, "to wait for it is all there is to try"
    for command in (lambda: here(process, state), lambda: back(process, state, "part")):
        with pytest.raises(ProcessError, match="while child part, which cannot be undone, may be under way"):
            command()


def test_nothing_before_a_child_that_stays_is_gone_back_to() -> None:
    """It may be under way: what was done before it would be undone beside it."""
    child = Process("child", state=Order)
    child.flow(child.receive("go"))
    process = Process("steps", state=Order)
    nap = process.receive("nap")
    process.flow(nap, process.child("part", child, {"item": "item"}, compensable=False))
    state = at(process, "part", taken=(Taken("nap", "m1", None, None, False, 1, 0),))
    with pytest.raises(ProcessError, match="while child part, which cannot be undone, may be under way"):
        back(process, state, "nap")


def test_a_child_that_can_be_undone_is_and_another_takes_its_place() -> None:
    process = parents(final=False)
    state = at(process, "part", held="x")
    assert promised(process.graph, state) == ""
    again = msgspec.structs.replace(state, status=Status.UNDOING, rewind=1, held="")
    assert here(process, state) == back(process, state, "part") == again


def test_what_was_done_long_ago_counts_too() -> None:
    process = steps("a")
    actions = tuple(did(process.graph, name, group) for group, name in enumerate("ab", 1))
    state = at(process, "c", taken=actions, rounds={"l": 0})
    state = packed(msgspec.structs.replace(state, group=2, lineage=(Step(0, (1,)), Step(0, (2,)))), 2)
    assert (len(state.past), state.taken) == (1, actions[1:])
    assert irrevocable(process, state) == "a was done, and cannot be undone"
    assert back(process, state, "b").rewind == 1


def test_a_step_of_a_loop_is_that_of_its_last_round_unless_it_names_one() -> None:
    process = steps()
    taken = tuple(Taken("a", f"i/a'{number}/0@0", None, None, True, group, 0) for number, group in enumerate((1, 3, 5)))
    state = at(process, "b", taken=taken)
    for step, rewind in (("a", 4), ("a'2", 4), ("a'1", 2), ("a'0", 0)):
        assert back(process, msgspec.structs.replace(state, group=5), step).rewind == rewind, step


# --- where it goes on ---


def due(cut: Cut, rounds: Rounds, variables: dict[str, Any]) -> dict[str, int]:
    return {"pause": len(cut) + len(rounds) + variables["at"]}


def received(process: Process, **fields: Any) -> State:
    """It reserved in its first group, and received an answer in its second."""
    [block] = process.graph.blocks
    cuts = [at(process, before).cut for before in ("answer", "pause")]
    taken = (
        Taken("reserve", "i/reserve/0@0", {"item": "x"}, None, True, 1, 0),
        Taken("answer", "m1", None, "yes", False, 2, 0),
    )
    steps_ = (Step(0, cuts[0], rounds={"l": 1}), Step(0, cuts[1], rounds={"l": 2}))
    state = at(process, "pause", taken=taken, blocks={block: (0, 9)}, due={"pause": 1}, again=2)
    state = msgspec.structs.replace(state, group=3, given={"item": "x", "at": 40}, rounds={"l": 2})
    state = msgspec.structs.replace(state, lineage=(*steps_, Step(0, cuts[1])), variables={}, status=Status.UNDOING)
    return msgspec.structs.replace(state, **fields)


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_it_goes_on_as_if_it_had_never_got_further(kept: int) -> None:
    process = patient()
    state = received(process, rewind=kept, rewound=((1, 1),))
    went = gone_back(process, state, due)
    answer = "yes" if kept == 2 else ""
    cut = process.graph.start if kept == 0 else state.lineage[kept - 1].cut
    rounds = {} if kept == 0 else {"l": kept}
    assert went == msgspec.structs.replace(
        state,
        status=Status.RUNNING,
        cut=cut,
        rounds=rounds,
        variables={"item": "x", "answer": answer, "label": "", "at": 40},
        taken=state.taken[:kept],
        due={"pause": 41 + len(rounds)},
        again=3,
        rewind=-1,
        rewound=((1, 1), (kept + 1, 3)),
        returned=() if answer else (Mail("m1'3", "answer", "yes"),),
    )


def test_on_the_other_branch_of_a_block_that_was_late() -> None:
    process = patient()
    graph, [block] = process.graph, process.graph.blocks
    late = next(number for number in graph.outgoing[block] if graph.edges[number].label == LATE)
    in_time = next(number for number in graph.outgoing[block] if number != late)
    state = received(process, rewind=1, turn=late)
    beside = len(graph.edges) - 1
    first = msgspec.structs.replace(state.lineage[0], cut=(in_time, beside))
    went = gone_back(process, msgspec.structs.replace(state, lineage=(first, *state.lineage[1:])), due)
    assert went.cut == tuple(sorted((late, beside)))
    assert went.taken == (state.taken[0], Taken(block, f"i/{block}/0", None, LATE, False, 4, -1))
    assert (went.turn, went.rewind, went.rewound) == (-1, -1, ((2, 3),))


def test_the_answer_to_what_was_undone_with_it_is_not_received_again() -> None:
    process = patient()
    for kept, returned in ((0, ()), (1, (Mail("m1'3", "answer", "yes", "i/reserve/0@0"),))):
        state = received(process, rewind=kept)
        asked = msgspec.structs.replace(state.taken[1], request="i/reserve/0@0")
        state = msgspec.structs.replace(state, taken=(state.taken[0], asked))
        assert gone_back(process, state, due).returned == returned
