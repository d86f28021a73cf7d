"""A bucket of a cloud or of a server of one's own, through `obstore`.

`obstore` has threads of its own from its first request on. A process that was forked after that has the memory of them
and not the threads: a request in it would wait for ever, and disturb its parent's. So a client is made where it is
used, and a process that was forked too late is refused.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Final

from unerring.log.store.answers import answered
from unerring.log.store.client import ABSENT, Conflict, Got, count_requests
from unerring.log.store.credentials import options_of
from unerring.model import CallerError, require

_TOKEN: Final = "unerring"
"""The attribute with the token of its writer: `x-amz-meta-unerring` on S3."""
_PAGE: Final = 1000
_TIMEOUT_S: Final = 30
"""A request without much to carry. A put of many bytes has longer: it is bounded as a whole, not by its pauses."""
_SLOWEST_BYTES_PER_S: Final = 1 << 19

_user: int | None = None
"""The process that made the first request here, or in the one that this was forked from."""


class Bucket:
    """One bucket, as `Client` asks for it. Nothing is connected before the first request."""

    def __init__(self, scheme: str, name: str) -> None:
        require("obstore")
        self._scheme = scheme
        self._name = name

    @property
    def where(self) -> str:
        return f"{self._scheme}://{self._name}"

    def put(self, path: str, data: bytes, token: str, tag: str | None = None) -> str:
        import obstore

        count_requests("put")
        mode: Any = "overwrite"
        if tag is not None:
            mode = "create" if tag == ABSENT else _version(tag)
        connection = self._connection(len(data))
        try:
            with answered(self.where, path, "put"):
                done = obstore.put(connection, path, data, mode=mode, attributes={_TOKEN: token}, use_multipart=False)
        except FileNotFoundError:
            # Not the bucket, which is told apart: what was to be replaced is gone.
            raise Conflict from None
        return _tag(done["e_tag"], done["version"])

    def get(self, path: str, start: int, end: int) -> Got | None:
        return self._get("get", path, {"range": (start, end)})

    def head(self, path: str) -> Got | None:
        return self._get("head", path, {"head": True})

    def names(self, prefix: str, after: str) -> list[str]:
        import obstore

        connection, folder = self._connection(), prefix.rstrip("/") or None
        with answered(self.where, prefix, "list"):
            if after:
                # Only this way the store itself begins after a name; what lies deeper is named on the way.
                paths = []
                for page in obstore.list(connection, folder, offset=prefix + after, chunk_size=_PAGE):
                    count_requests("list")
                    paths += [one["path"] for one in page]
                count_requests("list", 0 if paths else 1)
            else:
                result = obstore.list_with_delimiter(connection, folder)
                paths = [*result["common_prefixes"], *(one["path"] for one in result["objects"])]
                count_requests("list", 1 + len(paths) // _PAGE)
        return [path[len(prefix) :].split("/")[0] for path in paths]

    def delete(self, path: str) -> None:
        import obstore

        count_requests("delete")
        connection = self._connection()
        try:
            with answered(self.where, path, "delete"):
                obstore.delete(connection, path)
        except FileNotFoundError:
            return

    def _get(self, kind: str, path: str, options: Any) -> Got | None:
        import obstore

        count_requests(kind)
        connection = self._connection()
        try:
            with answered(self.where, path, kind):
                result = obstore.get(connection, path, options=options)
                data = b"" if "head" in options else result.bytes().to_bytes()
        except FileNotFoundError:
            return None
        except EOFError:
            # An empty object has no first byte, and says so instead of giving none.
            return self._get("get", path, {})
        meta = result.meta
        written_us = int(meta["last_modified"].timestamp() * 1_000_000)
        tag, token = _tag(meta["e_tag"], meta["version"]), result.attributes.get(_TOKEN)
        return Got(data, meta["size"], tag, token, written_us)

    def _connection(self, carried_bytes: int = 0) -> Any:
        global _user
        process = os.getpid()
        if _user is None:
            _user = process
        if _user != process:
            raise CallerError(
                f"process {process} was forked from {_user}, which had used an object store before; "
                f"start processes that use {self.where} by spawning, or before its first request"
            )
        timeout_s = _TIMEOUT_S
        while timeout_s - _TIMEOUT_S < carried_bytes / _SLOWEST_BYTES_PER_S:
            timeout_s *= 2
        return _connect(process, self._scheme, self._name, timeout_s)


@cache
def _connect(process: int, scheme: str, name: str, timeout_s: int) -> Any:
    """One connection pool for each process, bucket and time-out. The credentials are read from this environment."""
    from obstore.store import AzureStore, GCSStore, S3Store

    if scheme == "memory":
        return _memory(name)
    options: dict[str, Any] = {
        **options_of(scheme, name),
        # One place decides how often to try: the store, which knows what a repeat means.
        "retry_config": {"max_retries": 0},
    }
    options["client_options"] = {**options["client_options"], "timeout": f"{timeout_s}s", "connect_timeout": "10s"}
    kind: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[scheme]
    with answered(f"{scheme}://{name}", "", "open"):
        return kind(name, **options)


@cache
def _memory(name: str) -> Any:
    from obstore.store import MemoryStore

    return MemoryStore()


def _tag(e_tag: str | None, version: str | None) -> str:
    """Clouds tell states of an object apart by one or the other."""
    return f"{e_tag or ''} {version or ''}"


def _version(tag: str) -> dict[str, str]:
    e_tag, _, version = tag.partition(" ")
    return {name: value for name, value in (("e_tag", e_tag), ("version", version)) if value}
