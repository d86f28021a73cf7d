"""A client of process nodes, for programs outside them: in the folder of a run, or over HTTP by its dashboard.

client = Client("http://127.0.0.1:8000", token=...)
client.start("order", "order-17", item="bolt")
client.signal("order-17", "payment", True)
print(client.result("order-17"))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from unerring.app.acting import PROCESSES
from unerring.app.listed import all_pages, counted, each_once, furthest, latest_first, one_page
from unerring.app.many import all_parts, carry_out, many_of
from unerring.app.place import place_of
from unerring.model import UNDECODABLE, CallerError, InstanceFailed, NetworkError, ProcessError, UnerringError
from unerring.runtime import Command, addresses_in, ask_node, node_sockets

OVER: Final = ("held", "completed", "cancelled", "failed", "parked")
"""The statuses that a wait ends with."""
READS: Final = ("list", "page", "counts", "show", "history", "query", "wait", "show-service")
"""What changes nothing."""
WAIT_S_MAX: Final = 20.0
"""A wait over HTTP is asked for again after so long: no proxy lets a request stay open for ever."""
POLL_S: Final = 0.05


def nodes_in(data: Path) -> Path:
    """The folder of the process nodes: an app's are in a folder of their own inside the run's."""
    inner = data / PROCESSES
    return inner if addresses_in(inner) and not addresses_in(data) else data


class Nodes:
    """The nodes of a folder on this machine. What one of them cannot say, another may."""

    def __init__(self, folder: Path, named: str = "") -> None:
        self._folder = folder
        self._named = named or str(folder)

    def answers(self, do: str, **fields: Any) -> Iterator[Any]:
        """From each node: what it answered, or the error."""
        wanted = _checked(do, fields)
        sockets = node_sockets(self._folder)
        if not sockets:
            raise CallerError(
                f"no node runs in {self._named}; start some with 'unerring run' or 'unerring node', or give --data"
            )
        for path in sockets:
            try:
                yield ask_node(path, wanted)
            except (NetworkError, ProcessError, CallerError) as error:
                yield error

    def call(self, do: str, **fields: Any) -> Any:
        """Do something, and return what came of it. CallerError: it cannot be asked for so."""
        if do == "batch":
            return carry_out(many_of(fields), self.call)
        within_s = fields.pop("within_s", WAIT_S_MAX)
        asked = _checked(do, fields)
        match do:
            case "list":
                return self._list(asked.where)
            case "page":
                return self._page(asked, fields)
            case "counts":
                return counted(self.each(do))
            case "show":
                return max(self.each(do, **fields), key=furthest)
            case "history":
                return max(self.each(do, **fields), key=lambda one: len(one["groups"]))
            case "query":
                return self._query(asked.instance, asked.query)
            case "wait":
                return self._wait(asked.instance, within_s)
            case "retry":
                return self._retry(asked.instance, asked.step)
            case _:
                return self._first(do, **fields)

    def _first(self, do: str, **fields: Any) -> Any:
        """The answer of the first node that can."""
        trouble: Exception | None = None
        for answer in self.answers(do, **fields):
            if not isinstance(answer, Exception):
                return answer
            if trouble is None or isinstance(trouble, NetworkError):
                trouble = answer
        raise trouble or CallerError("no node answered")

    def each(self, do: str, **fields: Any) -> list[Any]:
        """The answers of all that can."""
        answers = list(self.answers(do, **fields))
        answered = [answer for answer in answers if not isinstance(answer, Exception)]
        if not answered:
            raise answers[0]
        return answered

    def _page(self, asked: Command, fields: dict[str, Any]) -> dict[str, Any]:
        order = {"order": latest_first} if asked.latest else {}
        return one_page(self.each("page", **fields), asked.limit, **order)

    def _list(self, where: str) -> list[dict[str, Any]]:
        def ask(limit: int, after: str) -> dict[str, Any]:
            found: dict[str, Any] = self.call("page", where=where, limit=limit, after=after)
            return found

        return list(each_once(all_pages(ask)).values())

    def _query(self, instance: str, query: str) -> Any:
        shown = list(self.answers("show", instance=instance))
        answers = list(self.answers("query", instance=instance, query=query))
        answered = [(_rank(s), a) for s, a in zip(shown, answers, strict=True) if not isinstance(a, Exception)]
        if not answered:
            raise answers[0]
        return max(answered, key=lambda pair: pair[0])[1]

    def _wait(self, instance: str, within_s: float) -> Any:
        end_s = time.monotonic() + within_s
        while (outline := self.call("show", instance=instance))["status"] not in OVER:
            if time.monotonic() >= end_s:
                break
            time.sleep(POLL_S)
        return outline

    def _retry(self, instance: str, step: str) -> None:
        if step or self.call("show", instance=instance)["status"] == "held":
            self._first("retry", instance=instance, step=step)
        else:
            self.each("retry", instance=instance)


def _checked(do: str, fields: dict[str, Any]) -> Command:
    try:
        return msgspec.convert({**fields, "do": do}, Command)
    except msgspec.ValidationError as error:
        raise CallerError(f"{do} cannot be asked for so: {error}") from None


class _Http:
    """The same by a dashboard."""

    def __init__(self, url: str, token: str) -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(base_url=url, headers=headers, timeout=WAIT_S_MAX + 30.0)

    def call(self, do: str, **fields: Any) -> Any:
        try:
            response = self._client.post(f"/api/processes/{do}", content=msgspec.json.encode(fields))
        except httpx.HTTPError as error:
            raise NetworkError(f"{self._client.base_url} does not answer: {error}") from None
        try:
            answer = msgspec.json.decode(response.content, type=dict[str, Any])
        except UNDECODABLE:
            raise NetworkError(
                f"{self._client.base_url} answered {response.status_code} and no JSON; is it an unerring dashboard?"
            ) from None
        if response.status_code == 200:
            return answer["value"]
        kind = {401: CallerError, 403: CallerError, 503: NetworkError}.get(response.status_code, ProcessError)
        raise kind(str(answer.get("error", response.status_code)))

    def close(self) -> None:
        self._client.close()


class Client:
    """Start, signal, query, wait for and cancel instances. `at`: the folder of a run on this machine, or the address of
    its dashboard, `http://HOST:PORT`, whose token is needed for what changes something."""

    def __init__(self, at: str | Path = "unerring-data", token: str = "") -> None:
        text = str(at)
        far = text.startswith(("http://", "https://"))
        self._to: Nodes | _Http = _Http(text, token) if far else Nodes(nodes_in(place_of(text).scratch), text)

    def start(self, process: str, instance: str, /, **given: Any) -> dict[str, Any]:
        """Start an instance. When this returns it exists on a majority. The same id and input is the same start."""
        started: dict[str, Any] = self._to.call(
            "start", process=process, instance=instance, given=msgspec.to_builtins(given)
        )
        return started

    def signal(self, instance: str, channel: str, payload: Any = None, id: str = "", answers: str = "") -> None:
        """Send a message to a receive action. The same id is the same message."""
        value = msgspec.to_builtins(payload)
        self._to.call("signal", instance=instance, channel=channel, payload=value, id=id, answers=answers)

    def publish(self, channel: str, key: Any, payload: Any = None, id: str = "") -> None:
        """Send a message to every instance that waits, now or within an hour, for this key."""
        self._to.call("publish", channel=channel, key=key, payload=msgspec.to_builtins(payload), id=id)

    def query(self, instance: str, name: str) -> Any:
        """Ask a query of the process about the last decided state."""
        return self._to.call("query", instance=instance, query=name)

    def show(self, instance: str) -> dict[str, Any]:
        """What the nodes know of an instance now."""
        outline: dict[str, Any] = self._to.call("show", instance=instance)
        return outline

    def history(self, instance: str) -> dict[str, Any]:
        """Groups with views, masters and times; actions with their interaction ids."""
        record: dict[str, Any] = self._to.call("history", instance=instance)
        return record

    def batch(
        self, what: str, where: str, *, each: Callable[[dict[str, Any]], Any] = lambda row: None, **more: Any
    ) -> list[dict[str, Any]]:
        """Cancel, retry, hold, resume, move or signal all open instances for which a condition holds: each with
        `instance`, `done`, and `why` not. `dry_run=True` only says which they are. `each` is told of one after the
        other. A signal has a `channel`, a `payload` and an `id`; a move may have a `version`, a retry a `step`."""
        fields = {"what": what, "where": where, **more}
        if "payload" in fields:
            fields["payload"] = msgspec.to_builtins(fields["payload"])
        rows = []
        for row in all_parts(lambda after: self._to.call("batch", **fields, after=after)):
            each(row)
            rows.append(row)
        return rows

    def list(self, where: str = "", limit: int = 0) -> list[dict[str, Any]]:
        """The instances that the nodes know, open ones first; with `where`, those for which it holds. They are asked
        for page by page. `limit`: at most so many; 0: all."""

        def ask(most: int, after: str) -> dict[str, Any]:
            return self.page(where, most, after)

        return list(each_once(all_pages(ask, limit)).values())

    def page(self, where: str = "", limit: int = 100, after: str = "") -> dict[str, Any]:
        """At most `limit` instances: `rows`, and `after` for the next page, empty after the last one."""
        found: dict[str, Any] = self._to.call("page", where=where, limit=limit, after=after)
        return found

    def counts(self) -> dict[str, Any]:
        """How many instances there are: `instances`, `open`, `held`, and `by_process` by status."""
        found: dict[str, Any] = self._to.call("counts")
        return found

    def wait(self, instance: str, within_s: float = 600.0) -> dict[str, Any]:
        """Wait until an instance has ended, or is held for an operator; what is known of it then."""
        end_s = time.monotonic() + within_s
        while True:
            left_s = max(0.0, end_s - time.monotonic())
            outline: dict[str, Any] = self._to.call("wait", instance=instance, within_s=min(left_s, WAIT_S_MAX))
            if outline["status"] in OVER:
                return outline
            if time.monotonic() >= end_s:
                raise NetworkError(
                    f"{instance} is still {outline['status']} after {within_s:g} s; see 'unerring process show'"
                )

    def result(self, instance: str, within_s: float = 600.0) -> dict[str, Any]:
        """Wait for the end of an instance; its variables. InstanceFailed if it did not complete, or is held."""
        outline = self.wait(instance, within_s)
        if outline["status"] != "completed":
            raise InstanceFailed(instance, outline["status"], outline["reason"])
        return dict(outline["variables"])

    def cancel(self, instance: str) -> None:
        """Undo an instance, in reverse order."""
        self._to.call("cancel", instance=instance)

    def hold(self, instance: str, why: str = "") -> None:
        """Hold an instance after its present group."""
        self._to.call("hold", instance=instance, why=why)

    def resume(self, instance: str) -> None:
        """Let a held instance continue."""
        self._to.call("resume", instance=instance)

    def retry(self, instance: str, step: str = "") -> None:
        """Try again what could not be undone, or is held; with a step, go back to it."""
        self._to.call("retry", instance=instance, step=step)

    def move(self, instance: str, version: str = "") -> str:
        """Move a running instance to another version; the version."""
        return str(self._to.call("move", instance=instance, version=version))

    def pause_service(self, service: str, why: str = "") -> dict[str, Any]:
        """Let nothing begin at a service, for all instances; its gate now."""
        look: dict[str, Any] = self._to.call("pause-service", service=service, why=why)
        return look

    def resume_service(self, service: str) -> dict[str, Any]:
        """Let a paused service go on."""
        look: dict[str, Any] = self._to.call("resume-service", service=service)
        return look

    def show_service(self, service: str) -> dict[str, Any]:
        """The limits of a service, and who waits."""
        look: dict[str, Any] = self._to.call("show-service", service=service)
        return look

    def close(self) -> None:
        if isinstance(self._to, _Http):
            self._to.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _rank(outline: Any) -> tuple[bool, int, int, bool]:
    return (False, -1, -1, False) if isinstance(outline, UnerringError) else furthest(outline)
