"""The channel paper's statements on cost. It has no figures; its numbers are 0, 1, 2 and n."""

from __future__ import annotations

from typing import Any, Final

from unerring.evaluation.claims import NOT_MEASURED, OURS, PAPER, Claim, Query
from unerring.evaluation.judges import Less, Shape, Within, about
from unerring.evaluation.summary import like

BOTH: Final = (OURS, PAPER)
NOTHING: Final = Within(-0.001, 0.001)


def _at(consumers: int, loss: float, setting: str, reorders: bool = False) -> Any:
    return like(consumers=consumers, loss=loss, setting=setting, reorders=reorders)


def _each(what: str, consumers: int, loss: float, reorders: bool = False) -> dict[str, tuple[Query, ...]]:
    return {column: (Query(what, _at(consumers, loss, column, reorders)),) for column in BOTH}


CLAIMS: Final[tuple[Claim, ...]] = (
    Claim(
        "Section 1",
        "the extension adds no communication",
        "messages added for each event, no loss, 64 consumers; heartbeats are counted apart",
        NOTHING,
        _each("added_per_event", 64, 0.0),
    ),
    Claim(
        "Section 1",
        "the same with heartbeats counted (the paper has none)",
        "heartbeats for each event, no loss, 64 consumers, ten bursts of 100 events",
        NOTHING,
        _each("heartbeats_per_event", 64, 0.0),
    ),
    Claim(
        "Section 3",
        "the complexity of the service does not change: O(1) a multicast, whatever the number of consumers",
        "messages for each event by 1 to 64 consumers, no loss",
        Shape("constant"),
        {
            column: (Query("messages_per_event", like(loss=0.0, setting=column, reorders=False), "consumers"),)
            for column in BOTH
        },
    ),
    Claim(
        "Section 3",
        "a reliable multicast costs O(n) on a diffusion network",
        "acknowledgements of registered consumers by 1 to 64 consumers, no loss: what the extension avoids",
        Shape(),
        {OURS: (Query("acks", like(loss=0.0, setting="registered", reorders=False), "consumers"),)},
    ),
    Claim(
        "Section 3",
        "a typical reliable multicast costs O(n²) messages on a network without diffusion",
        "every run is on a network with diffusion, and there is no other protocol to count",
        verdict=NOT_MEASURED,
    ),
    Claim(
        "Section 3.1",
        "lost messages are eventually detected by missing numbers",
        "events that 64 consumers never noticed to lack, loss 10 %",
        NOTHING,
        _each("unnoticed", 64, 0.1),
    ),
    Claim(
        "Section 3.2",
        "a lost message costs a request and a replay: 2 messages",
        "messages for each loss, one consumer, loss 5 %",
        about(2.0, " messages"),
        _each("repair_per_loss", 1, 0.05),
        less_is_better=True,
    ),
    Claim(
        "Section 3.2",
        "the same by the loss rate: the cost grows with the losses alone",
        "messages added for each event by seven loss rates from 0 to 20 %, 16 consumers",
        Shape(),
        {
            column: (Query("added_per_event", like(consumers=16, setting=column, reorders=False), "loss"),)
            for column in BOTH
        },
        less_is_better=True,
    ),
    Claim(
        "Section 3.3",
        "delivery is FIFO whether or not the service is",
        "deliveries out of order, a service that reorders and loses 5 %, 16 consumers",
        NOTHING,
        _each("out_of_order", 16, 0.05, True),
    ),
    Claim(
        "Sections 3.2, 3.4",
        "what the producer can no longer send again is an exception for the application",
        "no producer fails here; the tests of channels try it",
        verdict=NOT_MEASURED,
    ),
    Claim(
        "Section 3.1",
        "a service that is not FIFO is asked for what is only late, and the duplicates are discarded",
        "requests where nothing is lost and events overtake each other, 16 consumers, 1 000 events: more than none",
        Within(1.0, 100_000.0),
        {PAPER: (Query("nacks", _at(16, 0.0, PAPER, True)),)},
    ),
    Claim(
        "Sections 1, 2.1",
        "without the extension what the service loses is lost",
        "of 16 000 deliveries (16 consumers, loss 5 %): missing with it, and without it",
        Less(("with", "without"), " events"),
        {column: tuple(Query(what, _at(16, 0.05, column)) for what in ("unnoticed", "lost_pushes")) for column in BOTH},
    ),
    Claim(
        "Sections 3, 4",
        "good performance; push only; channels are not chained",
        "no number is given. On a real CORBA Event Service: see *On a real event service* below",
    ),
    Claim(
        "Better: repair",
        "one push repairs what many consumers lack",
        "messages for each loss, 64 consumers, loss 5 %",
        Less(("ours", "paper's rules")),
        {OURS: tuple(Query("repair_per_loss", _at(64, 0.05, setting)) for setting in BOTH)},
        ours=True,
    ),
    Claim(
        "Better: needless requests",
        "a service that only reorders is not asked for what is on its way",
        "requests, 16 consumers, nothing lost",
        Less(("ours", "paper's rules")),
        {OURS: tuple(Query("nacks", _at(16, 0.0, setting, True)) for setting in BOTH)},
        ours=True,
    ),
    Claim(
        "Better: delay",
        "and events come no later for it",
        "mean delay, 16 consumers, loss 5 %",
        Less(("ours", "paper's rules"), " ms"),
        {OURS: tuple(Query("delay_ms_mean", _at(16, 0.05, setting)) for setting in BOTH)},
        ours=True,
    ),
)
