"""The correlation paper's section VI, sentence by sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from unerring.evaluation.claims import NOT_MEASURED, OURS, PAPER, Claim, Query
from unerring.evaluation.factory import STEPS, TIERS
from unerring.evaluation.grids import HIGH, P_MAX, PLANT, SHOP
from unerring.evaluation.judges import Less, Rising, Shape, Together, Within, about
from unerring.evaluation.summary import like

BOTH: Final = (OURS, PAPER)


def _volatile(setting: str, tiers: tuple[int, ...] = TIERS, **fixed: Any) -> Any:
    usual = {"durable": False, "news": "soon", "down_steps": 5, "step_us": 200_000}
    return like(**{**usual, "setting": setting, "tiers": tiers, **fixed})


def _durable(f: int, p: float, setting: str = OURS) -> Any:
    return like(durable=True, setting=setting, f=f, p_fail=p)


def _curve(what: str, x: str, **fixed: Any) -> Mapping[str, tuple[Query, ...]]:
    return {column: (Query(what, _failing(_volatile(column, **fixed)), x),) for column in BOTH}


def _failing(where: Any) -> Any:
    """Where links fail too, and where nothing fails at all; up to the paper's highest rate."""
    return lambda run: where(run) and run.p_fail <= P_MAX and (run.links or run.p_fail == 0.0)


def _one(what: str, where: Any) -> Query:
    return Query(what, where)


def _high(f: int, setting: str = OURS, **fixed: Any) -> Any:
    return _volatile(setting, **{"tiers": PLANT, "f": f, "p_fail": HIGH, "links": True, **fixed})


def _by_replicas(what: str) -> Mapping[str, tuple[Query, ...]]:
    return {
        column: tuple(_one(what, _failing(_volatile(column, tiers=PLANT, f=f, p_fail=P_MAX))) for f in (1, 2, 3))
        for column in BOTH
    }


def _by_rate(what: str, f: int) -> Mapping[str, tuple[Query, ...]]:
    return {OURS: (Query(what, like(durable=True, setting=OURS, f=f), "p_fail"),)}


_BY_F: Final = {"p_fail": P_MAX}

_EIGHT: Final = (("10 % and 0.5 %", 0.1, 0.005), ("0.1 % and 0.005 %", 0.001, 0.00005))


def _eight() -> tuple[Claim, ...]:
    """Figure 8 under both readings of p, and of "three replicas"."""
    return tuple(
        Claim(
            "Figure 8",
            f"three replicas at p = 0.1 are almost as quick as none at p = 0.005 (read as {percent})",
            f"mean latency, durable replicas that may all be down; three {kind} replicas (f = {f})",
            about(1.0, form="ratio"),
            {
                column: (
                    _one("latency_ms_mean", _durable(0, low, column)),
                    _one("latency_ms_mean", _durable(f, high, column)),
                )
                for column in BOTH
            },
            less_is_better=True,
            chosen="reading",
        )
        for percent, high, low in _EIGHT
        for f, kind in ((2, "in all,"), (3, "additional"))
    )


CLAIMS: Final[tuple[Claim, ...]] = (
    Claim(
        "Section VI",
        "70 nodes; more than 40 000 primary events",
        "the factory of section II at full size, f = 0; the band ends 20 % above",
        Within(40_000, 48_000),
        {OURS: (_one("primary_events", _volatile(OURS, f=0, p_fail=0.0, steps=STEPS)),)},
        chosen="factory",
    ),
    Claim(
        "Section VI",
        "about 13 000 situations reach the management",
        "the same run",
        about(13_000),
        {OURS: (_one("situations", _volatile(OURS, f=0, p_fail=0.0, steps=STEPS)),)},
        chosen="factory",
    ),
    Claim(
        "Section VI",
        "more than 170 000 event messages without replication",
        "the same run; the band ends 15 % above",
        Within(170_000, 195_500),
        {OURS: (_one("event_messages", _volatile(OURS, f=0, p_fail=0.0, steps=STEPS)),)},
        chosen="factory",
    ),
    Claim(
        "Section VI",
        "in normal operation the overhead in event messages grows linearly with f",
        f"tiers {SHOP}, f = 0 to 6, nothing fails",
        Shape(),
        {column: (Query("event_messages", _volatile(column, tiers=SHOP, p_fail=0.0), "f"),) for column in BOTH},
    ),
    Claim(
        "Sections V, VIII",
        "replication multiplies the event messages, without failures too: by f + 1 in the best case",
        "the same runs, f = 3 against f = 0: 4, 15 % up or down",
        about(4.0, form="ratio"),
        {
            column: tuple(_one("event_messages", _volatile(column, tiers=SHOP, p_fail=0.0, f=f)) for f in (0, 3))
            for column in BOTH
        },
    ),
    Claim(
        "Figure 4a, section V",
        "best case: event messages grow linearly with f",
        "full size, f up to 5 (6 with --full), p = 0.1 % with link failures (f = 0: only links fail)",
        Shape(),
        _curve("event_messages", "f", **_BY_F),
    ),
    Claim(
        "Section VIII",
        "the message overhead stays linear even under high failure rates",
        f"event messages, tiers {PLANT}, f = 0 to 5, p = 1 % (ten times the paper's highest) for replicas and links",
        Shape(),
        {
            column: (Query("event_messages", _volatile(column, tiers=PLANT, p_fail=HIGH, links=True), "f"),)
            for column in BOTH
        },
    ),
    Claim(
        "Figure 4b, section V",
        "worst case O(f²): each replica takes itself for the leader and sends to all",
        f"a factory of tiers {PLANT}, f = 0 to 6, no failure; every replica made to lead; events that were sent twice",
        Shape("quadratic"),
        {PAPER: (Query("duplicates", like(setting="worst case"), "f"),)},
    ),
    Claim(
        "Figure 5a",
        "duplicate event messages grow linearly with f",
        f"tiers {PLANT}, f up to 5 (6 with --full), p = 0.1 % a step for replicas and links",
        Shape(),
        _curve("duplicates", "f", tiers=PLANT, **_BY_F),
        less_is_better=True,
    ),
    Claim(
        "Figure 5b",
        "messages for leader election grow linearly with f",
        "the same runs; the first election is not counted",
        Shape(),
        _curve("leader_messages", "f", tiers=PLANT, **_BY_F),
        less_is_better=True,
    ),
    *(
        Claim(
            figure,
            f"{words} grow linearly with f, at ten times the paper's highest rate",
            f"tiers {PLANT}, f = 0 to 5, p = 1 % for replicas and links: more happens, and varies less",
            Shape(),
            {column: (Query(what, _volatile(column, tiers=PLANT, p_fail=HIGH, links=True), "f"),) for column in BOTH},
            less_is_better=True,
        )
        for figure, words, what in (
            ("Figure 5a", "duplicate event messages", "duplicates"),
            ("Figure 5b", "messages for leader election", "leader_messages"),
        )
    ),
    *(
        Claim(
            "Figure 5, why",
            says,
            f"the same runs{axis}; ours, not the paper's sentence",
            Shape(shape),
            {column: (Query(what, _volatile(column, tiers=PLANT, p_fail=HIGH, links=True), x),) for column in BOTH},
        )
        for says, axis, shape, what, x in (
            ("the links that fail grow as the square of f", "", "quadratic", "links_failed", "f"),
            (
                "duplicates grow linearly with the links that failed",
                ", by failed links",
                "linear",
                "duplicates",
                "links_failed",
            ),
            ("and so do leader messages", ", by failed links", "linear", "leader_messages", "links_failed"),
        )
    ),
    Claim(
        "Figure 5a, full size",
        "duplicate event messages grow linearly with f",
        "70 nodes, the same f",
        Shape(),
        _curve("duplicates", "f", **_BY_F),
        less_is_better=True,
    ),
    *(
        Claim(
            figure,
            f"{words} grow linearly with the failure rate",
            f"tiers {PLANT}, f = {f}, six rates from 0 to 0.1 %",
            Shape(),
            _curve(what, "p_fail", tiers=PLANT, f=f),
            less_is_better=True,
        )
        for figure, words, what in (
            ("Figure 6a", "duplicates", "duplicates"),
            ("Figure 6b", "leader messages", "leader_messages"),
        )
        for f in (1, 2)
    ),
    *(
        Claim(
            "Section VI, on figure 6",
            f"the more replicas, the steeper: {words}",
            f"tiers {PLANT}, p = 0.1 %, f = 1, 2, 3",
            Less(("f = 1", "2", "3")),
            _by_replicas(what),
            less_is_better=True,
        )
        for words, what in (("duplicates", "duplicates"), ("leader messages", "leader_messages"))
    ),
    Claim(
        "Section VI, on figure 6",
        "leader messages fluctuate more with more replicas",
        "the same runs: the standard deviation from seed to seed",
        Less(("f = 1", "2", "3"), spreads=True),
        _by_replicas("leader_messages"),
    ),
    Claim(
        "Section VI, on figure 6",
        "their number depends on the links, and on who proposes itself first",
        "every run has the same kind of links, and who proposes itself first is not recorded",
        verdict=NOT_MEASURED,
    ),
    *(
        Claim(
            "Sections VI, VIII",
            f"{words} are marginal against all event messages",
            "full size, f = 3, p = 0.1 %: for each event message; we take marginal as below 1 %",
            Within(-0.01, 0.01, form="ratio"),
            {
                column: tuple(
                    _one(one, _failing(_volatile(column, f=3, p_fail=P_MAX))) for one in ("event_messages", what)
                )
                for column in BOTH
            },
        )
        for words, what in (("duplicates", "duplicates"), ("leader messages", "leader_messages"))
    ),
    Claim(
        "Section VIII",
        "both together, under a high failure rate",
        f"tiers {PLANT}, f = 3, p = 1 %: for each event message; we take marginal as below 1 %",
        Within(-0.01, 0.01, form="ratio"),
        {
            column: tuple(_one(what, _high(3, column)) for what in ("event_messages", "duplicates", "leader_messages"))
            for column in BOTH
        },
    ),
    Claim(
        "Section VI",
        "most of the time one leader alone is active",
        f"tiers {PLANT}, f = 2, p = 1 %: the part of samples with more than one; we take most as 95 %",
        Within(-0.05, 0.05),
        {column: (_one("crowded", _high(2, column)),) for column in BOTH},
    ),
    Claim(
        "Section VI",
        "the fewer leaders at once, the fewer duplicates",
        f"tiers {PLANT}, f = 2, p = 1 %: over the seeds, the part of samples with several leaders, and duplicates",
        Together(),
        {column: tuple(_one(what, _high(2, column)) for what in ("crowded", "duplicates")) for column in BOTH},
    ),
    Claim(
        "Figure 7",
        "on average one leader leads a node, very nearly",
        f"tiers {PLANT}, f = 2, p = 0.1 %, sampled four times a step; within 1 %",
        Within(0.99, 1.01),
        {
            column: (_one("leader_count", _failing(_volatile(column, tiers=PLANT, f=2, p_fail=P_MAX))),)
            for column in BOTH
        },
    ),
    Claim(
        "Figure 7",
        "fewer than one where nodes are very unreliable and no replica is left",
        "durable replicas, f = 0, p = 10 % a step: above half, below 0.95 (the paper gives no number)",
        Within(0.5, 0.95),
        {OURS: (_one("leader_count", _durable(0, 0.1)),)},
    ),
    *(
        Claim(
            "Figure 7",
            f"the count falls the more unreliable the nodes are: f = {f}",
            "durable replicas, six rates from 0.005 to 10 %",
            Rising(falls=True),
            _by_rate("leader_count", f),
        )
        for f in (0, 2)
    ),
    Claim(
        "Section VI, on figure 7",
        "several leaders occur when a replica wrongly takes the leader for dead",
        f"tiers {PLANT}, f = 2, p = 1 %: samples with more than one leader, with news of a crash within 0.6 ms, "
        "within 500 ms, and never (links fail in all): the less is known of crashes, the more",
        Less(("news soon", "late", "lost")),
        {OURS: tuple(_one("crowded", _high(2, news=news)) for news in ("soon", "late", "lost"))},
    ),
    Claim(
        "Figure 7, late and lost news",
        "close to one although news of a crash is lost",
        f"tiers {PLANT}, f = 2, p = 1 %, silence alone tells of a crash; within 5 %",
        Within(0.95, 1.05),
        {OURS: (_one("leader_count", _volatile(OURS, tiers=PLANT, f=2, p_fail=0.01, links=True, news="lost")),)},
    ),
    *_eight(),
    *(
        Claim(
            "Figure 8",
            f"a higher failure rate delays: f = {f}",
            "mean latency, durable replicas, six rates from 0.005 to 10 %",
            Rising(unit=" ms"),
            _by_rate("latency_ms_mean", f),
        )
        for f in (0, 2)
    ),
    Claim(
        "Section VI, on figure 8",
        "the more so the fewer replicas there are",
        "durable replicas: what p = 10 % adds over 0.1 %, by f = 3, 2, 0",
        Less(("f = 3", "f = 2", "f = 0"), " ms", added=True),
        {
            column: tuple(_one("latency_ms_mean", _durable(f, p, column)) for f in (3, 2, 0) for p in (0.1, P_MAX))
            for column in BOTH
        },
    ),
    Claim(
        "Figure 8, absolute latencies",
        "milliseconds on the axis",
        "the paper does not say how long a simulation step is: ours is 200 ms, so only relations compare",
    ),
    Claim(
        "Better: duplicates",
        "asking receivers first sends less twice than the paper's lists",
        f"tiers {PLANT}, f = 2, p = 1 % with link failures, news soon",
        Less(("ours", "paper's lists")),
        {
            OURS: tuple(
                _one("duplicates", _volatile(setting, tiers=PLANT, f=2, p_fail=0.01, links=True))
                for setting in (OURS, PAPER)
            )
        },
        ours=True,
    ),
    Claim(
        "Better: latency",
        "and a situation comes no later for it",
        "the same runs, mean latency: ours at most 5 % above",
        Within(0.0, 1.05, form="ratio"),
        {
            OURS: tuple(
                _one("latency_ms_mean", _volatile(setting, tiers=PLANT, f=2, p_fail=0.01, links=True))
                for setting in (PAPER, OURS)
            )
        },
        ours=True,
    ),
)
