"""`unerring restore`: a backup checked against its list, object by object, and copied to an empty place."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from unerring.app.backing_up import Say
from unerring.app.backups import ON_HOST, ON_STORE, Backup, Saved, read_backup
from unerring.app.folder import FILE, RESTORING, Remembered
from unerring.app.place import Place
from unerring.log import CHECKED, LocalStore, Store, store_at
from unerring.model import CallerError, LogError, protect_json, sha256_of, verified_json

_AT_ONCE: Final = 8
_RUN: Final = f"{ON_STORE}/{FILE}"


def restore(
    address: str,
    to: Place | None,
    *,
    trusted: str = "",
    hashed: str = "",
    say: Say = lambda objects, size: None,
) -> Backup:
    """Check a backup, and copy it to a place, if one is given; entered again, it goes on with one that was interrupted.

    `trusted`: the public key that must have signed it; `hashed`: the hash that it must have. Until all is there the
    place is refused by every command.
    """
    source = store_at(address)
    backup = read_backup(source, trusted, hashed)
    if to is not None:
        _begin(to, backup)
    targets = {} if to is None else {ON_STORE: to.store, ON_HOST: LocalStore(to.scratch)}
    done = size = 0
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for one in pool.map(partial(_copy, source, targets), backup.files):
            done, size = done + 1, size + one.bytes
            say(done, size)
    if to is not None:
        _finish(source, to)
    return backup


def _copy(source: Store, targets: dict[str, Store], saved: Saved) -> Saved:
    """One object of a backup, if it is what the list says that it is."""
    content = source.read(saved.name)
    whence = source.locate(saved.name)
    if content is None:
        raise LogError(f"{whence} is missing, which the backup's list names; use another backup")
    if len(content) != saved.bytes or sha256_of(content) != saved.sha256:
        raise LogError(f"{whence} is not what was saved: it is damaged, or was changed; use another backup")
    if targets and saved.name != _RUN:
        where, _, name = saved.name.partition("/")
        if not targets[where].create(name, content) and targets[where].read(name) != content:
            raise CallerError(f"{targets[where].locate(name)} was changed while it was restored; give a new place")
    return saved


def _begin(to: Place, backup: Backup) -> None:
    """An empty place, or one where a restore of this backup was interrupted."""
    to.check()
    mark = protect_json(Remembered(backup.hash, backup.release, RESTORING))
    held = to.store.read(FILE)
    if held == mark:
        return
    if held is not None and verified_json(held, Remembered, to.store.locate(FILE)).format == RESTORING:
        raise CallerError(f"a restore of another backup into {to} was interrupted; give another place")
    if set(to.store.names("")) - {CHECKED} or (to.scratch.is_dir() and any(to.scratch.iterdir())):
        raise CallerError(f"{to} is not empty, and nothing is overwritten; give a new place")
    to.store.replace(FILE, mark)


def _finish(source: Store, to: Place) -> None:
    """From now on it is a run."""
    content = source.read(_RUN)
    if content is None:
        to.store.delete(FILE)
    else:
        to.store.replace(FILE, content)
