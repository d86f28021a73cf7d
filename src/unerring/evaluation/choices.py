"""Inputs that the papers do not give: what was chosen, why, and what comes out if it is chosen otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from unerring.evaluation.grids import FEW_ACTIONS, OTHER_MEANS_MS, P_MAX, PLANT
from unerring.evaluation.process_bed import MEAN_MS
from unerring.evaluation.summary import like

Otherwise = tuple[str, str, str, Callable[[Any], bool]]
"""A label, a measurement, its unit, and the point."""


class Choice(msgspec.Struct, frozen=True):
    """One input."""

    what: str
    why: str
    otherwise: tuple[Otherwise, ...] = ()
    untried: str = "not measured"


def _plant(**fixed: Any) -> Any:
    usual = {"f": 2, "p_fail": P_MAX, "tiers": PLANT, "links": True, "durable": False, "setting": "ours"}
    return like(**{**usual, "news": "soon", "step_us": 200_000, "down_steps": 5, **fixed})


def _process(approach: str, rules: str = "ours", **fixed: Any) -> Any:
    usual = {"degree": 3, "failures": 0, "network": "EC2", "masters": 0, "links": 0, "actions": 100}
    return like(**{**usual, "mean_ms": MEAN_MS, "uplink_us": None, "approach": approach, "rules": rules, **fixed})


def _means() -> tuple[Otherwise, ...]:
    return tuple(
        (f"{mean_ms} ms, {label}", "state_messages", " messages", _process(approach, "paper", mean_ms=mean_ms))
        for mean_ms in (MEAN_MS, *OTHER_MEANS_MS)
        for label, approach in (
            ("passive", "passive"),
            ("CM500", "cost model at 500 ms"),
            ("CM10000", "cost model at 10000 ms"),
        )
    )


def _uplinks() -> tuple[Otherwise, ...]:
    wide = {"network": "PlanetLab", "actions": FEW_ACTIONS}
    return tuple(
        (
            f"{label}, degree {degree}",
            "replication_ms",
            " ms",
            _process("passive", "paper", degree=degree, **uplink, **wide),
        )
        for label, uplink in (("1.5 ms", {}), ("none", {"uplink_us": 0}))
        for degree in (3, 5, 9, 17, 33)
    )


CHOICES: Final[Mapping[str, tuple[Choice, ...]]] = {
    "correlation": (
        Choice(
            "a step lasts 200 ms",
            "the paper counts in steps; long against the delays of 0.2 to 0.5 ms, short against a run of 5 to 50 steps",
            tuple(
                (f"{step_us // 1000} ms", "duplicates", " duplicates", _plant(step_us=step_us))
                for step_us in (100_000, 200_000, 400_000)
            ),
        ),
        Choice(
            "what fails is back after 1 to 5 steps",
            "the paper does not say after how long a node recovers",
            tuple((f"1 to {steps}", "duplicates", " duplicates", _plant(down_steps=steps)) for steps in (1, 5, 20)),
        ),
        Choice(
            "factory: 35 facilities in tiers of 1, 4, 10 and 20, 27 events of each in a step",
            "made to give the paper's numbers of nodes, events, situations and messages: these four are inputs",
            untried="the rows of section VI say how near it came; all other rows compare runs of one factory",
        ),
        Choice(
            "reading: p of figure 8",
            "the text writes 0.1 and 0.005 without a percent sign, the axis of figure 6 has one",
            untried="both are rows",
        ),
        Choice(
            "links fail with the probability of nodes, for as long, and deliver later",
            "section VI names link failures without a rate; section III says that links fail temporarily only",
            untried="not measured; what follows from it for duplicates: rows *Figure 5, why*",
        ),
    ),
    "processes": (
        Choice(
            "mean: action times are Gaussian with mean 100 ms, cut off at zero",
            "the paper gives the deviation (500 ms) alone. With 100 ms the cost model saves what the paper reports at "
            "500 ms, so that row is no test by itself; the one at 10 000 ms and those in time are",
            _means(),
        ),
        Choice(
            "network: EC2-like 0.2 to 0.5 ms one way, a sync of 2.5 to 4.5 ms; PlanetLab-like 15 to 45 ms, 4 to 10 ms, "
            "heavy tails",
            "the paper names the places and no delays; usual values of a data centre and of Europe",
            untried="times in milliseconds follow from it; shapes and orders do not",
        ),
        Choice(
            "uplink: a state keeps its sender's uplink busy for 0.2 ms (EC2-like) or 1.5 ms (PlanetLab-like)",
            "without it the majority's answer comes near the median delay and the curve of figure 9 flattens",
            _uplinks(),
        ),
        Choice(
            "time-outs of the paper's rules: 300 ms (EC2-like), 1.2 s (PlanetLab-like), fixed",
            "the paper names t_h and t_b without values; these suspect nobody for nothing",
            untried="the product's are the other column: 200 ms, learned up to 10 s",
        ),
        Choice(
            "failures happen at a moment of the work, to a running node, whichever",
            "so that each one that is drawn happens: the axis of figure 10 is what was counted",
            untried="not measured: at a moment of time, failures that hit a node that is down would not happen",
        ),
    ),
    "channels": (
        Choice(
            "ten bursts of 100 events, one each millisecond, 400 ms apart; delays of 0.2 to 1 ms; each copy is lost "
            "by itself",
            "the paper describes no workload",
            untried="with longer bursts fewer losses are at an end, where the paper's rules do not notice them",
        ),
    ),
}
