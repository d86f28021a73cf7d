"""Who may do what: a table of rights, read from `policy.toml`, asked by every port.

    run = "plant"
    revoked = ["producer/gw7"]

    [[allow]]
    who = "producer/gw*"
    publish = ["Reading"]

A `who` is ROLE/NAME, and every pattern may have `*`. `$name` stands for the name of whoever asks, also with a `/` and
anything behind it. What no entry allows is refused. Without a file the defaults count: to each role what it is for,
under its own name alone.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from unerring.model.errors import ConfigError
from unerring.model.identity import ANY_RUN, Actor, Who

OWN: Final = "$name"
ENTRIES_MAX: Final = 10_000
POLICY_BYTES_MAX: Final = 1 << 20
_LINE: Final = re.compile(r"line (\d+)")


class Right(StrEnum):
    """An action; what it is done to stands in brackets."""

    PUBLISH = "publish"
    """Publish events, heartbeats and watermarks of a stream [stream]."""
    READ = "read"
    """Subscribe to a stream, and ask for what is missing of it [stream]."""
    ACKNOWLEDGE = "acknowledge"
    """Register as a consumer, acknowledge, and say that a producer has a successor [consumer's name]."""
    RELAY = "relay"
    """Hand on what others published [stream]."""
    REPLICA = "replica"
    """Be a process of the live engine: take and send events, gossip acknowledgements, vote [process's name]."""
    MEMBERSHIP = "membership"
    """Keep the membership record [keeper's name]."""
    NODE = "node"
    """Be a process node: replicate states, vote, gossip, and with that start and cancel anything [node's name]."""
    START = "start"
    """Start instances from the dashboard [process]."""
    CANCEL = "cancel"
    """Cancel, signal, hold, retry and move instances from the dashboard [process]."""
    CALL = "call"
    """Ask a service through its filter [service]."""
    VIEW = "view"
    """See the dashboard [run]."""
    COMMAND = "command"
    """Change something from the dashboard [verb]."""


class Allow(msgspec.Struct, frozen=True):
    """One entry: whom it is about, and what they may do to what."""

    who: str
    rights: Mapping[str, Sequence[str]]

    def grants(self, who: Who, right: str, thing: str) -> bool:
        if not fnmatchcase(str(who), self.who):
            return False
        return any(
            thing.partition("/")[0] == who.name if pattern == OWN else fnmatchcase(thing, pattern)
            for pattern in self.rights.get(right, ())
        )


class Policy(msgspec.Struct, frozen=True):
    """All entries of a file, in its order."""

    allows: Sequence[Allow]
    run: str = ANY_RUN
    """The run that identities must be of; those of any run are taken too."""
    revoked: Sequence[str] = ()
    """Identities that may do nothing any more, whatever their certificates say."""
    keys: Mapping[str, str] = {}
    """Public keys by producers' names, for subscribers: where there are any, only what these signed is believed."""
    source: str = "the defaults"

    def revocation(self, role: str, name: str) -> str | None:
        """The pattern that takes every right from somebody, if there is one."""
        return next((pattern for pattern in self.revoked if fnmatchcase(f"{role}/{name}", pattern)), None)

    def reason(self, who: Who, right: str, thing: str) -> tuple[bool, str]:
        """Whether it is allowed, and the sentence that says why."""
        asked = f"{who} has {{}} right '{right} {thing}'"
        if self.run != ANY_RUN and who.run not in (self.run, ANY_RUN):
            return False, asked.format("no") + f": it is of run {who.run}, and {self.source} are for run {self.run}"
        pattern = self.revocation(who.role, who.name)
        if pattern is not None:
            return False, asked.format("no") + f": {self.source} revoke {pattern}"
        for number, allow in enumerate(self.allows, 1):
            if allow.grants(who, right, thing):
                return True, asked.format("the") + f": entry {number} of {self.source} allows it to {allow.who}"
        return False, asked.format("no") + f": no entry of {self.source} allows it"

    def explained(self, who: Who, right: str, thing: str) -> tuple[bool, str]:
        """`reason`, and what follows from another right: process nodes ask each other for `node` alone, since whoever
        replicates states could replicate one that is started or cancelled."""
        allowed, why = self.reason(who, right, thing)
        if allowed or right not in (Right.START, Right.CANCEL):
            return allowed, why
        node, by = self.reason(who, Right.NODE, who.name)
        if not node:
            return allowed, why
        return True, f"{by}; nodes start and cancel every process, and ask each other for no right but this one"

    def allows_any(self, whos: Iterable[Who], right: str, thing: str) -> bool:
        return any(self.reason(who, right, thing)[0] for who in whos)


def default_policy(
    run: str = ANY_RUN,
    streams: Sequence[str] = ("*",),
    processes: Sequence[str] = ("*",),
    services: Sequence[str] = ("*",),
) -> Policy:
    """The least that an application with these streams, processes and services needs."""
    everywhere = ("*",)
    return Policy(
        (
            Allow(f"{Actor.PRODUCER}/*", {Right.PUBLISH: streams}),
            Allow(f"{Actor.CONSUMER}/*", {Right.READ: streams, Right.ACKNOWLEDGE: (OWN,)}),
            Allow(f"{Actor.REPLICA}/*", {Right.REPLICA: (OWN,), Right.MEMBERSHIP: (OWN,)}),
            Allow(f"{Actor.NODE}/*", {Right.NODE: (OWN,), Right.CALL: services}),
            Allow(f"{Actor.SERVICE}/*", {Right.CALL: services}),
            Allow(
                f"{Actor.OPERATOR}/*",
                {Right.START: processes, Right.CANCEL: processes, Right.VIEW: everywhere, Right.COMMAND: everywhere},
            ),
            Allow(f"{Actor.VIEWER}/*", {Right.VIEW: everywhere}),
        ),
        run,
    )


def policy_text(policy: Policy) -> str:
    """A policy as a file."""
    lines = [f"run = {_quoted(policy.run)}", f"revoked = {_quoted(policy.revoked)}"]
    for allow in policy.allows:
        lines += ["", "[[allow]]", f"who = {_quoted(allow.who)}"]
        lines += [f"{right} = {_quoted(things)}" for right, things in allow.rights.items()]
    lines += ["", "[keys]", *(f"{_quoted(name)} = {_quoted(key)}" for name, key in policy.keys.items())]
    return "\n".join(lines) + "\n"


def _quoted(value: object) -> str:
    return msgspec.json.encode(value).decode()


def read_policy(text: str, source: str = "policy.toml") -> Policy:
    """A policy, or ConfigError with the line of the mistake."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = _LINE.search(str(error))
        where = f"{source}, line {line[1]}" if line else source
        raise ConfigError(f"{where}: not TOML: {error}") from None
    lines = _Lines(text, source)
    for name in table:
        if name not in ("run", "revoked", "allow", "keys"):
            raise ConfigError(
                f"{lines.of(name)}: there is no {name!r} in a policy; use run, revoked, [keys] and [[allow]]"
            )
    run = table.get("run", ANY_RUN)
    if not isinstance(run, str) or not run:
        raise ConfigError(f"{lines.of('run')}: run is the name of a run, in quotes")
    revoked = _texts(table.get("revoked", []), lines.of("revoked"), "revoked")
    for pattern in revoked:
        _check_pattern(pattern, lines.of(pattern))
    entries = table.get("allow", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"{lines.of('allow')}: entries begin with a line [[allow]], in two pairs of brackets")
    if len(entries) > ENTRIES_MAX:
        raise ConfigError(f"{source}: {len(entries)} entries; the limit is {ENTRIES_MAX}")
    allows = tuple(_entry(entry, number, lines) for number, entry in enumerate(entries, 1))
    return Policy(allows, run, tuple(revoked), _keys(table.get("keys", {}), lines), source)


def _keys(given: object, lines: _Lines) -> Mapping[str, str]:
    if not isinstance(given, dict):
        raise ConfigError(f'{lines.of("keys")}: keys stand below a line [keys], as NAME = "64 hexadecimal digits"')
    for name, key in given.items():
        if not isinstance(key, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", key):
            raise ConfigError(
                f"{lines.of(name)}: the key of {name} is not one of 64 hexadecimal digits; `unerring channel key` "
                "prints it"
            )
    return given


def _entry(entry: dict[str, Any], number: int, lines: _Lines) -> Allow:
    who = entry.get("who")
    if not isinstance(who, str):
        raise ConfigError(f'{lines.of("", number)}: an entry names whom it is about: who = "ROLE/NAME"')
    _check_pattern(who, lines.of(who, number))
    rights: dict[str, Sequence[str]] = {}
    for name, things in entry.items():
        if name == "who":
            continue
        if name not in set(Right):
            raise ConfigError(f"{lines.of(name, number)}: there is no right {name!r}; use one of {', '.join(Right)}")
        rights[name] = tuple(_texts(things, lines.of(name, number), name))
    if not rights:
        raise ConfigError(f"{lines.of('who', number)}: {who} is allowed nothing; give it a right, or leave it out")
    return Allow(who, rights)


def _check_pattern(pattern: str, where: str) -> None:
    role, separator, name = pattern.partition("/")
    if not separator or not name or "/" in name or (role != "*" and role not in set(Actor)):
        raise ConfigError(
            f"{where}: {pattern!r} names nobody; write ROLE/NAME, where ROLE is * or one of {', '.join(Actor)}"
        )


def _texts(value: object, where: str, name: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise ConfigError(f'{where}: {name} is a list of texts, such as ["Reading"]; ["*"] is everything')
    return value


class _Lines:
    """Where something stands in the text: TOML's parser tells lines only of what is not TOML."""

    def __init__(self, text: str, source: str) -> None:
        self._lines = text.splitlines()
        self._source = source

    def of(self, word: str, entry: int = 0) -> str:
        """The first line with `word`, in the entry of that number, or else outside of entries."""
        at, first = 0, 0
        for number, line in enumerate(self._lines, 1):
            if line.replace(" ", "").startswith("[[allow]]"):
                at += 1
                first = number if at == entry else first
            if at == entry and word and re.search(rf"(?<![\w$*]){re.escape(word)}(?![\w*])", line.partition("#")[0]):
                return f"{self._source}, line {number}"
        return f"{self._source}, line {first or 1}"
