"""The one error tree.

```text
UnerringError
├── CallerError             your mistake: fix the call, the file or the configuration
│   ├── ConfigError         a bound or an option that cannot be
│   │   └── MissingExtra    a library of an extra that is not installed
│   ├── SchemaError         a stream's declaration, or an event that does not fit it
│   ├── RuleError           a rule that is wrong as written (its name and what to change)
│   └── ProcessError        a process graph that is wrong as written
├── PeerError               the other side's fault: what it sent is refused, counted and reported
│   ├── FrameError          bytes that are not a message of ours, or too many of them
│   ├── ProtocolError       a message of ours that its sender cannot mean: refused before anything of it is believed
│   ├── StaleEpoch          a frame of a producer's earlier incarnation
│   └── HandshakeError      another version, another cluster, no right to speak
├── WorldError              disk, network, time: may go away by itself
│   ├── DiskError           a failed sync or a full disk; the replica stops
│   ├── LogError            a log that is damaged, foreign or has a gap: which file, and what to do
│   ├── NetworkError        nobody there, or cut off
│   └── MessageLoss         events that cannot be recovered: producer, epoch, exact range, cause
├── InstanceFailed          a process instance that did not complete: how it ended, and why
└── Refused                 raised by an action: it did nothing, and will not

InvariantBreach             we are wrong ourselves. Not an `Exception`: nothing may swallow it, the process stops.
```
"""

from __future__ import annotations

from typing import NoReturn


class UnerringError(Exception):
    """The base of all errors of this package. The text says what is wrong and what to do."""


class CallerError(UnerringError):
    """The caller's mistake."""


class ConfigError(CallerError):
    """A configuration value that cannot be."""


class MissingExtra(ConfigError):
    """A library that is not in the core, and is not installed."""


class SchemaError(CallerError):
    """A stream declared wrongly, or an event that does not fit its stream."""


class RuleError(CallerError):
    """A rule that is wrong as written."""


class ProcessError(CallerError):
    """A process graph that is wrong as written."""


class PeerError(UnerringError):
    """The other side's fault."""


class FrameError(PeerError):
    """Bytes that are not a message of ours."""


class ProtocolError(PeerError):
    """A message that breaks what its protocol says: its sender's fault. It costs the link, never the process, and
    nothing of it is believed or kept."""


class StaleEpoch(PeerError):
    """A frame of a producer's earlier incarnation."""


class HandshakeError(PeerError):
    """The other side may not speak with us: version, cluster or identity."""


class WorldError(UnerringError):
    """Disk, network or time failed us."""


class DiskError(WorldError):
    """Stable storage did not take what it was given. Whoever promised to keep it must stop."""


class LogError(WorldError):
    """An event log that cannot be read as it lies there. Nothing in it is changed or skipped."""


class NetworkError(WorldError):
    """The other end is absent, refuses, or was cut off."""


class MessageLoss(WorldError):
    """Events are lost for good: `first` to `last` of a producer's epoch. `last` is None if the end is unknown."""

    def __init__(
        self, producer: str, epoch: int, first: int, last: int | None, cause: str, producer_id: int = 0
    ) -> None:
        self.producer = producer
        self.producer_id = producer_id
        self.epoch = epoch
        self.first = first
        self.last = last
        self.cause = cause
        until = "an unknown end" if last is None else str(last)
        super().__init__(
            f"lost for good: events {first} to {until} of producer {producer!r}, epoch {epoch} ({cause}); "
            "choose a reaction with on_loss= if the application can continue without them"
        )


class InstanceFailed(UnerringError):
    """A process instance that ended without completing. `status`: cancelled, failed or parked."""

    def __init__(self, instance: str, status: str, reason: str) -> None:
        self.instance = instance
        self.status = status
        self.reason = reason
        super().__init__(f"{instance} was {status}: {reason}")


class Refused(UnerringError):
    """Raised by a local action that did nothing and never will. `for_good`: it would refuse at any later time too."""

    def __init__(self, why: str, for_good: bool = False) -> None:
        super().__init__(why)
        self.for_good = for_good


class InvariantBreach(BaseException):
    """Something that cannot be, is. Continuing could make a wrong answer look right."""


def invariant(condition: object, why: str) -> None:
    """Stop unless `condition` holds; `why` says what was believed."""
    if not condition:
        breach(why)


def breach(why: str) -> NoReturn:
    """Stop: a branch that cannot be reached was."""
    raise InvariantBreach(f"invariant broken: {why}")
