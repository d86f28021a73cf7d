"""What a backup is: the objects of a run's store, this host's databases, and a list of all of it with hashes, which is
written last and so stands for a backup that is complete.
"""

from __future__ import annotations

from typing import Final

import msgspec

from unerring import __version__
from unerring.app.place import LOG
from unerring.app.trail import PATTERN
from unerring.log import SigningKey, Store, is_signed
from unerring.model import CallerError, LogError, protect_json, sha256_of, verified_json

LIST: Final = "backup.json"
BEGUN: Final = "begun.json"
ON_STORE: Final = "store"
ON_HOST: Final = "scratch"
FORMAT: Final = 1

EFFECTS: Final = (
    "run.json",
    "audit.json",
    "audit.html",
    "sinks/*.json",
    f"{LOG}/*/reached.json",
    f"{LOG}/*/positions/*.json",
    f"{LOG}/*/ingested/*.json",
    f"{LOG}/*/ingested/*/*.json",
    f"{LOG}/*/quarantine/*.returned",
    "needs/*",
    PATTERN,
)
"""How far somebody came with the log: copied before the log, which then goes at least as far."""
SHARED: Final = ("live.json", "membership/*", "placement/*", "arrangements/*")
"""What live processes have on the store: of the same moment as their databases."""
BEFORE: Final = ("large/*/*",)
"""Created once; named by databases, so copied after them."""
STATES: Final = ("states/*/*", "savepoints/*/*")
STREAM: Final = (
    ("segments/*.parquet", "compacted/*.parquet", "index/*.json"),
    ("intake/*/*.json",),
    ("parts/*.parquet",),
    ("quarantine/*.parquet", "quarantine/*.returning"),
    ("base.json", "resets.json", "stream.json"),
)
"""What a stream is, each line before what it follows from."""
CAUSES: Final = (f"{LOG}/rule-versions/*", f"{LOG}/.versions/*", f"{LOG}/rule-upgrades/*", f"{LOG}/*/link.json")
HOST: Final = (
    "*.db",
    "*.db-wal",
    "*.jsonl",
    "channels.json",
    "costs/*.json",
    "failovers/*us",
    "kept.json",
    "nodes.json",
    "policy.toml",
    "live/*.db",
    "live/*.db-wal",
    "live/*.json",
    "live/*.jsonl",
    "processes/*.db",
    "processes/*.db-wal",
    "processes/*.json",
    "processes/*.jsonl",
    "processes/costs/*.json",
    "processes/failovers/*us",
)
"""Databases and ledgers of this host."""
KEYS: Final = ("live/secret", "processes/secret", "live/tls/**/*")
"""Secrets of the run: its processes draw new ones where there are none."""


class Saved(msgspec.Struct, frozen=True, array_like=True):
    """One object of a backup."""

    name: str
    bytes: int
    sha256: str


class Backup(msgspec.Struct, frozen=True):
    """The list of a backup."""

    run: str
    app: str
    release: str
    taken_us: int
    """The moment whose state the databases have; the log goes a little further."""
    paused_us: int
    """How long the run stood still for it; 0: nothing ran."""
    streams: dict[str, int]
    """How far each stream goes."""
    elsewhere: tuple[str, ...]
    """Hosts that had a part of the run: their databases are not in it."""
    files: tuple[Saved, ...]
    states: bool = True
    keys: bool = False
    """Whether the run's secrets are in it."""
    format: int = FORMAT
    key: str = ""
    """The public key that signed it; empty: nobody did."""
    signature: str = ""

    @property
    def size(self) -> int:
        return sum(one.bytes for one in self.files)

    @property
    def statement(self) -> bytes:
        """What is signed, and hashed."""
        return msgspec.json.encode(msgspec.structs.replace(self, signature=""))

    @property
    def hash(self) -> str:
        """Stands for the whole backup; whoever keeps it elsewhere recognizes a backup that was made anew."""
        return sha256_of(self.statement)


def finish(target: Store, backup: Backup, key: SigningKey | None) -> Backup:
    """Sign and write the list; the backup is complete."""
    if key is not None:
        backup = msgspec.structs.replace(backup, key=key.public)
        backup = msgspec.structs.replace(backup, signature=key.sign(backup.statement))
    target.replace(LIST, protect_json(backup))
    target.delete(BEGUN)
    return backup


def read_backup(source: Store, trusted: str = "", hashed: str = "") -> Backup:
    """The list of a backup; a sentence if it is no backup, incomplete, changed, or not the one that was meant."""
    where = source.locate("")
    content = source.read(LIST)
    if content is None:
        if source.read(BEGUN) is not None:
            raise CallerError(f"the backup in {where} is not complete: enter the `unerring backup` again that began it")
        raise CallerError(f"there is no backup in {where}: it has no {LIST}; give what `unerring backup` wrote")
    remedy = "use another backup"
    try:
        known = verified_json(content, dict[str, object], source.locate(LIST), remedy)
        if known.get("format") != FORMAT:
            raise CallerError(
                f"{where} has backup format {known.get('format')}, of release {known.get('release')}; this release "
                f"({__version__}) reads {FORMAT}: use the one that made it"
            )
        backup = verified_json(content, Backup, source.locate(LIST), remedy)
    except LogError as error:
        raise LogError(f"the backup cannot be trusted: {error}") from None
    if backup.key and not is_signed(backup.statement, backup.key, backup.signature):
        raise LogError(f"{source.locate(LIST)} is not what key {backup.key} signed: it was changed; {remedy}")
    if trusted and backup.key != trusted:
        by = f"signed by key {backup.key}" if backup.key else "not signed"
        raise LogError(f"{source.locate(LIST)} is {by}, not by the trusted one ({trusted}); {remedy}")
    if hashed and backup.hash != hashed:
        raise LogError(f"{source.locate(LIST)} has hash {backup.hash}, not {hashed}: it is another backup, or changed")
    return backup
