"""The page of a store in a browser: values are read back from its table, curves and dots."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from tests.waiting import until
from tests.watching.browser import CHROMIUM, Browser, opened
from tests.watching.test_watch import watching
from tests.watching.varied_store import HOSTILE, STEPS, loss_at, varied_store
from vinedresser.objects import open_storage
from vinedresser.store.records import MachineRecord, write_record
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import make_run, start_run, step_record

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium or Chrome on the PATH"),
]

# Nothing of runs becomes markup or breaks the policy.
ERRORS = """
window.errors = [];
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"])
  addEventListener(kind, one => errors.push(`${one.type} ${one.message ?? one.violatedDirective}`));
"""
NAMES = "[...document.querySelectorAll('#table tr[data-run]')].map(one => one.dataset.run)"
CHART = "document.querySelector('.curve[data-metric=\"{}\"]')"
DATA = """
(u => u && ({{ x: u.data[0], lines: u.data.slice(1) }}))(
  document.querySelector('.curve[data-metric="{}"] .plot')?.uplot)
"""
TEXT = "document.getElementById('{}').textContent"


class Page:
    """The page of the store in a tab.

    Args:
        browser: the tab.
        address: its address, with its key.
    """

    def __init__(self, browser: Browser, address: str) -> None:
        self.browser = browser
        self._address = address
        self.value = browser.value

    def show(self, fragment: str = "") -> None:
        """Open the page anew, as a link with a fragment does, and wait until it has curves."""
        self.browser.open("about:blank")
        self.browser.open(f"{self._address}#{fragment}")
        until(lambda: self.value("document.querySelector('.curve') !== null"), "curves")
        self.value(ERRORS)

    def names(self) -> list[str]:
        """Return the names of the rows."""
        return list(self.value(NAMES))

    def type(self, text: str) -> None:
        """Type a filter."""
        box = "document.getElementById('query')"
        script = f"{box}.value = {json.dumps(text)}; {box}.dispatchEvent(new Event('change'))"
        self.value(script)

    def choose(self, name: str, value: str) -> None:
        """Set a control."""
        box = f"document.getElementById('{name}')"
        self.value(f"{box}.value = '{value}'; {box}.dispatchEvent(new Event('change'))")

    def curves(self, metric: str, lines: int) -> dict[str, Any]:
        """Return the axis and the lines of a chart, once it has so many."""
        script = DATA.format(metric)
        until(lambda: len((self.value(script) or {"lines": []})["lines"]) == lines, metric)
        found: dict[str, Any] = self.value(script)
        return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("page")
    with (
        watching(varied_store(folder / "store")) as (address, _, _),
        opened(folder / "profile") as browser,
    ):
        yield Page(browser, address)


@pytest.fixture(autouse=True)
def clean(page: Page) -> Iterator[None]:
    """Every test begins at the page itself, and ends without an error of a script."""
    page.browser.look()
    page.show()
    yield
    assert page.value("window.errors") == []
    assert page.value("document.title") != "owned"
    assert page.value("Object.keys(localStorage).length + document.cookie") == "0"


def test_rows_are_sorted_by_the_metric_and_by_columns(page: Page) -> None:
    assert page.names()[0] == "sigmoid-1-1"
    assert page.names()[-1] == HOSTILE
    press = "document.querySelector('th[data-column=\"{}\"] button').click()"
    page.value(press.format("lr"))
    assert page.names()[0].startswith(("relu-0.001", "sigmoid-0.001"))
    page.value(press.format("lr"))
    assert page.names()[0].split("-")[1] == "1"
    sort = "document.querySelector('th[aria-sort]').ariaSort"
    assert page.value(sort) == "descending"
    # Numbers that are not finite are last in both directions, before those that are missing.
    for _ in range(2):
        page.value(press.format("train/loss"))
        assert {*page.names()[-3:]} == {"relu-1-1", "relu-1-2", HOSTILE}


def test_the_owner_is_a_column_where_runs_differ_by_it(page: Page, tmp_path: Path) -> None:
    heading = "document.querySelector('th[data-column=owner]') !== null"
    assert not page.value(heading)
    for user, host in (("ada", "one"), ("eve", "one"), ("", "two")):
        run = make_run(tmp_path / f"of-{user}", [step_record(0, scalars={"losses/loss": 1.0})])
        write_record(run.storage, MachineRecord(host, user))
    with watching(tmp_path) as (address, _, _):
        theirs = Page(page.browser, address)
        theirs.show("sort=owner")
        assert page.value(heading)
        assert theirs.names() == ["of-ada", "of-eve", "of-"]
        theirs.type("owner = eve@one")
        assert theirs.names() == ["of-eve"]
    page.show()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("lr >= 0.1 activation:relu -seed=2", {"relu-0.1-1", "relu-1-1"}),
        ("verdict:problem", {"relu-1-1", "relu-1-2"}),
        ("rules:exploding_loss seed=1", {"relu-1-1"}),
        ("accuracy > 0.9", {"sigmoid-1-1", "sigmoid-1-2"}),
        ('"relu-0.1"', {"relu-0.1-1", "relu-0.1-2"}),
        ("loss = NaN", {"relu-1-1", "relu-1-2"}),
        ("run:onerror", {HOSTILE}),
        # A name that every object of JavaScript has.
        ("constructor:n", {HOSTILE}),
        # As the table shows it, and as it is.
        ("amp = yes", {HOSTILE}),
        ("amp = true", {HOSTILE}),
    ],
)
def test_filters(page: Page, text: str, names: set[str]) -> None:
    if text.startswith("loss"):
        text = f"train/{text}"
    page.type(text)
    assert {*page.names()} == names
    assert page.value(TEXT.format("refused")) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lr > high", "lr > high: high is not a number"),
        ("activatoin:relu", "activatoin: no run has such a column; did you mean activation?"),
        ('"open', '"open: a quotation mark is missing'),
        ("lr >", ">: a comparison needs a column and a value, as in lr > 0.01"),
        ("lr>", "lr>: a comparison needs a column and a value, as in lr > 0.01"),
        ("verdict:", "verdict:: a comparison needs a column and a value, as in lr > 0.01"),
    ],
)
def test_a_wrong_filter_is_one_line(page: Page, text: str, problem: str) -> None:
    page.type(text)
    assert page.value(TEXT.format("refused")) == problem
    assert len(page.names()) == 17


def test_curves_are_those_of_the_runs_shown(page: Page) -> None:
    page.type("activation=sigmoid lr=0.1")
    found = page.curves("train/loss", 2)
    assert found["x"] == [*range(STEPS)]
    for seed, line in enumerate(found["lines"], start=1):
        assert np.allclose(line, [loss_at(step, 0.1, seed) for step in range(STEPS)], rtol=1e-6)


def test_picked_runs_are_drawn_and_the_link_shows_the_same(page: Page) -> None:
    for name in ("relu-1-1", "sigmoid-1-1"):
        page.value(f"document.querySelector('tr[data-run=\"{name}\"] input').click()")
    page.curves("train/loss", 2)
    page.choose("axis", "time")
    page.value("document.getElementById('log').click()")
    fragment = page.value("location.hash.slice(1)")
    assert fragment == "runs=relu-1-1&runs=sigmoid-1-1&x=time&log=yes"
    assert page.value("location.search") == ""
    page.value("document.getElementById('pick').click()")
    picked = "new URLSearchParams(location.hash.slice(1)).getAll('runs').sort()"
    assert page.value(picked) == ["relu-1-1", "sigmoid-1-1"]
    page.show(fragment)
    found = page.curves("train/loss", 2)
    assert found["x"] == [step / 2 for step in range(STEPS)]
    assert page.value("document.getElementById('log').checked") is True
    assert page.value("document.querySelectorAll('tr.drawn').length") == 2


def test_labels_of_a_log_axis_are_powers_of_ten(page: Page) -> None:
    page.show("runs=relu-1-1&charts=train/loss&log=yes")
    page.curves("train/loss", 1)
    plot = CHART.format("train/loss") + ".querySelector('.plot').uplot"
    until(lambda: page.value(f"{plot}.axes[1]._values"), "the labels")
    labels = page.value(f"{plot}.axes[1]._values")
    assert len(labels) > 3
    assert labels[-1].startswith("10")
    assert not [label for label in labels if not label or "∞" in label]


def test_smoothing_keeps_the_values(page: Page) -> None:
    page.show("q=" + quote("activation=sigmoid lr=0.1 seed=1") + "&smooth=0.9")
    raw, smooth = page.curves("train/loss", 2)["lines"]
    assert np.allclose(raw, [loss_at(step, 0.1, 1) for step in range(STEPS)], rtol=1e-6)
    assert smooth[0] == pytest.approx(raw[0], rel=1e-6)
    assert np.abs(np.diff(smooth)).sum() < 0.8 * np.abs(np.diff(raw)).sum()


def test_groups_are_drawn_as_means_with_a_band(page: Page) -> None:
    page.type("activation=sigmoid lr>=0.1")
    page.choose("group", "configuration")
    page.choose("band", "range")
    # High, low and mean of two groups.
    high, low, mean = page.curves("train/loss", 6)["lines"][3:]
    both = np.array([[loss_at(step, 0.1, seed) for step in range(STEPS)] for seed in (1, 2)])
    assert np.allclose(mean, both.mean(axis=0), rtol=1e-6)
    assert np.allclose(high, both.max(axis=0), rtol=1e-6)
    assert np.allclose(low, both.min(axis=0), rtol=1e-6)
    cells = "[...document.querySelectorAll('#groups tbody tr')].map(one => one.innerText)"
    assert page.value(cells)[0].startswith("lr = 1\t2 of 2\t")
    note = CHART.format("train/loss") + ".querySelector('.note').textContent"
    assert page.value(note) == "mean, band: minimum to maximum"


def test_the_mouse_zooms_and_reads_values(page: Page) -> None:
    page.show("runs=sigmoid-0.1-1&charts=train/loss")
    page.curves("train/loss", 1)
    page.value(CHART.format("train/loss") + ".scrollIntoView({block: 'center'})")
    over = CHART.format("train/loss") + ".querySelector('.u-over').getBoundingClientRect()"
    box = json.loads(page.value(f"JSON.stringify({over})"))
    left, top, width, height = (box[side] for side in ("x", "y", "width", "height"))
    share = 60 / (STEPS - 1)
    spot = (left + share * width, top + height / 2)
    page.browser.drag(spot, spot)
    line = CHART.format("train/loss") + ".querySelector('.readout').textContent"
    until(lambda: page.value(line).startswith("step 60"), "the step under the mouse")
    page.browser.drag((left + width / 4, spot[1]), (left + width / 2, spot[1]))
    until(lambda: "from=" in page.value("location.hash"), "the range in the address")
    field = "document.getElementById('{}').value"
    first, last = (float(page.value(field.format(end))) for end in ("from", "to"))
    assert first == pytest.approx((STEPS - 1) / 4, abs=1)
    assert last == pytest.approx((STEPS - 1) / 2, abs=1)
    until(lambda: len(page.curves("train/loss", 1)["x"]) < 40, "the curve of the range")
    page.value("document.getElementById('whole').click()")
    until(lambda: len(page.curves("train/loss", 1)["x"]) == STEPS, "the whole curve")


def test_keys_read_values_and_zoom(page: Page) -> None:
    page.show("runs=sigmoid-0.1-1&runs=sigmoid-0.1-2&charts=train/loss")
    page.curves("train/loss", 2)
    page.value(CHART.format("train/loss") + ".querySelector('.plot').focus()")
    line = CHART.format("train/loss") + ".querySelector('.readout').textContent"
    for _ in range(3):
        page.browser.press("ArrowRight")
    expected = loss_at(2, 0.1, 1)
    until(lambda: page.value(line).startswith("step 2 · sigmoid-0.1-"), "the third step")
    assert f"{expected:.4g}" in page.value(line)
    page.browser.press("ArrowDown")
    until(lambda: "sigmoid-0.1-2" in page.value(line), "the other run")
    assert f"{loss_at(2, 0.1, 2):.4g}" in page.value(line)
    page.browser.press("+")
    until(lambda: "to=" in page.value("location.hash"), "the range")
    page.browser.press("Escape")
    until(lambda: "to=" not in page.value("location.hash"), "the whole range")


def test_dots_of_findings_are_walked_by_keys(page: Page) -> None:
    page.value("document.querySelector('#dots circle').focus()")
    told = TEXT.format("told")
    # Its sentence is text, whatever it holds.
    expected = f"relu-1-1: exploding_loss (stop) since step 40: the loss rises {HOSTILE}"
    assert page.value(told) == expected
    page.browser.press("ArrowRight")
    until(lambda: page.value(told).startswith("relu-1-2"), "the next dot")


def test_what_differs_is_said(page: Page) -> None:
    page.show("runs=sigmoid-1-1&runs=relu-1-1")
    rows = "[...document.querySelectorAll('#settings tr[data-setting]')]"
    assert page.value(f"{rows}.map(one => one.innerText)") == ["activation\tsigmoid\trelu"]
    page.value("document.getElementById('part').click()")
    until(lambda: "Best: sigmoid-1-1" in page.value(TEXT.format("winner")), "the best")
    assert "from step" in page.value("document.querySelector('#parted tbody').innerText")


def test_dragging_along_an_axis_filters(page: Page) -> None:
    page.type("seed >= 1")
    grip = "document.querySelector('.grip[data-axis=\"lr\"]')"
    page.value(f"{grip}.scrollIntoView({{block: 'center'}})")
    box = f"{grip}.getBoundingClientRect()"
    x, top, height = (page.value(f"{box}.{one}") for one in ("x", "y", "height"))
    # The logarithmic axis from 0.001 to 1: the upper half begins above 0.03.
    page.browser.drag((x + 12, top), (x + 12, top + height / 2))
    until(lambda: len(page.names()) == 8, "the rows of the upper half")
    assert {name.split("-")[1] for name in page.names()} == {"0.1", "1"}
    assert page.value("document.getElementById('query').value").startswith("seed >= 1 lr>=0.03")


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_it_without_scrolling_sideways(page: Page, dark: bool) -> None:
    page.browser.look(width=390, height=800, dark=dark)
    page.show()
    page.curves("train/loss", 16)
    assert page.value("document.documentElement.scrollWidth") == 390
    # As wide as the list is if the names of settings are short.
    page.value("document.getElementById('group').style.width = '120px'")
    page.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.value("document.documentElement.scrollWidth") == 390
    light = page.value("getComputedStyle(document.body).backgroundColor")
    assert light == ("rgb(20, 22, 24)" if dark else "rgb(250, 249, 246)")


def test_a_choice_that_does_not_exist_is_said_or_ignored(page: Page) -> None:
    page.show("sort=gone&group=gone&columns=gone&charts=gone&q=lr+%3E+x")
    page.curves("train/loss", 16)
    assert page.value(TEXT.format("refused")) == "lr > x: x is not a number"
    page.show("x=moon")
    note = CHART.format("train/loss") + "?.querySelector('.note').textContent"
    until(lambda: page.value(note) == "x: 'moon'; give step or time or epoch", "the refusal")


def test_it_lives_and_says_when_its_server_is_gone(tmp_path: Path) -> None:
    place = tmp_path / "store" / "alive"
    start_run(place, name="alive")
    with (
        closing(RunWriter(open_storage(place), 0)) as writer,
        watching(tmp_path / "store") as (address, _, process),
        opened(tmp_path / "profile") as browser,
    ):
        page = Page(browser, address)
        for step in range(4):
            writer.add(step_record(step, scalars={"losses/loss": 1.0 + step}))
        browser.open(address)
        until(lambda: page.value(DATA.format("train/loss")), "the chart")
        until(lambda: page.curves("train/loss", 1)["lines"] == [[1, 2, 3, 4]], "the first steps")
        writer.add(step_record(4, scalars={"losses/loss": 5.0}))
        until(lambda: page.curves("train/loss", 1)["lines"] == [[1, 2, 3, 4, 5]], "the next step")
        page.value("document.querySelector('tr[data-run=alive] input').focus()")
        make_run(tmp_path / "store" / "late", [step_record(0)], name="late")
        until(lambda: sorted(page.names()) == ["alive", "late"], "a new run")
        writer.add(step_record(5, scalars={"losses/loss": 6.0}))
        until(lambda: page.curves("train/loss", 1)["lines"] == [[1, 2, 3, 4, 5, 6]], "a new row")
        assert page.value("document.activeElement.closest('tr')?.dataset.run") == "alive"
        process.kill()
        gone = "vinedresser watch does not answer; has it ended?"
        until(lambda: page.value(TEXT.format("pulse")) == gone, "the end of the server")
