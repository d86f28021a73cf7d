"""Highly available process executions: the replicated execution of a process has the effects of exactly one execution.

What a process is
  graph.py        a graph of actions and control vertices, as data; cuts through it
  checks.py       what a graph must fulfil before it may run
  build.py        the Python API: decorators on plain async functions, and `flow`
  grouping.py     which actions are executed between two state replications, and whether actively or passively
  partition.py    the best groups of a sequence of actions
  children.py     processes that an action starts and waits for
  waits.py        when a sleep ends, and with which key a message comes
  schedules.py    instances at due times
  reactions.py    the instance that a situation starts
  large.py        variables that hold a reference to a value in a store
  moving.py       two versions of a process: what changed, and who may be moved

What replicas say and keep
  messages.py     what replicas, services and partners say to each other, and what a replica keeps on disk
  plausible.py    checks of messages: who may send them, and what is possible
  history.py      which part of a state's history is sent, kept and shown
  mailbox.py      messages, stored until a decided state consumes them
  execution.py    one execution of a group: requests, replies, the state after it
  flow.py         limits of a service: whose turn it is, and who waits for how long
  undo.py         compensations: in reverse order, logged, repeated until done
  commands.py     what operators ask: cancel, hold, resume, try again, move; the state that carries it out

One instance on one node: replica.py is made of these parts, and says which message goes to which
  context.py      what the parts have in common; what the parts that decide tell the others
  acceptor.py     what was promised, accepted and is known to be decided
  watch.py        who leads, and for how long its silence is borne
  election.py     candidacies and votes
  replication.py  a leader's state on its way to a majority
  naming.py       who executes the next group
  planner.py      what comes next after a decided state
  steering.py     what may change the process's way: commands, its deadline, a group given up
  master.py       the execution of a group, and what follows if it cannot go on
  backups.py      what a follower executes ahead
  undoing.py      undoing the whole process
  parent.py       children that are started, waited for and undone
  logs.py         own executions that are not settled
  recovery.py     what a decided state excludes is undone, by its master or by survivors
  inbox.py        messages and commands, on their way to the planner

All instances of a node: node.py is made of these parts, and says which message goes to which
  roster.py       open instances, and outcomes of settled ones
  starts.py       starts that are not yet decided
  incarnations.py which incarnation of each node counts, after lost disks
  rejoin.py       a node with an empty disk: how it comes to take part again
  outbox.py       messages and commands of the application on their way; what was published with a key
  families.py     starts and ends of children between nodes
  pulse.py        lateness and heartbeats
  pacing.py       who needs a tick, whom a heartbeat names, how many states are on their way
  out.py          the effects of one step: records first
  config.py       bounds and pauses

For people
  tally.py        how many instances there are of which process and status
  listing.py      fields and rows of instances, to find and show them
  explain.py      describes a process to a person: classes, groups and why, failover bound, what may run twice
  costs.py        a process with the costs that were learned of it
  drawing.py      the graph as SVG
  bpmn/           BPMN 2.0 models as processes, and processes as models

spec/             the model of views, votes, naming, acceptance and compensation, for TLC
"""

from unerring.processes.acceptor import Acceptor
from unerring.processes.backups import Backups
from unerring.processes.bpmn import (
    Report as BpmnReport,
    export_model as export_bpmn,
    identifier as bpmn_identifier,
    look_at as look_at_bpmn,
    module_text as bpmn_module,
)
from unerring.processes.build import Process
from unerring.processes.children import children_used
from unerring.processes.commands import back, promised
from unerring.processes.config import NAMINGS, Choice, ClusterBounds, ProcessesConfig
from unerring.processes.context import Context, replica_set
from unerring.processes.costs import STREAM, VIEW_CHANGE, Cost, ProcessAction, read_costs, view_change_of, with_costs
from unerring.processes.drawing import draw
from unerring.processes.election import Election
from unerring.processes.execution import UNKEPT, Execution, values_of
from unerring.processes.explain import explain, process_text
from unerring.processes.flow import PAUSED_US, WAIT_US_MIN, Limiter, Limits
from unerring.processes.graph import IN_TIME, LATE, LOCAL, REPEAT, Edge, Graph, Kind, Retry, Service, Variable, Vertex
from unerring.processes.grouping import Group, Grouping, group_at
from unerring.processes.history import GIVEN, PAST, Pages, history_of
from unerring.processes.inbox import Inbox
from unerring.processes.incarnations import INCARNATIONS, Incarnations, Lives
from unerring.processes.lanes import copied
from unerring.processes.large import Forgotten, Kept, Large, large_variables
from unerring.processes.listing import Listing
from unerring.processes.master import Master
from unerring.processes.messages import (
    AGAIN,
    CANCEL,
    FINAL,
    HOLD,
    MOVE,
    RESUME,
    Accepted,
    Answer,
    AskMail,
    BackupLog,
    Clean,
    GroupLog,
    Mail,
    Memory,
    Outline,
    Post,
    Publish,
    Recall,
    Recalled,
    Replicate,
    Reply,
    Request,
    RequestView,
    Start,
    Started,
    State,
    Status,
    Stored,
    Vote,
    codec,
)
from unerring.processes.moving import compared, difference_text, moved
from unerring.processes.naming import Slot
from unerring.processes.node import ProcessNode, family
from unerring.processes.out import Out
from unerring.processes.pacing import ROUND_SPARE
from unerring.processes.packing import unpacked
from unerring.processes.partition import best_ends, may_be_active
from unerring.processes.planner import Planner
from unerring.processes.reactions import Reaction, reader_of
from unerring.processes.recovery import Recovery
from unerring.processes.rejoin import ASK_US, Rejoin, TakesPart
from unerring.processes.replica import Ended, Replica, digest_of
from unerring.processes.replication import Replication
from unerring.processes.roster import HISTORY, OUTLINE
from unerring.processes.schedules import Schedule
from unerring.processes.starts import FORWARD_US, check_message_id
from unerring.processes.steering import Steering
from unerring.processes.tally import status_of
from unerring.processes.undo import UndoStep
from unerring.processes.undoing import Undoing
from unerring.processes.waits import key_of
from unerring.processes.watch import START_US, Watch

__all__ = [
    "AGAIN",
    "ASK_US",
    "CANCEL",
    "FINAL",
    "FORWARD_US",
    "GIVEN",
    "HISTORY",
    "HOLD",
    "INCARNATIONS",
    "IN_TIME",
    "LATE",
    "LOCAL",
    "MOVE",
    "NAMINGS",
    "OUTLINE",
    "PAST",
    "PAUSED_US",
    "REPEAT",
    "RESUME",
    "ROUND_SPARE",
    "START_US",
    "STREAM",
    "UNKEPT",
    "VIEW_CHANGE",
    "WAIT_US_MIN",
    "Accepted",
    "Acceptor",
    "Answer",
    "AskMail",
    "BackupLog",
    "Backups",
    "BpmnReport",
    "Choice",
    "Clean",
    "ClusterBounds",
    "Context",
    "Cost",
    "Edge",
    "Election",
    "Ended",
    "Execution",
    "Forgotten",
    "Graph",
    "Group",
    "GroupLog",
    "Grouping",
    "Inbox",
    "Incarnations",
    "Kept",
    "Kind",
    "Large",
    "Limiter",
    "Limits",
    "Listing",
    "Lives",
    "Mail",
    "Master",
    "Memory",
    "Out",
    "Outline",
    "Pages",
    "Planner",
    "Post",
    "Process",
    "ProcessAction",
    "ProcessNode",
    "ProcessesConfig",
    "Publish",
    "Reaction",
    "Recall",
    "Recalled",
    "Recovery",
    "Rejoin",
    "Replica",
    "Replicate",
    "Replication",
    "Reply",
    "Request",
    "RequestView",
    "Retry",
    "Schedule",
    "Service",
    "Slot",
    "Start",
    "Started",
    "State",
    "Status",
    "Steering",
    "Stored",
    "TakesPart",
    "UndoStep",
    "Undoing",
    "Variable",
    "Vertex",
    "Vote",
    "Watch",
    "back",
    "best_ends",
    "bpmn_identifier",
    "bpmn_module",
    "check_message_id",
    "children_used",
    "codec",
    "compared",
    "copied",
    "difference_text",
    "digest_of",
    "draw",
    "explain",
    "export_bpmn",
    "family",
    "group_at",
    "history_of",
    "key_of",
    "large_variables",
    "look_at_bpmn",
    "may_be_active",
    "moved",
    "process_text",
    "promised",
    "read_costs",
    "reader_of",
    "replica_set",
    "status_of",
    "unpacked",
    "values_of",
    "view_change_of",
    "with_costs",
]
