------------------------------- MODULE Views -------------------------------
(* Views, votes, naming, acceptance and compensation of a replicated process execution: what is decided stays, and all
   that was done beside it is found. `Without` removes rules, to show that each is needed.

   A state is its lineage: the executing view of each group so far. Every message ever sent can still arrive, so loss,
   delay, repetition and reordering are all covered. View 1 here is view 0 of the code.

   Steps are merged where nobody can tell the difference. (Steps.tla has them one by one.)
   - A promise only forbids. One that comes to nothing is the same as messages that do not arrive, and is left out.
   - A candidate does nothing else between asking for a view, a vote, and counting it: otherwise it is no candidate any
     more. With three replicas the first vote of another one is enough. So an election is one step, at the time of the
     vote: the candidate's asking can wait for it, and its counting need not.
   - Counting acknowledgements, naming a master and hearing of it only permit one replica to go on from a state that a
     majority has. Here any replica may, once for each state. That is more than the code does, never less.
   - A master does nothing else between beginning a group and the state after it. A group that is not finished leaves
     nothing but effects, and about those the worst is assumed: as soon as a state is decided in a view, the group after
     it may have effects in that view, at once, later, or never. What is done about them is in Effects.tla.
   - A group with or without writes, an announcement and a cancellation all make a state from a decided one: one step.
   - A crash loses candidacies, counts, plans and unfinished groups. All these are messages that do not arrive. What is
     left is a state that was sent ahead of the disk: `Lose`. *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS R, First, Views, Groups, Crashes, Without

VARIABLES
  view,    \* disk: the highest view that each replica has promised to
  acc,     \* disk: the accepted state
  sent,    \* messages: every state that was replicated
  acks,    \* who ever had which state on disk
  chosen,  \* every state that a majority ever had on disk: it is decided, whether or not somebody knows
  named,   \* disk: for which state who took the slot of the next group
  lost     \* who crashed and lost a state

vars == <<view, acc, sent, acks, chosen, named, lost>>

ASSUME Cardinality(R) = 3
\* The replicas other than the first are alike: runs that differ in their names only are checked once.
Alike == Permutations(R \ {First})
Rule(name) == name \notin Without
Max(a, b) == IF a > b THEN a ELSE b

State(v, l, r) == [in |-> v, lin |-> l, by |-> r]
Nothing == State(0, <<>>, First)
Majority(S) == 2 * Cardinality(S) > Cardinality(R)
Later(a, b) == a.in > b.in \/ (a.in = b.in /\ Len(a.lin) > Len(b.lin))
Executed(s) == IF s.lin = <<>> THEN 0 ELSE s.lin[Len(s.lin)][1]
\* Votes are compared by accepted_in, then group. Comparing by the executing view revokes decided states.
Better(a, b) == IF Rule("accepted") THEN Later(a, b)
                ELSE Executed(a) > Executed(b) \/ (Executed(a) = Executed(b) /\ Len(a.lin) > Len(b.lin))
Group(s) == Len(s.lin) + 1
After(s, n, r) == State(s.in, Append(s.lin, <<s.in, n>>), r)

Init ==
  /\ view = [r \in R |-> 1]
  /\ acc = [r \in R |-> Nothing]
  /\ sent = {} /\ acks = {} /\ chosen = {} /\ named = {} /\ lost = {}

Keep(r, s) ==
  /\ acc' = [acc EXCEPT ![r] = s]
  /\ acks' = acks \union {<<s, r>>}
  /\ chosen' = IF Majority({r} \union {a[2] : a \in {x \in acks : x[1] = s}}) THEN chosen \union {s} ELSE chosen

Replicate(r, s) == Keep(r, s) /\ sent' = sent \union {s}

\* Only the first replica plans in the first view; any other starter must win one. A first group that only reads may be
\* executed with the start: one state for both.
Start(r) ==
  /\ r = First \/ ~Rule("starter")
  /\ view[r] = 1 /\ acc[r] = Nothing
  /\ \E l \in {<<>>, <<<<1, 0>>>>} : Replicate(r, State(1, l, r))
  /\ UNCHANGED <<view, named, lost>>

\* q votes for c, once in a view, and c replicates the better state of the two in its view.
Elect(c, q, v) ==
  /\ c # q /\ v > view[c] /\ (IF Rule("once") THEN v > view[q] ELSE v >= view[q])
  /\ view' = [view EXCEPT ![c] = v, ![q] = v]
  /\ Replicate(c, State(v, (IF Better(acc[q], acc[c]) THEN acc[q] ELSE acc[c]).lin, c))
  /\ UNCHANGED <<named, lost>>

\* What is known to be decided is accepted whatever was promised.
Accept(r, s) ==
  /\ s.in >= view[r] \/ s \in chosen
  /\ Later(s, acc[r])
  /\ view' = [view EXCEPT ![r] = Max(@, s.in)]
  /\ Keep(r, s)
  /\ UNCHANGED <<sent, named, lost>>

\* What somebody may go on from: only what a majority has.
Inputs == IF Rule("majority") THEN chosen ELSE sent

MayGoOn(m, s) ==
  /\ s \in Inputs
  /\ Group(s) <= Groups
  /\ s.in >= view[m] /\ ~Later(acc[m], s)
  /\ Rule("slot") => \A x \in named : x.s # s

GoOn(m, s) ==
  /\ MayGoOn(m, s)
  /\ named' = named \union {[s |-> s, to |-> m]}
  /\ view' = [view EXCEPT ![m] = s.in]
  /\ Replicate(m, After(s, 0, m))
  /\ UNCHANGED lost

\* The next state of a master goes out while its own disk still writes it, and the master crashes. It does not go on from
\* the state before it again: what it would make then could be another state.
Lose(m, s) ==
  /\ MayGoOn(m, s) /\ s.by = m /\ acc[m] = s
  /\ Cardinality(lost) < Crashes
  /\ named' = IF Rule("ahead") THEN named \union {[s |-> s, to |-> m]} ELSE named
  /\ sent' = sent \union {After(s, 1, m)}
  /\ lost' = lost \union {m}
  /\ UNCHANGED <<view, acc, acks, chosen>>

\* Only without the rule that a state is on disk before it is acknowledged.
Forget(r) ==
  /\ ~Rule("disk") /\ Cardinality(lost) < Crashes
  /\ acc' = [acc EXCEPT ![r] = Nothing]
  /\ lost' = lost \union {r}
  /\ UNCHANGED <<view, sent, acks, chosen, named>>

Next ==
  \/ \E r \in R : Start(r) \/ Forget(r)
  \/ \E c, q \in R, v \in 2..Views : Elect(c, q, v)
  \/ \E r \in R, s \in sent : Accept(r, s) \/ GoOn(r, s) \/ Lose(r, s)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
\* The only group that an older view may have executed outside a lineage: the first whose entry is above it, else the next.
FirstAbove(l, v) == IF \E i \in 1..Len(l) : l[i][1] > v
                    THEN CHOOSE i \in 1..Len(l) : l[i][1] > v /\ \A j \in 1..(i-1) : l[j][1] <= v
                    ELSE Len(l) + 1
Excludes(d, g, v) == v < d.in /\ g = FirstAbove(d.lin, v)

\* What somebody may undo: what a decided state excludes. Without the rules: what a state excludes that is not yet
\* decided; or one's own group, on hearing of a higher view, although its state is still offered in votes.
Excluding == IF Rule("decided") THEN chosen ELSE sent
Undoable == {<<FirstAbove(x[1].lin, x[2]), x[2]>> : x \in {y \in Excluding \X (1..Views) : y[2] < y[1].in}}
            \union {<<Group(x.s), x.s.in>> : x \in {y \in named : ~Rule("offer") /\ view[y.to] > y.s.in}}

\* What nobody can use any more does not tell states apart. A decided lineage is known by its length and the longest one:
\* it is a prefix of that, or OneChain has failed already.
Useful(s) == \E r \in R : (s.in >= view[r] \/ s \in chosen) /\ Later(s, acc[r])
Open(s) == Group(s) <= Groups /\ \E r \in R : s.in >= view[r] /\ ~Later(acc[r], s)
Longest == IF chosen = {} THEN <<>> ELSE (CHOOSE d \in chosen : \A e \in chosen : Len(e.lin) <= Len(d.lin)).lin
Live == <<view, acc, lost,
          {s \in sent : Useful(s)},
          {a \in acks : a[1] \notin chosen /\ Useful(a[1])},
          {s \in chosen : Open(s)},
          {x.s : x \in {y \in named : Open(y.s)}},
          {<<d.in, Len(d.lin)>> : d \in chosen}, Longest>>

Prefix(a, b) == Len(a) <= Len(b) /\ SubSeq(b, 1, Len(a)) = a
\* What is decided stays: decided lineages extend one another.
OneChain == \A a, b \in chosen : Prefix(a.lin, b.lin) \/ Prefix(b.lin, a.lin)
\* There is one state for each view and group, so one master, and no cancellation beside it.
OneState == \A s, t \in sent : s.in = t.in /\ Len(s.lin) = Len(t.lin) => s = t
\* Nobody undoes what is decided (Definition 3.3).
Kept == \A d \in chosen : \A i \in 1..Len(d.lin) : <<i, d.lin[i][1]>> \notin Undoable
\* Every group that an older view may have executed is in the lineage, or is what the lineage excludes (Definition 3.4).
Found == \A s \in Inputs, d \in chosen : s.in < d.in /\ Group(s) <= Groups =>
  \/ Excludes(d, Group(s), s.in)
  \/ Len(d.lin) >= Group(s) /\ d.lin[Group(s)][1] = s.in
=============================================================================
