"""What `module:attribute` and `name=value` on the command line mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unerring.app import find as load
from unerring.model import CallerError

if TYPE_CHECKING:
    from unerring.processes import Choice, Process

__all__ = ["counts", "load", "naming_at", "pairs", "versions_at"]


def versions_at(addresses: Sequence[str]) -> list[Process]:
    """The processes at these addresses, and all versions of an app's, in the order in which they were given."""
    from unerring.app import App
    from unerring.processes import Process

    versions: list[Process] = []
    for address in addresses:
        target = load(address)
        if isinstance(target, App):
            versions += target.versions
        elif isinstance(target, Process):
            versions.append(target)
        else:
            raise CallerError(
                f"{address} is {type(target).__name__}, not a process; name a Process, or what its flow(...) returned"
            )
    return versions


def naming_at(text: str) -> str | Choice:
    """What `--naming` says: one of the known ways, or a function of the user's own."""
    if ":" not in text:
        return text
    choice = load(text)
    if not callable(choice):
        raise CallerError(f"{text} is {type(choice).__name__}; name a function of (process, actions, led)")
    found: Choice = choice
    return found


def pairs(given: Sequence[str] | None) -> dict[str, str]:
    """Options of the form name=value, each given once."""
    values = {}
    for item in given or ():
        name, sign, value = item.partition("=")
        if not sign or not name or not value:
            raise CallerError(f"{item!r} is not NAME=VALUE; write for example n1=127.0.0.1:7001")
        values[name] = value
    return values


def counts(shards: Sequence[str] | None) -> dict[str, int]:
    """What `--shards NODE=N` says, given any number of times."""
    found: dict[str, int] = {}
    for node, text in pairs(shards).items():
        try:
            found[node] = int(text)
        except ValueError:
            example = f"write for example {node}=4"
            raise CallerError(f"--shards {node}={text}: {text!r} is not a number; {example}") from None
    return found
