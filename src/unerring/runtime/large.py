"""Where large values are: a store that all nodes reach, a folder for each instance, names by content.

What an action answers goes there before the machine hears of it, so a state that names a value is never ahead of it;
what a request names is read there before it is sent. The same value is stored once, whoever executes the action again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from unerring.log import Store
from unerring.model import ProcessError
from unerring.processes import Large, Process, Reply, Request, large_variables

MARK: Final = "unerring-large"
FOLDER: Final = "large"


class Vanished(ProcessError):
    """A value that a state names is not in the store any more."""


class LargeValues:
    """Puts values into a store, and gets them back."""

    def __init__(self, store: Store, processes: Iterable[Process]) -> None:
        self._store = store
        self._writes: dict[tuple[str, str], tuple[str, ...]] = {}
        """By version and action: all variables that it writes, if one of them is large."""
        self._large: dict[str, frozenset[str]] = {}
        for process in processes:
            large = self._large[process.name] = large_variables(process)
            for vertex in process.graph.vertices:
                if large.intersection(vertex.writes):
                    self._writes[process.graph.version, vertex.name] = vertex.writes
        self._of = {process.graph.version: self._large[process.name] for process in processes}

    # ---- putting -----------------------------------------------------------------------------------------------

    def keep(self, instance: str, value: Any) -> dict[str, Any]:
        """Store a value of an instance; its reference."""
        data = msgspec.json.encode(value)
        name = hashlib.sha256(data).hexdigest()
        self._store.create(f"{_folder(instance)}/{name}", data)
        reference: dict[str, Any] = msgspec.to_builtins(Large(name, len(data)))
        return reference

    def given(self, process: str, instance: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The input of an instance, with references for what is large."""
        large = self._large.get(process, frozenset())
        return {
            name: self.keep(instance, value) if name in large and not _is_reference(value) else value
            for name, value in given.items()
        }

    def concerns(self, request: Request) -> bool:
        """Whether the reply to a request has a large value, or the request names one."""
        return _writes_of(request) in self._writes or _has_reference(request.payload)

    def answered(self, request: Request, reply: Reply) -> Reply:
        """A reply, with references for what is large."""
        writes = self._writes.get(_writes_of(request))
        if writes is None or request.mode != "do" or reply.answer != "done":
            return reply
        large = self._of[request.version]
        if len(writes) == 1:
            return msgspec.structs.replace(reply, value=self.keep(request.instance, reply.value))
        if not isinstance(reply.value, dict):
            return reply
        kept = {n: self.keep(request.instance, v) if n in large else v for n, v in reply.value.items()}
        return msgspec.structs.replace(reply, value=kept)

    # ---- getting -----------------------------------------------------------------------------------------------

    def value(self, instance: str, reference: Any) -> Any:
        """The value behind a reference. Vanished if it is not there, or is damaged."""
        large = msgspec.convert(reference, Large)
        if not large.sha256:
            return None
        data = self._store.read(f"{_folder(instance)}/{large.sha256}")
        if data is None or hashlib.sha256(data).hexdigest() != large.sha256:
            what = "vanished from the store" if data is None else "was damaged in the store"
            raise Vanished(f"the value {large.sha256[:12]} of {instance}, {large.bytes} bytes, {what}; restore it")
        return msgspec.json.decode(data)

    def asked(self, request: Request) -> Request:
        """A request with the values themselves. A compensation gets null for one that vanished: undoing must go on."""
        return msgspec.structs.replace(request, payload=self._filled(request, request.payload))

    def _filled(self, request: Request, payload: Any) -> Any:
        if _is_reference(payload):
            try:
                return self.value(request.instance, payload)
            except Vanished:
                if request.mode == "do":
                    raise
                return None
        if isinstance(payload, dict):
            return {name: self._filled(request, value) for name, value in payload.items()}
        return payload

    def remove(self, instance: str) -> None:
        """All values of an instance."""
        for name in self._store.names(_folder(instance)):
            self._store.delete(f"{_folder(instance)}/{name}")


def _folder(instance: str) -> str:
    return f"{FOLDER}/{quote(instance, safe='')}"


def _writes_of(request: Request) -> tuple[str, str]:
    action = request.iid.partition("/")[2].partition("/")[0]
    return request.version, action.partition("'")[0]  # without the rounds of loops


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {MARK, "bytes"}


def _has_reference(payload: Any) -> bool:
    if _is_reference(payload):
        return True
    return isinstance(payload, dict) and any(_has_reference(value) for value in payload.values())
