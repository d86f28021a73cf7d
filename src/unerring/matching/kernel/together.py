"""Many rules over one stream, fed together: each gets the rows that can matter to it."""

from __future__ import annotations

from collections.abc import Sequence

from unerring.matching.choice import TOGETHER_MIN
from unerring.matching.kernel.columns import Columns
from unerring.matching.kernel.kernel import Kernel
from unerring.matching.kernel.outputs import OutputColumns
from unerring.matching.kernel.sieve import Sieve
from unerring.matching.merge import Merged
from unerring.matching.outputs import Output, Row


class Together:
    """Kernels that read one stream."""

    def __init__(self, kernels: Sequence[Kernel], at_least: int = TOGETHER_MIN) -> None:
        self._kernels = tuple(kernels)
        self._keys = sorted({name for one in self._kernels for source in one.plan.inputs for name in source.key})
        self._sieve: Sieve | None = None
        if len(self._kernels) >= at_least:
            self._sieve = Sieve([one.wanted for one in self._kernels], [one.columns for one in self._kernels])

    def feed(self, batch: Columns, through: int) -> dict[int, OutputColumns]:
        """What the rules find, by their place; those that find nothing are left out."""
        every = dict.fromkeys(range(len(self._kernels)), batch)
        fed = every if self._sieve is None else self._sieve.fed(batch)
        found: dict[int, OutputColumns] = {}
        nothing = batch.part(0, 0)
        for place, kernel in enumerate(self._kernels):
            rows = fed.get(place)
            if rows is None and kernel.pass_time(through):
                continue
            outputs = kernel.feed_columns(nothing if rows is None else rows, through)
            if len(outputs):
                found[place] = outputs
        return found

    def feed_rows(self, rows: Sequence[Row], through: int) -> dict[int, list[Output]] | None:
        """The same with rows of the stream as objects. None: a key is NULL, so that each rule must be fed alone."""
        payloads = [row.event.payload for row in rows]
        if any(payload.get(name) is None for name in self._keys for payload in payloads):
            return None
        found = self.feed(self._kernels[0].columns_of(rows), through)
        return {place: outputs.outputs() for place, outputs in found.items()}

    def feed_merged(self, rows: Merged, stream: str, through: int) -> dict[int, OutputColumns] | None:
        """The same with released rows of which some are columns."""
        if rows.has_null(stream, self._keys):
            return None
        return self.feed(rows.columns((stream,)), through)
