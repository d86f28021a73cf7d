------------------------------- MODULE Views -------------------------------
(* Views, votes, naming, acceptance and compensation of a replicated process execution.

   A state is its lineage: the executing view of each group so far. Every message ever sent stays receivable, so loss,
   delay, repetition and reordering are all covered. A crash forgets what is not on disk. View 1 here is view 0 of the
   code: only the first replica plans in it. `Broken` removes one rule, to show that the rule is needed. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS R, First, MaxView, Groups, MaxCrashes, Broken

VARIABLES
  view,      \* disk: the highest view this replica has promised to
  acc,       \* disk: the accepted state, [in |-> accepted_in, lin |-> lineage]
  running,   \* disk: the group this replica executes as master, or Nobody
  candidate, \* memory: the view this replica asks votes for, or 0
  lead,      \* memory: the state this replica replicates and counts ACKs for, or Nobody
  votes, sent, acks, naming,   \* messages
  effects,   \* what services did and did not undo: pairs <<group, view>>
  undone,    \* compensated or tombstoned pairs
  decided,   \* ghost: every state that a majority acknowledged and its owner saw so
  crashes

vars == <<view, acc, running, candidate, lead, votes, sent, acks, naming, effects, undone, decided, crashes>>

\* The replicas other than the first are alike: runs that differ in their names only are checked once.
Alike == Permutations(R \ {First})
Nobody == [in |-> 0, lin |-> <<>>]
State(v, l) == [in |-> v, lin |-> l]
Majority(S) == 2 * Cardinality(S) > Cardinality(R)
Last(l) == IF l = <<>> THEN 0 ELSE l[Len(l)]
Later(a, b) == a.in > b.in \/ (a.in = b.in /\ Len(a.lin) > Len(b.lin))
\* Votes are compared by accepted_in, then group. Comparing by the executing view revokes decided states.
Better(a, b) == IF Broken = "executing"
                THEN Last(a.lin) > Last(b.lin) \/ (Last(a.lin) = Last(b.lin) /\ Len(a.lin) > Len(b.lin))
                ELSE Later(a, b)

Init ==
  /\ view = [r \in R |-> 1]
  /\ acc = [r \in R |-> IF r = First THEN State(1, <<>>) ELSE Nobody]
  /\ running = [r \in R |-> Nobody]
  /\ candidate = [r \in R |-> 0]
  /\ lead = [r \in R |-> IF r = First THEN State(1, <<>>) ELSE Nobody]
  /\ votes = {}
  /\ sent = {State(1, <<>>)}
  /\ acks = {[s |-> State(1, <<>>), by |-> First]}
  /\ naming = {} /\ effects = {} /\ undone = {} /\ decided = {} /\ crashes = 0

Suspect(r) ==
  /\ view[r] < MaxView
  /\ view' = [view EXCEPT ![r] = @ + 1]
  /\ candidate' = [candidate EXCEPT ![r] = view[r] + 1]
  /\ lead' = [lead EXCEPT ![r] = Nobody]
  /\ votes' = votes \union {[v |-> view[r] + 1, to |-> r, by |-> r, s |-> acc[r]]}
  /\ UNCHANGED <<acc, running, sent, acks, naming, effects, undone, decided, crashes>>

Vote(r) == \E m \in votes :
  /\ m.to = m.by /\ m.to # r
  /\ IF Broken = "twice" THEN m.v >= view[r] ELSE m.v > view[r]
  /\ view' = [view EXCEPT ![r] = m.v]
  /\ candidate' = [candidate EXCEPT ![r] = 0]
  /\ lead' = [lead EXCEPT ![r] = Nobody]
  /\ votes' = votes \union {[v |-> m.v, to |-> m.to, by |-> r, s |-> acc[r]]}
  /\ UNCHANGED <<acc, running, sent, acks, naming, effects, undone, decided, crashes>>

Replicate(r, s) ==
  /\ acc' = [acc EXCEPT ![r] = s]
  /\ sent' = sent \union {s}
  /\ acks' = acks \union {[s |-> s, by |-> r]}
  /\ lead' = [lead EXCEPT ![r] = s]

Plan(r) ==
  LET v == candidate[r]
      mine == {m \in votes : m.v = v /\ m.to = r}
  IN /\ v # 0 /\ v = view[r]
     /\ \E Q \in SUBSET mine :
          /\ Majority({m.by : m \in Q})
          /\ \E best \in Q :
               /\ \A m \in Q : ~Better(m.s, best.s)
               /\ Replicate(r, State(v, best.s.lin))
     /\ candidate' = [candidate EXCEPT ![r] = 0]
     /\ UNCHANGED <<view, running, votes, naming, effects, undone, decided, crashes>>

Accept(r) == \E s \in sent :
  /\ s.in >= view[r]
  /\ Later(s, acc[r])
  /\ view' = [view EXCEPT ![r] = s.in]
  /\ acc' = [acc EXCEPT ![r] = s]
  /\ acks' = acks \union {[s |-> s, by |-> r]}
  /\ candidate' = [candidate EXCEPT ![r] = IF s.in > view[r] THEN 0 ELSE @]
  /\ lead' = [lead EXCEPT ![r] = IF s.in > view[r] THEN Nobody ELSE @]
  /\ UNCHANGED <<running, votes, sent, naming, effects, undone, decided, crashes>>

\* The owner of a state sees a majority of ACKs; it is then planner and names the next master, once a (view, group).
Decide(r) ==
  /\ lead[r] # Nobody
  /\ Broken = "early" \/ Majority({a.by : a \in {x \in acks : x.s = lead[r]}})
  /\ decided' = decided \union {lead[r]}
  /\ lead' = IF Broken = "rename" THEN lead ELSE [lead EXCEPT ![r] = Nobody]
  /\ IF Len(lead[r].lin) < Groups
     THEN \E m \in R : naming' = naming \union {[s |-> lead[r], to |-> m]}
     ELSE naming' = naming
  /\ UNCHANGED <<view, acc, running, candidate, votes, sent, acks, effects, undone, crashes>>

Begin(r) == \E n \in naming :
  /\ n.to = r /\ n.s.in >= view[r] /\ running[r] # n.s
  /\ ~Later(acc[r], n.s)
  /\ view' = [view EXCEPT ![r] = n.s.in]
  /\ acc' = [acc EXCEPT ![r] = n.s]
  /\ running' = [running EXCEPT ![r] = n.s]
  /\ candidate' = [candidate EXCEPT ![r] = 0]
  /\ UNCHANGED <<lead, votes, sent, acks, naming, effects, undone, decided, crashes>>

Pair(s) == <<Len(s.lin) + 1, s.in>>

\* The service refuses what its tombstone or fence covers; a master that is refused cannot finish.
Execute(r) ==
  /\ running[r] # Nobody
  /\ Pair(running[r]) \notin effects \union undone
  /\ effects' = effects \union {Pair(running[r])}
  /\ UNCHANGED <<view, acc, running, candidate, lead, votes, sent, acks, naming, undone, decided, crashes>>

Finish(r) ==
  /\ running[r] # Nobody
  /\ view[r] = running[r].in /\ acc[r] = running[r]
  /\ Pair(running[r]) \in effects \/ (Broken = "offer" /\ Pair(running[r]) \in undone)
  /\ Replicate(r, State(view[r], Append(running[r].lin, view[r])))
  /\ running' = [running EXCEPT ![r] = Nobody]
  /\ UNCHANGED <<view, candidate, votes, naming, effects, undone, decided, crashes>>

\* What a known decided state excludes: for each older view the first group whose lineage entry is above it, else the next.
FirstAbove(l, v) == IF \E i \in 1..Len(l) : l[i] > v
                    THEN CHOOSE i \in 1..Len(l) : l[i] > v /\ \A j \in 1..(i-1) : l[j] <= v
                    ELSE Len(l) + 1

\* Anyone who knows a decided state, the master that executed or a survivor; what did not yet happen gets a tombstone.
Excluding == IF Broken = "onaccept" THEN sent ELSE decided

Compensate(r) == \E d \in Excluding, v \in 1..MaxView :
  LET p == <<FirstAbove(d.lin, v), v>>
  IN /\ v < d.in
     /\ p \notin undone
     /\ p \in effects \/ (running[r] # Nobody /\ Pair(running[r]) = p)
     /\ undone' = undone \union {p}
     /\ effects' = effects \ {p}
     /\ UNCHANGED <<view, acc, running, candidate, lead, votes, sent, acks, naming, decided, crashes>>

Crash(r) ==
  /\ crashes < MaxCrashes
  /\ candidate[r] # 0 \/ lead[r] # Nobody \/ Broken = "memory"
  /\ crashes' = crashes + 1
  /\ candidate' = [candidate EXCEPT ![r] = 0]
  /\ lead' = [lead EXCEPT ![r] = Nobody]
  /\ acc' = IF Broken = "memory" THEN [acc EXCEPT ![r] = Nobody] ELSE acc
  /\ UNCHANGED <<view, running, votes, sent, acks, naming, effects, undone, decided>>

Next == \E r \in R : \/ Suspect(r) \/ Vote(r) \/ Plan(r) \/ Accept(r) \/ Decide(r) \/ Begin(r) \/ Execute(r)
                     \/ Finish(r) \/ Compensate(r) \/ Crash(r)

Spec == Init /\ [][Next]_vars

\* Messages that nobody can use any more do not tell states apart.
Live == <<view, acc, running, candidate, lead, effects, undone, decided, crashes,
          {m \in votes : candidate[m.to] = m.v \/ (m.to = m.by /\ \E r \in R : view[r] < m.v)},
          {s \in sent : Broken = "onaccept" \/ \E r \in R : s.in >= view[r] /\ Later(s, acc[r])},
          {a \in acks : \E r \in R : lead[r] = a.s},
          {n \in naming : n.s.in >= view[n.to] /\ ~Later(acc[n.to], n.s)}>>

Prefix(a, b) == Len(a) <= Len(b) /\ SubSeq(b, 1, Len(a)) = a
\* What is decided stays: decided lineages extend one another.
OneChain == \A a, b \in decided : Prefix(a.lin, b.lin) \/ Prefix(b.lin, a.lin)
\* What is decided has its effects, and nobody undoes them (Definition 3.3).
Kept == \A d \in decided : \A i \in 1..Len(d.lin) : <<i, d.lin[i]>> \in effects
\* Everything else that had an effect can be undone by somebody who knows a decided state (Definition 3.4).
OneMaster == \A a, b \in naming : a.s = b.s => a.to = b.to
=============================================================================
