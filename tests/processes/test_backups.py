"""Backup executions (process paper, section V-A): a follower's reads count if their input is the decided state."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.processes.alone import INSTANCE, Alone
from unerring import Process, Service
from unerring.processes.messages import Ack, Answer, BackupLog, Replicate, Reply, Request, Vote


class Order(msgspec.Struct):
    item: str = "bolt"
    left: str = ""
    right: str = ""


def reading() -> Process:
    process = Process("order", state=Order, services=[Service("press")])

    @process.action(service="press", writes="left")
    async def one(item: str) -> str: ...

    @process.action(service="press", writes="right")
    async def two(item: str) -> str: ...

    @process.action(service="press", write=True)
    async def book(left: str, right: str) -> None: ...

    return process.flow(process.both([one], [two]), book)


def asked(sent: list[tuple[str, Any]]) -> list[Request]:
    return [message for _, message in sent if isinstance(message, Request)]


def answered(it: Alone, request: Request, kind: str = Answer.DONE) -> list[tuple[str, Any]]:
    return it.hear("service:press", Reply(INSTANCE, request.iid, "do", kind, request.operation))


def following() -> tuple[Alone, list[Request]]:
    it = Alone(reading())
    sent = it.hear(it.others[0], Replicate(0, it.state()))
    return it, asked(sent)


def taking_over(it: Alone, group: int = 0) -> list[Request]:
    it.do("election.ask_again", it.now)
    it.hear(it.others[0], Vote(INSTANCE, 1, 0, it.state(group), (), 0))
    it.hear(it.me, Ack(INSTANCE, 1, group))
    return asked(it.hear(it.others[0], Ack(INSTANCE, 1, group)))


def test_a_follower_reads_what_may_be_read_under_ids_of_its_own() -> None:
    it, requests = following()
    assert [request.iid for request in requests] == ["i/one/0@b1", "i/two/0@b1"]
    assert answered(it, requests[1]) == []
    assert it.record("backup", BackupLog) is None, "a part is not worth a sync"
    assert answered(it, requests[0]) == []
    log = it.record("backup", BackupLog)
    assert [outcome.vertex for outcome in log.outcomes] == ["two", "one"]
    assert sorted(intent.vertex for intent in log.intents) == ["one", "two"]
    assert it.replica.role == "follower"


@pytest.mark.parametrize("crash", [False, True])
def test_what_it_has_read_counts_once_it_leads(crash: bool) -> None:
    it, requests = following()
    for request in requests:
        answered(it, request)
    if crash:
        it.restart()
    assert taking_over(it) == []
    assert it.reports.count("adopted") == 1
    replicated = it.replica.acceptor.accepted
    assert replicated is not None
    assert [taken.iid for taken in replicated.state.taken] == ["i/one/0@1", "i/two/0@1"]
    assert (replicated.state.variables["left"], replicated.state.variables["right"]) == ("one", "two")


def test_a_part_of_it_counts_too_and_the_rest_is_asked_for() -> None:
    it, requests = following()
    answered(it, requests[0])
    [rest] = taking_over(it)
    assert rest.iid == "i/two/0@1"


def test_what_was_refused_or_read_of_another_state_counts_for_nothing() -> None:
    it, requests = following()
    answered(it, requests[0], Answer.REFUSED)
    assert [request.iid for request in taking_over(it)] == ["i/one/0@1", "i/two/0@1"]
    assert it.reports.count("adopted") == 0
    it, requests = following()
    for request in requests:
        answered(it, request)
    assert [request.iid for request in taking_over(it, group=1)] == ["i/one/0@1", "i/two/0@1"]
    assert it.reports.count("adopted") == 0


def test_what_is_not_answered_is_asked_again_until_it_is_of_no_use() -> None:
    it, requests = following()
    answered(it, requests[0])
    retry = it.process.graph.by_name["two"].retry
    again = asked(it.tick(retry.attempt_us))
    assert again == [requests[1]]
    it.hear(it.others[0], Replicate(0, it.state(1)))
    assert answered(it, requests[1], Answer.FINAL) == [], "it has begun anew, under the same ids"
    assert it.replica.backups.execution is None, "a refusal for good: there is nothing to read ahead"
    assert asked(it.tick(retry.attempt_us)) == []
