"""For tests of one's own processes: a whole cluster on a virtual clock, fake services, failures on demand.

    def test_an_order_survives_its_master() -> None:
        stage = Rehearsal(order, {"stock": {"reserve": lambda item: 7, "dispatch": lambda reservation: 1}})
        stage.start("o1", item="bolt")
        stage.run_until(lambda: stage.effects("stock") == ["reserve"])
        stage.crash(stage.master("o1"), for_s=1.0)
        stage.signal("o1", "payment", True)
        assert stage.finish("o1").status == "completed"
        assert stage.effects("stock") == ["reserve", "dispatch"]
        stage.check()

The nodes, the protocol, views and compensations are the real ones; only the clock, the network, the disks and the
services are not. A rehearsal is a function of its seed: what fails once fails again.
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from unerring.app import judge_family, judge_instance
from unerring.audit import Did, check_agreement, check_flow
from unerring.model import MILLISECOND_US, SECOND_US, CallerError, Entropy, Refused
from unerring.processes import (
    AGAIN,
    CANCEL,
    HOLD,
    LOCAL,
    MOVE,
    RESUME,
    Answer,
    ClusterBounds,
    Ended,
    Grouping,
    Limits,
    Mail,
    Process,
    ProcessesConfig,
    ProcessNode,
    Publish,
    Reply,
    Request,
    Start,
    State,
    family,
    history_of,
    key_of,
)
from unerring.simulation import Client, LimitedService, SimService, Temper, World

__all__ = ["End", "Refused", "Rehearsal"]

FINISH_S: Final = 600.0
_CALM: Final = Temper(
    work_us_max=2 * MILLISECOND_US,
    silent=0.0,
    late=0.0,
    twice=0.0,
    garbage=0.0,
    refuses=0.0,
    refuses_for_good=0.0,
    undo_fails=0.0,
    muddled=0.0,
)
Fake = Callable[..., Any]


class End(msgspec.Struct, frozen=True):
    """How an instance ended."""

    status: str
    """Whether it was completed, cancelled, failed or parked."""
    reason: str
    """Why, if it did not complete."""
    variables: dict[str, Any]
    """The state at the end."""
    history: dict[str, Any]
    """All groups and actions: views, masters, ids of interactions."""


class _FakeService(SimService):
    """A service behind the filter whose operations are plain functions. Raise `Refused` in one to refuse."""

    def __init__(self, name: str, cancels: bool, stage: Rehearsal, records: Mapping[str, bytes], entropy: Entropy):
        temper = msgspec.structs.replace(_CALM, silent=stage.silence.get(name, 0.0))
        self._stage = stage
        super().__init__(name, cancels, temper, records, entropy, lambda: stage.world.now_us)

    def writes(self, request: Request) -> bool:
        return (self.name, request.operation) in self._stage.write_operations

    def _do(self, request: Request) -> Reply:
        if self.writes(request):
            return super()._do(request)
        return self._called(request)

    def _called(self, request: Request) -> Reply:
        try:
            return self._answer(request, Answer.DONE, self._stage.call(self.name, request))
        except Refused as refusal:
            return self._answer(request, Answer.FINAL if refusal.for_good else Answer.REFUSED, str(refusal))

    def _execute(self, request: Request) -> Reply:
        reply = self._called(request)
        if reply.answer == Answer.DONE:
            self._write_down("do", request, reply.value)
        self._record(request.iid, reply)
        self.asked[request.iid] = request.payload
        self.kept.append((f"asked/{request.iid}", request.payload))
        self._raise_fence(request)
        return reply

    def _undo(self, request: Request) -> Reply:
        if request.mode == "undo" and request.iid not in self.replies:
            self._stage.call(self.name, request)
        return super()._undo(request)


class _LimitedFake(_FakeService, LimitedService):
    """The same behind a filter with limits."""

    def _read(self, records: Mapping[str, bytes]) -> None:
        self.limits = self._stage.limits[self.name]
        super()._read(records)

    def key_of(self, request: Request) -> str:
        return request.key


class Rehearsal:
    """A process on 2f+1 simulated nodes. `services` maps a service and an operation to a function that answers."""

    def __init__(
        self,
        process: Process,
        services: Mapping[str, Mapping[str, Fake]] | None = None,
        *,
        f: int = 1,
        seed: int = 0,
        config: ProcessesConfig | None = None,
        grouping: Grouping | None = None,
        silence: Mapping[str, float] | None = None,
        older: Sequence[Process] = (),
        bounds: ClusterBounds | None = None,
        limits: Mapping[str, Limits] | None = None,
    ) -> None:
        self.process = process
        self.limits = dict(limits or {})
        """By service, what its filter lets through."""
        self.deployed = family([*older, process])
        """All versions on the nodes, and all children; `deploy` changes it."""
        self._known = {(each.name, each.graph.version): each for each in self.deployed}
        self.world = World(seed)
        self.silence = dict(silence or {})
        """By service, how often it does what it is asked and says nothing."""
        self._fakes = {name: dict(fakes) for name, fakes in (services or {}).items()}
        self._services: dict[str, bool] = {}
        self.write_operations: dict[tuple[str, str], None] = {}
        for each in self.deployed:
            self._know(each)
        self.names = tuple(f"node{number}" for number in range(2 * f + 1))
        self._bounds = msgspec.structs.replace(bounds or ClusterBounds(), f=f)
        self._grouping = grouping or Grouping()
        self._config = config or ProcessesConfig(tick_us=10 * MILLISECOND_US)
        self._ends: dict[str, dict[str, State]] = {}
        self._given: dict[str, dict[str, Any]] = {}
        self._signals = 0
        for name in self.names:
            self._add_node(name)
        for service, cancels in self._services.items():
            self._check_fakes(service)
            self.world.add(
                f"service:{service}",
                lambda records, entropy, now, service=service, cancels=cancels: (  # type: ignore[misc]
                    _LimitedFake if service in self.limits else _FakeService
                )(service, cancels, self, records, entropy),
            )
        unknown = [name for name in self.limits if name not in self._services]
        if unknown:
            raise CallerError(
                f"{process.name} has no service {unknown[0]!r} to limit; it has {', '.join(self._services)}"
            )
        self.world.add("client", lambda records, entropy, now: Client(self.names, f, entropy))
        self.run(seconds=0.001)

    def _know(self, process: Process) -> None:
        graph = process.graph
        self._known[process.name, graph.version] = process
        self._services |= {name: service.cancels for name, service in graph.service_by_name.items()}
        self.write_operations |= dict.fromkeys((v.service, v.operation) for v in graph.vertices if v.acts and v.write)
        versioned = {f"{graph.version}:{name}": function for name, function in process.functions.items()}
        self._fakes.setdefault(LOCAL, {}).update(process.functions | versioned)

    def _check_fakes(self, service: str) -> None:
        vertices = [vertex for process in self.deployed for vertex in process.graph.vertices]
        needed = {v.operation for v in vertices if v.acts and not v.waits and v.service == service}
        lacking = sorted(needed - set(self._fakes.get(service, {})))
        if lacking:
            raise CallerError(
                f"the rehearsal of {self.process.name} has no fake for {', '.join(lacking)} of service {service!r}; "
                f"give services={{{service!r}: {{{lacking[0]!r}: lambda ...: reply}}}}"
            )

    def _add_node(self, name: str) -> None:
        def boot(records: Mapping[str, bytes], entropy: Entropy, now: int) -> ProcessNode:
            return ProcessNode(
                name,
                self.names,
                self.deployed,
                records,
                entropy,
                now,
                self._bounds,
                self._config,
                self._grouping,
                self.world.now_us - now,
            )

        def on_deliver(what: object) -> None:
            if isinstance(what, Ended):
                self._ends.setdefault(what.instance, {})[name] = what.state

        self.world.add(name, boot, on_deliver=on_deliver)

    def call(self, service: str, request: Request) -> Any:
        """The answer of a fake; used by the services of the rehearsal."""
        fakes = self._fakes.get(service, {})
        fake = fakes.get(f"{request.version}:{request.operation}", fakes.get(request.operation))
        if fake is None:
            raise CallerError(f"there is no fake for {request.operation} of service {service!r}")
        value = fake(**request.payload)
        return msgspec.to_builtins(_at_once(value, request.operation) if isinstance(value, Awaitable) else value)

    # ---- the play ----------------------------------------------------------------------------------------------

    def start(self, instance: str, **given: Any) -> None:
        """Start an instance, as virtual time passes."""
        start = Start(instance, self.process.name, msgspec.to_builtins(given))
        self.process.initial(start.given)
        self._given[instance] = start.given
        self.world.call("client", "want", start)

    def signal(self, instance: str, channel: str, payload: Any = None, id: str = "", answers: str = "") -> None:
        """Send a message to a receive action; the same id is the same message. `answers`: an interaction id."""
        self._signals += 1
        mail = Mail(id or f"signal-{self._signals}", channel, msgspec.to_builtins(payload), answers)
        self.world.call("client", "post", instance, mail)

    def cancel(self, instance: str) -> None:
        """Undo an instance."""
        self.world.call("client", "post", instance, Mail(f"cancel-{instance}", CANCEL, None))

    def publish(self, channel: str, key: Any, payload: Any = None, id: str = "") -> None:
        """Send a message to every instance that waits for the key."""
        self._signals += 1
        message = Publish(id or f"message-{self._signals}", channel, key_of(key), msgspec.to_builtins(payload))
        self.world.call("client", "publish", message)

    def hold(self, instance: str) -> None:
        """Hold an instance after its present group, until `resume`."""
        self._command(instance, HOLD, "by an operator")

    def park(self, instance: str) -> None:
        """The old name of `hold`."""
        warnings.warn("Rehearsal.park is now hold", DeprecationWarning, stacklevel=2)
        self.hold(instance)

    def resume(self, instance: str) -> None:
        """Let a held instance continue."""
        self._command(instance, RESUME, None)

    def retry(self, instance: str, step: str = "") -> None:
        """Let a held instance try again; with a step, undo from that step on and continue from there."""
        self._command(instance, AGAIN, step or None)

    def move(self, instance: str, process: Process) -> None:
        """Move the instance to that version."""
        self._command(instance, MOVE, process.graph.version)

    def _command(self, instance: str, channel: str, payload: Any) -> None:
        self._signals += 1
        self.world.call("client", "post", instance, Mail(f"command-{self._signals}", channel, payload))

    def deploy(self, *processes: Process) -> None:
        """Restart every node with these versions; of each process the last one is current."""
        self.deployed = family(processes)
        for process in self.deployed:
            self._know(process)
        for node in self.names:
            self.world.crash(node)
            self.world.start(node)

    def pause_service(self, service: str) -> None:
        """Let a service with limits do nothing for anybody, until it is resumed."""
        self._limited(service)
        self.world.call(f"service:{service}", "pause")

    def resume_service(self, service: str) -> None:
        self._limited(service)
        self.world.call(f"service:{service}", "resume")

    def begun_s(self, service: str) -> list[float]:
        """When a service with limits began each request, in seconds of virtual time."""
        flow = self._limited(service).flow
        return [line.began_us / SECOND_US for line in flow if line.what in ("do", "undo", "cancel")]

    def _limited(self, service: str) -> Any:
        if service not in self.limits:
            raise CallerError(f"service {service!r} has no limits in this rehearsal; give it some: limits={{...}}")
        return self.world.machine(f"service:{service}")

    def crash(self, node: str, for_s: float = 1.0) -> None:
        """Crash a node: it loses its memory and what was not synced, and comes back after a while."""
        self.world.crash(node)
        self.world.at(self.world.now_us + int(for_s * SECOND_US), lambda: self.world.start(node))

    def pause(self, node: str, for_s: float = 1.0) -> None:
        """Pause a node, as by SIGSTOP: it takes no steps for a while."""
        if self.world.pause(node):
            self.world.at(self.world.now_us + int(for_s * SECOND_US), lambda: self.world.resume(node))

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.world.run_until(self.world.now_us + int(seconds * SECOND_US))
        if self.world.broken:
            raise AssertionError(f"a machine broke: {self.world.broken[0]}")

    def run_until(self, condition: Callable[[], bool], seconds: float = FINISH_S) -> None:
        """Let virtual time pass until a condition holds; AssertionError if it never does."""
        end_us = self.world.now_us + int(seconds * SECOND_US)
        while not condition():
            if self.world.now_us >= end_us:
                raise AssertionError(f"after {seconds:g} virtual seconds it does not hold: {self._outlines()}")
            self.run(seconds=0.005)

    def finish(self, instance: str, seconds: float = FINISH_S) -> End:
        """Let virtual time pass until the instance has ended and every node is clean."""
        self.run_until(lambda: self._settled(instance), seconds)
        state = next(iter(self._ends[instance].values()))
        return End(state.status, state.reason, dict(state.variables), history_of(state))

    def _settled(self, instance: str) -> bool:
        nodes = [self.world.machine(name) for name in self.names]
        return instance in self._ends and all(node is not None and instance in node.finished for node in nodes)

    # ---- what is seen ------------------------------------------------------------------------------------------

    def master(self, instance: str) -> str:
        """The node that leads the instance now; the first node if none does."""
        for name in self.names:
            node = self.world.machine(name)
            replica = node.instances.get(instance) if node is not None else None
            if replica is not None and replica.leading:
                return name
        return self.names[0]

    def query(self, instance: str) -> dict[str, Any]:
        """The leading node's knowledge of an instance."""
        node = self.world.machine(self.master(instance))
        if node is None or not node.knows(instance):
            return {"instance": instance, "status": "starting"}
        outline: dict[str, Any] = node.query(instance)
        return outline

    def journal(self, service: str) -> list[Did]:
        """Everything that a service did and undid, in order."""
        machine = self.world.machine(f"service:{service}")
        return [] if machine is None else [line for _, line in machine.journal]

    def effects(self, service: str) -> list[str]:
        """The actions of a service that have an effect now, in order."""
        lines = self.journal(service)
        undone = {line.iid for line in lines if line.what == "undo"}
        return [line.action for line in lines if line.what == "do" and line.iid not in undone]

    def check(self) -> None:
        """Check limits, and one-copy consistency of every instance that has ended; AssertionError with a witness."""
        violations = []
        lines = sorted(
            (line for service in self._services for line in self.world.machine(f"service:{service}").journal),
            key=lambda line: line[0],
        )
        for instance, states in self._ends.items():
            violations += check_agreement(instance, {name: state.views for name, state in states.items()})
            own = [line for _, line in lines if line.iid.startswith(f"{instance}/")]
            state = next(iter(states.values()))
            process = self._known[state.process, state.version]
            violations += judge_instance(process, state, own)
            violations += judge_family(process, state, [next(iter(others.values())) for others in self._ends.values()])
        for service in self.limits:
            machine = self._limited(service)
            violations += check_flow(machine.flow, [line.iid for _, line in machine.journal if line.what == "do"])
        if violations:
            raise AssertionError("; ".join(map(str, violations)))

    def _outlines(self) -> str:
        return "; ".join(str(self.query(instance)) for instance in self._given) or "nothing was started"


def _at_once(waiting: Awaitable[Any], operation: str) -> Any:
    """The result of a local action, which may be async but cannot wait for anything real on a virtual clock."""
    steps = waiting.__await__()
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    raise CallerError(f"{operation} waits for something real; give the rehearsal a fake for it, by its name")
