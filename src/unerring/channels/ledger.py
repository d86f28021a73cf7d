"""The loss ledger: for each consumer, from its cut on, published = delivered + declared lost + pending."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from unerring.channels.messages import Loss


class Account(msgspec.Struct):
    """One consumer's account of one epoch of one producer."""

    producer: int
    epoch: int
    cut: int
    """The first sequence it answers for."""
    known_last: int
    """The highest sequence it has heard of."""
    accepted: int
    """The highest sequence the application has accepted, losses included."""
    delivered: int = 0
    lost: list[Loss] = msgspec.field(default_factory=list)
    duplicates: int = 0

    @property
    def published(self) -> int:
        """The number of published events that this consumer knows of."""
        return self.known_last - self.cut + 1

    @property
    def declared_lost(self) -> int:
        return sum(loss.count or 0 for loss in self.lost)

    @property
    def pending(self) -> int:
        return self.known_last - self.accepted

    @property
    def open_end(self) -> bool:
        """The epoch ended at a sequence nobody can name any more."""
        return any(loss.last is None for loss in self.lost)

    @property
    def balanced(self) -> bool:
        return self.published == self.delivered + self.declared_lost + self.pending


class Ledger(msgspec.Struct, frozen=True):
    """All accounts of one consumer."""

    accounts: tuple[Account, ...]

    @property
    def balanced(self) -> bool:
        return all(account.balanced for account in self.accounts)

    @property
    def published(self) -> int:
        return _total(account.published for account in self.accounts)

    @property
    def delivered(self) -> int:
        return _total(account.delivered for account in self.accounts)

    @property
    def declared_lost(self) -> int:
        return _total(account.declared_lost for account in self.accounts)

    @property
    def pending(self) -> int:
        return _total(account.pending for account in self.accounts)

    @property
    def duplicates(self) -> int:
        return _total(account.duplicates for account in self.accounts)


def _total(counts: Iterable[int]) -> int:
    return sum(counts)
