------------------------------ MODULE Replicas ------------------------------
(***************************************************************************)
(* Acks, pruning, membership and join of two neighbouring nodes X -> Y.    *)
(*                                                                         *)
(* Events are 1..N and every replica of X has made the same ones, so a     *)
(* copy that is late, repeated or from a zombie is harmless by             *)
(* construction and messages that carry events need not be modelled.  What can go wrong is  *)
(* that the last copy of an event is pruned while a replica of Y that we   *)
(* count on still lacks it.  That is the invariant Servable.               *)
(*                                                                         *)
(* Acks are delivered late, in any order, by anyone (gossip) or never.     *)
(* A replica reads the membership record when it pleases: views are stale. *)
(* The budget: at most one failed replica a node, where a joiner and an    *)
(* evicted replica count as failed.                                        *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  X, Y,           \* the replicas of the two nodes
  N,              \* events
  Changes,        \* joins and evictions, in any order; a joiner's "caught up" comes on top
  KeyedAcks,      \* acks count for one incarnation only
  Registering,    \* an upstream pins what registered, before it reads the record
  MarksChecked,   \* "caught up" needs a position at or after all marks received
  QueueCopied,    \* a snapshot holds the outgoing queue
  AcksCopied,     \* a snapshot's acks are per receiver, not one pruning position
  Confirmed,      \* an eviction needs a remaining caught-up member alive
  ReadAfterEnter, \* a joiner reads its downstreams' record after entering
  AllConfirm      \* "caught up" needs every upstream then in the record

R == X \cup Y
Peer(r) == CHOOSE s \in R : s # r /\ (s \in X <=> r \in X)
Incs == 1..(Changes + 1)
Alike == Permutations(X) \cup Permutations(Y)
Max(a, b) == IF a > b THEN a ELSE b

VARIABLES
  version, rec,     \* the record: its version; for each replica its incarnation and state
  spent,            \* joins and evictions so far
  alive, inc,       \* the truth about each replica
  holds,            \* whether it has a state (a joiner has none before its snapshot)
  view,             \* X: what it last read: the version and Y's part of the record
  made, mark,       \* X: events made; pruned through
  got,              \* X: acks received, per (receiver, incarnation)
  regs,             \* X: registrations <<y, incarnation, version>>
  last,             \* Y: accepted through
  acked,            \* Y: highest ack ever sent, per incarnation
  conf              \* joiner in Y: marks confirmed by <<x, incarnation>>; N + 1: not asked

vars == <<version, rec, spent, alive, inc, holds, view, made, mark, got, regs, last, acked, conf>>

Failed(r) == ~alive[r] \/ rec[r] # [inc |-> inc[r], state |-> "up"]
None == [x \in X, i \in Incs |-> N + 1]

Init ==
  /\ version = 1 /\ spent = 0
  /\ rec = [r \in R |-> [inc |-> 1, state |-> "up"]]
  /\ alive = [r \in R |-> TRUE] /\ inc = [r \in R |-> 1] /\ holds = [r \in R |-> TRUE]
  /\ view = [x \in X |-> [version |-> 1, rec |-> [y \in Y |-> rec[y]]]]
  /\ made = [x \in X |-> N] /\ mark = [x \in X |-> 0]
  /\ got = [x \in X |-> [y \in Y, i \in Incs |-> 0]]
  /\ regs = [x \in X |-> {}]
  /\ last = [y \in Y |-> 0] /\ acked = [y \in Y, i \in Incs |-> 0]
  /\ conf = [y \in Y |-> None]

-----------------------------------------------------------------------------
\* Events

\* prev = last: y accepts the next event from anyone who still has it.
Accept(x, y) ==
  /\ alive[x] /\ holds[x] /\ alive[y] /\ holds[y]
  /\ mark[x] <= last[y] /\ last[y] < made[x]
  /\ last' = [last EXCEPT ![y] = @ + 1]
  /\ acked' = [acked EXCEPT ![y, inc[y]] = last[y] + 1]
  /\ UNCHANGED <<version, rec, spent, alive, inc, holds, view, made, mark, got, regs, conf>>

\* An ack, direct or by gossip, and late: x may take it at any later time. Without incarnations it counts for whoever bears the name now.
Ack(x, y, i) ==
  /\ alive[x] /\ holds[x]
  /\ acked[y, i] > got[x][y, i]
  /\ got' = [got EXCEPT ![x] = IF KeyedAcks THEN [@ EXCEPT ![y, i] = acked[y, i]]
                               ELSE [z \in Y, j \in Incs |-> IF z = y THEN Max(acked[y, i], @[z, j]) ELSE @[z, j]]]
  /\ UNCHANGED <<version, rec, spent, alive, inc, holds, view, made, mark, regs, last, acked, conf>>

Pinned(x) ==
  {<<y, view[x].rec[y].inc>> : y \in {z \in Y : view[x].rec[z].state # "gone"}}
  \cup {<<g[1], g[2]>> : g \in {h \in regs[x] : Registering /\ h[3] > view[x].version}}

Prune(x) ==
  /\ alive[x] /\ holds[x] /\ mark[x] < made[x]
  /\ Pinned(x) # {}
  /\ \A p \in Pinned(x) : got[x][p[1], p[2]] > mark[x]
  /\ mark' = [mark EXCEPT ![x] = @ + 1]
  /\ UNCHANGED <<version, rec, spent, alive, inc, holds, view, made, got, regs, last, acked, conf>>

Read(x) ==
  /\ alive[x] /\ view[x].version < version
  /\ view' = [view EXCEPT ![x] = [version |-> version, rec |-> [y \in Y |-> rec[y]]]]
  /\ regs' = [regs EXCEPT ![x] = {}]  \* superseded: the record speaks for itself
  /\ UNCHANGED <<version, rec, spent, alive, inc, holds, made, mark, got, last, acked, conf>>

-----------------------------------------------------------------------------
\* Failures and membership

\* Memory is lost: what a replica without a state is said to hold does not matter, so it is put in one form.
Forget(r) ==
  /\ holds' = [holds EXCEPT ![r] = FALSE]
  /\ made' = IF r \in X THEN [made EXCEPT ![r] = 0] ELSE made
  /\ mark' = IF r \in X THEN [mark EXCEPT ![r] = 0] ELSE mark
  /\ got' = IF r \in X THEN [got EXCEPT ![r] = [y \in Y, i \in Incs |-> 0]] ELSE got
  /\ regs' = IF r \in X THEN [regs EXCEPT ![r] = {}] ELSE regs
  /\ last' = IF r \in Y THEN [last EXCEPT ![r] = 0] ELSE last
  /\ conf' = IF r \in Y THEN [conf EXCEPT ![r] = None] ELSE conf

Crash(r) ==
  /\ alive[r] /\ ~Failed(Peer(r)) /\ spent < Changes
  /\ alive' = [alive EXCEPT ![r] = FALSE]
  /\ Forget(r)
  /\ UNCHANGED <<version, rec, spent, inc, view, acked>>

\* The budget allows the eviction of a live replica; the rule needs a living peer that is caught up.
Evict(r) ==
  /\ spent < Changes /\ rec[r].state # "gone"
  /\ IF Confirmed THEN ~Failed(Peer(r)) ELSE rec[Peer(r)].state = "up"
  /\ version' = version + 1
  /\ spent' = spent + 1
  /\ rec' = [rec EXCEPT ![r].state = "gone"]
  /\ UNCHANGED <<alive, inc, holds, view, made, mark, got, regs, last, acked, conf>>

\* A replica that restarts empty, or reads that its incarnation is gone, enters with a new one before anything else.
Enter(r) ==
  /\ spent < Changes
  /\ ~alive[r] \/ rec[r].state = "gone"
  /\ version' = version + 1
  /\ spent' = spent + 1
  /\ rec' = [rec EXCEPT ![r] = [inc |-> rec[r].inc + 1, state |-> "joining"]]
  /\ inc' = [inc EXCEPT ![r] = rec[r].inc + 1]
  /\ alive' = [alive EXCEPT ![r] = TRUE]
  /\ Forget(r)
  /\ view' = IF r \in X /\ ReadAfterEnter
             THEN [view EXCEPT ![r] = [version |-> version', rec |-> [y \in Y |-> rec'[y]]]] ELSE view
  /\ UNCHANGED acked

Register(y, x) ==
  /\ alive[y] /\ rec[y] = [inc |-> inc[y], state |-> "joining"]
  /\ alive[x] /\ holds[x]
  /\ conf' = [conf EXCEPT ![y][x, inc[x]] = mark[x]]
  /\ regs' = [regs EXCEPT ![x] = @ \cup {<<y, inc[y], version>>}]
  /\ UNCHANGED <<version, rec, spent, alive, inc, holds, view, made, mark, got, last, acked>>

SnapshotY(y) ==
  LET z == Peer(y) IN
  /\ alive[y] /\ rec[y] = [inc |-> inc[y], state |-> "joining"]
  /\ alive[z] /\ rec[z] = [inc |-> inc[z], state |-> "up"]
  /\ ~holds[y] \/ last[z] > last[y]
  /\ holds' = [holds EXCEPT ![y] = TRUE]
  /\ last' = [last EXCEPT ![y] = last[z]]
  /\ acked' = [acked EXCEPT ![y, inc[y]] = last[z]]
  /\ UNCHANGED <<version, rec, spent, alive, inc, view, made, mark, got, regs, conf>>

SnapshotX(x) ==
  LET z == Peer(x) IN
  /\ alive[x] /\ rec[x] = [inc |-> inc[x], state |-> "joining"]
  /\ alive[z] /\ rec[z] = [inc |-> inc[z], state |-> "up"]
  /\ ~holds[x]
  /\ holds' = [holds EXCEPT ![x] = TRUE]
  /\ made' = [made EXCEPT ![x] = made[z]]
  /\ mark' = [mark EXCEPT ![x] = IF QueueCopied THEN mark[z] ELSE made[z]]
  /\ got' = [got EXCEPT ![x] = IF AcksCopied THEN got[z] ELSE [y \in Y, i \in Incs |-> made[z]]]
  /\ regs' = [regs EXCEPT ![x] = regs[z]]
  /\ UNCHANGED <<version, rec, spent, alive, inc, view, last, acked, conf>>

GrantY(y) ==
  /\ alive[y] /\ holds[y] /\ rec[y] = [inc |-> inc[y], state |-> "joining"]
  /\ LET asked == {x \in X : rec[x].state # "gone"}
         done == {x \in asked : conf[y][x, rec[x].inc] <= N}
     IN /\ IF AllConfirm THEN done = asked ELSE done # {}
        /\ MarksChecked => \A x \in done : conf[y][x, rec[x].inc] <= last[y]
  /\ rec' = [rec EXCEPT ![y].state = "up"]
  /\ version' = version + 1
  /\ conf' = [conf EXCEPT ![y] = None]
  /\ UNCHANGED <<spent, alive, inc, holds, view, made, mark, got, regs, last, acked>>

GrantX(x) ==
  /\ alive[x] /\ holds[x] /\ rec[x] = [inc |-> inc[x], state |-> "joining"]
  /\ rec' = [rec EXCEPT ![x].state = "up"]
  /\ version' = version + 1
  /\ UNCHANGED <<spent, alive, inc, holds, view, made, mark, got, regs, last, acked, conf>>

Next ==
  \/ \E x \in X : Prune(x) \/ SnapshotX(x) \/ GrantX(x)
  \/ \E y \in Y : SnapshotY(y) \/ GrantY(y)
  \/ \E x \in X, y \in Y : Accept(x, y) \/ Register(y, x)
  \/ \E x \in X, y \in Y, i \in Incs : Ack(x, y, i)
  \/ \E x \in X : Read(x)
  \/ \E r \in R : Crash(r) \/ Evict(r) \/ Enter(r)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
\* Every upstream replica that we count on can serve every downstream replica that we count on.
Servable == \A x \in X, y \in Y : ~Failed(x) /\ ~Failed(y) => mark[x] <= last[y]

\* The rules keep at least one replica of a node that we count on (given the budget on crashes).
SomeoneLeft == (\E x \in X : ~Failed(x)) /\ (\E y \in Y : ~Failed(y))
=============================================================================
