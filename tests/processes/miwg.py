"""Models with the elements, the flow and the peculiarities of the reference models of the BPMN interchange working
group (MIWG), written anew: names with line breaks, conditions that are empty, missing or in words, timers without a
time, lists that only data objects name, extensions of tools. None of the group's files is copied here. What each is
to do, or the elements for which it is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from tests.processes.sketches import HEAD, drawn

A_1 = """
start s "Start Event"
task t1 "Task 1"
task t2 "Task 2"
task t3 "Task 3"
end e "End Event"
s -> t1 -> t2 -> t3 -> e
"""

A_2_0 = """
start s "Start Event"
task t1 "Task 1"
xor split "Gateway (Split Flow)"
task t2 "Task 2"
task t3 "Task 3"
task t4 "Task 4"
xor merge "Gateway (Merge Flows)"
end e "End Event"
s -> t1 -> split
split -f2> t2 -> e
split -f3> t3 -> merge
split -f4> t4 -> merge -> e
"""

A_2_1 = """
start s "Start Event" +styled=a
task t1 "Task 1" +styled=a
xor split "Gateway\\n(Split Flow)" default=f2
task t2 "Task 2" default=d2
task t3 "Task 3"
task t4 "Task 4" default=d4
xor merge "Gateway \\n(Merge Flows)"
end e "End Event"
s -> t1 -> split
split -f2> t2 if ""
split -f3> t3 if ""
split -f4> t4 if ""
t2 -> e if "true"
t2 -d2> t3
t4 -g4> merge if ""
t4 -d4> t3
t3 -> merge -> e if ""
"""

A_3_0 = """
start s
task t1 "Task 1"
sub collapsed "Collapsed Sub-Process"
message nonInterruptingMessage on=collapsed cancelActivity=false
escalation interruptingEscalation on=collapsed
task t2 "Task 2"
task t3 "Task 3"
task t4 "Task 4"
end e1
end e2
s -> t1 -> collapsed -> t2 -> e1
nonInterruptingMessage -> t3 -> e1
interruptingEscalation -> t4 -> e2
"""

A_4_1_POOL_1 = """
laneSet lanes1
start s1
task t1 "Task 1"
task t2 "Task 2"
end e1
s1 -> t1 -> t2 -> e1
"""

A_4_1_POOL_2 = """
laneSet lanes2
start s2
task t3 "Task 3"
sub x1 "Expanded Sub-Process 1"
    start s3
    task t4 "Task 4"
    end e3
    s3 -> t4 -> e3
task t5 "Task 5"
sub x2 "Expanded Sub-Process 2"
    start s4
    task t6 "Task 6"
    end e4
    s4 -> t6 -> e4
end e2
end e5
s2 -> t3 -> x1 -> t5 -> e2
t3 -> x2 -> e5
"""

B_1_0_FIRST = """
start begin timer
task t1 "Abstract Task 1"
user t2 "User Task 2"
service t3 "Service Task 3"
end e1
begin -> t1 -> t2 -> t3 -> e1
"""

B_1_0_CALLED = """
start c1
task t4 "Abstract Task 4"
end c2
c1 -> t4 -> c2
"""

B_1_0_RECALL = B_1_0_CALLED.replace("Abstract Task 4", "Take Task 4 back")

B_1_0_SECOND = """
start m message
and fork
user t5 "User Task 5"
xor choice2 "Exclusive Gateway Divergence 2"
sub collapsed "Collapsed Sub-Process"
sub expanded "Sub Process - Expanded"
    start x1
    task t6 "Abstract Task 6"
    end x2
    x1 -> t6 -> x2
service t7 "Service Task 7"
xor merge2
end EndEventTerminate terminate
xor choice1 "Exclusive Gateway Divergence 1"
call globalTask "Call Activity Calling a Global Task"
call collapsedCall "Call Activity Collapsed" calledElement=called u:undo=recall
call expandedCall "Call Activity - Expanded" calledElement=called u:undo=recall
xor merge1
end sent message
m -> fork -> t5 -> choice2
choice2 -c1> collapsed -> expanded -> merge2
choice2 -c2> t7 -> merge2 -> EndEventTerminate
fork -> choice1
choice1 -d1> collapsedCall -> expandedCall -> merge1
choice1 -d2> globalTask -> merge1 -> sent
"""

B_2_0 = """
start s
task t1 "Abstract Task 1"
user userTask_3 "User Task 3"
message boundary_event_interrupting_message_id on=userTask_3
message boundary_event_non_interrupting_message_id on=userTask_3 cancelActivity=false
timer boundary_event_interrupting_timer_id "PT1H" on=userTask_3
timer boundary_event_non_interrupting_timer_id "PT1H" on=userTask_3 cancelActivity=false
end e
s -> t1 -> userTask_3 -> e
"""

C_1_0_TEAM = """
start received message
task scan "Scan\\ninvoice"
task original "Archive\\noriginal"
message needed "Approver to \\nbe assigned"
task assign "Assign approver"
first next
message review "Invoice review\\n needed"
task document "Review and document result"
catch week timer
end e1
end e2
received -> scan -> original -> needed -> assign -> next
next -> week -> e1
next -> review -> document -> e2
"""

C_1_1 = """
dataObject d1 "approver"
dataObject d2 "approved"
dataObject d3 "clarified"
start received "Invoice\\nreceived"
user assign "Assign\\nApprover" +gives=d1
user approve "Approve Invoice" +gives=d2
xor approvedGateway "Invoice\\napproved?"
user review "Rechnung klären" +gives=d3
xor reviewGateway "Review\\nsuccessful?"
user prepare "Prepare\\nBank\\nTransfer"
service archive "Archive\\nInvoice" +styled=b
end processed
end notProcessed
received -> assign -> approve -> approvedGateway
approvedGateway -> prepare if "bpmn:getDataObject('approved')"
prepare -> archive -> processed
approvedGateway -> review if "not(bpmn:getDataObject('approved'))"
review -> reviewGateway
reviewGateway -> approve if "bpmn:getDataObject('clarified') = 'yes'"
reviewGateway -> notProcessed if "bpmn:getDataObject('clarified') = 'no'"
"""

C_2_0 = """
start s
task browse "Browse Products"
task add "Add Item to Cart" u:writes=shopped
xor done "Done Shopping?"
sub checkout "Checkout"
    start s2
    task pay "Pay Order" u:writes=accepted
    xor acceptedGateway "Payment accepted?"
    xor retry "Retry?"
    throw order "Send Order" message
    end failed error
    end paid
    s2 -> pay -> acceptedGateway
    acceptedGateway -> order if "accepted"
    order -> paid
    acceptedGateway -> retry if "not accepted"
    retry -> pay if "patient"
    retry -> failed if "not patient"
error refused on=checkout
task receive "Receive items"
end e1
end e2
s -> browse -> add -> done
done -> checkout if "shopped"
done -> browse if "not shopped"
checkout -> receive -> e1
refused -> e2
"""


C_3_0 = """
start received message ref=m-paid
user analyse "Analyse customer request" completionQuantity=2 startQuantity=2
xor kind "Service type"
user replace "Replace fridge"
xor level "Service level"
user standard "Perform repair (standard level)"
message change on=standard ref=m-paid
user premium "Perform repair (premium level)"
timer late "PT2H" on=premium
sub emergency "Perform emergency repair"
xor successful "Successful?"
end e1 "Fridge replaced"
end e2 "Emergency repair completed"
end e3 "Repair completed"
received -> analyse -> kind
kind -k1:Warranty> replace -> e1
kind -k2:Emergency> emergency -> successful
kind -k3:Regular> level
level -l1:Standard> standard -> e3
level -l2:Premium> premium if "Service Level == 'Premium'"
premium -> e3
change -> premium
late -> emergency
successful -y> e2
successful -n> replace
"""

C_4_0_PAYROLL = """
start hired "New \\nemployee\\nhired" signal ref=s-stop
user validate "Validate provided information"
xor complete "All necessary data available?"
manual clarify "Clarify missing points" +loop=
user update "Update payroll system"
end ready "Payroll ready" message
hired -> validate -> complete
complete -c1:No> clarify -> update
complete -c2:Yes> update -> ready
"""

C_5_0 = """
start s "Customer interested in Bank offer"
xor entity "Legal entity or individual?"
user owner "Document the identity of the economic owner"
xor either
user check "Check customer documents"
and split
user personal "Add personal data"
user kyc "Perform know your customer (KYC) activities"
and meet
call connected "Check for connected clients" calledElement=connected_clients
end made "Identity determined" signal
s -> entity
entity -i1:Individual> either
entity -i2:Legal> owner -> either -> check -> split
split -> personal -> meet
split -> kyc -> meet
meet -> connected -> made
"""

C_5_0_CALLED = """
start s
user exists "Check if group of connected clients exists"
xor existing "Group of connected Clients existing?"
user document "Document group"
xor joined
end e
s -> exists -> existing
existing -x1:Yes> document -> joined
existing -x2:No> joined -> e
"""

C_7_0 = """
dataObject d1 "Selected\\n platforms" isCollection=true
start s "Job \\nvacancy"
user write "Write \\ndescription"
user complete "Complete advertisement"
user approve "Approve advertisement"
xor approved "Advertisement approved?"
and split
service homepage "Publish on \\nhomepage"
rule select "Select \\nother platforms" +gives=d1
service others "Publish on \\nother platforms" +takes=d1 +many=false
and meet
end e "Vacancy \\nadvertised"
s -> write -> complete -> approve -> approved
approved -a1:No> complete
approved -a2:Yes> split
split -> homepage -> meet
split -> select -> others -> meet -> e
"""

C_8_1 = """
dataObject d1 "Vacation Approval"
dataObject d2 "Current Vacation Status"
start s "Vacation Request Received"
service fetch "Fetch Vacation Information" +gives=d2
error missing on=fetch ref=e-stock
rule decide "Vacation Approval" +gives=d1
xor g1 default=refused
send notify1 "Notify Employee of Refusal"
user manual "Manually Approve Vacation" +gives=d1
xor g2 default=refused2
send notify2 "Notify Employee of Approval"
service update "Update Remaining Vacation"
send notify3 "Notify Employee of Approval"
send notify4 "Notify Employee of Refusal"
end e1
end e2
end e3
end e4 "Employee not found"
s -> fetch -> decide -> g1
missing -> e4
g1 -refused> notify1 -> e1
g1 -> manual if "Vacation Approval = \\"Manual Validation Required\\""
g1 -> notify2 if "Vacation Approval = \\"Approved\\""
notify2 -> update -> e2
manual -> g2
g2 -> notify3 if "Vacation Approval = \\"Approved\\""
notify3 -> e3
g2 -refused2> notify4 -> e1
"""

C_9_0 = """
start s "Application received"
service score "Get credit score"
end e1
sub handled triggeredByEvent=true
    start timeout error
    user handle "Handle Timeout"
    end e2
    timeout -> handle -> e2
s -> score -> e1
"""

C_9_1 = """
start s "Document requested"
send request "Request document"
wait document "Wait for answer" messageRef=m-paid
timer daily "R6/P1D" on=document cancelActivity=false
timer week "P7D" on=document
send remind "Send reminder email"
user call "Call customer"
end e1
end e2
end e3
s -> request -> document -> e1
daily -> remind -> e2
week -> call -> e3
"""


class Case(msgspec.Struct):
    """A model; what it is bound to and given, signalled and answered; then its effects, in the order that its
    flow says, or the elements for which it is refused."""

    model: str
    processes: dict[str, str]
    wanted: str = "main"
    conditions: dict[str, Any] = {}
    times: dict[str, Any] = {}
    given: dict[str, Any] = {}
    signals: list[tuple[Any, ...]] = []
    """Channel and payload; before them the call activity, if its child is meant."""
    replies: dict[str, list[Any]] = {}
    effects: list[list[str]] = []
    refused: list[str] = []

    def data(self) -> bytes:
        return (HEAD + "".join(drawn(text, name) for name, text in self.processes.items()) + "</definitions>").encode()


def takes(label: str) -> Any:
    def decide() -> str:
        return label

    return decide


def never() -> bool:
    return False


CASES = [
    Case("A.1.0, A.1.1, A.1.2", {"main": A_1}, effects=[["task_1", "task_2", "task_3"]]),
    Case("A.2.0", {"main": A_2_0}, conditions={"split": takes("f3")}, effects=[["task_1", "task_3"]]),
    Case(
        "A.2.1",
        {"main": A_2_1},
        conditions={"split": takes("f4"), "Task 4": takes("d4")},
        effects=[["task_1", "task_4", "task_3"]],
    ),
    Case("A.3.0", {"main": A_3_0}, refused=["nonInterruptingMessage", "interruptingEscalation"]),
    Case("A.4.0, A.4.1, pool 1", {"main": A_4_1_POOL_1, "other": A_4_1_POOL_2}, effects=[["task_1", "task_2"]]),
    Case(
        "A.4.0, A.4.1, pool 2",
        {"other": A_4_1_POOL_1, "main": A_4_1_POOL_2},
        effects=[["task_3", "task_4", "task_5"], ["task_3", "task_6"]],
    ),
    Case(
        "B.1.0, first pool",
        {"main": B_1_0_FIRST},
        signals=[("user_task_2", 1)],
        effects=[["abstract_task_1", "service_task_3"]],
    ),
    Case("B.1.0, called process", {"main": B_1_0_CALLED}, effects=[["abstract_task_4"]]),
    Case(
        "B.1.0, second pool",
        {"main": B_1_0_SECOND, "called": B_1_0_CALLED, "recall": B_1_0_RECALL},
        conditions={"choice1": takes("d1"), "choice2": takes("c1")},
        refused=["EndEventTerminate"],
    ),
    Case(
        "B.1.0, second pool with a plain end",
        {
            "main": B_1_0_SECOND.replace("EndEventTerminate terminate", "EndEventTerminate"),
            "called": B_1_0_CALLED,
            "recall": B_1_0_RECALL,
        },
        conditions={"choice1": takes("d2"), "choice2": takes("c1")},
        signals=[("user_task_5", 1)],
        effects=[["collapsed_sub_process", "abstract_task_6"], ["call_activity_calling_a_global_task", "sent"]],
    ),
    Case(
        "B.2.0",
        {"main": B_2_0},
        refused=["boundary_event_non_interrupting_message_id", "boundary_event_non_interrupting_timer_id"],
    ),
    Case(
        "C.1.0, team assistant",
        {"main": C_1_0_TEAM},
        times={"week": timedelta(seconds=5)},
        signals=[("approver_to_be_assigned", 1)],
        effects=[["scan_invoice", "archive_original", "assign_approver"]],
    ),
    Case(
        "C.1.0, process engine; C.1.1",
        {"main": C_1_1},
        signals=[
            ("assign_approver", "ann"),
            ("approve_invoice", False),
            ("rechnung_klären", "yes"),
            ("approve_invoice", True),
            ("prepare_bank_transfer", 1),
        ],
        effects=[["archive_invoice"]],
    ),
    Case(
        "C.2.0, customer",
        {"main": C_2_0},
        given={"patient": True},
        replies={"add_item_to_cart": [False, True], "pay_order": [False, True]},
        effects=[
            ["browse_products", "add_item_to_cart"] * 2 + ["pay_order"] * 2 + ["send_order", "receive_items"],
        ],
    ),
    Case(
        "C.3.0",
        {"main": C_3_0},
        conditions={"Service type": takes("Regular"), "Service level": takes("Premium"), "Successful?": takes("y")},
        times={"late": timedelta(seconds=5)},
        signals=[("analyse_customer_request", 1)],
        effects=[["perform_emergency_repair"]],
    ),
    Case(
        "C.4.0, payroll",
        {"main": C_4_0_PAYROLL},
        conditions={"All necessary data available?": takes("No"), "Clarify missing points": never},
        signals=[("validate_provided_information", 1), ("update_payroll_system", 1)],
        effects=[["clarify_missing_points", "payroll_ready"]],
    ),
    Case(
        "C.5.0, bank",
        {"main": C_5_0, "connected_clients": C_5_0_CALLED},
        conditions={"entity": takes("Legal"), "existing": takes("No")},
        signals=[
            ("document_the_identity_of_the_economic_owner", 1),
            ("check_customer_documents", 1),
            ("add_personal_data", 1),
            ("perform_know_your_customer_kyc_activities", 1),
            ("check_for_connected_clients", "check_if_group_of_connected_clients_exists", 1),
        ],
        effects=[["identity_determined"]],
    ),
    Case(
        "C.7.0",
        {"main": C_7_0},
        conditions={"Advertisement approved?": takes("Yes")},
        signals=[("write_description", 1), ("complete_advertisement", 1), ("approve_advertisement", 1)],
        replies={"select_other_platforms": [["a", "b", "c"]]},
        effects=[
            ["publish_on_homepage"],
            *(["select_other_platforms", f"publish_on_other_platforms:{lane}"] for lane in range(3)),
        ],
    ),
    Case(
        "C.8.1",
        {"main": C_8_1},
        signals=[("manually_approve_vacation", "Approved")],
        replies={"vacation_approval": ["Manual Validation Required"]},
        effects=[["fetch_vacation_information", "vacation_approval", "notify3"]],
    ),
    Case("C.9.0", {"main": C_9_0}, refused=["handled"]),
    Case("C.9.1", {"main": C_9_1}, refused=["daily", "daily"]),
]
