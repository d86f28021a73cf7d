------------------------------ MODULE Effects ------------------------------
(* What masters, survivors and services do about effects: unknown outcomes, refusals, compensation, cancellation, and
   actions that cannot be compensated.

   It stands on what Views.tla shows: decided states are one chain, a (view, group) has one author, what a decided state
   excludes stays excluded, and it is found by one formula. So the replicas are one register here, `dec`, that changes
   in one step, and an execution is a pair <<group, view>>. A master that lost its view does not know it: its requests
   arrive at any later time, and it begins at any later time what it once was licensed to. *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS Views, Groups, Crashes, Without

VARIABLES
  dec,     \* the decided state: view, lineage of <<view, read>>, status, how much of it is left, announced
  lic,     \* executions whose input was decided in their view
  exec,    \* disk of its master: "none", "intended" (request may be out), "over" (in the lineage), "clean", "closed"
  read,    \* what its master read before it wrote
  net,     \* requests, which arrive again and again: <<interaction id, read>>
  svc,     \* by interaction id: "none", "done", "undone", "tomb", "refused"; and what was read for it
  swept,   \* executions that survivors have cancelled
  crashes,
  cancels, \* whether a group's service can cancel by interaction id
  final    \* whether the last group is an action that nothing can undo

vars == <<dec, lic, exec, read, net, svc, swept, crashes, cancels, final>>
fixed == <<cancels, final>>

Rule(name) == name \notin Without
P == (1..Groups) \X (1..Views)
Iids == (1..Groups) \X ((-1)..Views)
Final(p) == final /\ p[1] = Groups
\* The id of what cannot be undone does not depend on the view; -1 is a backup's.
Iid(p) == IF Final(p) /\ Rule("viewfree") THEN <<p[1], 0>> ELSE p
Next1(d) == Len(d.lin) + 1
Cur(d) == <<Next1(d), d.in>>
Above(l, v) == IF \E i \in 1..Len(l) : l[i][1] > v
               THEN CHOOSE i \in 1..Len(l) : l[i][1] > v /\ \A j \in 1..(i-1) : l[j][1] <= v
               ELSE Len(l) + 1
InLineage(p) == Len(dec.lin) >= p[1] /\ dec.lin[p[1]][1] = p[2]
Excluded(p) == ~Final(p) /\ p[2] < dec.in /\ p[1] = Above(dec.lin, p[2])

Licensed(d) == IF /\ d.status = "running" /\ Next1(d) <= Groups
                  /\ Final(Cur(d)) /\ Rule("announce") => d.announced
               THEN {Cur(d)} ELSE {}

Decide(d) == dec' = d /\ lic' = lic \union Licensed(d)

Init ==
  /\ dec = [in |-> 1, lin |-> <<>>, status |-> "running", left |-> 0, announced |-> FALSE]
  /\ lic = {<<1, 1>>}
  /\ exec = [p \in P |-> "none"] /\ read = [p \in P |-> 0]
  /\ net = {} /\ svc = [i \in Iids |-> <<"none", 0>>] /\ swept = {} /\ crashes = 0
  /\ cancels \in [1..Groups -> BOOLEAN] /\ final \in BOOLEAN

NewView ==
  /\ dec.in < Views /\ dec.status # "ended"
  /\ Decide([dec EXCEPT !.in = @ + 1])
  /\ UNCHANGED <<exec, read, net, svc, swept, crashes, fixed>>

-----------------------------------------------------------------------------
\* Masters and services

Begin(p) ==
  /\ p \in lic /\ exec[p] = "none"
  /\ exec' = [exec EXCEPT ![p] = "intended"]
  /\ net' = net \union {<<Iid(p), read[p]>>}
  /\ UNCHANGED <<dec, lic, read, svc, swept, crashes, fixed>>

\* One effect for each id; none after a tombstone; a refusal is recorded, and comes again.
Serve(x) ==
  /\ svc[x[1]][1] = "none"
  /\ \E how \in {"done", "refused"} : svc' = [svc EXCEPT ![x[1]] = <<how, x[2]>>]
  /\ UNCHANGED <<dec, lic, exec, read, net, swept, crashes, fixed>>

Finish(p) ==
  /\ exec[p] = "intended" /\ p = Cur(dec) /\ dec.status = "running"
  /\ svc[Iid(p)][1] = "done"
  /\ exec' = [exec EXCEPT ![p] = "over"]
  /\ Decide([dec EXCEPT !.lin = Append(@, <<p[2], read[p]>>), !.left = @ + 1, !.announced = FALSE])
  /\ UNCHANGED <<read, net, svc, swept, crashes, fixed>>

\* A recorded refusal leaves nothing to undo. One that the service did not record, or silence, says nothing.
Refused(p) ==
  /\ exec[p] = "intended"
  /\ svc[Iid(p)][1] = "refused" \/ ~Rule("recorded")
  /\ exec' = [exec EXCEPT ![p] = "clean"]
  /\ IF Final(p) /\ p = Cur(dec) THEN Decide([dec EXCEPT !.status = "undoing", !.announced = FALSE])
     ELSE UNCHANGED <<dec, lic>>
  /\ UNCHANGED <<read, net, svc, swept, crashes, fixed>>

\* The group is given up for good: the process fails, and what became of the request is found out while undoing.
Fail(p) ==
  /\ exec[p] = "intended" /\ p = Cur(dec) /\ dec.status = "running" /\ ~Final(p)
  /\ exec' = [exec EXCEPT ![p] = "over"]
  /\ Decide([dec EXCEPT !.lin = Append(@, <<p[2], read[p]>>), !.left = @ + 1, !.status = "undoing"])
  /\ UNCHANGED <<read, net, svc, swept, crashes, fixed>>

\* A restarted master goes on with the replies it had. The intent is on disk before the request is out.
Crash(p) ==
  /\ crashes < Crashes /\ exec[p] = "intended"
  /\ crashes' = crashes + 1
  /\ exec' = IF Rule("intent") THEN exec ELSE [exec EXCEPT ![p] = "none"]
  /\ read' = IF Rule("reads") THEN read ELSE [read EXCEPT ![p] = 1]
  /\ net' = net \union {<<Iid(p), read'[p]>>}
  /\ UNCHANGED <<dec, lic, svc, swept, fixed>>

\* Only if a learned cost of zero makes a write active: followers execute it under ids of their own.
Backup(p) ==
  /\ ~Rule("passive") /\ p \in lic
  /\ net' = net \union {<<<<p[1], -1>>, 0>>}
  /\ UNCHANGED <<dec, lic, exec, read, svc, swept, crashes, fixed>>

-----------------------------------------------------------------------------
\* Compensation

Undone(state) == IF state[1] = "done" THEN <<"undone", state[2]>>
                 ELSE IF state[1] = "none" /\ Rule("tombstone") THEN <<"tomb", 0>> ELSE state
\* Where the service cannot cancel, the request is repeated until its outcome is known (Serve), and then undone.
CanUndo(p) == cancels[p[1]] \/ svc[Iid(p)][1] # "none"

Compensate(p) ==
  /\ exec[p] = "intended" /\ Excluded(p) /\ CanUndo(p)
  /\ svc' = [svc EXCEPT ![Iid(p)] = Undone(@)]
  /\ exec' = [exec EXCEPT ![p] = "clean"]
  /\ UNCHANGED <<dec, lic, read, net, swept, crashes, fixed>>

Sweep(p) ==
  /\ p \notin swept /\ cancels[p[1]] /\ Excluded(p)
  /\ svc' = [svc EXCEPT ![Iid(p)] = Undone(@)]
  /\ swept' = swept \union {p}
  /\ UNCHANGED <<dec, lic, exec, read, net, crashes, fixed>>

\* A replica that knows a higher view says that it never executed this, and never will.
Report(p) ==
  /\ exec[p] = "none" /\ p[2] < dec.in
  /\ exec' = [exec EXCEPT ![p] = "closed"]
  /\ UNCHANGED <<dec, lic, read, net, svc, swept, crashes, fixed>>

-----------------------------------------------------------------------------
\* Cancellation and announcement: states made by the planner, which take the slot of the group

Free == exec[Cur(dec)] = "none"

Cancel ==
  /\ dec.status = "running" /\ Next1(dec) <= Groups
  /\ Free \/ ~Rule("slot")
  /\ ~dec.announced \/ ~Rule("promise")
  /\ exec' = IF Free THEN [exec EXCEPT ![Cur(dec)] = "closed"] ELSE exec
  /\ Decide([dec EXCEPT !.status = "undoing", !.announced = FALSE])
  /\ UNCHANGED <<read, net, svc, swept, crashes, fixed>>

Announce ==
  /\ dec.status = "running" /\ Next1(dec) = Groups /\ final /\ Free /\ ~dec.announced /\ Rule("announce")
  /\ Decide([dec EXCEPT !.announced = TRUE])
  /\ UNCHANGED <<exec, read, net, svc, swept, crashes, fixed>>

Settled(p) == exec[p] \in {"clean", "closed"} \/ p \in swept
MayUndo == \A p \in lic : p[2] < dec.in /\ ~InLineage(p) /\ ~Final(p) => Settled(p)

Undo ==
  LET p == <<dec.left, dec.lin[dec.left][1]>> IN
  /\ dec.status = "undoing" /\ dec.left > 0
  /\ MayUndo \/ ~Rule("order")
  /\ CanUndo(p)
  /\ svc' = [svc EXCEPT ![Iid(p)] = Undone(@)]
  /\ dec' = [dec EXCEPT !.left = @ - 1]
  /\ UNCHANGED <<lic, exec, read, net, swept, crashes, fixed>>

End ==
  /\ dec.status = "undoing" /\ dec.left = 0
  /\ dec' = [dec EXCEPT !.status = "ended"]
  /\ UNCHANGED <<lic, exec, read, net, svc, swept, crashes, fixed>>

Next ==
  \/ NewView \/ Cancel \/ Announce \/ (dec.left > 0 /\ Undo) \/ End
  \/ \E p \in P : Begin(p) \/ Finish(p) \/ Refused(p) \/ Fail(p) \/ Crash(p) \/ Backup(p) \/ Compensate(p) \/ Sweep(p)
                  \/ Report(p)
  \/ \E x \in net : Serve(x)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
InForce(i) == svc[i][1] = "done"
\* What the lineage says was done was done, with what it says was read (Definition 3.3).
Kept == dec.status = "running" =>
  \A i \in 1..Len(dec.lin) : svc[Iid(<<i, dec.lin[i][1]>>)] = <<"done", dec.lin[i][2]>>
\* Every effect is in the lineage, or in a log that will have it undone (Definition 3.4).
Owed == \A i \in Iids : InForce(i) => \E p \in P : Iid(p) = i /\ exec[p] \in {"intended", "over"} /\ p \notin swept
\* Nothing is undone while something that was built on it is there, or can still come.
Order == \A i \in 1..Len(dec.lin) : svc[Iid(<<i, dec.lin[i][1]>>)][1] \in {"undone", "tomb"} =>
  \A p \in P : p[1] > i => ~InForce(Iid(p))
\* What cannot be undone happens once.
Once == Cardinality({i \in Iids : final /\ i[1] = Groups /\ InForce(i)}) <= 1
=============================================================================
