------------------------------- MODULE Mail --------------------------------
(* A partner's message: broadcast, stored on disk, and counted as delivered once f+1 replicas say so. From then on nobody
   sends it again, so whoever leads must come by it: with the votes, or by asking the others while it waits. *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS R, Views, Without

VARIABLES
  stored,   \* who has it on disk
  leader,   \* who leads, and waits for it
  view,
  down,     \* f replicas that do not come back
  consumed  \* by how many decided states

vars == <<stored, leader, view, down, consumed>>
Rule(name) == name \notin Without

Alike == Permutations(R)
Majority(S) == 2 * Cardinality(S) > Cardinality(R)
Delivered == 2 * Cardinality(stored) > Cardinality(R)

Init == stored = {} /\ leader \in R /\ view = 1 /\ down = {} /\ consumed = 0

Store(r) ==
  /\ ~Delivered /\ r \notin down \union stored
  /\ stored' = stored \union {r}
  /\ UNCHANGED <<leader, view, down, consumed>>

\* A vote brings what its voter has stored.
Elect(c, Q) ==
  /\ view < Views /\ c \in Q /\ Majority(Q) /\ Q \intersect down = {}
  /\ view' = view + 1 /\ leader' = c
  /\ stored' = IF Q \intersect stored # {} THEN stored \union {c} ELSE stored
  /\ UNCHANGED <<down, consumed>>

Crash(r) ==
  /\ 2 * (Cardinality(down) + 1) < Cardinality(R) /\ view < Views
  /\ down' = down \union {r}
  /\ UNCHANGED <<stored, leader, view, consumed>>

Ask(q) ==
  /\ Rule("ask")
  /\ leader \notin down \union stored /\ q \in stored \ down
  /\ stored' = stored \union {leader}
  /\ UNCHANGED <<leader, view, down, consumed>>

Consume ==
  /\ leader \in stored \ down /\ consumed = 0
  /\ consumed' = consumed + 1
  /\ UNCHANGED <<stored, leader, view, down>>

Asks == \E q \in R : Ask(q)
Elects == \E c \in R, Q \in SUBSET R : Elect(c, Q)
Next == (\E r \in R : Store(r) \/ Crash(r)) \/ Elects \/ Asks \/ Consume

Spec == Init /\ [][Next]_vars

\* What was acknowledged can be used: at once, after asking, or after a view that must come because the leader is down.
Usable == Delivered /\ consumed = 0 => ENABLED (Asks \/ Consume) \/ (leader \in down /\ ENABLED Elects)
=============================================================================
