"""The papers' claims in words and numbers, and what a sweep measured for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from unerring.evaluation.correlation import SETTINGS
from unerring.evaluation.processes import MASTERS
from unerring.evaluation.summary import Summary, like


class Claim(msgspec.Struct, frozen=True):
    """One sentence of a paper (or of ours, about doing better), and what was measured."""

    sentence: str
    expected: str
    measured: str
    holds: bool | None
    """None: the sweep has no points for it."""


def claims_of(summary: Summary) -> list[Claim]:
    """All claims of the sweep's paper."""
    derive = {"correlation": _correlation, "processes": _processes, "channels": _channels}[summary.experiment.name]
    return list(derive(summary))


def _claim(sentence: str, expected: str, measured: str, holds: bool, *numbers: float) -> Claim:
    known = not any(math.isnan(number) for number in numbers)
    return Claim(sentence, expected, measured if known else "not measured", holds if known else None)


PAPER_P_MAX: Final = 0.001
"""Figures 5 and 6 go up to there; what ours saves is also measured above."""

# ---- correlation -----------------------------------------------------------------------------------------------------


def _correlation(summary: Summary) -> Iterator[Claim]:
    plain = [
        run for run in summary.runs.values() if not run.durable and run.setting == "plain" and run.p_fail <= PAPER_P_MAX
    ]
    most = max((run.p_fail for run in plain), default=0.0)
    top = max((run.f for run in plain), default=0)
    fs = sorted({run.f for run in plain})
    swept = max(fs, key=lambda f: sum(run.f == f for run in plain), default=0)
    """The number of replicas that was measured at the most rates."""

    def at(f: int, p: float, durable: bool = False, setting: str = "") -> Any:
        return like(f=f, p_fail=p, durable=durable, setting=setting or ("ours" if durable else "plain"))

    for what, figure in (("duplicates", "5a"), ("leader_messages", "5b")):
        line = summary.line("f", what, like(p_fail=most, durable=False, setting="plain"))
        yield _claim(
            f"Figure {figure}: {what.replace('_', ' ')} grow linearly with the replicas (p = {most:g})",
            "a straight line",
            f"{line.slope:,.0f} more for each, R² = {line.r2:.3f}",
            line.r2 >= 0.85,
            line.r2,
        )
    for what, figure in (("duplicates", "6a"), ("leader_messages", "6b")):
        line = summary.line("p_fail", what, lambda run: run in plain and run.f == swept)
        yield _claim(
            f"Figure {figure}: {what.replace('_', ' ')} grow linearly with the failure rate (f = {swept})",
            "a straight line",
            f"{line.slope / 1000:,.0f} more for each 0.1 %, R² = {line.r2:.3f}",
            line.r2 >= 0.85 and line.slope > 0,
            line.r2,
        )
    messages = summary.value("event_messages", at(0, 0.0))
    yield _claim(
        "Section VI: event messages without replication",
        "more than 170 000",
        f"{messages:,.0f}",
        messages > 170_000,
        messages,
    )
    extra = summary.value("duplicates", at(top, most)) / summary.value("event_messages", at(top, most))
    yield _claim(
        f"Section VIII: duplicates are marginal against all event messages (f = {top}, p = {most:g})",
        "marginal",
        f"{100 * extra:.2f} %",
        extra < 0.05,
        extra,
    )
    counts = [summary.value("leader_count", at(run.f, run.p_fail)) for run in plain]
    yield _claim(
        "Figure 7: the average leader count is close to 1",
        "close to 1",
        f"{min(counts, default=math.nan):.3f} to {max(counts, default=math.nan):.3f}",
        all(0.97 <= count <= 1.03 for count in counts),
        *counts[:1],
    )
    fragile = [summary.value("leader_count", at(f, 0.1, True)) for f in (0, 2)]
    yield _claim(
        "Figure 7: it falls below 1 where nodes are very unreliable (p = 0.1), less so with more replicas",
        "below 1",
        f"{fragile[0]:.3f} without replicas, {fragile[1]:.3f} with f = 2",
        fragile[0] < 0.95 and fragile[0] < fragile[1],
        *fragile,
    )
    alone, three, bare = (summary.value("latency_ms_mean", at(f, p, True)) for f, p in ((0, 0.005), (2, 0.1), (0, 0.1)))
    yield _claim(
        "Figure 8: latency of three replicas at p = 0.1 is almost that of no replicas at p = 0.005",
        "almost the same",
        f"{three:.0f} ms against {alone:.0f} ms (without replicas at p = 0.1: {bare:.0f} ms)",
        three < 2 * alone and three < bare / 2,
        alone,
        three,
        bare,
    )
    compared = {(run.f, run.p_fail) for run in summary.runs.values() if run.setting == "ours, resending at once"}
    for f, p in sorted(compared):
        duplicates = [summary.value("duplicates", at(f, p, setting=setting)) for setting in SETTINGS]
        delays = [summary.value("latency_ms_mean", at(f, p, setting=setting)) for setting in SETTINGS]
        yield _claim(
            f"Better: acks gossiped for each receiver save duplicates, asking first nearly all (f = {f}, p = {p:g})",
            "fewer than with lists of completely acknowledged events",
            "; ".join(f"{s}: {n:,.1f} ({ms:.1f} ms)" for s, n, ms in zip(SETTINGS, duplicates, delays, strict=True)),
            duplicates[2] < duplicates[1] < duplicates[0] and duplicates[3] < duplicates[1],
            *duplicates,
        )


def _wide(where: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Degrees from 5 on: the paper finds the line there."""
    return lambda run: where(run) and run.degree > 3


# ---- processes -------------------------------------------------------------------------------------------------------


def _processes(summary: Summary) -> Iterator[Claim]:
    def at(degree: int, approach: str, failures: int = 0, network: str = "EC2", masters: int = 0) -> Any:
        return like(degree=degree, approach=approach, failures=failures, network=network, masters=masters)

    for degree, percent in ((3, 5), (17, 10)):
        over = summary.value("execution_percent", at(degree, "passive")) - 100
        yield _claim(
            f"Figure 7: passive replication delays the execution at degree {degree}",
            f"{percent} %",
            f"{over:.1f} %",
            percent / 2.5 <= over <= percent * 1.5,
            over,
        )
    plain = summary.value("state_messages", at(3, "passive"))
    for approach, part, low, high in (
        ("cost model at 500 ms", "a third", 0.25, 0.45),
        ("cost model at 10000 ms", "more than half", 0.5, 1.0),
    ):
        saved = 1 - summary.value("state_messages", at(3, approach)) / plain
        yield _claim(
            f"Figure 8: the {approach} saves state replication messages",
            part,
            f"{100 * saved:.0f} %",
            low <= saved <= high,
            saved,
        )
    for approach in ("passive", "cost model at 500 ms", "active"):
        line = summary.line(
            "degree",
            "state_messages",
            like(approach=approach, failures=0, network="EC2"),
        )
        yield _claim(
            f"Figure 8: messages of {approach} grow linearly with the degree",
            "linear",
            f"R² = {line.r2:.4f}",
            line.r2 > 0.98,
            line.r2,
        )
    for degree, percent in ((3, 200), (9, 800), (17, 1600)):
        cost = summary.value("compensation_percent", at(degree, "active"))
        yield _claim(
            f"Figure 7: active replication compensates without any failure at degree {degree}",
            f"{percent} %",
            f"{cost:.0f} %",
            abs(cost - percent) < 0.01 * percent,
            cost,
        )
    lone, replicated = (summary.value("execution_percent", at(d, a, 1)) for d, a in ((1, "none"), (3, "passive")))
    yield _claim(
        "Section VI: with a single failure any replication is worth its overhead",
        "faster than without replicas",
        f"{replicated:.0f} % of the time against {lone:.0f} %",
        replicated < lone,
        lone,
        replicated,
    )
    for what, (short, long), name in (
        ("replication_ms", (80, 120), "state replication"),
        ("view_change_ms", (140, 220), "a view change"),
    ):
        masters = 0 if what == "replication_ms" else MASTERS
        line = summary.line(
            "degree",
            what,
            _wide(like(approach="passive", failures=0, network="PlanetLab", masters=masters)),
        )
        ends = [summary.value(what, at(d, "passive", 0, "PlanetLab", masters)) for d in (3, 33)]
        yield _claim(
            f"Figure 9: {name} on PlanetLab takes linearly longer from degree 5 to 33",
            f"{short} to {long} ms",
            f"{ends[0]:.0f} to {ends[1]:.0f} ms, R² = {line.r2:.3f}",
            line.slope > 0 and line.r2 > 0.8 and ends[1] < 1.5 * long,
            line.r2,
            *ends,
        )
    near = [summary.value("replication_ms", at(17, "passive")), summary.value("view_change_ms", at(17, "passive", 10))]
    yield _claim(
        "Figure 9: on EC2 at degree 17 a state replication and a view change take",
        "below 10 ms; about 50 ms",
        f"{near[0]:.1f} ms; {near[1]:.0f} ms",
        near[0] < 10 and not near[1] > 60,
        near[0],
    )
    masked = [summary.value("execution_percent", at(17, "passive", k, "PlanetLab")) for k in (0, 10)]
    single = [summary.value("execution_percent", at(1, "none", k, "PlanetLab")) for k in (0, 10)]
    yield _claim(
        "Figure 10: degree 17 remains unaffected by 10 failures, a single node does not",
        "unaffected",
        f"{masked[0]:.0f} % to {masked[1]:.0f} % at degree 17, {single[0]:.0f} % to {single[1]:.0f} % without replicas",
        masked[1] - masked[0] < 0.2 * (single[1] - single[0]),
        *masked,
        *single,
    )
    for threshold in ("500 ms", "10000 ms"):
        kinds = ("cost model", "greedy", "ours")
        sent = [summary.value("state_messages", at(3, f"{kind} at {threshold}")) for kind in kinds]
        undone = [summary.value("compensation_percent", at(3, f"{kind} at {threshold}", 10)) for kind in kinds]
        yield _claim(
            f"Better: fewer state replication messages at the same failover bound of {threshold} (degree 3)",
            "fewer than the paper's grouping",
            f"{sent[0]:.0f} as in the paper, {sent[2]:.0f} ours; with 10 failures it compensates {undone[0]:.1f} %, "
            f"filled groups {undone[1]:.1f} %, ours {undone[2]:.1f} %",
            sent[2] < sent[0],
            *sent,
        )


# ---- channels --------------------------------------------------------------------------------------------------------


def _channels(summary: Summary) -> Iterator[Claim]:
    def at(consumers: int, loss: float, setting: str, reorders: bool = False) -> Any:
        return like(consumers=consumers, loss=loss, setting=setting, reorders=reorders)

    for setting in ("paper", "ours"):
        series = summary.series(
            "consumers",
            "added_per_event",
            like(loss=0.0, setting=setting, reorders=False),
        )
        most = max((one.value for _, one in series), default=math.nan)
        yield _claim(
            f"Section 3: without loss no message is added, whatever the number of consumers ({setting})",
            "0 for each event",
            f"{most:g} for each event, 1 to {max((x for x, _ in series), default=0):g} consumers",
            most == 0,
            most,
        )
    beats = summary.value("heartbeats", at(16, 0.0, "ours")) / summary.value("events", at(16, 0.0, "ours"))
    yield _claim(
        "Ours, counted apart: a heartbeat after a burst", "sporadic", f"{beats:.3f} for each event", beats < 0.1, beats
    )
    repair = summary.value("repair_per_loss", at(1, 0.05, "paper"))
    yield _claim(
        "Section 3.2: a lost message costs a request and a replay",
        "2 messages",
        f"{repair:.2f}",
        1.5 < repair < 2.6,
        repair,
    )
    for setting in ("paper", "ours"):
        line = summary.line("loss", "delay_ms_mean", like(consumers=16, setting=setting, reorders=False))
        yield _claim(
            f"Delay grows with the loss rate ({setting}, 16 consumers)",
            "no number is given",
            f"{line.intercept:.2f} ms and {line.slope / 100:.2f} ms for each percent, R² = {line.r2:.3f}",
            line.slope > 0,
            line.r2,
        )
    acks = [
        summary.value("acks", at(n, 0.0, "registered")) / summary.value("events", at(n, 0.0, "registered"))
        for n in (1, 64)
    ]
    yield _claim(
        "Section 3: acknowledgements would cost O(n); ours come at intervals, for registered consumers only",
        "n for each event",
        f"{acks[0]:.2f} at 1 consumer, {acks[1]:.1f} at 64",
        acks[1] < 64,
        *acks,
    )
    theirs, ours = (summary.value("repair_per_loss", at(64, 0.05, s)) for s in ("paper", "ours"))
    yield _claim(
        "Better: with 64 consumers that lack the same, one push repairs many (loss 5 %)",
        "fewer messages for each loss",
        f"{theirs:.2f} as in the paper, {ours:.2f} ours",
        ours < theirs,
        theirs,
        ours,
    )
    late = [summary.value("nacks", at(16, 0.0, s, True)) for s in ("paper", "ours")]
    yield _claim(
        "Better: a service that only reorders is not asked for what is on its way (16 consumers, 1000 events)",
        "fewer needless requests",
        f"{late[0]:.0f} as in the paper, {late[1]:.0f} ours",
        late[1] < late[0],
        *late,
    )
    unnoticed = [summary.value("unnoticed", at(64, 0.1, s)) for s in ("paper", "ours")]
    yield _claim(
        "Better: what is lost at the end of the last burst is noticed (64 consumers, loss 10 %)",
        "0",
        f"{unnoticed[0]:.1f} events unnoticed as in the paper, {unnoticed[1]:.0f} ours",
        unnoticed[1] == 0,
        *unnoticed,
    )
