"""The papers' figures from a sweep: lines with 95 % confidence bands, as PNG and SVG. Loads matplotlib when called."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unerring.evaluation.processes import MASTERS
from unerring.evaluation.summary import Mean, Summary, both, like

Series = Sequence[tuple[str, Sequence[tuple[float, Mean]]]]
"""Lines by their labels."""


def draw(summary: Summary, folder: Path) -> list[Path]:
    """All figures of a sweep's paper; those without points are left out."""
    import matplotlib as mpl

    mpl.use("Agg")
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

    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for (label, points), mark in zip(series, "osD^vP*Xhpd<>" * 3, strict=False):
        known = [(at, one) for at, one in points if not math.isnan(one.value)]
        xs = [at for at, _ in known]
        line = axes.plot(xs, [one.value for _, one in known], marker=mark, markersize=4, linewidth=1.2, label=label)[0]
        halves = [0.0 if math.isnan(one.half) else one.half for _, one in known]
        low = [one.value - half for (_, one), half in zip(known, halves, strict=True)]
        high = [one.value + half for (_, one), half in zip(known, halves, strict=True)]
        axes.fill_between(xs, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    paths = [path.with_suffix(f".{kind}") for kind in ("png", "svg")]
    for one in paths:
        # Without a date in it, the same results give the same file.
        figure.savefig(one, dpi=120, metadata={"Date": None} if one.suffix == ".svg" else None)
    plt.close(figure)
    return paths


def _by(
    summary: Summary, x: str, what: str, kinds: Sequence[Any], of: str, where: Callable[[Any], bool], label: str
) -> Any:
    """A line for each value of one parameter."""
    lines = []
    for kind in kinds:
        one = like(**{of: kind})
        lines.append((label.format(kind), summary.series(x, what, both(one, where))))
    return lines


def _values(summary: Summary, of: str, where: Callable[[Any], bool]) -> list[Any]:
    return sorted({getattr(run, of) for run in summary.runs.values() if where(run)})


def _correlation(summary: Summary) -> Any:
    def volatile(run: Any) -> bool:
        return not run.durable and run.setting == "plain"

    def durable(run: Any) -> bool:
        return bool(run.durable)

    ps, fs = _values(summary, "p_fail", volatile), _values(summary, "f", volatile)
    for number, what, words in (
        ("a", "duplicates", "duplicate event messages"),
        ("b", "leader_messages", "messages for leader election"),
    ):
        yield (
            f"figure-5{number}-{what}",
            f"Figure 5{number}: {words} by replicas",
            "additional replicas f",
            words,
            _by(summary, "f", what, ps, "p_fail", volatile, "p = {:g}"),
        )
        yield (
            f"figure-6{number}-{what}",
            f"Figure 6{number}: {words} by failure rate",
            "failure probability a step",
            words,
            _by(summary, "p_fail", what, fs, "f", volatile, "f = {}"),
        )
    yield (
        "figure-4-event-messages",
        "Figure 4: event messages of all replicas (the worst case would be quadratic)",
        "additional replicas f",
        "event messages",
        _by(summary, "f", "event_messages", ps, "p_fail", volatile, "p = {:g}"),
    )
    fs = _values(summary, "f", durable)
    for name, what, title, y in (
        ("figure-7-leader-count", "leader_count", "Figure 7: leaders of a node at once, on average", "leaders"),
        ("figure-8-latency", "latency_ms_mean", "Figure 8: end-to-end latency of situations", "ms"),
    ):
        yield name, title, "failure probability a step", y, _by(summary, "p_fail", what, fs, "f", durable, "f = {}")
    most = max((run.p_fail for run in summary.runs.values() if run.setting == "ours, resending at once"), default=0.0)
    yield (
        "better-duplicates",
        f"Better: duplicates by what replicas tell each other of acks (p = {most:g})",
        "additional replicas f",
        "duplicate event messages",
        _by(
            summary,
            "f",
            "duplicates",
            _values(summary, "setting", lambda run: True),
            "setting",
            lambda run: not run.durable and run.p_fail == most,
            "{}",
        ),
    )


def _processes(summary: Summary) -> Any:
    approaches = list(dict.fromkeys(run.approach for run in summary.runs.values() if run.network == "EC2"))
    for degree in (3, 9, 17):

        def here(run: Any, degree: int = degree) -> bool:
            return bool(run.network == "EC2" and run.degree in (degree, 1))

        for letter, what, words in (
            ("time", "execution_percent", "execution time (%)"),
            ("compensation", "compensation_percent", "compensation cost (%)"),
        ):
            if what == "execution_percent":
                kinds = approaches
            else:
                kinds = [approach for approach in approaches if approach != "active"]
            yield (
                f"figure-7-{letter}-{degree}",
                f"Figure 7: {words} at degree {degree}, EC2-like",
                "failures",
                words,
                _by(summary, "failures", what, kinds, "approach", here, "{}"),
            )
    still = [approach for approach in approaches if approach != "none"]

    calm = like(network="EC2", failures=0)

    yield (
        "figure-7-compensation-active",
        "Figure 7: compensation cost without failures",
        "replication degree",
        "compensation cost (%)",
        _by(summary, "degree", "compensation_percent", still, "approach", calm, "{}"),
    )
    yield (
        "figure-8-state-messages",
        "Figure 8: state replication messages",
        "replication degree",
        "messages",
        _by(summary, "degree", "state_messages", still, "approach", calm, "{}"),
    )
    times = []
    for network in ("PlanetLab", "EC2"):
        for what, words in (("replication_ms", "state replication"), ("view_change_ms", "view change")):
            masters = MASTERS if (what, network) == ("view_change_ms", "PlanetLab") else 0
            failures = 5 if what == "view_change_ms" and not masters else 0
            passive = like(approach="passive", network=network, failures=failures, masters=masters)
            times.append((f"{words}, {network}-like", summary.series("degree", what, passive)))
    yield "figure-9-times", "Figure 9: state replication and view change", "replication degree", "ms", times
    degrees = _values(summary, "degree", lambda run: run.network == "PlanetLab" and not run.masters)
    yield (
        "figure-10-planetlab",
        "Figure 10: execution time with failures, PlanetLab-like",
        "failures",
        "execution time (%)",
        _by(
            summary,
            "failures",
            "execution_percent",
            degrees,
            "degree",
            lambda run: run.network == "PlanetLab" and not run.masters,
            "degree {}",
        ),
    )


def _channels(summary: Summary) -> Any:
    settings = list(dict.fromkeys(run.setting for run in summary.runs.values()))

    def plain(run: Any) -> bool:
        return not run.reorders

    for loss in _values(summary, "loss", plain):
        yield (
            f"messages-by-consumers-{round(100 * loss)}",
            f"Messages for each event on a multicast service, loss {100 * loss:g} %",
            "consumers",
            "messages for each event",
            _by(
                summary,
                "consumers",
                "messages_per_event",
                settings,
                "setting",
                like(loss=loss, reorders=False),
                "{}",
            ),
        )
    for what, words in (
        ("delay_ms_mean", "mean delay (ms)"),
        ("delay_ms_p99", "99th percentile of the delay (ms)"),
        ("repair_per_loss", "messages for each loss"),
    ):
        yield (
            f"{what.replace('_', '-')}-by-loss",
            f"Channel of 16 consumers: {words} by loss rate",
            "loss rate",
            words,
            _by(summary, "loss", what, settings, "setting", lambda run: plain(run) and run.consumers == 16, "{}"),
        )
