"""The papers' figures from a sweep: lines with 95 % confidence bands, as PNG and SVG. Loads matplotlib when called."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from unerring.evaluation.grids import FEW_ACTIONS, P_MAX, PLANT
from unerring.evaluation.processes import MASTERS
from unerring.evaluation.summary import Mean, Summary, both, like

Series = Sequence[tuple[str, Sequence[tuple[float, Mean]]]]
"""Lines by their labels."""
Figure = tuple[str, str, str, str, Series]
"""A file's name, a title, two axes and the lines."""


def draw(summary: Summary, folder: Path) -> list[Path]:
    """All figures of a sweep's paper; those without points are left out."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "unerring", "font.size": 10, "axes.titlesize": 10})
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    figures = {"correlation": _correlation, "processes": _processes, "channels": _channels}[summary.experiment.name]
    for name, title, x, y, series in figures(summary):
        lines = [(label, points) for label, points in series if points]
        if lines:
            drawn += _one(folder / name, title, x, y, lines)
    return drawn


def _one(path: Path, title: str, x: str, y: str, series: Series) -> list[Path]:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.0, 4.0), layout="constrained")
    # In print without colours, marks and dashes tell lines apart.
    dashes = ("-", "--", "-.", ":")
    for number, (label, points) in enumerate(series):
        known = [(at, one) for at, one in points if not math.isnan(one.value)]
        xs = [at for at, _ in known]
        values = [one.value for _, one in known]
        mark, dash = "osD^vP*X"[number % 8], dashes[number % 4]
        line = axes.plot(xs, values, dash, marker=mark, markersize=4, linewidth=1.3, label=label)[0]
        halves = [0.0 if math.isnan(one.half) else one.half for _, one in known]
        low = [one.value - half for (_, one), half in zip(known, halves, strict=True)]
        high = [one.value + half for (_, one), half in zip(known, halves, strict=True)]
        axes.fill_between(xs, low, high, alpha=0.15, color=line.get_color(), linewidth=0)
    axes.set(title=title, xlabel=x, ylabel=y)
    tops = [one.value for _, points in series for _, one in points if not math.isnan(one.value)]
    if tops and max(tops) > 0:  # A wide band of few runs must not flatten the lines.
        axes.set_ylim(min(0.0, *tops), 1.25 * max(tops))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    paths = [path.with_suffix(f".{kind}") for kind in ("png", "svg")]
    for one in paths:
        # Without a date in it, the same results give the same file.
        figure.savefig(one, dpi=160, metadata={"Date": None} if one.suffix == ".svg" else None)
    plt.close(figure)
    return paths


def _by(
    summary: Summary, x: str, what: str, kinds: Sequence[Any], of: str, where: Callable[[Any], bool], label: str
) -> list[tuple[str, list[tuple[float, Mean]]]]:
    """A line for each value of one parameter."""
    return [(label.format(kind), summary.series(x, what, both(like(**{of: kind}), where))) for kind in kinds]


def _correlation(summary: Summary) -> Iterator[Figure]:
    def usual(run: Any) -> bool:
        same = like(durable=False, news="soon", down_steps=5, step_us=200_000)(run)
        return bool(same and run.setting != "worst case" and run.p_fail <= P_MAX and (run.links or run.p_fail == 0.0))

    words = {"duplicates": "duplicate event messages", "leader_messages": "messages for leader election"}
    for tiers, size in ((PLANT, "14 nodes"), ((1, 4, 10, 20), "70 nodes")):
        for letter, what in (("a", "duplicates"), ("b", "leader_messages")):
            there = both(usual, like(tiers=tiers, p_fail=P_MAX))
            yield (
                f"figure-5{letter}-{what}-{size.replace(' ', '-')}",
                f"Figure 5{letter}: {words[what]} by replicas ({size}, p = 0.1 %)",
                "additional replicas f",
                words[what],
                _by(summary, "f", what, ("ours", "paper"), "setting", there, "{}"),
            )
            lines: list[Any] = []
            for setting in ("ours", "paper"):
                there = both(usual, like(tiers=tiers, setting=setting))
                lines += _by(summary, "p_fail", what, (1, 2, 3), "f", there, f"{setting}, f = {{}}")
            yield (
                f"figure-6{letter}-{what}-{size.replace(' ', '-')}",
                f"Figure 6{letter}: {words[what]} by failure rate ({size})",
                "failure probability of a replica or link in a step",
                words[what],
                [line for line in lines if len(line[1]) > 2],
            )
    yield (
        "figure-4-event-messages",
        "Figure 4: event messages, best and worst case (14 nodes, nothing fails in the worst)",
        "additional replicas f",
        "event messages",
        [
            ("every replica leads", summary.series("f", "event_messages", like(setting="worst case"))),
            (
                "ours",
                summary.series("f", "event_messages", both(usual, like(tiers=PLANT, p_fail=P_MAX, setting="ours"))),
            ),
        ],
    )
    for name, what, title, y in (
        ("figure-7-leader-count", "leader_count", "Figure 7: leaders of a node at once, on average", "leaders"),
        ("figure-8-latency", "latency_ms_mean", "Figure 8: end-to-end latency of situations", "ms"),
    ):
        there = like(durable=True, setting="ours")
        yield (
            name,
            title,
            "failure probability in a step",
            y,
            _by(summary, "p_fail", what, (0, 2, 3), "f", there, "f = {}"),
        )


def _processes(summary: Summary) -> Iterator[Figure]:
    usual = like(masters=0, links=0, mean_ms=100, uplink_us=None, actions=100)
    kinds = (("ours", "ours"), ("paper", "cost model"))
    approaches = [("none", "none", "ours"), ("passive", "passive", "ours"), ("active", "active", "ours")]
    approaches += [(f"{kind} at {ms} ms", f"{kind} at {ms} ms", rules) for rules, kind in kinds for ms in (500, 10_000)]
    for letter, what, y in (
        ("time", "execution_percent", "execution time (%)"),
        ("compensation", "compensation_percent", "compensation cost (%)"),
    ):
        lines = []
        for label, approach, rules in approaches:
            if what == "execution_percent" or approach != "active":
                there = both(usual, like(network="EC2", approach=approach, rules=rules))
                lines.append((label, summary.series("crashed", what, both(there, lambda run: run.degree in (1, 3)))))
        yield f"figure-7-{letter}-3", f"Figure 7: {y} at degree 3, EC2-like", "failures that happened", y, lines
    lines = []
    for label, approach, rules in approaches[1:]:
        calm = both(usual, like(network="EC2", approach=approach, rules=rules, failures=0))
        lines.append((label, summary.series("degree", "state_messages", calm)))
    yield "figure-8-state-messages", "Figure 8: state replication messages", "replication degree", "messages", lines
    times = []
    for rules in ("ours", "paper"):
        for what, masters in (("replication_ms", 0), ("view_change_ms", MASTERS)):
            there = like(
                approach="passive",
                network="PlanetLab",
                failures=0,
                masters=masters,
                rules=rules,
                actions=FEW_ACTIONS,
                uplink_us=None,
            )
            name = "state replication" if masters == 0 else "view change"
            times.append((f"{name}, {rules}", summary.series("degree", what, there)))
    yield (
        "figure-9-times",
        "Figure 9: state replication and view change, PlanetLab-like",
        "replication degree",
        "ms",
        times,
    )
    lines = []
    for degree in (1, 3, 9, 17, 33):
        for rules in ("ours", "paper")[: 1 if degree == 1 else 2]:
            there = both(usual, like(network="PlanetLab", degree=degree, rules=rules))
            lines.append((f"degree {degree}, {rules}", summary.series("crashed", "execution_percent", there)))
    yield (
        "figure-10-planetlab",
        "Figure 10: execution time with failures, PlanetLab-like",
        "failures that happened",
        "execution time (%)",
        lines,
    )


def _channels(summary: Summary) -> Iterator[Figure]:
    settings = ("ours", "paper", "registered")
    yield (
        "messages-by-consumers",
        "Messages for each event on a multicast service, no loss",
        "consumers",
        "messages for each event",
        _by(summary, "consumers", "messages_per_event", settings, "setting", like(loss=0.0, reorders=False), "{}"),
    )
    for what, words in (
        ("delay_ms_mean", "mean delay (ms)"),
        ("delay_ms_p99", "99th percentile of the delay (ms)"),
        ("added_per_event", "messages added for each event"),
    ):
        yield (
            f"{what.replace('_', '-')}-by-loss",
            f"Channel of 16 consumers: {words} by loss rate",
            "loss rate",
            words,
            _by(summary, "loss", what, settings[:2], "setting", like(consumers=16, reorders=False), "{}"),
        )
