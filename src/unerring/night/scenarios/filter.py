"""The filter of services under everything that nodes and networks do to it: repetitions, lost answers, cancellations
that come before what they cancel, masters of older views, an application that breaks down, and a database that does.

The filter and its SQLite store are the real ones; a seed draws the requests. What the application wrote, in its own
table, must follow from the answers that the callers got.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.audit import Violation
from unerring.runtime import IdempotencyFilter, Interaction, Recorded, SqliteStore, Transaction
from unerring.simulation import Scenario, World, mutant, scenario

if TYPE_CHECKING:
    from unerring.simulation import Fault

REQUESTS: Final = 120
ONCE: Final = "an interaction has its effect once"
SAME: Final = "a repeated interaction has the same answer"
OTHER: Final = "an interaction id that comes with another request has no effect"
GONE: Final = "what was cancelled has no effect, before and after"
FENCED: Final = "a write of a lower view has no effect once a higher one was at work"
TAKEN_BACK: Final = "what a refused or failed request wrote is taken back"


class Ask(msgspec.Struct, frozen=True):
    """One request."""

    iid: str
    view: int
    body: str
    method: str = "POST"
    settle: bool = False


@scenario("filter")
class Filters(Scenario):
    """See the module."""

    filter: type[IdempotencyFilter] = IdempotencyFilter
    store: type[SqliteStore] = SqliteStore
    faults_us = 0
    calm_us = 0
    must_reach = (
        "an answer was repeated",
        "a cancellation came first",
        "an effect was undone",
        "a lower view was fenced",
        "a refusal was recorded",
        "the application broke down",
        "another request with the same id",
        "what never came was settled",
    )

    def faults(self, world: World, draw: Random) -> list[Fault]:
        return []

    def build(self, world: World) -> None:
        self._world = world
        self._random = Random(f"filter {world.seed}")
        self._violations: list[Violation] = []
        self._answers: dict[str, tuple[int, bytes]] = {}
        self._bodies: dict[str, str] = {}
        self._cancelled: set[str] = set()
        self._views: dict[str, int] = {}
        """The highest view that has had an effect or cancelled something, by instance."""
        asyncio.run(self._play())

    async def _play(self) -> None:
        random = self._random
        self._store = self.store(":memory:")
        self._store.connection.execute("CREATE TABLE effect (iid TEXT, body TEXT)")
        self._filter = self.filter(self._application, self._store, secret=None)
        asks: list[Ask] = []
        for number in range(REQUESTS):
            ask = self._drawn(asks, number)
            asks.append(ask)
            before = self._effects()
            status, body = await self._send(ask)
            self._judge(ask, status, body, before, self._effects())
            if self._violations:
                break
            if random.random() < 0.03:
                self._filter = self.filter(self._application, self._store, secret=None)  # the service restarted
        await self._store.close()

    def _drawn(self, asks: list[Ask], number: int) -> Ask:
        random = self._random
        instance = f"i{random.randrange(3)}"
        fresh = Ask(f"{instance}/a{number}", random.choice((-1, 0, 0, 1, 2, 3)), f"b{random.randrange(9)}")
        old = random.choice(asks) if asks else fresh
        match random.randrange(8):
            case 0 | 1:
                return msgspec.structs.replace(old, method="POST")
            case 2:
                return msgspec.structs.replace(old, method="DELETE", settle=False)
            case 3:
                return msgspec.structs.replace(fresh, method="DELETE")
            case 4:
                return msgspec.structs.replace(old, method="POST", body=f"b{random.randrange(9, 12)}")
            case 5:
                return msgspec.structs.replace(random.choice((old, fresh)), method="POST", settle=True)
            case _:
                return fresh

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        """Writes first, and then it may refuse or break down."""
        interaction: Interaction = scope["unerring"]
        body = (await receive())["body"].decode()
        if scope["method"] == "DELETE":
            interaction.connection.execute("DELETE FROM effect WHERE iid = ?", (interaction.iid,))
        else:
            interaction.connection.execute("INSERT INTO effect VALUES (?, ?)", (interaction.iid, body))
        fate = self._random.choice((200, 200, 200, 200, 409, 500, 0))
        if scope["method"] == "DELETE" and fate == 409:
            fate = 200
        if fate == 0:
            self._world.sometimes("the application broke down")
            raise RuntimeError("the application broke down")
        await send({"type": "http.response.start", "status": fate, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % self._random.randrange(1 << 30)})

    async def _send(self, ask: Ask) -> tuple[int, bytes]:
        headers = {
            "idempotency-key": ask.iid,
            "unerring-instance": ask.iid.partition("/")[0],
            "unerring-view": str(ask.view),
            "unerring-group": "0",
            "unerring-basis": "",
        }
        if ask.settle:
            headers["unerring-settle"] = "1"
        scope = {
            "type": "http",
            "method": ask.method,
            "path": "/do",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        given = [{"type": "http.request", "body": ask.body.encode(), "more_body": False}]
        status, body = 0, b""

        async def receive() -> Any:
            return given.pop() if given else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal status, body
            status = message.get("status", status)
            body += message.get("body", b"")

        await self._filter(scope, receive, send)
        return status, body

    def _effects(self) -> dict[str, list[str]]:
        effects: dict[str, list[str]] = {}
        for iid, body in self._store.connection.execute("SELECT iid, body FROM effect"):
            effects.setdefault(iid, []).append(body)
        return effects

    def _judge(
        self, ask: Ask, status: int, body: bytes, before: dict[str, list[str]], after: dict[str, list[str]]
    ) -> None:
        line = f"{ask} was answered {status} {body!r}; effects before {before.get(ask.iid)}, then {after.get(ask.iid)}"
        instance = ask.iid.partition("/")[0]
        had, has = before.get(ask.iid, []), after.get(ask.iid, [])
        if len(has) > 1:
            self._say(ONCE, line)
        if {iid: what for iid, what in before.items() if iid != ask.iid} != {
            iid: what for iid, what in after.items() if iid != ask.iid
        }:
            self._say(ONCE, f"another interaction's effect changed with {line}")
        if ask.method == "DELETE":
            if status == 200:
                self._reach("an effect was undone" if had else "a cancellation came first")
                self._cancelled.add(ask.iid)
                self._views[instance] = max(self._views.get(instance, 0), ask.view)
                if has:
                    self._say(GONE, line)
            elif has != had:
                self._say(TAKEN_BACK, line)
            return
        if ask.iid in self._cancelled:
            if has or status != 409:
                self._say(GONE, line)
            return
        if ask.iid in self._answers:
            if self._bodies[ask.iid] != ask.body:
                self._reach("another request with the same id")
                if has != had or status != 422:
                    self._say(OTHER, line)
            elif (status, body) != self._answers[ask.iid] or has != had:
                self._say(SAME, line)
            else:
                self._reach("an answer was repeated")
            return
        if ask.settle:
            self._reach("what never came was settled")
            self._cancelled.add(ask.iid)
            if has or status != 409:
                self._say(GONE, line)
            return
        if 0 <= ask.view < self._views.get(instance, 0):
            self._reach("a lower view was fenced")
            if has or status != 409:
                self._say(FENCED, line)
            return
        if status >= 500:
            if has:
                self._say(TAKEN_BACK, line)
            return
        self._answers[ask.iid], self._bodies[ask.iid] = (status, body), ask.body
        if status < 400:
            self._views[instance] = max(self._views.get(instance, 0), ask.view)
            if has != [ask.body]:
                self._say(ONCE, line)
        else:
            self._reach("a refusal was recorded")
            if has:
                self._say(TAKEN_BACK, line)

    def _reach(self, what: str) -> None:
        self._world.sometimes(what)

    def _say(self, promise: str, line: str) -> None:
        self._violations.append(Violation(promise, (line,)))

    def safety(self, world: World) -> Iterable[Violation]:
        return self._violations[:5]


def _store(**broken: Any) -> type[SqliteStore]:
    """A store whose transactions have some methods replaced."""
    from contextlib import asynccontextmanager

    class Broken(SqliteStore):
        @asynccontextmanager
        async def transaction(self, iid: str) -> Any:
            async with super().transaction(iid) as whole:
                for name, method in broken.items():
                    setattr(whole, name, method.__get__(whole))
                yield whole

    return Broken


async def _nobody(self: Transaction, iid: str) -> Recorded | None:
    return None


async def _no_fence(self: Transaction, instance: str) -> int:
    return 0


async def _kept(self: Transaction) -> None:
    return


async def _done_alone(self: Any, iid: str, recorded: Recorded) -> None:
    if recorded.state in ("done", "cancelled"):
        await type(self).record(self, iid, recorded)


async def _no_tombstone(self: Any, iid: str, recorded: Recorded) -> None:
    if recorded.state != "cancelled" or await self.find(iid) is not None:
        await type(self).record(self, iid, recorded)


class _Replacing(IdempotencyFilter):
    """An id that comes again with another request is asked of the application as if it were new."""

    async def _do(
        self, scope: Any, transaction: Transaction, interaction: Interaction, body: bytes, permit: Any
    ) -> tuple[int, str, bytes]:
        status, state, reply = await super()._do(scope, transaction, interaction, body, permit)
        if status == 422:
            response = await self._ask(scope, interaction, transaction, body, scope["method"], permit)
            return response.status, "done", response.body
        return status, state, reply


class _Erasing(IdempotencyFilter):
    """What was cancelled is undone, and nothing is remembered of it."""

    async def _cancel(
        self, scope: Any, transaction: Transaction, interaction: Interaction, permit: Any
    ) -> tuple[int, str, bytes]:
        answered = await super()._cancel(scope, transaction, interaction, permit)
        transaction.connection.execute("DELETE FROM unerring_interaction WHERE iid = ?", (interaction.iid,))
        return answered


async def _low_fence(self: Any, instance: str, view: int) -> None:
    """Only what does something raises the fence; what cancels does not."""


mutant(Filters, "remembers no interaction", store=_store(find=_nobody))
mutant(Filters, "has no fence", store=_store(fence=_no_fence))
mutant(Filters, "never raises the fence", store=_store(raise_fence=_low_fence))
mutant(Filters, "keeps what a refused request wrote", store=_store(take_back=_kept))
mutant(Filters, "records no refusals", store=_store(record=_done_alone))
mutant(Filters, "leaves no tombstone", store=_store(record=_no_tombstone))
mutant(Filters, "carries out another request under a known id", filter=_Replacing)
mutant(Filters, "forgets what it has undone", filter=_Erasing)
