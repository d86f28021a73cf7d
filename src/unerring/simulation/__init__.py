"""The same machines on a virtual clock, network and disk. A run is a seed.

A scenario builds a world of real machines, drives a workload, and ends with the checkers of `audit`:

    @scenario("counter")                                    # unerring simulate counter --seeds 1000
    class Counting(Scenario):
        server = CounterServer                              # machine classes as attributes: mutants replace them
        must_reach = ("server crashed with a request open",)

        def build(self, world):
            world.add("server", lambda records, entropy, now: self.server(records))
            world.add("client", lambda records, entropy, now: Client("server", entropy))
            world.link("client", "server", LinkSpec(datagram=True, loss=0.02))
            world.every(10_000, lambda: world.call("client", "request"), until_us=self.faults_us)

        def safety(self, world):                            # [] or violations, each with its witness
            return check_counter([line for line in world.history if line.what == "deliver"])

    mutant(Counting, "answers before it has persisted", server=HastyServer)

- A factory `(records, entropy, now) -> Machine` builds a node's machine at every start, after a crash from what its
  disk holds. `now` is the node's own monotonic clock: it begins anywhere, differs between nodes, and begins anew at a
  restart. Machines use nothing else of the world.
- `world.call(node, method, *arguments)` calls `machine.method(*arguments, now)` and carries out the effects it answers;
  False if the node does not run. Where a method answers more than effects: `world.machine(node)` (None if it does not
  run), `world.node_now_us(node)`, `world.carry_out(node, effects)`.
- What a machine delivers is a line of `world.history` (`Happened(at_us, node, "deliver", what)`) and goes to the node's
  `on_deliver(what)` if it was added with one; that may call machines again. `world.record` adds lines of your own.
- `world.subscribe(consumer, producer, spec)` registers who gets the producer's `Broadcast`s.
- `world.draw` is the workload's randomness; `world.sometimes("two leaders at once")` counts rare states.
- Faults: all of `faults.KINDS` (override `kinds`), within the budget that `limits` gives, until `faults_us`. Then they
  all end, crashed nodes come back, and the run goes on until `settled`, at most for `rest_us`; then come `safety` and,
  if that held, `liveness`.
- A machine that raises, whatever it raises, ends the run as a violation: the production driver would end there too.
"""

from unerring.model import renamed
from unerring.simulation.disk import DiskSpec
from unerring.simulation.faults import (
    FOR_GOOD,
    KINDS,
    Aimed,
    ClockDrift,
    ClockJump,
    Congestion,
    Crash,
    FailedSync,
    Fault,
    FullDisk,
    Limit,
    LyingDisk,
    Partition,
    Pause,
    Reset,
    SlowDisk,
    Sought,
    draw_aimed,
    draw_faults,
)
from unerring.simulation.injection import calm, inject
from unerring.simulation.limited import LimitedService
from unerring.simulation.network import FATES_BITS, RESET, Link, LinkSpec, fates
from unerring.simulation.node import State
from unerring.simulation.pairs import favours, least_reached
from unerring.simulation.process_parts import Client, SimService, Temper
from unerring.simulation.scenario import (
    Mutant,
    Outcome,
    Scenario,
    find,
    importable,
    mutant,
    names,
    run,
    scenario,
    schedule_of,
)
from unerring.simulation.shrink import RUNS_MAX, decode_schedule, encode_schedule, shrink
from unerring.simulation.sweep import Catch, Tally, catch, catch_mutants, pour, sweep
from unerring.simulation.transport import Bounds, Happened
from unerring.simulation.turns import Program
from unerring.simulation.world import World

__all__ = [
    "FATES_BITS",
    "FOR_GOOD",
    "KINDS",
    "RESET",
    "RUNS_MAX",
    "Aimed",
    "Bounds",
    "Catch",
    "Client",
    "ClockDrift",
    "ClockJump",
    "Congestion",
    "Crash",
    "DiskSpec",
    "FailedSync",
    "Fault",
    "FullDisk",
    "Happened",
    "Limit",
    "LimitedService",
    "Link",
    "LinkSpec",
    "LyingDisk",
    "Mutant",
    "Outcome",
    "Partition",
    "Pause",
    "Program",
    "Reset",
    "Scenario",
    "SimService",
    "SlowDisk",
    "Sought",
    "State",
    "Tally",
    "Temper",
    "World",
    "calm",
    "catch",
    "catch_mutants",
    "decode_schedule",
    "draw_aimed",
    "draw_faults",
    "encode_schedule",
    "fates",
    "favours",
    "find",
    "importable",
    "inject",
    "least_reached",
    "mutant",
    "names",
    "pour",
    "run",
    "scenario",
    "schedule_of",
    "shrink",
    "sweep",
]

__getattr__ = renamed("unerring.simulation", {"Canary": "Mutant", "canary": "mutant"})
