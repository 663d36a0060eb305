"""The page in a browser: it follows a run that is written, holds while paused, and has a slider."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.waiting import until
from tests.watching.browser import CHROMIUM, opened
from tests.watching.test_watch import watching
from vinedresser.store.storage import open_storage
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import start_run, step_record

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium or Chrome on the PATH"),
]

TEXT = "document.getElementById('view')?.innerText ?? ''"
PAUSE = "document.getElementById('pause').click()"
SLIDE = "s = document.getElementById('step'); s.value = {}; s.dispatchEvent(new Event('input'))"


def test_it_lives_holds_and_shows_a_step(tmp_path: Path) -> None:
    place = tmp_path / "alive"
    start_run(place, name="alive")
    with (
        closing(RunWriter(open_storage(place), 0)) as writer,
        watching(place) as (address, client, _),
        opened(tmp_path / "profile") as browser,
    ):

        def write(step: int) -> None:
            writer.add(step_record(step, scalars={"losses/loss": 1000.0 + step}))

        for step in range(4):
            write(step)
        browser.open(address)
        until(lambda: "1003" in browser.value(TEXT), "the first steps")
        # The address bar has lost the key, and scripts cannot see the cookie.
        assert browser.value("location.search + document.cookie") == ""

        write(4)
        until(lambda: "1004" in browser.value(TEXT), "a step of the running training")

        browser.value(PAUSE)
        client.get(address)
        write(5)
        until(lambda: "1005" in client.get("/run/alive/view").text, "the step at the server")
        # Longer than the page's interval: a page that were not paused would have asked.
        browser.value("held = false; setTimeout(() => { held = true }, 2500)")
        until(lambda: browser.value("held"), "two intervals of the page")
        assert "1005" not in browser.value(TEXT)

        browser.value(PAUSE)
        until(lambda: "1005" in browser.value(TEXT), "the step that came during the pause")
        browser.value(SLIDE.format(2))
        shown = "document.getElementById('moment')?.innerText ?? ''"
        until(lambda: "1002" in browser.value(shown), "the chosen step")
        assert browser.value("document.querySelectorAll('.cursor').length") == 1
