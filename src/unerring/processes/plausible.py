"""Checks messages to a process node: whether the sender may send them, and whether their content is possible.

A bad peer costs its link, never the node: each check comes before anything of the message is believed or kept, and a
message that fails one is a protocol error of its sender. A replica that lies plausibly is not found out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from unerring.model import SECOND_US, Address, ProtocolError
from unerring.processes.build import Process
from unerring.processes.children import family_of, starts
from unerring.processes.graph import Graph, Kind
from unerring.processes.messages import (
    CHILD,
    COMMANDS,
    FINAL,
    Ack,
    Answer,
    AskMail,
    Clean,
    Decided,
    Fetch,
    Heartbeat,
    Mail,
    MailBag,
    Memory,
    Name,
    Named,
    Post,
    Publish,
    Recall,
    Recalled,
    Reject,
    Replicate,
    Reply,
    Request,
    RequestView,
    Settled,
    Started,
    State,
    Status,
    Stored,
    Taken,
    Vote,
)
from unerring.processes.packing import chunk_of

VIEW_STEP_MAX: Final = 1 << 12
"""How far a view may lie above what is known of an instance: survivors may have to cancel for every one in between. Who
was away for more elections than that comes to the present one in steps."""

AHEAD_US_MAX: Final = 400 * 86_400 * SECOND_US
"""How far the clock of a node with a new disk may be ahead."""

_OF_NODES: Final = (
    *(Replicate, Ack, Reject, RequestView, Vote, Name, Named, Decided, Fetch, Heartbeat, Clean, Settled),
    *(AskMail, MailBag, Started, Stored, Recall, Recalled),
)
_STATUSES: Final = (Status.RUNNING, Status.UNDOING, *FINAL)
_ANSWERS: Final = tuple(value for name, value in vars(Answer).items() if name.isupper())
_MODES: Final = ("do", "undo", "cancel")


def check_sender(sender: Address, message: Any, nodes: tuple[Address, ...]) -> None:
    """Nodes speak of instances, services reply, and anybody may start something or send it a message."""
    kind = type(message)
    if (
        (kind in _OF_NODES and sender not in nodes)
        or (kind is Reply and not sender.startswith("service:"))
        or kind is Request
    ):
        raise ProtocolError(f"{kind.__name__} from {sender!r}, which may not send it")


def check_known(known: Mapping[Address, int], nodes: tuple[Address, ...], wall_us: int) -> None:
    """Refuse incarnations of strangers, and those of a far future: they are drawn by wall clocks."""
    for node, number in known.items():
        if node not in nodes or number > wall_us + AHEAD_US_MAX:
            raise ProtocolError(f"incarnation {number} of {node[:80]!r}, which cannot be; compare the nodes' clocks")


def check_instance(id: str) -> None:
    """Check the id of a start or of a child: it is part of keys on disk and of interaction ids."""
    if not id or any(c in id for c in "/|@"):
        raise ProtocolError(f"invalid instance id {id[:80]!r}")


def check_message(message: Any, processes: Mapping[str, Process], before: State | None, children_max: int) -> None:
    """Check a message by itself, and against the state that was accepted before it."""
    if isinstance(message, Post | AskMail | MailBag | Fetch | Clean | Settled | Ack | Named | Reply):
        check_instance(message.instance)
    if isinstance(message, Replicate | Name | Decided):
        check_state(message.state, processes, before, children_max, getattr(message, "base", -1))
    elif isinstance(message, Vote):
        if message.accepted_in > message.view:
            raise ProtocolError(f"a vote in view {message.view} of what was accepted in view {message.accepted_in}")
        if message.state is not None:
            if message.state.instance != message.instance:
                raise ProtocolError(f"a vote for {message.instance} with a state of {message.state.instance}")
            check_state(message.state, processes, before, children_max)
        for mail in message.mail:
            check_mail(mail)
    elif isinstance(message, MailBag):
        for mail in message.mail:
            check_mail(mail)
    elif isinstance(message, Post):
        check_mail(message.mail)
    elif isinstance(message, Recalled):
        for memory in message.memories:
            _check_memory(memory, processes, children_max)
        for id in message.published:
            _check_id(id)
    elif isinstance(message, Publish):
        _check_id(message.id)
    elif isinstance(message, Reply) and (message.answer not in _ANSWERS or message.mode not in _MODES):
        raise ProtocolError(f"invalid reply {message.answer!r} to {message.mode!r}")


def _check_memory(memory: Memory, processes: Mapping[str, Process], children_max: int) -> None:
    check_instance(memory.instance)
    if memory.accepted_in > memory.view or (memory.state is not None and memory.state.instance != memory.instance):
        raise ProtocolError(f"{memory.instance}: a memory that contradicts itself")
    if memory.state is not None:
        check_state(memory.state, processes, None, children_max)
    for mail in memory.mail:
        check_mail(mail)


def check_mail(mail: Mail) -> None:
    """A partner's message, a command, or the end of a child."""
    _check_id(mail.id)
    if mail.channel == CHILD:
        end = mail.payload
        if not isinstance(end, dict) or not {"status", "reason", "value"} <= end.keys() or end["status"] not in FINAL:
            raise ProtocolError(f"invalid end of child {mail.id}: it does not say how it ended")
    elif mail.channel in COMMANDS and not isinstance(mail.payload, str | None):
        raise ProtocolError(f"invalid command {mail.channel!r} with {type(mail.payload).__name__}")


def _check_id(id: str) -> None:
    """It is part of a key on disk."""
    if "|" in id:
        raise ProtocolError(f"invalid message id {id[:80]!r}")


def check_state(
    state: State, processes: Mapping[str, Process], before: State | None, children_max: int, base: int = -1
) -> None:
    """Refuse a state that no execution of its process comes to. `base` not -1: it has only what it adds to that group.
    What it shares with `before` was looked at then."""
    numbers = (
        state.group - len(state.lineage) - state.unpacked_from,
        state.moved,
        state.rewind,
        *(n for span in state.rewound for n in span),
    )
    if state.status not in _STATUSES or numbers[0] != max(base, 0) or any(n > state.group for n in numbers):
        raise ProtocolError(f"{state.instance}: a state of group {state.group} that contradicts itself")
    known = before.past if before is not None else ()
    chunks = [chunk_of(chunk) for at, chunk in enumerate(state.past) if at >= len(known) or known[at] != chunk]
    groups = [action.group for _, taken in chunks for action in taken] + [action.group for action in state.taken]
    if groups != sorted(groups) or (groups and not 1 <= groups[0] <= groups[-1] <= state.group):
        # It could not be put together again from its pages on disk.
        raise ProtocolError(f"{state.instance}: a state whose history is not in order")
    process = processes.get(f"{state.process}@{state.version}")
    if process is None:
        return
    try:
        for steps, taken in chunks:
            whole = msgspec.structs.replace(state, lineage=steps, taken=taken, past=())
            _check_in(process, whole, before, state.moved, children_max)
        _check_in(process, state, before, base, children_max)
    except Exception as error:  # whatever a process says to what is not its own
        raise ProtocolError(f"{state.instance}: invalid state of process {state.process}: {error!r}"[:500]) from None


def _check_in(process: Process, state: State, before: State | None, base: int, children_max: int) -> None:
    graph = process.graph
    begin = max(base, 0) + state.unpacked_from + 1
    steps = [step.cut for number, step in enumerate(state.lineage, begin) if number > state.moved]
    for cut in (state.cut, *steps):
        if any(not 0 <= edge < len(graph.edges) for edge in cut):
            raise ProtocolError(f"the cut {cut}")
    for rounds in (state.rounds, *(step.rounds for step in state.lineage)):
        if any(not 0 <= number < graph.by_name[loop].at_most for loop, number in rounds.items()):
            raise ProtocolError(f"the rounds {rounds}")
    if state.turn >= len(graph.edges) or any(group > state.group for group, _ in state.blocks.values()):
        raise ProtocolError(f"the edge {state.turn} with the blocks {state.blocks}")
    if any(name not in graph.blocks for name in state.blocks):
        raise ProtocolError(f"the blocks {state.blocks}")
    if state.announced and state.announced not in graph.by_name:
        raise ProtocolError(f"{state.announced!r} is announced")
    _check_variables(process, state, before)
    known = before.taken if before is not None else ()
    for at, action in enumerate(state.taken):
        if at < len(known) and base < 0 and known[at] == action:
            continue
        _check_taken(graph, state, action, children_max)
    for vertex in graph.enabled(state.cut):
        if vertex.kind is Kind.CHILD:
            family = family_of(graph, state, vertex)
            starts(state.instance, vertex, family, state.variables, children_max)
    if base < 0 and not state.moved and (before is None or before.given != state.given):
        process.initial(state.given)


def _check_variables(process: Process, state: State, before: State | None) -> None:
    known = before.variables if before is not None and before.version == state.version else {}
    for variable in process.graph.state:
        value = state.variables[variable.name]
        if value is None or value == variable.default or (variable.name in known and known[variable.name] == value):
            continue
        process.fit(variable.name, value)


def _check_taken(graph: Graph, state: State, action: Taken, children_max: int) -> None:
    vertex = graph.by_name[action.vertex]
    if not 1 <= action.group <= state.group:
        raise ProtocolError(f"{action.vertex} was done in group {action.group}")
    if vertex.kind is Kind.CHILD:
        begun = starts(state.instance, vertex, action.iid, action.request, children_max)
        if vertex.over and action.reply is not None and len(action.reply) != len(begun):
            raise ProtocolError(f"{action.vertex} has {len(action.reply)} ends of {len(begun)} children")
