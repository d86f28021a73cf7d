"""What an answer over HTTP means where no filter says it: a 4xx did nothing, a refused connection neither, and what did
nothing is not executed in order to be undone."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from unerring import Embedded, Process, Service
from unerring.model import InstanceFailed
from unerring.processes.config import ProcessesConfig
from unerring.processes.execution import Execution
from unerring.processes.graph import Retry
from unerring.processes.messages import Answer, GroupLog, Intent, Outcome, Reply, Request, State
from unerring.processes.undo import Undo, UndoStep, steps_of_log
from unerring.runtime.services import HttpService, IdempotencyFilter, SqliteStore

QUICK = Retry(attempts_max=2, backoff_us=1_000, backoff_max_us=1_000)


class Order(msgspec.Struct):
    item: str = ""
    receipt: str = ""


def order(filters: bool = False, retry: Retry = QUICK) -> Process:
    service = Service("shop", filters=filters, cancels=False)
    process = Process("order", state=Order, services=[service], on_failure="hold")

    @process.action(service="shop", writes="receipt", write=True, compensation="give_back", retry=retry)
    async def sell(item: str) -> str: ...

    return process.flow(sell)


class Shop:
    """A plain HTTP service without a filter. `status` is what it answers; it writes down what it is asked."""

    def __init__(self) -> None:
        self.status = 200
        self.asked: list[str] = []


@contextmanager
def serving(shop: Shop, port: int = 0) -> Iterator[str]:
    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            shop.asked.append(f"{self.path} {self.headers['idempotency-key']}")
            self.send_response(shop.status)
            self.send_header("content-length", "6")
            self.end_headers()
            self.wfile.write(b'"sold"')

        def log_message(self, *words: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", port), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def come(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(600):
        while not holds():
            await asyncio.sleep(0.005)


def test_a_4xx_is_a_refusal_and_what_was_refused_is_not_executed_to_be_undone(tmp_path: Path) -> None:
    shop = Shop()
    shop.status = 409

    async def main(url: str) -> None:
        async with Embedded([order()], tmp_path / "n.db", {"shop": HttpService(url)}) as engine:
            await engine.start("order", "o1", item="bolt")
            await come(lambda: engine.query("o1")["status"] == "held")
            assert "shop refused sell: sold" in engine.query("o1")["reason"]
            refused = list(shop.asked)
            assert len(refused) == len(set(refused)) <= 6, "each refusal is final for its occurrence"
            shop.status = 200
            await engine.retry("o1")
            await engine.result("o1")
            await come(lambda: engine.query("o1")["clean"])
            assert len(shop.asked) == len(refused) + 1

    with serving(shop) as url:
        asyncio.run(main(url))


def test_a_refused_connection_did_nothing_and_there_is_nothing_to_undo(tmp_path: Path) -> None:
    shop = Shop()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]

    async def main() -> None:
        service = HttpService(f"http://127.0.0.1:{port}")
        async with Embedded([order()], tmp_path / "n.db", {"shop": service}) as engine:
            await engine.start("order", "o1", item="bolt")
            await come(lambda: engine.query("o1")["status"] == "held")
            assert "shop was not reached for sell: ConnectError" in engine.query("o1")["reason"]
            with serving(shop, port):
                await engine.retry("o1")
                await engine.result("o1")
                await come(lambda: engine.query("o1")["clean"])
            assert [line.split()[0] for line in shop.asked] == ["/sell"]

    asyncio.run(main())


# ---- what the machine makes of it ------------------------------------------------------------------------------------


def begun(final: bool = False, executed_in: int = 0) -> tuple[Execution, Request]:
    process = order(filters=True) if not final else ship()
    state = process.graph.start
    first = State("i", "order", "", 0, (), state, process.initial({}))
    execution = Execution(process, first, executed_in, tuple(process.graph.by_name), {})
    return execution, execution.advance(0)[0]


def ship() -> Process:
    process = Process("order", state=Order, services=[Service("shop")])

    @process.action(service="shop", writes="receipt", write=True, compensable=False)
    async def sell(item: str) -> str: ...

    return process.flow(sell)


def answered(request: Request, answer: str, recorded: bool = True) -> Reply:
    return Reply(request.instance, request.iid, request.mode, answer, "why", recorded)


def test_an_unrecorded_refusal_counts_if_no_other_attempt_can_have_had_the_effect() -> None:
    execution, asked = begun()
    again = execution.reply(answered(asked, Answer.REFUSED, recorded=False), 1)
    assert [request.iid for request in again] == ["i/sell/1@0"], "the next occurrence"


@pytest.mark.parametrize("first", ["silence", Answer.UNKNOWN])
def test_an_unrecorded_refusal_after_an_unknown_outcome_says_nothing_of_it(first: str) -> None:
    """The first attempt may have been done, and be why the second is refused."""
    execution, asked = begun()
    if first != "silence":
        execution.reply(answered(asked, first), 1)
    assert execution.tick(10_000_000) == [asked]
    assert execution.reply(answered(asked, Answer.REFUSED, recorded=False), 10_000_001) == []
    assert execution.tick(20_000_000) == []
    assert execution.aborted == "what became of sell is unknown: why"
    assert [step.iid for step in steps_of_log(execution.graph, "i", execution.log())] == [asked.iid]


def test_a_recorded_refusal_counts_whatever_happened_before() -> None:
    execution, asked = begun()
    execution.tick(10_000_000)
    assert [r.iid for r in execution.reply(answered(asked, Answer.REFUSED), 10_000_001)] == ["i/sell/1@0"]


def test_what_was_never_reached_is_not_undone_and_what_may_have_been_is() -> None:
    execution, asked = begun()
    execution.reply(answered(asked, Answer.UNREACHED), 1)
    execution.tick(10_000_000)
    execution.reply(answered(asked, Answer.UNREACHED), 10_000_001)
    execution.tick(20_000_000)
    assert execution.aborted == "shop was not reached for sell: why"
    assert steps_of_log(execution.graph, "i", execution.log()) == []
    execution, asked = begun()
    execution.tick(10_000_000)  # no answer came
    execution.reply(answered(asked, Answer.UNREACHED), 10_000_001)
    execution.tick(20_000_000)
    assert execution.aborted == "what became of sell is unknown: why"
    assert len(steps_of_log(execution.graph, "i", execution.log())) == 1


def test_a_restarted_master_and_one_of_a_later_view_are_in_doubt() -> None:
    execution, asked = begun()
    resumed = Execution(execution.process, execution.input, 0, execution.vertices, {})
    resumed.resume((Intent("sell", 0, asked.payload),), ())
    (again,) = resumed.advance(0)
    assert resumed.reply(answered(again, Answer.REFUSED, recorded=False), 1) == []
    assert resumed.open, "a request of before the restart may have had the effect"
    later, asked = begun(final=True, executed_in=3)
    assert later.reply(answered(asked, Answer.REFUSED, recorded=False), 1) == []
    assert later.open, "the id is the same in all views, and another master may have asked"


def undo_of_unknown(process: Process) -> tuple[Undo, Request]:
    log = GroupLog(0, 1, (), ("sell",), {}, (Intent("sell", 0, {"item": "bolt"}),), ())
    undo = Undo(process.graph, steps_of_log(process.graph, "i", log), 1, ProcessesConfig())
    request = undo.tick(0)
    assert request is not None
    return undo, request


def test_where_nothing_is_recorded_an_unknown_outcome_is_compensated_not_executed() -> None:
    _, request = undo_of_unknown(order(filters=False))
    assert (request.mode, request.operation, request.iid) == ("undo", "give_back", "i/sell/0@0~")
    assert request.payload == {"request": {"item": "bolt"}, "reply": None}


def test_a_local_function_that_fails_is_compensated_without_being_called_for_it(tmp_path: Path) -> None:
    called: list[str] = []
    undone: list[object] = []
    process = Process("order", state=Order)

    async def give_back(request: dict[str, str], reply: object) -> None:
        undone.append((request["item"], reply))

    @process.action(writes="receipt", write=True, compensation=give_back, retry=QUICK)
    async def sell(item: str, interaction: str) -> str:
        called.append(interaction)
        raise RuntimeError("broken")

    process.flow(sell)

    async def main() -> None:
        async with Embedded([process], tmp_path / "n.db") as engine:
            await engine.start("order", "o1", item="bolt")
            with pytest.raises(InstanceFailed, match=r"what became of sell is unknown: .*broken"):
                await asyncio.wait_for(engine.result("o1"), 600)

    asyncio.run(main())
    views = sorted(set(called))
    assert called == [iid for iid in views for _ in range(QUICK.attempts_max)], "only to be done, never to be undone"
    assert undone == [("bolt", None)] * len(views)


def test_where_ids_are_recorded_an_unknown_outcome_is_settled_without_executing_it(tmp_path: Path) -> None:
    class Till:
        def __init__(self) -> None:
            self.asked: list[str] = []

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            self.asked.append(scope["path"])
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b'"sold"'})

    async def main() -> None:
        till, store = Till(), SqliteStore(tmp_path / "shop.db")
        service = HttpService("http://shop", transport=httpx.ASGITransport(app=IdempotencyFilter(till, store)))
        undo, request = undo_of_unknown(order(filters=True))
        assert request.settle
        reply = await service.ask(request)
        assert (reply.answer, till.asked) == (Answer.FENCED, [])
        assert undo.reply(reply, 1)
        assert undo.finished
        late = msgspec.structs.replace(request, settle=False)
        assert (await service.ask(late)).answer == Answer.FENCED, "the late original has no effect"
        other = msgspec.structs.replace(request, iid="i/sell/1@0", settle=False)
        assert (await service.ask(other)).answer == Answer.DONE
        settled = await service.ask(msgspec.structs.replace(other, settle=True))
        assert (settled.answer, settled.value, till.asked) == (Answer.DONE, "sold", ["/sell"])
        await service.close()
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "meaning"),
    [(200, "done"), (204, "done"), (301, "unknown"), (400, "refused"), (404, "refused"), (409, "refused")]
    + [(410, "final"), (422, "refused"), (408, "unknown"), (425, "unknown"), (429, "unknown"), (500, "unknown")],
)
def test_what_a_status_means_without_a_filter(status: int, meaning: str) -> None:
    async def main() -> Reply:
        service = HttpService("http://x", transport=httpx.MockTransport(lambda request: httpx.Response(status)))
        return await service.ask(Request("i", "i/a/0@0", "x", "op", {}))

    reply = asyncio.run(main())
    assert (reply.answer, reply.recorded) == (meaning, meaning not in ("refused", "final"))


def test_a_step_with_a_known_outcome_has_none_to_settle() -> None:
    graph = order(filters=True).graph
    log = GroupLog(0, 1, (), ("sell",), {}, (Intent("sell", 0, {}),), (Outcome("sell", 0, Answer.DONE, "r"),))
    steps: list[UndoStep] = steps_of_log(graph, "i", log)
    assert [step.unknown for step in steps] == [False]
