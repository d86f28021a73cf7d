"""Hostile messages: recorded traffic of a scenario, altered field by field, into its machines while they run.

A bad peer costs its link, never the process. So whatever arrives, it is refused with a PeerError, by the codec or by
the machine itself, or the machine takes it and goes on, also after a restart from its records. Byzantine safety is not
promised: a sender who may say something is believed if what it says is plausible.

| mode | what is altered | what must hold |
|---|---|---|
| altered | everything, also the sender | only PeerErrors, no stop, restarts from the records, and then new work |
| repeated | nothing: old messages come again, late and in another order | all checkers of the scenario |
"""

from __future__ import annotations

import struct
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from random import Random
from typing import Any, Final

import msgspec

from unerring.channels import ChannelCodec, ChannelConfig, Consumer, Frames, Producer
from unerring.correlation import ENGINE, MEMBERSHIP, OPERATOR, PRODUCER, SEALER, STORE, codec as correlation_codec
from unerring.model import (
    MILLISECOND_US,
    SECOND_US,
    Address,
    Broadcast,
    Effects,
    Entropy,
    InvariantBreach,
    Machine,
    PeerError,
    SchemaError,
    Send,
    StaleEpoch,
    Stop,
)
from unerring.processes import Mail, ProcessNode, Publish, Start, codec as process_codec
from unerring.simulation.injection import calm, inject
from unerring.simulation.node import Node, State
from unerring.simulation.scenario import Scenario, find
from unerring.simulation.scenarios.channels import Channels
from unerring.simulation.scenarios.processes import Processes
from unerring.simulation.transport import Wire
from unerring.simulation.world import World

NUMBERS: Final = (0, -1, 1, 2, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63))
TEXTS: Final = ("", "\0", "stranger/0", "a/b|c@d~e+f'!g", "é" * 300, "x" * 70_000)
STRANGERS: Final = ("stranger/0", "", MEMBERSHIP, "service:bank", "client")
OWN: Final = (ENGINE, PRODUCER, SEALER, OPERATOR, STORE)
"""Under these names a machine's own driver speaks to it; no link has them."""
LOG: Final = "log/0"
"""Stands for the event log in scenarios of engines that read it. No process listens there, so nobody sends it lies."""
WITNESS_CHARS: Final = 2_000
KEPT_MAX: Final = 400
"""Messages, texts and numbers that are remembered to be mixed with others."""


class Finding(msgspec.Struct, frozen=True):
    """Something that must not happen: what, where in the code, and the message that did it."""

    what: str
    where: str
    message: str


class Rain(msgspec.Struct):
    """Counts and findings of the hostile messages of some runs."""

    sent: int = 0
    refused_by_codec: int = 0
    refused: int = 0
    """By the machine, as its sender's protocol error."""
    taken: int = 0
    stops: int = 0
    """Machines stopped by a plausible message that another has taken their place; they are started again."""
    estranged: int = 0
    """Honest messages refused because an earlier hostile one had been believed."""
    restarts: int = 0
    kinds: dict[str, int] = msgspec.field(default_factory=dict)
    """Sent, by machine and kind of message."""
    findings: list[Finding] = msgspec.field(default_factory=list)

    def add(self, other: Rain) -> None:
        for name in ("sent", "refused_by_codec", "refused", "taken", "stops", "estranged", "restarts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.kinds = dict(Counter(self.kinds) + Counter(other.kinds))
        self.findings += other.findings


def rain(name: str, seed: int, messages_max: int = 2_000, repeated: bool = False) -> Rain:
    """One run of a scenario with so many hostile messages."""
    world = World(seed)
    played = find(name)()
    if isinstance(played, Channels) and not repeated:
        played.clocked = True
    played.build(world)
    hostility = Hostility(world, _WIRES[name.partition("-")[0]], messages_max, repeated)
    hostility.attach()
    inject(world, () if not repeated else played.faults(world, Random(f"faults {seed}")))
    world.run_until(played.faults_us)
    hostility.over = True
    if world.broken:
        return hostility.judge()
    world.at(world.now_us, lambda: calm(world))
    if repeated:
        _settle(played, world)
        hostility.check(played)
    else:
        world.run_until(world.now_us + SECOND_US)
        hostility.restart_all()
        hostility.probe(played)
    return hostility.judge()


def _settle(played: Scenario, world: World) -> None:
    end_us = world.now_us + played.calm_us
    while world.now_us < end_us and not world.broken:
        world.run_until(world.now_us + 100 * MILLISECOND_US)
        if played.settled(world):
            return


def _are_full(nodes: Sequence[ProcessNode], f: int) -> bool:
    """Whether more than f nodes are full of instances that never were: whoever may speak as a peer can fill small ones
    without end."""
    return sum(len(node.instances) >= node.shared.config.instances_max for node in nodes) > f


class Hostility:
    """Between the machines of one world and their inputs."""

    def __init__(self, world: World, wire: Wire, messages_max: int, repeated: bool) -> None:
        self.world = world
        self.rain = Rain()
        self.over = False
        self._wire = wire
        self._messages_max = messages_max
        self._repeated = repeated
        self._chance = Random(f"hostile {world.seed}")
        self._alters = Altering(self._chance, wire)
        self._heard: dict[str, list[tuple[Address, Any]]] = {}
        """By kind of machine: messages that such a one was sent."""

    def attach(self) -> None:
        """To every node, also to those that come later in the place of lost ones."""
        add = self.world.add

        def add_attached(name: Address, *rest: Any, **more: Any) -> None:
            add(name, *rest, **more)
            self._attach_to(self.world.nodes[name])

        for node in self.world.nodes.values():
            self._attach_to(node)
        self.world.add = add_attached  # type: ignore[method-assign]

    def _attach_to(self, node: Node) -> None:
        if self._repeated or node.name != LOG:
            node.factory = self._boot(node, node.factory)

    def _boot(
        self, node: Node, factory: Callable[..., Machine]
    ) -> Callable[[Mapping[str, bytes], Entropy, int], Machine]:
        def boot(records: Mapping[str, bytes], entropy: Entropy, now: int) -> Machine:
            machine = factory(records, entropy, now)
            honest = machine.handle
            machine.handle = lambda sender, message, now: self._step(node, honest, sender, message, now)  # type: ignore[method-assign]
            return machine

        return boot

    def _step(
        self, node: Node, handle: Callable[[Address, Any, int], Effects], sender: Address, message: Any, now: int
    ) -> Effects:
        try:
            effects = self._checked(node, handle(sender, message, now))
        except PeerError:
            self.rain.estranged += 1
            effects = []
        kind = _kind(node.machine)
        if (
            self.over
            or not kind
            or sender in OWN
            or self.rain.sent >= self._messages_max
            or not self._alters.can(message)
        ):
            return effects
        heard = self._heard.setdefault(kind, [])
        self._remember(heard, (sender, message))
        while self._chance.random() < 0.75:
            effects += self._attack(node, kind, handle, *self._chance.choice([(sender, message), *heard[-50:]]), now)
        return effects

    def _remember(self, heard: list[tuple[Address, Any]], one: tuple[Address, Any]) -> None:
        if len(heard) < KEPT_MAX:
            heard.append(one)
        else:
            heard[self._chance.randrange(KEPT_MAX)] = one

    def _attack(
        self,
        node: Node,
        kind: str,
        handle: Callable[[Address, Any, int], Effects],
        sender: Address,
        message: Any,
        now: int,
    ) -> Effects:
        self.rain.sent += 1
        what = f"{kind} {type(message).__name__}"
        self.rain.kinds[what] = self.rain.kinds.get(what, 0) + 1
        if not self._repeated:
            sender = self._sender(node, sender)
            try:
                message = self._alters(message)
            except PeerError:
                self.rain.refused_by_codec += 1
                return []
        try:
            effects = self._checked(node, handle(sender, message, now))
        except PeerError:
            self.rain.refused += 1
            return []
        except (Exception, InvariantBreach) as error:
            self._note_finding(error, f"{kind} {node.name} from {sender!r}: {message!r}")
            return []
        self.rain.taken += 1
        for effect in effects:
            if isinstance(effect, Stop) and not isinstance(effect.error, StaleEpoch) and sender != MEMBERSHIP:
                witness = f"{sender}: {message!r}"[:WITNESS_CHARS]
                self.rain.findings.append(Finding("a stop", f"{kind}: {effect.why[:60]}", witness))
        if not self._repeated and self._chance.random() < 0.005:
            self.world.at(self.world.now_us, lambda: self._restart(node))
        return effects

    def _checked(self, node: Node, effects: Effects) -> Effects:
        """Treat effects as a driver would: encode what is sent, and start again what stopped."""
        for effect in effects:
            if isinstance(effect, Send | Broadcast):
                self._wire.encode(effect.message)
            elif isinstance(effect, Stop):
                self.rain.stops += 1
                self.world.at(self.world.now_us + 300 * MILLISECOND_US, lambda: self.world.start(node.name))
        return list(effects)

    def _sender(self, node: Node, sender: Address) -> Address:
        dice = self._chance.random()
        if dice >= 0.7:
            sender = self._chance.choice(list(self.world.nodes) if dice < 0.9 else STRANGERS)
        if sender == node.name:  # whoever calls under the name of the node that it calls is not let in
            sender = next(name for name in self.world.nodes if name != node.name)
        return sender

    def _note_finding(self, error: BaseException, message: str) -> None:
        last = [frame for frame in traceback.extract_tb(error.__traceback__) if "unerring" in frame.filename][-1]
        where = f"{last.filename.rpartition('/unerring/')[2]}:{last.lineno} {last.name}"
        self.rain.findings.append(
            Finding(f"{type(error).__name__}: {str(error)[:120]}", where, message[:WITNESS_CHARS])
        )

    # ---- restarts ----------------------------------------------------------------------------------------------

    def _restart(self, node: Node) -> None:
        """From what is on its disk, as a supervisor would."""
        if node.state < State.DOWN:
            self.world.crash(node.name)
        self.rain.restarts += 1
        try:
            self.world.start(node.name)
        except (Exception, InvariantBreach) as error:
            self._note_finding(error, f"{node.name} does not start from its records")

    def restart_all(self) -> None:
        for node in self.world.nodes.values():
            self._restart(node)

    def probe(self, played: Scenario) -> None:
        """Something new, from honest peers alone, must be done as if nothing had been."""
        if isinstance(played, Channels):
            self._probe_channels(played)
        elif isinstance(played, Processes):
            self._probe_processes(played)
        else:
            self.world.run_until(self.world.now_us + 2 * SECOND_US)

    def _probe_channels(self, played: Channels) -> None:
        """Each producer publishes once more, and each consumer comes to that; or beyond, in the epoch of a durable
        producer, if a forged message in its name was confirmed in its name."""
        world = self.world
        world.run_until(world.now_us + SECOND_US)
        for name in world.nodes:
            if isinstance(world.machine(name), Producer):
                world.at(world.now_us, lambda name=name: played.publish(world, name, 1))  # type: ignore[misc]
        _settle(played, world)
        machines = [world.machine(name) for name in world.nodes]
        made = {one.id: (one.epoch, one.last) for one in machines if isinstance(one, Producer)}
        for consumer in machines if not world.broken else ():
            for id, last in made.items() if isinstance(consumer, Consumer) else ():
                reached = consumer.positions().get(id, (0, 0))
                if reached < last or reached[0] > last[0]:
                    self.rain.findings.append(Finding("a channel does not work again", "", f"{reached}, not {last}"))

    def _probe_processes(self, played: Processes) -> None:
        """An instance that nobody has spoken of comes to its end."""
        world = self.world
        given = {"key": 1, "past": 0}
        world.at(world.now_us, lambda: world.call("client", "want", Start("probe", "p", given)))
        for channel in played.keyed:
            message = Publish(f"probe-{channel}", channel, "1", 1)
            world.at(world.now_us, lambda message=message: world.call("client", "publish", message))  # type: ignore[misc]
        for channel in played.channels:
            mail = Mail(f"probe-{channel}", channel, 1)
            world.at(world.now_us, lambda mail=mail: world.call("client", "post", "probe", mail))  # type: ignore[misc]
        end_us = world.now_us + played.calm_us
        while world.now_us < end_us and not world.broken and "probe" not in played.ends:
            world.run_until(world.now_us + 100 * MILLISECOND_US)
        nodes = [world.machine(name) for name in played.names]
        if not world.broken and "probe" not in played.ends and not _are_full(nodes, played.bounds.f):
            answers = [node.query("probe") if node is not None and node.knows("probe") else None for node in nodes]
            self.rain.findings.append(Finding("a new instance does not end", "", repr(answers)[:WITNESS_CHARS]))

    def check(self, played: Scenario) -> None:
        """The scenario's own checkers."""
        if not self.world.broken:
            for violation in [*played.safety(self.world), *played.liveness(self.world)]:
                self.rain.findings.append(
                    Finding(f"violation: {violation.promise}", "", "\n".join(violation.witness)[:WITNESS_CHARS])
                )

    def judge(self) -> Rain:
        for violation in self.world.broken:
            where = violation.witness[-1].rpartition("/unerring/")[2]
            self.rain.findings.append(
                Finding(f"later: {violation.promise}", where, "; ".join(violation.witness)[:WITNESS_CHARS])
            )
        return self.rain


def _kind(machine: Any) -> str:
    """The protocol's machine that this is; empty: one of the simulation's own."""
    for cls in type(machine).__mro__:
        if cls.__module__.startswith("unerring.") and not cls.__module__.startswith("unerring.simulation"):
            return str(cls.__name__)
    return ""


_WIRES: Final[dict[str, Wire]] = {
    "channels": ChannelCodec(ChannelConfig()),
    "correlation": correlation_codec(8 << 20),
    "processes": process_codec(),
}

_CONTROL: Final = b"\xe3"


class Altering:
    """A message with one to three fields replaced, as its codec reads it back. PeerError: the codec refuses it."""

    def __init__(self, chance: Random, wire: Wire) -> None:
        self._chance = chance
        self._wire = wire
        self._numbers: list[int] = list(NUMBERS)
        self._texts: list[str] = list(TEXTS)
        self._parts: list[Any] = [None, [], {}, b""]

    def can(self, message: Any) -> bool:
        """Whether it is one of the wire's: a driver's own words are not."""
        try:
            self._wire.encode(message)
        except (SchemaError, PeerError):
            return False
        return type(message).__name__ not in ("Connected", "Disconnected")

    def __call__(self, message: Any) -> Any:
        if isinstance(message, Frames):
            return self._wire.decode(self._frames(message))
        data = self._wire.encode(message)
        prefix = _CONTROL if data.startswith(_CONTROL) else b""
        tree = msgspec.msgpack.decode(data[len(prefix) :])
        for _ in range(self._chance.choice((1, 1, 1, 2, 3))):
            tree = self._alter(tree)
        return self._wire.decode(prefix + msgspec.msgpack.encode(tree))

    def _part(self) -> Any:
        """A part of another message; never the same object, for it might come to hold itself."""
        return deepcopy(self._chance.choice(self._parts))

    def _frames(self, frames: Frames) -> bytes:
        chance = self._chance
        field = chance.choice(("producer", "epoch", "first", "times", "ordinals", "payloads", "signature", "bytes"))
        value: Any = chance.choice((*NUMBERS, frames.first + chance.randrange(-9, 9)))
        if field in ("times", "ordinals"):
            value = [chance.choice((*NUMBERS, *frames.times)) for _ in frames.payloads]
        elif field == "payloads":
            value = chance.choice(
                ([b""] * len(frames.payloads), [*frames.payloads, b"more"], list(frames.payloads)[:-1])
            )
        elif field == "signature":
            value = chance.choice((b"", b"x", chance.randbytes(64)))
        try:
            if field != "bytes":
                return self._wire.encode(msgspec.structs.replace(frames, **{field: value}))
        except (struct.error, IndexError, OverflowError, TypeError):
            pass  # what cannot be written so is spoilt as bytes
        data = bytearray(self._wire.encode(frames))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data[: chance.randint(1, len(data))] if chance.random() < 0.3 else data)

    def _alter(self, tree: Any) -> Any:
        """One place of it: mostly a single value, seldom a whole part."""
        places: list[tuple[Any, Any]] = []
        self._walk(tree, places)
        if self._chance.random() < 0.85:
            places = [(parent, key) for parent, key in places if not isinstance(parent[key], list | dict)] or places
        if not places:
            return tree
        parent, key = self._chance.choice(places)
        if self._chance.random() < 0.1 and isinstance(parent, list):
            self._alter_list(parent)
        else:
            parent[key] = self._other(parent[key])
        return tree

    def _walk(self, tree: Any, places: list[tuple[Any, Any]]) -> None:
        items = enumerate(tree) if isinstance(tree, list) else tree.items() if isinstance(tree, dict) else ()
        for key, value in items:
            places.append((tree, key))
            if isinstance(value, list | dict):
                self._walk(value, places)
            self._learn(value)

    def _learn(self, value: Any) -> None:
        pool: list[Any] = self._numbers if type(value) is int else self._texts if type(value) is str else self._parts
        if len(pool) < KEPT_MAX:
            pool.append(value)
        elif self._chance.random() < 0.05:
            pool[self._chance.randrange(len(TEXTS), KEPT_MAX)] = value

    def _alter_list(self, items: list[Any]) -> None:
        dice = self._chance.randrange(4)
        if dice == 0:
            del items[self._chance.randrange(len(items) + 1) :]
        elif dice == 1:
            items.append(self._chance.choice(items) if items else 0)
        elif dice == 2:
            self._chance.shuffle(items)
        elif items:
            del items[self._chance.randrange(len(items))]

    def _other(self, value: Any) -> Any:
        chance = self._chance
        if chance.random() < 0.1:
            return chance.choice((*NUMBERS, *TEXTS, None, True, float("nan"), [], {}, b"", self._part()))
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            near = min(max(value + chance.choice((-1, 1, 2, 1000, -1000, 2**15, 2**40)), -(2**63)), 2**64 - 1)
            return chance.choice((chance.choice(NUMBERS), near, chance.choice(self._numbers)))
        if isinstance(value, str):
            return chance.choice((*TEXTS, value + "x", value[:-1], *(chance.choice(self._texts) for _ in range(6))))
        if isinstance(value, float):
            return chance.choice((float("nan"), float("inf"), -0.0, 1e308, 0))
        if isinstance(value, bytes):
            return chance.choice((b"", value[:-1], value + b"x", chance.randbytes(16), b"x" * 70_000))
        return chance.choice((*NUMBERS, chance.choice(self._texts), self._part(), [], {}, None))
