------------------------------- MODULE Steps -------------------------------
(* The same protocol as Views.tla, with nothing merged: every message, every write to disk and every crash is a step of
   its own, and services do and undo. It is far too large for three views; it is there to show that Views.tla, which
   merges steps, loses nothing: every set of decided states that is reached here is reached there. *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS R, First, Views, Groups, Crashes

VARIABLES
  view,    \* disk: the highest view promised
  acc,     \* disk: the accepted state
  logs,    \* disk: for each replica the executions it meant to make, [s |-> input, n |-> read]
  slots,   \* disk: for each replica, as planner, whom it named, [s |-> state, to |-> master]
  cand,    \* memory: the view this replica asks votes for, or 0; above `view` while the disk still writes the promise
  won,     \* memory: the first state of the view that it won, while the disk still writes it, or Nothing
  lead,    \* memory: the state whose acknowledgements this replica counts, or Nothing
  plan,    \* memory: the decided state that this replica is planner of, or Nothing
  run,     \* memory: the group it executes, or Idle
  asks, votes, sent, acks, names,  \* messages; all that were ever sent can still arrive
  known,   \* the decided states that somebody has seen to be decided
  asked, ran, undone,        \* the service: requests under way, executed, cancelled
  crashed, \* who crashed, and has not yet started again: memory is empty
  crashes,
  chosen   \* every state that a majority ever had on disk

disk == <<view, acc, logs, slots>>
memory == <<cand, won, lead, plan, run>>
messages == <<asks, votes, sent, acks, names>>
service == <<asked, ran, undone>>
vars == <<disk, memory, messages, service, known, crashed, crashes, chosen>>

ASSUME Cardinality(R) = 3
Alike == Permutations(R \ {First})
State(v, l, r) == [in |-> v, lin |-> l, by |-> r]
Nothing == State(0, <<>>, First)
Idle == [s |-> Nothing, n |-> 0, at |-> "idle"]
Majority(S) == 2 * Cardinality(S) > Cardinality(R)
Later(a, b) == a.in > b.in \/ (a.in = b.in /\ Len(a.lin) > Len(b.lin))
Group(s) == Len(s.lin) + 1
After(x, r) == State(x.s.in, Append(x.s.lin, <<x.s.in, x.n>>), r)
Pair(x) == <<Group(x.s), x.s.in, x.n>>
Up(r) == r \notin crashed
\* What a replica does while its disk writes leaves it when that is written: as if it did it afterwards.
Free(r) == Up(r) /\ cand[r] <= view[r] /\ won[r] = Nothing
Read == crashes  \* what is read after a crash is something else

Init ==
  /\ view = [r \in R |-> 1] /\ acc = [r \in R |-> Nothing] /\ logs = [r \in R |-> {}] /\ slots = [r \in R |-> {}]
  /\ cand = [r \in R |-> 0] /\ won = [r \in R |-> Nothing] /\ lead = [r \in R |-> Nothing] /\ plan = [r \in R |-> Nothing] /\ run = [r \in R |-> Idle]
  /\ asks = {} /\ votes = {} /\ sent = {} /\ acks = {} /\ names = {}
  /\ asked = {} /\ ran = {} /\ undone = {} /\ known = {} /\ crashed = {} /\ crashes = 0 /\ chosen = {}

Keep(r, s) ==
  /\ acc' = [acc EXCEPT ![r] = s]
  /\ acks' = acks \union {<<s, r>>}
  /\ chosen' = IF Majority({a[2] : a \in {x \in acks' : x[1] = s}}) THEN chosen \union {s} ELSE chosen

StepDown(r) ==
  /\ lead' = [lead EXCEPT ![r] = Nothing]
  /\ plan' = [plan EXCEPT ![r] = Nothing]
  /\ run' = [run EXCEPT ![r] = Idle]

\* A first group that only reads may be executed with the start: one state for both.
Start ==
  /\ view[First] = 1 /\ acc[First] = Nothing /\ Free(First)
  /\ \E s \in {State(1, <<>>, First), State(1, <<<<1, Read>>>>, First)} :
       Keep(First, s) /\ sent' = sent \union {s} /\ lead' = [lead EXCEPT ![First] = s]
  /\ UNCHANGED <<view, logs, slots, cand, plan, run, votes, names, service, known, crashed, crashes, won, asks>>

\* Votes are asked for while the disk writes the own promise; the own vote counts once it is there.
Ask(r) ==
  /\ Free(r) /\ view[r] < Views
  /\ cand' = [cand EXCEPT ![r] = view[r] + 1]
  /\ StepDown(r)
  /\ asks' = asks \union {<<view[r] + 1, r>>}
  /\ UNCHANGED <<disk, won, votes, sent, acks, names, service, known, crashed, crashes, chosen>>

Promise(r) ==
  /\ cand[r] > view[r]
  /\ view' = [view EXCEPT ![r] = cand[r]]
  /\ votes' = votes \union {[v |-> cand[r], to |-> r, by |-> r, s |-> acc[r]]}
  /\ UNCHANGED <<acc, logs, slots, memory, asks, sent, acks, names, service, known, crashed, crashes, chosen>>

Vote(r, a) ==
  /\ Free(r) /\ a[1] > view[r] /\ a[2] # r
  /\ view' = [view EXCEPT ![r] = a[1]]
  /\ cand' = [cand EXCEPT ![r] = 0]
  /\ StepDown(r)
  /\ votes' = votes \union {[v |-> a[1], to |-> a[2], by |-> r, s |-> acc[r]]}
  /\ UNCHANGED <<acc, logs, slots, won, asks, sent, acks, names, service, known, crashed, crashes, chosen>>

\* The first state of a view is sent while the disk writes it. The promise is there: after a crash nobody makes another.
Count(r) ==
  /\ cand[r] # 0 /\ cand[r] = view[r]
  /\ \E Q \in SUBSET {m \in votes : m.v = cand[r] /\ m.to = r} :
       /\ Majority({m.by : m \in Q})
       /\ \E best \in Q :
            /\ \A m \in Q : ~Later(m.s, best.s)
            /\ LET s == State(cand[r], best.s.lin, r) IN
                 /\ sent' = sent \union {s} /\ won' = [won EXCEPT ![r] = s]
  /\ cand' = [cand EXCEPT ![r] = 0]
  /\ UNCHANGED <<disk, lead, plan, run, asks, votes, acks, names, service, known, crashed, crashes, chosen>>

Lead(r) ==
  /\ won[r] # Nothing
  /\ Keep(r, won[r]) /\ lead' = [lead EXCEPT ![r] = won[r]] /\ won' = [won EXCEPT ![r] = Nothing]
  /\ UNCHANGED <<view, logs, slots, cand, plan, run, asks, votes, sent, names, service, known, crashed, crashes>>

Accept(r, s) ==
  /\ Free(r) /\ s.in >= view[r] /\ Later(s, acc[r])
  /\ view' = [view EXCEPT ![r] = s.in]
  /\ cand' = [cand EXCEPT ![r] = 0]
  /\ StepDown(r)
  /\ Keep(r, s)
  /\ UNCHANGED <<logs, slots, votes, sent, names, service, known, crashed, crashes, won, asks>>

\* Somebody says that s is decided: it is accepted whatever was promised.
Learn(r, s) ==
  /\ Free(r) /\ Later(s, acc[r])
  /\ view' = [view EXCEPT ![r] = IF s.in > @ THEN s.in ELSE @]
  /\ cand' = [cand EXCEPT ![r] = 0]
  /\ StepDown(r)
  /\ Keep(r, s)
  /\ UNCHANGED <<logs, slots, votes, sent, names, service, known, crashed, crashes, won, asks>>

Decide(r) ==
  /\ lead[r] # Nothing
  /\ Majority({a[2] : a \in {x \in acks : x[1] = lead[r]}})
  /\ known' = known \union {lead[r]}
  /\ plan' = [plan EXCEPT ![r] = IF Group(lead[r]) <= Groups THEN lead[r] ELSE Nothing]
  /\ lead' = [lead EXCEPT ![r] = Nothing]
  /\ UNCHANGED <<disk, cand, run, messages, service, crashed, crashes, chosen, won>>

\* One naming a (view, group), on disk before it is sent.
Name(r, m) ==
  /\ plan[r] # Nothing /\ m # r /\ plan[r].by = r
  /\ \A x \in slots[r] : x.s = plan[r] => x.to = m
  /\ \A x \in logs[r] : x.s # plan[r]
  /\ slots' = [slots EXCEPT ![r] = @ \union {[s |-> plan[r], to |-> m]}]
  /\ names' = names \union {[s |-> plan[r], to |-> m]}
  /\ plan' = [plan EXCEPT ![r] = Nothing]
  /\ UNCHANGED <<view, acc, logs, cand, lead, run, votes, sent, acks, service, known, crashed, crashes, chosen, won, asks>>

Named(m, x) ==
  /\ Free(m) /\ x.to = m /\ x.s.in >= view[m] /\ ~Later(acc[m], x.s)
  /\ lead[m] = Nothing /\ plan[m] = Nothing /\ run[m] = Idle
  /\ view' = [view EXCEPT ![m] = x.s.in]
  /\ cand' = [cand EXCEPT ![m] = 0]
  /\ Keep(m, x.s)
  /\ plan' = [plan EXCEPT ![m] = x.s]
  /\ UNCHANGED <<logs, slots, lead, run, votes, sent, names, service, known, crashed, crashes, won, asks>>

\* A log is resumed with the replies it has; otherwise the group begins.
Begin(r) ==
  /\ plan[r] # Nothing
  /\ \A x \in slots[r] : x.s # plan[r]
  /\ run' = [run EXCEPT ![r] =
       IF \E x \in logs[r] : x.s = plan[r]
       THEN [s |-> plan[r], n |-> (CHOOSE x \in logs[r] : x.s = plan[r]).n, at |-> "logged"]
       ELSE [s |-> plan[r], n |-> Read, at |-> "reading"]]
  /\ plan' = [plan EXCEPT ![r] = Nothing]
  /\ UNCHANGED <<disk, cand, lead, messages, service, known, crashed, crashes, chosen, won>>

\* The intent of a write is on disk before its request is sent.
Intend(r) ==
  /\ run[r].at = "reading"
  /\ logs' = [logs EXCEPT ![r] = @ \union {[s |-> run[r].s, n |-> run[r].n]}]
  /\ asked' = asked \union {Pair(run[r])}
  /\ run' = [run EXCEPT ![r].at = "logged"]
  /\ UNCHANGED <<view, acc, slots, cand, lead, plan, messages, ran, undone, known, crashed, crashes, chosen, won>>

\* The service: one effect for each view and group; none after a tombstone.
Serve(p) ==
  /\ p \notin undone
  /\ \A q \in ran : q[1] # p[1] \/ q[2] # p[2]
  /\ ran' = ran \union {p}
  /\ UNCHANGED <<disk, memory, messages, asked, undone, known, crashed, crashes, chosen>>

Replicate(r, s) ==
  /\ Keep(r, s) /\ sent' = sent \union {s} /\ lead' = [lead EXCEPT ![r] = s] /\ run' = [run EXCEPT ![r] = Idle]

Finish(r) ==
  /\ \/ run[r].at = "logged" /\ Pair(run[r]) \in ran
     \/ run[r].at = "reading" /\ run[r].s.by # r  \* a group without writes
     \/ run[r].at = "sent"
  /\ Replicate(r, After(run[r], r))
  /\ UNCHANGED <<view, logs, slots, cand, plan, votes, names, service, known, crashed, crashes, won, asks>>

\* A group without writes, by the maker of its input: the state is sent while the disk still writes it.
SendAhead(r) ==
  /\ run[r].at = "reading" /\ run[r].s.by = r
  /\ sent' = sent \union {After(run[r], r)}
  /\ run' = [run EXCEPT ![r].at = "sent"]
  /\ UNCHANGED <<disk, cand, lead, plan, votes, acks, names, service, known, crashed, crashes, chosen, won, asks>>

Above(l, v) == IF \E i \in 1..Len(l) : l[i][1] > v
               THEN CHOOSE i \in 1..Len(l) : l[i][1] > v /\ \A j \in 1..(i-1) : l[j][1] <= v
               ELSE Len(l) + 1

Cancel(p) ==
  /\ p \notin undone
  /\ \E d \in known : p[2] < d.in /\ p[1] = Above(d.lin, p[2])
  /\ undone' = undone \union {p}
  /\ UNCHANGED <<disk, memory, messages, asked, ran, known, crashed, crashes, chosen>>

Crash(r) ==
  /\ crashes < Crashes /\ Up(r)
  /\ crashes' = crashes + 1 /\ crashed' = crashed \union {r}
  /\ cand' = [cand EXCEPT ![r] = 0] /\ won' = [won EXCEPT ![r] = Nothing]
  /\ StepDown(r)
  /\ UNCHANGED <<disk, messages, service, known, chosen>>

\* Whoever was executing on the accepted state goes on if the view still stands; a state made ahead may be out there, so
\* without a log nobody does.
Restart(r) ==
  /\ ~Up(r)
  /\ crashed' = crashed \ {r}
  /\ lead' = [lead EXCEPT ![r] = IF acc[r].in = view[r] /\ \E x \in logs[r] : x.s = acc[r] THEN acc[r] ELSE Nothing]
  /\ UNCHANGED <<disk, cand, plan, run, messages, service, known, crashes, chosen, won>>

Next ==
  \/ Start
  \/ \E r \in R : Ask(r) \/ Promise(r) \/ Count(r) \/ Lead(r) \/ Decide(r) \/ Begin(r) \/ Intend(r) \/ Finish(r) \/ SendAhead(r)
                  \/ Crash(r) \/ Restart(r)
  \/ \E r \in R : (\E a \in asks : Vote(r, a)) \/ (\E s \in sent : Accept(r, s)) \/ (\E s \in known : Learn(r, s))
                  \/ (\E m \in R : Name(r, m))
                  \/ (\E x \in names : Named(r, x))
  \/ \E p \in asked : Serve(p) \/ Cancel(p)

Spec == Init /\ [][Next]_vars

\* Messages that nobody can use any more do not tell states apart.
Live == <<view, acc, memory, crashed, crashes, chosen, known, service,
          [r \in R |-> {x \in logs[r] : x.s.in = view[r]}], [r \in R |-> {x \in slots[r] : x.s.in = view[r]}],
          {a \in asks : \E r \in R : view[r] < a[1]},
          {m \in votes : cand[m.to] = m.v \/ view[m.to] < m.v},
          {s \in sent : \E r \in R : s.in >= view[r] /\ Later(s, acc[r])},
          {a \in acks : a[1] \notin chosen},
          {n \in names : n.s.in >= view[n.to] /\ ~Later(acc[n.to], n.s)}>>

Prefix(a, b) == Len(a) <= Len(b) /\ SubSeq(b, 1, Len(a)) = a
OneChain == \A a, b \in chosen : Prefix(a.lin, b.lin) \/ Prefix(b.lin, a.lin)
OneState == \A s, t \in sent : s.in = t.in /\ Len(s.lin) = Len(t.lin) => s = t
\* What is decided has its effect, of the request that its lineage tells of, and nobody undoes it.
Kept == \A d \in chosen : \A i \in 1..Len(d.lin) :
  LET p == <<i, d.lin[i][1], d.lin[i][2]>>
      same == {q \in asked : q[1] = p[1] /\ q[2] = p[2]}
  IN same # {} => same = {p} /\ p \in ran /\ p \notin undone
=============================================================================
