"""Logging in with a browser: by the address that `unerring dashboard --open` opens, and by the form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.doors import small_run
from tests.dashboard.serving import serving
from unerring.cli.dashboard import _opening
from unerring.dashboard import OWNER, Access
from unerring.model import Who

pytestmark = pytest.mark.timeout(900)
TOKENS = {"token-of-the-owner": OWNER, "token-of-a-viewer": Who("any", "viewer", "ann")}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return small_run(tmp_path / "run")


def test_the_page_that_is_opened_logs_in_once_and_commands_need_nothing_more(run: Path, page: Any) -> None:
    access = Access(TOKENS, private=True)
    with serving(run, access) as address:
        opened = _opening(run, f"{address}login#code={access.sessions.code(OWNER)}").as_uri()
        page.goto(opened)
        page.wait_for_selector("#main[data-looked]")
        assert "code" not in page.url
        said = page.evaluate(
            "async () => { const state = await import('/static/state.js'); return state.command('kill', 'nobody'); }"
        )
        assert "no supervised process 'nobody'" in said["error"], "it was heard, without a token"
        page.context.clear_cookies()
        page.goto(opened)
        page.wait_for_selector("[role=alert]:has-text('was used')")


def test_the_form_logs_in_and_a_session_that_ends_leads_back_to_it(run: Path, page: Any) -> None:
    access = Access(TOKENS, private=True)
    with serving(run, access) as address:
        page.goto(f"{address}#timeline")
        page.fill("input[name=token]", "token-of-a-viewer")
        page.click("button")
        page.wait_for_selector("#main[data-looked]")
        assert page.evaluate("() => location.hash") == "#timeline", "it leads to where one wanted to go"
        access.sessions.keep(lambda who: False)
        page.wait_for_url("**/login", wait_until="networkidle")
