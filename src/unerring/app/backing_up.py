"""`unerring backup`: a run as it is, while it goes on or stopped, copied to another place.

What follows from something is copied before it: positions before databases, databases before the log, found streams
before the streams that they were found in. So whatever a copy relies on is in it, and a run that goes on from it is one
whose processes all died at the moment of their databases. Those of one host are of one moment: its processes stand
still while they are read.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring import __version__
from unerring.app.backups import (
    BEFORE,
    BEGUN,
    CAUSES,
    EFFECTS,
    HOST,
    KEYS,
    LIST,
    ON_HOST,
    ON_STORE,
    SHARED,
    STATES,
    STREAM,
    Backup,
    Saved,
    finish,
)
from unerring.app.folder import check_run, run_in
from unerring.app.owner import owned_elsewhere, owned_here
from unerring.app.place import LOG, Place, Where, matching, place_of
from unerring.app.rooting import own_streams
from unerring.log import CHECKED, EventLog, LocalStore, SigningKey, Store, check_store, store_at
from unerring.model import CallerError, LogError, UnerringError, protect_json, sha256_of, verified_json
from unerring.runtime import family, find_all, paused

PAUSE_S_MAX: Final = 10.0
"""The longest that a run may stand still while its databases are read."""
_TRIES: Final = 5
"""Compaction and retention may take an object away between its listing and its copy."""
_AT_ONCE: Final = 8

Say = Callable[[int, int], Any]
"""Hears how many objects and bytes there are by now."""


class Begun(msgspec.Struct, frozen=True):
    """Where a backup is under way."""

    run: str


def back_up(
    where: Where,
    to: Where,
    *,
    states: bool = True,
    keys: bool = False,
    key: SigningKey | None = None,
    say: Say = lambda objects, size: None,
) -> Backup:
    """Copy a run to an empty place; entered again, it goes on with one that was interrupted."""
    run = place_of(where)
    check_run(run)
    target = _begin(run, store_at(to.address if isinstance(to, Place) else to))
    remembered = run_in(run)
    copying = _Copying(target, say)
    roots = list(matching(run.store, "roots/*.json"))
    copying.all(run.store, _names(run.store, EFFECTS), changes=True)
    taken_us, paused_us = _copy_host(run, copying, keys)
    copying.all(run.store, [*roots, *_names(run.store, BEFORE)])
    if states:
        copying.all(run.store, _names(run.store, STATES))
    streams = {stream: copying.stream(run, stream) for stream in _found_first(run)}
    copying.all(run.store, _names(run.store, CAUSES), changes=True)
    if states:  # where retention cut the log meanwhile, rules begin with the states that it kept first
        copying.all(run.store, _names(run.store, STATES))
    backup = Backup(
        run=str(run),
        app=remembered.app if remembered else "",
        release=__version__,
        taken_us=taken_us,
        paused_us=paused_us,
        elsewhere=tuple(owned_elsewhere(run)),
        streams=streams,
        files=tuple(copying.saved[name] for name in sorted(copying.saved)),
        states=states,
        keys=keys,
    )
    return finish(target, backup, key)


def _begin(run: Place, target: Store) -> Store:
    """The empty place, or the one where a backup of this run was interrupted."""
    where = target.locate("")
    if isinstance(target, LocalStore) and run.is_folder and Path(where).resolve().is_relative_to(run.address):
        raise CallerError(f"{where} is inside the run's own folder; give another place")
    if target.read(LIST) is not None:
        raise CallerError(f"there is a backup in {where}, and nothing is overwritten; give a new place")
    content = target.read(BEGUN)
    if content is None:
        if not isinstance(target, LocalStore):
            check_store(target)
        if set(target.names("")) - {CHECKED}:
            raise CallerError(f"{where} is not empty, and nothing is overwritten; give a new place")
        target.create(BEGUN, protect_json(Begun(run.address)))
        return target
    begun = verified_json(content, Begun, target.locate(BEGUN), "remove what is there, and begin anew")
    if begun.run != run.address:
        raise CallerError(f"a backup of {begun.run} was begun in {where}; give another place")
    return target


def _names(store: Store, patterns: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for pattern in patterns for name in matching(store, pattern)))


def _found_first(run: Place) -> list[str]:
    """The streams that rules made, and then those that they are made from."""
    made = {name: run.log.chain(name).last() for name in own_streams(run)}
    return sorted(made, key=lambda name: (last := made[name]) is None or not last.rule)


def _copy_host(run: Place, copying: _Copying, keys: bool) -> tuple[int, int]:
    """The databases of this host's processes, of one moment; when that was, and how long they stood still."""
    patterns = (*HOST, *KEYS) if keys else HOST
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=run.scratch if run.scratch.is_dir() else None) as aside:
        with _still(run) as stood_still:
            began_us = time.time_ns() // 1000
            shared = {name: run.store.read(name) for name in _names(run.store, SHARED)}
            paths = sorted({path for pattern in patterns for path in run.scratch.glob(pattern) if path.is_file()})
            names = [path.relative_to(run.scratch).as_posix() for path in paths if path.name != "owner.json"]
            for name in names:
                (Path(aside) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(run.scratch / name, Path(aside) / name)
            paused_us = time.time_ns() // 1000 - began_us if stood_still else 0
        for name, content in shared.items():
            if content is not None:
                copying.put(f"{ON_STORE}/{name}", content)
        for name in names:
            copying.put(f"{ON_HOST}/{name}", (Path(aside) / name).read_bytes())
    return began_us, paused_us


@contextmanager
def _still(run: Place) -> Iterator[bool]:
    """The run's processes on this host stand still: the one that supervises first, or it would miss the others.
    Whether there are any."""
    begun = [process for folder in (run.scratch, run.live, run.processes) for process in find_all(folder)]
    everybody = family([*owned_here(run), *begun])
    with paused(everybody, PAUSE_S_MAX):
        yield bool(everybody)


class _Copying:
    """Copies objects into a backup, each once, and remembers them for its list."""

    def __init__(self, target: Store, say: Say) -> None:
        self.target = target
        self.saved: dict[str, Saved] = {}
        self._say = say
        self._bytes = 0

    def put(self, name: str, content: bytes) -> None:
        """Something that may be there from an earlier try, and then is older."""
        self.target.replace(name, content)
        self._count(Saved(name, len(content), sha256_of(content)))

    def all(self, source: Store, names: Iterable[str], *, changes: bool = False) -> None:
        """Copy what is still there, and was not copied yet. `changes`: a copy of an earlier try may be older."""
        wanted = [name for name in names if changes or f"{ON_STORE}/{name}" not in self.saved]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for saved in pool.map(partial(self._copy, source, changes), wanted):
                if saved is not None:
                    self._count(saved)

    def _copy(self, source: Store, changes: bool, name: str) -> Saved | None:
        content = source.read(name)
        if content is None:
            return None
        saved = Saved(f"{ON_STORE}/{name}", len(content), sha256_of(content))
        # What never changes is there already after an interruption, or was damaged since.
        if changes or (not self.target.create(saved.name, content) and self.target.read(saved.name) != content):
            self.target.replace(saved.name, content)
        return saved

    def _count(self, saved: Saved) -> None:
        self.saved[saved.name] = saved
        self._bytes += saved.bytes
        self._say(len(self.saved), self._bytes)

    def stream(self, run: Place, name: str) -> int:
        """Copy a stream until the copy is one without a gap; how far it goes."""
        copied = EventLog(self.target.within(f"{ON_STORE}/{LOG}"))
        tries = 0
        while True:
            for patterns in STREAM:
                names = _names(run.store, (f"{LOG}/{name}/{pattern}" for pattern in patterns))
                self.all(run.store, names, changes="stream.json" in patterns)
            try:
                chain = copied.chain(name)
                chain.check()
            except UnerringError as error:
                tries += 1
                if tries == _TRIES:
                    raise LogError(f"stream {name} could not be copied as a whole: {error}") from None
            else:
                return chain.through_us
