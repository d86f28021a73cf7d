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
  moving.py       two versions of a process: what changed, and who may be moved

What replicas say and keep
  messages.py     what replicas, services and partners say to each other, and what a replica keeps on disk
  plausible.py    what a node believes of what it is told
  history.py      what of a state's history is sent, kept and told
  mailbox.py      messages, stored until a decided state consumes them
  execution.py    one execution of a group: requests, replies, the state after it
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
  outbox.py       messages and commands of the application on their way; what was published with a key
  families.py     starts and ends of children between nodes
  pulse.py        lateness and heartbeats
  pacing.py       who needs a tick, whom a heartbeat names, how many states are on their way
  out.py          the effects of one step: records first
  config.py       bounds and pauses

For people
  explain.py      a process told to a person: classes, groups and why, failover bound, what may run twice
  costs.py        a process with the costs that were learned of it
  drawing.py      the graph as SVG

spec/             the model of views, votes, naming, acceptance and compensation, for TLC
"""
