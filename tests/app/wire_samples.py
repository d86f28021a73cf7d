"""Every message of every protocol, as one release makes it, and what it reads of another's. It runs under either one:

`python -m tests.app.wire_samples` writes the messages, by protocol and kind, and the numbers of formats, as JSON;
with another release's as its input, and the argument `read`, it says which of them it refuses, and why.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from typing import Any

from msgspec import inspect

import unerring
from unerring.channels import ChannelCodec, ChannelConfig
from unerring.correlation import codec as correlation_codec
from unerring.model import Codec, PeerError
from unerring.processes import codec as process_codec
from unerring.runtime import greeting
from unerring.runtime.transports import hello

PROTOCOLS: dict[str, Codec] = {
    "correlation": correlation_codec(8 << 20),
    "processes": process_codec(),
    "channels": ChannelCodec(ChannelConfig())._control,
    "greeting of nodes": greeting._CODEC,
    "greeting of channels": hello.GREETINGS,
}
VARIANTS = 3
"""Of each message so many: where a field may be one thing or another, each has another one."""
NUMBERS = ("FORMAT", "VERSION", "SCHEMA_VERSION")


def written() -> dict[str, Any]:
    messages = {}
    for protocol, codec in PROTOCOLS.items():
        known = inspect.type_info(codec._decoder.type)
        kinds = known.types if isinstance(known, inspect.UnionType) else (known,)
        messages[protocol] = {
            str(kind.tag): [codec.encode(sample(kind, n)).hex() for n in range(VARIANTS)]
            for kind in kinds
            if isinstance(kind, inspect.StructType)
        }
    return {"messages": messages, "numbers": numbers()}


def numbers() -> dict[str, int]:
    """By module, of what it writes on a disk or says in a greeting."""
    known = {}
    for package in ("app", "audit", "log", "matching", "pipeline", "runtime"):
        path = importlib.import_module(f"unerring.{package}").__path__
        for module in pkgutil.walk_packages(path, f"unerring.{package}."):
            source = importlib.util.find_spec(module.name)
            if (
                source is None
                or source.origin is None
                or not any(f"\n{name}" in _text(source.origin) for name in NUMBERS)
            ):
                continue
            loaded = importlib.import_module(module.name)
            known |= {
                f"{module.name}.{name}": value for name in NUMBERS if isinstance(value := vars(loaded).get(name), int)
            }
    return known


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def refused(theirs: dict[str, Any]) -> dict[str, dict[str, str]]:
    """By protocol and kind: why it is not read. Nothing else than a sender's fault is an answer."""
    refusals: dict[str, dict[str, str]] = {}
    for protocol, kinds in theirs["messages"].items():
        for kind, messages in kinds.items():
            for message in messages:
                try:
                    read = PROTOCOLS[protocol].decode(bytes.fromhex(message))
                except PeerError as error:
                    refusals.setdefault(protocol, {})[kind] = str(error)
                else:
                    assert type(read).__name__ == kind, f"{kind} was read as {read}"
    return refusals


def sample(of: Any, variant: int) -> Any:
    """A value of a type that msgspec knows, with something in each of its fields."""
    match of:
        case inspect.StructType():
            return of.cls(**{field.name: sample(field.type, variant) for field in of.fields})
        case inspect.NamedTupleType():
            return of.cls(*(sample(field.type, variant) for field in of.fields))
        case inspect.UnionType():
            return sample(of.types[variant % len(of.types)], variant)
        case inspect.IntType():
            return max(of.ge or 0, 1) if of.le is None or of.le >= 1 else of.le
        case inspect.FloatType():
            return 1.5
        case inspect.StrType():
            return "a"
        case inspect.BytesType():
            return b"a"
        case inspect.BoolType():
            return True
        case inspect.NoneType():
            return None
        case inspect.LiteralType():
            return of.values[0]
        case inspect.EnumType():
            return next(iter(of.cls))
        case inspect.TupleType():
            return tuple(sample(item, variant) for item in of.item_types)
        case inspect.VarTupleType():
            return (sample(of.item_type, variant),)
        case inspect.ListType():
            return [sample(of.item_type, variant)]
        case inspect.DictType():
            return {sample(of.key_type, variant): sample(of.value_type, variant)}
        case inspect.AnyType():
            return 1
    raise TypeError(f"{of}: say how one is made")


if __name__ == "__main__":
    answer = refused(json.load(sys.stdin)) if sys.argv[1:] == ["read"] else written()
    json.dump({"from": unerring.__file__, **answer} if sys.argv[1:] != ["read"] else answer, sys.stdout)
