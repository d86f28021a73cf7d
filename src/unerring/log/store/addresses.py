"""What a user may write for a place: a path, a `file://` address, or the address of an object store.

An address is a plain text: it is what goes into a run's description and to other processes, never a client.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from unerring.log.store.bucket import Bucket
from unerring.log.store.folder import LocalStore, scheme_of
from unerring.log.store.objects import ObjectStore
from unerring.log.store.port import Store
from unerring.model import CallerError

_BUCKETS: Final = ("s3", "gs", "az", "memory")
_MEANT: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az", "abfs": "az", "abfss": "az", "wasbs": "az"}


def store_at(address: str | os.PathLike[str]) -> Store:
    """The store at an address: a path, `file://`, `s3://bucket/run`, `gs://`, `az://container/run`, `memory://name`."""
    text = os.fspath(address)
    scheme = scheme_of(text)
    if scheme is None or scheme == "file":
        return LocalStore(address)
    if scheme not in _BUCKETS:
        meant = (
            f"write {_MEANT[scheme]}://" if scheme in _MEANT else f"give a folder, or {'://, '.join(_BUCKETS[:3])}://"
        )
        raise CallerError(f"there is no store for {scheme}://; {meant}")
    rest = text[len(scheme) + 1 :]
    # A Path has lost one of the slashes.
    parts = urlsplit(f"{scheme}:{rest}" if rest.startswith("//") else f"{scheme}:/{rest}")
    if parts.username is not None or parts.password is not None:
        raise CallerError(
            f"the address of a {scheme}:// store holds credentials, which would be seen in process lists; "
            "leave them out, and set them in the environment or a profile"
        )
    if not parts.netloc or parts.query or parts.fragment:
        raise CallerError(f"{text} is not the address of a bucket; write {scheme}://bucket/run")
    prefix = parts.path.strip("/")
    where = f"{scheme}://{parts.netloc}"
    return ObjectStore(Bucket(scheme, parts.netloc), f"{where}/{prefix}" if prefix else where, prefix)


def join(address: str | os.PathLike[str], name: str) -> str:
    """The address of what is called `name` below an address: a path below a path."""
    text = os.fspath(address)
    if scheme_of(text) is None:
        return str(Path(text) / name)
    return f"{text.rstrip('/')}/{name}"
