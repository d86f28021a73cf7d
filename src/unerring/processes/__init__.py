"""Highly available process executions: the replicated execution of a process has the effects of exactly one execution.

graph.py       what a process is: a graph of actions and control vertices, as data; cuts through it
checks.py      what a graph must fulfil before it may run
build.py       the Python API: decorators on plain async functions, and `flow`
grouping.py    which actions are executed between two state replications, and whether actively or passively
history.py     what of a state's history is sent, kept and told
messages.py    what replicas, services and partners say to each other, and what a replica keeps on disk
execution.py   a master's (or a backup's) execution of one group
undo.py        compensations: in reverse order, logged, repeated until done
mailbox.py     messages of partners, stored until a decided state consumes them
recovery.py    what a decided state excludes, and what survivors may cancel
children.py    processes that an action starts and waits for
steering.py    what operators want: cancel, park, resume, try again, move
moving.py      two versions of a process: what changed, and who may be moved
schedules.py   instances at due times
replica.py     one instance on one node: recovery, time; its roles are in replica_views.py, replica_steers.py and
               replica_leads.py
node.py        all instances of a node: starts, heartbeats per node pair
errands.py     what a node does besides: messages on their way, starts of children and of schedules
explain.py     a process told to a person: classes, groups and why, failover bound, what may run twice
costs.py       a process with the costs that were learned of it
drawing.py     the graph as SVG
spec/          the model of views, votes, naming, acceptance and compensation, for TLC
"""
