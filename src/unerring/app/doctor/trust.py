"""Certificates that expire, and files that others could read or write."""

from __future__ import annotations

import datetime
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from unerring.app.doctor.finding import Finding, error, warning, well
from unerring.model import ConfigError
from unerring.runtime import NODE_CERTIFICATE, certificate_times, has_ca, server_context

SOON: Final = datetime.timedelta(days=14)
LISTED_MAX: Final = 3


def certificates(folders: Sequence[Path], renewed: bool, now: datetime.datetime | None = None) -> Iterator[Finding]:
    """Each folder's certificate: whether it can be used, and until when. `renewed`: the run has the CA's key here."""
    now = now or datetime.datetime.now(datetime.UTC)
    for folder in folders:
        try:
            server_context(folder)
            begins, ends = certificate_times(folder)
        except ConfigError as wrong:
            yield error("certificates", str(wrong))
            continue
        left = ends - now
        again = f"make another one: unerring certs NEW --ca CA ..., and put it in the place of {folder}"
        if begins > now:
            yield error(
                "certificates",
                f"the certificate in {folder} counts from {begins:%F %H:%M} UTC on; correct this clock, or its CA's",
            )
        elif left <= datetime.timedelta(0):
            yield error("certificates", f"the certificate in {folder} expired at {ends:%F %H:%M} UTC; {again}")
        elif left < min(SOON, (ends - begins) / 4) and not renewed:
            yield warning("certificates", f"the certificate in {folder} expires at {ends:%F %H:%M} UTC; {again}")
        else:
            yield well("certificates", f"the certificate in {folder} is good until {ends:%F %H:%M} UTC")


def folders_of(tls: str) -> tuple[list[Path], bool]:
    """The folders with a certificate at or below a folder, and whether the CA's key is here."""
    if not tls:
        return [], False
    top = Path(tls)
    below = sorted(path.parent for path in top.glob(f"*/{NODE_CERTIFICATE}"))
    return ([top] if (top / NODE_CERTIFICATE).exists() or not below else []) + below, has_ca(top)


def files(folder: Path) -> Iterator[Finding]:
    """The files of a run are for its user alone."""
    if not folder.is_dir():
        return
    open_, foreign = [], []
    for path in (folder, *sorted(folder.rglob("*"))):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue  # the run replaced it
        if stat.S_ISLNK(status.st_mode):
            continue
        if status.st_uid != os.geteuid():
            foreign.append(path)
        if status.st_mode & 0o022 or (status.st_mode & 0o077 and (path == folder or _is_secret(path))):
            open_.append(path)
    if foreign:
        yield error("files", f"{_listed(foreign)} belong to another user, so that the run cannot keep them; chown them")
    if open_:
        yield error(
            "files", f"others may read or write {_listed(open_)}; chmod go-rwx them, and draw new secrets if they did"
        )
    if not foreign and not open_:
        yield well("files", f"nobody else reads or writes {folder}")


def _is_secret(path: Path) -> bool:
    return path.name == "secret" or path.suffix == ".key"


def _listed(paths: Sequence[Path]) -> str:
    more = f" and {len(paths) - LISTED_MAX:,} more" if len(paths) > LISTED_MAX else ""
    return f"{', '.join(map(str, paths[:LISTED_MAX]))}{more}"
