"""What a process of a run writes into its log file: a line with its time for each sentence, or a JSON object.

`UNERRING_LOG=json` (`unerring run --log json` sets it) asks for objects: `at`, `level`, `run`, `role`, `says`, and
`instance` and `trace_id` where a line is about one. A file that has grown too large becomes the one before it, and that
one is gone; and of a flood the lines beyond a bound are counted, not written.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

import msgspec

from unerring.model import UNDECODABLE, to_datetime
from unerring.runtime.lines import before
from unerring.tracing import process_ref, tracer

LOG_FORM: Final = "UNERRING_LOG"
LOG_FILE: Final = "UNERRING_LOG_FILE"
"""The log file of a process that a supervisor started."""
BYTES_MAX: Final = 16 << 20
LINES_PER_S_MAX: Final = 50
JSON: Final = "json"
TEXT: Final = "text"
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (?:error: )?")


class Line(msgspec.Struct, omit_defaults=True):
    """One line as an object."""

    at: str
    level: str
    run: str
    role: str
    says: str
    instance: str = ""
    trace_id: str = ""


class Logs:
    """The log of one process; any thread may write."""

    def __init__(self) -> None:
        self.run = ""
        self.role = ""
        self._lock = threading.Lock()
        self._second = 0
        self._written = 0
        self._left_out = 0

    def say(self, says: str, level: str = "info", instance: str = "") -> None:
        """Write one line to stderr, which is the log file of a process that was started by a supervisor."""
        now_us = time.time_ns() // 1000
        with self._lock:
            left_out = self._turn_of(now_us // 1_000_000)
            if left_out < 0:
                return
            if left_out:
                self._write(now_us, f"{left_out:,} further lines of that second were left out", "info", "")
            self._write(now_us, says, level, instance)
            _turn()

    def _turn_of(self, second: int) -> int:
        """How many lines were left out before this one; −1: this one is, too."""
        if second != self._second:
            left_out, self._second, self._written, self._left_out = self._left_out, second, 1, 0
            return left_out
        self._written += 1
        if self._written > LINES_PER_S_MAX:
            self._left_out += 1
            return -1
        return 0

    def _write(self, now_us: int, says: str, level: str, instance: str) -> None:
        at = f"{to_datetime(now_us):%Y-%m-%dT%H:%M:%S}.{now_us // 1000 % 1000:03}Z"
        if form() == JSON:
            line = Line(at, level, self.run, self.role, says, instance, _trace_of(instance))
            text = msgspec.json.encode(line).decode()
        else:
            text = f"{at} {'error: ' if level == 'error' else ''}{says}"
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


own_log: Final = Logs()
"""That of this process."""


def form(environment: MutableMapping[str, str] | None = None) -> str:
    """json, text, or nothing, where nobody asked."""
    return (os.environ if environment is None else environment).get(LOG_FORM, "")


def said(line: str) -> str:
    """What a line of a log file says, without its time."""
    if line.startswith("{"):
        try:
            return msgspec.json.decode(line, type=Line).says
        except UNDECODABLE:
            return line
    return _TIME.sub("", line, count=1)


def turn_before_start(log: Path) -> None:
    """What a process wrote that keeps no log of its own, a traceback without end, say, is bounded by its restarts."""
    if log.exists() and log.stat().st_size > BYTES_MAX:
        os.replace(log, before(log))


def _trace_of(instance: str) -> str:
    traces = tracer()
    return "" if traces is None or not instance else traces.trace_id(process_ref(instance).of)


def _turn() -> None:
    """If our file has grown too large, make it the one before and go on in a new one. Nobody else renames it."""
    path = os.environ.get(LOG_FILE, "")
    if not path or os.fstat(sys.stderr.fileno()).st_size <= BYTES_MAX:
        return
    try:
        if not os.path.samestat(os.fstat(sys.stderr.fileno()), os.stat(path)):
            return
        os.replace(path, before(Path(path)))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return
    for number in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(descriptor, number)
    os.close(descriptor)
