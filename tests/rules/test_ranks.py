"""One query tree for everybody: `run_on`, an app's levels on Spark, the live topology and the status page agree on
ranks, levels, and on who makes and who takes a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from unerring import App, Rule, event_of, last, rule, run_on, step, stream, time_of
from unerring.app.auditing import Audit
from unerring.app.live_cluster import make_cluster, topology_of
from unerring.app.status.tree import tree_of
from unerring.log import EventLog, LogWriter
from unerring.matching import oracle
from unerring.model import ConfigError, Event, RuleError, Stamp, schema_of
from unerring.pipeline.versions import enter
from unerring.rules.tree import RulePart, heights_of, levels_of, plans_of, ranks_of


@stream(key="k")
class Bolt:
    k: int


@stream(key="k")
class Axle:
    k: int


@stream(key="k")
class Cog:
    k: int


SOURCES = (Bolt, Axle, Cog)


def follow(name: str, *reads: object) -> Rule:
    """One event of each, in this order, at most 2 apart: at a tie the ranks decide."""
    first, *others = [step(f"s{n}", read) for n, read in enumerate(reads)]
    pattern = first
    for other in others:
        pattern = pattern.then_any(other)  # type: ignore[assignment]
    return rule(name).pattern(pattern.within(2)).select("all").emit(began=time_of(last(first)))


def random_tree(random: Random) -> list[Rule]:
    """Rules over the sources and each other; the last reads all that nobody reads."""
    made: list[Rule] = []
    read: set[int] = set()
    for name in random.sample("tuvwxyz", random.randint(2, 5)):
        reads = random.sample([*SOURCES, *made], random.randint(1, 2))
        read |= {id(one) for one in reads}
        made.append(follow(name, *reads))
    return [*made, follow(random.choice("asz") + "top", *[one for one in made if id(one) not in read])]


def random_events(random: Random) -> list[Event]:
    """On few times, so that ties are the rule."""
    events = []
    for declared in SOURCES:
        for time in range(1, 5):
            for ordinal in range(random.randint(0, 2)):
                event = event_of(declared(random.randint(0, 1)), time)
                events.append(Event(event.stream, Stamp(time, ordinal), event.key, event.payload))
    return events


def agree(ours: Mapping[str, int], theirs: Mapping[str, int]) -> bool:
    """Whether streams that both know stand in one order."""
    both = sorted(ours.keys() & theirs.keys(), key=ours.__getitem__)
    return all(theirs[one] < theirs[other] for one, other in pairwise(both))


def on_levels(app: App, events: list[Event]) -> list[Event]:
    """What Spark's levels make: each rule by the definition, with the ranks that its level hands to the tasks."""
    every = list(events)
    for level in app.levels("nowhere"):
        for plan in level.plans:
            names = {source.schema.name for source in plan.inputs}
            every += oracle.run(plan, [event for event in every if event.stream in names], dict(level.ranks))
    return every[len(events) :]


def on_nodes(app: App, events: list[Event]) -> list[Event]:
    """What live nodes make: each rule by the definition, with the ranks of its node's inputs."""
    live = topology_of(app, 1)
    every = list(events)
    for name in sorted(app.nodes, key=levels_of(live.nodes).__getitem__):
        ranks = {schema.name: rank for schema, rank in live.inputs(name)}
        for plan in app.nodes[name]:
            every += oracle.run(plan, [event for event in every if event.stream in ranks], ranks)
    return every[len(events) :]


def check_levels(app: App) -> None:
    """A rule is on one level, on Spark, in the live topology and on the status page."""
    heights = heights_of(app.plans, app.streams)
    on_spark = {plan.name: level.number for level in app.levels("nowhere") for plan in level.plans}
    assert on_spark == {plan.name: heights[plan.output.name] for plan in app.plans}
    live = topology_of(app, 1)
    for tree in (tree_of(app, None), tree_of(app, live), tree_of(None, live)):
        shown = {node["name"]: node["level"] for node in tree["nodes"]}
        assert {name: shown[name] for name in on_spark} == on_spark
        assert all(shown[f"source_{schema.name}"] == 0 for schema in app.streams)
        assert shown["situations"] == max(on_spark.values()) + 1
    for schema in (*app.streams, *app.outputs):
        wanted = [plan.name for plan in app.plans if schema in [source.schema for source in plan.inputs]]
        assert sorted(set(live.takers(schema.name)) - {"situations"}) == sorted(wanted)
        assert heights[schema.name] == levels_of(live.nodes)[live.maker(schema.name).name]


def write_log(data: Path) -> None:
    for declared in (Axle, Bolt):
        writer = LogWriter(EventLog(data / "log"), schema_of(declared), buckets=1)
        writer.end(0)
        writer.seal()


def in_order(events: list[Event]) -> list[str]:
    return sorted(map(repr, events))


def test_at_a_tie_run_on_finds_what_the_app_does() -> None:
    """Both x and y are certain at one time; the order in which an app lists them must not matter."""
    x, y = follow("x", Axle), follow("y", Bolt)
    top = follow("top", x, y)
    events = [event_of(Axle(1), 5), event_of(Bolt(1), 5)]
    found = run_on(top, events)
    assert [event.stream for event in found] == ["x", "y", "top"]
    for listed in ([top, y, x], [x, y, top], [y, x, top]):
        for streams in ([Axle, Bolt], [Bolt, Axle], []):
            app = App("ties", rules=listed, streams=streams)
            assert in_order(on_levels(app, events)) == in_order(found), app


def test_run_on_and_apps_agree_on_random_trees_with_ties() -> None:
    mattered = 0
    for seed in range(40):
        random = Random(seed)
        rules = random_tree(random)
        events = random_events(random)
        found = run_on(rules[-1], events)
        apps = []
        for _ in range(2):
            listed = random.sample(rules, len(rules))
            apps.append(App("tree", rules=listed, streams=random.sample(SOURCES, random.randint(0, 3))))
        ranks = ranks_of(plans_of(rules[-1]))
        for app in apps:
            levels = {name: rank for level in app.levels("nowhere") for name, rank in level.ranks}
            live = topology_of(app, 1)
            assert agree(ranks, levels), seed
            for node in live.nodes:
                assert agree(ranks, {schema.name: rank for schema, rank in live.inputs(node.name)}), seed
            assert in_order(on_levels(app, events)) == in_order(found), seed
            assert in_order(on_nodes(app, events)) == in_order(found), seed
            check_levels(app)
        turned = {name: -rank for name, rank in ranks.items()}
        mattered += in_order(oracle.run_tree(plans_of(rules[-1]), events, turned)) != in_order(found)
    assert mattered > 20, "in most of these trees the order of ranks decides something"


def test_causes_come_before_effects_and_names_decide_the_rest() -> None:
    low, other = follow("z", Cog), follow("b", Bolt, Axle)
    high = follow("a", low, other, Cog)
    assert list(ranks_of(plans_of(high))) == ["Axle", "Bolt", "Cog", "b", "z", "a"]
    assert list(ranks_of([low.plan], [schema_of(Axle)])) == ["Axle", "Cog", "z"]


def test_a_cycle_is_named() -> None:
    """By whoever lays out a tree: rules that read each other, or nodes that do because of what they host together."""
    low = follow("low", Axle)
    top = follow("top", low)
    over = follow("over", top)
    with pytest.raises(RuleError, match="the query tree has a cycle: a → b → a; levels must be acyclic"):
        levels_of([RulePart("a", ("y",), ("x",)), RulePart("b", ("x",), ("y",))])
    with pytest.raises(ConfigError, match="the query tree has a cycle: ends → top → ends"):
        topology_of(App("ends", rules=[low, over], nodes={"ends": [low, over]}), 1)
    parts = [RulePart("source", (), ("x",)), RulePart("reads", ("x", "z"), ("y",))]
    assert levels_of(parts) == {"source": 0, "reads": 1}


def test_a_folder_of_other_ranks_is_read_but_not_gone_on_with(tmp_path: Path) -> None:
    app = App("ties", rules=[follow("x", Bolt, Axle)], buckets=1)
    [level] = app.levels(tmp_path)
    older = replace(level, ranks=(("Axle", 1), ("Bolt", 0)))
    write_log(tmp_path)
    enter(older)
    with pytest.raises(ConfigError, match="by these rules, but with other ranks of streams on level 1"):
        enter(level)
    [note] = Audit(app, tmp_path).notes
    assert "ranked its streams otherwise" in note


def test_a_live_folder_of_other_ranks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path)
    with monkeypatch.context() as older:
        older.setattr(App, "ranks", {"Bolt": 0, "Axle": 1, "x": 2})
        make_cluster(f"{__name__}:TIES", 1, tmp_path)
    with pytest.raises(ConfigError, match="an older release's order of streams at equal times"):
        make_cluster(f"{__name__}:TIES", 1, tmp_path)
    [note] = Audit(TIES, tmp_path).notes
    assert "ranked its streams otherwise" in note


TIES = App("ties", rules=[follow("x", Bolt, Axle)], buckets=1)
