"""docs/images/: the pages as a browser shows them, wide, dark, and on a phone.

`python -m docs.page_pictures runs/demo` needs Chromium on the PATH, the runs of `make demo`, and
beside them those of examples/digits/sweep.toml, `make prune-demo` and `make drift-demo`; of what is
missing there are no pictures. Of each page it makes NAME.png, 1,400 pixels wide, NAME_dark.png, and
NAME_phone.png, 390 wide; of MLflow's pages the first. `--only store` makes those of one page.
"""

from __future__ import annotations

import argparse
import io
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

from tests.waiting import until
from tests.watching.browser import CHROMIUM, Browser, opened
from tests.watching.test_watch import watching
from vinedresser.infra.catalog.known_tracking import tracking

IMAGES = Path(__file__).parent / "images"
# Name of the view -> width, greatest height, dark.
_VIEWS = {"": (1400, 1500, False), "_dark": (1400, 900, True), "_phone": (390, 844, False)}
# Colours of a picture, which are few to keep its file small, and those of large areas among them.
_COLOURS, _AREAS = 256, 48
# A page whose pictures are equal so many seconds apart is drawn.
_CALM, _PATIENCE = 0.7, 15.0
# The runs of the demo that have pages of their own, or are compared.
_FAILED, _SOUND = "digits-high-lr", "digits-healthy"
# Pages of what makes runs of its own, or none, beside the demo.
_SWEEP = "digits-sweep"
_PARENTS = {
    "sweep": f"{_SWEEP}/sweep.html",
    "pruning": "slim-resnet/pruning.html",
    "monitor": "drift-demo/*/*/monitor.html",
    "drift": "drift-demo/*/*/explanations/*/explain.html",
}


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path, help="the runs of make demo")
    parser.add_argument("--only", help="make the pictures of one page")
    options = parser.parse_args()
    if CHROMIUM is None:
        sys.exit("there is no Chromium or Chrome on the PATH")
    store = options.store.resolve()
    pages: dict[str, Callable[[Browser, str], None]] = {
        "store": partial(_watched, store, "", "document.querySelector('.curve .uplot')"),
        "watch": partial(_watched, store, f"/run/{_FAILED}", "document.querySelector('svg')"),
        "report": partial(_file, store / _FAILED / "report.html"),
        "compare": partial(_compared, store),
        **{name: partial(_file, page) for name, page in _parent_pages(store.parent).items()},
        "mlflow_sweep": partial(_mlflow, store.parent / _SWEEP),
        "mlflow": partial(_mlflow, store),
        "mlflow_compare": partial(_mlflow, store),
    }
    profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with profile as folder, opened(Path(folder)) as browser:
        for name, draw in pages.items():
            if options.only in (None, name):
                draw(browser, name)


def _parent_pages(store: Path) -> dict[str, Path]:
    """Return the last page of each kind."""
    found = {name: sorted(store.glob(pattern)) for name, pattern in _PARENTS.items()}
    return {name: pages[-1] for name, pages in found.items() if pages}


def _watched(store: Path, path: str, drawn: str, browser: Browser, name: str) -> None:
    with watching(store) as (address, _, _):
        # The address has the key, for which the page gets a cookie.
        browser.open(address)
        until(lambda: browser.value("document.querySelector('main')") is not None, "the page")
        if path:
            browser.open(address.partition("/?")[0] + path)
        until(lambda: browser.value(f"{drawn} !== null"), drawn)
        _views(browser, name)


def _file(page: Path, browser: Browser, name: str) -> None:
    browser.open(page.as_uri())
    _views(browser, name)


def _compared(store: Path, browser: Browser, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "compare.html"
        command = [
            sys.executable,
            "-m",
            "vinedresser",
            "compare",
            str(store),
            "--output",
            str(page),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        _file(page, browser, name)


def _mlflow(store: Path, browser: Browser, name: str) -> None:
    with _mlflow_page(store) as table:
        page, height = table, 640
        shown = "trial-0000" if name == "mlflow_sweep" else _FAILED
        if name == "mlflow_compare":
            record = tracking(store)
            runs = [tracking(store / run).run_id for run in (_FAILED, _SOUND)]
            listed = quote("[" + ",".join(f'"{one}"' for one in runs) + "]")
            experiment = quote(f'["{record.experiment_id}"]')
            page = f"{table.partition('#')[0]}#/compare-runs?runs={listed}&experiments={experiment}"
            height = 1900
        browser.look(width=1400, height=height)
        # As from the second visit on, if MLflow's assistant was closed.
        for prepare in ("panelOpen", ""):
            browser.open("about:blank")
            browser.open(page)
            until(lambda: shown in (browser.value("document.body.innerText") or ""), "the runs")
            _settled(browser)
            keys = f"Object.keys(localStorage).filter(key => key.includes('assistant.{prepare}'))"
            browser.value(f"{keys}.forEach(key => localStorage.setItem(key, 'false'))")
        # What the picture is about is below these.
        for heading in ("Visualizations", "Artifacts"):
            places = "[...document.querySelectorAll('div, span')]"
            named = f"one => one.textContent.trim() === '{heading}'"
            browser.value(f"{places}.find({named})?.click()")
        _save(name, _settled(browser))


@contextmanager
def _mlflow_page(store: Path) -> Iterator[str]:
    """Serve MLflow's page of a store; yield its address."""
    command = [sys.executable, "-m", "vinedresser", "ui", str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None, "vinedresser ui did not start"
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)


def _views(browser: Browser, name: str) -> None:
    """Save the pictures of the page that is open."""
    for view, (width, highest, dark) in _VIEWS.items():
        browser.look(width=width, height=highest, dark=dark)
        _settled(browser)
        height = browser.value("Math.ceil(document.body.getBoundingClientRect().bottom)")
        browser.look(width=width, height=min(highest, max(400, height)), dark=dark)
        _save(name + view, _settled(browser))


def _settled(browser: Browser) -> bytes:
    """Return a picture of the page once it no longer changes, or after a while."""
    end = time.monotonic() + _PATIENCE
    before, now = b"", browser.picture()
    while before != now and time.monotonic() < end:
        time.sleep(_CALM)
        before, now = now, browser.picture()
    return now


def _save(name: str, picture: bytes) -> None:
    with Image.open(io.BytesIO(picture)) as image:
        full = image.convert("RGB")
    found: list[tuple[int, Any]] | None = full.getcolors(full.width * full.height)
    assert found is not None, "there is a place for each pixel"
    # Areas keep their colours, and so do spots, such as the dots of runs.
    frequent = [channel for _, colour in sorted(found)[: -_AREAS - 1 : -1] for channel in colour]
    others = full.quantize(_COLOURS - _AREAS, Image.Quantize.MAXCOVERAGE).getpalette()
    palette = Image.new("P", (1, 1))
    palette.putpalette([*frequent, *(others or [])])
    few = full.quantize(palette=palette, dither=Image.Dither.NONE)
    path = IMAGES / f"{name}.png"
    few.save(path, optimize=True)
    size = f"{full.width} × {full.height}   {path.stat().st_size:,} bytes"
    sys.stdout.write(f"{path.name}   {size}\n")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
