"""Correlation machines with one rule taken away each. The scenario must catch every one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from unerring.correlation import (
    Ack,
    Application,
    Batch,
    CorrelationConfig,
    Incoming,
    Intake,
    Join,
    Membership,
    Outgoing,
    Queue,
    Receipt,
    Record,
    Replica,
    Snapshot,
    Source,
    Standing,
    Taken,
    Topology,
    Verdict,
    WaitsFor,
)
from unerring.matching import Merge, Piece, Row, stamp_at, unpack
from unerring.model import MILLISECOND_US, TIME_MAX, TIME_MIN, Address, Effects, Entropy, Event, Send, Stamp

# ---- the duplicate filter --------------------------------------------------------------------------------------


class NoFilter(Incoming):
    """Takes whatever comes, as often as it comes."""

    def take(self, batch: Batch) -> Taken:
        if batch.prev > self.last:
            return Taken(Verdict.GAP, (), False)
        events = self.read(batch)
        self.count += len(events)
        self.watermark = max(self.watermark, batch.watermark)
        if len(events):
            self.last = stamp_at(events, -1)
        return Taken(Verdict.NEXT, events, True)


class NoPrev(Incoming):
    """Line 9 alone: a stamp above the last one is new, whatever lies between."""

    def take(self, batch: Batch) -> Taken:
        events = tuple(event for event in self.read(batch) if event.stamp > self.last)
        advanced = bool(events) or batch.watermark > self.watermark
        self.watermark = max(self.watermark, batch.watermark)
        if events:
            self.last = events[-1].stamp
            self.count = batch.index + len(batch.events)
        return Taken(Verdict.NEXT if advanced else Verdict.DUPLICATE, events, advanced)


class WatermarkAnyway(Incoming):
    """A watermark counts whether or not its event has come."""

    def take(self, batch: Batch) -> Taken:
        taken = super().take(batch)
        if batch.watermark > self.watermark:
            self.watermark = batch.watermark
            return Taken(taken.verdict if taken.events else Verdict.NEXT, taken.events, True)
        return taken


class NoFilterIntake(Intake):
    incoming_part = NoFilter


class NoPrevIntake(Intake):
    incoming_part = NoPrev


class WatermarkAnywayIntake(Intake):
    incoming_part = WatermarkAnyway


class NoFilterAtTheTop(Application):
    intake_part = NoFilterIntake


class NoPrevReplica(Replica):
    intake_part = NoPrevIntake


class WatermarkAnywayReplica(Replica):
    intake_part = WatermarkAnywayIntake


# ---- acks and asking again -------------------------------------------------------------------------------------


class AcksBeforeAccepting(Replica):
    """Acknowledges what it has seen, not what it has (line 8 before line 9)."""

    def _batch(self, sender: Address, batch: Batch, now: int) -> Effects:
        early: Effects = []
        if len(batch.events) and batch.stream in self.intake.streams:
            events = self.intake.streams[batch.stream].read(batch)
            last, count = stamp_at(events, -1), batch.index + len(events)
            if last > self.intake.streams[batch.stream].last:
                credit = self.intake.credit(batch.stream)
                early.append(Send(sender, Ack(batch.stream, last, count, self.incarnation, credit)))
        return early + super()._batch(sender, batch, now)


class NeverAsksIntake(Intake):
    """Waits for whoever leads; repeats no ack."""

    def tick(self, now: int) -> Effects:
        return []


class NeverAsks(Replica):
    intake_part = NeverAsksIntake


# ---- the outgoing queue ----------------------------------------------------------------------------------------


class ByPosition(Queue):
    """Drops as many as were acknowledged, from the front, wherever its own front is."""

    __slots__ = ("_began",)

    def __init__(self, stream: str, *rest: Any) -> None:
        super().__init__(stream, *rest)
        self._began = self.mark_count

    def prune_count(self, count: int) -> None:
        dropped = self.mark_count - self._began
        events = self.events()[: max(0, count - dropped)]
        if events:
            self.prune(events[-1].stamp)


class ByPositionOutgoing(Outgoing):
    queue_part = ByPosition

    def prune(self) -> None:
        for stream, queue in self.queues.items():
            counts = [
                held.count if (held := self._held[stream].get(receiver)) else 0 for receiver in self._receivers[stream]
            ]
            if counts and self.record.version and isinstance(queue, ByPosition):
                queue.prune_count(min(counts))


class PrunesByPosition(Replica):
    outgoing_part = ByPositionOutgoing


class OldAcksOutgoing(Outgoing):
    """An ack counts for whoever bears the name now."""

    def learn(self, receipt: Receipt) -> None:
        for name, incarnation in self._receivers.get(receipt.stream, []):
            if name == receipt.receiver:
                super().learn(msgspec.structs.replace(receipt, incarnation=incarnation))
        super().learn(receipt)

    def _arrange(self) -> None:
        known = self.receipts()
        super()._arrange()
        for receipt in known:
            self.learn(receipt)


class OldAcksCount(Replica):
    outgoing_part = OldAcksOutgoing


class SuspiciousOutgoing(Outgoing):
    """Evicts a receiver by itself: whoever lags behind the best one by much is not waited for."""

    def prune(self) -> None:
        for stream, queue in self.queues.items():
            best: Stamp | None = None
            for receiver in self._receivers[stream]:
                held = self._held[stream].get(receiver)
                if held is not None and (best is None or held.last > best):
                    best = held.last
            if best is not None and self.record.version and len(queue) > 2:
                queue.prune(best)


class CaughtUpOutgoing(Outgoing):
    """Keeps nothing for those that are not caught up yet."""

    def prune(self) -> None:
        for stream, queue in self.queues.items():
            held_by = self._held[stream]
            floors = [
                held_by[receiver].last if receiver in held_by else queue.mark
                for receiver in self._receivers[stream]
                if self.record.caught_up(*receiver)
            ]
            if floors and self.record.version:
                queue.prune(min(floors))


class PrunesForCaughtUp(Replica):
    outgoing_part = CaughtUpOutgoing


class EvictsOnSuspicion(Replica):
    outgoing_part = SuspiciousOutgoing


class CreditInsideATime(Queue):
    """Stops at the credit, wherever that is."""

    __slots__ = ()

    def allowed(self, start: int, credit: int) -> int:
        return max(start, min(credit, self.count))


class CreditInsideATimeOutgoing(Outgoing):
    queue_part = CreditInsideATime


class EndsInsideATime(Replica):
    outgoing_part = CreditInsideATimeOutgoing


class WatermarksUnsent(Queue):
    """The watermark is not capped before the first event that the receiver was not sent."""

    __slots__ = ()

    def watermark_after(self, end: int) -> int:
        return self.watermark


class WatermarksUnsentOutgoing(Outgoing):
    queue_part = WatermarksUnsent


class UncappedWatermark(Replica):
    outgoing_part = WatermarksUnsentOutgoing


class LastSentOutgoing(Outgoing):
    """`prev` is the last event sent to that receiver, not the stream's."""

    def concerns(self, stream: str) -> bool:
        return True

    def flush(self, now: int) -> Effects:
        last: dict[tuple[Address, str], Stamp] = self.__dict__.setdefault("sent_last", {})
        effects: Effects = []
        for effect in super().flush(now):
            if isinstance(effect, Send) and isinstance(effect.message, Batch) and self.concerns(effect.message.stream):
                batch = effect.message
                prev = last.get((effect.to, batch.stream), batch.prev)
                effect = Send(effect.to, msgspec.structs.replace(batch, prev=prev))
                events = unpack(self.schemas[batch.stream], batch.events)
                last[effect.to, batch.stream] = stamp_at(events, -1) if len(events) else prev
            effects.append(effect)
        return effects


class LastSentAsPrev(Replica):
    outgoing_part = LastSentOutgoing


class WatermarkNeedsCreditOutgoing(Outgoing):
    """A watermark waits for credit like an event: a diamond under back-pressure waits for itself."""

    def _serve(self, queue: Queue, to: Address, held: Any, batches: Any, now: int, effects: Effects) -> None:
        if held.sent < held.credit:
            super()._serve(queue, to, held, batches, now, effects)


class WatermarkNeedsCredit(Replica):
    outgoing_part = WatermarkNeedsCreditOutgoing


# ---- merge -----------------------------------------------------------------------------------------------------


class ArrivalMerge(Merge):
    """Hands out what is there, in the order in which streams happen to be ahead."""

    def release(self, rows_max: int | None = None) -> tuple[list[Row], int]:
        rows = [Row(lane.rank, e) for lane in self._lanes.values() for piece in lane.pieces() for e in piece]
        for lane in self._lanes.values():
            lane.waiting.clear()
            lane.head = lane.size = 0
        self.through = max(self.through, min(lane.watermark for lane in self._lanes.values()))
        return rows, self.through


class _LateOutgoing(Outgoing):
    def take(self, outputs: Any, through: int) -> None:
        for stream, events in outputs.items():
            queue = self.queues[stream]
            # As a system without a merge would: what comes late is sent late.
            later: list[Event] = []
            for event in events:
                floor = max(later[-1].stamp if later else queue.last, Stamp(queue.watermark, 1 << 30))
                stamp = event.stamp if event.stamp > floor else Stamp(floor.time + 1, 0)
                later.append(msgspec.structs.replace(event, stamp=stamp))
            queue.append(later)


class MergesByArrival(Replica):
    merge_part = ArrivalMerge
    outgoing_part = _LateOutgoing


# ---- join ------------------------------------------------------------------------------------------------------


LOADING_US = 200 * MILLISECOND_US


class UncheckedJoin(Join):
    """Takes its snapshot first and registers afterwards, without a look at the marks.

    In between is a pause, as long as a large state takes to load: with none, the upstream has no time to prune.
    """

    _held_us = -1

    def carry_on(self, record: Record, intake: Intake, now: int, at_once: bool = False) -> Effects:
        if self.holding:
            if self._held_us < 0:
                self._held_us = now
            if now - self._held_us < LOADING_US:
                return []
            return super().carry_on(record, intake, now, at_once)
        if not at_once and now - self._tried_us < self._retry_us:
            return []
        self._tried_us = now
        return self._ask(record, [], intake)

    def _at_marks(self, record: Record, upstream: Any, intake: Intake) -> bool:
        return True


class SnapshotBeforeRegistering(Replica):
    join_part = UncheckedJoin


class PatientJoin(Join):
    """Tells nobody that it waits for a founding member upstream that never came: that one is never evicted."""

    def carry_on(self, *arguments: Any, **named: Any) -> Effects:
        effects = super().carry_on(*arguments, **named)
        return [one for one in effects if not (isinstance(one, Send) and isinstance(one.message, WaitsFor))]


class PatientReplica(Replica):
    join_part = PatientJoin


class SnapshotWithoutQueue(Replica):
    """A snapshot holds where the outgoing streams are, not what is queued."""

    def _snapshot(self) -> Snapshot:
        whole = super()._snapshot()
        queues = self.outgoing.queues
        outputs = tuple(
            msgspec.structs.replace(
                state, mark=queues[state.stream].last, mark_count=queues[state.stream].count, events=()
            )
            for state in whole.outputs
        )
        return msgspec.structs.replace(whole, outputs=outputs)


class SnapshotWithoutBuffer(Replica):
    """A snapshot holds positions and engine state, not what waits to be merged."""

    def _snapshot(self) -> Snapshot:
        whole = super()._snapshot()
        lanes = tuple((name, last, watermark, ()) for name, last, watermark, _ in whole.merge.lanes)
        merge = msgspec.structs.replace(whole.merge, lanes=lanes)
        return msgspec.structs.replace(whole, merge=merge)


class SnapshotOnePosition(Replica):
    """A snapshot says how far all receivers are, as if the fastest stood for all."""

    def _snapshot(self) -> Snapshot:
        whole = super()._snapshot()
        best: dict[str, Receipt] = {}
        for receipt in whole.receipts:
            if receipt.stream not in best or receipt.last > best[receipt.stream].last:
                best[receipt.stream] = receipt
        receipts = tuple(
            msgspec.structs.replace(
                receipt, last=best[receipt.stream].last, count=best[receipt.stream].count, credit=receipt.credit
            )
            for receipt in whole.receipts
        )
        return msgspec.structs.replace(whole, receipts=receipts)


# ---- shards ----------------------------------------------------------------------------------------------------


class OwnNumbers(Outgoing):
    """A shard numbers what it makes as if there were no others: its own ordinals are the positions."""

    def take(self, outputs: Mapping[str, Piece], through: int) -> None:
        if self.own and "#" in self.own[0]:
            own = {"at_rank": 0, "at_index": int(self.own[0].partition("#")[2][0]), "at_key0": 0}
            outputs = {
                stream: [
                    msgspec.structs.replace(e, payload={**e.payload, **own, "at_ordinal": e.stamp.ordinal})
                    for e in events
                ]
                for stream, events in outputs.items()
            }
        super().take(outputs, through)


class NumbersByItself(Replica):
    outgoing_part = OwnNumbers


class WholeStreamPrevOutgoing(Outgoing):
    """`prev` in a part is the event before in the whole stream, which that part may not have."""

    def flush(self, now: int) -> Effects:
        whole = {part: stream for stream, cuts in self.cuts.items() for part in cuts.names}
        effects: Effects = []
        for effect in super().flush(now):
            if isinstance(effect, Send) and isinstance(effect.message, Batch) and effect.message.stream in whole:
                batch = effect.message
                events = unpack(self.schemas[batch.stream], batch.events)
                queue = self.queues[whole[batch.stream]]
                before = [e.stamp for e in queue.events() if not len(events) or e.stamp < stamp_at(events, 0)]
                prev = before[-1] if before else max(batch.prev, queue.mark)
                effect = Send(effect.to, msgspec.structs.replace(batch, prev=prev))
            effects.append(effect)
        return effects


class WholeStreamPrev(Replica):
    outgoing_part = WholeStreamPrevOutgoing


class WholeStreamPrevSource(Source):
    outgoing_part = WholeStreamPrevOutgoing


class LastSentOfParts(LastSentOutgoing):
    """The same in parts alone."""

    def concerns(self, stream: str) -> bool:
        return stream not in self.own


class LastSentToShards(Replica):
    outgoing_part = LastSentOfParts


class LastSentToShardsSource(Source):
    outgoing_part = LastSentOfParts


class AnyShardMerge(Merge):
    """Numbers a time as soon as one shard is past it."""

    @property
    def complete(self) -> int:
        lanes = [[self._lanes[name].watermark for name in stream.lanes] for stream in self._streams]
        return min((max(watermarks) for watermarks in lanes), default=TIME_MAX)


class NumbersTooEarly(Replica):
    merge_part = AnyShardMerge


class PrunesWithoutParts(Outgoing):
    """The whole stream is not kept for what shards lack of it."""

    def prune(self) -> None:
        super().prune()
        for stream in self.own:
            if not self._takers[stream] and self.record.version:
                self.queues[stream].prune(self.queues[stream].last)


class ForgetsParts(Source):
    outgoing_part = PrunesWithoutParts


# ---- membership ------------------------------------------------------------------------------------------------


class EvictsUnconfirmed(Membership):
    """Counts whoever is in the record as remaining, dead or alive."""

    def evict(self, replica: str, now: int, silent: bool = False) -> Effects:
        effects = super().evict(replica, now, silent)
        if not self._remaining(replica):
            return effects
        del self.rounds[replica]
        member = self.record.members[replica]
        return self._write(replica, msgspec.structs.replace(member, standing=Standing.GONE))


class EvictsTheSilent(Membership):
    """Evicts whoever it has not heard of, if the record has another one, dead or alive."""

    def evict(self, replica: str, now: int, silent: bool = False) -> Effects:
        effects = super().evict(replica, now, silent)
        if not silent or not self._remaining(replica):
            return effects
        del self.rounds[replica]
        member = self.record.members[replica]
        return self._write(replica, msgspec.structs.replace(member, standing=Standing.GONE))


class TwoKeepers(Membership):
    """Another keeper hears half of the replicas, and has a record of its own: the two never compare."""

    def __init__(
        self, records: Mapping[str, bytes], topology: Topology, config: CorrelationConfig, entropy: Entropy
    ) -> None:
        super().__init__(records, topology, config, entropy)
        self._other = Membership({}, topology, config, entropy)

    def timer(self, name: str, now: int) -> Effects:
        others = [effect for effect in self._other.timer(name, now) if isinstance(effect, Send)]
        return [*super().timer(name, now), *others]

    def handle(self, sender: Address, message: object, now: int) -> Effects:
        if sum(sender.encode()) % 2:
            return [effect for effect in self._other.handle(sender, message, now) if isinstance(effect, Send)]
        return super().handle(sender, message, now)


# ---- sources ---------------------------------------------------------------------------------------------------


class ForgetsWatermarks(Source):
    """Keeps no bound on disk: a restart may publish at or before its old watermark."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if self.follows:
            return
        for stream in self.outgoing.own:
            queue = self.outgoing.queues[stream]
            queue.watermark = self.bounds[stream] = queue.last.time if queue.count else TIME_MIN
            for part in self.outgoing.cuts[stream].names:
                self.outgoing.queues[part].watermark = queue.watermark
