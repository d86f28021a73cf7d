"""Benchmarks run, small: what they say is figures with goals. How fast they are is nobody's business here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from unerring.cli.bench import _load
from unerring.matching import Row
from unerring.matching.oracle import outputs_of
from unerring.model import Event, Stamp
from unerring.pipeline import levels_of


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unerring", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("name", ["channels", "dashboard", "deliver", "keys", "rules"])
def test_a_benchmark_gives_one_json_object_a_figure(name: str) -> None:
    ran = bench(name, "--quick", "--json")
    assert ran.returncode == 0, ran.stderr
    figures = [json.loads(line) for line in ran.stdout.splitlines()]
    assert figures
    for figure in figures:
        assert figure.keys() == {"bench", "figure", "value", "unit", "goal", "met"}
        assert figure["bench"] == name
        assert (figure["goal"] is None) == (figure["met"] is None)
    if name == "channels":
        said = {figure["figure"]: figure["value"] for figure in figures}
        assert said["added_messages_per_event"] == 0
        assert said["header_bytes"] <= 32
        assert min(said["tls.ratio"], said["tls.bare_ratio"], said["roles.cpu_ratio"]) > 0
    if name == "keys":
        said = {figure["figure"]: figure for figure in figures}
        assert {one for one in said if said[one]["goal"]} == {
            "W1.bytes_per_key",
            "due.W1.cpu_ratio",
            "due.W3.cpu_ratio",
            "spill.speed_ratio",
        }
        assert said["W1.whole_state_bytes_per_key"]["value"] < 64
    if name == "rules":
        said = {figure["figure"]: figure for figure in figures}
        assert {one for one in said if said[one]["goal"]} >= {"start.cold_s", "start.warm_s", "throughput.ratio"}
        assert said["start.cold_outputs"]["value"] == said["start.warm_outputs"]["value"] > 0


def test_a_channel_is_measured_over_another_transport() -> None:
    ran = bench("channels", "--transport", "udp", "--quick", "--json")
    assert ran.returncode == 0, ran.stderr
    figures = {(figure := json.loads(line))["figure"]: figure["value"] for line in ran.stdout.splitlines()}
    assert figures["udp.rate"] > 0
    assert figures["udp.ratio.loss1pct"] > 0
    ran = bench("channels", "--transport", "pigeon")
    assert ran.returncode == 2
    assert "no service 'pigeon'; there are" in ran.stderr


def test_an_unknown_benchmark_or_option_is_answered_with_a_sentence() -> None:
    ran = bench("nothing")
    assert ran.returncode == 2
    assert "there is no benchmark 'nothing'; choose one of" in ran.stderr
    ran = bench("dashboard", "--against", "flink")
    assert ran.returncode == 2
    assert "benchmark dashboard has no --against" in ran.stderr
    ran = bench("processes", "--part", "open,pigeon")
    assert ran.returncode == 2
    assert "has no part 'pigeon'; it has actions, kills, open, history, burst, limits, spent" in ran.stderr


def test_a_part_of_a_benchmark_runs_alone() -> None:
    ran = bench("processes", "--part", "open, history", "--quick", "--json")
    assert ran.returncode == 0, ran.stderr
    figures = [json.loads(line)["figure"] for line in ran.stdout.splitlines()]
    assert {name.split(".")[0] for name in figures} == {"open_instances", "history"}


def test_our_kills_are_measured_without_a_peer() -> None:
    ran = bench("processes", "--part", "kills", "--quick", "--json")
    assert ran.returncode == 0, ran.stderr
    figures = {one["figure"]: one["value"] for one in map(json.loads, ran.stdout.splitlines())}
    for how in ("usual", "tuned"):
        assert figures[f"failover.ours.{how}.worker.p50_s"] > 0
        assert figures[f"doubled.ours.{how}.effects"] == 0


def test_an_instance_s_time_is_spent_on_what_goes_on() -> None:
    spent = _load("processes")._beside_this("spent.py").spent
    spans = [("machine", 0, 10), ("commit", 10, 40), ("link", 35, 60), ("queue", 50, 55), ("timer", 80, 90)]
    assert spent(spans, 0, 100) == {"machine": 20, "commit": 30, "link": 15, "queue": 5, "tick": 20, "turn": 10}
    assert sum(spent(spans, 20, 70).values()) == 50
    ran = bench("processes", "--part", "spent", "--quick", "--json")
    assert ran.returncode == 0, ran.stderr
    figures = {one["figure"]: one["value"] for one in map(json.loads, ran.stdout.splitlines())}
    whole = figures.pop("spent.one_at_a_time_ms")
    assert figures.pop("spent.commits") >= 2
    assert figures.pop("spent.each_commit_ms") > 0
    assert figures["spent.link_ms"] > 0
    assert sum(figures.values()) == pytest.approx(whole)


def test_growth_says_how_far_a_curve_is_from_a_line() -> None:
    growth = _load("growth")
    curve = list(growth._axis("rules", {1: 2.0, 2: 3.0, 4: 4.0}, [100, 100, 100]))
    assert [figure["figure"] for figure in curve] == ["rules.1", "rules.2", "rules.4", "rules.over_linear"]
    assert [figure["value"] for figure in curve] == [50, 100 / 3, 25, 0.5]
    assert curve[-1]["met"]
    [*_, flat] = growth._axis("keys", {10: 5.0, 1000: 2.0, 10**6: 3.0}, [9, 9, 9], proportional=False)
    assert (flat["value"], flat["met"]) == (1.5, False)


def test_each_level_of_growth_passes_on_what_the_one_below_does() -> None:
    growth = _load("growth")
    plans = growth._passing(3)
    levels = levels_of(plans, (growth.SCHEMA,), "nowhere", 1)
    assert [[plan.name for plan in level.plans] for level in levels] == [["Level1"], ["Level2"], ["Level3"]]
    events = [
        Event("Typed", Stamp(time), (key,), {"key": key, "type": "A", "v": 0.5})
        for time, key in ((1, 3), (1, 4), (2, 3))
    ]
    assert len(outputs_of(plans[0], [Row(0, event) for event in events], 5)) == 3
