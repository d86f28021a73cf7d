"""Who executes the next group, and how long a process may stand still: choices of whoever runs it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from tests.processes.test_scale import Three
from unerring import Process, Rehearsal, Service
from unerring.app import bounded, failovers_of_run
from unerring.app.forgetting import USUAL, kept_at_least, note_kept
from unerring.app.process_audit import known_in
from unerring.cli import main
from unerring.cli._address import naming_at
from unerring.model import MILLISECOND_US, CallerError, ConfigError, Report
from unerring.processes import Choice, ProcessesConfig, State, explain, group_at
from unerring.processes.context import Context
from unerring.processes.grouping import Grouping
from unerring.processes.messages import Packed, Step, Taken
from unerring.processes.naming import chosen, idlest, led_by, nearest
from unerring.runtime import ClusterShape, NodeCluster


class Order(msgspec.Struct):
    item: str = ""
    items: list[str] = []


single = Process("single", state=Order)


@single.action()
async def nothing(item: str) -> None: ...


single.flow(nothing)


def shop() -> Process:
    process = Process("shop", state=Order, services=[Service("mail")])

    @process.action(service="mail", write=True, time=400 * MILLISECOND_US)
    async def ask(item: str) -> None: ...

    @process.action(service="mail", write=True, time=400 * MILLISECOND_US)
    async def tell(item: str) -> None: ...

    return process.flow(process.each("items", [ask, tell], item="item"))


def last_of_all(process: str, actions: tuple[str, ...], led: Mapping[str, int]) -> str:
    return max(led)


def by_work(process: str, actions: tuple[str, ...], led: Mapping[str, int]) -> str:
    assert process == "shop"
    return max(led) if "ask" in actions else min(led)


@pytest.mark.parametrize("naming", ["rotate", "nearest", "idle", by_work])
def test_whoever_is_named_the_effects_are_those_of_one_execution(naming: str | Choice) -> None:
    config = ProcessesConfig(tick_us=10 * MILLISECOND_US, naming=naming)
    stage = Rehearsal(shop(), {"mail": dict.fromkeys(("ask", "tell"), lambda item: None)}, config=config)
    stage.start("o", items=list("abcd"))
    stage.run_until(lambda: len(stage.effects("mail")) >= 3)
    stage.crash(stage.master("o"), for_s=0.5)
    end = stage.finish("o")
    assert end.status == "completed"
    masters = {group["master"] for group in end.history["groups"]}
    assert len(masters) > 1
    stage.check()


def test_the_nearest_is_the_one_that_the_service_answered_soonest() -> None:
    graph = shop().graph
    done = [("a", 900), ("b", 200), ("c", 500), ("b", 300)]
    lineage = tuple(Step(0, graph.start, master) for master, _ in done)
    taken = tuple(Taken("ask", f"o/ask'{n}/0@0", {}, None, True, n + 1, 0, took_us=t) for n, (_, t) in enumerate(done))
    state = State("o", "shop", graph.version, 4, lineage, graph.start, {}, taken)
    group = group_at(graph, graph.start, (), "", Grouping())
    assert nearest(graph, state, group, ("a", "b", "c")) == "b"
    assert nearest(graph, state, group, ("a", "c")) == "c"
    assert nearest(graph, state, group, ("a", "b", "c", "new")) == "new"


def test_what_took_no_time_or_is_packed_away_says_nothing_of_nearness() -> None:
    graph = shop().graph
    step = [Step(0, graph.start, master) for master in ("a", "b", "a", "b")]
    taken = [
        Taken("ask", "o/ask'0/0@0", {}, None, True, 2, 0, took_us=1),  # packed away: who did it is not looked up
        Taken("ask", "o/ask'1/0@0", {}, None, True, 3, 0, took_us=300),
        Taken("ask", "o/ask'2/0@0", {}, None, True, 4, 0, took_us=200),
        Taken("tell", "o/tell'2/0@0", {}, None, True, 5, 0, took_us=101),
        Taken("ask", "o/ask'3/0@0", {}, None, True, 6, 0),
    ]
    past = (Packed(2, ((0, 2),), b""),)
    state = State("o", "shop", graph.version, 6, tuple(step), graph.start, {}, tuple(taken), past=past)
    group = group_at(graph, graph.start, (), "", Grouping())
    assert nearest(graph, state, group, ("a", "b")) == "b", "200 µs, and 200.5 on average"
    quicker = msgspec.structs.replace(state, taken=(*taken, msgspec.structs.replace(taken[4], took_us=301)))
    assert nearest(graph, quicker, group, ("a", "b")) == "a"


def test_the_idlest_leads_the_fewest_as_far_as_is_known() -> None:
    shared = Three().nodes["n0"].shared
    assert idlest(shared, ("n0", "n1", "n2")) == "n0", "of equals the first one"
    led = {"x": None, "y": None}
    shared = msgspec.structs.replace(shared, led=led, followed={"n0": {}, "n1": {"z": None}, "n2": led})
    assert led_by(shared, ("n0", "n1", "n2", "n3")) == {"n0": 2, "n1": 1, "n2": 2, "n3": 0}
    assert idlest(shared, ("n0", "n1", "n2")) == "n1"


def test_a_choice_that_cannot_be_is_told_and_the_planner_keeps_the_group() -> None:
    shared = Three().nodes["n0"].shared
    context = Context(shared, "i", ("n0", "n1", "n2/x"))
    group = group_at(shop().graph, shop().graph.start, (), "", Grouping())

    def said(choice: Choice) -> tuple[str, list[str]]:
        shared.out.take()
        name = chosen(choice, context, "shop", group, context.members)
        return name, [effect.detail for effect in shared.out.take() if isinstance(effect, Report)]

    assert said(lambda process, actions, led: sorted(led)[2]) == ("n2/x", []), "by the name of its node"
    assert said(lambda process, actions, led: "n1") == ("n1", [])
    must = "i: the choice of the next master is 'n9'; it must be one of n0, n1, n2"
    assert said(lambda process, actions, led: "n9") == ("n0", [must])
    raises = "i: the choice of the next master raises KeyError: 'nobody'"
    assert said(lambda process, actions, led: led["nobody"]) == ("n0", [raises])  # type: ignore[return-value]


def test_another_choice_is_refused() -> None:
    with pytest.raises(ConfigError, match="naming is 'loudest'; it must be one of 'self', 'rotate', 'nearest', 'idle'"):
        ProcessesConfig(naming="loudest")


def test_a_choice_that_fails_leaves_the_group_with_its_planner() -> None:
    def nobody(process: str, actions: tuple[str, ...], led: Mapping[str, int]) -> str:
        return "nobody" if "ask" in actions else led["nobody"]  # type: ignore[return-value]

    for naming, several in ((nobody, False), (last_of_all, True)):
        config = ProcessesConfig(tick_us=10 * MILLISECOND_US, naming=naming)
        stage = Rehearsal(shop(), {"mail": dict.fromkeys(("ask", "tell"), lambda item: None)}, config=config)
        for name in "abc":
            stage.start(name, items=list("ab"))
        histories = [stage.finish(name).history["groups"] for name in "abc"]
        acting = [group["master"] for groups in histories for group in groups if group["actions"]]
        assert (len(set(acting)) == 1) is several, acting
        stage.check()


def test_nodes_get_the_naming_and_the_bound_of_their_run(tmp_path: Path) -> None:
    shape = ClusterShape(f=0, naming="tests.processes.test_naming:by_work", finished_max=7)
    command = NodeCluster(["shop:shop"], tmp_path, shape, {}, print).command("n0")
    at = command.index("--naming")
    assert command[at : at + 4] == ["--naming", "tests.processes.test_naming:by_work", "--finished-max", "7"]
    with pytest.raises(ConfigError, match="naming is 'loudest'"):
        ClusterShape(naming="loudest")
    with pytest.raises(ConfigError, match="finished_max"):
        ClusterShape(finished_max=0)
    assert naming_at(f"{__name__}:by_work") is by_work
    assert naming_at("idle") == "idle"
    with pytest.raises(CallerError, match="name a function of"):
        naming_at(f"{__name__}:USUAL")


def test_a_node_runs_with_the_naming_and_the_bound_that_it_is_given(tmp_path: Path) -> None:
    """The audit takes what is gone for forgotten only where a node kept so few."""
    assert kept_at_least(tmp_path) == USUAL
    for number in range(3):
        command = [
            "node",
            "tests.processes.test_naming:single",
            "--data",
            str(tmp_path),
            "--start",
            f"single=s{number}",
        ]
        with pytest.raises(SystemExit) as ended:
            main([*command, "--naming", f"{__name__}:by_work", "--finished-max", "2"])
        assert not ended.value.code
    assert kept_at_least(tmp_path) == 2
    note_kept(USUAL, tmp_path, "node")
    assert kept_at_least(tmp_path) == 2, "what was forgotten does not come back"
    known = known_in(tmp_path)
    assert (sorted(known.decided), known.forgets) == (["s1", "s2"], True)


def test_a_threshold_is_another_version_and_the_last_one_is_for_new_instances() -> None:
    process = shop()
    plain, (older, given, newest) = bounded([process], 0), bounded([process], 600_000, [9_000_000])
    assert plain == [process]
    assert given is process
    assert [older.graph.failover_us, newest.graph.failover_us] == [9_000_000, 600_000]
    assert len({version.graph.version for version in (older, given, newest)}) == 3
    assert ["ask", "tell"] in [group["actions"] for group in explain(older)["groups"]]
    assert ["ask"] in [group["actions"] for group in explain(newest)["groups"]]
    with pytest.raises(CallerError, match="the failover threshold must be a time such as 500ms or 2s"):
        bounded([process], -1)


def test_a_run_keeps_the_thresholds_that_it_was_run_with(tmp_path: Path) -> None:
    assert failovers_of_run(0, tmp_path) == (0, [])
    assert failovers_of_run(600_000, tmp_path) == (600_000, [])
    assert failovers_of_run(2_000_000, tmp_path) == (2_000_000, [600_000])
    assert failovers_of_run(600_000, tmp_path) == (600_000, [2_000_000])
    failovers_us = failovers_of_run(0, tmp_path)
    assert failovers_us[0] == 0
    assert sorted(failovers_us[1]) == [600_000, 2_000_000]
    nodes = NodeCluster(["shop:shop"], tmp_path, ClusterShape(f=0), {}, print, None, (), (1_000_000, [600_000]))
    command = nodes.command("n0")
    at = command.index("--also-failover")
    assert command[at : at + 4] == ["--also-failover", "600000us", "--failover", "1000000us"]
    for time_us in range(1, 40):
        failovers_of_run(time_us, tmp_path)
    assert len(failovers_of_run(0, tmp_path)[1]) <= 16
