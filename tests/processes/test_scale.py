"""Many instances on three nodes: what is sent and looked at has its bounds, also when a node comes back."""

from __future__ import annotations

import gc
from random import Random
from typing import Any
from weakref import ref

import msgspec
import pytest

from unerring.model import Deliver, Persist, Send
from unerring.processes.build import Process
from unerring.processes.config import ClusterBounds, ProcessesConfig
from unerring.processes.context import IDLE_EACH_US, IDLE_US
from unerring.processes.graph import Service
from unerring.processes.messages import Answer, Decided, Fetch, Heartbeat, Mail, Post, Replicate, Reply, Start, Started
from unerring.processes.node import ProcessNode
from unerring.processes.pacing import ROUND_SPARE, Beats, Hearing, Wakes
from unerring.processes.replica import Replica
from unerring.testing import Rehearsal

NAMES = ("n0", "n1", "n2")
STEP_US = 5_000
CONFIG = ProcessesConfig(leads_max=10, transfers_max=4, starts_max=16)


class Waits(msgspec.Struct):
    n: int = 0


def waiting() -> Process:
    process = Process("waiting", state=Waits)
    return process.flow(process.receive("go", writes="n"))


class Three:
    """Three nodes; a message takes a step of time. Counts what is on its way."""

    def __init__(self, config: ProcessesConfig = CONFIG) -> None:
        self.config = config
        self.now = 1_000_000
        self.disks: dict[str, dict[str, bytes]] = {name: {} for name in NAMES}
        self.nodes: dict[str, ProcessNode] = {}
        self.due_us: dict[str, int] = {}
        self.flying: list[tuple[str, str, Any]] = []
        self.sent: list[tuple[str, str, Any]] = []
        self.started: list[str] = []
        self.views: list[str] = []
        for name in NAMES:
            self.boot(name)

    def boot(self, name: str) -> None:
        disk = dict(self.disks[name])
        node = ProcessNode(name, NAMES, [waiting()], disk, Random(name), self.now, ClusterBounds(), self.config)
        self.nodes[name] = node
        self.due_us[name] = self.now
        self.carry(name, node.start(self.now))

    def crash(self, name: str) -> None:
        del self.nodes[name]

    def carry(self, name: str, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                self.disks[name].update(effect.puts)
                for key in effect.deletes:
                    self.disks[name].pop(key, None)
            elif isinstance(effect, Send):
                self.flying.append((name, effect.to, effect.message))
                self.sent.append((name, effect.to, effect.message))
            elif isinstance(effect, Deliver) and isinstance(effect.what, Started):
                self.started.append(effect.what.instance)
            elif getattr(effect, "what", "") == "process.view_change":
                self.views.append(effect.detail.split(":")[0])

    def step(self) -> None:
        self.now += STEP_US
        arriving, self.flying = self.flying, []
        for sender, to, message in arriving:
            if to in self.nodes:
                self.carry(to, self.nodes[to].handle(sender, message, self.now))
        for name, node in self.nodes.items():
            if self.now >= self.due_us[name]:
                self.due_us[name] = self.now + self.config.tick_us
                self.carry(name, node.timer("tick", self.now))

    def run_until(self, condition: Any, seconds: float = 60.0) -> None:
        end_us = self.now + int(seconds * 1e6)
        while not condition():
            assert self.now < end_us, "it does not come to that"
            self.step()

    def start(self, *ids: str) -> None:
        for id in ids:
            self.carry("n0", self.nodes["n0"].begin(Start(id, "waiting", {}), self.now))

    def all_known(self, count: int) -> bool:
        decided = [sum(r.decided is not None for r in node.instances.values()) for node in self.nodes.values()]
        led = sum(replica.leading for node in self.nodes.values() for replica in node.instances.values())
        return all(known == count for known in decided) and led == count


@pytest.fixture(scope="module")
def crowd() -> Three:
    """120 instances, all open."""
    three = Three()
    three.start(*(f"i{n}" for n in range(120)))
    three.run_until(lambda: three.all_known(120))
    return three


def test_a_burst_of_starts_takes_turns_and_no_elections(crowd: Three) -> None:
    assert sorted(crowd.started) == sorted(f"i{n}" for n in range(120))
    assert crowd.views == []
    three = Three()
    three.start(*(f"i{n}" for n in range(40)))
    assert len(three.nodes["n0"].starts.starters) == CONFIG.starts_max
    three.run_until(lambda: len(three.started) == 40)


def test_nobody_suspects_a_node_whose_round_of_heartbeats_takes_longer_than_their_pause_says() -> None:
    """Heartbeats go with ticks: every 60 ms, not every 50. A round of forty of them names all that a node leads."""
    three = Three(ProcessesConfig(leads_max=1, transfers_max=4, starts_max=16))
    three.start(*(f"i{n}" for n in range(120)))
    three.run_until(lambda: three.all_known(120))
    until_us = three.now + 8_000_000
    three.run_until(lambda: three.now >= until_us)
    assert three.views == []


def test_the_more_instances_wait_the_more_seldom_each_is_looked_at(crowd: Three) -> None:
    shared = crowd.nodes["n0"].shared
    assert shared.idle_us == IDLE_US
    some = {f"w{n}": None for n in range(100_000)}
    assert msgspec.structs.replace(shared, led=some).idle_us >= 100_000 * IDLE_EACH_US


def test_an_instance_that_is_settled_leaves_memory_though_nobody_looks_for_circles() -> None:
    three = Three()
    three.start("i1")
    three.run_until(lambda: three.all_known(1))
    replicas = [ref(node.instances["i1"]) for node in three.nodes.values()]
    gc.disable()  # as good as: runtime/collecting.py
    try:
        three.flying += [("partner", name, Post("i1", Mail("m", "go", 7))) for name in NAMES]
        three.run_until(lambda: not any(node.instances for node in three.nodes.values()))
        assert [replica() for replica in replicas] == [None, None, None]
    finally:
        gc.enable()


def test_a_start_is_handed_on_without_a_disk_of_its_starter() -> None:
    three = Three()
    effects = three.nodes["n0"].begin(Start("handed1", "waiting", {}), three.now)
    assert three.nodes["n0"].shared.members_of("handed1")[0] != "n0"
    kinds = [type(effect) for effect in effects if isinstance(effect, Send | Persist)]
    assert kinds == [Send]


def test_an_end_is_known_everywhere_before_the_next_heartbeat() -> None:
    three = Three()
    three.start("i1")
    three.run_until(lambda: three.all_known(1))
    for name in NAMES:
        three.carry(name, three.nodes[name].handle("partner", Post("i1", Mail("m", "go", 7)), three.now))
    never_us = 1 << 60
    for name in NAMES:  # no tick comes any more, so that no heartbeat does
        three.due_us[name] = never_us
    three.run_until(lambda: all(node.instances["i1"].final for node in three.nodes.values()), seconds=1.0)
    early = [message for _, _, message in three.sent if isinstance(message, Heartbeat) and message.early]
    assert len(early) == 2
    assert [lead.ask_clean for message in early for lead in message.leads] == [False, False]
    # What comes out of turn must not make a slow node look quick: it would be suspected too soon.
    hearing = three.nodes["n0"].shared.hearing
    hearing._gaps_us["n1"] = 1_000_000
    three.nodes["n0"].handle("n1", Heartbeat((), early=True), three.now)
    assert hearing._gaps_us["n1"] == 1_000_000
    three.nodes["n0"].handle("n1", Heartbeat(()), three.now)
    assert hearing._gaps_us["n1"] < 1_000_000


def test_the_time_of_a_view_change_is_measured_from_the_last_sign_of_the_leader() -> None:
    """t_v of the paper: until the state is decided again in the new view. It is kept over a restart."""
    three = Three()
    three.start(*(f"i{n}" for n in range(6)))
    three.run_until(lambda: three.all_known(6))
    assert all(node.shared.view_changes.took == () for node in three.nodes.values())
    gone = next(name for name, node in three.nodes.items() if any(r.leading for r in node.instances.values()))
    led = [id for id, replica in three.nodes[gone].instances.items() if replica.leading]
    three.crash(gone)
    three.run_until(lambda: sum(r.leading for n in three.nodes.values() for r in n.instances.values()) == 6)
    three.run_until(
        lambda: all(r.planner.planning for n in three.nodes.values() for r in n.instances.values() if r.leading)
    )
    took = [took_us for node in three.nodes.values() for _, took_us in node.shared.view_changes.took]
    assert len(took) == len(led)
    config = CONFIG
    assert all(config.suspect_us <= us < 3 * (config.suspect_us + config.backoff_us) for us in took)
    winner = next(name for name, node in three.nodes.items() if node.shared.view_changes.took)
    before = three.nodes[winner].shared.view_changes.rows()
    three.crash(winner)
    three.boot(winner)
    assert three.nodes[winner].shared.view_changes.rows() == before
    assert before[0]["node"] == winner


def test_a_heartbeat_has_a_bound_and_a_round_names_all(crowd: Three) -> None:
    crowd.sent.clear()
    began_us = crowd.now
    crowd.run_until(lambda: crowd.now > began_us + 2_000_000)
    beats = [(sender, message) for sender, _, message in crowd.sent if isinstance(message, Heartbeat)]
    assert beats
    assert all(len(message.leads) <= 2 * CONFIG.leads_max for _, message in beats)
    assert {lead.instance for _, message in beats for lead in message.leads} == {f"i{n}" for n in range(120)}
    assert max(message.round_us for _, message in beats) >= 2 * CONFIG.heartbeat_us
    assert crowd.views == []


def test_a_node_that_comes_back_catches_up_within_its_bound_and_harms_nobody(crowd: Three) -> None:
    gone = "n1"
    led_by_it = [id for id, replica in crowd.nodes[gone].instances.items() if replica.leading]
    assert len(led_by_it) > 10 * CONFIG.transfers_max
    crowd.views.clear()
    crowd.crash(gone)
    crowd.run_until(lambda: sum(r.leading for n in crowd.nodes.values() for r in n.instances.values()) == 120)
    assert set(crowd.views) <= set(led_by_it)  # those that had another leader have seen no election
    for name in crowd.nodes:  # and something happened meanwhile that it does not know
        crowd.carry(name, crowd.nodes[name].handle("partner", Post("i7", Mail("m", "go", 7)), crowd.now))
    crowd.run_until(lambda: all(r.final for n in crowd.nodes.values() if (r := n.instances.get("i7"))))
    crowd.views.clear()
    crowd.sent.clear()
    crowd.boot(gone)
    most = 0
    asked: dict[str, None] = {}
    shown: dict[str, None] = {}
    while not all(len(node.finished) == 1 and len(node.instances) == 119 for node in crowd.nodes.values()) or not all(
        replica.decided is not None for node in crowd.nodes.values() for replica in node.instances.values()
    ):
        crowd.step()
        for sender, to, message in crowd.sent:
            if sender == gone and isinstance(message, Fetch):
                asked[message.instance] = None
            elif sender == gone and isinstance(message, Replicate):
                shown[message.state.instance] = None
            elif to == gone and isinstance(message, Decided):
                asked.pop(message.state.instance, None)
        crowd.sent.clear()
        shown = {
            id: None for id in shown if (r := crowd.nodes[gone].instances.get(id)) and r.replication.state is not None
        }
        most = max(most, len(asked) + len(shown))
        assert len(crowd.nodes[gone].shared.transfers) <= CONFIG.transfers_max
    assert 0 < most <= CONFIG.transfers_max
    assert crowd.views == []


def test_a_node_that_was_away_for_a_moment_shows_its_states_a_few_at_a_time() -> None:
    three = Three()
    three.start(*(f"i{n}" for n in range(60)))
    three.run_until(lambda: three.all_known(60))
    three.crash("n1")
    three.sent.clear()
    three.boot("n1")
    shown = {message.state.instance for sender, _, message in three.sent if isinstance(message, Replicate)}
    assert len(shown) == CONFIG.transfers_max
    three.run_until(lambda: three.all_known(60))


def awake(_: str) -> int:
    return 0


def test_an_instance_that_was_named_meanwhile_sleeps_on() -> None:
    wakes = Wakes()
    wakes.later("a", 500)
    wakes.later("b", 500)
    until = {"a": 900, "b": 500}
    assert wakes.take(500, 1_000, until.__getitem__) == ["b"]
    assert wakes.take(899, 1_000, until.__getitem__) == []
    assert wakes.take(900, 1_000, until.__getitem__) == ["a"]
    wakes.now("c")
    wakes.later("c", 1_000)
    wakes.now("c")  # something happened to it: its time does not matter
    assert wakes.take(1_000, 1_000, lambda _: 5_000) == ["c"]


def test_followers_whose_leader_names_them_are_not_looked_at(monkeypatch: Any) -> None:
    """Each was, once in every round of heartbeats, which was most of what thousands of waiting instances cost."""
    three = Three()
    three.start(*(f"i{n}" for n in range(60)))
    three.run_until(lambda: three.all_known(60))
    settled_us, until_us = three.now + 1_000_000, three.now + 4_000_000
    three.run_until(lambda: three.now >= settled_us)
    ticked: list[bool] = []
    tick = Replica.tick

    def counting(replica: Replica, now: int, may_ask: bool = True) -> None:
        ticked.append(replica.leading)
        tick(replica, now, may_ask)

    monkeypatch.setattr(Replica, "tick", counting)
    three.run_until(lambda: three.now >= until_us)
    assert ticked.count(False) == 0
    assert 0 < len(ticked) < 600


def test_a_live_leader_that_ceased_to_lead_is_missed_after_a_round_of_its_heartbeats() -> None:
    """Its node is heard all the time, so only that it does not name the instance any more can tell."""
    three = Three()
    three.start(*(f"i{n}" for n in range(60)))
    three.run_until(lambda: three.all_known(60))
    leader = next(node for node in three.nodes.values() if node.instances["i7"].leading)
    leader.instances["i7"].step_down()
    three.run_until(lambda: any(node.instances["i7"].leading for node in three.nodes.values()), 5.0)
    assert [id for id in three.views if id != "i7"] == []


def test_instances_that_wait_are_not_looked_at() -> None:
    wakes = Wakes()
    wakes.now("a")
    wakes.later("b", 500)
    wakes.later("b", 900)  # stands for an earlier time
    assert wakes.take(100, 1_000, awake) == ["a"]
    assert wakes.take(499, 1_000, awake) == []
    assert wakes.take(500, 1_000, awake) == ["b"]
    wakes.later("b", 900)
    wakes.later("b", 700)
    wakes.forget("c")
    assert wakes.take(800, 1_000, awake) == ["b"]
    assert wakes.take(10_000, 1_000, awake) == []


def test_a_tick_looks_at_a_bounded_number_of_instances_those_that_waited_longest_first() -> None:
    wakes = Wakes()
    for name in "dacb":
        wakes.now(name)
    wakes.later("early", 50)
    assert wakes.take(100, 2, awake) == ["d", "a"]
    wakes.now("d")
    assert wakes.take(100, 2, awake) == ["c", "b"]
    assert wakes.take(100, 9, awake) == ["early", "d"]


class Asked(msgspec.Struct):
    at: int = 0
    receipt: str = ""


def test_instances_that_wait_for_a_service_cost_nothing_until_their_time_has_come(monkeypatch: Any) -> None:
    """All are due at once, and the service is slow: each tick looked at each of them, and was longer than the pause
    between two."""
    process = Process("due", state=Asked, services=[Service("slow")])

    @process.action(service="slow", writes="receipt", write=True)
    async def ask(at: int) -> str: ...

    process.flow(process.sleep("until", until="at"), ask)
    config = ProcessesConfig(ticks_max=100)
    node = ProcessNode("n", ("n",), [process], {}, Random(1), 0, ClusterBounds(f=0), config)
    node.start(0)
    for number in range(400):
        node.begin(Start(f"i{number}", "due", {"at": 1_000_000}), 0)
        node.timer("tick", 1)
    ticks: list[str] = []
    tick = Replica.tick

    def counted(replica: Replica, now: int, may_ask: bool = True) -> None:
        ticks.append(replica.instance)
        tick(replica, now, may_ask)

    monkeypatch.setattr(Replica, "tick", counted)

    def requests(now: int) -> list[Any]:
        ticks.clear()
        effects = node.timer("tick", now)
        assert len(ticks) <= config.ticks_max
        return [e.message for e in effects if isinstance(e, Send) and e.to == "service:slow"]

    asked = [request for step in range(10) for request in requests(1_000_000 + step * config.tick_us)]
    assert len(asked) == 400
    for step in range(10, 50):  # nothing comes, and no attempt is over
        assert requests(1_000_000 + step * config.tick_us) == []
        assert len(ticks) == 0
    for request in asked:  # not its turn yet: that is no attempt
        node.handle("service:slow", Reply(request.instance, request.iid, "do", Answer.WAIT, 30_000_000), 2_000_000)
        late = Reply(request.instance, request.iid, "do", Answer.UNKNOWN, "of an earlier attempt")
        node.handle("service:slow", late, 2_000_000) if request.instance == "i0" else None
    asked_again = [r.instance for step in range(60, 100) for r in requests(1_000_000 + step * config.tick_us)]
    assert asked_again == ["i0"]
    wait = Reply("i0", asked[0].iid, "do", Answer.WAIT, 29_000_000)
    node.handle("service:slow", wait, 3_000_000)
    for step in range(100, 1_500):
        assert requests(1_000_000 + step * config.tick_us) == []
    again = [request for step in range(10) for request in requests(32_100_000 + step * config.tick_us)]
    assert sorted(r.iid for r in again) == sorted(r.iid for r in asked)
    for request in again:
        node.handle("service:slow", Reply(request.instance, request.iid, "do", Answer.DONE, "r"), 33_000_000)
    for step in range(10):
        requests(33_000_000 + step * config.tick_us)
    assert [node.finished[instance].status for instance in node.finished] == ["completed"] * 400


def test_who_is_slow_is_given_time_and_who_was_away_is_not() -> None:
    config = ProcessesConfig()
    hearing = Hearing(config)
    for at_us in range(0, 500_000, 50_000):
        hearing.beat("n1", 0, at_us)
    assert hearing.slack_us("n1") == 0
    hearing.beat("n1", 0, 450_000 + 600_000)
    assert hearing.slack_us("n1") == hearing.slack_us("") == 2 * 600_000 - config.suspect_us
    hearing.hear("n1", 1_050_000)
    assert not hearing.silent("n1", 1_050_000 + config.suspect_us)
    for at_us in range(1_100_000, 40_000_000, 50_000):
        hearing.beat("n1", 0, at_us)
    assert hearing.slack_us("n1") == 0
    hearing.hear("n1", 40_000_000)
    hearing.gone("n1", 40_000_000)  # its link broke: what follows is no slowness
    back_us = 40_000_000 + 2 * config.heartbeat_us
    assert not hearing.silent("n1", back_us - 1)
    assert hearing.silent("n1", back_us)  # and it is missed before its silence alone would tell
    assert back_us < 40_000_000 + config.suspect_us
    hearing.slept(back_us)  # whoever slept himself has to hear first who is there
    assert not hearing.silent("n1", back_us)
    hearing.slept(back_us + 60_000)  # again: where that happens all the time, nobody would ever be missed
    assert hearing.silent("n1", back_us + 2 * config.heartbeat_us)
    hearing.hear("n1", 40_900_000)
    hearing.vanished("n1")  # it was heard since
    assert not hearing.silent("n1", 40_900_000 + config.suspect_us - 1)
    hearing.beat("n1", 0, 40_900_000)
    assert hearing.slack_us("n1") == 0
    hearing.gone("n1", 41_000_000)
    assert not hearing.silent("n1", 41_000_000)
    hearing.vanished("n1")  # nobody listens there: it is not waited for, however late this node itself is
    hearing.slept(41_000_000)
    assert hearing.silent("n1", 41_000_000)


def test_news_comes_before_turns_and_what_is_not_led_any_more_is_dropped() -> None:
    class Led:
        def __init__(self, instance: str) -> None:
            self.instance, self.others, self.group = instance, ("n1",), 0

        def lead(self) -> Any:
            return None if self.group < 0 else (self.instance, self.group)

    beats = Beats(ProcessesConfig(leads_max=2))
    led = {f"i{n}": Led(f"i{n}") for n in range(5)}
    for each in led.values():
        beats.note(each)  # type: ignore[arg-type]
    pause_us = ProcessesConfig().heartbeat_us
    seen = [beats.next(led, ("n1",), n * pause_us)["n1"] for n in range(3)]  # type: ignore[arg-type]
    assert {name for said in seen for name, _ in said} == set(led)
    assert beats.round_us == 2 * pause_us * ROUND_SPARE
    led["i4"].group = 3
    beats.note(led["i4"])  # type: ignore[arg-type]
    assert ("i4", 3) in beats.next(led, ("n1",), 3 * pause_us)["n1"]  # type: ignore[arg-type]
    for name in ("i0", "i1", "i2"):
        led[name].group = -1
    named = [name for n in range(4, 7) for name, _ in beats.next(led, ("n1",), n * pause_us)["n1"]]  # type: ignore[arg-type]
    assert set(named) == {"i3", "i4"}
    assert beats.round_us == 0


def test_a_round_takes_as_long_where_nobody_is_given_patience() -> None:
    """`suspect_us_max` bounds how late a heartbeat is believed to be, and not how long the pause between two is."""

    class Led:
        others = ("n1",)

        def __init__(self, instance: str) -> None:
            self.instance = instance

        def lead(self) -> Any:
            return (self.instance, 0)

    beats = Beats(ProcessesConfig(leads_max=1, suspect_us_max=0))
    led = {f"i{n}": Led(f"i{n}") for n in range(4)}
    for each in led.values():
        beats.note(each)  # type: ignore[arg-type]
    pause_us = ProcessesConfig().heartbeat_us
    for n in range(100):
        beats.next(led, ("n1",), n * pause_us)  # type: ignore[arg-type]
    assert beats.round_us == 3 * pause_us * ROUND_SPARE


def finish(three: Three, count: int) -> None:
    """Send each instance its message as soon as it is there, until all have ended on all nodes."""

    def done() -> bool:
        for id in three.started:
            three.carry("n1", three.nodes["n1"].post(id, Mail(f"{id}-go", "go", 1), three.now))
        three.started.clear()
        return all(len(node.finished) == count for node in three.nodes.values())

    three.run_until(done)


def test_starts_that_find_no_room_begin_when_others_have_ended() -> None:
    three = Three(ProcessesConfig(instances_max=2, starts_max=16))
    three.start(*(f"i{n}" for n in range(9)))
    three.run_until(lambda: len(three.started) == 2)
    until_us = three.now + 2_000_000
    three.run_until(lambda: three.now >= until_us)
    assert len(three.started) == 2
    assert all(len(node.instances) <= 2 for node in three.nodes.values())
    finish(three, 9)


def test_a_node_without_room_takes_part_in_what_others_have_begun() -> None:
    """Each was full of instances that another one lacked, and none of them could settle."""
    three = Three(ProcessesConfig(instances_max=1))
    for name in NAMES:
        node = three.nodes[name]
        instance = next(id for id in map(str, range(99)) if node.shared.members_of(id)[0] == name)
        three.carry(name, node.begin(Start(instance, "waiting", {}), three.now))
    three.run_until(lambda: three.all_known(3))
    finish(three, 3)


def test_a_full_node_keeps_the_starts_of_its_application_for_later() -> None:
    process = waiting()
    node = ProcessNode("n", ("n",), [process], {}, Random(1), 0, ClusterBounds(f=0), ProcessesConfig(instances_max=1))
    node.start(0)
    started: list[str] = []
    now = 0

    def carry(effects: list[Any]) -> None:
        started.extend(e.what.instance for e in effects if isinstance(e, Deliver) and isinstance(e.what, Started))

    for number in range(5):
        carry(node.begin(Start(f"i{number}", "waiting", {}), now))
    for number in range(5):
        while f"i{number}" not in started:
            assert now < 10_000_000, "its turn does not come"
            now += 20_000
            carry(node.timer("tick", now))
        carry(node.post(f"i{number}", Mail(f"m{number}", "go", 1), now))
    assert started == [f"i{number}" for number in range(5)]


class Two(msgspec.Struct):
    first: int = 0
    second: int = 0


class Paid(msgspec.Struct):
    who: str
    first: int = 0


def test_what_is_published_for_others_does_not_keep_out_what_an_instance_waits_for() -> None:
    process = Process("paid", state=Paid)
    process.flow(process.receive("payment", writes="first", key="who"))
    stage = Rehearsal(process, bounds=ClusterBounds(published_max=2))
    for number in range(6):
        stage.publish("payment", "nobody", number)
    stage.run(seconds=1.0)
    stage.start("i1", who="ann")
    stage.publish("payment", "ann", 7, id="for ann")
    assert stage.finish("i1").variables["first"] == 7
    kept = [stage.world.machine(name).shared.published.values() for name in stage.names]
    assert [[message.key for message in messages] for messages in kept] == [["nobody", "nobody"]] * 3
    stage.start("i2", who="nobody")  # what is kept is still there for those who come later
    assert stage.finish("i2").variables["first"] in range(6)
    stage.check()


def test_messages_before_their_time_do_not_keep_out_the_one_that_is_waited_for() -> None:
    process = Process("two", state=Two)
    process.flow(process.receive("first", writes="first"), process.receive("second", writes="second"))
    stage = Rehearsal(process, bounds=ClusterBounds(mail_max=2))
    stage.start("i1")
    for number in range(3):
        stage.signal("i1", "second", number)
    stage.run(seconds=1.0)
    box = stage.world.machine("node0").instances["i1"].inbox.mailbox
    assert [mail.channel for mail in box.mail] == ["second", "second"]
    stage.signal("i1", "first", 7)
    end = stage.finish("i1")
    assert (end.status, end.variables["first"]) == ("completed", 7)
    stage.check()


def test_a_failover_bound_chooses_heartbeats_and_patience() -> None:
    usual = ProcessesConfig()
    assert ProcessesConfig.within(2_000_000) == ProcessesConfig.within(1_000_000) == usual
    half = ProcessesConfig.within(500_000)
    assert (half.tick_us, half.heartbeat_us, half.suspect_us, half.backoff_us) == (12_500, 25_000, 150_000, 100_000)
    least = ProcessesConfig.within(200_000)
    assert (least.tick_us, least.heartbeat_us, least.suspect_us, least.backoff_us) == (5_000, 10_000, 60_000, 40_000)
    assert ProcessesConfig.within(1) == least
    for failover_us in range(200_000, 2_000_000, 10_000):
        config = ProcessesConfig.within(failover_us)
        assert config.suspect_us + config.backoff_us <= failover_us // 2
