"""Models with the elements and the flow of reference models of the BPMN interchange working group (MIWG), written anew:
none of the group's files is copied here. What each is to do, or the elements for which it is refused."""

from __future__ import annotations

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
start s "Start Event"
task t1 "Task 1"
xor split "Gateway (Split Flow)" default=f2
task t2 "Task 2" default=d2
task t3 "Task 3"
task t4 "Task 4" default=d4
xor merge "Gateway (Merge Flows)"
end e "End Event"
s -> t1 -> split
split -f2> t2
split -f3> t3
split -f4> t4
t2 -> e if "two"
t2 -d2> t3
t4 -> merge if "four"
t4 -d4> t3
t3 -> merge -> e
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

C_1_1 = """
start received "Invoice received"
user assign "Assign Approver" u:writes=approver
user approve "Approve Invoice" u:writes=approved
xor approvedGateway "Invoice approved?"
user review "Review Invoice" u:writes=clarified
xor reviewGateway "Review successful?"
user prepare "Prepare Bank Transfer"
service archive "Archive Invoice"
end processed
end notProcessed
received -> assign -> approve -> approvedGateway
approvedGateway -> prepare if "approved"
prepare -> archive -> processed
approvedGateway -> review if "not approved"
review -> reviewGateway
reviewGateway -> approve if "clarified == 'yes'"
reviewGateway -> notProcessed if "clarified == 'no'"
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


class Case(msgspec.Struct):
    """A model; what it is bound to and given, signalled and answered; then its effects, in the order that its
    flow says, or the elements for which it is refused."""

    model: str
    processes: dict[str, str]
    wanted: str = "main"
    conditions: dict[str, Any] = {}
    given: dict[str, Any] = {}
    signals: list[tuple[str, Any]] = []
    replies: dict[str, list[Any]] = {}
    effects: list[list[str]] = []
    refused: list[str] = []

    def data(self) -> bytes:
        return (HEAD + "".join(drawn(text, name) for name, text in self.processes.items()) + "</definitions>").encode()


def takes(label: str) -> Any:
    def decide() -> str:
        return label

    return decide


CASES = [
    Case("A.1.0, A.1.1, A.1.2", {"main": A_1}, effects=[["task_1", "task_2", "task_3"]]),
    Case("A.2.0", {"main": A_2_0}, conditions={"split": takes("f3")}, effects=[["task_1", "task_3"]]),
    Case(
        "A.2.1",
        {"main": A_2_1},
        conditions={"split": takes("f4")},
        given={"four": False},
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
        "C.1.0, C.1.1",
        {"main": C_1_1},
        signals=[
            ("assign_approver", "ann"),
            ("approve_invoice", False),
            ("review_invoice", "yes"),
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
]
