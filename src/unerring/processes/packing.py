"""A long history in little room: the groups behind a loop that goes round many times are kept compressed.

What a process has done must stay known until it ends: it may have to be undone. But nobody looks at the first of ten
thousand rounds before that. A state of a process inside a loop has its last groups as they are, and the ones before
them packed; rounds resemble each other, so that a round takes a few bytes. Packing is part of the decided state.
"""

from __future__ import annotations

import zlib
from itertools import groupby
from typing import Final

import msgspec

from unerring.model import UNDECODABLE, ProtocolError
from unerring.processes.messages import Packed, State, Step, Taken

UNPACKED_BYTES_MAX: Final = 64 << 20
"""What a message may say is packed: more is not believed."""
_Chunk = tuple[tuple[Step, ...], tuple[Taken, ...]]


def packed(state: State, groups: int) -> State:
    """The same state with at most so many groups as they are, if it is inside a loop."""
    half = max(groups // 2, 1)
    while state.rounds and len(state.lineage) >= 2 * half:
        steps = state.lineage[:half]
        last = state.unpacked_from + half
        count = next((at for at, action in enumerate(state.taken) if action.group > last), len(state.taken))
        views = tuple((view, len(list(run))) for view, run in groupby(step.view for step in steps))
        data = zlib.compress(msgspec.msgpack.encode((steps, state.taken[:count])), 6)
        past = (*state.past, Packed(half, views, data))
        state = msgspec.structs.replace(state, past=past, lineage=state.lineage[half:], taken=state.taken[count:])
    return state


def unpacked(state: State) -> State:
    """The same state with its whole history as it is."""
    if not state.past:
        return state
    lineage: tuple[Step, ...] = ()
    taken: tuple[Taken, ...] = ()
    for chunk in state.past:
        steps, actions = chunk_of(chunk)
        lineage, taken = lineage + steps, taken + actions
    return msgspec.structs.replace(state, past=(), lineage=lineage + state.lineage, taken=taken + state.taken)


def chunk_of(chunk: Packed) -> _Chunk:
    """What is in a chunk. ProtocolError: it is none."""
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(chunk.data, UNPACKED_BYTES_MAX)
        if not inflate.eof:
            raise ProtocolError("a packed history that is too long or has no end")
        steps, taken = msgspec.msgpack.decode(data, type=_Chunk)
    except (zlib.error, *UNDECODABLE) as error:
        raise ProtocolError(f"a packed history that cannot be read: {error}") from None
    views = tuple((view, len(list(run))) for view, run in groupby(step.view for step in steps))
    if len(steps) != chunk.groups or views != chunk.views:
        raise ProtocolError("a packed history that is another one than it says")
    return steps, taken


# ---- what a request builds on ----------------------------------------------------------------------------------------


def runs_of(views: tuple[int, ...]) -> tuple[int, ...]:
    """The views of a lineage in short: −n and a view are n groups of that view; −1 by itself is a group that counts no
    longer."""
    short: list[int] = []
    for view, run in groupby(views):
        count = len(list(run))
        short += [view] * count if count < 3 else [-count, view]
    return tuple(short)


def basis_of(state: State) -> tuple[int, ...]:
    """What a next group builds on, in short."""
    if state.rewound or not state.past:
        return runs_of(state.basis)
    runs = [run for chunk in state.past for run in chunk.views]
    runs += [(view, len(list(run))) for view, run in groupby(step.view for step in state.lineage)]
    short: list[int] = []
    for view, same in groupby(runs, key=lambda run: run[0]):
        count = sum(run[1] for run in same)
        short += [view] * count if count < 3 else [-count, view]
    return tuple(short)


def first_of(basis: tuple[int, ...], groups: int) -> tuple[int, ...]:
    """The first groups of such a lineage."""
    kept: list[int] = []
    at = 0
    while groups > 0 and at < len(basis):
        count, view = (-basis[at], basis[at + 1]) if basis[at] < -1 else (1, basis[at])
        at += 2 if basis[at] < -1 else 1
        kept += [view] * min(count, groups) if min(count, groups) < 3 else [-min(count, groups), view]
        groups -= count
    return tuple(kept)
