"""The page in a browser: it follows a run that is written, holds while paused, has a slider, and
draws the answers to queries."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.waiting import until
from tests.watching.browser import CHROMIUM, opened
from tests.watching.test_watch import watching
from vinedresser.objects import open_storage
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


TYPE = """
(box => {{
  box.value = {};
  box.dispatchEvent(new KeyboardEvent("keydown", {{ key: "Enter" }}));
}})(document.getElementById("query"))
"""
REFUSED = "document.getElementById('refused').textContent"
ASKED = "[...document.querySelectorAll('.asked .answer')].map(one => one.dataset.form).join()"
LAST = "[...document.querySelectorAll('.asked [data-name]')].map(one => one.dataset.last).join()"


def test_queries_are_typed_in(tmp_path: Path) -> None:
    place = tmp_path / "asked"
    start_run(place, name="asked")
    with (
        closing(RunWriter(open_storage(place), 0)) as writer,
        watching(place) as (address, _, _),
        opened(tmp_path / "profile") as browser,
    ):

        def write(step: int) -> None:
            norms = {f"gradients/{name}": {"l2": step + 0.5} for name in ("a.weight", "b.weight")}
            writer.add(step_record(step, scalars={"losses/loss": 0.25}, reductions=norms))

        for step in range(4):
            write(step)
        browser.open(address)
        until(lambda: "0.25" in browser.value(TEXT), "the first steps")
        browser.value(TYPE.format("'nrm(gradients)'"))
        until(lambda: "did you mean norm?" in browser.value(REFUSED), "the reason")
        assert browser.value(ASKED) == ""

        browser.value(TYPE.format("'norm(gradients) by layer'"))
        until(lambda: browser.value(ASKED) == "line", "the picture")
        assert browser.value(LAST) == "3.5,3.5"
        assert browser.value(REFUSED) == ""
        write(4)
        until(lambda: browser.value(LAST) == "4.5,4.5", "a step of the running training")
        # The address has the query, and nothing else has.
        assert browser.value("location.search") == "?ask=norm%28gradients%29+by+layer"
        assert browser.value("Object.keys(localStorage).length + document.cookie") == "0"
        browser.value("window.before = true; location.reload()")
        until(lambda: browser.value("window.before ?? false") is False, "the page again")
        until(lambda: browser.value(LAST) == "4.5,4.5", "the picture in the page that was reloaded")
        # The cursor is also in the heat map of the gradients, in the column of its step.
        browser.value(SLIDE.format(1))
        until(
            lambda: browser.value("document.querySelectorAll('.heat .cursor').length"), "a cursor"
        )
        part = "['.heat .cursor', '.heat .plane'].map(one => document.querySelector(one))"
        share = browser.value(
            f"(([line, plane]) => (line.getAttribute('x1') - plane.getAttribute('x')) / "
            f"plane.getAttribute('width'))({part})"
        )
        assert abs(share - 1.5 / 5) < 0.01
        browser.value("document.querySelector('.asked button').click()")
        assert browser.value(ASKED + "+ location.search") == ""
