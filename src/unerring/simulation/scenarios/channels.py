"""Channels under all faults: producers that crash into new epochs, consumers that crash and go on from their committed
positions, services that lose, repeat and reorder. Promise 1 must hold for every consumer in every run."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any

from unerring.audit import Claim, Declared, Delivered, Violation, check_channel
from unerring.channels import (
    Asked,
    ChannelCodec,
    ChannelConfig,
    Consumer,
    ConsumerConfig,
    Frames,
    Loss,
    Position,
    PresentEpoch,
    Producer,
    ProducerConfig,
    Relay,
    Start,
    Watermark,
    any_epoch,
)
from unerring.model import MILLISECOND_US, SECOND_US, TIME_MAX, TIME_MIN, Entropy
from unerring.simulation.channel_mutants import (
    AsksOnce,
    BelievesPeers,
    DeclaresTooSoon,
    EpochBlind,
    ForgetsItsWatermark,
    GivesUpSilently,
    LyingPeers,
    NoDuplicateFilter,
    NoGapDetection,
    NoHeartbeat,
    NumbersReplayWrongly,
    PositionBeforeAcceptance,
    RenumberingRelay,
    SameEpochAgain,
    SendsBeforeDisk,
    SilentEpochEnd,
    SilentRelay,
    WelcomesAhead,
)
from unerring.simulation.network import LinkSpec
from unerring.simulation.pairs import ANY
from unerring.simulation.scenario import Scenario, mutant, scenario
from unerring.simulation.tiny import tiny
from unerring.simulation.world import World


class Listener:
    """One consumer's application: accepts what it is handed, in order, and commits its position with the effect."""

    def __init__(self, name: str, config: ConsumerConfig, slowness_us: int, recovers: bool) -> None:
        self.name = name
        self.config = config
        self.slowness_us = slowness_us
        self.recovers = recovers
        self.wrong_cuts: list[str] = []
        self.wrong_watermarks: list[str] = []
        self.through: dict[tuple[int, int], int] = {}
        """The watermark that this incarnation got for each epoch: nothing at or before this time is to follow."""
        self.records: list[Delivered | Declared] = []
        self.positions: dict[int, Position] = {}
        self.cuts: dict[tuple[int, int], int] = {}
        self.waiting: deque[Frames | Loss] = deque()
        self.incarnation = 0

    def hear(self, what: Frames | Watermark) -> None:
        """An event must be later than what was declared before it."""
        incarnation = (what.producer, what.epoch)
        if isinstance(what, Watermark):
            through_us = what.watermark_us
        else:
            before_us = self.through.get(incarnation, TIME_MIN)
            if what.times[0] <= before_us:
                self.wrong_watermarks.append(f"{self.name}: {what.times[0]} came after a watermark of {before_us}")
            through_us = what.times[-1] - 1 if what.more else what.times[-1]
        self.through[incarnation] = max(through_us, self.through.get(incarnation, TIME_MIN))

    def knows_the_end(self, producer: Producer) -> bool:
        """Whether it was told that the stream has ended, if it has."""
        through_us = self.through.get((producer.id, producer.epoch), TIME_MIN)
        return producer.last_time < TIME_MAX or through_us == TIME_MAX

    def tell(self, what: Frames | Loss) -> None:
        if isinstance(what, Loss):
            if what.information is not None:
                self._check_cut(what, what.information)
            if what.count == 0:
                return
            self.records.append(Declared(what.producer, what.epoch, what.first, what.last))
        else:
            for sequence, payload in enumerate(what.payloads, what.first):
                self.records.append(Delivered(what.producer, what.epoch, sequence, payload))

    def _check_cut(self, loss: Loss, information: bytes) -> None:
        """The information says itself up to where it stands for the events."""
        if information != b"%d/%d" % (loss.epoch, -1 if loss.last is None else loss.last):
            self.wrong_cuts.append(f"{self.name}: information {information!r} (epoch, cut) came for {loss}")


GAP = "a consumer has a gap"
IN_HAND = "a consumer's application has events in hand"
ASKING = "a consumer asks for what it lacks"


@scenario("channels")
class Channels(Scenario):
    """One or two producers, two or three consumers, over datagrams or connections; a relay between them in a quarter
    of the runs."""

    sought = MappingProxyType(dict.fromkeys((GAP, IN_HAND, ASKING), ANY))
    producer: type[Producer] = Producer
    consumer: type[Consumer] = Consumer
    relay: type[Relay] = Relay
    clocked = False
    """Whether epochs come from the world's clock, as in production; else they are counted."""
    faults_us = 4 * SECOND_US
    calm_us = 300 * SECOND_US
    """A consumer with room for five fetches ten thousand missed events five at a time (seed 1807)."""
    must_reach: tuple[str, ...] = (
        "a gap was repaired",
        "a range was declared lost",
        "an epoch ended at an unknown sequence",
        "an epoch's end was known by its mark",
        "a publish had to wait",
        "hold-back was full",
        "a consumer crashed with events in hand",
        "a producer was told that it is stale",
        "a durable producer went on in its epoch",
        "a consumer recovered as a newcomer",
        "channels were chained",
        "a peer repaired what the producer had lost",
        "a forged repair was refused",
        "events of one time were published apart",
        "a stream ended",
        "a producer restarted behind its end",
    )

    def build(self, world: World) -> None:
        draw = world.draw
        world.codec = ChannelCodec(ChannelConfig())
        self.published: dict[tuple[int, int], list[bytes]] = {}
        self.listeners: dict[str, Listener] = {}
        datagram = draw.random() < 0.7
        lossy = draw.choice((0.0, 0.01, 0.1)) if datagram else 0.0
        spec = LinkSpec(datagram=datagram, loss=lossy, duplication=lossy / 2)
        producer_config = ProducerConfig(
            durable=draw.random() < 0.3,
            merge_consumers_min=2,
            repair_bytes_per_s=draw.choice((50_000, 1 << 25)),
            buffer_count_max=draw.choice((20, 300, 100_000)),
            replay_bytes_max=draw.choice((1024, 1 << 20)),
            heartbeat_pause_us_max=draw.choice((50, 1000)) * MILLISECOND_US,
            epoch_ahead_us_max=200 * MILLISECOND_US,
        )
        self.producer_config = tiny(world.seed, producer_config)
        self._draw_peers(world)
        self.coarse_us = Random(f"ties {world.seed}").choice((1, 400_000, 4_000_000))
        producers = [f"producer{n}" for n in range(draw.randint(1, 2))]
        for name in producers:
            self._add_producer(world, name)
        relayed = draw.random() < 0.25
        if relayed:
            self._add_relay(world, producers, spec)
        for n in range(draw.randint(2, 3)):
            listener = self._draw_listener(world, f"consumer{n}")
            self._add_consumer(world, listener)
            for name in ["relay"] if relayed else producers:
                world.subscribe(listener.name, name, spec)
                world.link(listener.name, name, spec)
            for other in self.listeners:
                if other != listener.name:
                    world.link(listener.name, other, spec)

    def _draw_peers(self, world: World) -> None:
        """In some runs producers sign, and consumers keep batches for each other; one of them may forge some."""
        chance = Random(f"peers {world.seed}")  # drawn apart: the other choices of a seed stay what they were
        self.signing_seed = chance.randbytes(32) if chance.random() < 0.4 else b""
        self.peer_bytes_max = chance.choice((500, 1 << 20))
        self.liar = "consumer0" if self.signing_seed and chance.random() < 0.3 else ""

    def _add_relay(self, world: World, producers: list[str], spec: LinkSpec) -> None:
        """Two channels chained: all consumers listen behind the relay."""
        upstream = ConsumerConfig(
            start=Start.EARLIEST,
            nack_pause_us_max=200 * MILLISECOND_US,
            epoch_ahead_us_max=200 * MILLISECOND_US,
        )
        present = self._present(world)
        world.add(
            "relay",
            lambda records, entropy, now: self.relay("relay", entropy, self.producer_config, upstream, present),
        )
        for name in producers:
            world.subscribe("relay", name, spec)
            world.link("relay", name, spec)
        world.sometimes("channels were chained")

    def _draw_listener(self, world: World, name: str) -> Listener:
        draw = world.draw
        config = ConsumerConfig(
            start=draw.choice((Start.LATEST, Start.EARLIEST, Start.INITIAL)),
            registered=name if draw.random() < 0.3 else "",
            hold_count_max=draw.choice((5, 100, 500_000)),
            in_hand_max=draw.choice((1, 20, 65_536)),
            nack_attempts_max=draw.choice((4, 40)),
            nack_pause_us_max=200 * MILLISECOND_US,
            peer_bytes_max=self.peer_bytes_max,
            peer_silence_us=SECOND_US,
            epoch_ahead_us_max=200 * MILLISECOND_US,
        )
        return Listener(name, tiny(world.seed, config), draw.choice((0, 0, 100, 20_000)), recovers=draw.random() < 0.3)

    # --- producers

    def _present(self, world: World) -> PresentEpoch:
        return (lambda now: world.now_us // MILLISECOND_US + 1) if self.clocked else any_epoch

    def _add_producer(self, world: World, name: str) -> None:
        present = self._present(world)

        def boot(records: Mapping[str, bytes], entropy: Entropy, now: int) -> Producer:
            fresh = present(now) if self.clocked else 1
            machine = self.producer(name, name, records, fresh, self.producer_config, None, self.signing_seed, present)
            # What an incarnation published and had not synced when it died was not sent: its numbers are used again.
            log = self.published.setdefault((machine.id, machine.epoch), [])
            del log[machine.last :]
            if machine.last:
                world.sometimes("a durable producer went on in its epoch")
            if machine.last_time == TIME_MAX:
                world.sometimes("a producer restarted behind its end")
            return machine

        world.add(name, boot, on_deliver=lambda asked: self._welcome(world, name, asked))
        period_us = world.draw.choice((1000, 5000, 20_000))
        burst = world.draw.choice((1, 1, 4))
        world.every(period_us, lambda: self.publish(world, name, burst), until_us=self.faults_us - SECOND_US // 2)
        if world.draw.random() < 0.4:
            # Over before the calm: a run that ends between its crash and its start would miss the end of an epoch.
            world.at(world.draw.randrange(self.faults_us - SECOND_US), lambda: self._restart_cleanly(world, name))
        if world.draw.random() < 0.2:
            world.at(world.draw.randrange(self.faults_us), lambda: self._wake_zombie(world, name))

        chance = Random(f"ends {name} {world.seed}")  # drawn apart, as above
        if chance.random() < 0.4:
            end_us = chance.randrange(SECOND_US, self.faults_us - SECOND_US // 2)
            until_us = self.faults_us + SECOND_US
            world.every(100 * MILLISECOND_US, lambda: self._end(world, name), until_us, end_us)
            for victim in [name, "consumer0"] if chance.random() < 0.5 else []:
                self._restart(world, victim, end_us + chance.randrange(20 * MILLISECOND_US))

    def _end(self, world: World, name: str) -> None:
        """Nothing more will come; an application that was started again says it again."""
        machine = world.machine(name)
        if machine is not None and not machine.closed:
            world.sometimes("a stream ended")
            world.call(name, "advance", TIME_MAX)

    def publish(self, world: World, name: str, burst: int) -> None:
        """Publish this many events, if it runs and has room."""
        machine = world.machine(name)
        if machine is None or machine.closed or machine.last_time == TIME_MAX:
            return
        log = self.published[machine.id, machine.epoch]
        payloads = [b"%s/%d/%d" % (name.encode(), machine.epoch, len(log) + n) for n in range(burst)]
        times = [world.now_us * 16 + n for n in range(burst)]
        tied = self.coarse_us > 1
        if tied:  # a clock that counts in steps: several events have one time, until that is over
            step = world.now_us * 16 // self.coarse_us * self.coarse_us
            times = [max(step, machine.last_time + (not machine.goes_on))] * burst
        if tied and times[0] == machine.last_time:
            world.sometimes("events of one time were published apart")
        effects = machine.publish(payloads, times, None, world.node_now_us(name), None, tied)
        if effects is None:
            world.sometimes("a publish had to wait")
            return
        log.extend(payloads)
        world.carry_out(name, effects)

    def _welcome(self, world: World, name: str, asked: Asked) -> None:
        machine = world.machine(name)
        if machine is not None:
            world.call(name, "welcome", asked.consumer, b"%d/%d" % (machine.epoch, machine.last))

    def _restart_cleanly(self, world: World, name: str) -> None:
        if world.call(name, "close"):
            self._restart(world, name, world.now_us + 50 * MILLISECOND_US)

    def _restart(self, world: World, name: str, at_us: int) -> None:
        world.at(at_us, lambda: self._crash(world, name))
        world.at(at_us + 100 * MILLISECOND_US, lambda: world.start(name))

    def _crash(self, world: World, name: str) -> None:
        if world.machine(name) is not None:
            world.crash(name)

    def _wake_zombie(self, world: World, name: str) -> None:
        """A producer of an epoch long gone says one more thing."""
        machine = world.machine(name)
        if machine is None or machine.epoch == 1:
            return
        zombie = Frames(machine.id, machine.epoch - 1, 1, (1,), (b"from the dead",))
        for listener in self.listeners.values():
            consumer = world.machine(listener.name)
            if consumer is not None and any(position[0] == machine.epoch for position in consumer.positions().values()):
                world.sometimes("a producer was told that it is stale")
                world.carry_out(listener.name, consumer.handle(name, zombie, world.node_now_us(listener.name)))

    # --- consumers

    def _add_consumer(self, world: World, listener: Listener) -> None:
        self.listeners[listener.name] = listener

        def boot(records: Mapping[str, bytes], entropy: Entropy, now: int) -> Consumer:
            listener.incarnation += 1
            listener.waiting.clear()
            listener.through.clear()
            machine = self.consumer(entropy, listener.config, listener.positions, self._present(world))
            if listener.name == self.liar:
                machine.peers = LyingPeers(listener.config)
            machine.peers.address = listener.name if self.signing_seed else ""
            return machine

        world.add(listener.name, boot, on_deliver=lambda what: self._on_deliver(world, listener, what))

    def _on_deliver(self, world: World, listener: Listener, what: Frames | Loss | Watermark) -> None:
        if not isinstance(what, Loss):
            listener.hear(what)
        if isinstance(what, Watermark):
            return
        listener.waiting.append(what)
        if len(listener.waiting) == 1:
            self._work(world, listener, listener.incarnation)

    def _work(self, world: World, listener: Listener, incarnation: int) -> None:
        """The application takes one thing after the other, each after its own while."""
        pause_us = world.draw.randrange(listener.slowness_us) if listener.slowness_us else 0
        world.at(world.now_us + pause_us, lambda: self._accept(world, listener, incarnation))

    def _accept(self, world: World, listener: Listener, incarnation: int) -> None:
        if listener.incarnation != incarnation:
            world.sometimes("a consumer crashed with events in hand")
            return
        machine = world.machine(listener.name)
        if machine is None:  # paused, and the application with it; or crashed, until a new incarnation comes
            world.at(world.now_us + MILLISECOND_US, lambda: self._accept(world, listener, incarnation))
            return
        what = listener.waiting[0]
        self._note(world, listener, machine, what)
        listener.tell(what)
        through = what.first if what.last is None else what.last
        world.call(listener.name, "accepted", what.producer, what.epoch, through)
        listener.positions = machine.positions()
        if isinstance(what, Loss) and what.information is None and listener.recovers:
            world.sometimes("a consumer recovered as a newcomer")
            world.call(listener.name, "recover", what.producer)
        listener.waiting.popleft()
        if listener.waiting:
            self._work(world, listener, incarnation)

    def _note(self, world: World, listener: Listener, machine: Any, what: Frames | Loss) -> None:
        incarnation = (what.producer, what.epoch)
        if incarnation not in listener.cuts:
            for account in machine.ledger().accounts:
                if (account.producer, account.epoch) == incarnation:
                    listener.cuts[incarnation] = account.cut
        if isinstance(what, Loss):
            world.sometimes("a range was declared lost")
            ended = "an epoch ended at an unknown sequence" if what.last is None else ""
            if what.last is not None and "restarted" in what.cause:
                ended = "an epoch's end was known by its mark"
            if ended:
                world.sometimes(ended)

    def states(self, world: World, name: str) -> Collection[str]:
        machine = world.nodes[name].machine
        if not isinstance(machine, Consumer):
            return ()
        feeds = list(machine._feeds.values())
        told = (
            (GAP, any(feed.held for feed in feeds)),
            (IN_HAND, any(feed.in_hand for feed in feeds)),
            (ASKING, any(feed.armed for feed in feeds)),
        )
        return [state for state, holds in told if holds]

    # --- judgement

    def settled(self, world: World) -> bool:
        for listener in self.listeners.values():
            machine = world.machine(listener.name)
            for name in world.nodes:
                producer = world.machine(name)
                if isinstance(producer, Producer):
                    wanted = (producer.epoch, producer.last)
                    if machine is None or machine.positions().get(producer.id) != wanted:
                        return False
                    if not listener.knows_the_end(producer):
                        return False
        return True

    def safety(self, world: World) -> Iterable[Violation]:
        for what, reached in _REACHED.items():
            if world.reports.get(what):
                world.sometimes(reached)
        return self._check(world, finished=False)

    def liveness(self, world: World) -> Iterable[Violation]:
        return self._check(world, finished=True)

    def _check(self, world: World, finished: bool) -> list[Violation]:
        violations: list[Violation] = []
        for listener in self.listeners.values():
            machine = world.machine(listener.name)
            claims = [] if machine is None else self._claims(listener, machine)
            if finished and machine is not None:
                claims.extend(self._unmet_claims(world, listener, machine, claims))
            violations.extend(check_channel(listener.name, self.published, listener.records, claims, finished=finished))
            violations.extend(self._check_ends(listener))
            if finished and machine is not None:
                violations.extend(self._check_watermarks(world, listener))
        return violations

    def _check_watermarks(self, world: World, listener: Listener) -> Iterable[Violation]:
        producers = [machine for name in world.nodes if isinstance(machine := world.machine(name), Producer)]
        unaware = [producer.name for producer in producers if not listener.knows_the_end(producer)]
        if unaware:
            yield Violation("who listens learns that a stream has ended", (f"{listener.name}: {', '.join(unaware)}",))

    def _check_ends(self, listener: Listener) -> Iterable[Violation]:
        if listener.wrong_cuts:
            yield Violation("initial information stands for exactly what it says", tuple(listener.wrong_cuts[:10]))
        if listener.wrong_watermarks:
            yield Violation("no event comes at or before a watermark", tuple(listener.wrong_watermarks[:10]))
        open_ends = [item for item in listener.records if isinstance(item, Declared) and item.last is None]
        if self.producer_config.durable and open_ends:
            yield Violation("a durable producer's epoch has no unknown end", tuple(map(str, open_ends[:10])))

    def _claims(self, listener: Listener, machine: Consumer) -> list[Claim]:
        """The ledger's own figures where one incarnation saw it all; counted ones where a crash lost the ledger."""
        claims = []
        for account in machine.ledger().accounts:
            incarnation = (account.producer, account.epoch)
            delivered, lost = account.delivered, account.declared_lost
            if listener.incarnation > 1:
                delivered, lost = _counted(listener, incarnation)
            cut = listener.cuts.get(incarnation, account.cut)
            claims.append(Claim(account.producer, account.epoch, cut, account.accepted, delivered, lost))
        return claims

    def _unmet_claims(
        self, world: World, listener: Listener, machine: Consumer, claims: list[Claim]
    ) -> Iterable[Claim]:
        """A consumer that has not heard of a producer's present epoch (yet, or since it restarted) answers for it."""
        known = {(claim.producer, claim.epoch) for claim in claims}
        for name in world.nodes:
            producer = world.machine(name)
            if isinstance(producer, Producer) and (producer.id, producer.epoch) not in known:
                incarnation = (producer.id, producer.epoch)
                epoch, accepted = machine.positions().get(producer.id, (0, 0))
                accepted = accepted if epoch == producer.epoch else 0
                yield Claim(*incarnation, listener.cuts.get(incarnation, 1), accepted, *_counted(listener, incarnation))


_REACHED = {
    "channel.replayed": "a gap was repaired",
    "channel.hold_full": "hold-back was full",
    "channel.peer_repaired": "a peer repaired what the producer had lost",
    "channel.forged": "a forged repair was refused",
}


def _counted(listener: Listener, incarnation: tuple[int, int]) -> tuple[int, int]:
    records = [item for item in listener.records if (item.producer, item.epoch) == incarnation]
    delivered = len({item.sequence for item in records if isinstance(item, Delivered)})
    lost = {
        n
        for item in records
        if isinstance(item, Declared) and item.last is not None
        for n in range(item.first, item.last + 1)
    }
    return delivered, len(lost)


mutant(Channels, "moves on before the application accepted", consumer=PositionBeforeAcceptance)
mutant(Channels, "no duplicate filter", consumer=NoDuplicateFilter)
mutant(Channels, "no gap detection", consumer=NoGapDetection)
mutant(Channels, "blind to epochs", consumer=EpochBlind)
mutant(Channels, "ends an epoch silently", consumer=SilentEpochEnd)
mutant(Channels, "asks once", consumer=AsksOnce)
mutant(Channels, "gives up silently", consumer=GivesUpSilently, seeds_max=200)
mutant(Channels, "the same epoch again", producer=SameEpochAgain)
mutant(Channels, "no heartbeat", producer=NoHeartbeat)
mutant(Channels, "numbers a replay wrongly", producer=NumbersReplayWrongly)
mutant(Channels, "sends before the disk has it", producer=SendsBeforeDisk, seeds_max=200)
mutant(Channels, "declares a time over too soon", producer=DeclaresTooSoon)
mutant(Channels, "forgets what it declared", producer=ForgetsItsWatermark)
mutant(Channels, "welcomes ahead of its cut", producer=WelcomesAhead)
mutant(Channels, "a relay that renumbers", relay=RenumberingRelay, seeds_max=200)
mutant(Channels, "a relay without heartbeat", relay=SilentRelay, seeds_max=200)
mutant(Channels, "believes its peers", consumer=BelievesPeers, seeds_max=200)
