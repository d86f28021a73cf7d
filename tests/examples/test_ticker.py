"""The ticker: five reactions to one loss, and a newcomer."""

from __future__ import annotations

import asyncio

import pytest

from tests.examples.test_factory import EXAMPLES


@pytest.mark.parametrize("seed", [1, 2])
def test_every_desk_reacts_in_its_own_way(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import ticker

    book, found = asyncio.run(asyncio.wait_for(ticker.main(seed), 600))
    desks = {desk.name: desk for desk in found}
    lost = [tuple(map(int, told.split(" to "))) for told in desks["audit"].lost]
    # All up to about the cut came, and all that the exchange still had; what is lost is known to the single quote.
    assert ticker.CUT_FROM - ticker.KEPT.buffer_count_max < lost[0][0] <= ticker.CUT_FROM + 1
    assert desks["audit"].quotes + sum(last - first + 1 for first, last in lost) == ticker.QUOTES + 1
    assert desks["chart"].lost == []
    assert "lost for good" in desks["news"].lost[0]
    assert desks["robot"].stopped
    assert desks["robot"].lost[0].startswith(f"{desks['robot'].quotes + 1} to ")
    assert desks["risk"].started_over >= 1
    assert desks["intern"].started_over >= 1
    for name in ("audit", "chart", "news", "risk", "intern"):
        assert {symbol: desks[name].prices[symbol] for symbol in ticker.SYMBOLS} == book
