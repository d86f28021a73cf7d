"""The membership record in etcd, behind the port of stable storage, for keepers on several hosts.

A write is one transaction that changes a key only if nobody else has since this keeper read it. Who loses the race, or
cannot tell whether it won, fails as a broken disk does: nothing that rests on the write leaves the keeper, and the next
one begins with what etcd holds.
"""

from __future__ import annotations

import base64
import http.client
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from unerring.model import UNDECODABLE, ConfigError, DiskError, Persist
from unerring.runtime.certificates import client_context

TIMEOUT_S = 2.0
ANSWER_BYTES_MAX = 4 << 20


class EtcdStorage:
    """Records under a prefix; `endpoints` are tried in turn. Speaks the JSON form of etcd's version 3 API."""

    def __init__(self, endpoints: Sequence[str], prefix: str, tls: str = "") -> None:
        if not endpoints:
            raise ConfigError("etcd needs an address, such as http://127.0.0.1:2379")
        for endpoint in endpoints:
            parts = urlsplit(endpoint)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigError(f"{endpoint!r} is no address of etcd; write for example http://127.0.0.1:2379")
        self._endpoints = list(endpoints)
        self._prefix = f"/unerring/{prefix}/"
        self._tls = tls
        self._revisions: dict[str, int] = {}
        """By key: the revision at which this storage has read or written it last."""

    def load(self, prefix: str = "", without: str = "") -> Mapping[str, bytes]:
        first = f"{self._prefix}{prefix}"
        answer = self._ask("/v3/kv/range", {"key": _coded(first), "range_end": _coded(_after(first))})
        records: dict[str, bytes] = {}
        for pair in answer.get("kvs", ()):
            key = base64.b64decode(pair["key"]).decode().removeprefix(self._prefix)
            records[key] = base64.b64decode(pair.get("value", ""))
            self._revisions[key] = int(pair["mod_revision"])
        return {key: records[key] for key in sorted(records) if not (without and key.endswith(without))}

    def write(self, batch: Iterable[Persist]) -> None:
        puts: dict[str, bytes | None] = {}
        for persist in batch:
            puts.update(dict.fromkeys(persist.deletes))
            puts.update(persist.puts)
        compare = [
            {"key": _coded(self._prefix + key), "target": "MOD", "mod_revision": str(self._revisions.get(key, 0))}
            for key in puts
        ]
        changes = [self._change(key, value) for key, value in puts.items()]
        answer = self._ask("/v3/kv/txn", {"compare": compare, "success": changes})
        if not answer.get("succeeded"):
            raise DiskError("another keeper has changed the membership record in etcd; this one starts over from it")
        self._revisions.update(dict.fromkeys(puts, int(answer["header"]["revision"])))

    def _change(self, key: str, value: bytes | None) -> dict[str, Any]:
        name = _coded(self._prefix + key)
        if value is None:
            return {"request_delete_range": {"key": name}}
        return {"request_put": {"key": name, "value": base64.b64encode(value).decode()}}

    def close(self) -> None:
        """Nothing is held open between two questions."""

    def _ask(self, path: str, question: dict[str, Any]) -> dict[str, Any]:
        trouble = ""
        for endpoint in list(self._endpoints):
            try:
                return self._ask_one(endpoint, path, question)
            except (OSError, http.client.HTTPException, *UNDECODABLE) as error:
                trouble = f"{endpoint}: {error}"
                # The next one is asked first from now on. A write that may have arrived fails at its comparison.
                self._endpoints.append(self._endpoints.pop(0))
        raise DiskError(f"etcd does not answer ({trouble}); nobody joins or is evicted until it does")

    def _ask_one(self, endpoint: str, path: str, question: dict[str, Any]) -> dict[str, Any]:
        parts = urlsplit(endpoint)
        host, port = parts.hostname or "", parts.port or 2379
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = client_context(self._tls) if self._tls else ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", path, msgspec.json.encode(question), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read(ANSWER_BYTES_MAX)
            if answer.status != 200:
                raise http.client.HTTPException(f"status {answer.status}: {data[:200]!r}")
            return msgspec.json.decode(data, type=dict[str, Any])
        finally:
            connection.close()


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _after(prefix: str) -> str:
    """The first key that no longer starts with `prefix`."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
