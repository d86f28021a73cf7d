"""What certificates with roles cost on channels and in the live engine, and what hashes cost on Spark.

Each is measured beside the same work without: the parts of `bench channels`, `correlation` and `pipeline` that are
about this. Before them, what TLS alone can reach: how fast Python's ssl module encrypts and decrypts on this machine,
a connection's bytes in memory, without a socket.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import channels
import correlation
import pipeline
from unerring.runtime import make_certificates

PIECE_BYTES = 64 * 1024
"""A connection writes no more at once over TLS."""
Wire = Callable[[], None]


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    for figures in (_ssl(quick), channels.with_tls(quick), correlation.with_tls(quick), pipeline.hashing(quick)):
        for figure in figures:
            part = "" if figure["bench"] == "trust" else f"{figure['bench']}."
            yield {**figure, "bench": "trust", "figure": part + figure["figure"]}


def _ssl(quick: bool) -> Iterator[dict[str, Any]]:
    """Processor time for writing and for reading, in pieces as large as connections write."""
    rounds, count = (1, 100) if quick else (5, 10_000)
    dialler, acceptor, on_its_way = _connected()
    data, read = os.urandom(PIECE_BYTES), memoryview(bytearray(PIECE_BYTES))
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        spent = [0.0, 0.0]
        for _ in range(count):
            began_s = time.process_time()
            dialler.write(data)
            written_s = time.process_time()
            on_its_way()
            arrived_s = time.process_time()
            taken = 0
            while taken < len(data):
                taken += acceptor.read(len(data) - taken, read[taken:])  # type: ignore[arg-type]
            spent[0] += written_s - began_s
            spent[1] += time.process_time() - arrived_s
        best = [min(pair) for pair in zip(best, spent, strict=True)]
    for what, spent_s in zip(("encrypt", "decrypt"), best, strict=True):
        gigabytes = count * PIECE_BYTES / spent_s / 1e9
        yield {"bench": "trust", "figure": f"ssl.{what}", "value": gigabytes, "unit": "GB/s", "goal": None, "met": None}


def _connected() -> tuple[ssl.SSLObject, ssl.SSLObject, Wire]:
    """Two ends that have shaken hands, and what carries over what the first has written."""
    to_acceptor, to_dialler, from_acceptor, from_dialler = (ssl.MemoryBIO() for _ in range(4))
    with tempfile.TemporaryDirectory() as folder:
        make_certificates(Path(folder) / "tls", ["bench"])
        dialler = _context(ssl.PROTOCOL_TLS_CLIENT, Path(folder) / "tls").wrap_bio(
            to_dialler, from_dialler, server_hostname="localhost"
        )
        acceptor = _context(ssl.PROTOCOL_TLS_SERVER, Path(folder) / "tls").wrap_bio(
            to_acceptor, from_acceptor, server_side=True
        )
    waiting = [dialler, acceptor]
    while waiting:
        for end in tuple(waiting):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
                waiting.remove(end)
            to_acceptor.write(from_dialler.read())
            to_dialler.write(from_acceptor.read())
    return dialler, acceptor, lambda: _carry(from_dialler, to_acceptor)


def _carry(outgoing: ssl.MemoryBIO, incoming: ssl.MemoryBIO) -> None:
    incoming.write(outgoing.read())


def _context(protocol: int, folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(folder / "ca.pem")
    context.load_cert_chain(folder / "node.pem", folder / "node.key")
    return context
