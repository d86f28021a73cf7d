"""Children between the nodes: sends the starts that this node's planners want, and the ends to the parents."""

from __future__ import annotations

from unerring.model import Address
from unerring.processes.children import end_of
from unerring.processes.context import Shared
from unerring.processes.messages import Mail, Outline, Post, State
from unerring.processes.outbox import Tell


class Families:
    """Nothing is remembered here: a parent asks again for what it has not heard of."""

    def __init__(self, shared: Shared, tell: Tell) -> None:
        self._shared = shared
        self._tell = tell

    def start_children(self, now: int) -> None:
        """Start the children that planners of this node want, one after the other: a start may make others possible."""
        while self._shared.children:
            start, mail = self._shared.children.pop(0)
            for member in self._shared.members_of(start.instance):
                self._tell(member, start, now)
                if mail is not None:
                    self._tell(member, Post(start.instance, mail), now)

    def tell_parent(self, state: State, now: int) -> None:
        """Send the end at once to whoever may lead the parent; if it is lost, the parent asks again."""
        for member in self._shared.members_of(state.parent):
            self._tell(member, Post(state.parent, end_mail(state.instance, state)), now)

    def tell_end(self, to: Address, parent: str, mail: Mail, now: int) -> None:
        self._tell(to, Post(parent, mail), now)


def end_mail(instance: str, end: State | Outline) -> Mail:
    """The message to the parent of an instance about its end."""
    return end_of(instance, end.status, end.reason, end.variables, end.returns)
