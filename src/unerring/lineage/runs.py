"""A run of a job, as lineage tells it: one event when it starts, one when it ends.

It is on if one of OpenLineage's variables says where events go (`OPENLINEAGE_URL`, `OPENLINEAGE_CONFIG`,
`OPENLINEAGE__TRANSPORT…`) and `OPENLINEAGE_DISABLED` does not say no. If it is off, nothing is made and nothing is
loaded. Events are handed to a thread, so a job never waits for a receiver while it works.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final

import msgspec

from unerring.lineage.datasets import Dataset

_WHERE: Final = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
_TRANSPORT: Final = "OPENLINEAGE__TRANSPORT"
_DISABLED: Final = "OPENLINEAGE_DISABLED"
_NAMESPACE: Final = "OPENLINEAGE_NAMESPACE"


class Flow(msgspec.Struct, frozen=True):
    """What a job reads and writes."""

    inputs: tuple[Dataset, ...] = ()
    outputs: tuple[Dataset, ...] = ()


class Job(msgspec.Struct, frozen=True):
    """What runs: its name and kind (ingest, detect, deliver), and on what."""

    namespace: str
    name: str
    kind: str
    engine: str
    streaming: bool


class Moment(msgspec.Struct, frozen=True):
    """An event before it is one of OpenLineage's, which the thread that sends it makes of it."""

    state: str
    """START, COMPLETE, FAIL or ABORT."""
    time: str
    run: str
    job: Job
    parent: tuple[str, Job] | None
    flow: Flow
    rows: int | None
    """How many were written, where that is known."""
    error: str


class TracedRun:
    """One run of a job; all its methods do nothing if lineage is off."""

    def __init__(self, job: Job | None, flow: Flow, parent: TracedRun | None) -> None:
        self.rows: int | None = None
        """Rows that were written, if somebody counts them."""
        self._job = job
        self._flow = flow
        self._parent = parent
        self._id = str(uuid.uuid4()) if job is not None else ""

    @property
    def is_on(self) -> bool:
        return self._job is not None

    def start(self) -> None:
        self._tell("START")

    def complete(self) -> None:
        self._tell("COMPLETE")

    def fail(self, error: BaseException) -> None:
        self._tell("FAIL", f"{type(error).__name__}: {error}")

    def abort(self) -> None:
        """Somebody ended it before its end."""
        self._tell("ABORT")

    def _tell(self, state: str, error: str = "") -> None:
        if self._job is None:
            return
        from unerring.lineage.sender import send

        parent = self._parent
        above = (parent._id, parent._job) if parent is not None and parent._job is not None else None
        now = datetime.now(UTC).isoformat()
        send(Moment(state, now, self._id, self._job, above, self._flow, self.rows, error))


_current: ContextVar[TracedRun | None] = ContextVar("unerring_lineage", default=None)
_OFF: Final = TracedRun(None, Flow(), None)


def is_on(variables: Mapping[str, str] = os.environ) -> bool:
    """Whether the variables ask for lineage."""
    if variables.get(_DISABLED, "").strip().lower() == "true":
        return False
    return any(variables.get(name) for name in _WHERE) or any(name.startswith(_TRANSPORT) for name in variables)


def current() -> TracedRun | None:
    """The run that this code is a part of."""
    return _current.get()


def begin(
    kind: str,
    name: str,
    flow: Callable[[], Flow],
    *,
    engine: str = "unerring",
    streaming: bool = False,
    parent: TracedRun | None = None,
) -> TracedRun:
    """Tell that a job starts. Whoever calls this says how it ends. `flow` is asked only if lineage is on."""
    if not is_on():
        return _OFF
    job = Job(os.environ.get(_NAMESPACE) or "default", name, kind, engine, streaming)
    run = TracedRun(job, flow(), parent or current())
    run.start()
    return run


@contextmanager
def traced(
    kind: str,
    name: str,
    flow: Callable[[], Flow],
    *,
    engine: str = "unerring",
    streaming: bool = False,
    parent: TracedRun | None = None,
) -> Iterator[TracedRun]:
    """A job that is this block: it completes, or fails with what the block raises. Jobs in the block are its parts."""
    run = begin(kind, name, flow, engine=engine, streaming=streaming, parent=parent)
    before = _current.set(run) if run.is_on else None
    try:
        with ending([run]):
            yield run
    finally:
        if before is not None:
            _current.reset(before)


@contextmanager
def ending(runs: Sequence[TracedRun]) -> Iterator[None]:
    """Runs that end with this block: they complete, or fail with what it raises."""
    try:
        yield
    except Exception as error:
        for run in runs:
            run.fail(error)
        raise
    except BaseException:
        for run in runs:
            run.abort()
        raise
    for run in runs:
        run.complete()
